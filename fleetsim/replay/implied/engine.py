"""The engine of a window, into a scenario: its speed and its limits.

How much slower engines are in a run than their model says, a run log alone tells, too. Where it times its samples, the
factor is the one at which simulated samples take as long. What a step then takes beyond them says how alike the lengths
of a group's samples are: a group holds its place until its longest is done. Without such times it is the factor at
which the simulated step is as long as the observed one, where the trainer waits for enough of it to show the engines; a
trainer that hardly waits shows nothing of them.
"""

from __future__ import annotations

import math
from collections.abc import Callable, Mapping
from functools import cache
from typing import Any, Literal

import numpy as np
from msgspec import Struct

from fleetsim.config.base import MAX_COUNT
from fleetsim.config.load import with_changes
from fleetsim.config.scenario import Scenario, most_steps
from fleetsim.config.workload import longest_length
from fleetsim.engine.limits import EngineLimits
from fleetsim.engine.slowdown import slowdown_of
from fleetsim.engine.step_time import StepTime
from fleetsim.engine.transport import sync_times
from fleetsim.errors import FleetsimError
from fleetsim.history.history import History
from fleetsim.job.derived_values import SLOWDOWN, slower
from fleetsim.job.nameplate import context_in_flight, mean_prompt_tokens
from fleetsim.job.scalar import nearest, powers, search, shared
from fleetsim.replay.implied.scenario_draft import ScenarioDraft
from fleetsim.replay.implied.speed import Speed, speed_of
from fleetsim.replay.implied.workload import OUTPUT, group_size_of
from fleetsim.replay.observe.observed import Observed
from fleetsim.replay.observe.paces import ceiling_of
from fleetsim.sim.engines import Engine, engine_of
from fleetsim.sim.metrics import metrics_of
from fleetsim.sim.records import Records
from fleetsim.sim.run import simulate
from fleetsim.sim.window import window_of

# Share of a step that the trainer must wait for its length to say how fast engines are.
LEAST_WAIT = 0.1
# Of a step: what a simulation that has the run's samples right may be off before the step itself counts.
STEP_OFF = 0.1
# Factors that are searched: beyond them the scenario is another job's.
LOW, HIGH = 0.3, 6.0
# Arms of one fleet come to factors so far apart at least (docs/next_run.md: 1.07 to 1.22 in four arms of one fleet).
DOUBT = 1.07
# The limits of what a step can say of how alike the samples of a group are. With the slowdown at which samples take as
# long as in the log, the step of ten arms (docs/next_run.md: D01, D03, D04) came out off by 7.4 % in the mean at 0,
# 5.3 % at 0.3, 5.0 % at 0.5, 5.2 % at 0.7 and 8.1 % at 0.85.
LEAST_ALIKE, MOST_ALIKE = 0.01, 0.9
CORRELATION = "workload.group_correlation"
# A figure this near to the observed one is met.
_MET = 0.02
_STEPS = 16
_BUDGETS = ("staleness_threshold", "max_staleness")

By = Literal["sample_s", "group_s", "step_s"]


class LoggedSpeed(Struct, frozen=True):
    """factor: of every iteration's seconds. by: the figure that was matched, seconds: as the log has it. alike: how
    alike the lengths of a group's samples are, as the step shows; None where it was known, or shows nothing.
    ends: where the trainer shares what the step is off by, the factor with none of it and with all of it; trainer: the
    factor on the trainer's seconds, and its ends."""

    factor: float
    by: By
    seconds: float
    alike: float | None = None
    ends: tuple[float, float] | None = None
    trainer: tuple[float, float, float] | None = None

    @property
    def text(self) -> str:
        """One line."""
        what = {"sample_s": "a sample takes", "group_s": "a group takes", "step_s": "a step takes"}[self.by]
        text = f"{self.factor:.2f} times the model's iterations, at which {what} {self.seconds:.4g} s as in the log"
        return text if self.ends is None else f"{text}, with the trainer's seconds as well"


