"""What `fleetsim replay` prints: readable at 80 columns, the verdict first, every number with where it comes from."""

from __future__ import annotations

import json
from typing import Any

import pytest

from fleetsim.config.scenario import Scenario
from fleetsim.estimates import Estimate
from fleetsim.history.history import InstanceId, Note
from fleetsim.records import replace
from fleetsim.replay.answers import Answers
from fleetsim.replay.backtest import Backtest, Slice
from fleetsim.replay.change.verification import Verification, VerifyItem
from fleetsim.replay.change.what_if import Effect, KeyPoint, KeySweep, WhatIf
from fleetsim.replay.compared_quantities import ComparedRow, error_words
from fleetsim.replay.diagnose.cures import cures_of
from fleetsim.replay.diagnose.diagnosis import diagnose
from fleetsim.replay.diagnose.finding import pools_of
from fleetsim.replay.facts import further_faults, replay_document
from fleetsim.replay.observe.observed import Observed, Reading
from fleetsim.replay.observed_tables import lengths
from fleetsim.replay.run import Replayed
from fleetsim.replay.told import document as told
from fleetsim.tell.console import as_text
from fleetsim.tell.data import dumps
from fleetsim.tell.document import Document
from fleetsim.tell.terminal import draw
from tests.replay.windows import (
    ENGINES_ONLY,
    HEALTHY,
    RUN_LOG_ONLY,
    START,
    STARVED,
    exported,
    instance,
    instances,
    window,
)


def lines_of(document: Document, width: int = 80, explain: bool = True) -> list[str]:
    return as_text(draw(document, explain), width).splitlines()


def flat(document: Document) -> str:
    return " ".join(" ".join(lines_of(document)).split())


def result_of(observed: Observed, backtest: Backtest | None = None, **changes: Any) -> Replayed:
    scenario = Scenario()
    verdict = diagnose(observed, scenario, backtest)
    priced = pools_of(observed, scenario).assumed
    return replace(Replayed(observed, verdict, cures_of(observed, verdict), priced, None, backtest, None), **changes)


def estimate(mean: float, half: float = 0.0) -> Estimate:
    return Estimate(mean, mean - half, mean + half)


def row(quantity: Any, observed: float, predicted: float, measure: Any, error: float) -> ComparedRow:
    return ComparedRow(quantity, observed, predicted, estimate(predicted), error, measure, abs(error) <= 0.1)


RIGHT = (row("tok_s", 32_000, 32_500, "ratio", 0.0156), row("trainer_idle", 0.365, 0.35, "points", -0.015))
OFF = (*RIGHT, row("step_s", 37.0, 42.2, "ratio", 0.141), row("queue", 3.0, 9.0, "batches", 0.0117))


def backtest(rows: tuple[ComparedRow, ...], verdict: Any) -> Backtest:
    slices = tuple(Slice(START + 3600 * k, START + 3600 * (k + 1), k >= 3, rows) for k in range(6))
    where = ("re-check weight-sync pauses",) if verdict == "wrong" else ()
    return Backtest(rows, slices, verdict, 0.10, where, 60, 3)


def test_the_worst_fault_comes_first_with_its_evidence_its_price_and_what_follows() -> None:
    document = told(result_of(window(**STARVED)))
    lines = lines_of(document, explain=False)
    assert lines[0] == "The trainer waits for samples 36.5 % of every step: the fleet is too small."
    assert lines[1].startswith("evidence  60 requests run on an instance, 0.0 % of all wait there")
    assert lines[3] == "price     up to 70.1 GPU-h and $255.00 a day; a step up to 36.5 % shorter"
    assert [line.split()[0] for line in lines[4:6]] == ["next", "fleetsim"]
    assert len(lines) <= 12
    text = " ".join(lines_of(document))
    assert text.index("findings") < text.index("observed: fleet") < text.index("assumed")


