"""Random jobs, and each thing that may bind in them moved by about a fifth: what a verdict is held against."""

from __future__ import annotations

import math
import random
from collections.abc import Iterator
from typing import Any

import numpy as np

from fleetsim.config import Scenario, default_scenario, with_changes
from fleetsim.config.law_numbers import sizes_of
from fleetsim.engine.transport import sync_times
from fleetsim.errors import InputError, StuckError
from fleetsim.policies.admission import LAWS
from fleetsim.policies.samples import AGE_ACTIONS, IN_FLIGHT
from fleetsim.sim.binding import MORE, longest_of_a_batch
from fleetsim.sim.metrics import metrics_of
from fleetsim.sim.records import Records
from fleetsim.sim.run import simulate
from fleetsim.sim.stations import limits_of

# The window, which most jobs use, is drawn twice.
DRAWN = [name for name in LAWS for _ in range(2 if name == "version_window" else 1)]
Runs = list[Records]


def random_job(seed: int) -> Scenario:
    """A small job; its parts are drawn so that each thing binds now and then. Raises InputError for what cannot be."""
    r = random.Random(seed)
    law, group = r.choice(DRAWN), r.choice([1, 4, 8, 16])
    batch, instances, mean = group * r.choice([4, 8, 16]), r.choice([2, 4, 6, 10, 16]), r.choice([200, 600, 1500])
    changes: dict[str, Any] = {
        "workload.group_size": group,
        "workload.prompt_tokens": r.choice([64, 512, 2048]),
        "workload.output_tokens": {
            "kind": "lognormal",
            "mean": mean,
            "cv": r.choice([0.2, 0.6, 1.2]),
            "max": mean * r.choice([3, 6]),
        },
        "workload.group_correlation": r.choice([0.0, 0.5]),
        "workload.reward.latency_s": mean * r.choice([0.0, 0.0, 0.0, 0.01]),
        "engine.model": r.choice(["Qwen/Qwen2.5-7B", "Qwen/Qwen3-8B", "Qwen/Qwen3-30B-A3B"]),
        "engine.max_num_seqs": r.choice([None, None, 8, 32]),
        "fleet.group_placement": r.choice(["together", "spread"]),
        "fleet.routing": r.choice(["round_robin", "least_loaded"]),
        "fleet.instances": instances,
        "fleet.speed_factors": r.choice([[], [], [], [1.5]]),
        "trainer.batch_samples": batch,
        "trainer.fixed_s": mean * r.choice([0.002, 0.006, 0.012, 0.03]),
        "sync.pause_s": mean * r.choice([0.0, 0.0005, 0.004]),
        "sync.publish_s": mean * r.choice([0.0, 0.0, 0.003]),
        "sync.trainer_block_s": mean * r.choice([0.0, 0.0005, 0.004]),
        "sync.in_flight": r.choice(["keep", "keep", "abort_resume", "drain", "finish_on_old_weights"]),
        "sync.every_steps": r.choice([1, 1, 1, 2]),
        "admission.law": law,
        "admission.max_staleness": r.choice([0.0, 0.5, 1.0, 3.0]),
        "admission.batches_ahead": r.choice([1, 2]),
        "admission.staleness_threshold": r.choice([0.1, 0.5, 1.0]),
        "admission.async_ratio": r.choice([0.0, 0.5, 1.0]),
        "admission.pool_samples": batch * r.choice([1, 2]),
        "admission.adaptive.start_samples": batch,
        "admission.adaptive.most_samples": batch * r.choice([1, 4]),
        "buffer.capacity_samples": r.choice([None, None, None, None, batch, 2 * batch]),
        "buffer.batch_rule": "exact_target_step"
        if LAWS[law].reserves_steps
        else r.choice(["fifo", "oldest_version_first"]),
        "run.steps": 26,
        "run.warmup_steps": 6,
    }
    which = r.random()
    if which < 0.3:
        changes["fleet.max_in_flight_samples"] = max(group, int(batch * r.choice([0.25, 0.5, 1.0, 2.0])))
    elif which < 0.45:
        changes["fleet.max_in_flight_samples_per_instance"] = r.choice([4, 16, 64])
    if LAWS[law].waits_for_trainer and r.random() < 0.3:
        changes |= {"fleet.placement": "colocated", "fleet.switch_s": mean * 0.001}
    return with_changes(default_scenario(), changes)


def job_of_steps(seed: int) -> Scenario:
    """A random job whose groups are reserved for their steps, with a filter whose refills take their steps."""
    reserved = {"admission.law": "target_step", "buffer.batch_rule": "exact_target_step"}
    share = random.Random(50_000 + seed).choice([0.3, 0.5, 0.7])
    return with_changes(random_job(seed), {**reserved, "workload.filter.zero_variance_share": share})


