"""Every kind of chart on one page, with made-up numbers and hostile names, in a real browser."""

from __future__ import annotations

from pathlib import Path

import numpy as np
import pytest

from fleetsim.estimates import Estimate
from fleetsim.tell.charts.bars import Bar, Layer, Part, cause_bars, stacked_bars, waterfall_chart
from fleetsim.tell.charts.chart import Chart
from fleetsim.tell.charts.curve import Curve, curve_chart
from fleetsim.tell.charts.dots import DotsRow, change_dots
from fleetsim.tell.charts.gantt import GanttRow, Kind, Span, gantt_chart
from fleetsim.tell.charts.parts import Mark, PartLook
from fleetsim.tell.charts.parts import look as style
from fleetsim.tell.charts.steps import Sampled, StepSeries, histogram_chart, step_chart
from fleetsim.tell.document import Document, Section
from fleetsim.tell.facts import facts
from fleetsim.tell.page import document_page
from tests.browser.conftest import Look as Eye

BAD = "<b>x</b><script>alert(1)</script>"


def around(mean: float, half: float) -> Estimate:
    return Estimate(mean, mean - half, mean + half)


def charts() -> list[Chart]:
    counts = [2, 3, 4, 5, 6, 8, 10]
    idle = [around(0.1 + 1 / n, 0.3 / n**2) for n in counts]
    time = np.arange(2000.0)
    rows = [
        GanttRow(
            f"inst. {i}",
            [Span(("busy", "idle")[k % 2], 10.0 * k + i / 4, 10.0 * k + 10 + i / 4) for k in range(-1, 12)],
        )
        for i in range(12)
    ]
    kinds = {"busy": Kind("busy", style(0)), "idle": Kind(f"idle {BAD}", PartLook("line"), thin=True)}
    rng = np.random.default_rng(1)
    return [
        curve_chart(
            "curve", "Trainer idle", "Falls.", [Curve("idle", counts, idle)], x_title="instances", y_title="idle",
            how="share", recommended=5, targets=[Mark(0.25, f"target {BAD}")],
        ),
        waterfall_chart(
            "fall", "Headroom", "Goes.", Part("nameplate", 1.0),
            [Part(BAD, 0.4), Part("sync", 0.1), Part("overlap", -0.2)], Part("used", 0.7), x_title="share", how="share",
        ),
        cause_bars(
            "causes", "Waste", "By cause.", [Bar(BAD, around(0.3, 0.05), True), Bar("stale", around(0.02, 0.0))],
            x_title="tokens per trained token", how="number",
        ),
        change_dots(
            "dots", "Levers", "Buy.",
            [DotsRow(BAD, [around(0.9, 0.02), around(1.1, 0.01)]), DotsRow("cap", [around(0.7, 0.02), None], True)],
            ["step time", "cost per step"],
        ),
        step_chart(
            "queue", "Queue", "Over time.",
            [StepSeries(BAD, time, 300 + 200 * np.sin(time / 90)), StepSeries("b", [0], [3])],
            x_title="seconds", y_title="samples", limits=[Mark(512, "cap")], begins=Mark(300, "counted from here"),
        ),
        histogram_chart(
            "lengths", "Lengths", "Of all.",
            [Sampled("sent", np.minimum(rng.exponential(900, 4000), 4096)), Sampled(BAD, rng.exponential(700, 900))],
            x_title="tokens", caps=[Mark(4096, "cap")],
        ),
        stacked_bars(
            "seconds", "Seconds", "Each step.",
            [Layer("train", np.full(30, 20.0), style(0)), Layer(BAD, rng.uniform(5, 9, 30), style(1))],
            x_title="step", y_title="seconds", begins=Mark(3.5, "counted from here"),
        ),
        gantt_chart("gantt", "Who", "When.", rows, kinds, (0.0, 100.0), lines=[33.0]),
    ]  # fmt: skip


@pytest.fixture(scope="module")
def page(tmp_path_factory: pytest.TempPathFactory) -> Path:
    place = tmp_path_factory.mktemp("kinds") / "kinds.html"
    made = Document("", facts(f"kinds {BAD}"), (Section("Charts", tuple(charts())),))
    place.write_text(document_page(made), encoding="utf-8")
    return place


@pytest.mark.parametrize(("dark", "phone"), [(False, False), (True, True)])
def test_kinds(look: Eye, page: Path, dark: bool, phone: bool) -> None:
    seen = look(page, "kinds", dark=dark, phone=phone)
    assert seen.marks.keys() == {f"{chart.id}-chart" for chart in charts()}
    assert seen.text.startswith(f"kinds {BAD}")
