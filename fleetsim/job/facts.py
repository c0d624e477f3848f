"""Facts that several answers have: a step and its cost with their ranges, how old samples are, what is generated for
nothing, what was assumed, what to measure first."""

from __future__ import annotations

import math
from collections.abc import Callable, Iterable, Iterator, Mapping, Sequence
from typing import Any

from fleetsim import units
from fleetsim.config.judges import JUDGES, judges_of
from fleetsim.config.makes import as_first
from fleetsim.config.scenario import Scenario
from fleetsim.engine.transport import sync_times
from fleetsim.estimates import Estimate
from fleetsim.job.assumptions import Assumption
from fleetsim.job.derived_values import SLOWDOWN
from fleetsim.job.grounds import backlog_line
from fleetsim.job.input_moves import InputPart, MetricRanges
from fleetsim.job.lengths import share_at_cap
from fleetsim.job.nameplate import generated_mean, trainer_step_s
from fleetsim.job.trainer_scaling import takes_turns
from fleetsim.job.words import CALLED
from fleetsim.policies.samples import LOST
from fleetsim.quantities import EVALUATION_S
from fleetsim.sim.judges import beside_gpus
from fleetsim.sim.pools import gpus_each, pools_of
from fleetsim.sim.stations import TIME_LIMITS
from fleetsim.tell.facts import Fact, Spans, explained, measured
from fleetsim.workload.turns import cut_shares, response_law

# What the job is: where one of these is assumed, the plan may be for another job than the reader's.
_JOB = ("engine.model", "engine.instance_tok_s", "trainer.batch_samples", "workload.output_tokens.mean")
# What a configuration shows and does not say, or a scenario has no place for: where a file calls one of these assumed,
# it is always named.
_UNSAID = (
    "workload.turns.count", "workload.reward.latency_s", "engine.dtype", "engine.kv_dtype", "trainer.recipe.critic",
    "trainer.recipe.reference", "trainer.recipe.tune", "trainer.recipe.offload", "trainer.recipe.precision",
    "trainer.recipe.backend", "trainer.recipe.shards", "stations.judge.instances", "stations.teacher.instances",
)  # fmt: skip
# What moves an answer most; inputs in doubt come between the two, the dearest first.
_POLICY = ("admission.max_staleness",)
_REST = ("trainer.fixed_s", "workload.output_tokens.cv", "engine.gpu")
_MOST_ASSUMED = 3
# From these shares on a loss is told: of samples, of responses that the cap cuts; tokens made per trained one.
_LOST, _CUT, _MADE = 0.01, 0.02, 1.1
_NOISE = 1e-9
# A step on spot machines that is longer than on demand by more than noise.
_LONGER = 0.005
# A share that is written as more than 0.0 %.
_SHOWN = 0.0005
# What a station says of its losses.
_LOSES = ("lost", "late", "failed")
# What is less than a cent an hour is worth nothing.
CENT = 0.01
# Ages in optimizer steps, and what samples of up to such an age ask of the algorithm.
_REGIMES = (
    (3.0, "near on-policy, a clipped importance ratio bears it"),
    (5.0, "off-policy, train with importance-sampling correction"),
    (math.inf, "far off-policy, a plain clip no longer holds: use decoupled PPO or truncated importance weights"),
)
# What loses tokens, as what becomes of them.
_WHY: Mapping[str, str] = {
    "waste.stale": "stale at the queue",
    "waste.aborted": "aborted in flight",
    "waste.filtered": "filtered by their reward",
    "waste.lost": "lost with failed instances",
}
# What holds a trainer that does not wait for samples: in words -> the metric.
_HELD_BY = {"sync": "sync", "hand-over": "switch", "checkpoint": "checkpoint", "evaluation": "evaluation"}
_EVALUATED_AT = {
    "rollout": "on the rollout instances",
    "trainer": "on the trainer's GPUs",
    "own": "on instances of their own",
}
# Said once where ages are told beside a budget.
AHEAD_NOT_AGE = (
    "--max-staleness limits how many weight versions generation runs ahead; a long response is older when it is trained"
)
# Values that a scenario does not hold as a reader would type them.
_TYPED: Mapping[str, Callable[[Scenario], float]] = {
    "trainer.fixed_s": trainer_step_s,
    "sync.pause_s": lambda s: sync_times(s).pause_s,
    # --len says the mean of what is generated; a law's own mean is that before its cap
    "workload.output_tokens.mean": generated_mean,
}


