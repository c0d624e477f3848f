"""What a window measured of a job: values by path, their records, and what is still assumed of them.

How sure a run's values are: the interval of each, from its steps.
"""

from __future__ import annotations

import math
from collections.abc import Collection, Iterator, Mapping
from statistics import NormalDist
from typing import Any

import numpy as np
from msgspec import Struct

from fleetsim.config.load import with_changes
from fleetsim.config.scenario import Scenario
from fleetsim.config.sections import ObservedConfig
from fleetsim.config.tree import is_touched, value_at
from fleetsim.faces import flag, setting
from fleetsim.history.history import Floats, History, StepLog
from fleetsim.job.derived_values import SECONDS as GIVEN_SECONDS
from fleetsim.job.derived_values import SLOWDOWN, as_alone
from fleetsim.job.facts import STEP_SEEN
from fleetsim.job.nameplate import mean_step_s
from fleetsim.job.uncertainty import CONFIDENCE
from fleetsim.replay.implied.engine import CORRELATION, DOUBT
from fleetsim.replay.implied.implied_scenario import Implied, implied
from fleetsim.replay.implied.stretch import found_pauses
from fleetsim.replay.implied.workload import OUTPUT
from fleetsim.replay.observe.lengths import logged_lengths
from fleetsim.replay.observe.observe import observe
from fleetsim.replay.observe.observed import LoggedLaw, Observed
from fleetsim.replay.observe.steps import steps_of, steps_of_log

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
        yield _series("run.steps", STEP_SEEN, series, "s", history.source)
    for column, paths, what in _TIMED:
        if rows is None or column not in rows.columns:
            continue
        if column != "sync_s" and not any(path in values for path in paths):
            continue  # of a sync what its transport comes to may stand, where that is as long as the observed one
        series = rows.columns[column] / rows.count
        metric = column if log is None else log.metrics.get(column, column)
        place = next((path for path in paths if values.get(path)), paths[0])
        yield _series(place, what, series, "s", f"{history.source}: {metric}")
    yield from _lengths(history, observed, values)
    if SLOWDOWN in values:
        factor = float(values[SLOWDOWN])
        by, doubt = "iterations", DOUBT
        if found.logged is not None:
            by = found.logged.by
        elif found.speed is not None and found.speed.held_out is not None:
            doubt = 1.0 + max(_LEAST_DOUBT, found.speed.held_out)
        ends = None if found.logged is None else found.logged.ends
        interval = factor, *(ends or (factor / doubt, factor * doubt))
        yield _record(SLOWDOWN, "slowdown of the engines", interval, "", f"{history.source}: {by}")
    if found.logged is not None and found.logged.trainer is not None:
        seconds, (factor, low, high) = mean_step_s(found.scenario), found.logged.trainer
        ends_s = seconds, seconds * low / factor, seconds * high / factor
        yield _record("trainer.fixed_s", "trainer seconds", ends_s, "s", f"{history.source}: step_s")


def _lengths(history: History, observed: Observed, values: Mapping[str, Any]) -> Iterator[ObservedConfig]:
    lengths, log = observed.lengths, history.steps
    if lengths is None or OUTPUT not in values:
        return
    if log is None or lengths.law is None:
        share = 1.0 / math.sqrt(max(1.0, sum(lengths.count)))
        ends = lengths.mean, lengths.mean * (1 - share), lengths.mean * (1 + share)
        yield _record(OUTPUT, "mean output length", ends, "tokens", history.source)
        return
    where = f"{history.source}: {log.metrics.get('length_mean', 'length_mean')}"
    mean = _series(f"{OUTPUT}.mean", "mean output length", log.columns["length_mean"], "tokens", where)
    yield mean
    spread = _spread(log, lengths.law)
    yield _record(f"{OUTPUT}.cv", "spread of the lengths (cv before the cap)", spread, "", where, mean.steps)


def _spread(log: StepLog, law: LoggedLaw) -> tuple[float, float, float]:
    """The cv and its interval: of the laws of twelve halves of the steps (each row drawn by itself)."""
    draws = np.random.default_rng(0)
    found = []
    for _ in range(_HALVES):
        half = log.where(draws.random(len(log)) < 0.5)
        seen = logged_lengths(half, steps_of_log(half)) if len(half) else None
        if seen is not None and seen.law is not None:
            found.append(math.log(seen.law.cv / law.cv))
    # Halves of a sample scatter about the whole as the whole does about the truth.
    wide = _Z * math.sqrt(sum(x * x for x in found) / len(found)) if found else 0.0
    return law.cv, law.cv * math.exp(-wide), law.cv * math.exp(wide)


