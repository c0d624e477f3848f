"""One run as a trace that ui.perfetto.dev and chrome://tracing open: the JSON of Chrome's trace event format.

`tracks.py` is the format, which steps are shown, and draws trainer, syncs and queue; `groups.py` draws the fleet and
sampled groups with their flows.
"""

from __future__ import annotations

import gzip
import io
import json
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import numpy as np
from msgspec import Struct

import fleetsim
from fleetsim.config.scenario import Scenario
from fleetsim.export.perfetto.groups import draw_groups, draw_instances, sampled_groups, stays_of
from fleetsim.export.perfetto.tracks import Events, StepChoice, draw_queue, draw_syncs, draw_trainer
from fleetsim.files import write_bytes
from fleetsim.sim import timeline
from fleetsim.sim.records import Records
from fleetsim.sim.run import simulate

# --- A run as a trace: which part of it is shown, drawn onto tracks, and written as JSON.

# What keeps a trace small enough for a browser.
MOST_GROUPS, MOST_EVENTS = 200, 400_000
# Looks at the fleet for the counters of its instances: so many in a trace, fewer where instances are many.
MOST_LOOKS, LEAST_LOOKS, MOST_LOOKED = 400, 20, 40_000


class Trace(Struct, frozen=True):
    """events: all of them. metadata: what the file says of itself. left_out: what it does not show, in words."""

    events: Events
    metadata: dict[str, Any]
    left_out: tuple[str, ...]

    def text(self) -> Iterator[str]:
        """The JSON document, an event a line. The same run gives the same bytes."""
        yield '{"displayTimeUnit":"ms","otherData":'
        yield json.dumps(self.metadata, sort_keys=True, ensure_ascii=False, allow_nan=False)
        yield ',"traceEvents":['
        for k, line in enumerate(self.events.lines()):
            yield ("\n" if k == 0 else ",\n") + line
        yield "\n]}\n"

    def data(self, *, compressed: bool) -> bytes:
        """The document as the bytes of a file, gzip's if `compressed`: without a name or a time in them."""
        lines, buffer = (text.encode() for text in self.text()), io.BytesIO()
        if not compressed:
            return b"".join(lines)
        with gzip.GzipFile(filename="", mode="wb", fileobj=buffer, mtime=0, compresslevel=6) as packed:
            packed.writelines(lines)
        return buffer.getvalue()


def write_trace(run: Records, place: Path, steps: StepChoice) -> str:
    """The trace of a run as a file, compressed where it ends in .gz; returns what to tell of it. The run is simulated
    once more, to record it. Raises InputError for steps that it does not have, OutsideError."""
    trace = trace_of(record(run.scenario, run, steps), steps)
    data = trace.data(compressed=place.suffix == ".gz")
    write_bytes(place, data)
    return (
        f"{len(data) / 1e6:.1f} MB, {len(trace.events):,} events: {'; '.join(trace.left_out)}; open it at "
        "ui.perfetto.dev or chrome://tracing"
    )


def record(scenario: Scenario, plain: Records, steps: StepChoice) -> Records:
    """The run `plain` of the scenario once more, with all that its trace needs. The same records, to the byte.

    Its instances are looked at often enough for `steps` of it, and not more often. Raises InputError as
    `StepChoice.of`.
    """
    start, end = timeline.steps_window(plain, *steps.of(plain))
    n = int(plain.steps["instances"].max())
    looks = min(MOST_LOOKS, max(LEAST_LOOKS, MOST_LOOKED // n))
    every = max((end - start) / looks, 1e-6)
    return simulate(
        scenario, replication=plain.replication, activity=True, scrape_every_s=every, scrape_between_s=(start, end)
    )


def trace_of(records: Records, steps: StepChoice) -> Trace:
    """Draws these steps of a run whose activity was recorded, fewer of them where they are more than a browser holds.

    Counters of instances need a run that was scraped too, as `record` makes it.
    Raises InputError as `StepChoice.of`, ValueError for a run without activity.
    """
    first, asked = steps.of(records)
    last = _fitting(records, first, asked)
    window = timeline.steps_window(records, first, last)
    picked, of = sampled_groups(records, window, MOST_GROUPS)
    events = Events()
    trainer = draw_trainer(events, records, window)
    draw_syncs(events, records, window)
    draw_queue(events, records, window)
    stays = stays_of(records, picked, window)
    # Groups stand above the instances, but flows need to know where their samples are.
    groups = events.process("sampled groups")
    on = draw_instances(events, records, window, stays)
    flows = draw_groups(events, records, window, groups, picked, stays, on, trainer)
    total = len(records.steps)
    left_out = []
    if last - first + 1 < total:
        left_out.append(f"steps {first} to {last} of 0 to {total - 1}")
    if last < asked:
        left_out.append(f"not the steps up to {asked}: a trace holds about {MOST_EVENTS:,} events")
    left_out.append(f"{len(picked):,} of {of:,} groups submitted then, {flows:,} of them with a flow")
    metadata = {
        "fleetsim_version": fleetsim.__version__,
        "scenario": records.scenario.name,
        "seed": records.seed,
        "replication": records.replication,
        "first_step": first,
        "last_step": last,
        "steps_of_the_run": total,
        "start_s": window[0],
        "end_s": window[1],
        "groups_sampled": len(picked),
        "groups_submitted": of,
        "flows": flows,
        "time": "microseconds of the simulated run, rounded",
    }
    return Trace(events, metadata, tuple(left_out))


def _fitting(records: Records, first: int, last: int) -> int:
    """The last step up to which a trace from step `first` on stays below MOST_EVENTS, one step at least."""
    start, end = timeline.steps_window(records, first, last)
    spans, depths = timeline.instance_spans(records, start, end), timeline.queue_depth(records, start, end)
    times = np.sort(np.concatenate([spans["start_s"], depths["time_s"]]))
    ends = records.steps["end_s"][first : last + 1]
    fit = int(np.count_nonzero(np.searchsorted(times, ends) <= MOST_EVENTS))
    return first + max(1, fit) - 1