STEP_SEEN = "seconds of a step"
"""What the record of a run's own step is called (`ObservedConfig.what`)."""
# Of the run's own step: what the simulated one may be off before anything is advised, with no narrower range.
RUN_LIMIT = 0.15


def run_differs(scenario: Scenario, simulated_s: float | None) -> bool:
    """Whether a job that a run showed, simulated as it ran, is another than the run: then nothing is to be advised."""
    seen = run_step_s(scenario)
    return seen is not None and (simulated_s is None or abs(simulated_s / seen - 1.0) > RUN_LIMIT)


def run_step_s(scenario: Scenario) -> float | None:
    """Seconds of a step of the run that the job comes from; None where it comes from none."""
    return next((record.value for record in scenario.observed if record.what == STEP_SEEN), None)


def run_line(scenario: Scenario, simulated_s: float | None) -> str:
    """The first line of an answer from a run: its step beside the simulated one; "" where the job is of no run."""
    seen = run_step_s(scenario)
    if seen is None:
        return ""
    if simulated_s is None:
        own = "--set fleet.instances=N"
        if SLOWDOWN in scenario.assumed:
            own = f"{own} --gpu G --model M; its log shows no engine speed, nor whether fewer instances would do"
        return f"Your run: {seen:.1f} s a step; not simulated: say what it ran on, {own}"
    off = "" if not run_differs(scenario, simulated_s) else f" ({units.change(simulated_s / seen - 1.0)})"
    return f"Your run: {seen:.1f} s a step; simulated: {simulated_s:.1f} s{off}"


def likely(low: str, high: str, wide: bool) -> str:
    """The range around an answer: " (likely 3 to 8: wide)"; empty where both ends are one."""
    return "" if low == high else f" (likely {low} to {high}{': wide' if wide else ''})"


def run_facts(
    of: Mapping[str, Estimate], scenario: Scenario, spans: Spans = None, age: float | None = None,
    on_demand: tuple[float, float] | None = None,
) -> Iterator[Fact]:  # fmt: skip
    """What a fleet at work comes to: a step and what keeps its trainer from training, cost, age, losses, backlog.

    of: metrics by dotted name. scenario: as it runs. spans: ranges by doubt about inputs. age: that of 99 % of the
    samples, where more runs than those of the metrics say it. on_demand: of a fleet with spot machines, its step and
    its cost over those of the same on demand.
    """
    yield measured("step_s", of["step_s"], spans, "{}", "step")
    yield measured("trainer_idle_fraction", of["trainer_idle_fraction"], spans, "trainer idle {}", "step")
    yield measured(
        "not_training_fraction", of["not_training_fraction"], said=_not_training(of), line="step", tile=False
    )
    yield measured("cost_per_step", of["cost_per_step"], spans, "{} a step", "cost")
    yield Fact("cost_per_hour", *_hourly(of, scenario))
    p99 = of["staleness_steps.p99"] if age is None else Estimate(age, age, age)
    yield measured("staleness_steps.p99", p99, said=regime_line(of, age), line="age")
    yield Fact("evaluation", evaluation_line(of, scenario))
    yield Fact("checkpoint", checkpoint_line(of, scenario))
    yield from beside_facts(of, scenario, on_demand)
    yield Fact("backlog", backlog_line(scenario, of) or "")
    yield explained("pace", units.sentence(pace(of)))


