"""The scenario that a window of history implies: what is needed to simulate the same fleet again.

Who wins, key by key (`replay/implied/scenario_draft.py`): what the user gave by itself; then the window for everything
that is measured
(instances, lengths, exported group sizes, seconds of the trainer and of weight sync, batch, KV cache, max_num_seqs);
then the base scenario for what no metric shows (admission, sync policy, routing, turns, caps, prices). Without a base
scenario, admission is the law whose simulation comes nearest to the requests in flight (`replay/implied/admission.py`),
and what else nothing shows is a default, listed as assumed. Where the window and what was said differ, a line says so.
"""

from __future__ import annotations

import math
from collections.abc import Collection
from dataclasses import dataclass, replace

import numpy as np

from fleetsim import units
from fleetsim.config.base import MAX_COUNT
from fleetsim.config.lengths import Lognormal, longest_length
from fleetsim.config.load import default_scenario, with_changes
from fleetsim.config.scenario import Scenario
from fleetsim.engine.limits import EngineLimits
from fleetsim.engine.step_time import StepTime
from fleetsim.engine.transport import sync_times
from fleetsim.errors import FleetsimError, InputError, Problem
from fleetsim.faces import text
from fleetsim.history.history import History
from fleetsim.history.named import MAP
from fleetsim.job.nameplate import mean_output_tokens, mean_prompt_tokens
from fleetsim.replay.implied.admission import admission_like
from fleetsim.replay.implied.length_law import length_law
from fleetsim.replay.implied.logged_speed import ALIKE, CORRELATION, LoggedSpeed, logged_speed
from fleetsim.replay.implied.observed_load import own_paces
from fleetsim.replay.implied.scenario_draft import Draft
from fleetsim.replay.implied.seconds import take_sync, take_trainer
from fleetsim.replay.implied.speed import Speed, speed_of
from fleetsim.replay.observe.observed import Lengths, Observed, Quantity
from fleetsim.replay.observe.trends import trend_words
from fleetsim.sim.engines import engine_of

# Steps and replications of a back-test or what-if: a second or two for a large fleet.
STEPS, MOST_SAMPLES, REPLICATIONS = 60, 150_000, 3
# Fewer steps than this hold no warm-up and a mean.
FEWEST_STEPS = 16
# A fleet size that lasts fewer grid points is a gap, not a resize.
_LASTING = 4
_MOST_RESIZES = 8
_LEAST_INFERRED_GROUP = 1.5
# Scrapes with requests waiting, and the share of them at one highest number running, that show max_num_seqs.
_FULL_SCRAPES, _FULL_SHARE = 20, 0.8
# The base scenario's own value stays where the window is this near to it: the window's is the noisier one.
NEAR = 0.02
OUTPUT = "workload.output_tokens"
CAP = f"{OUTPUT}.max"


@dataclass(frozen=True, slots=True)
class Implied:
    """A window as a scenario.

    scenario: stationary, with the fleet as it is at the window's end. engine: iteration times and limits, None where
    neither the window nor the base scenario says them (then the scenario's own engine section counts). speed: how they
    were read off the window, None where the base's measured engine or nothing was used. taken, assumed: one line per
    value, from the window (or the user) and from nowhere. base: name of the base scenario. resizes: (unix seconds,
    instances) from the first level on; one entry where the fleet kept its size. differs: where the window measures
    something else than the user or the scenario file says, and which of the two counts; a line each. logged: how much
    slower the engines of a run log are than their model, None where it does not show them.
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
    draft = Draft(base if base is not None else default_scenario(), known, given, written)
    resizes = _fleet(draft, observed, history)
    _engine_facts(draft, observed)
    _placement(draft, observed)
    _workload(draft, observed)
    _capacity_policy(draft)
    _trend(draft, observed)
    _batch(draft, observed)
    take_trainer(draft, observed)
    take_sync(draft, observed)
    _most_seqs(draft, history)
    speed, engine = _engine(draft, observed, history)
    _run(draft)
    logged = _logged_speed(draft, observed)
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
    )


def _logged_speed(draft: Draft, observed: Observed) -> LoggedSpeed | None:
    """Of a log, and of a fleet whose size and engine are known: what its engines take over their model's seconds."""
    path = "engine.slowdown"
    known = draft.says("fleet.instances") and (draft.says("engine.gpu") or draft.says("engine.model"))
    if observed.fleet is not None or observed.logged is None or draft.set_by_user(path) or not known:
        return None
    alike = observed.lengths is not None and not draft.says(CORRELATION) and _group_size(draft) > 1
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


