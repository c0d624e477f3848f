"""An instance that vanishes is named, with its time and its share; one that comes and goes, or is replaced, is not."""

from __future__ import annotations

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st

from fleetsim import units
from fleetsim.history.history import History
from fleetsim.records import replace
from fleetsim.replay.diagnose.checks.case import Gains
from fleetsim.replay.diagnose.diagnosis import diagnose
from fleetsim.replay.observe.observe import observe
from fleetsim.replay.run import replay
from fleetsim.replay.words import ordered, price_words, size_words
from tests.replay.histories import START, Fleet
from tests.replay.independent import Job, run
from tests.replay.test_diagnose import DEFAULT, STARVED, finding, judged, scenario, text
from tests.replay.test_withheld import file_of
from tests.replay.windows import HEALTHY, window

SIX = Fleet(instances=6, span_s=7200.0)


def without(history: History, row: int, begin: int, end: int | None = None) -> History:
    """Nothing is read of an instance from one time of the grid to another."""
    values = {name: v.copy() for name, v in history.values.items()}
    for v in values.values():
        v[row, begin:end] = np.nan
    return replace(history, values=values)


def test_it_is_named_with_its_time_and_its_share() -> None:
    observed = observe(without(SIX.history(), 2, 100))
    (gone,) = observed.departed
    assert (gone.id.name, gone.of, gone.replaced_by) == ("rollout-2", 6, None)
    assert gone.at_s == START + 99 * 15.0
    said = "rollout-2 vanished at 2026-09-21 14:38 UTC, 16.7 % of the fleet of 6"
    assert said in [note.text for note in observed.notes]
    verdict = diagnose(observed, DEFAULT)
    assert said in text(finding(verdict, "rollout"))
    assert "rollout-2 vanished" in verdict.headline


def test_one_that_is_replaced_soon_says_by_whom_and_leaves_the_headline_alone() -> None:
    history = without(without(SIX.history(), 2, 100), 5, 0, 110)
    (gone,) = observe(history).departed
    assert gone.replaced_by is not None
    assert gone.replaced_by.name == "rollout-5"
    assert "vanished" not in diagnose(observe(history), DEFAULT).headline


@pytest.mark.parametrize("later", [-20, -10, -2, 0, 1, 5])
def test_one_that_is_only_renamed_has_not_vanished(later: int) -> None:
    """Prometheus shows the old name for up to five minutes (20 samples) beside the new one; the fleet is of six."""
    history = without(without(Fleet(instances=7, span_s=7200.0).history(), 2, 100), 5, 0, 100 + later)
    observed = observe(history)
    (gone,) = observed.departed
    assert (str(gone.id), str(gone.replaced_by), gone.of) == ("rollout-2", "rollout-5", 6)
    verdict = diagnose(observed, DEFAULT)
    told = [verdict.headline, *(note.text for note in observed.notes), *map(text, verdict.findings)]
    assert not any("vanished" in words for words in told)
    assert any("rollout-5 took the place of rollout-2 at" in words for words in told)


def test_an_instance_that_appeared_long_before_took_no_place() -> None:
    history = without(without(Fleet(instances=7, span_s=7200.0).history(), 2, 100), 5, 0, 70)
    (gone,) = observe(history).departed
    assert gone.replaced_by is None


@pytest.mark.parametrize("gain", [0.02, 0.032, 0.05, 0.058, 0.06, 0.065])
def test_what_went_is_started_again_where_more_instances_pay(gain: float) -> None:
    """A quarter more of 8 rollout GPUs beside 8 of the trainer: they pay while step time x cost per step falls."""
    (gone,) = observe(without(SIX.history(), 2, 100)).departed
    slow = {**STARVED, "fleet.idle_share": 0.4, "departed": (replace(gone, waits=(0.671, 0.692)),)}
    base, given = scenario()
    verdict = diagnose(window(**slow), base, given=given, gains=Gains({"rollout": gain}, was=8))
    now, then = 16.0, (1 - gain) * ((1 - gain) * (8 + 1.25 * 8))
    told = finding(verdict, "rollout").next or ""
    assert told.startswith("start rollout-2 again" if then < now else "rollout-2 need not come back")