def beside_facts(
    of: Mapping[str, Estimate], scenario: Scenario, on_demand: tuple[float, float] | None = None
) -> Iterator[Fact]:
    """What is lost, and what serves beside a fleet on demand: spot machines, other makes, judges. As of `run_facts`."""
    lost = of["samples_lost.all"]
    yield measured("samples_lost.all", lost, said=losses_line(of, scenario) or "", line="lost", tile=False)
    yield Fact("spot", spot_line(of, scenario, on_demand))
    yield Fact("pools", pools_line(scenario))
    yield Fact("judges", judges_line(of, scenario))
    yield Fact("overflow", overflow_line(of))


def _hourly(of: Mapping[str, Estimate], scenario: Scenario) -> tuple[str, str, float, units.Unit]:
    usd = 3600.0 * of["cost_per_step"].mean / of["step_s"].mean
    rollout, trainer = scenario.fleet.instances * scenario.engine.gpus, scenario.trainer.gpus
    gpus = f"{rollout:,}" if takes_turns(scenario) else f"{rollout:,} + {trainer:,}"
    pools = [pool.instances * gpus_each(scenario, name) for name, pool in scenario.fleet.pools.items()]
    gpus += "".join(f" + {more:,}" for more in (*pools, beside_gpus(scenario)) if more)
    paid = {name: getattr(scenario.stations, name) for name in CALLED}
    workers = [
        f"{s.workers:,} {CALLED[name]}" if s.workers else f"the {CALLED[name]} in use"
        for name, s in paid.items()
        if s.worker_price_usd_per_h and s.workers != 0
    ]
    workers += [f"the overflow of {name}" for name, usd in _overflow(of, "usd").items() if usd > 0.0]
    what = units.listed([f"{gpus} GPU{'' if gpus == '1' else 's'}", *workers])
    return f"{units.money(usd)} an hour for {what}", "cost", usd, "money"


def spot_line(of: Mapping[str, Estimate], scenario: Scenario, on_demand: tuple[float, float] | None) -> str:
    """ "5 of 8 instances, serving 94.1 % of the time, 2.1 reclaims an hour: 31 % cheaper, 6 % longer than all on
    demand; worst hour 1.4 times the mean step"; empty without spot machines."""
    known = {
        name: of[f"spot.{name}"].mean for name in ("serving", "reclaims_per_h", "worst_hour") if f"spot.{name}" in of
    }
    if not known or not math.isfinite(of["step_s"].mean):
        return ""
    fleet, lost = scenario.fleet, units.number(known["reclaims_per_h"])
    whole = fleet.instances + fleet.pooled
    said = f"{fleet.all_on_spot:,} of {whole:,} instances, serving {units.share(known['serving'])} of the time, "
    said += f"{lost} reclaims an hour"
    if on_demand is not None:
        step, cost = (ratio - 1.0 for ratio in on_demand)
        cheaper = f"{units.share(abs(cost), 0)} {'cheaper' if cost < 0 else 'dearer'}"
        longer = f"{units.share(step)} longer" if step >= _LONGER else "no longer"
        said += f": {cheaper}, {longer} than all on demand"
    return f"{said}; worst hour {known['worst_hour']:.3g} times the mean step"


def pools_line(scenario: Scenario) -> str:
    """ "5 instances on H200, each sent 1.3 times as many samples: 62 % of all", of each other make; empty without."""
    pools, said = pools_of(scenario), list[str]()
    whole = scenario.fleet.instances + sum(pool.weight * pool.instances for pool in pools)
    for name, pool in zip(scenario.fleet.pools, pools, strict=True):
        where, share = as_first(scenario, name).engine, pool.weight * pool.instances / whole
        gpus = where.gpu if where.tp == 1 else f"{where.tp} {where.gpu}"
        sent = f"each sent {pool.weight:.2g} times as many samples: {units.share(share, 0)} of all"
        said.append(f"{units.plural(pool.instances, 'instance')} on {gpus}, {sent}")
    return "; ".join(said)


