"""A fleet's own healthy hours: a history as its scrapes were, without what replay finds faulty.

A run log has a row a step, and no scrapes: its counters grow at the ends of steps, as a trainer's exporter lets them.
"""

from __future__ import annotations

import math
from collections import Counter
from collections.abc import Collection, Mapping, Sequence
from itertools import groupby, pairwise
from typing import Any

import numpy as np
from msgspec import Struct

from fleetsim import units
from fleetsim.alerts.faults import cut
from fleetsim.alerts.signal_values import ENGINES, TRAINER, Floats, Scraped, mended
from fleetsim.config.scenario import Scenario
from fleetsim.errors import FleetsimError, InputError, Problem
from fleetsim.faces import flag
from fleetsim.history.history import History, StepLog
from fleetsim.history.window import window
from fleetsim.replay.diagnose.checks.trainer import SLOWER
from fleetsim.replay.diagnose.finding import MENDS
from fleetsim.replay.run import replay

# A history is judged in parts of so long and of so many steps, at least, in so many parts at most.
PART_S, PART_STEPS, PARTS = 900.0, 20, 96
# Fewer healthy hours than this say nothing of how rare a value is.
FEWEST_H = 2.0
# Between two scrapes of what a run log says, at most.
GRID_S = 15.0

# A part that looks steady by itself is at fault where a step takes so many times the usual seconds of the run's parts.
USUAL = {"trainer": ("trainer.train_s_total", SLOWER), "sync": ("trainer.sync_s_total", 1.5)}
# Counters of a trainer, and the column of a run log that they add up; "" = one a step.
COUNTERS = {
    "trainer.steps": "",
    "trainer.wait_s_total": "wait_s",
    "trainer.train_s_total": "train_s",
    "trainer.sync_s_total": "sync_s",
    "trainer.trained_tokens": "output_tokens",
    "trainer.trained_samples": "samples",
}
# The same of the engines' histogram of lengths.
LENGTHS = {"output_tokens_sum": "length_sum", "output_tokens_count": "samples"}


class Learned(Struct, frozen=True):
    """Healthy stretches of a history. source: where it was read. hours: of these stretches; of_hours: of all of it.
    faults: check -> in how many parts replay found it; those parts are left out, and the ones beside them."""

    stretches: tuple[Scraped, ...]
    source: str
    hours: float
    of_hours: float
    faults: Mapping[str, int]

    @property
    def longest_s(self) -> float:
        """Seconds of the longest stretch."""
        return max(run.hours for run in self.stretches) * 3600.0

    def document(self) -> dict[str, Any]:
        """As in the JSON."""
        parts = {"faults": dict(self.faults), "healthy_hours": self.hours, "hours": self.of_hours}
        return {"source": self.source, **parts}

    def words(self) -> str:
        """From how much data."""
        found = ", ".join(f"{check} in {units.plural(count, 'part')}" for check, count in self.faults.items())
        left = (
            f"; {self.of_hours - self.hours:.1f} left out, in and beside parts where replay finds a fault ({found})"
            if found
            else ""
        )
        return f"{self.hours:.1f} healthy hours of {self.source}{left}"


def learned_of(history: History, scenario: Scenario, given: Collection[str] | None) -> Learned:
    """What a history shows of its fleet while nothing was wrong. scenario, given: the job, as far as it is known.

    Raises InputError where too little is left.
    """
    scraped = scraped_history(history)
    steps = float(np.nansum(np.maximum(np.diff(scraped.trainer["trainer.steps"]), 0.0))) or math.inf
    whole_s = scraped.hours * 3600.0
    parts = max(1, int(whole_s / max(PART_S, PART_STEPS * whole_s / steps, whole_s / PARTS)))
    # between the parts that are judged
    edges: list[float] = scraped.times[np.linspace(0, len(scraped.times) - 1, parts + 1).astype(int)].tolist()
    judged = [_faults(history, begin, end, scenario, given) for begin, end in pairwise(edges)]
    found = [{*checks, *slow} for checks, slow in zip(judged, _slow(scraped, edges), strict=True)]
    faults = Counter(check for checks in found for check in checks)
    # a fault begins in the part before the first that is seen to have it, and ends in the part after the last
    good = [not any(found[max(0, k - 1) : k + 2]) for k in range(len(found))]
    healthy = []
    for fine, group in groupby(range(len(good)), good.__getitem__):
        part = list(group)
        if fine:
            healthy.append(cut(scraped, edges[part[0]], edges[part[-1] + 1]))
    hours = sum(run.hours for run in healthy)
    if hours < FEWEST_H:
        rule = f"thresholds are learned from {FEWEST_H:g} healthy hours at least"
        why = "".join(f"; replay finds {check} at fault in {units.plural(n, 'part')}" for check, n in faults.items())
        remedy = "give a longer history, or the plan without it: thresholds then come from simulated runs"
        raise InputError([Problem(flag("run"), f"{hours:.1f} of {scraped.hours:.1f} hours{why}", rule, remedy)])
    return Learned(tuple(healthy), history.source, hours, scraped.hours, faults)


