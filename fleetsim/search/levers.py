"""What else could be changed to make a step shorter: each lever as a changed scenario, and what it risks.

Only one lever is changed at a time. Which levers a scenario has depends on its admission law: a barrier has no
staleness budget that could be raised, but one batch could be started ahead; where no cap on samples in flight is set,
none can be lifted.
"""

from __future__ import annotations

import math
from collections.abc import Callable, Collection, Iterator, Mapping
from contextlib import suppress
from functools import partial
from itertools import product
from typing import Any

from msgspec import Struct

from fleetsim import units
from fleetsim.config.judges import JUDGES, judges_of
from fleetsim.config.law_numbers import budget_steps, law_of
from fleetsim.config.load import with_changes
from fleetsim.config.scenario import Scenario, has_spot
from fleetsim.config.workload import ConstantTokens, Gamma, LengthSpec, Lognormal
from fleetsim.engine.gpus import gpu_of
from fleetsim.engine.model.names import model_shape
from fleetsim.errors import InputError
from fleetsim.frameworks.equal_parts import divides
from fleetsim.job.assumptions import is_estimated
from fleetsim.job.derived_values import SECONDS, TP, instance_gpus, rates_by_tp, with_derived
from fleetsim.job.lengths import law_from_flags, share_above
from fleetsim.job.nameplate import context_in_flight, samples_in_flight
from fleetsim.job.words import StationLimit
from fleetsim.policies.admission import BATCHES_AHEAD
from fleetsim.policies.law import EachStep, Looser, written
from fleetsim.policies.samples import IN_FLIGHT
from fleetsim.records import replace
from fleetsim.search.change import Typed
from fleetsim.search.makes import count_path, open_pools
from fleetsim.trainer.estimate import estimate_on

ONE_MORE, CAP, NO_CAP, LOWER_CAP, HELD, HOST, WORKERS, LARGER_TRAINER, SMALLER_TRAINER, STALENESS, CADENCE, LENGTH = (
    "one_more_instance",
    "in_flight_cap",
    "no_in_flight_cap",
    "lower_in_flight_cap",
    "cap_that_the_cache_holds",
    "host_cache",
    "workers",
    "larger_trainer",
    "smaller_trainer",
    "staleness_budget",
    "sync_cadence",
    "length_cap",
)
RESUMED = "resumed_in_flight"
# Tensor parallelism over that of the job, and what it is called.
_ENGINES: Mapping[str, float] = {"smaller_engines": 0.5, "larger_engines": 2.0, "largest_engines": 4.0}
# Shares of instances on spot machines that are tried beside another one, and what they are called.
ON_DEMAND, HALF_SPOT, ALL_SPOT = "on_demand", "half_spot", "all_spot"
_SHARES: Mapping[str, tuple[float, str]] = {
    ON_DEMAND: (0.0, "all instances on demand"),
    HALF_SPOT: (0.5, "half of the instances on spot machines"),
    ALL_SPOT: (1.0, "all instances on spot machines"),
}
# Counts of another pool that are tried beside the one that it has, over it, and what they are called.
_COUNTS: Mapping[str, float] = {"no": 0.0, "half": 0.5, "twice": 2.0}
_MORE_IN_FLIGHT, _FEWER_IN_FLIGHT = 1.5, 0.5
# Beyond their mean, so that samples that are long together find room.
_ROOM = 1.1
_TRAINER_GPUS = "trainer.gpus"
# GiB of host memory for each GPU: half of the 2 TiB that usual servers of eight have.
_HOST_GIB = 128
# A new length cap cuts about this share of the samples.
CUT_SHARE = 0.05
# What is called a risk: this much older on average, in steps; this much more of the samples, or the long ones, lost.
_OLDER, _MORE_LOST = 0.02, 0.005
# Shares of samples that are lost: of all, and of the longest tenth.
LOST = ("samples_lost.all", "samples_lost.longest_tenth")
# Judge -> one more of its engines.
MORE_OF = {name: f"one_more_{name}" for name in JUDGES}
# Levers that change the recipe; no other does, whatever else it changes.
OF_THE_ALGORITHM = (STALENESS, CADENCE, RESUMED, LENGTH)


class Lever(Struct, frozen=True):
    """One change: its name, what it is in words (fits after "try"), the scenario with it.

    flag: what to type. truncated: share of the samples that a new length cap cuts.
    """

    name: str
    text: str
    flag: Typed
    scenario: Scenario
    truncated: float = 0.0