def judges_line(of: Mapping[str, Estimate], scenario: Scenario) -> str:
    """ "judge: 2 engines, 87 % of the time at work, 0.3 s of waiting, $0.12 a step"; empty without one, and where the
    fleet gets stuck."""
    said = []
    for name, judge in judges_of(scenario).items():
        known = {m: of[path].mean for m in ("busy_fraction", "wait_s", "usd") if (path := f"stations.{name}.{m}") in of}
        if known and all(map(math.isfinite, known.values())):
            where = "rented" if judge.at == "own" else "at the rollout's engines"
            parts = [units.plural(judge.instances, "engine") if judge.has_engines else where]
            if judge.has_engines:
                parts.append(f"{units.share(known['busy_fraction'], 0)} of the time at work")
            waits, usd = units.seconds(known["wait_s"]), units.money(known["usd"])
            said.append(f"{name}: {', '.join([*parts, f'{waits} of waiting', f'{usd} a step'])}")
    return "; ".join(said)


def overflow_line(of: Mapping[str, Estimate]) -> str:
    """ "12.3 % of the calls of tools, $0.034 a step", for each station with an overflow; empty without one."""
    usd = _overflow(of, "usd")
    return "; ".join(
        f"{units.share(share)} of the calls of {name}" + (f", {units.money(usd[name])} a step" if usd[name] else "")
        for name, share in _overflow(of, "share").items()
        if math.isfinite(share)
    )


def _overflow(of: Mapping[str, Estimate], what: str) -> dict[str, float]:
    """Station -> a metric of its overflow, of those that have one."""
    named = (*CALLED, *JUDGES)
    return {name: of[path].mean for name in named if (path := f"stations.{name}.overflow_{what}") in of}


def _not_training(of: Mapping[str, Estimate]) -> str:
    """ "not training 8.2 % (sync adds 4.1 %)"; empty where waiting is all there is."""
    all_ = of["not_training_fraction"].mean
    parts = {name: of[f"{column}_fraction"].mean for name, column in _HELD_BY.items()}
    seen = {name: said for name, part in parts.items() if (said := units.share(part)) != units.share(0.0)}
    added = ", ".join(f"{name}{' adds' if i == 0 else ''} {said}" for i, (name, said) in enumerate(seen.items()))
    return f"not training {units.share(all_)} ({added})" if added else ""


def evaluation_line(of: Mapping[str, Estimate], scenario: Scenario) -> str:
    """ "every 20 steps, 512 samples on the rollout instances: 35.0 s each, adds 1.75 s a step"; empty without any."""
    e = scenario.evaluation
    if e.every_steps is None or EVALUATION_S.name not in of or not math.isfinite(of["step_s"].mean):
        return ""
    held = of["evaluation_fraction"].mean * of["step_s"].mean
    adds = f"holds the trainer {units.seconds(held)} a step" if held else "beside training"
    what = "as measured" if e.seconds is not None else f"{units.plural(e.samples, 'sample')} {_EVALUATED_AT[e.at]}"
    return f"every {_steps(e.every_steps)}, {what}: {units.seconds(of[EVALUATION_S.name].mean)} each, {adds}"


def checkpoint_line(of: Mapping[str, Estimate], scenario: Scenario) -> str:
    """ "every 50 steps: holds the trainer 0.6 s a step, 30.0 s each"; empty without any that take time."""
    saving = scenario.trainer.checkpoint
    held = of["checkpoint_fraction"].mean * of["step_s"].mean
    if saving.every_steps is None or not saving.costs or not math.isfinite(held):
        return ""
    how = ", written in the background" if saving.background else ""
    each = units.seconds(held * saving.every_steps)
    return f"every {_steps(saving.every_steps)}{how}: {each} each, holds the trainer {units.seconds(held)} a step"


def _steps(every: int) -> str:
    return "step" if every == 1 else f"{every:,} steps"


def steps_old(age: float) -> int:
    """Whole optimizer steps that samples are at most old, by a mean over runs."""
    return math.ceil(age - _NOISE)


