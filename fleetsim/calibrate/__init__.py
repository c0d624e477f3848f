"""Real engines, measured: what an engine did, a step-time model fitted to it, and its error on batches kept out.

    loads -> an engine (vLLM in process | a server | files) -> raw records -> observations -> fit -> check -> profile

Everything after the raw records is a pure function of them, so a better fit later needs no GPU. Measuring imports
nothing but numpy beside the engine's own dependencies: it runs where only vLLM is installed.
"""
