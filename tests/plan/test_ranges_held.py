"""The 80 % ranges of `simulate` and `split`, against draws of all uncertain inputs at once, as those of `size` are in
`test_doubt.py`.

Few draws say little of a share (120 of them are off by 4 points), so there are many. Which ones was decided before any
was seen: the first three seeds that there are, all of them, and what they say together. A range promises 80 %, and 70
to 90 % are asked of it. Last seen: 77 and 78 % of the steps and their dollars, 81 and 79 % of the trainer's idle share,
and all of the splits, of which there are few. Twice the draws said 75 and 76 %, 76 and 81 %.
"""

from __future__ import annotations

from collections.abc import Callable, Iterator, Mapping
from typing import Any

import numpy as np
import pytest

import fleetsim as fs
from fleetsim.config.scenario import Scenario
from fleetsim.estimates import estimate
from fleetsim.job.input_moves import METRICS, in_doubt
from fleetsim.job.looks import looked
from fleetsim.job.trials import simulated
from fleetsim.job.uncertainty import step_off
from fleetsim.search.arrangements import split
from fleetsim.search.ranges import known_of, ranges_of
from fleetsim.sim.threads import side_by_side
from tests.plan.draws import all_off

JOB: dict[str, Any] = {"batch": 128, "len": 1536, "max_staleness": 2, "max_len": 4096}
SEEDS = (0, 1, 2)
# Of each seed.
DRAWS, OF_SPLITS = 100, 14
pytestmark = pytest.mark.slow
Measured = Callable[[Scenario], Mapping[str, Any]]


def worlds(job: Scenario, given: frozenset[str], draws: int) -> Iterator[tuple[Measured, float]]:
    """Runs in which every input is off by a draw from the law that has its interval; and what a step is off by beside
    its inputs, as a factor on its seconds."""
    inputs = in_doubt(job, given)
    for draw in (draw for draw in map(np.random.default_rng, SEEDS) for _ in range(draws)):
        z, again = draw.normal(size=len(inputs)) / 1.2816, draw.normal() / 1.2816
        factors = [(u, high**x if x > 0 else low**-x) for (u, (low, high)), x in zip(inputs, z, strict=True)]

        def measure(scenario: Scenario, factors: Any = factors) -> Mapping[str, Any]:
            return simulated(all_off(scenario, factors), 0)

        yield measure, 1.0 + step_off(job)[again > 0] * again


@pytest.mark.parts
@pytest.mark.parametrize(
    "options", [{"tp": 1}, {"gpu": "H200", "len": 2500, "max_len": 8192, "trainer_step_s": 12.0, "sync_pause_s": 2.0}]
)
def test_the_ranges_of_a_run_hold_what_draws_give(options: dict[str, Any]) -> None:
    job = fs.load(None, {"fleet.instances": 4}, **{**JOB, **options})
    ranges = job.simulate().to_dict()["ranges"]["metrics"]
    short = looked(job.scenario)
    runs = side_by_side(lambda one: (one[0](short), one[1]), list(worlds(job.scenario, job.given, DRAWS)))
    for name in METRICS:
        low, high = ranges[name]
        again = [1.0 if name == "trainer_idle_fraction" else factor for _, factor in runs]
        held = sum(low <= float(run[name]) * x <= high for (run, _), x in zip(runs, again, strict=True))
        assert 0.7 <= held / len(runs) <= 0.9, (name, held / len(runs))


@pytest.mark.parts
@pytest.mark.parametrize("options", [{"gpu": "H200"}, {"trainer_step_s": 30.0, "trainer_gpus": 8}])
def test_the_splits_that_are_likely_hold_the_best_of_what_draws_give(options: dict[str, Any]) -> None:
    job = fs.load(None, {}, **{**JOB, **options})
    advice = job.split(gpus=16).advice
    assert advice.spread is not None
    low, high = advice.spread.instances
    base = advice.chosen.arrangement
    assert base.kind == "split"
    counts = [o.arrangement.instances for o in advice.outcomes if o.arrangement.kind == "split"]
    ways = {n: looked(split(advice.scenario, n, 16).scenario) for n in counts}
    held = 0
    draws = list(worlds(base.scenario, frozenset(job.given), OF_SPLITS))
    for measure, _ in draws:
        steps = {
            n: float(run["step_s"]) for n, run in zip(ways, side_by_side(measure, list(ways.values())), strict=True)
        }
        best = min(steps.values())
        held += any(low <= n <= high for n, step_s in steps.items() if step_s <= 1.01 * best)
    assert held / len(draws) >= 0.7


def test_what_an_input_does_to_a_step_is_told_around_the_step_that_is_told() -> None:
    """A step of few runs differs from the mean of all: the ends of an input stand around the latter."""
    job = fs.load(None, {"run.steps": 8}, replications=3, model="Qwen/Qwen3-14B", gpu="B200", len=900, len_cv=1.5)
    told = simulated(job.scenario, 0)
    longer = {name: estimate([1.3 * float(told[name])] * 3) for name in METRICS}
    found = ranges_of(known_of(job.scenario, job.given, longer, simulated))
    assert found is not None
    for part in found.parts:
        low, high = part.step_s
        assert low <= longer["step_s"].mean <= high
