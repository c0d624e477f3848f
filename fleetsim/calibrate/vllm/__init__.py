"""vLLM in a process of its own, measured: its engine core is stepped by hand, and every iteration is recorded.

    parent -> child -> loads_in_order -> calibrate/session.py -> engine -> recorder -> raw records

`parent` runs in the command's process: it starts the child, follows it, and says why it ended. Everything else runs in
the child, where only vLLM need be installed.
"""
