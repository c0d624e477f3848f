"""The scenario that a window of history implies: what is needed to simulate the same fleet again.

Each key has the value of the first that says it (`replay/implied/scenario_draft.py`):

1. the user, who gave this key by itself;
2. the window, for all that is measured: instances, lengths, exported group sizes, seconds of the trainer and of weight
   sync, batch, KV cache, max_num_seqs;
3. the base scenario, for what no metric shows: admission, sync policy, routing, turns, caps, prices;
4. a default, which is listed as assumed. Without a base scenario the admission law is the one whose simulation comes
   nearest to the requests in flight (`replay/implied/admission.py`).

Where the window and what was said differ, a line says so.
"""

from __future__ import annotations

from collections.abc import Collection
from dataclasses import dataclass

from fleetsim.config.load import default_scenario, with_changes
from fleetsim.config.scenario import Scenario
from fleetsim.engine.limits import EngineLimits
from fleetsim.engine.step_time import StepTime
from fleetsim.errors import InputError, Problem
from fleetsim.faces import text
from fleetsim.history.history import History
from fleetsim.history.option_names import MAP
from fleetsim.replay.implied.admission import admission_like
from fleetsim.replay.implied.engine import (
    take_capacity_policy,
    take_engine,
    take_engine_facts,
    take_most_seqs,
    take_slowdown,
)
from fleetsim.replay.implied.instances import take_fleet, take_piled
from fleetsim.replay.implied.logged_speed import LoggedSpeed
from fleetsim.replay.implied.scenario_draft import ScenarioDraft
from fleetsim.replay.implied.seconds import take_sync, take_trainer
from fleetsim.replay.implied.speed import Speed
from fleetsim.replay.implied.workload import take_batch, take_workload, tell_trend
from fleetsim.replay.observe.observed import Observed
from fleetsim.sim.engines import engine_of

# Steps and replications of a back-test or what-if: a second or two for a large fleet.
STEPS, MOST_SAMPLES, REPLICATIONS = 60, 150_000, 3
# Fewer steps than this hold no warm-up and a mean.
FEWEST_STEPS = 16


@dataclass(frozen=True, slots=True)
class Implied:
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
    engine: tuple[StepTime, EngineLimits] | None
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
        raise InputError(
            [
                Problem(
                    "history",
                    observed.source,
                    "shows neither engines nor optimizer steps: there is nothing to simulate",
                    text("widen the window, or map the metrics with {}", MAP),
                )
            ]
        )
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
    take_most_seqs(draft, history)
    speed, engine = take_engine(draft, observed, history)
    if observed.fleet is not None and engine is not None:
        take_piled(draft, observed, engine[0])
    _run(draft)
    logged = take_slowdown(draft, observed)
    scenario = draft.scenario()
    if logged is not None and engine is not None:
        engine = engine_of(scenario)
    if not known:
        chosen = admission_like(scenario, engine, observed, draft.facts("admission", "buffer", "fleet", "sync"))
        for path, value in chosen.changes.items():
            draft.changes[path] = value
        (draft.taken if draft.facts("admission") else draft.assumed).append(chosen.text)
        scenario = draft.scenario()
    if known:
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
