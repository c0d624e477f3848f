"""Sentences of a result, as a colleague would say them: what binds, what it means; values of a scenario in words."""

from __future__ import annotations

import math
from collections.abc import Callable, Iterator, Mapping

from msgspec import Struct

from fleetsim import units
from fleetsim.config.judges import judges_of
from fleetsim.config.scenario import Scenario
from fleetsim.config.stations import ApiConfig, OverflowConfig
from fleetsim.engine.defaults import ENTRY_POINTS, SGLANG_DRAFTING, default_limits
from fleetsim.engine.gpus import gpu_of
from fleetsim.engine.model.names import model_shape
from fleetsim.engine.model.precision import KV_BYTES, PRECISIONS
from fleetsim.engine.prices import listed_price
from fleetsim.engine.slowdown import is_known
from fleetsim.engine.transport import sync_times
from fleetsim.errors import InputError
from fleetsim.estimates import Estimate
from fleetsim.job.engine_source import profile_words
from fleetsim.job.nameplate import mean_batch_tokens
from fleetsim.policies.admission import LAWS
from fleetsim.policies.law import Looser
from fleetsim.policies.samples import AGE_ACTIONS, IN_FLIGHT
from fleetsim.quantities import quantity
from fleetsim.records import replace
from fleetsim.sim.engines import engine_of, profile_of
from fleetsim.sim.stations import FULL, TIME_LIMITS, limits_of, stations_of


class Binding(Struct, frozen=True):
    """One value of the metric `binding`. `name` fits after "what binds:"."""

    name: str
    meaning: str
    lift: str


BINDINGS: dict[str, Binding] = {
    "trainer": Binding(
        "the trainer",
        "most of a step is the trainer's own time, and samples come fast enough for it",
        "a faster trainer, or a larger batch per step",
    ),
    "evaluation": Binding(
        "evaluation",
        "evaluations hold the trainer",
        "fewer or smaller ones (evaluation.every_steps, evaluation.samples), or evaluation.blocking: false",
    ),
    "checkpoint": Binding(
        "checkpoints",
        "checkpoints hold the trainer",
        "fewer (trainer.checkpoint.every_steps), or trainer.checkpoint.background: true",
    ),
    "rollout": Binding(
        "rollout throughput",
        "the trainer waits for samples, and instances are so full that each of them makes them slowly",
        "more instances (--instances N of simulate), a faster engine, or shorter responses (--max-len)",
    ),
    "longest_response": Binding(
        "the longest responses",
        "the trainer waits for the longest responses of a batch: a lower cap saves more than instances",
        "a lower --max-len, more batches ahead, or faster decoding of each response (a larger --tp, a faster --gpu)",
    ),
    "sync": Binding(
        "weight sync",
        "publishing and loading weights takes more of a step than anything else that can be changed",
        "fewer or faster syncs: --sync-pause-s, --set sync.every_steps=2",
    ),
    "in_flight_cap": Binding(
        "the client's in-flight cap",
        "the client keeps so few samples in flight that instances could make more at once",
        "a higher cap: fleet.max_in_flight_samples, or fleet.max_in_flight_samples_per_instance where that is the one",
    ),
    "staleness_window": Binding(
        "the staleness budget",
        "the fleet may run no further ahead of the trainer, so each batch waits for its slowest groups",
        "a larger --max-staleness, if the recipe tolerates it",
    ),
    "judge": Binding(
        "judges",
        "responses wait for a judge, a teacher or a reference, while the trainer waits for them",
        "more engines of the judge (stations.judge.instances), faster ones, shorter answers or fewer votes",
    ),
    "time_limit": Binding(
        "the time limit",
        "rollouts are cut, and a longer limit makes the most whole ones a second",
        "a longer limit, faster tools, or more instances",
    ),
    "environment": Binding(
        "tools and rewards",
        "responses wait for tool calls or for their reward, while the trainer waits for them",
        "faster tools or rewards, or more workers or calls_per_s of stations.tools, stations.reward",
    ),
}


# From this share of a step on, a trainer that binds is said to wait as well: its own seconds are then not most of it.
WAITS = 0.2