def regime_line(estimates: Mapping[str, Estimate], age: float | None = None) -> str:
    """How old samples are when they are trained, in optimizer steps, and what that asks of the algorithm.

    The importance ratio of a policy to that of K steps before drifts from 1: up to about 3 steps a clipped objective
    holds it, beyond about 5 the gradient is one of another policy. age: that of 99 % of the samples, where more runs
    than those of the estimates say it. Empty for a fleet that gets stuck.
    """
    if not math.isfinite(estimates["staleness_steps.p99"].mean):
        return ""
    old = steps_old(estimates["staleness_steps.p99"].mean if age is None else age)
    if old == 0:
        whole = estimates["staleness_steps.max"].mean == 0
        return "on-policy" if whole else "99 % of the trained samples are on-policy"
    asks = next(says for most, says in _REGIMES if old <= most)
    return f"99 % of the trained samples are at most {units.plural(old, 'step')} old: {asks}"


def losses_line(estimates: Mapping[str, Estimate], scenario: Scenario) -> str | None:
    """What is generated for nothing, or at the cost of something: None where it is next to nothing.

    Samples that are lost, of all and of the longest tenth, with what loses most of them; else tokens that are made
    beside those that are trained; responses that the cap cuts; preempted requests.
    """
    every, longest, made = (
        estimates[name].mean for name in ("samples_lost.all", "samples_lost.longest_tenth", "tokens_per_trained_token")
    )
    if not math.isfinite(made):  # of a fleet that gets stuck
        return None
    said, at_stations = [], list(_lost_at_stations(estimates, scenario))
    if max(every, longest) >= _LOST:
        why = _WHY[max(("waste.stale", "waste.aborted"), key=lambda name: estimates[name].mean)]
        of_all, of_longest = (units.share(x, 0 if x >= _LOST else 1) for x in (every, longest))
        known = any(name in text for text in at_stations for name, policy in LOST.items() if not policy.told)
        why = "" if known else f": {why}"
        said.append(f"{of_all} of all samples, {of_longest} of the longest tenth{why}")
    most = max(_WHY, key=lambda name: estimates[name].mean)
    growth = estimates["queue_growth"].mean / scenario.trainer.batch_samples
    if made >= _MADE and max(estimates[most].mean, growth) >= _LOST:
        # what is not lost waits for the trainer at the end
        cause = _WHY[most] if estimates[most].mean >= growth else "still in the queue"
        said.append(f"{made:.2g} tokens made per trained token" + ("" if said else f", most of the others {cause}"))
    of_turns, of_samples = cut_shares(scenario.workload)
    cuts = {
        "responses cut at the cap": share_at_cap(response_law(scenario.workload)),
        "turns cut at their cap": of_turns,
        "trajectories ended by theirs" if of_turns >= _CUT else "trajectories ended by their cap": of_samples,
    }
    said += [f"{units.share(cut)} of the {what}" for what, cut in cuts.items() if cut >= _CUT]
    said += at_stations
    preempted = estimates["preemptions"].mean / scenario.trainer.batch_samples
    if preempted >= _LOST:
        said.append(f"{preempted:.2g} preemptions a sample")
    return "; ".join(said) or None