def test_instances_are_added_to_those_that_are_left() -> None:
    """Four until one went in the middle, 3.5 on average; three were simulated, and four. Of 8 trainer GPUs and one an
    instance that gives 0.15 x 8 + 3 - 0.85 x 4 = 0.8 GPUs back."""
    halved = {"fleet.instances": 3.5, "fleet.instances_now": 3, "fleet.instances_min": 3, "fleet.instances_max": 4}
    base, given = scenario()
    more = Gains({"rollout": 0.15}, was=3)
    f = finding(diagnose(window(**STARVED, **halved), base, given=given, gains=more), "rollout")
    assert "simulated with 4 instances instead of 3, a step is 15.0 % shorter" in text(f)
    assert f.gpu_h_per_day == pytest.approx(24 * 0.8)


def test_a_history_without_one_of_four_is_simulated_and_priced_from_three() -> None:
    job = Job(each_s=0.0008, instances=4, train_s=20.0, staleness=2.0, n_exported=True, lost={1: 1800.0})
    base, given = file_of(job)
    found = replay(run(job, hours=1.0).history(), base, given=given)
    f = finding(found.verdict, "rollout")
    assert found.observed.fleet is not None
    assert found.observed.fleet.instances == pytest.approx(3.5, abs=0.01)
    assert f"simulated with 4 instances instead of 3, a step is {units.share(f.step_share)} shorter" in text(f)
    saved, trainer = f.step_share or 0.0, base.trainer.gpus
    assert f.gpu_h_per_day == pytest.approx(24 * (saved * trainer + 3 - (1 - saved) * 4))


def test_a_remedy_that_gives_nothing_by_simulation_has_no_price_and_is_not_advised() -> None:
    slow = window(**{**STARVED, "fleet.idle_share": 0.4})
    base, given = scenario()
    helps, useless = (
        finding(diagnose(slow, base, given=given, gains=Gains({"rollout": 0.0}, was=8), tried=ahead), "rollout")
        for ahead in ({"rollout": 0.2}, {"rollout": 0.0})
    )
    assert helps.step_share == 0.2
    assert "fleetsim replay" in (helps.next or "")
    assert "simulated with this change, a step is 0.0 % shorter" in useless.evidence
    assert (price_words(useless), useless.step_share) == (None, None)
    assert "fleetsim" not in (useless.next or "")


def test_a_simulated_price_is_no_upper_bound() -> None:
    slow = window(**{**STARVED, "fleet.idle_share": 0.4})
    base, given = scenario()
    rule, simulated = (
        finding(diagnose(slow, base, given=given, gains=Gains({"rollout": 0.0}, was=8), tried=ahead), "rollout")
        for ahead in ({}, {"rollout": 0.2})
    )
    assert (size_words(rule) or "").startswith("up to ")
    assert "up to" not in (size_words(simulated) or "up to")


def test_a_last_scrape_that_failed_and_a_hole_are_no_departure() -> None:
    history = SIX.history()
    last = len(history.times) - 2
    assert observe(without(history, 2, last)).departed == ()
    assert observe(without(history, 2, 100, 110)).departed == ()
    lent = without(without(history, 2, 100, 140), 2, 300)  # away for ten minutes, then away again
    assert observe(lent).departed == ()


def test_a_fleet_that_is_too_small_since_then_says_so() -> None:
    observed = observe(without(SIX.history(), 2, 100))
    (gone,) = observed.departed
    verdict = judged(window(**STARVED, departed=(replace(gone, waits=(0.10, 0.45)),)))
    assert verdict.binding == "rollout"
    assert verdict.headline.endswith("the fleet is too small since rollout-2 vanished.")
    assert "the trainer waited 10.0 % of its time before and 45.0 % after" in text(finding(verdict, "rollout"))
    assert "vanished" not in judged(HEALTHY).headline


