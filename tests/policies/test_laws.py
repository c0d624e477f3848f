"""What the admission laws say of themselves, held against numbers that were worked out by hand."""

from __future__ import annotations

import math
from typing import Any, Literal, get_args

import pytest

from docs import make_laws
from fleetsim.config import default_scenario, load_scenario, with_changes
from fleetsim.config.data_files import presets
from fleetsim.config.exchange import AdmissionConfig
from fleetsim.config.law_numbers import budget_steps, law_of, sizes_of
from fleetsim.config.scenario import Scenario, age_bound
from fleetsim.job.words import binding_words
from fleetsim.policies.admission import LAWS
from fleetsim.policies.law import PLENTY, EachStep, LawName, Progress
from fleetsim.policies.samples import complete
from fleetsim.search.levers import STALENESS, levers_of
from fleetsim.sim.metrics import metrics_of
from fleetsim.sim.run import simulate

# Batches of 256 samples in groups of 8: 32 groups a step. A version every 2 steps: 64 groups a version.
JOB = {
    "trainer.batch_samples": 256,
    "workload.group_size": 8,
    "sync.every_steps": 2,
    "buffer.batch_rule": "oldest_version_first",
}
# Version 3 is published; 180 groups were taken, 10 of them in this round; 200 groups belong to earlier windows.
PROGRESS = Progress(version=3, taken_groups=180, taken_of_round=10, generating=True, window_start=200)
# Law, settings; then: words; groups that may be out at PROGRESS; promised staleness and depth, in steps; samples in
# flight; groups ahead; how it is loosened: the words, the flags.
BUDGET = "a larger --max-staleness"
TOLD: list[tuple[LawName, dict[str, Any], str, int | None, float | None, float, float, float | None, str, str]] = [
    (
        "barrier",
        {},
        "a batch, then the trainer",
        22,
        0,
        0,
        256,
        None,
        "one batch ahead instead of a barrier",
        "--set admission.law=batches_ahead --set admission.batches_ahead=1",
    ),
    (
        "batches_ahead",
        {"batches_ahead": 1},
        "1 batch ahead",
        32,
        2,
        1,
        256,
        32,
        "2 batches ahead instead of 1",
        "--set admission.batches_ahead=2",
    ),
    (
        "batches_ahead",
        {"batches_ahead": 3},
        "3 batches ahead",
        96,
        4,
        3,
        768,
        96,
        "4 batches ahead instead of 3",
        "--set admission.batches_ahead=4",
    ),
    (
        "version_window",
        {"max_staleness": 0.0},
        "0 versions ahead",
        76,
        0,
        0,
        256,
        64,
        "a staleness budget of 1 instead of 0",
        "--set admission.max_staleness=1",
    ),
    (
        "version_window",
        {"max_staleness": 1.0},
        "1 version ahead",
        140,
        3,
        2,
        256,
        128,
        "a staleness budget of 2 instead of 1",
        "--set admission.max_staleness=2",
    ),
    (
        "version_window",
        {"max_staleness": 2.5},
        "2.5 versions ahead",
        236,
        7,
        5,
        640,
        224,
        "a staleness budget of 3.5 instead of 2.5",
        "--set admission.max_staleness=3.5",
    ),
    ("fixed_pool", {"pool_samples": 4096}, "pool of 4,096", 512, None, 2, 4096, None, "", ""),
    ("unbounded", {}, "no admission limit", PLENTY, None, 2, math.inf, None, "", ""),
    (
        "per_sync_window",
        {"staleness_threshold": 0.0},
        "sync window + 0 %",
        264,
        None,
        2,
        256,
        64,
        "a staleness threshold of 0.5 instead of 0",
        "--set admission.staleness_threshold=0.5",
    ),
    (
        "per_sync_window",
        {"staleness_threshold": 0.5},
        "sync window + 50 %",
        296,
        None,
        3,
        512,
        96,
        "a staleness threshold of 1 instead of 0.5",
        "--set admission.staleness_threshold=1",
    ),
    (
        "cumulative_ratio",
        {"async_ratio": 0.0},
        "ratio 0, cumulative",
        None,
        0,
        0,
        256,
        32,
        "an async ratio of 1 instead of 0",
        "--set admission.async_ratio=1",
    ),
    (
        "cumulative_ratio",
        {"async_ratio": 1.5, "extra_groups": 3},
        "ratio 1.5, cumulative",
        None,
        3,
        1.5,
        384,
        80,
        "an async ratio of 2.5 instead of 1.5",
        "--set admission.async_ratio=2.5",
    ),
    (
        "target_step",
        {"max_staleness": 1.0},
        "target steps, 1 ahead",
        140,
        3,
        2,
        256,
        128,
        "a staleness budget of 2 instead of 1",
        "--set admission.max_staleness=2",
    ),
    (
        "target_step",
        {"max_staleness": 2.5},
        "target steps, 2.5 ahead",
        236,
        7,
        5,
        640,
        224,
        "a staleness budget of 3.5 instead of 2.5",
        "--set admission.max_staleness=3.5",
    ),
    ("adaptive", {"adaptive.most_samples": 2000}, "by KV use, at most 2,000", PLENTY, None, 2, 2000, None, "", ""),
]
# What a verdict recommends where the staleness window or the cap in flight of the law binds.
LIFTS = {
    "barrier": (BUDGET, ""),
    "batches_ahead": ("more admission.batches_ahead", ""),
    "version_window": (BUDGET, ""),
    "fixed_pool": (BUDGET, "more admission.pool_samples"),
    "unbounded": (BUDGET, ""),
    "per_sync_window": ("a larger admission.staleness_threshold", ""),
    "cumulative_ratio": ("a larger admission.async_ratio", ""),
    "target_step": (BUDGET, ""),
    "adaptive": (BUDGET, "more admission.adaptive.most_samples"),
}
# Every preset and shipped scenario without caps and targets: words; the age that it permits and its depth, in steps;
# samples in flight; the age bound with its age limits.
SHIPPED: dict[str, tuple[str, float | None, float, float, float | None]] = {
    "areal": ("2 versions ahead", 2, 2, 1024, None),
    "async-one-step": ("1 batch ahead", 1, 1, 512, 1),
    "laminar": ("no admission limit", None, 2, math.inf, None),
    "llamarl": ("2 versions ahead", 2, 2, 1024, None),
    "nemo-rl-async-grpo": ("target steps, 1 ahead", 1, 1, 512, 1),
    "nemo-rl-sc-in-order": ("target steps, 1 ahead", 1, 1, 512, 1),
    "nemo-rl-sc-ready-first": ("1 version ahead", 1, 1, 512, None),
    "nemo-rl-sc-weight-fifo": ("1 version ahead", 1, 1, 512, 1),
    "nemo-rl-sc-windowed": ("2 batches ahead", 1, 2, 1024, 1),
    "nemo-rl-sync": ("a batch, then the trainer", 0, 0, 512, 0),
    "open-instruct": ("pool of 4,096", 8, 2, 4096, 8),
    "openrlhf-async": ("1 batch ahead", 1, 1, 512, 1),
    "openrlhf-async-partial": ("1 batch ahead", 1, 1, 512, 1),
    "openrlhf-hybrid": ("a batch, then the trainer", 0, 0, 512, 0),
    "pipelinerl": ("no admission limit", None, 2, math.inf, None),
    "pipelinerl-max-lag": ("1 version ahead", 1, 1, 512, None),
    "prime-rl": ("by KV use, at most 1,024", 8, 2, 1024, 8),
    "rlhfuse": ("a batch, then the trainer", 0, 0, 512, 0),
    "roll-agentic": ("ratio 1, cumulative", 1, 1, 512, 1),
    "roll-rlvr-async": ("ratio 1, cumulative", 1, 1, 512, 1),
    "roll-rlvr-sync": ("ratio 0, cumulative", 0, 0, 512, 0),
    "rollpacker": ("a batch, then the trainer", 0, 0, 512, 0),
    "seer": ("a batch, then the trainer", 0, 0, 512, 0),
    "skyrl-fully-async": ("4 versions ahead", 4, 4, 2048, None),
    "slime-async": ("1 batch ahead", 1, 1, 512, 1),
    "slime-fully-async": ("pool of 32,768", None, 2, 32768, None),
    "slime-sync": ("a batch, then the trainer", 0, 0, 512, 0),
    "streamrl": ("1 batch ahead", 1, 1, 512, None),
    "sync-colocated": ("a batch, then the trainer", 0, 0, 512, 0),
    "tinker-async": ("no admission limit", 4, 2, math.inf, 4),
    "trl-async-grpo": ("no admission limit", 4, 2, math.inf, 4),
    "trl-async-grpo-lora": ("no admission limit", 4, 2, math.inf, 4),
    "trl-grpo": ("a batch, then the trainer", 0, 0, 512, 0),
    "verl-fully-async": ("sync window + 10 %", None, 2, 512, None),
    "verl-one-step-off": ("1 batch ahead", 1, 1, 512, 1),
    "verl-sync": ("a batch, then the trainer", 0, 0, 512, 0),
    "verl-v1-colocate-async": ("1 version ahead", 7, 1, 512, 7),
    "verl-v1-separate-async": ("1 version ahead", 7, 1, 512, 7),
    "verl-v1-separate-async-switch": ("1 version ahead", 7, 1, 512, 7),
}


