from __future__ import annotations

from collections.abc import Mapping
from typing import Any

import pytest

from fleetsim.config import default_scenario, with_changes
from fleetsim.config.scenario import Scenario
from fleetsim.config.workload import ConstantTokens
from fleetsim.engine.transport import sync_times
from fleetsim.size.headroom import INTERACTION, LONG_TAIL, PREFILL, SLACK, SYNC, causes, headroom_of
from fleetsim.size.size import size
from tests.plan.fakes import fluid, metrics, one_ahead

LOSSES = {LONG_TAIL: 2.0, SYNC: 1.0, PREFILL: 0.5}


def batch_s(s: Scenario, replication: int) -> Any:
    """Seconds that a batch takes: 10 without any loss, plus the seconds of each cause that is there."""
    seconds = 10.0
    if not isinstance(s.workload.output_tokens, ConstantTokens):
        seconds += LOSSES[LONG_TAIL]
    if sync_times(s).pause_s:
        seconds += LOSSES[SYNC]
    if not s.workload.shared_prefix_tokens:
        seconds += LOSSES[PREFILL]
    assert s.trainer.fixed_s == 0.0, "supply is measured with a trainer that takes no time"
    return metrics(seconds, 0.0)


def test_every_cause_is_the_share_of_the_fleet_that_is_there_because_of_it() -> None:
    scenario = with_changes(default_scenario(), {"workload.output_tokens.max": 1e6})
    tokens = 512 * 1536
    nameplate = tokens / 10.0 / 8  # per instance
    h = headroom_of(scenario, 8, tokens / 15.0, nameplate, batch_s)
    assert h.computed == pytest.approx(10.0 / 15.0)
    assert h.supply_tok_s == pytest.approx(tokens / 13.5)
    assert {c: h.parts[c] for c in LOSSES} == pytest.approx({c: s / 13.5 for c, s in LOSSES.items()})
    assert h.parts[INTERACTION] == pytest.approx(0.0)  # these losses add up, nothing overlaps
    assert h.parts[SLACK] == pytest.approx(10.0 / 13.5 - 10.0 / 15.0)
    assert h.computed + sum(h.parts.values()) == pytest.approx(1.0)


def test_only_causes_that_the_scenario_has() -> None:
    bare = with_changes(
        default_scenario(),
        {
            "workload.output_tokens": 100,
            "engine.kind": "constant",
            "engine.instance_tok_s": 100.0,
            "sync.pause_s": 0.0,
            "sync.trainer_block_s": 0.0,
        },
    )
    assert causes(bare) == {}
    rich = with_changes(
        bare, {"fleet.straggler_share": 0.1, "fleet.straggler_slowdown": 2.0, "fleet.failures.mtbf_s": 1e4}
    )
    assert sorted(causes(rich)) == ["failures", "stragglers"]


def test_each_ablation_is_a_valid_scenario() -> None:
    scenario = with_changes(
        default_scenario(),
        {
            "workload.prompt_tokens": {"kind": "lognormal", "mean": 300, "cv": 1.0, "max": 900},
            "fleet.failures.mtbf_s": 1e4,
            "fleet.speed_factors": [1.2],
        },
    )
    for changes in causes(scenario).values():
        with_changes(scenario, changes)


def test_size_works_it_out_when_somebody_asks_and_once() -> None:
    asked: list[int] = []
    alone = fluid()

    def measure(scenario: Scenario, replication: int) -> Mapping[str, Any]:
        asked.append(replication)
        return alone(scenario, replication)

    constant = {"engine.kind": "constant", "engine.instance_tok_s": 4000.0, "workload.output_tokens": 1536}
    result = size(with_changes(one_ahead(), constant), measure=measure)
    before = len(asked)
    first = result.headroom
    after = len(asked)
    assert after > before
    assert result.headroom is first
    assert len(asked) == after
