"""What-if: the implied scenario with something changed, under the same draws, so that the difference is the change's.

Before and after are simulated in pairs (replication r of both sees the same prompts, lengths and latencies), and the
ratio of a metric is taken run by run: its interval is narrower than those of the two means.

Another weight transport on the same history: which of the sync's times it gives anew, and which it scales.
"""

from __future__ import annotations

import math
from collections.abc import Callable, Mapping, Sequence
from typing import Any

from msgspec import Struct

from fleetsim import units
from fleetsim.config.law_numbers import law_of
from fleetsim.config.load import with_changes
from fleetsim.config.scenario import Scenario, unread_notes
from fleetsim.config.tree import field_at, is_given, is_touched
from fleetsim.engine.slowdown import slowdown_of
from fleetsim.engine.transport import SyncTimes, sync_times
from fleetsim.errors import InputError, Problem, StuckError
from fleetsim.estimates import Estimate, differs, ratio_of
from fleetsim.faces import flag
from fleetsim.job.derived_values import PRICE, SECONDS, SLOWDOWN, price_notes
from fleetsim.job.engine_source import accuracy_of
from fleetsim.job.scalar import OF_ENGINES, are_alike, doubt_there, slowdown_there
from fleetsim.job.trainer_scaling import scaled
from fleetsim.job.trials import flat, trial_of
from fleetsim.records import replace
from fleetsim.replay.change.recommendation import Extrapolated, at_the_ends, beyond_of, hull, runs_of, widened
from fleetsim.replay.implied.implied_scenario import Implied
from fleetsim.sim.engines import Engine, engine_of

_TIMES = {"publish_s": "publish", "pause_s": "pause", "trainer_block_s": "trainer held"}
_KEYS = ("sync.transport", "sync.link")


def with_transport(scenario: Scenario, changes: Mapping[str, Any]) -> tuple[dict[str, Any], str | None]:
    """The changes with the sync's times that follow from them, and a line on how.

    The scenario of a window has the times that were seen, and they would win over any transport. Where the transport
    that the window ran with is known, they keep their relation to what it is predicted to take: seen times x predicted
    after / predicted before. Where it is not, the new transport's own times are all there is. Times among the changes
    stay. None where the transport does not change, or has no times to give (`sync.transport=null`).
    """
    changed = dict(changes)
    if not any(is_given(path, _KEYS) for path in changes):
        return changed, None
    free = {f"sync.{name}": None for name in _TIMES if f"sync.{name}" not in changes}
    after = with_changes(scenario, {**changes, **free})
    if after.sync.transport is None:
        return changed, None
    now, then = sync_times(scenario), sync_times(after)
    before = _predicted(scenario)
    how = (
        f"from bytes and bandwidths, {then.text}; the window's {_words(now, free)} are of a transport that nobody named"
    )
    for path in free:
        name = path.removeprefix("sync.")
        seconds, seen = getattr(then, name), getattr(scenario.sync, name)
        if before is not None and seen is not None and getattr(before, name) > 0:
            seconds *= seen / getattr(before, name)
        changed[path] = seconds
    if before is not None:
        how = (
            f"from {scenario.sync.transport}'s {_words(now, free)} in the window, as {scenario.sync.transport} and "
            f"{after.sync.transport} are predicted to differ"
        )
    result = sync_times(with_changes(scenario, changed))
    return changed, f"{after.sync.transport}: {_words(result, free)}: {how}"


def _predicted(scenario: Scenario) -> SyncTimes | None:
    """What the window's transport would take by its own account; None where it is not known."""
    if scenario.sync.transport is None:
        return None
    try:
        return sync_times(with_changes(scenario, {f"sync.{name}": None for name in _TIMES}))
    except InputError:  # a model whose size nobody knows
        return None


def _words(times: SyncTimes, paths: Mapping[str, Any]) -> str:
    """ "pause 1.2 s, trainer held 0.4 s"."""
    return ", ".join(
        f"{word} {units.seconds(getattr(times, name))}" for name, word in _TIMES.items() if f"sync.{name}" in paths
    )


# What is shown, in this order; flat names of `sim/metrics.py`.
METRICS = (
    "step_s",
    "trainer_idle_fraction",
    "rollout_idle_fraction",
    "sync_fraction",
    "generated_tok_s",
    "instance_tok_s",
    "queue_depth",
    "oldest_sample_age_steps",
    "staleness_steps.p99",
    "tokens_per_trained_token",
    "goodput",
    "cost_per_step",
)
# Limits of an engine that a scenario may set; the fitted speed stays.
_LIMITS = ("max_num_seqs", "max_num_batched_tokens", "kv_blocks", "block_size")
# Facts of the engine that was observed: another one has another speed.
_OTHER_ENGINE = (
    "kind", "gpu", "model", "tp", "pp", "dp", "dcp", "expert_exchange", "overlap", "dtype", "kv_dtype", "profile",
    "instance_tok_s", "name", "speculation", "disaggregation",
)  # fmt: skip
MOST_POINTS = 64
# Eight of ten public arms that were predicted from another one's log came within this factor (docs/next_run.md; those
# with as many trainer GPUs).
NEXT_RUN = 1.11