@pytest.mark.parametrize("waits", [None, (0.671, 0.692), (0.45, 0.10)])
def test_since_then_is_said_only_where_the_trainer_waits_longer_since(waits: tuple[float, float] | None) -> None:
    (gone,) = observe(without(SIX.history(), 2, 100)).departed
    verdict = judged(window(**STARVED, departed=(replace(gone, waits=waits),)))
    assert verdict.headline.endswith("the fleet is too small.")
    assert "rollout-2 vanished at" in text(finding(verdict, "rollout"))


def test_slow_responses_do_not_hold_a_batch_up_since_an_instance_went() -> None:
    (gone,) = observe(without(SIX.history(), 2, 100)).departed
    changes = {**STARVED, "fleet.idle_share": 0.4, "departed": (replace(gone, waits=(0.10, 0.45)),)}
    assert judged(window(**changes)).headline.endswith("the slowest responses of each batch hold it up.")


@pytest.mark.parametrize("waits", [None, (0.671, 0.692)])
def test_what_befell_the_window_leads_the_headline_and_what_to_do(waits: tuple[float, float] | None) -> None:
    (gone,) = observe(without(SIX.history(), 2, 100)).departed
    changes = {**STARVED, "fleet.idle_share": 0.4, "departed": (replace(gone, waits=waits),)}
    verdict = judged(window(**changes))
    assert verdict.headline.startswith("rollout-2 vanished at 2026-09-21 14:38 UTC and nothing took the place")
    (rollout,) = [f for f in verdict.findings if f.check == verdict.binding]
    assert (rollout.next or "").startswith("start rollout-2 again")
    heir = window(**{**changes, "departed": (replace(gone, replaced_by=gone.id),)})
    less = window(**{**changes, "departed": (replace(gone, waits=(0.45, 0.10)),)})  # the fleet does without it
    for other in (heir, less):
        assert "vanished" not in judged(other).headline
        assert "again" not in (finding(judged(other), "rollout").next or "")


def test_what_is_ruled_out_never_stands_above_a_fault() -> None:
    slow = window(**{**STARVED, "fleet.idle_share": 0.4})
    shown = [f.state for f in ordered(judged(slow))]
    assert shown.index("ok") == shown.count("fault") + shown.count("unknown")
    assert ordered(judged(slow))[0].check == judged(slow).binding
    assert sorted(f.check for f in ordered(judged(slow))) == sorted(f.check for f in judged(slow).findings)


def test_the_wait_on_both_sides_is_that_of_the_trainers_steps() -> None:
    history = without(SIX.history(), 2, 240)
    steps = np.floor((history.times - history.times[0]) / 60.0)
    waited = 6.0 * np.minimum(steps, 60.0) + 30.0 * np.maximum(steps - 60.0, 0.0)
    trainer = {"trainer.steps": steps, "trainer.wait_s_total": waited}
    (gone,) = observe(replace(history, fleet=trainer)).departed
    assert gone.waits == pytest.approx((0.1, 0.5), abs=0.01)
    (early,) = observe(replace(without(SIX.history(), 2, 12), fleet=trainer)).departed
    assert early.waits is None  # 3 steps before


@given(st.lists(st.integers(min_value=20, max_value=470), min_size=1, max_size=4))
def test_everyone_who_went_is_told_once(ends: list[int]) -> None:
    history = Fleet(instances=6, span_s=7200.0).history()
    for row, end in enumerate(ends):
        history = without(history, row, end)
    departed = observe(history).departed
    assert sorted(d.id.name for d in departed) == [f"rollout-{row}" for row in range(len(ends))]
    assert [d.at_s for d in departed] == sorted(START + 15.0 * (end - 1) for end in ends)
    assert all(d.id != d.replaced_by for d in departed)
