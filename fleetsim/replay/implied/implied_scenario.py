"""The scenario that a window of history implies: what is needed to simulate the same fleet again.

Each key has the value of the first that says it (`replay/implied/scenario_draft.py`):

1. the user, who gave this key by itself;
2. the window, for all that is measured: instances, lengths, exported group sizes, seconds of the trainer and of weight
   sync, batch, KV cache, max_num_seqs;
3. the base scenario, for what no metric shows: admission, sync policy, routing, turns, caps, prices;
4. a default, which is listed as assumed. Without a base scenario the admission law is the one whose simulation comes
   nearest to the requests in flight (`replay/implied/admission.py`).

Where the window and what was said differ, a line says so.

The instances of a window, into a scenario: how many, their resizes and their paces.

The engine speed of a window as a profile file, so that every command can use it (`--profile FILE`), and the job of a
window with that file as its engine.
"""

from __future__ import annotations

from collections.abc import Collection
from statistics import median

import numpy as np
from msgspec import Struct

from fleetsim import units
from fleetsim.config.engine_profile import IN_A_JOB, Profile, ProfileError, Provenance, Ranges
from fleetsim.config.load import default_scenario, with_changes
from fleetsim.config.scenario import Scenario
from fleetsim.engine.profile_fields import coefficients_of, limit_fields
from fleetsim.engine.step_time import StepTime
from fleetsim.errors import InputError, Problem
from fleetsim.faces import text
from fleetsim.history.history import History
from fleetsim.history.option_names import MAP
from fleetsim.replay.implied.admission import admission_like
from fleetsim.replay.implied.engine import (
    LoggedSpeed,
    take_capacity_policy,
    take_engine,
    take_engine_facts,
    take_most_seqs,
    take_slowdown,
)
from fleetsim.replay.implied.scenario_draft import ScenarioDraft
from fleetsim.replay.implied.seconds import take_sync, take_trainer
from fleetsim.replay.implied.speed import Speed
from fleetsim.replay.implied.stretch import own_paces
from fleetsim.replay.implied.workload import take_batch, take_workload, tell_trend
from fleetsim.replay.observe.observed import InstanceView, Observed
from fleetsim.replay.observe.paces import piled, usual_load
from fleetsim.sim.engines import Engine, engine_of

# Steps and replications of a back-test or what-if: a second or two for a large fleet.
STEPS, MOST_SAMPLES, REPLICATIONS = 60, 150_000, 3
# Fewer steps than this hold no warm-up and a mean.
FEWEST_STEPS = 16


class Implied(Struct, frozen=True):
    """A window as a scenario.

    scenario: stationary, with the fleet as it is at the window's end. engine: iteration times and limits, None where
    neither the window nor the base scenario says them (then the scenario's own engine section counts). speed: how they
    were read off the window, None where the base's measured engine or nothing was used. taken, assumed: one line per
    value, from the window (or the user) and from nowhere. base: name of the base scenario. resizes: (unix seconds,
    instances) from the first level on; one entry where the fleet kept its size. differs: where the window measures
    something else than the user or the scenario file says, and which of the two counts; a line each. logged: how much
    slower the engines of a run log are than their model, None where it does not show them. steps_given: whether the
    user said how many steps a run has.
    """

    scenario: Scenario
    engine: Engine | None
    speed: Speed | None
    taken: tuple[str, ...]
    assumed: tuple[str, ...]
    base: str | None
    resizes: tuple[tuple[float, int], ...]
    differs: tuple[str, ...] = ()
    logged: LoggedSpeed | None = None
    steps_given: bool = False

    @property
    def settling(self) -> Scenario:
        """The scenario with runs that end when they are steady, unless somebody gave their steps: what is told of
        another fleet comes from these."""
        return self.scenario if self.steps_given else with_changes(self.scenario, {"run.steps": None})