def logged_speed(scenario: Scenario, observed: Observed, *, alike: bool = False) -> LoggedSpeed | None:
    """The factor of a run of which only the log is known; None where it does not show the engines.

    scenario: the run's own, with its fleet and all that the log measures. alike: whether how alike the samples of a
    group are is to be found as well.
    """
    known = _figure(observed)
    if known is None:
        return None
    by, seconds = known
    run = cache(lambda factor, share: _run(scenario, factor, share))
    share = scenario.workload.group_correlation
    try:
        factor = _nearest(lambda x: _SIMULATED[by](run(x, share)), LOW, HIGH, seconds, 1.0)
        step = _waited_step(observed) if alike and by == "sample_s" else None
        if step is not None:
            start = factor

            def fitting(share: float) -> float:
                """The factor at which samples take as long: they do in proportion to it, all but what they wait."""
                return start * seconds / _SIMULATED[by](run(start, share))

            share = _nearest(lambda x: _SIMULATED["step_s"](run(fitting(x), x)), LEAST_ALIKE, MOST_ALIKE, step, share)
            factor = fitting(share)
        whole = _waited_step(observed)
        if (
            whole is not None
            and by != "step_s"
            and abs(_SIMULATED["step_s"](run(factor, share)) / whole - 1.0) > STEP_OFF
        ):
            by, seconds, step = "step_s", whole, None  # samples as long as the run's in another step are another job's
            factor = _nearest(lambda x: _SIMULATED["step_s"](run(x, share)), LOW, HIGH, whole, factor)
        met = abs(_SIMULATED[by](run(factor, share)) / seconds - 1.0) <= _MET
    except FleetsimError:  # the scenario gets stuck: it is another job's
        return None
    return LoggedSpeed(factor, by, seconds, None if step is None else share) if met else None


def shared_speed(scenario: Scenario, step_s: float) -> LoggedSpeed | None:
    """Of a run whose log has the seconds of its steps and no part of them: engines and trainer share what the model is
    off by. None where no factor meets them.

    scenario: the run's own, with its fleet and the trainer's seconds as modelled.
    """
    told = with_changes(scenario, {SLOWDOWN: slowdown_of(scenario.trainer.recipe.framework)})

    @cache
    def run(engine: float, trainer: float) -> Mapping[str, Any]:
        made = with_changes(told, shared(told, {"engine": 0.0, "trainer": 1.0}, trainer))
        return metrics_of(_run(made, told.engine.slowdown * engine, told.workload.group_correlation))

    def factors(engine: float, trainer: float) -> tuple[float, float]:
        """Those on both, where each has this power of what meets the step."""
        found = _nearest(lambda x: run(x**engine, x**trainer)["step_s"], LOW, HIGH, step_s, 1.0)
        return found**engine, found**trainer

    try:
        plain = run(1.0, 1.0)
        own = powers(told, plain["step_s"], plain["step_s"] * plain["trainer_idle_fraction"])
        engine, trainer = factors(own["engine"], own["trainer"])
        met = abs(run(engine, trainer)["step_s"] / step_s - 1.0) <= _MET
        ends = [sorted((1.0, factors(*alone)[axis])) for axis, alone in enumerate(((1.0, 0.0), (0.0, 1.0)))]
    except FleetsimError:  # the scenario gets stuck: it is another job's
        return None
    centre = told.engine.slowdown
    on_engines = centre * ends[0][0], centre * ends[0][1]
    found = LoggedSpeed(centre * engine, "step_s", step_s, None, on_engines, (trainer, ends[1][0], ends[1][1]))
    return found if met else None


def _nearest(at: Callable[[float], float], low: float, high: float, wanted: float, start: float) -> float:
    """The value between `low` and `high` at which a monotone figure is nearest to the wanted one."""
    return nearest(search(at, low, high, wanted, start), wanted)


def _run(scenario: Scenario, factor: float, alike: float) -> Records:
    steps = min(_STEPS, most_steps(scenario))
    changes: dict[str, Any] = {SLOWDOWN: factor, CORRELATION: alike, "run.steps": steps}
    for path in _BUDGETS:  # one that no run of so few steps uses up costs memory and says nothing
        changes[f"admission.{path}"] = min(getattr(scenario.admission, path), 4.0 * steps)
    return simulate(with_changes(scenario, changes))


def _waited_step(observed: Observed) -> float | None:
    """Seconds of a step of which the trainer waited for enough to show the engines; None for others."""
    step, idle = observed.trainer.step_s, observed.trainer.idle_fraction
    return None if step is None or idle is None or idle.value < LEAST_WAIT else step.value