def levers_of(
    scenario: Scenario,
    grown: Scenario,
    more: str,
    given: Collection[str] | None = None,
    *,
    trainer: bool = False,
    preempted: bool = False,
    too_old: bool = False,
    full: Collection[StationLimit] = (),
) -> tuple[Lever, ...]:
    """All levers of a scenario. grown: the same with one more instance; more: that in words.

    given: dotted paths that the user wrote. What else was chosen for the job stays with a lever, so its flags say it
    where they alone would let something else be chosen. None = the scenario is all there is. trainer: whether the
    trainer's GPUs may be others. preempted: whether instances hold more samples than their KV cache. too_old: whether
    samples are dropped as too old. full: limits of stations that are reached.
    """
    found = [Lever(ONE_MORE, more, Typed({"fleet.instances": grown.fleet.instances}), grown)]
    for lever in (_judges, _spot, partial(_pools, given=given), _caps, _staleness, _cadence, _resumed):
        found += _possible(lever(scenario))
    if too_old:
        found += _lower_cap(scenario)
    if preempted:
        found += _held(scenario)
        found += _host(scenario)
    if any(limit.binding == "environment" for limit in full):
        found += _limits(scenario, full)
    if trainer and given is not None:
        found += _trainers(scenario, given)
        found += _possible(_engines(scenario))
    found += _length(scenario, given)
    kept = (kept_choices(scenario, x.scenario, given) for x in found)
    return tuple(
        replace(x, flag=Typed({**x.flag.changes, **more}, x.flag.options)) for x, more in zip(found, kept, strict=True)
    )


def kept_choices(now: Scenario, changed: Scenario, given: Collection[str] | None) -> dict[str, Any]:
    """What to type as well, so that a changed job keeps what was chosen for it: its TP and its trainer's GPUs."""
    if given is None:
        return {}
    tp = instance_gpus(changed, given)
    kept: dict[str, Any] = {} if tp in (None, changed.engine.tp) else {TP: changed.engine.tp}
    if changed.workload != now.workload and "trainer.gpus" in now.assumed:
        try:
            free = with_derived(changed, given).trainer.gpus
        except InputError:
            free = 0
        if free != now.trainer.gpus:
            kept["trainer.gpus"] = now.trainer.gpus
    return kept


def _possible(levers: Iterator[Lever]) -> Iterator[Lever]:
    """Levers until one asks for more than a scenario may hold: twice the largest count is no advice."""
    with suppress(InputError):
        yield from levers


def _pulled(scenario: Scenario, name: str, text: str, changes: Mapping[str, Any]) -> Lever:
    return Lever(name, text, Typed(changes), with_changes(scenario, changes))


def _judges(scenario: Scenario) -> Iterator[Lever]:
    """One more engine of each judge that has its own."""
    for name, judge in judges_of(scenario).items():
        if judge.has_engines:
            path, n = f"stations.{name}.instances", judge.instances + judge.engine.dp
            yield _pulled(scenario, MORE_OF[name], f"{n:,} engines of the {name}", {path: n})


def _spot(scenario: Scenario) -> Iterator[Lever]:
    """Other shares of spot machines, where there are some."""
    fleet = scenario.fleet
    for name, (share, text) in _SHARES.items() if has_spot(scenario) else ():
        changes: dict[str, Any] = {} if share == fleet.spot.share else {"fleet.spot.share": share}
        if name == ON_DEMAND:
            changes |= {f"fleet.pools.{pool}.on_spot": False for pool, told in fleet.pools.items() if told.on_spot}
        if changes and (name == ON_DEMAND or fleet.on_spot):
            yield _pulled(scenario, name, text, changes)


def _pools(scenario: Scenario, given: Collection[str] | None) -> Iterator[Lever]:
    """Other counts of the other pools, where they were not chosen with the first one's."""
    chosen = () if given is None else open_pools(scenario, given)
    kept = [name for name in scenario.fleet.pools if name not in chosen]
    for pool, (name, share) in product(kept, _COUNTS.items()):
        now, unit = scenario.fleet.pools[pool].instances, scenario.engine.dp
        n, called = int(share * now) // unit * unit, f"{name}_{pool}_pool"
        if n:
            text = f"{units.plural(n, 'instance')} in pool {pool} instead of {now:,}"
            yield _pulled(scenario, called, text, {count_path(pool): n})
        elif share == 0.0:
            yield _pulled(scenario, called, f"no pool {pool}", {f"fleet.pools.{pool}": None})