@pytest.mark.parametrize(
    ("law", "settings", "says", "out", "promised", "depth", "in_flight", "ahead", "text", "flag"), TOLD
)
def test_what_a_law_says_of_itself(
    law: LawName,
    settings: dict[str, Any],
    says: str,
    out: int | None,
    promised: float | None,
    depth: float,
    in_flight: float,
    ahead: float | None,
    text: str,
    flag: str,
) -> None:
    s = job(law, settings)
    record, sizes, a = law_of(s), sizes_of(s), s.admission
    assert record.says(a) == says
    if isinstance(record.lets_in, EachStep):
        assert out is None
    else:
        assert record.lets_in.limit(a, sizes, PROGRESS) == out
    assert budget_steps(s) == promised
    assert record.depth_steps(a, sizes) == depth
    assert record.in_flight(a, sizes) == in_flight
    assert record.groups_ahead(a, sizes) == ahead
    loosened = [(lever.text, lever.flag) for lever in levers_of(s, s, "") if lever.name == STALENESS]
    assert loosened == ([(text, flag)] if text else [])


def job(law: LawName, settings: dict[str, Any]) -> Scenario:
    return with_changes(
        default_scenario(), {**JOB, "admission.law": law, **{f"admission.{k}": v for k, v in settings.items()}}
    )