def implied(
    observed: Observed,
    history: History,
    base: Scenario | None = None,
    *,
    given: frozenset[str] = frozenset(),
    from_file: bool = True,
    written: Collection[str] | None = None,
) -> Implied:
    """The scenario behind a window.

    base: the user's scenario, for what is decided and not measured. given: dotted paths that the user set one by one
    (`--given`, already applied to `base`): they win over the window, and nothing beside them does. from_file: False
    where `base` holds nothing but defaults and `given`; its policies then count for no more than a default. written:
    dotted paths that the file says, None = all of `base` that is not a default.

    Raises InputError for a window that shows neither engines nor a trainer, or values that contradict each other.
    """
    if observed.fleet is None and observed.trainer.step_s is None:
        rule = "shows neither engines nor optimizer steps: there is nothing to simulate"
        remedy = text("widen the window, or map the metrics with {}", MAP)
        raise InputError([Problem("history", observed.source, rule, remedy)])
    known = base is not None and from_file
    draft = ScenarioDraft(base if base is not None else default_scenario(), known, given, written)
    resizes = take_fleet(draft, observed, history)
    take_engine_facts(draft, observed)
    _placement(draft, observed)
    take_workload(draft, observed)
    take_capacity_policy(draft)
    tell_trend(draft, observed)
    take_batch(draft, observed)
    take_trainer(draft, observed)
    take_sync(draft, observed)
    take_most_seqs(draft, observed)
    speed, engine = take_engine(draft, observed, history)
    if observed.fleet is not None and engine is not None:
        take_piled(draft, observed, engine[0])
    _run(draft)
    logged = take_slowdown(draft, observed)
    scenario = draft.scenario()
    if logged is not None and engine is not None:
        engine = engine_of(scenario)
    if not known:
        facts = draft.facts("admission", "buffer", "fleet", "sync")
        changes, chosen = admission_like(scenario, engine, observed, facts)
        draft.changes |= changes
        (draft.taken if draft.facts("admission") else draft.assumed).append(chosen)
        scenario = draft.scenario()
    else:
        draft.taken.append(f"admission, sync policy, routing, turns: as in {scenario.name}")
    return Implied(
        scenario,
        engine,
        speed,
        tuple(draft.taken),
        tuple(draft.assumed),
        scenario.name if known else None,
        resizes,
        tuple(dict.fromkeys(draft.differs)),
        logged,
        draft.set_by_user("run.steps"),
    )


def _placement(draft: ScenarioDraft, observed: Observed) -> None:
    if draft.from_base:
        if observed.placement is not None and draft.start.fleet.placement != "colocated_lending":
            said = draft.start.fleet.placement
            draft.compare("fleet.placement", observed.placement, said, counts="the scenario counts, it was inferred")
        return
    if observed.placement is not None:
        draft.take("fleet.placement", observed.placement, "by when the engines stand empty")
    else:
        draft.assume("fleet.placement", "disaggregated", "disaggregated; the window cannot tell")