def binding_words(binding: str, scenario: Scenario | None = None, idle: float = 0.0) -> Binding:
    """The words for a binding, of a scenario's law, sync and caps where one is given. A binding that is not known here
    is shown by its name. idle: share of a step for which the trainer waits."""
    words = BINDINGS.get(binding) or Binding(binding.replace("_", " "), "", "")
    if binding == "trainer" and idle >= WAITS:
        return replace(
            words,
            name="the trainer, although it also waits",
            meaning="a fifth less of the trainer's own time shortens a step by more than a fifth more of anything that "
            "it waits for",
        )
    if scenario is None:
        return words
    a, unit = scenario.admission, scenario.fleet.in_flight_unit
    if binding == "time_limit":
        limits = limits_of(scenario)
        paths = units.listed([f"stations.{name}.timeout_s" for name in limits], "or")
        named = f"the time limit of {units.listed([f'{name}s' for name in limits])}"
        return replace(words, name=named, lift=words.lift.replace("a longer limit", f"a longer {paths}"))
    looser, cap = LAWS[a.law].looser, LAWS[a.law].cap
    if binding == "staleness_window":
        lift = looser.lift if isinstance(looser, Looser) else BINDINGS[binding].lift.partition(",")[0]
        older = " and admission.max_age" if AGE_ACTIONS[a.age_action].limits_age else ""
        return replace(words, lift=f"{lift}{older}, if the recipe tolerates it")
    if binding == "in_flight_cap" and cap is not None:
        return replace(words, lift=f"more {cap.setting}")
    if binding == "in_flight_cap" and unit == "groups":
        return replace(
            words,
            meaning="the client keeps few groups in flight, and a group that waits for its last response keeps the "
            "places of all its responses",
            lift=f"{words.lift}; by whole groups (workload.group_size samples), of which alone it has room",
        )
    if binding == "sync" and IN_FLIGHT[scenario.sync.in_flight].recomputes:
        return replace(
            words,
            meaning="publishing and loading weights, and computing again what was in flight at a sync, take more of a "
            "step than anything else that can be changed",
            lift=f"{words.lift}; fewer samples in flight, or sync.in_flight: keep",
        )
    if binding == "sync" and scenario.sync.scope == "rolling":
        return replace(
            words,
            meaning="instances load new weights in turn, and the last one has a version only after the next is made",
            lift="more instances at a time (sync.at_once), or all of them (sync.scope: global)",
        )
    return words


# What the workers of a station are called.
CALLED: Mapping[str, str] = {"tools": "sandboxes", "reward": "reward workers"}
# Beside a limit that is reached another is, too, where a fifth more would fill it.
_BESIDE = FULL / 1.2


class StationLimit(Struct, frozen=True):
    """A limit of a station or a judge. binding: the verdict that is about it. used: the share that is in use. said: it
    in words, where it is reached. path: where it stands, and now: its value there. of: what it counts, in words."""

    binding: str
    used: float
    said: str
    path: str
    now: float
    of: str


def binding_line(binding: str, scenario: Scenario, of: Mapping[str, Estimate]) -> str:
    """What binds, and which limits of stations are reached: "tools and rewards: the rate limit of tools, 20 calls per
    second; beside it all 64 sandboxes are in use". of: metrics by dotted name."""
    idle = of["trainer_idle_fraction"].mean
    name, limits = binding_words(binding, scenario, idle).name, reached_limits(scenario, of)
    first = next((one for one in limits if one.binding == binding and one.used >= FULL), None)
    if first is None:
        return name
    beside = units.listed([one.said for one in limits if one is not first])
    return f"{name}: {first.said}" + (f"; beside it {beside}" if beside else "")


def reached_limits(scenario: Scenario, of: Mapping[str, Estimate]) -> list[StationLimit]:
    """Limits of stations and judges that are reached and, where one is, those that would be with a fifth more of it: to
    raise one alone brings little. A rate comes first."""
    found = [limit for limit in _limits(scenario, of) if limit.used >= _BESIDE]
    return found if any(limit.used >= FULL for limit in found) else []


