"""The continuous-batching kernel: compiled plain functions over the tables of one fleet.

`tables` says what is stored, `trees` orders it, `blocks` keeps the KV cache and its prefixes, `instance` plans and
lands one instance's iterations, `fleet` moves the whole fleet through time, `control` is what a run does to it
(hold, resume, discard, kill). Nothing here calls back into Python.
"""
