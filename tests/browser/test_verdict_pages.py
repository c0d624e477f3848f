"""The pages of `replay`, `validate` and `compare` in a real browser: a simulated fleet's history, judged and drawn."""

from __future__ import annotations

from pathlib import Path

import pytest

from fleetsim.compare.compare import Comparison, InputDifference, MetricChange
from fleetsim.estimates import Estimate
from fleetsim.history.files import read_file
from fleetsim.history.history import InstanceId
from fleetsim.replay.answers import answer
from fleetsim.replay.questions import Questions
from fleetsim.replay.run import replay
from tests.browser.conftest import Look
from tests.report.test_verdict_pages import results

WAYS = [(False, False), (True, True)]  # each costs seconds; both lights and both widths are among them
BAD = "</script><img src=x onerror=alert(1)>"


@pytest.fixture(scope="session")
def history_file(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """An hour of a fleet whose weight syncs stop the engines, with a slow instance and one that is lost."""
    from typer.testing import CliRunner

    from fleetsim.cli.main import app

    place = tmp_path_factory.mktemp("history") / "job.om"
    events = "run.events=[{step: 36, lose_instance: 1}]"
    slow = "fleet.speed_factors=[1, 1, 1.9]"
    done = CliRunner().invoke(
        app,
        ["simulate", "verl-fully-async", "--steps", "60", "--replications", "1", "--seed", "7", "--set", slow, "--set",
         "fleet.instances=5", "--set", "sync.pause_s=40", "--set", events, "--openmetrics", str(place),
         "--openmetrics-end", "2026-11-21T08:00"],
    )  # fmt: skip
    assert done.exit_code == 0, done.stderr
    return place


@pytest.fixture(scope="session")
def replay_file(history_file: Path, tmp_path_factory: pytest.TempPathFactory) -> Path:
    pytest.importorskip("jinja2", reason='the pages need pip install "fleetsim[report]"')
    from fleetsim.replay.result import ReplayResult

    history = read_file(history_file)
    result = replay(history)
    swept = Questions({"fleet.instances": 6}, ("fleet.instances", (4, 6, 8)))
    place = tmp_path_factory.mktemp("replay") / "replay.html"
    place.write_text(ReplayResult(history, result, answer(swept, result), ()).page(), encoding="utf-8")
    return place


@pytest.mark.parametrize(("dark", "phone"), WAYS)
def test_replay(look: Look, replay_file: Path, dark: bool, phone: bool) -> None:
    seen = look(replay_file, "replay", dark=dark, phone=phone)
    drawn = {"trainer", "fleet", "instances", "queue", "activity", "lengths", "backtest"}
    drawn |= {"sweep-trainer_idle_fraction", "sweep-step_s", "sweep-cost_per_step"}
    assert seen.marks.keys() == {f"{name}-chart" for name in drawn}
    for told in ("Change first", "Findings: faults first", "vanished at", "Assumed"):
        assert told in seen.text


@pytest.mark.parametrize(("dark", "phone"), WAYS)
def test_validation(look: Look, tmp_path: Path, dark: bool, phone: bool) -> None:
    pytest.importorskip("jinja2", reason='the pages need pip install "fleetsim[report]"')
    from fleetsim.tell.page import document_page
    from fleetsim.validate.facts import document

    place = tmp_path / "validation.html"
    place.write_text(document_page(document(results(1.3), 18)), encoding="utf-8")
    seen = look(place, "validation", dark=dark, phone=phone)
    assert seen.marks.keys() == {"errors-chart", "published-chart"}
    assert "Only 2 of 18 cases were asked for" in seen.text


def changed(metric: str, mean: float, half: float, verdict: str) -> MetricChange:
    of = 0.2 if metric.endswith("fraction") else 20.0
    a, b = Estimate(of, 0.99 * of, 1.01 * of), Estimate(of * mean, 0.98 * of * mean, 1.02 * of * mean)
    difference = Estimate(of * (mean - 1), of * (mean - 1 - half), of * (mean - 1 + half))
    return MetricChange(metric, a, b, Estimate(mean, mean - half, mean + half), difference, verdict)  # type: ignore[arg-type]


@pytest.mark.parametrize(("dark", "phone"), WAYS)
def test_comparison(look: Look, tmp_path: Path, dark: bool, phone: bool) -> None:
    pytest.importorskip("jinja2", reason='the pages need pip install "fleetsim[report]"')
    from fleetsim.compare.facts import document
    from fleetsim.tell.page import document_page

    changes = (
        changed("step_s", 0.919, 0.004, "better"),
        changed("trainer_idle_fraction", 0.97, 0.01, "better"),
        changed("rollout_idle_fraction", 1.09, 0.01, "worse"),
        changed("goodput", 0.815, 0.006, "worse"),
        changed("queue_depth", 1.05, 0.02, "changed"),
        changed("staleness_steps.p99", 1.0, 0.0, "no significant change"),
        changed("sync_fraction", 1.001, 0.0, "no significant change"),
    )
    found = Comparison(
        a_label="jobs/before.yaml", b_label=f"jobs/{BAD}.yaml", kind="scenarios", paired=True, replications=5,
        changes=changes, inputs=(InputDifference("fleet.instances", 4, 8), InputDifference(BAD, "x" * 90, None)),
        headline=f"B's step is 8.1 % shorter (7.7 to 8.5 %) under {BAD}", notes=(f"of {BAD}",), min_change=0.01,
    )  # fmt: skip
    place = tmp_path / "compare.html"
    place.write_text(document_page(document(found)), encoding="utf-8")
    seen = look(place, "compare", dark=dark, phone=phone)
    assert seen.marks.keys() == {"ratios-chart", "shares-chart"}
    assert not phone or seen.scrolled == (), (
        "the verdict and the interval are the answer: they are not behind a table's edge"
    )
    assert f"of {BAD}" in seen.text


def test_names_of_others_are_read_and_not_run(look: Look, tmp_path: Path) -> None:
    pytest.importorskip("jinja2", reason='the pages need pip install "fleetsim[report]"')
    from fleetsim.records import replace
    from fleetsim.replay.answers import Answers
    from fleetsim.replay.result import ReplayResult
    from tests.replay.histories import Fleet

    names = (BAD, "<b>bold", "{{ 7 * 7 }}", "x" * 120)
    history = Fleet(instances=4, span_s=1800.0, slow={1: 0.5}).history()
    history = replace(history, instances=tuple(InstanceId(name, "0", BAD) for name in names), source=BAD)
    place = tmp_path / "names.html"
    found = replay(history, model=False, back_test=False)
    place.write_text(ReplayResult(history, found, Answers(), ()).page(), encoding="utf-8")
    seen = look(place, "names", phone=True)
    assert BAD in seen.text
    assert "{{ 7 * 7 }}" in seen.text
