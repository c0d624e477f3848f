"""Split advice against closed forms.

A deterministic job: B samples of L tokens at R tokens/s an instance take G = B (L - 1) / R instance-seconds (the first
token comes with its free prefill), and C GPU-seconds of training that divide perfectly. On N GPUs colocated sync takes
(G + C) / N + 2 switches; a split of k and N - k takes max(G / k, C / (N - k)), which is never less than (G + C) / N.
"""

from __future__ import annotations

from collections.abc import Mapping
from functools import partial
from typing import Any

import pytest

from fleetsim.config import Scenario, default_scenario, with_changes
from fleetsim.errors import InputError, StuckError
from fleetsim.records import replace
from fleetsim.search.arrangements import Rules
from fleetsim.split.split import Advice
from fleetsim.split.split import split as ways_of
from tests.plan.fakes import metrics

# Few GPUs, of which a trainer takes any number: what is tested is how ways are compared.
ANY = Rules(trainer_unit=1)
split = partial(ways_of, rules=ANY)

# G = 240 * 1000 / 1000 = 240 instance-seconds
DETERMINISTIC: dict[str, Any] = {
    "engine.kind": "constant",
    "engine.instance_tok_s": 1000.0,
    "workload.output_tokens": 1001,
    "workload.group_size": 1,
    "trainer.batch_samples": 240,
    "trainer.gpus": 1,
    "trainer.fixed_s": 80.0,
    "trainer.scaling.parallel_share": 1.0,
    "sync.pause_s": 0.0,
    "sync.trainer_block_s": 0.0,
    "run.steps": 40,
    "run.warmup_steps": 20,
    "run.replications": 2,
}
GIVEN = frozenset({*DETERMINISTIC, "fleet.switch_s"})


def advice(gpus: int, **changes: Any) -> Advice:
    job = with_changes(default_scenario(), DETERMINISTIC | {k.replace("__", "."): v for k, v in changes.items()})
    return split(job, gpus, given=GIVEN)


def steps(result: Advice) -> dict[str, float]:
    return {o.arrangement.label: o.mean("step_s") for o in result.outcomes}


def test_perfectly_divisible_work_gains_nothing_from_a_split() -> None:
    """(240 + 80) / 4 = 80 s shared; 3 + 1 is balanced: max(240 / 3, 80) = 80 s too."""
    result = advice(4, admission__max_staleness=2.0)
    found = steps(result)
    assert found["colocated sync"] == pytest.approx(80.0, rel=1e-9)
    assert found["3 + 1"] == pytest.approx(80.0, rel=1e-9)
    assert result.verdict == "no_difference"
    assert result.chosen.arrangement.kind == "colocated_sync"
    assert result.ratio is not None
    assert result.ratio.mean == pytest.approx(1.0, abs=1e-9)


def test_a_split_that_cannot_be_balanced_loses() -> None:
    """(240 + 240) / 3 = 160 s shared; split, one side has one GPU: max(240 / 1, 240 / 2) = 240 s either way."""
    result = advice(3, trainer__fixed_s=240.0)
    found = steps(result)
    assert found["colocated sync"] == pytest.approx(160.0, rel=1e-9)
    assert found["1 + 2"] == pytest.approx(240.0, rel=1e-9)
    assert found["2 + 1"] == pytest.approx(240.0, rel=1e-9)
    assert result.verdict == "do_not_split"
    assert result.ratio is not None
    assert result.ratio.mean == pytest.approx(1.5, rel=2e-3)


def test_a_trainer_that_does_not_scale_is_worth_a_split() -> None:
    """240 / 4 + 80 = 140 s shared; 3 + 1 overlaps both: max(240 / 3, 80) = 80 s."""
    result = advice(4, trainer__scaling__parallel_share=0.0)
    found = steps(result)
    assert found["colocated sync"] == pytest.approx(140.0, rel=1e-9)
    assert found["3 + 1"] == pytest.approx(80.0, rel=1e-9)
    assert found["2 + 2"] == pytest.approx(120.0, rel=1e-9)
    assert found["1 + 3"] == pytest.approx(240.0, rel=1e-9)
    assert result.verdict == "split"
    assert result.chosen.arrangement.label == "3 + 1"
    assert result.chosen.ranks == {"step_s": 1, "goodput": 1, "cost_per_step": 1}


