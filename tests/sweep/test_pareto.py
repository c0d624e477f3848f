"""The front: against a search over all pairs, and on cells of which one knows what they are."""

from __future__ import annotations

import random

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st

from fleetsim.errors import InputError
from fleetsim.estimates import estimate
from fleetsim.quantities import METRICS
from fleetsim.sweep.cell import SweepRow
from fleetsim.sweep.pareto import DEFAULT, objectives_of, pareto_of

COST, STEP = "cost_per_step", "step_s"


def row(cell: int, **runs: list[float]) -> SweepRow:
    """A row with the given values per replication; all other metrics 0."""
    n = len(next(iter(runs.values())))
    columns = [runs.get(name, [0.0] * n) for name in METRICS]
    return SweepRow(cell, "ok", "", "rollout", tuple(zip(*columns, strict=True)))


@given(st.lists(st.tuples(st.integers(0, 6), st.integers(0, 6)), min_size=1, max_size=12))
def test_without_luck_it_is_the_front_of_the_means(points: list[tuple[int, int]]) -> None:
    rows = [row(i, cost_per_step=[float(a)] * 3, step_s=[float(b)] * 3) for i, (a, b) in enumerate(points)]
    pareto = pareto_of(rows, objectives_of([COST, STEP]))
    tops = [
        not any(c <= a and d <= b and (c, d) != (a, b) for c, d in points)
        for a, b in points
    ]  # fmt: skip
    assert [pareto.marks[i] == "front" for i in range(len(points))] == tops
    assert set(pareto.marks.values()) <= {"front", "dominated"}
    assert points[pareto.best[0].cell] == min(points)
    assert points[pareto.best[1].cell][::-1] == min((b, a) for a, b in points)


@given(st.integers(0, 2**32 - 1), st.integers(1, 12), st.integers(1, 4))
def test_there_is_always_a_front_and_only_it_dominates(seed: int, cells: int, replications: int) -> None:
    rng = np.random.default_rng(seed)
    rows = [
        row(i, cost_per_step=list(rng.normal(5, 1, replications)), step_s=list(rng.normal(5, 1, replications)))
        for i in range(cells)
    ]
    pareto = pareto_of(rows, objectives_of([COST, STEP]))
    assert pareto.front
    assert pareto == pareto_of(rows, objectives_of([COST, STEP]))
    for best in pareto.best:
        means = [np.mean([run[best.objective.column] for run in r.values]) for r in rows]
        assert means[best.cell] == min(means)


def test_a_difference_within_luck_is_a_tie_and_one_in_every_run_is_not() -> None:
    rng = random.Random(0)
    luck = [rng.gauss(0, 1) for _ in range(5)]
    a = row(0, cost_per_step=[10 + x for x in luck], step_s=[5.0] * 5)
    # The same luck and always a bit dearer: far inside both intervals, yet certainly worse.
    b = row(1, cost_per_step=[10.1 + x for x in luck], step_s=[5.0] * 5)
    # As dear on the mean as b, with luck of its own.
    c = row(2, cost_per_step=[10.1 + x for x in luck[::-1]], step_s=[5.0] * 5)
    low, high = (estimate([run[METRICS.index(COST)] for run in r.values]) for r in (a, b))
    assert low.ci_high > high.mean
    pareto = pareto_of([a, b, c], objectives_of([COST, STEP]))
    assert pareto.marks == {0: "front", 1: "dominated", 2: "tied"}
    assert pareto.best[0].cell == 0
    assert pareto.best[0].tied == (2,)


def test_without_replications_small_differences_are_ties() -> None:
    rows = [row(0, step_s=[10.0]), row(1, step_s=[10.1]), row(2, step_s=[10.3])]
    assert pareto_of(rows, objectives_of([STEP])).marks == {0: "front", 1: "tied", 2: "dominated"}


def test_more_is_better_where_it_is() -> None:
    rows = [row(0, goodput=[1.0] * 2), row(1, goodput=[2.0] * 2), SweepRow(2, "stuck", "why")]
    pareto = pareto_of(rows, objectives_of(["goodput"]))
    assert pareto.marks == {0: "dominated", 1: "front"}
    assert pareto.best[0].cell == 1
    assert pareto_of(rows, objectives_of(["min:goodput"])).best[0].cell == 0
    assert pareto_of([SweepRow(0, "stuck", "why")], objectives_of()).best == ()


def test_objectives_as_they_are_written() -> None:
    assert tuple(o.metric for o in objectives_of()) == DEFAULT
    texts = ["step_s", "goodput", "max:queue_depth", "min:goodput"]
    assert [objectives_of([text])[0].text for text in texts] == texts
    with pytest.raises(InputError) as error:
        objectives_of(["stepps", "queue_depth", "best:step_s", "goodput", "goodput"])
    told = str(error.value).splitlines()
    assert len(told) == 4
    for line, word in zip(told, ("unknown metric", "min:queue_depth", "must read", "twice"), strict=True):
        assert word in line


def test_a_large_grid_is_no_matter_of_pairs() -> None:
    """5,000 cells at random: beaten or not is asked of the front alone."""
    rng = np.random.default_rng(0)
    rows = [
        row(i, cost_per_step=[1 + rng.random()] * 3, step_s=[1 + rng.random()] * 3, goodput=[1 + rng.random()] * 3)
        for i in range(5000)
    ]
    pareto = pareto_of(rows, objectives_of([COST, STEP, "goodput"]))
    assert len(pareto.marks) == 5000
    assert 10 < len(pareto.front) < 500
