"""Console logs of RL frameworks, written from their source and from a known truth.

`lived.py` lets a job of the outside world live and keeps what each step was; `consoles.py`, `tables.py` and `dicts.py`
print it as the frameworks do, noise included. They were written before fleetsim's reader was looked at, and import
nothing of fleetsim; `judge.py` asks fleetsim by its command line.
"""