def test_what_was_asked_for_is_shown_beside_the_first_lines() -> None:
    text = " ".join(lines_of(told(result_of(HEALTHY), Answers(what_if=WHAT_IF)), explain=False))
    assert "what if" in text
    assert "observed: fleet" not in text


def test_further_faults_are_a_line_each_the_dearest_first() -> None:
    slow = (*instances(7), instance(7, pace=0.8, straggler=True))
    both = window(**STARVED, instances=slow, **{"trainer.sync_s": exported(6.0)})
    result = result_of(both)
    also = [f.usd_per_day or 0.0 for f in further_faults(result.verdict)]
    assert len(also) > 1
    assert also == sorted(also, reverse=True)
    lines = lines_of(told(result), explain=False)
    assert sum(line.startswith("also") for line in lines) == len(also)
    assert sum(line.startswith("fine") for line in lines) == 1


def test_a_model_that_is_wrong_is_a_place_to_look_at_and_no_change() -> None:
    document = told(result_of(HEALTHY, backtest(OFF, "wrong")))
    wrong = " ".join(" ".join(lines_of(document, explain=False)).split())
    assert "doubt this window is not explained: simulated, optimizer step is 42.2 s, not 37.0 s (+14.1 %)" in wrong
    assert "look at re-check weight-sync pauses" in wrong


def test_a_window_of_a_few_steps_says_so_beside_its_headline() -> None:
    short = {"end_s": START + 240.0, "trainer.steps": exported(4.0)}
    lines = lines_of(told(result_of(window(**STARVED | short))))
    assert lines[0].startswith("The trainer waits for samples 36.5 %")
    assert lines[1].startswith("doubt     Too few to judge by: 4 optimizer steps in 4 min 00 s.")
    unseen = flat(told(result_of(window(ENGINES_ONLY, end_s=START + 240.0))))
    assert "Too few to judge by: 4 min 00 s, and no optimizer step." in unseen
    for enough in (HEALTHY, ENGINES_ONLY):
        assert "Too few" not in flat(told(result_of(enough)))


@pytest.mark.parametrize("observed", [HEALTHY, window(**STARVED), ENGINES_ONLY, RUN_LOG_ONLY])
def test_every_window_fits_80_columns_and_needs_no_colour(observed: Observed) -> None:
    lines = lines_of(told(result_of(observed, backtest(OFF, "wrong"))))
    assert max(map(len, lines)) <= 80
    for finding in ("data", "trainer", "weight sync", "rollout", "backlog", "model"):
        assert any(finding in line for line in lines)
    assert not any(word in line for line in lines for word in ("None", "nan", "\x1b"))


def test_a_fault_has_its_mark_its_size_and_its_grounds() -> None:
    text = flat(told(result_of(window(**STARVED))))
    assert "FAULT rollout too few instances up to 70.1 GPU-h and $255.00 a day - the trainer waits" in text


def test_what_was_assumed_is_said() -> None:
    text = flat(told(result_of(HEALTHY)))
    assert "$3.64 a rollout GPU-hour (cost.instance_price_usd_per_gpu_h)" in text
    assert "8 trainer GPUs (trainer.gpus)" in text


def test_a_large_fleet_shows_its_worst_and_sums_up_the_rest() -> None:
    slow = instance(63, pace=0.6, straggler=True, active_tok_s=2300.0, restarts=2)
    lines = lines_of(told(result_of(window(instances=(*instances(63), slow)))))
    first = next(i for i, line in enumerate(lines) if line.startswith("instances, slowest first"))
    assert lines[first + 2].startswith("  rollout-63 (2 restarts)")
    assert any(line.startswith("  and 53 more: 4,100 to 4,100 tok/s") for line in lines)
    assert sum(line.lstrip().startswith("rollout-") for line in lines[first:]) == 11


def test_long_pod_names_keep_the_end_that_tells_them_apart() -> None:
    pods = tuple(
        replace(instance(n), id=InstanceId(f"verl-rollout-engines-deployment-7f9c5d-{n:05d}")) for n in range(3)
    )
    lines = lines_of(told(result_of(window(instances=pods))))
    assert sum("7f9c5d-0000" in line for line in lines) == 3
    assert max(map(len, lines)) <= 80


