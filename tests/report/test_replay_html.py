"""The page of a replayed window: what its charts hold is what was observed, and what was not observed is said."""

from __future__ import annotations

from functools import cache

import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from fleetsim.history.history import History, InstanceId
from fleetsim.records import replace
from fleetsim.replay.answers import Answers
from fleetsim.replay.change.recommendation import AdvisedFleet
from fleetsim.replay.observe.intervals import intervals_of
from fleetsim.replay.observe.observed import Departure
from fleetsim.replay.observe.over_time import over_time
from fleetsim.replay.result import ReplayResult
from fleetsim.replay.run import Replayed, replay
from fleetsim.replay.told import time_charts
from fleetsim.tell.charts.chart import Chart, Plot, Spans
from fleetsim.tell.charts.draw import chart_html
from tests.replay.histories import START, Fleet, log_of
from tests.report.small_pages import sized
from tests.report.test_profile_html import Page, asks, named

pytest.importorskip("jinja2", reason='the pages need pip install "fleetsim[report]"')

NOTHING = Answers()


def replay_page(history: History, result: Replayed, answers: Answers) -> str:
    return ReplayResult(history, result, answers, ()).page()


def judged(history: History) -> Replayed:
    return replay(history, model=False, back_test=False)


def page_of(history: History) -> Page:
    return Page(replay_page(history, judged(history), NOTHING))


def with_trainer(history: History, idle: float = 0.25, step_s: float = 60.0) -> History:
    """A trainer that completes a step every `step_s` and waits for a share `idle` of it."""
    at = history.times - history.times[0]
    steps = np.floor(at / step_s)
    return replace(
        history,
        fleet={
            "trainer.steps": steps,
            "trainer.wait_s_total": steps * step_s * idle,
            "trainer.train_s_total": steps * step_s * (1 - idle),
            "queue.samples": 100.0 + 50.0 * np.sin(at / 200),
        },
    )


def words_of(page: Page) -> str:
    return " ".join(" ".join(page.words).split())


def drawn_of(history: History, result: Replayed | None = None) -> dict[str, Chart]:
    """The charts of a window, by id."""
    found = (result or judged(history)).observed
    return {chart.id: chart for chart in time_charts(over_time(history, found), found)}


def test_rates_and_loads_are_those_of_the_window() -> None:
    history = Fleet(instances=5, rate=3000.0, running=40.0, span_s=1800.0).history()
    drawn = drawn_of(history)
    assert named(drawn["fleet"], "output tokens").y == pytest.approx([15_000.0] * 120, rel=1e-4)
    assert named(drawn["fleet"], "running").y == [200.0] * 120
    assert named(drawn["fleet"], "instances").y == [5.0] * 120
    assert named(drawn["instances"], "median instance").y == pytest.approx([3000.0] * 120, rel=1e-4)


def test_the_trainers_chart_has_its_steps_and_its_waiting() -> None:
    history = with_trainer(Fleet(span_s=3600.0).history())
    result = judged(history)
    page = Page(replay_page(history, result, NOTHING))
    trainer = drawn_of(history, result)["trainer"]
    whole, wait = named(trainer, "the whole step"), named(trainer, "waiting for samples")
    assert set(whole.y) == {60.0}
    assert set(wait.y) == {15.0}
    assert set(named(trainer, "trainer idle").y) == {25.0}
    assert result.observed.trainer.idle_fraction is not None
    assert result.observed.trainer.idle_fraction.value == pytest.approx(0.25)
    assert "waits for samples 25.0 % of its time" in words_of(page)


def test_what_nobody_read_is_a_hole_in_the_line_and_not_zero() -> None:
    history = Fleet(instances=4, span_s=1800.0).history()
    history.values["generation_tokens"][:, 40:70] = np.nan
    history.values["running"][:, 40:70] = np.nan
    page, fleet = page_of(history), drawn_of(history)["fleet"]
    rates = named(fleet, "output tokens").y
    # The counter tells how much was made over the hole, no gauge tells what ran in it.
    assert 0.0 not in rates
    running = named(fleet, "running").y
    assert running[45:65] == [None] * 20
    assert 0.0 not in running
    words = words_of(page)
    assert "nothing was read of any instance for 7 min" in words