class Effect(Struct, frozen=True):
    """One metric before and after. ratio: after / before, paired. changed: more than chance and noise."""

    metric: str
    before: Estimate
    after: Estimate
    ratio: Estimate
    changed: bool


class NextStep(Struct, frozen=True):
    """Seconds of a step that the changed run will have, and the ends that hold it in eight of ten cases. observed: of
    the run that was logged."""

    step_s: float
    low: float
    high: float
    observed: float


def next_step(observed_s: float, answer: WhatIf) -> NextStep:
    """The observed step times what the change does to the simulated one: an error that both runs share goes out."""
    ratio = answer.effect("step_s").ratio
    half = max(ratio.mean - ratio.ci_low, ratio.ci_high - ratio.mean) / ratio.mean
    step, off = observed_s * ratio.mean, math.exp(math.hypot(math.log(NEXT_RUN), half))
    return NextStep(step, step / off, step * off, observed_s)


class WhatIf(Struct, frozen=True):
    """The effects of some changes. binding: what binds, before and after. notes: what the answer leaves out.
    extrapolated: the load after the change, where the window never saw it. next: the step of the changed run, where a
    run log was read and its engines were seen."""

    changes: Mapping[str, Any]
    effects: tuple[Effect, ...]
    binding: tuple[str, str]
    replications: int
    notes: tuple[str, ...]
    extrapolated: Extrapolated | None = None
    next: NextStep | None = None

    def effect(self, metric: str) -> Effect:
        """The effect on one metric of METRICS."""
        return next(e for e in self.effects if e.metric == metric)


class KeyPoint(Struct, frozen=True):
    """One value of a swept key. estimates: flat metrics; None where the run got stuck, and stuck says why. notes,
    extrapolated: as of a WhatIf."""

    value: Any
    estimates: Mapping[str, Estimate] | None
    binding: str | None
    stuck: str | None
    notes: tuple[str, ...] = ()
    extrapolated: Extrapolated | None = None


class KeySweep(Struct, frozen=True):
    """One key over some values, the same draws for all. now: the key's value in the implied scenario."""

    key: str
    now: Any
    points: tuple[KeyPoint, ...]
    replications: int


def what_if(implied: Implied, changes: Mapping[str, Any], *, replications: int | None = None) -> WhatIf:
    """The implied scenario before and after `changes` (dotted paths and values, as `parse_override` gives them).

    Raises InputError for changes that do not fit, StuckError when the changed run blocks itself.
    """
    n = replications if replications is not None else implied.scenario.run.replications
    implied = replace(implied, scenario=implied.settling)
    scenario, engine, notes = changed(implied, changes)
    before = runs_of(implied.scenario, implied.engine, n)
    after = runs_of(scenario, engine, n)
    a, b = trial_of(implied.scenario.fleet.instances, before), trial_of(scenario.fleet.instances, after)
    flat_before, flat_after = [flat(m) for m in before], [flat(m) for m in after]
    beyond = beyond_of(implied.speed, scenario, engine, b.mean("step_s"))
    ends = at_the_ends(_doubt(implied, scenario, beyond), scenario, engine, n)
    flat_ends = [[flat(m) for m in runs] for runs in ends]
    after_ends = widened(b, ends)
    effects = []
    for metric in METRICS:
        ratio = ratio_of(flat_after, flat_before, metric)
        ratio = hull(ratio, [ratio_of(runs, flat_before, metric) for runs in flat_ends])
        effects.append(Effect(metric, a.estimates[metric], after_ends[metric], ratio, differs(ratio, n)))
    return WhatIf(dict(changes), tuple(effects), (a.binding, b.binding), n, notes, beyond)


def sweep(
    implied: Implied,
    key: str,
    values: Sequence[Any],
    *,
    replications: int | None = None,
    progress: Callable[[int, int], None] | None = None,
) -> KeySweep:
    """The implied scenario at each value of `key`. A value with which the run gets stuck is a point that says so.

    Raises InputError for no or more than MOST_POINTS values, and for one that does not fit.
    """
    if not 1 <= len(values) <= MOST_POINTS:
        rule = f"takes 1 to {MOST_POINTS} values"
        raise InputError([Problem(flag("sweep"), len(values), rule, "for example fleet.instances=4,8,12")])
    n = replications if replications is not None else implied.scenario.run.replications
    implied = replace(implied, scenario=implied.settling)
    now = field_at(implied.scenario, key)
    cases = [changed(implied, {key: value}) for value in values]
    points = []
    for value, (scenario, engine, notes) in zip(values, cases, strict=True):
        try:
            trial = trial_of(scenario.fleet.instances, runs_of(scenario, engine, n))
            beyond = beyond_of(implied.speed, scenario, engine, trial.mean("step_s"))
            ends = at_the_ends(_doubt(implied, scenario, beyond), scenario, engine, n)
            points.append(KeyPoint(value, widened(trial, ends), trial.binding, None, notes, beyond))
        except StuckError as error:
            points.append(KeyPoint(value, None, None, error.what, notes))
        if progress is not None:
            progress(len(points), len(values))
    return KeySweep(key, now, tuple(points), n)