def _fleet(draft: Draft, observed: Observed, history: History) -> tuple[tuple[float, int], ...]:
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
    longest = max(v.present_s for v in observed.instances)
    half = [v for v in observed.instances if v.present_s >= 0.5 * longest]
    slow = [1.0 / pace for pace in own_paces(half).values()][:now]
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


def _engine_facts(draft: Draft, observed: Observed) -> None:
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


def _capacity_policy(draft: Draft) -> None:
    """TensorRT-LLM's default policy asks for the longest response, which none of its metrics says."""
    path = "engine.capacity_scheduler_policy"
    law = draft.changes.get(OUTPUT, draft.start.workload.output_tokens)
    name = draft.changes.get("engine.name", draft.start.engine.name)
    if name != "tensorrt-llm" or draft.from_base or draft.set_by_user(path) or longest_length(law) is not None:
        return
    draft.assume(path, "max_utilization", "max_utilization; no metric says how long a response may be")


def _placement(draft: Draft, observed: Observed) -> None:
    if draft.from_base:
        if observed.placement is not None and draft.start.fleet.placement != "colocated_lending":
            said = draft.start.fleet.placement
            draft.compare("fleet.placement", observed.placement, said, counts="the scenario counts, it was inferred")
        return
    if observed.placement is not None:
        draft.take("fleet.placement", observed.placement, "by when the engines stand empty")
    else:
        draft.assume("fleet.placement", "disaggregated", "disaggregated; the window cannot tell")


def _workload(draft: Draft, observed: Observed) -> None:
    lengths, start = observed.lengths, draft.start
    turns = start.workload.turns.count if draft.from_base or draft.set_by_user("workload.turns") else 1
    if lengths is not None and turns == 1:
        _output(draft, observed, lengths)
    elif lengths is not None:
        draft.assumed.append(f"workload.output_tokens: of {start.name}; a request is one of {turns} turns")
    elif observed.trainer.batch_tokens is not None and observed.trainer.batch_samples is not None:
        mean = observed.trainer.batch_tokens.value / observed.trainer.batch_samples.value
        if not draft.from_base or abs(mean / mean_output_tokens(start) - 1.0) > NEAR:
            cap = longest_length(start.workload.output_tokens) if draft.from_base or draft.set_by_user(CAP) else None
            law_of = Lognormal(mean=max(1.0, mean), cv=1.0, max=cap)
            draft.assume("workload.output_tokens", law_of, f"lognormal, cv 1, with the trained mean of {mean:,.0f}")
    else:
        draft.assumed.append("workload.output_tokens: no lengths were read")
    if lengths is not None and lengths.prompt_mean is not None and turns == 1:
        said = mean_prompt_tokens(start)
        if not (draft.from_base and abs(lengths.prompt_mean / said - 1.0) <= NEAR):
            at_least = start.workload.shared_prefix_tokens
            prompt = max(1, at_least, round(lengths.prompt_mean))
            text = f"mean {lengths.prompt_mean:,.0f}"
            draft.take("workload.prompt_tokens", prompt, text, against=(lengths.prompt_mean, said))
    _group(draft, None if lengths is None else lengths.group_size)


def _output(draft: Draft, observed: Observed, lengths: Lengths) -> None:
    """The law of the responses: as measured, but for the facts that the user gave of it. A cap is one fact, and so is a
    mean; whoever gives a kind or a spread gives the law."""
    facts = draft.facts(OUTPUT)
    said = draft.start.workload.output_tokens
    mean = facts.get(f"{OUTPUT}.mean")
    if set(facts) - {CAP, f"{OUTPUT}.mean"}:
        draft.compare(OUTPUT, lengths.mean, mean_output_tokens(draft.start))
        draft.taken.append(f"{OUTPUT}: as set")
        return
    if mean is not None:  # the measured shape, with the mean that was given
        draft.compare(f"{OUTPUT}.mean", lengths.mean, mean)
        factor = mean / lengths.mean
        lengths = replace(lengths, le=tuple(factor * bound for bound in lengths.le), mean=mean)
    cap = longest_length(said) if draft.from_base or CAP in facts else None
    longer = _longer_than(lengths)
    if cap is not None and cap < longer:
        draft.compare(CAP, longer, cap)
        cap = cap if CAP in facts else None
    if lengths.law is not None and mean is None:
        logged = lengths.law
        draft.changes[OUTPUT] = Lognormal(mean=logged.mean, cv=logged.cv, max=logged.cap if cap is None else cap)
        draft.compare(f"{OUTPUT}.mean", lengths.mean, mean_output_tokens(draft.start))
        cut = "" if cap is None and logged.cap is None else ", cut at the longest"
        draft.taken.append(f"{OUTPUT}: lognormal, mean {lengths.mean:,.0f}, cv {logged.cv:.2f} before the cap{cut}")
        return
    law = length_law(lengths, cap, observed.fleet.length_share if observed.fleet is not None else None)
    if CAP in facts and cap is not None:
        law = replace(law, law=law.law.model_copy(update={"max": float(cap)}), cap=float(cap), cap_from="given")
    elif draft.from_base:
        draft.compare(f"{OUTPUT}.mean", lengths.mean, mean_output_tokens(draft.start))
    draft.changes[OUTPUT] = law.law
    means = f"{lengths.mean:,.0f} as set" if mean is not None else f"{lengths.mean:,.0f}"
    draft.taken.append(f"{OUTPUT}: {len(lengths.le)} buckets, mean {means}")
    if CAP in facts:
        draft.taken.append(f"{CAP}: {law.cap:,.0f}, as set")
    elif law.cap_from in ("counted", "mean"):
        how = {"counted": "by the share of responses cut", "mean": "by the mean"}[law.cap_from]
        draft.assumed.append(f"{CAP}: {law.cap:,.0f}, {how} and a lognormal tail")