def test_a_recommendation_that_misses_its_target_says_so_on_the_page_as_on_the_terminal() -> None:
    plan, history = sized().result, Fleet(span_s=1800.0).history()
    missed = tuple(replace(t, limit=0.05) for t in plan.targets if t.name == "trainer_idle_fraction")
    found = plan.recommended.estimates
    advice = AdvisedFleet(plan.instances, 1, 96, {}, found, plan.recommended, replace(plan, missed=missed))
    result, answers = judged(history), Answers(recommendation=advice)
    terminal = str(ReplayResult(history, result, answers, ()))
    page = words_of(Page(replay_page(history, result, answers)))
    for sentence in (
        "Queue: a cap of 96 samples costs next to no step time.",
        "No fleet holds trainer idle at most 5.0 %; beyond this count, more instances cost more than they save.",
    ):
        assert sentence in page
        assert sentence in " ".join(terminal.split())


def test_stragglers_are_drawn_by_name_in_a_band_of_all() -> None:
    fleet = Fleet(instances=12, span_s=7200.0, slow={7: 0.6}, noise=0.01)
    result = judged(history := fleet.history())
    assert [str(i.id) for i in result.observed.instances if i.straggler] == ["rollout-7"]
    page = Page(replay_page(history, result, NOTHING))
    drawn = drawn_of(history, result)["instances"]
    slow, middle = named(drawn, "rollout-7 (slow)"), named(drawn, "median instance")
    assert np.mean(slow.y) == pytest.approx(0.6 * np.mean(middle.y), rel=0.02)
    assert slow.look.dash != middle.look.dash
    assert "1 straggler: rollout-7." in words_of(page)


def test_pauses_are_shaded_where_they_can_be_seen() -> None:
    pauses = tuple((300.0 + 600 * k, 400.0 + 600 * k) for k in range(6))
    drawn = drawn_of(Fleet(span_s=3600.0, pauses=pauses).history())
    fleet = drawn["fleet"].points
    assert isinstance(fleet, Plot)
    assert len(fleet.shades) == 6
    assert chart_html(drawn["fleet"]).count('<g class="tint">') == len(fleet.panels) == 3
    assert drawn["fleet"].words.endswith("Shaded: pauses of the whole fleet.")


def test_events_have_a_letter_in_the_charts_and_words_in_the_list() -> None:
    history = Fleet(instances=6, span_s=3600.0).history()
    tokens, running = history.values["generation_tokens"], history.values["running"]
    tokens[1, 120:], running[1, 120:] = np.nan, np.nan  # went
    tokens[2, 150:] -= tokens[2, 150] - 1.0  # restarted
    tokens[3, :60], running[3, :60] = np.nan, np.nan  # came
    page = page_of(history)
    words = words_of(page).partition("Named events")[2]
    order = [words.index(told) for told in ("rollout-3 appeared", "rollout-1 vanished", "rollout-2 restarted")]
    assert order == sorted(order)
    fleet = drawn_of(history)["fleet"].points
    assert isinstance(fleet, Plot)
    assert [letter for _, letter in fleet.letters] == ["A", "B", "C"]


def test_strips_cover_the_time_in_which_an_instance_was_there_and_no_other() -> None:
    history = Fleet(instances=3, span_s=1800.0, pauses=((600.0, 720.0),)).history()
    tokens, running = history.values["generation_tokens"], history.values["running"]
    tokens[1, 80:], running[1, 80:] = np.nan, np.nan
    tokens[2, 30:60], running[2, 30:60] = np.nan, np.nan
    drawn = drawn_of(history)["activity"].points
    assert isinstance(drawn, Spans)
    length = [sum(span.end - span.start for span in spans) for _, spans in drawn.rows]
    there = intervals_of(history).present.sum(axis=1) * history.step_s
    assert length == pytest.approx(list(there))
    assert {"working", "paused", "unread"} <= {span.kind for _, spans in drawn.rows for span in spans}
    lanes = [look.lanes for _, look in drawn.looks.values()]
    assert len(set(lanes)) == len(lanes)  # told without colour