def _figure(observed: Observed) -> tuple[By, float] | None:
    """What says how fast engines are, the most direct first."""
    logged = observed.logged
    for by in ("sample_s", "group_s"):
        times = {} if logged is None else dict(getattr(logged, by))
        if times.get("mean"):
            return by, times["mean"]
    step = _waited_step(observed)
    return None if step is None else ("step_s", step)


def _lasted(rows: np.ndarray[Any, Any], begun: str, ended: str, start_s: float) -> float:
    """Mean seconds from when rows began to when they ended, of those that ended after warm-up."""
    done = (rows[ended] >= start_s) & (rows[begun] >= 0)
    return float(np.mean((rows[ended] - rows[begun])[done])) if done.any() else 0.0


# From a sample's sending to its last token; from a group's to the end of its last sample; a step.
_SIMULATED: dict[By, Callable[[Records], float]] = {
    "sample_s": lambda r: _lasted(r.samples, "sent_s", "finish_s", window_of(r).start_s),
    "group_s": lambda r: _lasted(r.groups, "submit_s", "ready_s", window_of(r).start_s),
    "step_s": lambda r: float(metrics_of(r)["step_s"]),
}


def take_engine_facts(draft: ScenarioDraft, observed: Observed) -> None:
    """What the engines say of themselves: their name, their cache."""
    if observed.prefix_caching is not None:
        draft.take("engine.prefix_caching", observed.prefix_caching, "from cache_config")
    measured = draft.start.engine.kind == "measured"
    if observed.engine is not None and not measured:
        draft.take("engine.name", observed.engine, "by its metrics")
    if observed.kv_blocks is not None and not measured:
        # An engine without a KV cache exports more blocks than a scenario can say; so many never bind either.
        draft.take("engine.kv_blocks", min(observed.kv_blocks, MAX_COUNT), "from cache_config")
    if observed.block_size is not None and not measured:
        draft.take("engine.block_size", observed.block_size, "from cache_config")


def take_capacity_policy(draft: ScenarioDraft) -> None:
    """TensorRT-LLM's default policy asks for the longest response, which none of its metrics says."""
    path = "engine.capacity_scheduler_policy"
    law = draft.changes.get(OUTPUT, draft.start.workload.output_tokens)
    name = draft.changes.get("engine.name", draft.start.engine.name)
    if name != "tensorrt-llm" or draft.from_base or draft.set_by_user(path) or longest_length(law) is not None:
        return
    draft.assume(path, "max_utilization", "max_utilization; no metric says how long a response may be")


def take_engine(draft: ScenarioDraft, observed: Observed, history: History) -> tuple[Speed | None, Engine | None]:
    """The engine's speed and limits. A measured profile or a constant rate of the base scenario stays."""
    scenario = draft.scenario()
    pinned = scenario.engine.kind in ("measured", "constant")
    usable = draft.from_base or pinned or draft.set_by_user("engine.gpu") or draft.set_by_user("engine.model")
    own: Engine | None = None
    if usable:
        try:
            own = engine_of(scenario)
        except FleetsimError:
            if pinned:
                raise
    if pinned and own is not None:
        draft.taken.append(f"engine speed: {own[0].source or scenario.engine.kind}, as given")
        return None, own
    limits = own[1] if own is not None else _limits(draft, scenario)
    roofline = own[0] if own is not None else None
    known_kv = float(limits.kv_tokens) if own is not None or observed.kv_blocks is not None else None
    pause = sync_times(scenario).pause_s if scenario.fleet.placement == "disaggregated" else None
    likely = _likely(scenario, observed) if own is None else None
    if likely is not None and observed.model != scenario.engine.model:
        draft.take("engine.model", observed.model, "by its metrics")
    reads = (0.0, 0.0)
    if observed.lengths is not None:  # of whole samples all hits are siblings'
        most = context_in_flight(scenario) if scenario.workload.turns.several else math.inf
        reads = mean_prompt_tokens(scenario), most
    speed = speed_of(history, observed, roofline, known_kv, pause, likely, reads)
    if speed is None:
        if own is not None:
            draft.assumed.append(f"engine speed: {own[0].source}; the window shows too little to fit it")
        else:
            draft.assumed.append("engine speed: the default scenario's roofline; the window shows none")
        return None, own
    if speed.shape == "assumed":
        how = "half of an iteration is taken as fixed" if likely is None else f"that of the {likely.source}"
        draft.assumed.append(f"engine speed: {speed.text}; {how}")
    else:
        draft.taken.append(f"engine speed: {speed.text}")
    return speed, (speed.step_time, limits)