def _longer_than(lengths: Lengths) -> float:
    """The highest bound that more than one response in a hundred went beyond."""
    beyond = sum(lengths.count) - np.cumsum(lengths.count)
    over = [le for le, rest in zip(lengths.le, beyond, strict=True) if rest > 0.01 * sum(lengths.count)]
    return max((le for le in over if math.isfinite(le)), default=0.0)


def _group(draft: Draft, found: Quantity | None) -> None:
    """Samples per prompt. A hit ratio only shows the siblings that share an engine, and n = 1 is how a client asks that
    sends each sample by itself: neither is held against a scenario."""
    exported = found is not None and found.source != "inferred"
    if found is not None and draft.from_base:
        if exported and found.value >= _LEAST_INFERRED_GROUP:
            text = f"{found.value:.2f}, {found.source}"
            if round(found.value) != draft.start.workload.group_size or draft.set_by_user("workload.group_size"):
                draft.take("workload.group_size", round(found.value), text)
        return
    if draft.from_base:
        return
    # The hit ratio shows siblings that share an engine: where a router spreads them, it shows none.
    if found is not None and found.value >= (1.0 if exported else _LEAST_INFERRED_GROUP):
        against = (
            (round(found.value), draft.start.workload.group_size) if exported and found.value > 1 else (None, None)
        )
        draft.take("workload.group_size", round(found.value), f"{found.value:.2f}, {found.source}", against=against)
    for path in ("workload.group_correlation", "workload.shared_prefix_tokens"):
        if not draft.set_by_user(path):
            draft.assumed.append(f"{path}: 0")


def _trend(draft: Draft, observed: Observed) -> None:
    """Lengths are those of the whole window: where they moved, neither its start nor its end had them."""
    moved = observed.trend("response_tokens")
    if moved is not None and (OUTPUT in draft.changes or not draft.set_by_user(OUTPUT)):
        draft.assumed.append(f"workload.output_tokens: the mean of the window, although {trend_words(moved)}")


def _group_size(draft: Draft) -> int:
    return int(draft.changes.get("workload.group_size", draft.start.workload.group_size))


def _batch(draft: Draft, observed: Observed) -> None:
    """Samples per step, in whole groups."""
    group = _group_size(draft)
    seen = observed.trainer.batch_samples
    if seen is None and observed.fleet is not None and observed.fleet.finished_s and observed.trainer.step_s:
        seen = Quantity(observed.fleet.finished_s * observed.trainer.step_s.value, "inferred")
    if seen is None or seen.value < 1:
        batch = max(1, draft.start.trainer.batch_samples // group) * group
        draft.assume("trainer.batch_samples", batch, f"{batch}, no trainer was read")
        return
    known = draft.start.trainer.batch_samples
    if draft.from_base and abs(seen.value / known - 1.0) <= NEAR and known % group == 0:
        return
    if "workload.group_size" not in draft.changes and not draft.from_base:
        whole = round(seen.value)
        group = math.gcd(group, whole) if not draft.set_by_user("workload.group_size") else group
        draft.assume("workload.group_size", group, f"{group}; no metric says how many samples a prompt has")
    batch = max(1, round(seen.value / group)) * group
    draft.take("trainer.batch_samples", batch, f"{seen.value:,.1f} samples a step, {seen.source}")


def _engine(
    draft: Draft, observed: Observed, history: History
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
    limits = own[1] if own is not None else _limits(draft, history, scenario)
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


def _most_seqs(draft: Draft, history: History) -> None:
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


def _limits(draft: Draft, history: History, scenario: Scenario) -> EngineLimits:
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


def _run(draft: Draft) -> None:
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