def _faults(history: History, begin: float, end: float, scenario: Scenario, given: Collection[str] | None) -> list[str]:
    """What is to be mended in a part, by the runbook's checks; nothing of it can be trusted that cannot be read."""
    try:
        part = window(history, begin, end)
        verdict = replay(part, scenario, given=given or (), model=False, back_test=False).verdict
    except FleetsimError:
        return ["data"]
    return [f.check for f in verdict.findings if f.state == "fault" and f.check in MENDS]


def _slow(scraped: Scraped, edges: Sequence[float]) -> list[set[str]]:
    """Of each part, what takes longer in it than usual."""
    at = np.searchsorted(scraped.times, edges)

    def grown(name: str) -> Floats:
        """Within each part, by what is known at its ends."""
        whole = mended(scraped.trainer[name][None, :])[0]
        known = np.flatnonzero(np.isfinite(whole))
        return np.diff(np.interp(at, known, whole[known])) if len(known) else np.full(len(at) - 1, np.nan)

    out: list[set[str]] = [set() for _ in at[1:]]
    for check, (name, most) in USUAL.items():
        with np.errstate(divide="ignore", invalid="ignore"):
            each = grown(name) / grown("trainer.steps")
        usual = float(np.nanmedian(each)) if np.isfinite(each).any() else math.nan
        for k in np.flatnonzero(each > most * usual).tolist():
            out[k].add(check)
    return out


def scraped_history(history: History) -> Scraped:
    """A history as its scrapes were; NaN where it says nothing."""
    times, steps = history.times, history.steps
    ends = None if steps is None else steps.ends
    if steps is not None and not history.instances:
        if ends is None:
            rule, remedy = "has neither a clock nor the seconds of its steps", "log either"
            raise InputError([Problem(flag("run"), history.source, rule, remedy)])
        times = np.arange(float(np.nanmin(ends)), float(np.nanmax(ends)) + GRID_S, GRID_S)
    instances = max(1, len(history.instances))
    missing = np.full((instances, len(times)), np.nan)
    engines = {name: history.values.get(name, missing) for name in (*ENGINES, "finished")}
    engines |= {"output_tokens_sum": missing, "output_tokens_count": missing}
    if "output_tokens" in history.histograms:
        buckets = history.histograms["output_tokens"]
        at = np.clip(np.searchsorted(times, buckets.times), 0, len(times) - 1)
        for name, values in (("sum", buckets.sums), ("count", buckets.counts[:, :, -1])):
            engines[f"output_tokens_{name}"] = np.full((instances, len(times)), np.nan)
            engines[f"output_tokens_{name}"][:, at] = values
    nothing = np.full(len(times), np.nan)
    trainer = {name: history.fleet.get(name, nothing) for name in TRAINER}
    if steps is not None and ends is not None and not np.isfinite(trainer["trainer.steps"]).any():
        logged = _logged(steps, ends, times)
        lengths = {name: logged.pop(name)[None, :] for name in LENGTHS if name in logged}
        engines |= {} if history.instances else lengths
        trainer |= logged
    return Scraped(times, engines, trainer)


def _logged(steps: StepLog, ends: Floats, times: Floats) -> dict[str, Floats]:
    """What exporters would have shown, at these times, of the steps in a log that ended then."""
    order = np.argsort(ends, kind="stable")
    done = np.searchsorted(ends[order], times, "right")
    columns = {"": np.ones(len(steps)), **steps.columns}
    if "length_mean" in columns and "samples" in columns:
        columns["length_sum"] = columns["length_mean"] * columns["samples"]
    out = {}
    for name, column in {**COUNTERS, **LENGTHS}.items():
        if column in columns and (name not in LENGTHS or "length_sum" in columns):
            out[name] = np.concatenate([[0.0], np.cumsum(np.nan_to_num(columns[column][order]))])[done]
    queued = steps.columns.get("queue_samples")
    if queued is not None:
        out["queue.samples"] = queued[order][np.clip(done - 1, 0, len(queued) - 1)]
    return out
