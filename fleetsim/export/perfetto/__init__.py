"""One run as a trace that ui.perfetto.dev and chrome://tracing open: the JSON of Chrome's trace event format.

`run_trace.py` says what goes in, `window.py` which steps; `job.py` draws trainer, syncs and queue, `groups.py` the
fleet and sampled groups with their flows; `events.py` is the format.
"""

from __future__ import annotations

from fleetsim.export.perfetto.run_trace import Trace, record, trace_of
from fleetsim.export.perfetto.window import StepChoice, parse_steps

__all__ = ["StepChoice", "Trace", "parse_steps", "record", "trace_of"]