def _caps(scenario: Scenario) -> Iterator[Lever]:
    """The client's caps: half as much again, and none at all. A pool cannot be left out, nor can environments."""
    held = _caps_of(scenario)
    if not held:
        return
    yield _scaled(scenario, CAP, held, _MORE_IN_FLIGHT)
    off = {path: None for path in held if path.startswith("fleet.")}
    if off and scenario.fleet.in_flight_unit != "environments":
        yield _pulled(scenario, NO_CAP, "no in-flight cap at all", off)


def _lower_cap(scenario: Scenario) -> Iterator[Lever]:
    """Half of the client's caps, or of what may be in flight: what starts later is younger when it is trained."""
    most = samples_in_flight(scenario)
    held = _caps_of(scenario) or ({"fleet.max_in_flight_samples": int(most)} if math.isfinite(most) else {})
    if held and min(held.values()) > scenario.workload.group_size:
        yield _scaled(scenario, LOWER_CAP, held, _FEWER_IN_FLIGHT)


def _caps_of(scenario: Scenario) -> dict[str, int]:
    """Samples that the client's caps let be in flight, by their paths."""
    fleet, a = scenario.fleet, scenario.admission
    caps = {
        "fleet.max_in_flight_samples": fleet.max_in_flight_samples,
        "fleet.max_in_flight_samples_per_instance": fleet.max_in_flight_samples_per_instance,
    }
    own = law_of(scenario).cap
    if own is not None:
        caps[own.setting] = own.samples(a)
    return {path: cap for path, cap in caps.items() if cap is not None}


def _scaled(scenario: Scenario, name: str, held: Mapping[str, int], factor: float) -> Lever:
    """Other caps, in whole groups."""
    group = scenario.workload.group_size
    other = {path: math.ceil(factor * cap / group) * group for path, cap in held.items()}
    each = " and of ".join(f"{other[path]:,} instead of {cap:,} samples{_of_what(path)}" for path, cap in held.items())
    adaptive = "admission.adaptive"  # it starts with no more than its most
    if (most := other.get(f"{adaptive}.most_samples")) and most < scenario.admission.adaptive.start_samples:
        other[f"{adaptive}.start_samples"] = most
    return _pulled(scenario, name, f"an in-flight cap of {each}", other)


def _of_what(path: str) -> str:
    return " per instance" if path.endswith("_per_instance") else ""


def _held(scenario: Scenario) -> Iterator[Lever]:
    """As many samples on an instance as its KV cache holds, at their mean length in flight and a tenth more."""
    most = samples_held(scenario)
    if most >= scenario.workload.group_size:
        path = "fleet.max_in_flight_samples_per_instance"
        yield _pulled(scenario, HELD, f"at most {units.plural(most, 'sample')} in flight per instance", {path: most})


def _host(scenario: Scenario) -> Iterator[Lever]:
    """Copies of KV blocks in the host's memory, where samples come back to caches that cannot hold them all."""
    from fleetsim.sim.engines import engine_of

    path, gib = "engine.kv_offloading_gib", _HOST_GIB * scenario.engine.gpus
    if not scenario.workload.turns.several or scenario.engine.offloads:
        return
    try:
        changed = with_changes(scenario, {path: gib})
        engine_of(changed)
    except InputError:  # an engine whose host cannot
        return
    yield Lever(HOST, f"{gib:,} GiB of host memory for an instance's KV cache", Typed({path: gib}), changed)


def _limits(scenario: Scenario, full: Collection[StationLimit]) -> Iterator[Lever]:
    """Twice the limits that are reached, together: to raise one of several alone brings nothing."""
    text = units.listed([f"{units.number(2 * x.now)} {x.of} instead of {units.number(x.now)}" for x in full])
    with suppress(InputError):  # beyond what may be given
        yield _pulled(scenario, WORKERS, text, {limit.path: 2 * limit.now for limit in full})