def _limits(scenario: Scenario, of: Mapping[str, Estimate]) -> Iterator[StationLimit]:
    """All of them. Workers whose calls wait for a rate are taken meanwhile, but before an overflow: there those count
    that serve. What is too much for a station waits only where its overflow is full, too."""
    stations, judges = stations_of(scenario), judges_of(scenario)
    stations = {name: station for name, station in stations.items() if name not in TIME_LIMITS}
    for name in (*stations, *judges):
        m = {metric.rpartition(".")[2]: e.mean for metric, e in of.items() if metric.startswith(f"stations.{name}.")}
        if not m:
            continue
        at, rate, used = f"stations.{name}", m["calls"] / of["step_s"].mean, m.get("busy_fraction", 0.0)
        if name in stations:
            whose, workers = "tools" if name == "tools" else "rewards", stations[name].workers or 0
            there, more = m.get("overflow_share", 0.0) * rate, stations[name].overflow
            most, in_use = stations[name].calls_per_s, f"all {workers:,} {CALLED[name]} are in use"
            of_rate = (rate - there) / most if most else 0.0
            if most and more is None:
                used = m["in_service"] / workers if workers else 0.0
            if more is not None:
                beyond = list(_of_overflow(more, name, {"calls_per_s": there, "workers": m["overflow_in_use"]}))
                yield from beyond
                full = max((limit.used for limit in beyond), default=0.0)
                of_rate, used = min(of_rate, full), min(used, full)
            # What waits for longer than it is served comes in bursts, and meets one of both.
            elif m["waiting"] > m["in_service"] and max(of_rate, used) < FULL:
                of_rate, used, in_use = (1.0, used, in_use) if of_rate > used else (of_rate, 1.0, f"{in_use} at times")
            if most:
                said = f"the rate limit of {whose}, {units.plural(most, 'call')} per second"
                counts = f"calls of {whose} per second"
                yield StationLimit("environment", of_rate, said, f"{at}.calls_per_s", most, counts)
            yield StationLimit("environment", used, in_use, f"{at}.workers", workers, CALLED[name])
            continue
        # what waits for longer than it is served has met some limit
        api, more, waits = judges[name].api, judges[name].overflow, float(m["waiting"] > m["in_service"])
        if api is not None:
            where = "overflow" if getattr(scenario.stations, name).overflow else "api"
            yield from _of_api(api, f"the {name}'s API", f"{at}.{where}", rate, m["in_service"], waits)
            continue
        if more is not None:
            there = m["overflow_share"] * rate
            beyond = list(
                _of_api(more, f"the overflow of the {name}", f"{at}.overflow", there, m["overflow_in_use"], waits)
            )
            yield from beyond
            used = min(used, max(limit.used for limit in beyond))
        engines = judges[name].instances
        said = f"{units.plural(engines, 'engine')} of the {name}, always at work"
        yield StationLimit("judge", used, said, f"{at}.instances", engines, f"engines of the {name}")


def _of_api(
    api: ApiConfig, whose: str, path: str, calls_per_s: float, in_service: float, waits: float
) -> Iterator[StationLimit]:
    """Those of an API. waits: 1 where its requests wait for longer than they are served."""
    shares = calls_per_s / (api.requests_per_s or math.inf), waits
    for what, per_s, share in zip(("request", "token"), (api.requests_per_s, api.tokens_per_s), shares, strict=True):
        if per_s is not None:
            said = f"the rate limit of {whose}, {units.plural(per_s, what)} per second"
            yield StationLimit("judge", share, said, f"{path}.{what}s_per_s", per_s, f"{what}s per second of {whose}")
    said, used = f"{api.concurrency:,} requests at once of {whose}", in_service / api.concurrency
    yield StationLimit("judge", used, said, f"{path}.concurrency", api.concurrency, "requests at once")


def _of_overflow(more: OverflowConfig, station: str, in_use: Mapping[str, float]) -> Iterator[StationLimit]:
    """Those of a station's overflow. in_use: how much of each is."""
    whose = f"the overflow of {'tools' if station == 'tools' else 'rewards'}"
    for name, per in (("calls_per_s", "per second"), ("workers", "at once")):
        if (most := getattr(more, name)) is not None:
            said, path = (
                f"the limit of {whose}, {units.plural(most, 'call')} {per}",
                f"stations.{station}.overflow.{name}",
            )
            yield StationLimit("environment", in_use[name] / most, said, path, most, f"calls {per} of {whose}")


