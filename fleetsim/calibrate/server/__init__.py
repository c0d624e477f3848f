"""A running OpenAI-compatible server, measured from outside: vLLM, SGLang, TensorRT-LLM, or what speaks like them.

    client -> identity, measure -> loads_in_turn -> calibrate/session.py -> engine -> http_player -> records

A client sees no iterations, only when tokens arrive. Three things follow from that: a decode iteration is the time
between two tokens of a stream while exactly b streams decode; a prompt is the time to its first token, in which the
request's own fixed cost lies as well (`ovh`); a mixture is the gap in the others' streams while a new prompt is
computed.
"""
