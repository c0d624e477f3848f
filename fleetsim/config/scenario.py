"""The scenario: everything that a simulated RL post-training job is made of; ages, whole engines, unread settings."""

from __future__ import annotations

import math
from collections.abc import Callable, Collection, Iterable, Mapping
from typing import Any

from pydantic import ValidationInfo, model_validator
from pydantic_core import PydanticCustomError

from fleetsim.config.base import unsaid
from fleetsim.config.engine import EngineConfig
from fleetsim.config.judges import JUDGES
from fleetsim.config.law_numbers import law_of
from fleetsim.config.makes import without_the_absent
from fleetsim.config.pools import FleetConfig
from fleetsim.config.rules import broken_rules
from fleetsim.config.sections import Sections, is_count
from fleetsim.config.spot_trace import absences
from fleetsim.config.stations import StationConfig
from fleetsim.config.tree import is_at
from fleetsim.config.workload import RewardConfig
from fleetsim.errors import Problem
from fleetsim.policies.admission import readers
from fleetsim.policies.law import Order
from fleetsim.policies.samples import AGE_ACTIONS, BATCH_RULES, IN_FLIGHT, listed, names_of


class Scenario(Sections):
    """A scenario file. Every section and key may be left out; the defaults are a 7B model on 8 + 8 H100."""

    @model_validator(mode="after")
    def _fields_fit_together(self, info: ValidationInfo) -> Scenario:
        """Rules that join fields hold for every Scenario; the loader runs them itself, beside the other errors."""
        by_the_loader = (info.context or {}).get("rules_later", False)
        problems = [] if by_the_loader else broken_rules(self)
        if not (by_the_loader or problems) and without_the_absent(self) is not None:
            rule = "a pool stands in the first one's place in what is loaded only"
            problems = [Problem("fleet.instances", 0, rule, "give load the same as a mapping")]
        if problems:
            raise PydanticCustomError(
                "rules", "{text}", {"text": "; ".join(map(str, problems)), "problems": tuple(problems)}
            )
        return self


# --- The oldest group that a scenario lets into training, where its own rules see to that.


def age_bound(scenario: Scenario) -> float | None:
    """Weight versions that no trained group is ever older than when its batch is taken; None = no rule bounds it.

    Age is the versions triggered by then less the group's reference version (`admission.age_reference`; submission
    where nothing refers to age). The bound is `max_age` of an age action that acts on it, or what the law implies
    (`Law.oldest`).

    A law alone bounds how far generation runs ahead, not how long one response takes: a window whose stragglers may
    be overtaken (AReaL, SkyRL), a per-sync-window cap (verl) and a pool bound no age.
    """
    a = scenario.admission
    action = AGE_ACTIONS[a.age_action]
    if action.limits_age and a.max_age is not None:
        # At most (max_age + 1) versions' worth of groups may be out, so that waiting for them is soon enough.
        out = law_of(scenario).units_out(a)
        return a.max_age if not action.waits or (out is not None and out <= a.max_age + 1) else None
    return law_of(scenario).oldest(a, _order(scenario))


def _order(scenario: Scenario) -> Order:
    b, sync = scenario.buffer, scenario.sync
    rule = BATCH_RULES[b.batch_rule]
    return Order(
        one_by_one=sync.trigger == "steps" and sync.every_steps == 1 and scenario.trainer.minibatches == 1,
        exact=rule.reserved,
        waits_for_oldest=rule.order == "version" and b.wait_for_oldest,
        in_order=rule.in_order,
        carries_over=rule.rounds and b.leftover == "carry_over",
        oversampled=b.oversampling > 1,
        drains=IN_FLIGHT[sync.in_flight].drains and sync.scope == "global",
    )


# --- Counts of instances that are no whole engines of `engine.dp` ranks are rounded up: ranks come and go together.