def test_a_ratio_lets_a_batch_in_with_every_step_and_more_with_the_first() -> None:
    s = job("cumulative_ratio", {"async_ratio": 1.5, "extra_groups": 3})
    lets_in = LAWS["cumulative_ratio"].lets_in
    assert isinstance(lets_in, EachStep)
    assert lets_in.groups(s.admission, sizes_of(s), True) == 80
    assert lets_in.groups(s.admission, sizes_of(s), False) == 32
    assert lets_in.kept_running(s.admission) == 3


@pytest.mark.parametrize("law", sorted(LIFTS))
def test_what_a_verdict_recommends_under_each_law(law: LawName) -> None:
    window, cap = LIFTS[law]
    s = Scenario.model_construct(admission=AdmissionConfig.model_construct(law=law))
    assert binding_words("staleness_window", s).lift == f"{window}, if the recipe tolerates it"
    assert binding_words("in_flight_cap", s).lift == (cap or binding_words("in_flight_cap").lift)


def test_what_is_dropped_for_its_age_needs_a_larger_limit_too() -> None:
    """ROLL's agents, whose environments may be one version old: more of the ratio alone is thrown away."""
    s = with_changes(load_scenario("roll-agentic"), {"trainer.batch_samples": 64, "run.steps": 24})
    lift = binding_words("staleness_window", s).lift
    assert lift.startswith("a larger admission.async_ratio and admission.max_age")
    step_s = {
        name: metrics_of(simulate(with_changes(s, changes)))["step_s"]
        for name, changes in {
            "as it is": {},
            "ratio": {"admission.async_ratio": 1.4},
            "both": {"admission.async_ratio": 1.4, "admission.max_age": 2},
        }.items()
    }
    assert step_s["ratio"] > 0.95 * step_s["as it is"]
    assert step_s["both"] < 0.85 * step_s["as it is"]


def test_every_shipped_scenario_promises_what_was_worked_out() -> None:
    assert {name: told(load_scenario(name)) for name in SHIPPED} == SHIPPED
    assert set(presets()) <= set(SHIPPED)


def told(s: Scenario) -> tuple[str, float | None, float, float, float | None]:
    law, sizes, a = law_of(s), sizes_of(s), s.admission
    promised, depth = budget_steps(s), law.depth_steps(a, sizes)
    return law.says(a), promised, math.ceil(depth), law.in_flight(a, sizes), age_bound(s)


def test_each_law_is_worked_out_here() -> None:
    assert {law for law, *_ in TOLD} == set(LIFTS) == set(get_args(LawName)) == set(LAWS)


def test_a_name_without_an_entry_fails_when_the_table_is_made() -> None:
    with pytest.raises(TypeError, match="in its table: b, c"):
        complete(Literal["a", "b", "c"], {"a": 1})


def test_the_page_lists_the_laws_as_they_are() -> None:
    page = make_laws.PAGE.read_text(encoding="utf-8")
    assert "\n".join(make_laws.table()) in page