def test_handing_the_gpus_over_counts_twice_a_step() -> None:
    result = advice(4, fleet__switch_s=10.0)
    assert steps(result)["colocated sync"] == pytest.approx(100.0, rel=1e-9)
    assert result.verdict == "split"


def test_one_more_instance_of_shared_gpus_serves_both_pools() -> None:
    """A fifth GPU, as an instance and as a trainer: (240 + 80) / 5 = 64 s, or 0.8 of 80 s, at 5 / 4 of the price."""
    result = advice(4, admission__max_staleness=2.0)
    more = result.alternatives.named("one_more_instance")
    assert more is not None
    assert more.text == "one more instance (1 GPU more)"
    assert more.step_ratio.mean == pytest.approx(0.8, rel=1e-9)
    assert more.cost_ratio.mean == pytest.approx(1.0, rel=1e-9)
    assert "One more instance (1 GPU more) shortens the step by 20.0 % at the same cost" in (result.explanation)


def test_cost_and_goodput_by_hand() -> None:
    """4 GPUs at $3.64 an hour: 80 s cost $0.3236; 240 samples of 1,001 tokens / (4 GPUs * 80 s) = 750.75 tok/GPU-s."""
    way = next(o for o in advice(4).outcomes if o.arrangement.label == "3 + 1")
    assert way.mean("cost_per_step") == pytest.approx(4 * 3.64 * 80 / 3600, rel=1e-9)
    assert way.mean("goodput") == pytest.approx(240 * 1001 / (4 * 80), rel=1e-9)


def test_colocated_sync_is_on_policy_and_the_others_within_their_budget() -> None:
    result = split(with_changes(default_scenario(), {"trainer.batch_samples": 64, "run.replications": 2}), 4)
    stale = {o.arrangement.kind: o.estimates["staleness_steps.max"] for o in result.outcomes}
    assert stale["colocated_sync"].mean == 0.0
    assert stale["colocated_async"].mean > 0.0


def fake(step_s: Mapping[str, tuple[float, ...]], gpus: int = 4, price: Mapping[str, float] | None = None) -> Any:
    """Measured step times by label, a replication each; everything else follows from them."""

    def measure(s: Scenario, replication: int) -> Mapping[str, Any]:
        kind = "colocated sync" if s.admission.law == "barrier" else "colocated async"
        name = kind if s.fleet.placement == "colocated" else f"{s.fleet.instances} + {gpus - s.fleet.instances}"
        if name not in step_s:
            raise StuckError(f"{name} is stuck", [])
        seconds = step_s[name][replication % len(step_s[name])]
        cost = seconds * (price or {}).get(name, 1.0)
        return metrics(seconds, 0.2, goodput=1000.0 / seconds, cost_per_step=cost)

    return measure


JOB = with_changes(default_scenario(), {"engine.kind": "constant", "engine.instance_tok_s": 1000.0})


def advised(step_s: Mapping[str, tuple[float, ...]], **more: Any) -> Advice:
    return split(JOB, 4, measure=fake(step_s, price=more.pop("price", None)), **more)


def test_luck_common_to_both_is_no_reason_and_no_excuse() -> None:
    """Step times scatter by 30 %; run by run the split is always 2 % shorter: paired, that is significant."""
    luck = (0.7, 0.85, 1.0, 1.15, 1.3)
    times = {
        "colocated async": tuple(10.0 * x for x in luck),
        "2 + 2": tuple(9.8 * x for x in luck),
        "1 + 3": (30.0,),
        "3 + 1": (30.0,),
        "colocated sync": (40.0,),
    }
    result = advised(times)
    assert result.verdict == "split"
    assert result.ratio is not None
    assert (result.ratio.mean, result.ratio.ci_high - result.ratio.ci_low) == (
        pytest.approx(0.98),
        pytest.approx(0.0, abs=1e-9),
    )
    apart = times | {"2 + 2": tuple(9.8 * x for x in reversed(luck))}
    assert advised(apart).verdict == "no_difference", "the same means, but the runs do not agree"