def whole_engines(raw: Mapping[str, Any]) -> dict[str, Any]:
    """A raw scenario with its fleet, and the fleets of its resize events, rounded up to whole engines.

    What is no count stays: the validation tells about it.
    """
    result = dict(raw)
    engine, fleet, run = (raw.get(name) for name in ("engine", "fleet", "run"))
    dp = engine.get("dp", unsaid(EngineConfig).dp) if isinstance(engine, Mapping) else unsaid(EngineConfig).dp
    if not is_count(dp) or dp == 1:
        return result

    def whole(section: Any, usual: Any) -> Any:
        asked = section.get("instances", usual) if isinstance(section, Mapping) else None
        return {**section, "instances": -(-asked // dp) * dp} if is_count(asked) and asked % dp else section

    rounded = whole({} if fleet is None else fleet, unsaid(FleetConfig).instances)
    result |= {} if rounded == {} else {"fleet": rounded}
    if isinstance(run, Mapping) and isinstance(run.get("events"), (list, tuple)):
        result["run"] = {**run, "events": [whole(event, None) for event in run["events"]]}
    return result


def rounded_note(asked: Scenario, scenario: Scenario, given: Collection[str]) -> tuple[str, ...]:
    """What was rounded up of what somebody wrote. asked: the same scenario with engines of one rank."""
    counts = [("fleet.instances", asked.fleet.instances, scenario.fleet.instances)]
    if "fleet.instances" not in given:
        counts = []
    for i, (before, after) in enumerate(zip(asked.run.events, scenario.run.events, strict=True)):
        if before.instances is not None and after.instances is not None:
            counts.append((f"run.events[{i}].instances", before.instances, after.instances))
    words = [f"{name} {before} becomes {after}" for name, before, after in counts if before != after]
    if not words:
        return ()
    return (f"{', '.join(words)}: the {scenario.engine.dp} ranks of an engine (engine.dp) come and go together",)


# --- Settings that a scenario's other policies never read: told where somebody gives them, not ignored in silence.


# Path -> (whether the scenario reads it, what would).
_READERS: dict[str, tuple[Callable[[Scenario], bool], str]] = {
    **{
        path: (lambda s, laws=laws: s.admission.law in laws, f"admission.law {listed(laws)}")
        for path, laws in readers().items()
    },
    "engine.gpu_sheet": (
        lambda s: s.engine.gpu_sheet is None or s.engine.gpu == s.engine.gpu_sheet.name,
        "an engine.gpu of the sheet's name",
    ),
    "engine.entry_point": (
        lambda s: s.engine.kind == "roofline" and s.engine.name == "vllm",
        "a vLLM of engine.kind roofline",
    ),
    "engine.enforce_eager": (lambda s: s.engine.kind == "roofline", "an engine of kind roofline"),
    "engine.overlap": (
        lambda s: s.engine.kind == "roofline" and s.engine.ranks > 1,
        "an engine of kind roofline whose ranks share experts (engine.dp, or prefill_dp or decode_dp)",
    ),
    "admission.max_age": (
        lambda s: AGE_ACTIONS[s.admission.age_action].limits_age,
        "an admission.age_action other than train_anyway",
    ),
    "sync.every_steps": (lambda s: s.sync.trigger == "steps", "sync.trigger steps"),
    "sync.at_once": (lambda s: s.sync.scope == "rolling", "sync.scope rolling"),
    "fleet.lending": (lambda s: s.fleet.placement == "colocated_lending", "fleet.placement colocated_lending"),
    "fleet.switch_s": (lambda s: s.fleet.placement != "disaggregated", "a colocated or lending fleet.placement"),
    "buffer.leftover": (
        lambda s: BATCH_RULES[s.buffer.batch_rule].rounds,
        f"buffer.batch_rule {names_of(lambda rule: rule.rounds)}",
    ),
    "buffer.oversampling": (lambda s: s.buffer.batch_rule == "first_finished", "buffer.batch_rule first_finished"),
    "buffer.wait_for_oldest": (
        lambda s: s.buffer.batch_rule == "oldest_version_first",
        "buffer.batch_rule oldest_version_first",
    ),
    "evaluation.instances": (
        lambda s: s.evaluation.at != "rollout" and s.evaluation.seconds is None,
        "an evaluation.at own or trainer, without evaluation.seconds,",
    ),
    "trainer.checkpoint.background": (
        lambda s: s.trainer.checkpoint.write_bytes_s is not None,
        "a trainer.checkpoint.write_bytes_s",
    ),
    "buffer.on_full": (lambda s: s.buffer.capacity_samples is not None, "a buffer.capacity_samples"),
    **{
        f"workload.turns.{name}": (lambda s: s.workload.turns.several, "a workload.turns.count above 1")
        for name in ("tool_latency_s", "tool_tokens")
    },
    "stations.tools": (
        lambda s: s.workload.turns.several or s.stations.reward.at == "tools",
        "a workload.turns.count above 1, or stations.reward.at tools,",
    ),
    **{
        f"stations.reward.{name}": (lambda s: s.stations.reward.at == "reward", "stations.reward.at reward")
        for name in StationConfig.model_fields
    },
    **{
        f"stations.{name}.lost": (
            lambda s, name=name: getattr(s.stations, name).timeout_s is not None,
            f"a stations.{name}.timeout_s",
        )
        for name in ("turn", "episode")
    },
    "stations.reward.workers": (
        lambda s: s.stations.reward.at == "reward" and s.workload.reward != unsaid(RewardConfig),
        "stations.reward.at reward, with a workload.reward.latency_s,",
    ),
    **{
        f"stations.{judge}.{name}": (
            lambda s, judge=judge: getattr(s.stations, judge) is None or getattr(s.stations, judge).has_engines,
            f"a stations.{judge} with engines of its own",
        )
        for judge in JUDGES
        for name in ("engine", "instances", "price_usd_per_gpu_h")
    },
}


def reader_of(scenario: Scenario, path: str) -> str:
    """What would read a path that nothing in this scenario reads; "" where something does."""
    for place, (reads, reader) in _READERS.items():
        if is_at(path, place) and not reads(scenario):
            return reader
    return ""


def unread_notes(scenario: Scenario, sets: Iterable[str], flags: Mapping[str, str] | None = None) -> tuple[str, ...]:
    """A sentence for each path among the `--set` texts that nothing in this scenario reads. flags: other paths, and
    what was typed for them."""
    typed = {path: path for path in (text.partition("=")[0].strip() for text in sets)} | dict(flags or {})
    found = {name: reader_of(scenario, path) for path, name in typed.items()}
    return tuple(f"{name} changes nothing here: only {reader} reads it" for name, reader in found.items() if reader)


# --- How many optimizer steps a run has: those that somebody said, else as many as its mean needs.

# A run that nobody gave a length ends when it is steady (`sim/run.py`), or here: after so many steps, or samples and
# turns of samples, but never before it has a beginning and something behind it.
_FEW, _MOST, _MOST_TURNS = 32, 400, 400_000
# Where so many steps are more work than this, it is fewer: these, and so many times what may be ahead; where even these
# are more, half of these.
_MANY, _LEAST, _DEPTHS = 1_600_000, 16, 3
# A step is large from so much work on, in turns of samples; a sample, or what a judge is asked, is as much as so many
# turns, and a call that is made again as such a part of one.
_LARGE, _TURNS_OF_A_SAMPLE, _TURNS_OF_A_TRY = 24_000, 5, 0.2
# With machines that are reclaimed hours apart, so many times as many.
_SPOT, _RECLAIMS = 5, 8
# For a smaller share of the time than this instances may be away without a run that sees it.
_SELDOM = 0.01
# Where something happens on the way, no step stands for another: so many, and so many after the last event.
_EVENTFUL, _AFTER = 30, 10


def settles(scenario: Sections) -> bool:
    """Whether a run of the scenario ends when it is steady: nobody said its steps, and nothing changes on the way."""
    run = scenario.run
    return run.steps is None and not run.events and not scenario.workload.length_drift_per_step


def has_spot(scenario: Sections) -> bool:
    """Whether instances are on spot machines."""
    return scenario.fleet.all_on_spot > 0


def reclaims_s(scenario: Sections) -> float:
    """Seconds in which a run sees several reclaims, by the law or the trace, and is as long as several absences; 0
    where nothing is reclaimed."""
    spot, count = scenario.fleet.spot, scenario.fleet.all_on_spot
    away_s, apart_s = spot.mean_absence_s, 0.0
    if count and spot.trace is not None:
        away_s, apart_s = absences(spot.trace, count)
        if math.isinf(apart_s):
            return 0.0
    away_s += spot.notice_s + spot.start_s
    return _RECLAIMS * max(away_s, apart_s or (spot.mean_life_s + away_s) / count) if count else 0.0


def failures_s(scenario: Sections) -> float:
    """The same of failures of instances; 0 where they are seldom away."""
    failures, count = scenario.fleet.failures, scenario.fleet.instances
    if failures.mtbf_s is None or failures.restart_s < _SELDOM * failures.mtbf_s:
        return 0.0
    return _RECLAIMS * max(failures.restart_s, failures.mtbf_s / count)


def sent_samples(scenario: Sections) -> float:
    """Samples that engines make for a step, those that filters and oversampling throw away included."""
    kept = (1.0 - scenario.workload.filter.zero_variance_share) / scenario.buffer.oversampling
    return scenario.trainer.batch_samples / kept


def _asked(scenario: Sections) -> float:
    """What judges are asked for each sample."""
    stations, votes = scenario.stations, 0.0
    for judge in (stations.judge, stations.teacher, stations.reference):  # not `judges_of`: a search asks all the time
        if judge is not None:
            votes += judge.votes / (scenario.workload.group_size if judge.per == "group" else 1)
    return votes


def _turns(scenario: Sections) -> float:
    """Turns of a sample, with what judges are asked, and with tools and rewards that are called again."""
    about, at = scenario.workload.turns.about, scenario.stations
    again = (about - 1) * (at.tools.mean_tries - 1.0) + at.reward.mean_tries - 1.0
    return about + _TURNS_OF_A_TRY * again + _asked(scenario)


def work(scenario: Sections) -> float:
    """What simulating a step takes, in turns of samples."""
    return sent_samples(scenario) * (_TURNS_OF_A_SAMPLE * (1.0 + _asked(scenario)) + _turns(scenario))


def has_large_steps(scenario: Sections) -> bool:
    """Whether a step takes so long to simulate that a search makes fewer and shorter runs."""
    return work(scenario) * (_SPOT if has_spot(scenario) else 1) >= _LARGE


def steps_ahead(scenario: Sections) -> float:
    """Steps that generation may run ahead, by the largest number that any law reads."""
    a = scenario.admission
    return max(a.max_staleness, a.batches_ahead, a.async_ratio, a.staleness_threshold) * scenario.sync.every_steps


def most_steps(scenario: Sections) -> int:
    """Optimizer steps of a run, at most."""
    run = scenario.run
    if run.steps is not None:
        return run.steps
    if not settles(scenario):
        return max(_EVENTFUL, *(event.step + _AFTER for event in run.events), 1)
    warm, period = run.warmup_steps or 0, scenario.period_steps
    longer = _SPOT if has_spot(scenario) else 1
    small = 2 if _LEAST * work(scenario) > _MANY else 1
    few = max(
        _LEAST // small, math.ceil((_DEPTHS + 1 - small) * (2 + steps_ahead(scenario))), int(_MANY / work(scenario))
    )
    few = min(_FEW, few)
    most = max(few, min(longer * _MOST, int(longer * _MOST_TURNS / sent_samples(scenario) / _turns(scenario))))
    # whole periods, two at least: a mean over a part of one has too many evaluations or too few
    return warm + (most if period == 1 else period * max(2, most // period) + _FEW)