def job_of_agents(seed: int) -> Scenario:
    """A random job whose samples call tools: of a law alone, or of few workers, with starts, or at a rate."""
    s, r = random_job(seed), random.Random(70_000 + seed)
    mean, batch, turns = s.workload.output_tokens.mean, s.trainer.batch_samples, r.choice([2, 4, 8])  # type: ignore[union-attr]
    call_s, of = mean * r.choice([0.001, 0.005, 0.01]), r.random()
    changes: dict[str, Any] = {
        "workload.turns.count": turns,
        "workload.turns.tool_latency_s": r.choice([call_s, {"kind": "lognormal", "mean": call_s, "cv": 1.0}]),
        "workload.turns.tool_tokens": 100,
        "run.steps": 40,
        "run.warmup_steps": 10,
    }
    if of < 0.6:
        changes["stations.tools.workers"] = max(1, int(batch * r.choice([0.05, 0.1, 0.25, 0.5, 1.0])))
    if of < 0.2:
        changes["stations.tools.start_s"] = call_s * r.choice([0.5, 2.0])
    if of > 0.8:
        changes["stations.tools.calls_per_s"] = batch * turns / (mean * r.choice([0.01, 0.02, 0.05]))
    return with_changes(s, changes)


def job_of_groups(seed: int) -> Scenario:
    """A random job of groups, under a cap that counts them: of the fleet, or for each instance."""
    s, r = random_job(seed), random.Random(10_000 + seed)
    group = s.workload.group_size
    caps: dict[str, Any] = {"fleet.max_in_flight_samples": None, "fleet.max_in_flight_samples_per_instance": None}
    if r.random() < 0.5:
        caps["fleet.max_in_flight_samples"] = (
            max(1, s.trainer.batch_samples * r.choice([1, 2, 4, 8]) // 4 // group) * group
        )
    else:
        caps["fleet.max_in_flight_samples_per_instance"] = group * r.choice([1, 2, 4])
    return with_changes(s, {"fleet.in_flight_unit": "groups", **caps})


def job_of_limits(seed: int) -> Scenario:
    """A random job whose rollouts have a time limit, which many or few of them do not keep."""
    s, r = (random_job if seed % 3 == 0 else job_of_agents)(80_000 + seed), random.Random(80_000 + seed)
    run = simulate(s)
    lived = (run.samples["finish_s"] - run.samples["sent_s"])[run.samples["finish_s"] > 0]
    limit_s = float(np.quantile(lived, r.choice([0.3, 0.5, 0.8, 0.9, 0.95])))
    lost = r.choice(["dropped", "truncated", "truncated", "masked", "retried", "withheld"])
    return with_changes(s, {"stations.episode": {"timeout_s": limit_s, "lost": lost}})


def whole_step_s(run: Records) -> float:
    """Seconds of a step for each batch of whole rollouts that it trains."""
    metrics = metrics_of(run)
    return float(metrics["step_s"]) / max(0.01, metrics.get("whole_share", 1.0))


def nudges(s: Scenario, longest: float) -> Iterator[tuple[str, dict[str, Any], float]]:
    """(what is moved, the changes, by which factor) for everything that the job has.

    longest: tokens of the longest response of a batch. A count that has no fifth is moved by one, and the factor says
    so.
    """
    t, a, f, group = s.trainer, s.admission, s.fleet, s.workload.group_size
    # An instance takes whole groups that stay together, and an empty one any group.
    place = group if f.in_flight_unit == "groups" or f.group_placement == "together" else 1
    each = f.max_in_flight_samples_per_instance
    sent = group if f.in_flight_unit == "groups" else math.ceil(group * s.buffer.group_oversampling - 1e-9)
    slower = [p.model_copy(update={"fixed_s": p.fixed_s / MORE, "per_token_s": p.per_token_s / MORE}) for p in t.phases]
    yield (
        "trainer",
        {
            "trainer.fixed_s": t.fixed_s / MORE,
            "trainer.per_token_s": t.per_token_s / MORE,
            "trainer.phases": [p.model_dump() for p in slower],
            "fleet.switch_s": f.switch_s / MORE,
        },
        MORE,
    )
    times = sync_times(s)
    yield (
        "sync",
        {f"sync.{name}": getattr(times, name) / MORE for name in ("pause_s", "publish_s", "trainer_block_s")},
        MORE,
    )
    if IN_FLIGHT[s.sync.in_flight].recomputes and s.sync.trigger == "steps" and not LAWS[a.law].counts_versions:
        yield "sync", {"sync.every_steps": 2 * s.sync.every_steps}, 2.0
    lengths = {**s.workload.output_tokens.model_dump(exclude_none=True), "max": max(16, round(longest / MORE))}
    if lengths["kind"] != "constant":
        yield "longest_response", {"workload.output_tokens": lengths}, MORE
    yield from ((name, changes, MORE) for name, changes in _of_stations(s))
    if s.evaluation.seconds is not None:
        yield "evaluation", {"evaluation.seconds": s.evaluation.seconds / MORE}, MORE
    if t.checkpoint.stall_s:
        yield "checkpoint", {"trainer.checkpoint.stall_s": t.checkpoint.stall_s / MORE}, MORE
    for name, (limit_s, _) in limits_of(s).items():
        yield "time_limit", {f"stations.{name}.timeout_s": limit_s * MORE}, MORE
    judge = s.stations.judge
    counts: list[tuple[str, str, int, int | None]] = [
        ("environment", "stations.tools.workers", 1, s.stations.tools.workers),
        ("judge", "stations.judge.instances", 1, judge.instances if judge is not None and judge.has_engines else None),
        ("rollout", "fleet.instances", 1, f.instances),
        ("in_flight_cap", "fleet.max_in_flight_samples", sent, f.max_in_flight_samples),
        ("in_flight_cap", "fleet.max_in_flight_samples_per_instance", place, each and max(1, each // place) * place),
        ("buffer", "buffer.capacity_samples", group, s.buffer.capacity_samples),
    ]
    law = LAWS[a.law]
    if law.cap is not None:
        counts.append(("in_flight_cap", law.cap.setting, group, law.cap.samples(a)))
    if law.budget == "batches":
        counts.append(("staleness_window", f"{law.parameter}", 1, a.batches_ahead))
    for name, path, unit, now in counts:
        if now is not None:
            more = max(now + unit, round(now * MORE / unit) * unit)
            yield name, {path: more}, more / now
    if law.budget != "batches" and law.ahead is not None and law.parameter is not None:
        now_ahead = law.number(a)
        assert now_ahead is not None
        now_groups = law.groups_ahead(a, sizes_of(s))
        assert now_groups is not None
        factor, whole = max(MORE, 1.0 + 1.0 / now_groups), (2.0 + now_ahead) / (1.0 + now_ahead)
        started = math.floor((factor - 1.0) * now_groups + 1e-9)  # whole groups, by a law that rounds up as well
        wider = now_ahead + started / now_groups * (1.0 + now_ahead)
        # an age is a whole number, and so are steps that groups are reserved for
        aged = {"admission.max_age": a.max_age + 1.0} if AGE_ACTIONS[a.age_action].limits_age and a.max_age else {}
        yield "staleness_window", {law.parameter: wider, **aged, **_queue(s, factor)}, factor
        if law.reserves_steps:
            yield "staleness_window", {law.parameter: now_ahead + 1.0, **aged, **_queue(s, whole)}, whole


def _queue(s: Scenario, factor: float) -> dict[str, int]:
    """A queue that holds what a larger window lets start; else it fills with groups that no step wants yet."""
    capacity = s.buffer.capacity_samples
    return {} if capacity is None else {"buffer.capacity_samples": math.ceil(factor * capacity)}


def _of_stations(s: Scenario) -> Iterator[tuple[str, dict[str, Any]]]:
    """What is moved at tools, rewards and a judge, by a fifth; workers and engines are counts (`nudges`)."""
    tools, judge = s.stations.tools, s.stations.judge
    faster: dict[str, Any] = {}
    if getattr(s.workload.reward.latency_s, "value", 1.0):
        faster["workload.reward.latency_s"] = _scaled(s.workload.reward.latency_s)
    if s.workload.turns.several:
        faster["workload.turns.tool_latency_s"] = _scaled(s.workload.turns.tool_latency_s)
        faster["stations.tools.start_s"] = tools.start_s / MORE
    if faster:
        yield "environment", faster
    for name in ("calls_per_s", "timeout_s"):
        if (now := getattr(tools, name)) is not None:
            yield "environment", {f"stations.tools.{name}": now * MORE}
    if judge is not None:
        yield "judge", {"stations.judge.output_tokens": _scaled(judge.output_tokens)}
        for name in ("tok_s", "requests_per_s"):
            if (now := getattr(judge.api, name, None)) is not None:
                yield "judge", {f"stations.judge.api.{name}": now * MORE}


def _scaled(law: Any) -> dict[str, Any]:
    """A law whose values are less by a sixth; tokens are whole ones."""
    told: dict[str, Any] = law.model_dump(exclude_none=True)
    less = {name: x / MORE for name, x in told.items() if name in ("value", "mean", "max", "min")}
    return told | {name: max(1, round(x)) if isinstance(told[name], int) else x for name, x in less.items()}


def measured_gains(s: Scenario, replications: int) -> tuple[list[str], dict[str, float]]:
    """What each run says binds, and the share of the step that a fifth of each thing really saves, under common draws;
    where rollouts are lost, of a step of whole ones.

    Raises InputError and StuckError for a job that does not run as it is; a change that blocks the run saves nothing.
    """
    runs = [simulate(s, replication=r) for r in range(replications)]
    metrics = [metrics_of(run) for run in runs]
    base = np.array([whole_step_s(run) for run in runs])
    longest = float(np.mean([longest_of_a_batch(run) for run in runs]))
    gains: dict[str, float] = {}
    for name, changes, factor in nudges(s, longest):
        try:
            moved = with_changes(s, changes)
            steps = np.array([whole_step_s(simulate(moved, replication=r)) for r in range(replications)])
        except (InputError, StuckError):
            continue
        saved = float(np.mean(1.0 - (steps / base) ** (math.log(MORE) / math.log(factor))))
        gains[name] = max(saved, gains.get(name, -math.inf))
    return [str(m["binding"]) for m in metrics], gains