def samples_held(scenario: Scenario) -> int:
    """Samples that the KV cache of an instance holds without preempting one, more or less; whole groups where these
    stay together."""
    from fleetsim.sim.engines import engine_of

    limits = engine_of(scenario)[1]
    most = int(limits.kv_tokens // limits.held_tokens(_ROOM * context_in_flight(scenario)))
    group = scenario.workload.group_size if scenario.fleet.group_placement == "together" else 1
    return max(1, min(most, limits.max_num_seqs)) // group * group


def _trainers(scenario: Scenario, given: Collection[str]) -> Iterator[Lever]:
    """Twice the trainer's GPUs, and half of them, where its model says what their seconds then are."""
    if scenario.fleet.placement != "disaggregated" or not is_estimated(scenario):
        return
    now = scenario.trainer.gpus
    for name, gpus in ((LARGER_TRAINER, 2 * now), (SMALLER_TRAINER, now // 2)):
        if gpus < 1:
            continue
        try:
            other = with_changes(scenario, {_TRAINER_GPUS: gpus})
            if estimate_on(other, gpus) is None:  # no layout of so many GPUs holds the model
                continue
            changed = with_derived(other, {*given, _TRAINER_GPUS})
        except InputError:  # nor is there such a job
            continue
        if divides(changed, gpus):
            text = f"{units.plural(gpus, 'trainer GPU')} instead of {now:,}"
            yield Lever(name, text, Typed({_TRAINER_GPUS: gpus}), changed)


def _engines(scenario: Scenario) -> Iterator[Lever]:
    """Engines of more GPUs, whose responses end sooner, and of fewer, each of which makes more tokens."""
    engine, now = scenario.engine, scenario.engine.tp
    if scenario.fleet.placement != "disaggregated" or engine.kind != "roofline":
        return
    node, heads = gpu_of(engine).node_gpus, model_shape(engine.model).heads
    sizes = {name: int(factor * now) for name, factor in _ENGINES.items()}
    fits = [tp for tp in sizes.values() if tp and tp * engine.gpus // now <= node and heads % tp == 0]
    holding = dict(rates_by_tp(scenario, fits))
    for name, tp in sizes.items():
        if tp in holding:
            yield _pulled(scenario, name, f"engines of TP{tp} instead of TP{now}", {TP: tp})


def _staleness(scenario: Scenario) -> Iterator[Lever]:
    """One version, batch or window more ahead of the trainer.

    A sample that starts earlier is older when it is trained, and is in flight at more publications. So the age limit
    rises by one version (half a window is rounded up, because ages are whole). And a sample that so far was never
    unfinished at a publication is resumed after it instead of being thrown away.
    """
    a = scenario.admission
    older = {} if a.max_age is None else {"admission.max_age": a.max_age + 1.0}
    looser = law_of(scenario).looser
    if isinstance(looser, Looser):
        text, changes = _more_of(scenario, looser)
    elif looser is not None and scenario.buffer.leftover != "defer":
        text, changes = looser.says, dict(looser.changes)
        if scenario.fleet.placement == "colocated":  # beside the batch in training, which counts, nothing is generated
            changes[BATCHES_AHEAD] += 1
        if IN_FLIGHT[scenario.sync.in_flight].drains:
            changes["sync.in_flight"] = "abort_resume"
    else:
        return
    if IN_FLIGHT[scenario.sync.in_flight].discards and _nothing_ahead(scenario):
        changes["sync.in_flight"] = "abort_resume"
        text += ", with unfinished responses resumed after a sync"
    yield _pulled(scenario, STALENESS, text, changes | older)


def _more_of(scenario: Scenario, looser: Looser) -> tuple[str, dict[str, Any]]:
    """More of the law's own number, in words and as settings; the queue grows as the window does."""
    law, a = law_of(scenario), scenario.admission
    now, grows = law.number(a), law.loosened(a)
    assert law.parameter is not None  # a law with a looser number has it in a setting
    assert now is not None
    assert grows is not None
    text = f"{looser.says.format(written(now + looser.more))} instead of {written(now)}"
    return text, {law.parameter: now + looser.more, **_queue_of_the_window(scenario, grows)}


def _nothing_ahead(scenario: Scenario) -> bool:
    """Whether nothing starts before the batches so far are trained, so that a publication finds nothing in flight."""
    a, b = scenario.admission, scenario.buffer
    if b.leftover == "carry_over" or b.oversampling > 1:
        return False
    law = law_of(scenario)
    runs_on = isinstance(law.lets_in, EachStep) and law.lets_in.kept_running(a) > 0
    return budget_steps(scenario) == 0 and not runs_on


def _cadence(scenario: Scenario) -> Iterator[Lever]:
    """Half as many publications. An age is counted in publications, and no sample gets older by it: the limit stays."""
    s = scenario.sync
    path, count = {
        "steps": ("sync.every_steps", s.every_steps),
        "pulls": ("sync.every_pulls", s.every_pulls or 1),
        "samples": ("sync.every_samples", s.every_samples or 1),
    }[s.trigger]
    what = "2nd step" if (s.trigger, count) == ("steps", 1) else f"{2 * count:,} {s.trigger}"
    changes = {path: 2 * count, **_queue_of_the_window(scenario, 2.0)}
    yield _pulled(scenario, CADENCE, f"a weight sync every {what}", changes)


def _resumed(scenario: Scenario) -> Iterator[Lever]:
    """No wait for what is in flight before a sync, where some is: it goes on after it, with the new weights."""
    if IN_FLIGHT[scenario.sync.in_flight].drains and not law_of(scenario).waits_for_trainer:
        text = "unfinished responses resumed after a sync instead of waited for"
        yield _pulled(scenario, RESUMED, text, {"sync.in_flight": "abort_resume"})


def _queue_of_the_window(scenario: Scenario, factor: float) -> dict[str, Any]:
    """A queue that holds all that the larger window may start.

    With the old size, verl's queue would throw the rest away. A queue of groups that are reserved for their steps
    (NeMo-RL) would fill with those of later steps and stop the job.
    """
    capacity = scenario.buffer.capacity_samples
    if capacity is None or not law_of(scenario).fills_queue:
        return {}
    return {"buffer.capacity_samples": math.ceil(factor * capacity)}


def _length(scenario: Scenario, given: Collection[str] | None) -> Iterator[Lever]:
    """A cap on the responses at about their 95th percentile, or below where the cap already sits there."""
    from fleetsim.workload.lengths import quantile_length

    law = scenario.workload.output_tokens
    if isinstance(law, ConstantTokens) or scenario.workload.turns.output_tokens is not None:  # it is not read
        return
    now = law.max
    for share in (CUT_SHARE, 2 * CUT_SHARE, 4 * CUT_SHARE):
        cap = _round(quantile_length(law, 1.0 - share))
        if now is None or cap < 0.95 * now:
            break
    else:
        return
    from_to = f" instead of {now:,.0f}" if now is not None else ""
    options, cut = _cut(law, cap)
    if cut is None:
        return
    changed = with_changes(scenario, {"workload.output_tokens": cut})
    if given is not None and any(path in scenario.assumed for path in SECONDS):  # of shorter responses they are others
        changed = with_derived(changed, {*given, "trainer.gpus"})
    truncated = max(0.0, share_above(law, cap))
    text = f"responses cut at {cap:,} tokens{from_to}"
    yield Lever(LENGTH, text, Typed({}, options), changed, truncated)


def _cut(law: LengthSpec, cap: int) -> tuple[dict[str, Any], dict[str, Any] | None]:
    """What to type to cut a law, and what comes of it; None where no flag says it.

    A cap alone would leave the mean of what is generated as it is, because --len says that mean: so the mean that is
    left after the cut is typed as well. It is a rounded number, and the law is the one that it makes.
    """
    if not isinstance(law, (Lognormal, Gamma)):
        return {"max_len": cap}, {**law.model_dump(exclude_none=True), "max": cap}
    from fleetsim.workload.lengths import mean_length

    left = mean_length(law.model_copy(update={"max": float(cap)}), at_least=1.0)
    mean = f"{left:.0f}" if left >= 1000 else f"{left:.4g}"
    return {"len": mean, "max_len": cap}, law_from_flags(law, True, float(mean), None, float(cap))[1]


def _round(tokens: float) -> int:
    """To a multiple of 64 as people write caps, at least a token."""
    return max(1, round(tokens / 64) * 64) if tokens >= 256 else max(1, round(tokens))


def cuts_many(truncated: float) -> bool:
    """Whether so large a share of the responses is cut that nobody should be advised to, whatever it saves."""
    return truncated > 1.2 * CUT_SHARE


def more_lost(lost: tuple[float, float]) -> bool:
    """Whether notably more samples are thrown away: shares without and with a lever."""
    return lost[1] > lost[0] + _MORE_LOST


def risk_of(lever: Lever, before: Callable[[str], float], after: Callable[[str], float]) -> str | None:
    """What a lever asks of the algorithm, in words, by the means of metrics without and with it; None where it asks
    nothing."""
    of_all, of_longest = ((before(m), after(m)) for m in LOST)
    p99, mean = ((before(m), after(m)) for m in ("staleness_steps.p99", "staleness_steps.mean"))
    risks = []
    if lever.truncated > 0:
        risks.append(f"{units.share(lever.truncated)} of the responses truncated")
    if p99[1] > p99[0]:
        risks.append(f"staleness p99 {p99[1]:.3g} instead of {p99[0]:.3g} steps")
    elif mean[1] > mean[0] + _OLDER:
        risks.append(f"mean staleness {mean[1]:.3g} instead of {mean[0]:.3g} steps")
    if more_lost(of_longest):
        risks.append(f"{units.share(of_longest[1])} instead of {units.share(of_longest[0])} of the longest tenth lost")
    elif more_lost(of_all):
        risks.append(f"{units.share(of_all[1])} instead of {units.share(of_all[0])} of all samples lost")
    return ", ".join(risks) or None
