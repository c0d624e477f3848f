"""Every kind of chart on one page, with made-up numbers and hostile names, in a real browser."""

from __future__ import annotations

from pathlib import Path
from typing import Any

import numpy as np
import pytest

from fleetsim.estimates import Estimate
from fleetsim.tell.charts.axes import ChartAxis
from fleetsim.tell.charts.chart import Chart, Mark, MarkLook, Span, Spans
from fleetsim.tell.charts.chart import look as style
from fleetsim.tell.charts.kinds import (
    Curve,
    Layer,
    StepSeries,
    cause_bars,
    change_rows,
    curve_chart,
    histogram_chart,
    stacked_bars,
    step_chart,
    waterfall_chart,
)
from fleetsim.tell.document import Document, Section
from fleetsim.tell.facts import facts
from fleetsim.tell.page import document_page
from tests.browser.conftest import Look as Eye
from tests.browser.seen import Browser

BAD = "<b>x</b><script>alert(1)</script>"


def around(mean: float, half: float) -> Estimate:
    return Estimate(mean, mean - half, mean + half)


def charts() -> list[Chart]:
    counts = [2, 3, 4, 5, 6, 8, 10]
    idle = [around(0.1 + 1 / n, 0.3 / n**2) for n in counts]
    time = np.arange(2000.0)
    rows = [
        (f"inst. {i}", [Span(("busy", "idle")[k % 2], 10.0 * k + i / 4, 10.0 * k + 10 + i / 4) for k in range(9)])
        for i in range(12)
    ]
    kinds = {"busy": ("busy", style(0)), "idle": (f"idle {BAD}", MarkLook("quiet", lanes=((0.4, 0.6),)))}
    rng = np.random.default_rng(1)
    return [
        curve_chart(
            "curve", "Trainer idle", "Falls.", [Curve("idle", counts, idle)], x_title="instances", y_title="idle",
            how="share", recommended=5, targets=[Mark(0.25, f"target {BAD}")],
        ),
        waterfall_chart(
            "fall", "Headroom", "Goes.", ("nameplate", 1.0),
            [(BAD, 0.4), ("sync", 0.1), ("overlap", -0.2)], ("used", 0.7), x_title="share", how="share",
        ),
        cause_bars(
            "causes", "Waste", "By cause.", [(BAD, around(0.3, 0.05)), ("stale", around(0.02, 0.0))],
            x_title="tokens per trained token", how="number",
        ),
        change_rows(
            "dots", "Levers", "Buy.",
            [(BAD, [around(0.9, 0.02), around(1.1, 0.01)], False), ("cap", [around(0.7, 0.02), None], True)],
            ["step time", "cost per step"],
        ),
        step_chart(
            "queue", "Queue", "Over time.",
            [StepSeries(BAD, time, 300 + 200 * np.sin(time / 90)), StepSeries("b", [0], [3])],
            x_title="seconds", y_title="samples", limits=[Mark(512, "cap")], begins=Mark(300, "counted from here"),
        ),
        histogram_chart(
            "lengths", "Lengths", "Of all.",
            {"sent": np.minimum(rng.exponential(900, 4000), 4096), BAD: rng.exponential(700, 900)},
            x_title="tokens", caps=[Mark(4096, "cap")],
        ),
        stacked_bars(
            "seconds", "Seconds", "Each step.",
            [Layer("train", np.full(30, 20.0), style(0)), Layer(BAD, rng.uniform(5, 9, 30), style(1))],
            x_title="step", y_title="seconds", begins=Mark(3.5, "counted from here"),
        ),
        Chart("gantt", "Who", "When.", Spans(ChartAxis("seconds", 0.0, 100.0), tuple(rows), kinds, (33.0,))),
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


def test_values_are_read_with_a_pointer_and_with_keys_and_legends_switch(browser: Browser, page: Path) -> None:
    def do(tab: Any) -> dict[str, str]:
        tab.goto(page.as_uri())
        tab.hover("#queue-chart svg.plot[tabindex]")
        seen = {"line": tab.inner_text(".tip")}
        tab.hover("#seconds-chart rect.bar >> nth=40")
        seen["bar"] = tab.inner_text(".tip")
        tab.hover("#gantt-chart path.span >> nth=0", position={"x": 30, "y": 4})
        seen["span"] = tab.inner_text(".tip")
        for chart, key in (("curve", "ArrowRight"), ("dots", "ArrowLeft")):
            tab.focus(f"#{chart}-chart svg.plot[tabindex]")
            tab.keyboard.press(key)
            seen[chart] = tab.inner_text(".tip")
        tab.keyboard.press("Escape")
        seen["escaped"] = str(tab.is_hidden(".tip"))
        for turn in ("off", "on"):
            tab.click("#lengths-chart .legend button >> nth=0")
            seen[turn] = str(tab.locator("#lengths-chart .plot .off").count())
        return seen

    seen = browser.used(do)
    assert f"{BAD}: " in seen["line"]
    assert "b: 3" in seen["line"]
    assert BAD in seen["bar"] or "train" in seen["bar"]
    assert seen["span"].startswith("inst. 0: busy\n0 to 10")
    assert "2 instances: 60.0 % [52.5, 67.5]" in seen["curve"]
    assert seen["dots"] == f"{BAD}: cost per step +10.0 % [+9.0, +11.0]"
    assert seen["escaped"] == "True"
    assert int(seen["off"]) > 0
    assert seen["on"] == "0"
