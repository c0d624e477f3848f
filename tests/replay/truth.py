"""Simulated jobs with one known root cause each, written down before anything is judged; `docs/make_verdicts.py` shows
them, `test_truth.py` holds the verdict to them.

The cause is checked by simulation: its removal gives back more step time than any other single change of the same
price (`Job.removal` against OTHERS), under the same draws.
"""

from __future__ import annotations

import tempfile
from collections.abc import Mapping
from dataclasses import dataclass, field
from functools import cache
from pathlib import Path
from typing import Any

from fleetsim.config.load import load_scenario, with_changes
from fleetsim.config.scenario import Scenario
from fleetsim.export.openmetrics import write_openmetrics
from fleetsim.history.history import History
from fleetsim.history.openmetrics import read_openmetrics
from fleetsim.history.window import window
from fleetsim.replay.run import Replayed, replay
from fleetsim.sim.metrics import metrics_of
from fleetsim.sim.run import simulate
from tests.replay.preset_trainer import PRESET_TRAINER

SCRAPE_S, END_S, SEED = 15.0, 1.7e9, 5
STEPS, WARM, TRIED_STEPS = 80, 12, 40
# What a user of the job would give beside its history: nothing, or its scenario.
WAYS = ("bare", "given")


@dataclass(frozen=True)
class Job:
    """One job.

    start: shipped scenario; changes: on top of it. cause: the check that must bind, None = nothing is wrong. starves:
    who waits. removal: changes that take the cause away; None where there is none. next: what the next command must
    name. misses: way -> what the verdict says instead of `cause` in honest expectation, and why it cannot know better.
    told: way -> the change that is told in place of `removal`, as a change of the job, and why it is another one: the
    price is held against what that gives. replications: runs that say what a change gives; more where one run's luck is
    as large as the gain.
    """

    name: str
    start: str
    changes: Mapping[str, Any]
    cause: str | None
    starves: str
    removal: Mapping[str, Any] | None = None
    next: str = ""
    misses: Mapping[str, tuple[str | None, str]] = field(default_factory=dict)
    told: Mapping[str, tuple[Mapping[str, Any], str]] = field(default_factory=dict)
    replications: int = 1

    @property
    def scenario(self) -> Scenario:
        """The job as it runs: long enough for a window."""
        seconds = PRESET_TRAINER if self.start.startswith("presets/") else {}
        return with_changes(
            load_scenario(self.start), {"run.steps": STEPS, "run.seed": SEED, **seconds, **self.changes}
        )


def _lognormal(mean: float, cv: float, cap: float) -> dict[str, Any]:
    return {"kind": "lognormal", "mean": mean, "cv": cv, "max": cap}


ASYNC = "async-one-step"
WIDE = {"admission.law": "version_window", "admission.max_staleness": 4.0}
AHEAD = {"admission.law": "version_window", "admission.max_staleness": 4.0}
NO_SYNC = {"sync.pause_s": 0.0, "sync.trainer_block_s": 0.0, "sync.publish_s": 0.0}
NO_CAP = {"fleet.max_in_flight_samples": None, "fleet.max_in_flight_samples_per_instance": None}
SIBLINGS = {"engine.prefix_caching": True, "sync.reset_prefix_cache": False, "fleet.group_placement": "together"}
# Single changes that cost no GPU: the cause's removal has to beat them all.
OTHERS: Mapping[str, Mapping[str, Any]] = {
    "trainer": {"run.events": []},
    "sync": NO_SYNC,
    "stragglers": {"fleet.speed_factors": []},
    "prefix_cache": SIBLINGS,
    "in_flight_cap": NO_CAP,
    "max_num_seqs": {"engine.max_num_seqs": None},
    "preemptions": {"engine.kv_blocks": None},
}


def _wide(**changes: Any) -> dict[str, Any]:
    return {**WIDE, **{path.replace("__", "."): value for path, value in changes.items()}}


def _sync(pause: float, block: float) -> dict[str, float]:
    return {"sync__pause_s": pause, "sync__trainer_block_s": block}