def changed(implied: Implied, changes: Mapping[str, Any]) -> tuple[Scenario, Engine | None, tuple[str, ...]]:
    """The changed scenario, the engine that goes with it, and what has to be said about it.

    Another transport gives the sync's times anew: the window's would win over it. The observed engine keeps its speed
    under other limits. Another GPU, model or profile has its own: the scenario's engine section then says it, and of
    the window's speed the slowdown of a job is left, as of `--run`.
    """
    changes = dict(changes)
    notes: list[str] = []
    count = changes.get("fleet.instances")
    factors = implied.scenario.fleet.speed_factors
    if isinstance(count, int) and "fleet.speed_factors" not in changes and len(factors) > count:
        changes["fleet.speed_factors"] = factors[:count]
        notes.append("the instances with the highest numbers go, slow ones or not")
    gpus = changes.get("trainer.gpus")
    if isinstance(gpus, int) and gpus != implied.scenario.trainer.gpus and not any(p in changes for p in SECONDS):
        changes |= {path: value for path, value in scaled(implied.scenario, gpus).items() if path in SECONDS}
        notes.append(f"the trainer's seconds on {gpus:,} GPUs are those of the window, scaled as its model says")
    changes, transport = with_transport(implied.scenario, changes)
    if transport is not None:
        notes.append(transport)
    scenario = with_changes(implied.scenario, changes)
    notes += _unread(implied, scenario, changes)
    fields = {path.removeprefix("engine.") for path in changes if path.startswith("engine.")}
    another = bool(fields & set(_OTHER_ENGINE)) or "engine" in changes
    if another and scenario.engine.kind == "roofline" and not is_touched(SLOWDOWN, changes):
        scenario = with_changes(scenario, {SLOWDOWN: _slowdown(implied, scenario)})
    if implied.engine is None:
        return scenario, None, tuple(notes)
    if another:
        notes.append(
            "another engine: its speed is that of the scenario's engine section, not the window's, and in a job "
            f"{scenario.engine.slowdown:.2f} times as slow; {accuracy_of(scenario)}"
        )
        if PRICE not in changes:
            fleets = ((s.engine.gpu, s.cost) for s in (implied.scenario, scenario))
            notes += price_notes(fleets, f"change {PRICE} with the GPU")
        return scenario, None, tuple(notes)
    step_time, limits = implied.engine
    more = {name: getattr(scenario.engine, name) for name in fields & set(_LIMITS)}
    if any(value is None for value in more.values()):
        default = engine_of(scenario)[1]
        more = {name: getattr(default, name) if value is None else value for name, value in more.items()}
    if more:
        limits = replace(limits, **more)
        notes.append("the engine keeps the speed of the window")
    return scenario, (step_time, limits), tuple(notes)


def _doubt(implied: Implied, scenario: Scenario, beyond: Extrapolated | None) -> tuple[float, float] | None:
    """How far the engines' speed may be off: at loads that the window never saw, or as other engines."""
    if beyond is not None:
        return beyond.doubt
    other = scenario.engine.kind == "roofline" and not are_alike(implied.scenario, scenario, OF_ENGINES)
    return doubt_there(scenario) if other else None


def _slowdown(implied: Implied, scenario: Scenario) -> float:
    """What another engine loses in the window's job, by what the window's own loses there."""
    seen = implied.logged or implied.speed
    if seen is None or not seen.factor:
        return slowdown_of(scenario.trainer.recipe.framework)
    return slowdown_there(seen.factor, implied.scenario, scenario)


def _unread(implied: Implied, scenario: Scenario, changes: Mapping[str, Any]) -> list[str]:
    """Changes that the scenario's law does not read, and a bound that the window cannot show."""
    law = scenario.admission.law
    guessed = any(line.startswith("admission:") for line in implied.assumed)
    inferred = guessed and law == implied.scenario.admission.law
    whose = f"; {law} is what the window looks like: --given admission.law=... says what it is" if inferred else ""
    notes = [f"{note}{whose}" for note in unread_notes(scenario, changes)]
    if (
        inferred
        and law_of(scenario).engines_limit
        and any(path.startswith("fleet.max_in_flight_samples") for path in changes)
    ):
        notes.append(
            "no staleness bound shows in this window; one that the job has may bind before another cap does: "
            "--given admission.law=version_window --given admission.max_staleness=N"
        )
    return notes
