"""The continuous-batching kernel: compiled plain functions over the tables of one fleet.

Read it in this order. `tables` says what is stored and `addresses` how it is reached; `trees` orders events; `blocks`
keeps the KV cache and its prefixes, `sharing` knows when others may read them; `members` knows who is running, waiting
and decoding; `instance` is one instance in time and `batch` what all schedulers do alike; `plan` schedules an iteration
as vLLM does, or asks `sglang` or `tensorrt`; `landing` lets it happen; `dispatch` decides what is sent where; `fleet`
moves the whole through time; `boundary` and `control` are what a run does to it (hold, resume, discard, kill). Nothing
here calls back into Python. `jit`, `pipeline` and `build` compile it.
"""