def interval_of(values: Floats) -> tuple[float, float, float]:
    """Mean of a series of steps and the interval of that mean in eight of ten cases. What is never below 0 has a mean
    that is not 0: below half of it the lower end goes on by the logarithm.

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
    off_by = half / mean if mean > 0 else 0.0
    return mean, mean * (1.0 - off_by if off_by <= 0.5 else 0.5 * math.exp(1.0 - 2.0 * off_by)), mean + half


def _series(path: str, what: str, values: Floats, unit: str, source: str) -> ObservedConfig:
    """The record of a mean over steps."""
    return _record(path, what, interval_of(values), unit, source, int(np.isfinite(values).sum()))


def _record(
    path: str, what: str, interval: tuple[float, float, float], unit: str, source: str, steps: int = 0
) -> ObservedConfig:
    value, low, high = (float(f"{x:.4g}") for x in interval)
    return ObservedConfig(path=path, what=what, value=value, low=low, high=high, unit=unit, source=source, steps=steps)


RUN = flag("run")
SECONDS = tuple(path for path in GIVEN_SECONDS if path != "trainer.scaling.points")
SYNC = ("sync.transport", "sync.publish_s", "sync.pause_s", "sync.trainer_block_s")
# What any job with this model, these prompts and this hardware has in common.
COMMON = (
    OUTPUT,
    CORRELATION,
    "workload.prompt_tokens",
    *SECONDS,
    "trainer.checkpoint.every_steps",
    "trainer.checkpoint.stall_s",
    *SYNC,
    "fleet.switch_s",
    SLOWDOWN,
)
# What its owner decided: of the same job alone.
DECIDED = (
    "workload.group_size",
    "trainer.batch_samples",
    "sync.scope",
    "sync.every_steps",
    "fleet.speed_factors",
    "engine.prefix_caching",
    "engine.kv_blocks",
    "engine.block_size",
    "engine.max_num_seqs",
)
# What a run's fleet is known by, and how to say it.
_OF_A_FLEET = {
    "fleet.instances": setting("fleet.instances", "N"),
    "engine.gpu": flag("gpu"),
    "engine.model": flag("model"),
}


class Measured(Struct, frozen=True):
    """scenario: the run's own, as implied. values: what the window measured of it, by path. observed: how sure the main
    ones are. notes: what the reader of a plan must know."""

    scenario: Scenario
    values: Mapping[str, Any]
    observed: tuple[ObservedConfig, ...]
    notes: tuple[str, ...]


def measured(history: History, scenario: Scenario, given: Collection[str]) -> Measured:
    """What a window shows of the job in `scenario`; given: the dotted paths of it that somebody wrote.

    Raises InputError for a window that shows neither engines nor a trainer.
    """
    observed = observe(history, scenario)
    policy = _policy(observed, given)
    scenario = as_alone(with_changes(scenario, policy))
    found = implied(observed, history, scenario, written=frozenset(given))
    kept = SECONDS if observed.trainer.train_s is not None else ()
    values = dict(policy)
    if observed.trainer.batch_samples is not None and observed.trainer.batch_samples.source == "log":
        kept = (*kept, "trainer.batch_samples")
    for path in (*COMMON, *DECIDED):
        value = value_at(found.scenario, path)
        # seconds that were measured to be what the job says are observed all the same
        if value != value_at(scenario, path) or (path in kept and value):
            values[path] = value
    if found.speed is not None and found.speed.factor is not None and is_touched("engine.model", given):
        values[SLOWDOWN] = float(f"{found.speed.factor:.4g}")
    values |= _client_cap(history, observed, scenario, given)
    notes = [f"{RUN}: {line}" for line in found.differs]
    if SLOWDOWN not in values and not is_touched(SLOWDOWN, given):
        notes.append(f"{RUN} does not show how fast the engines are{_missing(observed, given)}")
    return Measured(found.scenario, values, tuple(records_of(history, observed, found, values)), tuple(notes))


def _policy(observed: Observed, given: Collection[str]) -> dict[str, Any]:
    """How far generation runs ahead of the trainer, as the log shows it, where nobody says it."""
    account = observed.account
    if account is None or not observed.logs_alone or any(is_touched(path, given) for path in ("admission", "sync")):
        return {}
    if account.mode == "synchronous":
        return {"admission.law": "barrier"}
    if account.mode == "one step off":
        return {"admission.law": "batches_ahead", "admission.batches_ahead": 1}
    cap, pull = (account.present.get(name) for name in ("window_cap_groups", "pull_groups"))
    if cap and pull and cap > pull:
        return {"admission.law": "per_sync_window", "admission.staleness_threshold": round(cap / pull - 1.0, 2)}
    age = account.present.get("staleness_steps")
    if account.mode == "asynchronous" and age:
        return {"admission.law": "version_window", "admission.max_staleness": max(1, round(age))}
    return {}


def _client_cap(history: History, observed: Observed, scenario: Scenario, given: Collection[str]) -> dict[str, Any]:
    """The most that the client keeps in generation, where nobody said it: of an instance, where they are counted."""
    cap = None if observed.logged is None else observed.logged.in_flight_cap
    caps = ("fleet.max_in_flight_samples", "fleet.max_in_flight_samples_per_instance")
    if cap is None or history.steps is None or any(is_touched(path, given) for path in caps):
        return {}
    count = scenario.fleet.instances if is_touched("fleet.instances", given) else None
    unit = "groups" if "in_flight_cap_groups" in history.steps.columns else "samples"
    place, most = (caps[0], cap) if count is None else (caps[1], cap / count)
    return {place: max(1, round(most)), "fleet.in_flight_unit": unit}


def _missing(observed: Observed, given: Collection[str]) -> str:
    """What would make the engines' speed known."""
    if observed.fleet is not None:
        return ""
    lacking = [words for path, words in _OF_A_FLEET.items() if not is_touched(path, given)]
    if lacking:
        return f": say what it ran on with {' and '.join(lacking)}"
    return ": its trainer hardly waits, and it times no samples"
