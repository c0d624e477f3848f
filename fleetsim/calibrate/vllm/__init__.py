"""vLLM in this process: its engine core stepped by hand, every iteration recorded.

`child` runs as a process of its own (fleetsim.calibrate.spawn starts and follows it); the rest is what it is made of.
"""
