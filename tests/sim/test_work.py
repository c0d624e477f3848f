"""What no machine could hold is refused before it is begun; a run of no seconds is refused in words."""

from __future__ import annotations

import gc
import tracemalloc
from typing import Any

import pytest

from fleetsim.config import default_scenario, with_changes
from fleetsim.engine.limits import EngineLimits
from fleetsim.engine.step_time import LinearStepTime
from fleetsim.errors import InputError
from fleetsim.sim.engines import engine_of
from fleetsim.sim.fleet import Fleet
from fleetsim.sim.metrics import metrics_of
from fleetsim.sim.run import simulate

SMALL = with_changes(
    default_scenario(),
    {
        "workload.prompt_tokens": 32,
        "workload.output_tokens": 64,
        "workload.group_size": 4,
        "trainer.batch_samples": 16,
        "fleet.instances": 2,
        "run.steps": 4,
    },
)


@pytest.mark.parametrize(
    ("changes", "path"),
    [
        ({"fleet.instances": 1_000_000}, "fleet.instances"),
        ({"trainer.batch_samples": 1_000_000_000}, "run: "),
        ({"run.steps": 10_000_000}, "run: "),
        (
            {"engine.kind": "constant", "engine.instance_tok_s": 1e3, "engine.max_num_batched_tokens": 10**9},
            "engine.max",
        ),
    ],
)
def test_it_is_refused_and_says_what_to_lower(changes: dict[str, object], path: str) -> None:
    with pytest.raises(InputError, match=path) as refused:
        simulate(with_changes(SMALL, changes))
    assert "lower" in str(refused.value)


def test_a_run_of_no_seconds_has_no_rates() -> None:
    nothing = with_changes(SMALL, {"trainer.fixed_s": 0.0, "sync.pause_s": 0.0, "sync.trainer_block_s": 0.0})
    engine = (LinearStepTime(0.0), EngineLimits(16, 2048, 10_000))
    with pytest.raises(InputError, match="takes no time"):
        metrics_of(simulate(nothing, engine=engine))


def test_tables_grow_with_what_is_in_them_and_tools_are_heard_sample_by_sample() -> None:
    changes = {"workload.turns.count": {"kind": "uniform", "low": 1, "high": 5}, "workload.turns.tool_tokens": 100}
    scenario = with_changes(SMALL, {**changes, "workload.output_tokens": {"kind": "lognormal", "mean": 64, "cv": 1.0}})
    fleet = Fleet(scenario, *engine_of(scenario), 0)
    fleet.draws.more()
    world, first = fleet.world, fleet.world.get("n_samples")
    before, calls = world.samples[:first].tobytes(), world.tool_tokens[: world.get("n_calls")].tobytes()
    rows = len(world.samples)
    while len(world.samples) == rows:
        fleet.draws.more()
    assert world.samples[:first].tobytes() == before
    assert world.tool_tokens.tobytes().startswith(calls)
    samples = world.samples[first : world.get("n_samples")]
    each = [int(world.tool_tokens[s["first_call"] : s["first_call"] + s["turns"] - 1].sum()) for s in samples]
    assert world.heard(samples).tolist() == each
    assert max(each) > min(each) == 0


@pytest.mark.parametrize(
    "changes",
    [{}, {"fleet.spot.share": 0.5, "fleet.spot.mean_life_s": 600.0}, {"fleet.failures.mtbf_s": 2000.0},
     {"stations.judge": {"output_tokens": 32}}, {"sync.scope": "rolling"}],
    ids=["plain", "spot", "failures", "judge", "rolling"],
)  # fmt: skip
def test_a_run_that_nobody_has_any_more_holds_no_memory(changes: dict[str, Any]) -> None:
    """Without a look for circles, which a few runs of many samples do not call for."""
    job = with_changes(default_scenario(), {**changes, "run.steps": 40, "workload.output_tokens": 64})
    simulate(job)
    gc.collect()
    gc.disable()
    tracemalloc.start()
    try:
        run = simulate(job)
        whole = run.samples.nbytes
        del run
        left, _ = tracemalloc.get_traced_memory()
    finally:
        tracemalloc.stop()
        gc.enable()
    assert left < 0.1 * whole
