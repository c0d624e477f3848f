"""The watcher in virtual time: outage, stale data, flapping, recovery."""

from __future__ import annotations

import threading
import time
from collections.abc import Callable
from typing import Any

import numpy as np
import pytest

from fleetsim.errors import InputError, OutsideError, Problem
from fleetsim.history.prometheus import Prometheus
from fleetsim.policies.scaling import Damping
from fleetsim.records import replace
from fleetsim.watch.evaluation import Looker, of_now
from fleetsim.watch.watch import Look, Status, WallClock, WatchLoop
from tests.history.fake_prometheus import Series, serving

OPTIONS: dict[str, Any] = {"every_s": 60.0, "damping": Damping(up_after=2, down_after=4, cool_down_s=0.0)}
LOOK = Look(data_s=0.0, current=8, wanted=8, observed_idle=0.1, predicted_idle=0.12, model_error=0.03)


class Clock:
    """Virtual time; ends the watch at `end`. Every wait is seen by `waited`."""

    def __init__(self, end: float, waited: Callable[[float], None] = lambda now: None) -> None:
        self.t, self.end, self._waited = 0.0, end, waited

    def now(self) -> float:
        return self.t

    def wait(self, seconds: float) -> bool:
        self._waited(self.t)
        self.t += seconds
        return self.t >= self.end


def watched(
    look: Callable[[float], Look], minutes: int, options: dict[str, Any] = OPTIONS
) -> tuple[list[Status], list[str]]:
    """The status after each evaluation, and what was told."""
    told: list[str] = []
    seen: list[Status] = []
    clock = Clock(minutes * 60.0, lambda now: seen.append(watch.status()))
    watch = WatchLoop(look, clock, told.append, **options)
    watch.run()
    return seen, told


def fresh(now: float, wanted: int | None = 8) -> Look:
    return replace(LOOK, data_s=now - 10, wanted=wanted)


def test_a_quiet_fleet() -> None:
    seen, told = watched(fresh, 10)
    assert [s.recommended for s in seen] == [None] + [8] * 9
    assert seen[0].withheld == "starting"
    assert {s.withheld for s in seen[1:]} == {None}
    assert all(s.up and s.data_age_s == 10.0 for s in seen)
    assert seen[-1].evaluations == {"ok": 10, "failed": 0}
    assert len(told) == 1
    assert told[0].startswith("recommended instances: 8 (was nothing)")


def test_an_outage_holds_then_withdraws_then_recovers() -> None:
    def look(now: float) -> Look:
        if 300 <= now < 900:
            raise OutsideError("Prometheus does not answer")
        return fresh(now)

    seen, told = watched(look, 25)
    by_minute = [(s.up, s.recommended, s.withheld) for s in seen]
    assert by_minute[1:5] == [(True, 8, None)] * 4
    assert by_minute[5:9] == [(False, 8, None)] * 4  # newest sample at 230 s: good until 530 s
    assert by_minute[9:15] == [(False, None, "stale")] * 6
    assert by_minute[15:] == [(True, 8, None)] * 10
    stale = seen[10]
    assert stale.look is None
    assert stale.last_success_s == 240.0
    assert stale.data_age_s == 600 - 230
    assert [t.split(":")[0].split(",")[0] for t in told] == [
        "recommended instances",
        "this evaluation failed",
        "evaluations succeed again",
    ]


def test_stale_data_from_a_prometheus_that_answers() -> None:
    """The exporters are gone; Prometheus goes on answering with what it has."""
    seen, _ = watched(lambda now: replace(LOOK, data_s=min(now, 200.0), wanted=20 if now > 500 else 8), 20)
    assert [s.recommended for s in seen[9:]] == [None] * 11
    assert all(s.up and s.withheld == "stale" for s in seen[9:])
    assert seen[8].recommended == 8


def test_wishes_from_stale_data_do_not_count() -> None:
    """Five minutes of wishes for 20 while stale; when fresh data come they must be wished anew."""
    seen, _ = watched(lambda now: replace(fresh(now, 8 if now < 420 else 20), data_s=60 if now < 720 else now), 16)
    assert [s.recommended for s in seen[12:]] == [8, 20, 20, 20]


def test_wishes_before_an_outage_do_not_count_after_it() -> None:
    def look(now: float) -> Look:
        if 180 < now < 900:
            raise OutsideError("gone")
        return fresh(now, 8 if now < 180 else 12)

    seen, _ = watched(look, 18)
    assert seen[3].recommended == 8  # the first wish, at 180 s
    assert [s.recommended for s in seen[15:]] == [8, 12, 12]


def test_flapping_is_damped() -> None:
    seen, _ = watched(lambda now: fresh(now, 9 if now / 60 % 2 else 7), 60)
    assert {s.recommended for s in seen[2:]} == {8}
    assert seen[-1].changes == 0
    assert {s.look.wanted for s in seen if s.look} == {7, 9}


def test_up_in_two_minutes_down_in_four() -> None:
    seen, _ = watched(lambda now: fresh(now, 10 if now < 600 else 6), 20)
    assert [s.recommended for s in seen[:3]] == [None, 10, 10]  # it was wanted from the start
    assert [s.recommended for s in seen[10:]] == [10, 10, 10, 6, 6, 6, 6, 6, 6, 6]


def test_a_look_that_hangs_withdraws_the_recommendation_meanwhile() -> None:
    seen, _ = watched(fresh, 5)
    assert seen[-1].recommended == 8
    clock = Clock(1e9)
    watch = WatchLoop(fresh, clock, lambda text: None, **OPTIONS)
    for _ in range(3):
        watch.evaluate()
        clock.t += 60
    assert watch.status(clock.t).recommended == 8
    assert watch.status(clock.t + 400).recommended is None  # no evaluation since


