"""A window of history: observed, diagnosed, simulated again, and simulated with another fleet.

`ask` is the question, `history_fields` says which window is meant, `run` leads, `result` is the answer. Four stages, a
folder each: `observe` (what the window shows), `implied` (the scenario that would show it), `diagnose` (what is wrong,
what it costs), `change` (what another fleet would do). `backtest` holds the implied scenario against the window,
`arrivals` where engines serve users.

It is told by `told`, `facts` (the first lines, the JSON), `words`, `pictures` and `other_fleets`. `shown` makes the
values of a job of a window (--run).
"""
