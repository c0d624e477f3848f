"""One run as a trace that ui.perfetto.dev and chrome://tracing open: the JSON of Chrome's trace event format.

`trace.py` says what goes in, `job.py` draws trainer, syncs and queue, `instances.py` the fleet, `groups.py` sampled
groups and their flows; `events.py` is the format.
"""

from __future__ import annotations

from fleetsim.export.perfetto.run_trace import Trace, record, trace_of
from fleetsim.export.perfetto.window import StepChoice, parse_steps

__all__ = ["StepChoice", "Trace", "parse_steps", "record", "trace_of"]