def test_a_look_that_cannot_be_trusted_keeps_the_count_and_says_why() -> None:
    def look(now: float) -> Look:
        doubt = replace(fresh(now, None), withheld="model", why="the back-test is off by 40 %")
        return doubt if 300 <= now < 600 else fresh(now)

    seen, told = watched(look, 15)
    assert [s.recommended for s in seen[4:11]] == [8] * 7
    assert [s.withheld for s in seen[4:11]] == [None, *["model"] * 5, None]
    assert seen[6].look is not None  # what was seen stays visible
    assert sum("the back-test is off by 40 %; kept: 8 instances" in line for line in told) == 1


def test_a_count_that_is_wanted_beside_a_fault_never_moves_the_fleet() -> None:
    """A sick trainer for an hour: what was recommended before stays, whatever is there or would be wanted."""

    def look(now: float) -> Look:
        sick = replace(fresh(now, None), withheld="trainer", why="first mend the trainer", then=3, current=5)
        return sick if now >= 300 else fresh(now)

    seen, _ = watched(look, 60)
    assert {s.recommended for s in seen[1:]} == {8}
    assert {s.withheld for s in seen[5:]} == {"trainer"}
    assert seen[-1].changes == 0


def test_a_watcher_that_starts_beside_a_fault_keeps_what_is_there() -> None:
    """After as many looks as a recommendation needs: a restart amid a roll-out moves nothing. Not the plan's count."""
    sick = replace(LOOK, wanted=None, withheld="trainer", why="first mend the trainer", current=6)
    seen, _ = watched(lambda now: replace(sick, data_s=now - 10), 5, {**OPTIONS, "start": 11})
    assert [s.recommended for s in seen] == [None, 6, 6, 6, 6]
    well, _ = watched(lambda now: fresh(now) if now > 180 else replace(sick, data_s=now), 6, {**OPTIONS, "start": 11})
    assert [s.recommended for s in well] == [None, 6, 6, 6, 11, 11]


def test_without_a_plan_what_is_there_is_kept() -> None:
    seen, _ = watched(lambda now: fresh(now, None), 5)
    assert {s.withheld for s in seen} == {"no_plan"}
    assert [s.recommended for s in seen] == [None, 8, 8, 8, 8]
    gone, _ = watched(lambda now: replace(fresh(now, None), current=0), 5)
    assert {s.recommended for s in gone} == {None}  # a fleet that is not seen is not kept at nothing


def test_samples_from_the_future_are_not_fresh() -> None:
    seen, _ = watched(lambda now: replace(LOOK, data_s=now + 3600), 5)
    assert {s.withheld for s in seen} == {"stale"}


def test_a_plan_is_held_from_the_first_good_look() -> None:
    seen, _ = watched(fresh, 5, {**OPTIONS, "start": 11})
    assert [s.recommended for s in seen] == [11, 11, 11, 8, 8]  # down after four evaluations


def test_slow_looks_do_not_drift_the_schedule() -> None:
    at: list[float] = []

    def look(now: float) -> Look:
        at.append(now)
        clock.t += 45
        return fresh(now)

    clock = Clock(300.0)
    WatchLoop(look, clock, lambda text: None, **OPTIONS).run()
    assert at == [0, 60, 120, 180, 240]


def test_bad_input_of_one_evaluation_does_not_end_the_watch() -> None:
    def look(now: float) -> Look:
        if now < 120:
            raise InputError([])  # an empty window: the fleet is not up yet
        return fresh(now)

    seen, _ = watched(look, 6)
    assert [s.recommended for s in seen] == [None, None, None, 8, 8, 8]


def test_the_wall_clock_can_be_stopped_from_elsewhere() -> None:
    clock = WallClock()
    watch = WatchLoop(lambda now: replace(LOOK, data_s=now), clock, lambda t: None, every_s=3600, stale_s=7200)
    thread = threading.Thread(target=watch.run)
    thread.start()
    clock.stop()
    thread.join(10)
    assert not thread.is_alive()
    assert watch.status().evaluations["ok"] == 1


@pytest.mark.parametrize(("every", "stale"), [(0.0, 300.0), (float("nan"), 300.0), (60.0, 100.0), (60.0, float("inf"))])
def test_senseless_times_are_refused(every: float, stale: float) -> None:
    with pytest.raises(InputError):
        WatchLoop(lambda now: LOOK, WallClock(), print, every_s=every, stale_s=stale)


def test_an_empty_window_is_told_in_the_watcher_s_own_flags() -> None:
    now = time.time()
    times = now - 7200 + 15.0 * np.arange(200)
    series = Series({"__name__": "vllm:num_requests_running", "job": "r", "instance": "a"}, times, times * 0 + 3)
    with serving([series]) as fake:
        prometheus = Prometheus(fake.url)
        prometheus.query("vllm:num_requests_running", now)  # its clock is known from any answer
        look = Looker(prometheus, lambda text: None, window_s=1800.0)
        with pytest.raises(InputError) as caught:
            look(now)
    text = str(caught.value)
    assert text.startswith("--window: ")
    assert "--start" not in text


@pytest.mark.parametrize(
    "remedy", ["give a window inside that", "let --end come after --start", "give a longer window"]
)
def test_a_remedy_names_the_watcher_s_window(remedy: str) -> None:
    mended = of_now(Problem("--start", "x", "is wrong", remedy))
    assert mended.path == "--window"
    assert mended.remedy.endswith("give a longer --window")
    assert of_now(Problem("--selector", "x", "is wrong", remedy)).remedy == remedy