def _slow(*factors: float, n: int = 4, batch: int = 512, routing: str = "round_robin") -> dict[str, Any]:
    return _wide(
        fleet__instances=n, trainer__batch_samples=batch, fleet__speed_factors=list(factors), fleet__routing=routing,
        trainer__fixed_s=16.0,
    )  # fmt: skip


CAPPED = {"fleet__instances": 8}
LONG_PROMPTS = {"fleet__instances": 8, "workload__prompt_tokens": 6000}
EVENT_AT = STEPS // 2
EVEN = {"fleet.speed_factors": []}
JOBS = (
    Job("healthy", ASYNC, WIDE, None, "neither"),
    Job("healthy, six instances", ASYNC, _wide(fleet__instances=6, trainer__fixed_s=16.0), None, "neither"),
    Job("healthy, SGLang", ASYNC, _wide(engine__name="sglang"), None, "neither"),
    Job(
        "healthy, rolling sync",
        ASYNC,
        _wide(sync__scope="rolling", sync__pause_s=2.0, fleet__instances=5),
        None,
        "neither",
    ),
    Job(
        "undersized by 2", ASYNC, _wide(fleet__instances=2), "rollout", "trainer", {"fleet.instances": 4}, "--recommend"
    ),
    Job(
        "undersized by 4, preempting",
        ASYNC,
        _wide(fleet__instances=1, engine__kv_blocks=30000),
        "rollout",
        "trainer",
        {"fleet.instances": 4},
        "--recommend",
    ),
    Job(
        "undersized, four instances",
        ASYNC,
        _wide(trainer__fixed_s=12.0, admission__max_staleness=6.0),
        "rollout",
        "trainer",
        {"fleet.instances": 8},
        "--recommend",
    ),
    Job(
        "filtered groups, undersized",
        ASYNC,
        _wide(workload__filter__zero_variance_share=0.4, admission__max_staleness=6.0),
        "rollout",
        "trainer",
        {"fleet.instances": 8},
        "--recommend",
    ),
    Job(
        "longest response",
        ASYNC,
        {"workload.output_tokens": _lognormal(1024.0, 2.5, 32768.0), "fleet.instances": 8},
        "rollout",
        "trainer",
        AHEAD,
        "admission.",
    ),
    Job(
        "barrier", ASYNC, {"admission.law": "barrier", "fleet.instances": 8}, "rollout", "trainer", AHEAD, "admission."
    ),
    Job(
        "staleness window of a half",
        ASYNC,
        {**WIDE, "admission.max_staleness": 0.5, "fleet.instances": 8},
        "rollout",
        "trainer",
        AHEAD,
        "admission.",
    ),
    Job(
        "in-flight cap, global",
        ASYNC,
        _wide(**CAPPED, fleet__max_in_flight_samples=192),
        "in_flight_cap",
        "trainer",
        NO_CAP,
        "in_flight",
    ),
    Job(
        "in-flight cap, per instance",
        ASYNC,
        _wide(**CAPPED, fleet__max_in_flight_samples_per_instance=32),
        "in_flight_cap",
        "trainer",
        NO_CAP,
        "in_flight",
    ),
    Job(
        "max_num_seqs of 48",
        ASYNC,
        _wide(engine__max_num_seqs=48),
        "max_num_seqs",
        "trainer",
        {"engine.max_num_seqs": None},
        "max_num_seqs",
    ),
    Job(
        "KV cache too small",
        ASYNC,
        _wide(engine__kv_blocks=6000),
        "preemptions",
        "trainer",
        {"engine.kv_blocks": None},
        "gpu-memory-utilization",  # a lower cap makes a step 10 % longer there
    ),
    Job(
        "prefix caching off, prompts of 6,000",
        ASYNC,
        _wide(**LONG_PROMPTS, engine__prefix_caching=False, trainer__fixed_s=28.0),
        "prefix_cache",
        "trainer",
        SIBLINGS,
        "prefix_caching",
    ),
    Job(
        "siblings spread, prompts of 6,000",
        ASYNC,
        _wide(**LONG_PROMPTS, fleet__group_placement="spread", trainer__fixed_s=25.0),
        "prefix_cache",
        "trainer",
        SIBLINGS,
        "group_placement",
    ),
    Job(
        "prefix caching off, prompts of 128",
        ASYNC,
        _wide(workload__prompt_tokens=128, engine__prefix_caching=False, fleet__instances=5),
        None,
        "neither",
    ),
    Job("straggler 1.4, round robin", ASYNC, _slow(1.0, 1.4), "stragglers", "trainer", EVEN, "drain"),
    Job("straggler 1.7, round robin", ASYNC, _slow(1.0, 1.7), "stragglers", "trainer", EVEN, "drain"),
    Job(
        "straggler 1.7, least loaded",
        ASYNC,
        _slow(1.0, 1.7, routing="least_loaded"),
        "stragglers",
        "trainer",
        EVEN,
        "drain",
    ),
    Job("straggler 1.7 of 12", ASYNC, _slow(1.0, 1.7, n=12, batch=1536), "stragglers", "trainer", EVEN, "drain"),
    Job("sync of 12 s, every step", ASYNC, _wide(**_sync(10.0, 12.0)), "sync", "neither", NO_SYNC, "sync."),
    Job(
        "sync of 45 s, every 4 steps",
        ASYNC,
        _wide(**_sync(45.0, 45.0), sync__every_steps=4, admission__max_staleness=1.0),
        "sync",
        "neither",
        NO_SYNC,
        "sync.",
    ),
    Job(
        "trainer 1.5 times slower from the middle on",
        ASYNC,
        _wide(**{"run.events": [{"step": STEPS, "trainer_slowdown": 1.5}], "run.steps": 2 * STEPS}),
        "trainer",
        "rollout",
        {"run.events": []},
        "bad node",
    ),
    Job(
        "three times too many instances",
        ASYNC,
        _wide(fleet__instances=12, trainer__fixed_s=60.0),
        "backlog",
        "rollout",
        {"fleet.instances": 6},
        "--recommend",
    ),
    Job(
        "ten times too many instances",
        ASYNC,
        _wide(fleet__instances=40),
        "backlog",
        "rollout",
        {"fleet.instances": 6},
        "--recommend",
    ),
    Job(
        "unbounded queue",
        ASYNC,
        {"admission.law": "unbounded", "fleet.max_in_flight_samples": 512, "fleet.instances": 6},
        "backlog",
        "rollout",
        {"fleet.instances": 5},
        "buffer",
    ),
    Job(
        "three of four samples too old",
        ASYNC,
        {
            "admission.law": "unbounded",
            "fleet.max_in_flight_samples": 512,
            "fleet.instances": 8,
            "admission.age_action": "drop_on_dequeue",
            "admission.max_age": 2,
            "trainer.fixed_s": 40.0,
            "buffer.capacity_samples": 1024,
            "buffer.on_full": "drop_oldest",
        },
        "backlog",
        "rollout",
        {"fleet.instances": 3},
        "--recommend",
    ),
    Job(
        "one of four instances lost",
        ASYNC,
        _wide(**{"run.events": [{"step": EVENT_AT, "lose_instance": 1}], "trainer.fixed_s": 14.0}),
        "rollout",
        "trainer",
        {"run.events": []},
        "--recommend",
    ),
    Job(
        "lengths drift up",
        ASYNC,
        _wide(workload__length_drift_per_step=0.01),
        "rollout",
        "trainer",
        {"workload.length_drift_per_step": 0.0},
        "--recommend",
    ),
    Job("colocated", "sync-colocated", {}, None, "neither"),
    Job(
        "lending, one instance of its own",
        ASYNC,
        _wide(fleet__placement="colocated_lending", fleet__instances=1, fleet__switch_s=1.0),
        "rollout",
        "trainer",
        {"fleet.instances": 4},
        "--recommend",
    ),
    Job(
        "agentic, tools of 10 s, undersized",
        ASYNC,
        _wide(
            admission__max_staleness=5.0,
            fleet__instances=2,
            workload__turns__count=4,
            workload__turns__tool_latency_s=10.0,
            workload__turns__tool_tokens=64,
            sync__reset_prefix_cache=False,
        ),
        "rollout",
        "trainer",
        {"fleet.instances": 4},
        "--recommend",
    ),
    Job(
        "verl-fully-async",
        "presets/verl-fully-async",
        {},
        "rollout",
        "trainer",
        {"admission.staleness_threshold": 1.0},
        "admission.",
    ),
    Job("trl-async-grpo", "presets/trl-async-grpo", {}, "sync", "trainer", NO_SYNC, "sync.", replications=6),
    Job("areal", "presets/areal", {}, "in_flight_cap", "trainer", NO_CAP, "in_flight"),
    Job("prime-rl", "presets/prime-rl", {}, "sync", "neither", NO_SYNC, "sync."),
    Job("open-instruct", "presets/open-instruct", {}, "sync", "rollout", NO_SYNC, "sync."),
    Job(
        "roll-agentic",
        "presets/roll-agentic",
        {},
        "rollout",
        "trainer",
        {"admission.async_ratio": 2.0, "admission.max_age": 2},
        "--recommend",
        told={
            "bare": (
                {
                    "admission.law": "version_window",
                    "admission.max_staleness": 2.0,
                    "admission.age_action": "train_anyway",
                    "admission.max_age": None,
                },
                "No metric says that this recipe drops what has grown too old",
            )
        },
    ),
)