@pytest.mark.parametrize(
    ("history", "told", "drawn"),
    [
        (
            Fleet(span_s=1800.0).history(),
            (
                "optimizer steps are neither exported nor to be inferred",
                "Trainer and queue neither exported nor to be inferred",
                "prompt lengths are not exported",
            ),
            {"fleet", "instances", "activity"},
        ),
        (
            log_of(step_s=[30.0] * 40, train_s=[20.0] * 40, wait_s=[5.0] * 40),
            ("what the instances do is unknown", "running and waiting requests are not exported"),
            {"trainer"},
        ),
    ],
)
def test_what_is_not_observed_is_said_and_not_drawn(history: History, told: tuple[str, ...], drawn: set[str]) -> None:
    page = page_of(history)
    words = words_of(page)
    assert all(sentence in words for sentence in told)
    assert drawn_of(history).keys() == drawn


def test_a_day_of_a_large_fleet_stays_below_a_megabyte_and_says_that_it_is_thinned() -> None:
    fleet = Fleet(instances=64, span_s=86_400.0)
    history = with_trainer(fleet.history())
    history.values["running"][::2] += np.arange(len(history.times)) % 7  # lines that are never at rest
    # Judged on every 20th reading, which is quick; drawn from all.
    observed = judged(replace(fleet, step_s=300.0).history()).observed
    observed = replace(observed, step_s=history.step_s)
    charts = {chart.id: chart for chart in time_charts(over_time(history, observed), observed)}
    assert charts.keys() == {"trainer", "fleet", "instances", "queue", "activity"}
    assert sum(len(chart_html(c)) for c in charts.values()) < 500_000
    assert "Every point is the mean of 4 min 00 s" in charts["fleet"].words
    assert "48 of 64 instances" in charts["activity"].words
    whole = (history.values["generation_tokens"][:, -1] - history.values["generation_tokens"][:, 0]).sum() / 86_400.0
    assert np.mean(named(charts["fleet"], "output tokens").y) == pytest.approx(whole, rel=1e-3)


def test_the_same_window_gives_the_same_bytes_and_asks_nobody() -> None:
    history = with_trainer(Fleet(span_s=1800.0).history())
    texts = {replay_page(history, judged(history), NOTHING) for _ in range(2)}
    assert len(texts) == 1
    assert asks(texts.pop()) == []


def test_the_verdict_and_its_grounds_come_before_every_chart() -> None:
    result = judged(history := with_trainer(Fleet(span_s=3600.0).history(), idle=0.6))
    text = replay_page(history, result, NOTHING)
    body = text[text.index("<body>") :]
    assert body.index("<h1>") < body.index("Findings: faults first") < body.index('class="chart"')
    for finding in result.verdict.findings:
        assert finding.title in words_of(Page(text))


NAMES = st.text(min_size=1, max_size=30).filter(str.strip) | st.sampled_from(
    [
        "<img src=x onerror=alert(1)>",
        "</script><script>alert(1)</script>",
        "a<b>c",
        "{{ 7 * 7 }}",
        "&lt;b&gt;",
        "var(--ink)",
    ]
)


@cache
def four() -> tuple[History, Replayed]:
    history = Fleet(instances=4, span_s=300.0).history()
    return history, judged(history)


@settings(max_examples=12)
@given(names=st.lists(NAMES, min_size=4, max_size=4, unique=True), source=NAMES)
def test_names_of_others_stay_words(names: list[str], source: str) -> None:
    ids = tuple(InstanceId(n, "0", n) for n in names)
    history, result = four()
    views = tuple(
        replace(view, id=id_, straggler=True) for view, id_ in zip(result.observed.instances, ids, strict=True)
    )
    gone = (Departure(ids[0], START + 60, 4, ids[1]),)
    observed = replace(result.observed, instances=views, source=source, model=source, departed=gone)
    text = replay_page(replace(history, instances=ids), replace(result, observed=observed), NOTHING)
    page = Page(text)
    assert page.wrong == []
    assert page.open == []
    assert not any(tag in ("img", "i", "a") for tag, _ in page.tags)
    assert sum(tag == "script" for tag, _ in page.tags) == 1