def test_numbers_say_where_they_come_from() -> None:
    inferred = window(**{"trainer.step_s": Reading(24.0, "inferred"), "trainer.wait_s": Reading(0.5, "log")})
    lines = lines_of(told(result_of(inferred)))
    assert any(line.startswith("  optimizer step") and line.endswith("inferred") for line in lines)
    assert any(line.startswith("  waits for samples") and line.endswith("run log") for line in lines)
    assert any(line.startswith("  computes") and line.endswith("exported") for line in lines)


def test_what_nobody_exports_is_absent_not_zero() -> None:
    bare = window(
        ENGINES_ONLY,
        instances=instances(3, kv_use=None, preemptions=None, prefix_hit=None, running=None, waiting=None),
        pauses=None,
        **{
            "fleet.kv_use": None,
            "fleet.preemptions_per_s": None,
            "fleet.prefix_hit": None,
            "fleet.running": None,
            "fleet.waiting": None,
        },
    )
    lines = lines_of(told(result_of(bare)))
    text = "\n".join(lines)
    for gone in ("KV cache in use", "preemptions an hour", "prefix cache hits", "requests running", "requests waiting"):
        assert gone not in text
    assert "engines paused not to be seen" in " ".join(text.split())
    assert "neither exported nor to be inferred: give --map" in " ".join(text.split())
    rows = [line.split() for line in lines if line.strip().startswith("rollout-")]
    assert all(cells[-5:] == ["-"] * 5 for cells in rows)


def test_notes_on_the_data_are_told() -> None:
    noted = window(notes=(Note("gap", "rollout-3 has no values from 14:00 to 14:10", 0.01),))
    assert "gap rollout-3 has no values from 14:00 to 14:10 (1.0 %)" in flat(told(result_of(noted)))


def test_a_quantile_beyond_the_last_bound_is_said_to_be_above_it() -> None:
    inf = float("inf")
    changes = {"lengths.le": (1000.0, 5000.0, inf), "lengths.count": (900.0, 80.0, 20.0), "lengths.p99": 5000.0}
    assert "p99 above 5,000" in str(lengths(window(**changes).lengths).rows)
    assert "above" not in str(lengths(window(**{**changes, "lengths.count": (900.0, 99.0, 1.0)}).lengths).rows)


def test_a_back_test_that_holds_and_one_that_does_not() -> None:
    good = flat(told(result_of(HEALTHY, backtest(RIGHT, "ok"))))
    assert "every quantity within 10.0 %, worst: generated tok/s +1.6 %." in good
    assert "read what-ifs as directions" not in good
    wrong = flat(told(result_of(HEALTHY, backtest(OFF, "wrong"))))
    assert "one quantity is off by more than 10.0 %" in wrong
    assert "optimizer step 37.0 s 42.2 s +14.1 % OFF" in wrong
    assert "The model is wrong somewhere. Where to look: - re-check weight-sync pauses" in wrong
    assert "read what-ifs as directions, not as numbers" in wrong
    assert "fitted" in wrong
    assert "held out" in wrong


def test_errors_are_told_in_their_own_measure() -> None:
    assert [error_words(r) for r in OFF] == ["+1.6 %", "-1.5 points", "+14.1 %", "+0.01 batches"]
    assert [error_words(r, short=True) for r in OFF] == ["+1.6 %", "-1.5 p", "+14.1 %", "+0.01 b"]


def test_the_back_test_is_a_finding_too() -> None:
    verdict = result_of(HEALTHY, backtest(OFF, "wrong")).verdict
    model = verdict.findings[-1]
    assert (model.check, model.state, verdict.binding) == ("model", "fault", "model")
    assert model.next == "re-check weight-sync pauses"
    assert "optimizer step: observed 37.0 s, predicted 42.2 s" in model.evidence[0]
    starved = result_of(window(**STARVED), backtest(OFF, "wrong")).verdict
    assert starved.binding == "rollout"  # a wrong model is where to look, not what to change
    assert result_of(HEALTHY, Backtest((), (), "unknown", 0.1, (), 60, 3)).verdict.findings[-1].state == "unknown"