def gain_of(job: Job, changes: Mapping[str, Any], least: int = 1) -> tuple[float, float]:
    """What a change gives, paired: (share of step time, GPU-hours a day that the same training needs less), the mean of
    the job's replications, or of `least` where that is more."""
    replications = max(job.replications, least)
    before = with_changes(job.scenario, {"run.warmup_steps": WARM, "run.steps": max(TRIED_STEPS, _events_end(job))})
    after = with_changes(before, changes)
    if after == before:
        return 0.0, 0.0
    shares, hours = [], []
    for r in range(replications):
        ratio = _step_s(after.model_dump_json(), r) / _step_s(before.model_dump_json(), r)
        shares.append(1.0 - ratio)
        hours.append(24.0 * (_gpus(before) - ratio * _gpus(after)))
    return sum(shares) / replications, sum(hours) / replications


@cache
def _step_s(scenario: str, replication: int) -> float:
    return float(metrics_of(simulate(Scenario.model_validate_json(scenario), replication=replication))["step_s"])


def _events_end(job: Job) -> int:
    return job.scenario.run.steps if job.scenario.run.events else 0


def _gpus(s: Scenario) -> float:
    rollout = s.fleet.instances * s.engine.tp
    return max(rollout, s.trainer.gpus) if s.fleet.placement == "colocated" else rollout + s.trainer.gpus


