"""What the options of a history are called: on the command line, and in Python."""

from __future__ import annotations

from fleetsim.faces import Text, flag

HISTORY = Text("--from", "history")
PROMETHEUS = Text("--prometheus", "history")
SELECTOR, START, END, FRAMEWORK = map(flag, ("selector", "start", "end", "framework"))
SAVED = Text("what replay --save wrote", "a saved window")
STEP = Text("--step", "step_s")
MAP = Text("--map", "mapping")
CREDENTIALS = Text("--token-file or --basic-auth-file", "access=fleetsim.history.access.Access(token=...)")


def way_in(name: str) -> Text:
    """An option of how to get into a server: in Python they are one object."""
    return Text(f"--{name}", "access")


def mapped(signal: str, metric: str) -> Text:
    """A signal with its metric: `--map step_s=COLUMN` and `mapping={"step_s": "COLUMN"}`."""
    return Text(f"--map {signal}={metric}", f'mapping={{"{signal}": "{metric}"}}')