def _likely(scenario: Scenario, observed: Observed) -> StepTime | None:
    """The roofline of the model that the metrics name, on the scenario's GPU, whoever named that; None = not known."""
    if observed.model is None:
        return None
    try:
        return engine_of(with_changes(scenario, {"engine.model": observed.model}))[0]
    except FleetsimError:  # a served name of its own, or too large for that GPU
        return None


def take_most_seqs(draft: ScenarioDraft, observed: Observed) -> None:
    """The engine's own limit on what runs: where requests wait below another one than the scenario's, or where more
    run than that would let."""
    path, said = "engine.max_num_seqs", draft.start.engine.max_num_seqs
    if draft.start.engine.kind == "measured":
        return  # a profile has its own limits
    ceiling = ceiling_of(observed.instances)
    if ceiling is not None and ceiling != said:
        draft.take(path, ceiling, f"{ceiling}, the most that run while others wait")
        return
    most = max((i.running_peak or 0.0 for i in observed.instances), default=0.0)
    if said is not None and most > said:
        draft.take(path, None, f"more than the {said:,} that were said: {most:,.0f} ran", against=(most, said))


def _limits(draft: ScenarioDraft, scenario: Scenario) -> EngineLimits:
    """Limits where no GPU and model are known: what the window shows, else the engine's defaults for a large GPU."""
    e = scenario.engine
    seqs, tokens = e.max_num_seqs or 1024, e.max_num_batched_tokens or 16_384
    if e.max_num_seqs is None:
        draft.assumed.append(f"engine.max_num_seqs: {seqs:,}")
    if e.max_num_batched_tokens is None:
        draft.assumed.append(f"engine.max_num_batched_tokens: {tokens:,}")
    blocks = e.kv_blocks
    if blocks is None:
        blocks = 1 << 40
        draft.assumed.append("engine.kv_blocks: no limit; cache_config is not exported")
    cap = longest_length(scenario.workload.output_tokens)
    return EngineLimits(
        seqs,
        max(tokens, seqs),
        blocks,
        e.block_size or (1 if e.name == "sglang" else 16),
        max_output_tokens=None if cap is None else max(1, round(cap)),
        scheduler=e.name,
        no_evict=e.capacity_scheduler_policy == "guaranteed_no_evict",
    )


def take_slowdown(draft: ScenarioDraft, observed: Observed) -> LoggedSpeed | None:
    """Of a log, and of a fleet whose size is known: what its engines take over their model's seconds. An engine that
    nobody named is assumed, and the factor makes it as fast as the run's."""
    path = "engine.slowdown"
    if observed.fleet is not None or draft.set_by_user(path) or not draft.says("fleet.instances"):
        return None
    alike = observed.lengths is not None and not draft.says(CORRELATION) and group_size_of(draft) > 1
    scenario = draft.scenario()
    if scenario.engine.kind == "constant":
        return None
    found = logged_speed(scenario, observed, alike=alike)
    view = observed.trainer
    modelled = "trainer.fixed_s" in scenario.assumed
    if _figure(observed) is None and view.step_s and not (view.wait_s or view.train_s) and modelled:
        found = shared_speed(scenario, view.step_s.value)
    if found is not None and found.alike is not None:
        draft.assumed = [line for line in draft.assumed if not line.startswith(CORRELATION)]
        draft.take(
            CORRELATION, float(f"{found.alike:.2g}"), f"{found.alike:.2g}, by what a step takes beyond its samples"
        )
    if found is not None:
        draft.take(path, float(f"{found.factor:.4g}"), found.text)
    if found is not None and found.trainer is not None:
        seconds = slower(scenario.trainer, found.trainer[0])
        draft.take("trainer.fixed_s", seconds.pop("trainer.fixed_s"), found.text)
        draft.changes |= seconds
    return found