def test_ties_with_the_first_are_marked_and_nothing_else_is() -> None:
    result = advised(
        {
            "1 + 3": (10.0, 10.1, 10.2, 9.9, 9.8),
            "2 + 2": (10.1, 10.0, 10.1, 10.0, 9.9),
            "3 + 1": (12.0,),
            "colocated sync": (20.0,),
            "colocated async": (11.0,),
        }
    )
    ties = {o.arrangement.label: o.ties for o in result.outcomes[1:]}
    assert ties == {"2 + 2": True, "colocated async": False, "3 + 1": False, "colocated sync": False}


def test_of_two_equal_colocated_ways_the_on_policy_one_is_advised() -> None:
    times = {"2 + 2": (30.0,), "colocated sync": (10.1, 9.9, 10.0), "colocated async": (9.9, 10.1, 9.9)}
    assert advised(times).chosen.arrangement.kind == "colocated_sync"
    assert advised(times | {"colocated async": (9.0,)}).chosen.arrangement.kind == "colocated_async"


def test_each_measure_has_its_own_order() -> None:
    times = {"1 + 3": (10.0,), "2 + 2": (9.0,), "3 + 1": (8.0,), "colocated sync": (30.0,), "colocated async": (9.5,)}
    price = {"3 + 1": 3.0, "2 + 2": 2.0, "1 + 3": 0.5, "colocated async": 1.0}
    by_cost = advised(times, by="cost_per_step", price=price)
    assert [o.arrangement.label for o in by_cost.outcomes][:2] == ["1 + 3", "colocated async"]
    assert by_cost.outcomes[0].ranks == {"step_s": 4, "goodput": 4, "cost_per_step": 1}
    by_goodput = advised(times, by="goodput", price=price)
    assert by_goodput.outcomes[0].arrangement.label == "3 + 1"
    assert by_goodput.verdict == "split", "more goodput is better, less cost is"
    assert advised(times, price=price).outcomes[0].ranks["cost_per_step"] == 4


def test_what_is_stuck_is_left_out_and_told() -> None:
    result = advised({"2 + 2": (10.0,), "colocated sync": (20.0,)})
    assert [label for label, _ in result.stuck] == ["colocated async", "1 + 3", "3 + 1"]
    assert any("1 + 3 cannot run: 1 + 3 is stuck" in w for w in result.warnings)
    with pytest.raises(StuckError):
        advised({})
    alone = advised({"2 + 2": (10.0,)})
    assert (alone.verdict, alone.ratio) == ("split", None)


def test_of_many_splits_those_around_the_best_are_tried() -> None:
    asked: list[int] = []

    def measure(s: Scenario, replication: int) -> Mapping[str, Any]:
        n = s.fleet.instances
        asked.append(n)
        # the best split of 3,000 is at 777, a narrow valley
        seconds = 100.0 + abs(n - 777) if s.fleet.placement == "disaggregated" else 5000.0
        return metrics(seconds, 0.2, goodput=1000.0 / seconds, cost_per_step=seconds)

    result = split(with_changes(JOB, {"run.replications": 1}), 3000, rules=ANY, measure=measure)
    assert result.chosen.arrangement.label == "777 + 2223"
    assert len(set(asked)) < 200
    assert result.splits == 2999


def test_as_many_replications_as_the_budget_allows_and_the_best_in_any_case() -> None:
    def measure(s: Scenario, replication: int) -> Mapping[str, Any]:
        seconds = 100.0 + abs(s.fleet.instances - 30)
        return metrics(seconds, 0.2, goodput=1000.0 / seconds, cost_per_step=seconds)

    large = with_changes(JOB, {"trainer.batch_samples": 80_000})
    result = split(large, 64, measure=measure, rules=ANY)
    often = {o.arrangement.label for o in result.outcomes if o.replications > 1}
    assert {"30 + 34", "29 + 35", "31 + 33", "colocated sync", "colocated async"} <= often
    assert len(often) < 10
    counts = [o.replications for o in result.outcomes]
    assert counts == sorted(counts, reverse=True), "what ran once comes after what was replicated"


