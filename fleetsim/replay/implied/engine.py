"""The engine of a window, into a scenario: its speed and its limits."""

from __future__ import annotations

import numpy as np

from fleetsim.config.base import MAX_COUNT
from fleetsim.config.load import with_changes
from fleetsim.config.scenario import Scenario
from fleetsim.config.workload import longest_length
from fleetsim.engine.limits import EngineLimits
from fleetsim.engine.step_time import StepTime
from fleetsim.engine.transport import sync_times
from fleetsim.errors import FleetsimError
from fleetsim.history.history import History
from fleetsim.replay.implied.logged_speed import ALIKE, CORRELATION, LoggedSpeed, logged_speed
from fleetsim.replay.implied.scenario_draft import ScenarioDraft
from fleetsim.replay.implied.speed import Speed, speed_of
from fleetsim.replay.implied.workload import OUTPUT, group_size_of
from fleetsim.replay.observe.observed import Observed
from fleetsim.sim.engines import engine_of

# Scrapes with requests waiting, and the share of them at one highest number running, that show max_num_seqs.
_FULL_SCRAPES, _FULL_SHARE = 20, 0.8


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


def take_engine(
    draft: ScenarioDraft, observed: Observed, history: History
) -> tuple[Speed | None, tuple[StepTime, EngineLimits] | None]:
    """The engine's speed and limits. A measured profile or a constant rate of the base scenario stays."""
    scenario = draft.scenario()
    pinned = scenario.engine.kind in ("measured", "constant")
    usable = draft.from_base or pinned or draft.set_by_user("engine.gpu") or draft.set_by_user("engine.model")
    own: tuple[StepTime, EngineLimits] | None = None
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
    speed = speed_of(history, observed, roofline, known_kv, pause, likely)
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


def take_most_seqs(draft: ScenarioDraft, history: History) -> None:
    """The engine's own limit on what runs: where requests wait below another one than the scenario's, or where more
    run than that would let."""
    path, said = "engine.max_num_seqs", draft.start.engine.max_num_seqs
    if draft.start.engine.kind == "measured":
        return  # a profile has its own limits
    ceiling = _ceiling(history)
    if ceiling is not None and ceiling != said:
        draft.take(path, ceiling, f"{ceiling}, the most that run while others wait")
        return
    running = history.values.get("running")
    most = 0.0 if running is None or not np.isfinite(running).any() else float(np.nanmax(running))
    if said is not None and most > said:
        draft.take(path, None, f"more than the {said:,} that were said: {most:,.0f} ran", against=(most, said))


def _ceiling(history: History) -> int | None:
    """max_num_seqs, where the window shows it: requests wait, and those running are at one highest number meanwhile."""
    running, waiting = history.values.get("running"), history.values.get("waiting")
    if running is None or waiting is None:
        return None
    with np.errstate(invalid="ignore"):
        full = running[waiting > 0]
    if len(full) < _FULL_SCRAPES:
        return None
    most = float(np.nanmax(running))
    return round(most) if float((full >= most - 0.5).mean()) >= _FULL_SHARE else None


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
    if alike:
        draft.assume(CORRELATION, ALIKE, f"{ALIKE:g}, as in published runs")
    scenario = draft.scenario()
    found = None if scenario.engine.kind == "constant" else logged_speed(scenario, observed, alike=alike)
    if found is not None and found.alike is not None:
        draft.assumed = [line for line in draft.assumed if not line.startswith(CORRELATION)]
        draft.take(
            CORRELATION, float(f"{found.alike:.2g}"), f"{found.alike:.2g}, by what a step takes beyond its samples"
        )
    if found is not None:
        draft.take(path, float(f"{found.factor:.4g}"), found.text)
    return found
