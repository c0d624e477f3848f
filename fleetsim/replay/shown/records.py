"""How sure a run's values are: the interval of each, from its steps."""

from __future__ import annotations

import math
from collections.abc import Iterator, Mapping
from dataclasses import replace
from statistics import NormalDist
from typing import Any

import numpy as np

from fleetsim.config.sections import ObservedConfig
from fleetsim.history.history import Floats, History
from fleetsim.job.derived_values import SLOWDOWN
from fleetsim.job.facts import STEP_SEEN
from fleetsim.job.uncertainty import CONFIDENCE
from fleetsim.replay.implied.implied_scenario import Implied
from fleetsim.replay.implied.logged_speed import DOUBT
from fleetsim.replay.implied.observed_load import found_pauses
from fleetsim.replay.implied.workload import OUTPUT
from fleetsim.replay.observe.logged_lengths import logged_lengths
from fleetsim.replay.observe.logged_rollout import LoggedLaw
from fleetsim.replay.observe.observed import Observed
from fleetsim.replay.observe.steps import steps_of

_Z = NormalDist().inv_cdf((1 + CONFIDENCE) / 2)
# Column of a window's steps, the path that it becomes (the first that holds some of it), and what it is called.
_TIMED = (
    ("train_s", ("trainer.per_token_s", "trainer.fixed_s"), "trainer seconds"),
    ("sync_s", ("sync.trainer_block_s", "sync.pause_s"), "weight sync seconds"),
    ("rest_s", ("trainer.checkpoint.stall_s",), "seconds in no named timer"),
)
# Steps below which an interval is a guess, and halves of the steps that a law is fitted to.
_FEWEST, _HALVES = 4, 12
# Doubt in the speed of engines that were scraped: no less than this.
_LEAST_DOUBT = 0.02


def records_of(
    history: History, observed: Observed, found: Implied, values: Mapping[str, Any]
) -> Iterator[ObservedConfig]:
    """How sure the values are that a plan rests on."""
    rows = steps_of(history, found_pauses(observed), observed.placement)
    log = history.steps
    if rows is not None and rows.step_s() is not None:
        series = rows.elapsed_s / rows.count
        yield _record("run.steps", STEP_SEEN, interval_of(series), "s", history.source, int(np.isfinite(series).sum()))
    for column, paths, what in _TIMED:
        if rows is None or column not in rows.columns:
            continue
        if column != "sync_s" and not any(path in values for path in paths):
            continue  # of a sync what its transport comes to may stand, where that is as long as the observed one
        series = rows.columns[column][0] / rows.count
        metric = column if log is None else log.metrics.get(column, column)
        place = next((path for path in paths if values.get(path)), paths[0])
        steps = int(np.isfinite(series).sum())
        yield _record(place, what, interval_of(series), "s", f"{history.source}: {metric}", steps)
    yield from _lengths(history, observed, values)
    if SLOWDOWN in values:
        factor = float(values[SLOWDOWN])
        by, doubt = "iterations", DOUBT
        if found.logged is not None:
            by = found.logged.by
        elif found.speed is not None and found.speed.held_out is not None:
            doubt = 1.0 + max(_LEAST_DOUBT, found.speed.held_out)
        interval = factor, factor / doubt, factor * doubt
        yield _record(SLOWDOWN, "slowdown of the engines", interval, "", f"{history.source}: {by}", 0)


def _lengths(history: History, observed: Observed, values: Mapping[str, Any]) -> Iterator[ObservedConfig]:
    lengths, log = observed.lengths, history.steps
    if lengths is None or OUTPUT not in values:
        return
    columns = {} if log is None else log.columns
    law, metric = lengths.law, "length_mean" if log is None else log.metrics.get("length_mean", "length_mean")
    where = f"{history.source}: {metric}"
    if law is None or "length_mean" not in columns:
        share = 1.0 / math.sqrt(max(1.0, sum(lengths.count)))
        mean = (lengths.mean, lengths.mean * (1 - share), lengths.mean * (1 + share))
        yield _record(OUTPUT, "mean output length", mean, "tokens", history.source, 0)
        return
    steps = int(np.isfinite(columns["length_mean"]).sum())
    yield _record(f"{OUTPUT}.mean", "mean output length", interval_of(columns["length_mean"]), "tokens", where, steps)
    spread = _spread(history, law)
    yield _record(f"{OUTPUT}.cv", "spread of the lengths (cv before the cap)", spread, "", where, steps)


def _spread(history: History, law: LoggedLaw) -> tuple[float, float, float]:
    """The cv and its interval: of the laws of twelve halves of the steps (each row drawn by itself)."""
    log = history.steps
    assert log is not None
    draws = np.random.default_rng(0)
    found = []
    for _ in range(_HALVES):
        half = draws.random(len(log)) < 0.5
        part = replace(history, steps=replace(log, columns={name: v[half] for name, v in log.columns.items()}))
        rows = steps_of(part, (), None) if half.any() else None
        seen = None if rows is None else logged_lengths(part, rows)
        if seen is not None and seen.law is not None:
            found.append(math.log(seen.law.cv / law.cv))
    # Halves of a sample scatter about the whole as the whole does about the truth.
    wide = _Z * math.sqrt(sum(x * x for x in found) / len(found)) if found else 0.0
    return law.cv, law.cv * math.exp(-wide), law.cv * math.exp(wide)


def interval_of(values: Floats) -> tuple[float, float, float]:
    """Mean of a series of steps and the interval of that mean in eight of ten cases, at least 0.

    Neighbouring steps that resemble each other count for fewer: n (1 - r) / (1 + r) of them, r = their correlation.
    """
    known = values[np.isfinite(values)]
    mean = float(known.mean()) if known.size else 0.0
    if known.size < _FEWEST:
        return mean, 0.5 * mean, 2.0 * mean
    off = known - mean
    scatter = float(off @ off)
    if scatter <= 0:
        return mean, mean, mean
    r = min(0.95, max(0.0, float(off[1:] @ off[:-1]) / scatter))
    count = max(2.0, known.size * (1.0 - r) / (1.0 + r))
    t = _Z * (1.0 + (_Z**2 + 1.0) / (4.0 * max(1.0, count - 1.0)))  # Student's t, Cornish and Fisher
    half = t * math.sqrt(scatter / (known.size - 1) / count)
    return mean, max(0.0, mean - half), mean + half


def _record(
    path: str, what: str, interval: tuple[float, float, float], unit: str, source: str, steps: int
) -> ObservedConfig:
    value, low, high = (float(f"{x:.4g}") for x in interval)
    return ObservedConfig(path=path, what=what, value=value, low=low, high=high, unit=unit, source=source, steps=steps)