# Section of a scenario -> the part of the system that a reader looks for, where that has another name.
THEMES: Mapping[str, str] = {"sync": "weight sync", "admission": "staleness", "cost": "prices"}
_TARGETS: Mapping[str, str] = {
    "trainer_idle_fraction": f"{quantity('trainer_idle_fraction').title} at most",
    "step_s": "a step of at most",
    "staleness_p99_steps": "a staleness p99 of at most",
    "cost_per_step": f"a {quantity('cost_per_step').title} of at most",
}


def kind_of(command: str, scenario: Scenario) -> str:
    """What stands above the title of a page: the command, and the scenario's name where it has one of its own."""
    named = scenario.name != Scenario.model_fields["name"].default
    return f"fleetsim {command}" + (f" · {scenario.name}" if named else "")


def target(name: str, limit: float) -> str:
    """ "trainer idle at most 5.0 %"; name: a field of a scenario's targets."""
    return f"{_TARGETS[name]} {target_value(name, limit)}"


def target_value(name: str, value: float) -> str:
    """A target's limit, or what is held against it, with its unit."""
    return units.plural(value, "step") if name == "staleness_p99_steps" else units.written(value, quantity(name).unit)


def instance_words(scenario: Scenario) -> str:
    """What one instance is: "H100-SXM x 1", or its rate where that is all that is known."""
    e = scenario.engine
    if e.kind == "constant":
        return f"{e.instance_tok_s or 0.0:,.0f} tok/s each"
    profile = profile_of(scenario)
    if profile is not None:
        return f"{profile.provenance.device} x {e.gpus}, profile {profile.name}"
    return f"{e.gpu} x {e.gpus}"


def idle_of_both(mean: Callable[[str], float]) -> str:
    """ "4/12 %": the trainer's share and the instances'. mean: of a metric."""
    trainer, rollout = mean("trainer_idle_fraction"), mean("rollout_idle_fraction")
    return f"{units.percent(trainer, 0)}/{units.share(rollout, 0)}"


def binds(words: Binding) -> str:
    """What binds, why one sees it, and what would lift it."""
    if not words.meaning:
        return f"What binds: {words.name}."
    return f"What binds: {words.name}. {units.capital(words.meaning)}. What would lift it: {words.lift}."


def lost_words(lost: Estimate, longest_lost: Estimate) -> str:
    """How many samples are thrown away, and whether that favours short ones; empty where none is."""
    if lost.mean <= 0.0 and longest_lost.mean <= 0.0:
        return ""
    bias = (
        ": training leans toward short responses"
        if longest_lost.mean > lost.mean and max(longest_lost.ci_low, longest_lost.mean / 2.0) > lost.mean
        else ""
    )
    return (
        f"Of the longest tenth of the samples {units.share(longest_lost.mean)} are dropped or aborted, of all samples "
        f"{units.share(lost.mean)}{bias}."
    )


# --- Values of a scenario in the words of a report: engine, prices, weight sync, trainer.


def named_profile(s: Scenario) -> str:
    """The profile, by its name and error."""
    found = profile_of(s)
    return "" if found is None else profile_words(found)


def instance(s: Scenario) -> str:
    """The engines of an instance, and its GPUs."""
    why = ": the cheapest that fits" if s.engine.kind == "roofline" and s.engine.tp > 1 else ""
    stages = f" x PP{s.engine.pp}" if s.engine.pp > 1 else ""
    apart = s.engine.disaggregation
    if apart is not None:
        sides = f"{apart.prefill} prefill (TP{s.engine.prefill_tp}) + {apart.decode} decode (TP{s.engine.tp}) engines"
        return f"{sides}: {units.plural(s.engine.gpus, 'GPU')} per instance"
    return f"TP{s.engine.tp}{stages} ({units.plural(s.engine.gpus, 'GPU')} per instance{why})"


def weights(s: Scenario) -> str:
    """The types of the weights."""
    shape = model_shape(s.engine.model)
    small = PRECISIONS[shape.weights_type(s.engine.dtype)].bits < 16
    own = ", as the checkpoint has them" if s.engine.dtype == "auto" and small else ""
    return f"{shape.stored(s.engine.dtype).text(shape.mixture is not None)}{own}"