def history_of(job: Job) -> History:
    """The window after warm-up of the job, as its OpenMetrics text says it."""
    records = simulate(job.scenario, scrape_every_s=SCRAPE_S)
    with tempfile.TemporaryDirectory() as folder:
        path = Path(folder) / "run.om"
        with path.open("w", encoding="utf-8") as file:
            write_openmetrics(records, file, end_s=END_S)
        history = read_openmetrics(path, SCRAPE_S)
    return window(
        history, history.end_s - float(records.steps["end_s"][-1]) + float(records.steps["start_s"][WARM]), END_S
    )


def judged(job: Job, history: History, way: str) -> Replayed:
    """The verdict on the job's history, with its scenario (without the events that befell it) or without."""
    if way == "bare":
        return replay(history)
    scenario = with_changes(job.scenario, {"run.events": [], "fleet.speed_factors": []})
    return replay(history, scenario, given=_paths(scenario))


def _paths(scenario: Scenario) -> frozenset[str]:
    """What a scenario file that writes everything down gives."""
    found: set[str] = set()

    def walk(node: Any, path: str) -> None:
        for key, value in node.items():
            if isinstance(value, dict) and "kind" not in value:
                walk(value, f"{path}{key}.")
            elif value is not None:
                found.add(f"{path}{key}")

    walk(scenario.model_dump(exclude_none=True), "")
    return frozenset(found)
