"""Real engines, measured: what an engine did, a step-time model fitted to it, and its error on batches kept out.

    loads -> an engine (vLLM in process | a server | files) -> raw records -> observations -> fit -> check -> profile

`vllm` measures an engine in process, `server` a running one by its URL: both in the loop of `session.py`, with the
batches of `loads.py`. `sources` reads what others measured. `fit` makes coefficients of durations, `build.py` a profile
of raw records, `derivation.py` one of sources, and `facts.py` shows a profile.

Everything after the raw records is a pure function of them, so a better fit later needs no GPU. Measuring imports
nothing but numpy beside the engine's own dependencies: it runs where only vLLM is installed.
"""
