"""Histories of jobs that are not fleetsim's: a small world of its own, exported as engines and trainers really do.

Written from the source of vLLM, SGLang and TensorRT-LLM and from the runbook, before fleetsim's reader was looked at.
Nothing in this folder but `judge.py` imports fleetsim, and `judge.py` asks it only through its command line.
"""