def _lost_at_stations(estimates: Mapping[str, Estimate], scenario: Scenario) -> Iterator[str]:
    """ "dropped at their tools: 2.0 % of the calls timed out, 0.5 % failed", "3.1 % of the rollouts truncated at their
    tools: ...", "2 % of the rollouts masked after 600 s", for each station and time limit that loses a notable share
    of them; the word is that of the policy. Those that are dropped are among the samples that are lost."""
    for name in ("tools", "reward", *TIME_LIMITS):
        of = {key: estimates[f"stations.{name}.{key}"].mean for key in _LOSES if f"stations.{name}.{key}" in estimates}
        lost, policy = of.get("lost", 0.0), getattr(scenario.stations, name).lost
        # More end than a step trains; one that is truncated has ended, another try and what is dropped end beside.
        ended = estimates["completions_per_s"].mean * estimates["step_s"].mean
        share = min(1.0, lost / max(_NOISE, ended + (0.0 if LOST[policy].ends else lost)))
        share = of.get("late", 0.0) if policy == "waited" else share
        if share < _LOST:
            continue
        word = LOST[policy].told or policy
        if name in TIME_LIMITS:
            whose = "turns" if policy == "waited" and name == "turn" else "rollouts"
            over, of_what = getattr(scenario.stations, name).timeout_s, " of a turn" if name == "turn" else ""
            yield f"{units.share(share)} of the {whose} {word} after {units.seconds(over)}{of_what}"
            continue
        why = {"timed out": of["late"], "failed": of["failed"]}
        parts = [f"{units.share(x)} {cause}" for cause, x in why.items() if x >= _SHOWN]
        parts[0] = parts[0].replace(" % ", " % of the calls ", 1)
        who = f"{units.share(share)} of the rollouts " if LOST[policy].told and policy != "waited" else ""
        yield f"{who}{word} at their {name}: {', '.join(parts)}"


def pace(of: Mapping[str, Estimate]) -> str:
    """Of a fleet and its trainer: "17.1 completions per second, 2,880 iterations (optimizer steps) a day"."""
    completed, steps = (of[name].mean for name in ("completions_per_s", "iterations_per_day"))
    return f"{units.number(completed)} completions per second, {units.number(steps)} iterations (optimizer steps) a day"


def surplus_line(enough: int | None) -> str | None:
    """Of a fleet that makes more than its trainer takes, which no queue and no budget of age mends. enough: the count
    that does; None where the fleet is not too large."""
    return None if enough is None else f"more than the trainer takes, for good: reduce engines to {enough:,}"


def assumed_line(scenario: Scenario, assumed: Iterable[Assumption], in_doubt: Sequence[str]) -> str:
    """The assumptions that move the answer most, as one would type them, after those that a file's configuration
    leaves unsaid; empty without one.

    in_doubt: paths of inputs whose values are not certain, the dearest first.
    """
    found = {a.path: a for a in assumed}
    unsaid = [path for path in _UNSAID if path in scenario.assumed and path in found]
    order = dict.fromkeys((*_JOB, *_POLICY, *in_doubt, *_REST))
    others = [path for path in order if path in found and path not in unsaid]
    shown = [found[path] for path in (*unsaid, *others[:_MOST_ASSUMED])]
    return ", ".join(_typed(scenario, a) for a in shown)


def _typed(scenario: Scenario, assumption: Assumption) -> str:
    path, flag = assumption.path, assumption.flag.split(" --")[0]
    value: Any = _TYPED[path](scenario) if path in _TYPED else assumption.value
    value = value.get("value", value) if isinstance(value, dict) else value  # of a law
    written = units.number(value).replace(",", "") if isinstance(value, float) else str(value)
    return f"--set {path}={written}" if flag.startswith("--set") else f"{flag} {written}"


def swing_line(ranges: MetricRanges) -> str | None:
    """The input that moves a simulated step most, where one does, and what settles it."""
    first = ranges.parts[0]
    low, high = map(units.seconds, first.step_s)
    return None if low == high else f"{first.what} ({first.measure}): a step may take {low} to {high}"


def being_wrong(loss: float, of: str, widest: str | None = None) -> str:
    """What it costs on average to stay with an answer, and which input widens its range. of: what the loss is of."""
    more = f"; what widens the range most: {widest}" if widest else ""
    costs = "under 1 %" if loss < 0.005 else units.share(loss, 0)
    return f"being wrong costs {costs} of {of} on average{more}"


def measure_line(part: InputPart[Any]) -> str:
    """What to measure first, with what, and what that is worth."""
    worth = f", worth {units.money(part.usd_per_h)} an hour" if part.usd_per_h >= CENT else ""
    return f"{part.what} ({part.measure}){worth}"