def kv_cache(s: Scenario) -> str:
    """The type of the KV cache."""
    kind = model_shape(s.engine.model).cache_type(s.engine.kv_dtype)
    own = ", as the checkpoint asks" if s.engine.kv_dtype == "auto" and KV_BYTES[kind] < 2 else ""
    return f"KV cache in {kind}{own}"


def entry_point(s: Scenario) -> str:
    """How vLLM is started, and the limits that it has then."""
    point = ENTRY_POINTS[s.engine.entry_point]
    seqs, tokens = default_limits(gpu_of(s.engine), "vllm", s.engine.entry_point)
    seqs, tokens = s.engine.max_num_seqs or seqs, s.engine.max_num_batched_tokens or tokens
    return f"vLLM as {point.words}: {seqs:,} requests at once, {tokens:,} tokens per iteration"


def drafts(s: Scenario) -> str:
    """What drafts are taken to bring."""
    found = engine_of(s)[0].speculation
    assert found is not None  # asked of scenarios with speculation alone
    few = s.engine.name == "sglang" and s.engine.kind == "roofline" and s.engine.max_num_seqs is None
    limit = f", {SGLANG_DRAFTING} requests at once unless max_num_seqs says more" if few else ""
    return f"{found.source.replace('assumed: ', '')}: {found.lengths[0][found.most]:.2f} tokens an iteration{limit}"


def prefix_caching(s: Scenario) -> str:
    """Whether prompts that are cached are computed again."""
    found, on = profile_of(s), s.engine.prefix_caching
    measured = found.prefix_cache if found is not None else None
    as_there = ", as in the engine that was measured" if measured is not None and measured.enabled == on else ""
    return f"prefix caching {'on' if on else 'off'}{as_there}"


def slowdown(s: Scenario) -> str:
    """How much slower engines are in this job, and whose runs say so."""
    whose = s.trainer.recipe.framework
    own = f"{whose}'s published runs" if is_known(whose) else "published runs"
    return f"iterations take {s.engine.slowdown:g} times as long as of the engine alone, as in {own}"


def price_list(s: Scenario, gpu: str) -> str:
    """Where the price of a GPU comes from."""
    return listed_price(gpu, s.cost.market, s.cost.prices).words


def publish(s: Scenario) -> str:
    """When new weights are published."""
    return f"weights published {units.seconds(sync_times(s).publish_s)} after the update"


def pause(s: Scenario) -> str:
    """How long engines stand still in a weight sync."""
    times = sync_times(s)
    if "pause_s" not in times.derived:
        return f"engines pause {times.pause_s:g} s per weight sync"
    return f"engines pause {units.seconds(times.pause_s)} per weight sync: from {times.text}"


def trainer_block(s: Scenario) -> str:
    """How long the trainer waits in a weight sync."""
    times = sync_times(s)
    derived = "trainer_block_s" in times.derived
    waits = units.seconds(times.trainer_block_s) if derived else f"{times.trainer_block_s:g} s"
    return f"the trainer waits {waits} per weight sync"


def per_token(s: Scenario) -> str:
    """The update's seconds per token, and what a mean batch makes of them."""
    t = s.trainer
    batch = mean_batch_tokens(s) * t.per_token_s
    return f"{t.per_token_s:.3g} s of compute per trained token ({units.seconds(batch)} for a mean batch)"


def estimated_step(s: Scenario) -> str:
    """The whole step, how it is trained, and how far off that is."""
    from fleetsim.trainer.estimate import estimate_of

    try:
        found = estimate_of(s, s.trainer.gpus)
    except InputError:  # somebody runs what does not fit by this estimate: what the file assumes stands
        return per_token(s)
    error = "" if found.error is None else f", off by {units.share(found.error.median, 0)} in the median"
    how = "FSDP" if found.plan.recipe.backend == "fsdp" else "Megatron"
    passes = ", log-probs included" if found.seconds.passes else ""
    return f"{units.seconds(found.step_s)} of compute per step{passes} (estimated, {how}{error})"


def trainer_gpus(s: Scenario) -> str:
    """The trainer's GPUs."""
    least = ", the fewest servers that fit" if "trainer.gpus" in s.assumed else ""
    return f"{units.plural(s.trainer.gpus, 'GPU')}{least}"
