"""A plan counts other makes where nobody does: within three percent of the best of all counts."""

from __future__ import annotations

from itertools import product
from typing import Any

import pytest

import fleetsim as fs
from fleetsim.errors import StuckError
from fleetsim.job.trials import Measure, flat, remembered, simulated
from fleetsim.plan.choices import ChoiceInputs
from fleetsim.plan.plan import worth_a_look
from fleetsim.plan.space import Space, gpus_of, usd_per_h
from fleetsim.search.arrangements import divided
from fleetsim.search.explore import Search
from fleetsim.search.front import Budget, age_of
from fleetsim.search.makes import with_counts, without_first
from fleetsim.search.permissions import allowed, ways_ahead
from fleetsim.search.shares import Candidate, Engines, Share
from fleetsim.sim.threads import side_by_side

RATES = {"engine.kind": "constant", "engine.instance_tok_s": 1000.0, "trainer.scaling.parallel_share": 0.9}
ROOFLINES = {"engine.tp": 1, "engine.pp": 1, "engine.dp": 1}
JOBS: list[tuple[dict[str, Any], dict[str, Any]]] = [
    (RATES | {"fleet.second.instance_tok_s": 400.0, "fleet.second.price_usd_per_gpu_h": 0.7}, {"trainer_step_s": 20}),
    (RATES | {"fleet.second.instance_tok_s": 2500.0, "fleet.second.price_usd_per_gpu_h": 7.0}, {"trainer_step_s": 9}),
    (ROOFLINES | {"fleet.second.gpu": "L40S"}, {"model": "Qwen/Qwen2.5-1.5B", "gpu": "H100", "len": 900}),
    (
        RATES
        | {"fleet.pools.slow": {"instance_tok_s": 400.0, "price_usd_per_gpu_h": 0.7}}
        | {"fleet.pools.fast": {"instance_tok_s": 1500.0, "price_usd_per_gpu_h": 3.0}},
        {"trainer_step_s": 12},
    ),
    (RATES | {"fleet.second.instance_tok_s": 1400.0, "fleet.second.price_usd_per_gpu_h": 2.0}, {"trainer_step_s": 12}),
]


def of_all_counts(space: Space, measure: Measure) -> list[tuple[float, float]]:
    """Seconds and dollars of a step of every count of each make and of the trainer, over all replications, as far as
    the budget and the samples' age permit."""
    job, most = space.asked.scenario, space.budget.gpus or 10
    values = {engines.value: None for engines in space.engines if engines.scenario.fleet.first is None}
    plans = []
    for value, (there, left) in product(values, without_first(job, space.pools)):
        given = space.asked.given | ({"fleet.placement"} if there.fleet.first else set())
        for counts in product(range(most), repeat=len(left)):
            others, pools = sum(counts), dict(zip(left, counts, strict=True))
            engines = Engines(with_counts(there, pools), value, given, counts_pools=True)
            for ahead in ways_ahead(job, None):
                trainers = [n for n in (1, 2, 4, 8) if n <= most]  # parts of a server
                if ahead.on_policy:
                    shares = [Share("colocated_sync", n, n, n) for n in trainers if not (others or there.fleet.first)]
                else:
                    shares = [Share("split", n, n, t) for t in trainers for n in range(1, most + 1 - t - others)]
                    shares += [Share("colocated_async", n, n, n) for n in trainers if not (others or there.fleet.first)]
                plans += [Candidate(engines, ahead, share) for share in shares if engines.trains(share)]

    def means(candidate: Candidate) -> tuple[float, float] | None:
        scenario = candidate.scenario()
        if scenario is None or not space.budget.allows(candidate.share.gpus + scenario.fleet.pooled, 0.0):
            return None
        if not space.budget.allows(0, 3600 * candidate.usd_per_s):
            return None
        try:
            runs = [flat(measure(scenario, r)) for r in range(scenario.run.replications)]
        except StuckError:
            return None
        if age_of(runs) > (space.own or 0.0):
            return None
        step_s, usd = (sum(float(run[m]) for run in runs) / len(runs) for m in ("step_s", "cost_per_step"))
        return step_s, usd

    return [found for found in side_by_side(means, plans) if found is not None]


@pytest.mark.parts
@pytest.mark.parametrize("budget", [Budget(gpus=5), Budget(gpus=5, objective="cost"), Budget(price_per_h=14.0)])
@pytest.mark.parametrize(("changes", "flags"), JOBS)
def test_counts_of_a_plan_are_nearly_the_best_of_all(
    changes: dict[str, Any], flags: dict[str, Any], budget: Budget
) -> None:
    own = {"run.steps": 16, "sync.every_steps": 1, "workload.group_size": 4} | changes
    job = fs.load(None, own, **{"batch": 64, "len": 300, "max_staleness": 2, "replications": 2} | flags)
    given = frozenset(job.given)
    space = Space(ChoiceInputs(divided(job.scenario, given), given), budget)
    measure = remembered(simulated)
    best = worth_a_look(Search(measure), space, allowed(""))[0]
    every = of_all_counts(space, measure)
    assert budget.allows(gpus_of(best), usd_per_h(best))
    assert budget.badness(best.step_s, best.usd)[1] <= 1.03 * min(budget.badness(*one)[1] for one in every)
    if changes.get("fleet.second.price_usd_per_gpu_h") == 2.0:  # faster and cheaper than the first
        assert best.scenario.fleet.first == "second"