WHAT_IF = WhatIf(
    {"fleet.instances": 10},
    (
        Effect("step_s", estimate(37.0, 0.5), estimate(30.0, 0.4), estimate(0.811, 0.01), True),
        Effect("queue_depth", estimate(3.0), estimate(3.1), estimate(1.03, 0.2), False),
    ),
    ("rollout", "trainer"),
    3,
    ("loads beyond those seen are extrapolated",),
)
SWEEP = KeySweep(
    "fleet.instances",
    8,
    (
        KeyPoint(8, {name: estimate(1.0) for name in (
            "step_s", "trainer_idle_fraction", "rollout_idle_fraction", "queue_depth", "staleness_steps.p99",
            "cost_per_step",
        )}, "rollout", None),
        KeyPoint(1, None, None, "nothing fits"),
    ),
    3,
)  # fmt: skip
FAILED = Verification(
    (
        VerifyItem("instances", "ok", 10, 10, "10 instances, 10 planned"),
        VerifyItem("trainer_idle", "failed", 0.2, 0.05, "trainer idle 20.0%, at most 5.0%"),
        VerifyItem("queue", "unknown", None, 512, "the queue's depth is not exported"),
    ),
    ("the window holds 30 optimizer steps",),
    "re-measure",
    ("trainer idle at most 5.0%, 12.0% predicted",),
)


def test_what_if_sweep_and_verification() -> None:
    answers = Answers(what_if=WHAT_IF, sweep=SWEEP, verification=FAILED)
    lines = lines_of(told(result_of(HEALTHY), answers))
    text = " ".join(" ".join(lines).split())
    assert max(map(len, lines)) <= 80
    assert "fleet.instances = 10 now then ratio optimizer step 37.0 s ±0.5 30.0 s ±0.4 0.811 ±0.010" in text
    assert "samples in the queue 3 3.1 no significant change" in text
    assert "What binds: rollout, then trainer" in text
    assert "fleet.instances = 1: nothing fits" in text
    assert "1 of 3 items do not hold. ok instances" in text
    assert "FAILED trainer idle trainer idle 20.0%" in text
    assert "the plan itself misses the target: trainer idle at most 5.0%, 12.0% predicted" in text
    assert "next: re-measure" in text
    assert text.index("verification") < text.index("findings")


def test_json_has_everything_and_no_number_that_json_lacks() -> None:
    endless = window(**{"lengths.le": (500.0, 1000.0, 2000.0, 5000.0, float("inf"))})
    answers = Answers(what_if=WHAT_IF, sweep=SWEEP, verification=FAILED)
    document = json.loads(dumps(replay_document(result_of(endless, backtest(OFF, "wrong")), answers)))
    assert document["schema_version"] == 2
    assert document["command"] == "replay"
    assert document["observed"]["lengths"]["le"][-1] is None
    assert document["observed"]["span_s"] == endless.span_s
    assert document["verdict"]["findings"][0]["check"] == "data"
    assert document["backtest"]["worst"] == "step_s"
    assert document["what_if"]["changes"] == {"fleet.instances": 10}
    assert document["verification"]["ok"] is False
    assert document["recommendation"] is None
    empty = json.loads(dumps(replay_document(result_of(RUN_LOG_ONLY), Answers())))
    assert empty["observed"]["fleet"] is None
    assert empty["what_if"] is None


def test_an_error_of_nothing_is_not_named_the_worst() -> None:
    text = flat(told(result_of(HEALTHY, backtest((row("queue", 3.0, 3.0, "batches", 0.001),), "ok"))))
    assert "every quantity within 10.0 %." in text
    assert "worst" not in text