def _run(draft: ScenarioDraft) -> None:
    """Enough steps after warm-up, few enough for seconds."""
    batch = int(draft.changes.get("trainer.batch_samples", draft.start.trainer.batch_samples))
    for path, value in (
        ("run.steps", max(FEWEST_STEPS, min(STEPS, MOST_SAMPLES // batch))),
        ("run.replications", REPLICATIONS),
        ("run.events", []),
    ):
        if not draft.set_by_user(path):
            draft.changes[path] = value
    if draft.start.run.warmup_steps is not None and not draft.set_by_user("run.warmup_steps"):
        draft.changes["run.warmup_steps"] = None


# A fleet size that lasts fewer grid points is a gap, not a resize.
_LASTING = 4
_MOST_RESIZES = 8


def take_fleet(draft: ScenarioDraft, observed: Observed, history: History) -> tuple[tuple[float, int], ...]:
    """Instances, resizes, paces."""
    fleet = observed.fleet
    if fleet is None:
        told = draft.says("fleet.instances")
        (draft.taken if told else draft.assumed).append(
            f"fleet.instances: {draft.start.fleet.instances}, {'as said' if told else 'no engine was read'}"
        )
        return ((observed.start_s, draft.start.fleet.instances),)
    levels = levels_of(history)
    if len(levels) > _MOST_RESIZES or not levels:
        count = max(1, round(fleet.instances))
        levels = ((observed.start_s, count),)
        draft.taken.append(f"fleet.instances: mean of {fleet.instances_min} to {fleet.instances_max}")
    now = levels[-1][1]
    resized = len(levels) - 1
    what = f"{now} at the end" + (f", after {units.plural(resized, 'resize')}" if resized > 0 else "")
    draft.take("fleet.instances", now, what)
    if draft.set_by_user("fleet.instances"):
        now, levels = draft.start.fleet.instances, ((observed.start_s, draft.start.fleet.instances),)
    slow = [1.0 / pace for pace in own_paces(_counted(observed)).values()][:now]
    if any(f != 1.0 for f in slow) or draft.start.fleet.speed_factors:
        off = units.plural(sum(f != 1.0 for f in slow), "instance")
        draft.take("fleet.speed_factors", slow, f"{off} off the median's pace")
        if draft.start.fleet.straggler_share and not draft.set_by_user("fleet.straggler_share"):
            draft.changes["fleet.straggler_share"] = 0.0
    elif draft.start.fleet.straggler_share and not draft.set_by_user("fleet.straggler_share"):
        draft.take("fleet.straggler_share", 0.0, "all instances keep one pace")
    restarts = sum(v.restarts for v in observed.instances)
    if restarts and draft.start.fleet.failures.mtbf_s is None:
        draft.assumed.append(f"fleet.failures: none; the {restarts} restarts in the window are not simulated")
    return levels


def take_piled(draft: ScenarioDraft, observed: Observed, step_time: StepTime) -> None:
    """The pace of instances that show by the work that piles up on them alone: nobody else has their load, so that the
    shape of the engine's iteration times says what they should take there, beside the median instance at its own."""
    here = _counted(observed)[: int(draft.changes.get("fleet.instances", draft.start.fleet.instances))]
    slow = [] if observed.rolling is not None else [view for view in piled(here) if not view.straggler]
    lengths = observed.lengths
    if not slow or lengths is None or draft.set_by_user("fleet.speed_factors"):
        return
    context = (lengths.prompt_mean or 0.0) + 0.5 * lengths.mean
    usual, rate = usual_load(here), median(i.active_tok_s for i in here if i.running is not None)

    def takes(running: float) -> float:
        return float(step_time.each_s(np.array([running]), kv_tokens=np.array([running * context]))[0])

    factors = [1.0 / pace for pace in own_paces(here).values()]
    for place, view in enumerate(here):
        if view in slow and view.active_tok_s > 0:
            load = view.running or 0.0
            factors[place] = (load / view.active_tok_s) / (usual / rate) / (takes(load) / takes(usual))
    factors = [max(1.0, factor) if view in slow else factor for view, factor in zip(here, factors, strict=True)]
    names = ", ".join(str(view.id) for view in slow)
    draft.taken = [line for line in draft.taken if not line.startswith("fleet.speed_factors")]
    draft.take("fleet.speed_factors", factors, f"{names} by the work that piles up, at the engine's shape")
    if not draft.says("fleet.routing"):
        draft.assume("fleet.routing", "round_robin", "round_robin; work piles up, so the router looks at no load")


def _counted(observed: Observed) -> list[InstanceView]:
    """The instances that a scenario's numbers stand for: those that were there for half of the time or more."""
    longest = max(v.present_s for v in observed.instances)
    return [v for v in observed.instances if v.present_s >= 0.5 * longest]


def levels_of(history: History) -> tuple[tuple[float, int], ...]:
    """(start, instances) of every fleet size that lasted."""
    values = history.values.get("generation_tokens")
    if values is None or not values.size:
        return ()
    count = np.isfinite(values).sum(axis=0)
    starts = np.flatnonzero(np.diff(count, prepend=-1))
    ends = np.append(starts[1:], len(count))
    levels: list[tuple[float, int]] = []
    for a, b in zip(starts, ends, strict=True):
        if b - a >= _LASTING and count[a] > 0 and (not levels or levels[-1][1] != count[a]):
            levels.append((float(history.times[a]), int(count[a])))
    return tuple(levels)


def profile_of_window(implied: Implied, name: str, source: str, date: str) -> Profile | None:
    """The implied engine as a derived profile; None where the scenario's own engine section is all there is.

    name: how it is called. source: the window, in words. date: ISO.
    """
    if implied.engine is None:
        return None
    step_time, limits = implied.engine
    speed, error = implied.speed, ProfileError()
    ranges = Ranges() if speed is None else Ranges(decodes=speed.loads)
    if speed is not None and speed.held_out is not None:
        error = ProfileError(median=speed.held_out, what="iteration time on the second half of the window")
    e, seen = implied.scenario.engine, f"{IN_A_JOB}, {source}"
    return Profile(
        name=name[:1000],
        kind="derived",
        coefficients=coefficients_of(step_time.seeing_all),
        ranges=ranges,
        limits=limit_fields(limits),
        error=error,
        provenance=Provenance(source=seen, engine=e.name, model=e.model, tp=e.tp, date=date, gpu=e.gpu),
    )


def measured_by(implied: Implied, path: str) -> tuple[Scenario, Profile | None]:
    """The scenario of a window with its engine read from a profile at `path`, and that profile, which is not written.

    The scenario as it is, and None, where its own engine section says all.
    """
    scenario = implied.scenario
    profile = profile_of_window(implied, "replayed window", "the history of a window", "")
    if profile is None or scenario.engine.kind == "measured":
        return scenario, None
    engine = {"kind": "measured", "profile": path, "block_size": profile.limits.block_size}
    return with_changes(scenario, {f"engine.{name}": value for name, value in engine.items()}), profile