@pytest.mark.parametrize(
    ("gpus", "changes", "rules", "told"),
    [
        (1, {}, Rules(), "at least 1 for the trainer must be left; use 2 or more"),
        (0, {}, Rules(), "between 1 and 100,000"),
        (16, {"engine.tp": 3}, Rules(), "multiple of the 3 GPUs of an instance.*use 15 or 18"),
        (2, {"engine.tp": 4}, Rules(), "use 4, or another"),
        (8, {"engine.tp": 4}, Rules(8, 1), "use 12 or more"),
        (8, {}, Rules(1, 16), "use 17 or more"),
    ],
)
def test_gpus_that_cannot_be_split(gpus: int, changes: dict[str, Any], rules: Rules, told: str) -> None:
    with pytest.raises(InputError, match=told):
        split(with_changes(JOB, changes), gpus, rules=rules, measure=fake({}))


def test_the_remedy_works() -> None:
    """What the error proposes can be split, and one instance's GPUs less cannot."""
    for tp, least, unit in ((1, 1, 1), (4, 8, 1), (4, 6, 8), (3, 1, 2), (2, 5, 3)):
        job = with_changes(JOB, {"engine.tp": tp, "run.replications": 1})
        rules = Rules(least, unit)
        with pytest.raises(InputError) as refused:
            split(job, tp, rules=rules, measure=fake({}))
        enough = int(refused.value.problems[0].remedy.split()[1])

        def measure(s: Scenario, replication: int) -> Mapping[str, Any]:
            return metrics(10.0, 0.2)

        found = split(job, enough, rules=rules, measure=measure)
        trainers = [o.arrangement.trainer_gpus for o in found.outcomes if o.arrangement.kind == "split"]
        assert trainers
        assert all(t >= least and t % unit == 0 for t in trainers)
        with pytest.raises(InputError):
            split(job, enough - tp, rules=rules, measure=measure)


def test_the_same_seed_gives_the_same_advice() -> None:
    first, second = advice(4), advice(4)
    assert [replace(o, runs=()) for o in first.outcomes] == [replace(o, runs=()) for o in second.outcomes]
    assert first.explanation == second.explanation


@pytest.mark.parametrize(
    ("points", "told"),
    [
        ([[2, 40.0], [4, 60.0]], True),
        ([[1, 50.0], [2, 40.0], [4, 41.0]], True),
        ([[2, 60.0], [4, 40.0]], False),
        ([[2, 40.0], [4, 40.0]], False),
        ([[2, 40.0]], False),
    ],
)
def test_points_that_are_slower_on_more_gpus_are_told(points: list[list[float]], told: bool) -> None:
    times = dict.fromkeys(("1 + 3", "2 + 2", "3 + 1", "colocated sync", "colocated async"), (10.0,))
    job = with_changes(JOB, {"trainer.scaling.points": points})
    found = [text for text in split(job, 4, measure=fake(times)).warnings if "slower on more GPUs" in text]
    assert len(found) == told
    if told:
        (low, low_s), (high, high_s) = points[-2:]
        assert f"({high_s:g} s on {high} GPUs but {low_s:g} s on {low})" in found[0]


@pytest.mark.parametrize("both", [True, False])
def test_what_is_off_on_both_sides_alike_leaves_the_verdict_as_it_is(both: bool) -> None:
    """A trainer that is slower by a factor makes a step of the split longer by it; where one of the colocated way
    becomes so, too, nothing of it is left in their ratio, and nearly all of it where that hardly trains."""
    likeliest: dict[tuple[str, int], float] = {}

    def measure(s: Scenario, replication: int) -> Mapping[str, Any]:
        shared = s.fleet.placement == "colocated"
        now = s.trainer.fixed_s + s.trainer.per_token_s
        slower = now / likeliest.setdefault((s.fleet.placement, s.fleet.instances), now)
        seconds = 1000.0 + now if shared and not both else (1000.0 if shared else 500.0 + s.fleet.instances) * slower
        return metrics(seconds, 0.2, goodput=1000.0 / seconds, cost_per_step=seconds)

    found = split(JOB, 4, measure=measure)
    assert found.verdict == "split"
    assert found.spread is not None
    assert found.ratio is not None
    ratio = found.ratio.mean
    (low, high) = next(p.factors for p in found.spread.parts if p.what == "trainer seconds")
    assert ratio == pytest.approx(0.5, rel=0.05)
    assert found.spread.ratio == pytest.approx((ratio, ratio) if both else (low * ratio, high * ratio), rel=0.05)
