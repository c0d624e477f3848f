"""The pages of `validate` and `compare`: every number is the result's, misses and reasons stand in words."""

from __future__ import annotations

import importlib
from functools import cache
from pathlib import Path
from typing import Any

import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st
from typer.testing import CliRunner

from fleetsim.cli.main import app
from fleetsim.compare.compare import Comparison, InputDifference, MetricChange
from fleetsim.compare.facts import document as compared
from fleetsim.estimates import Estimate
from fleetsim.records import replace
from fleetsim.tell.charts.chart import Rows
from fleetsim.tell.page import document_page
from fleetsim.validate.arms import Figures
from fleetsim.validate.case import case_files, load_cases
from fleetsim.validate.facts import document
from fleetsim.validate.run import Fitted
from fleetsim.validate.verdict import CaseResult, judge
from tests.report.test_profile_html import Page, asks, charts_in, marks_of, series_of

pytest.importorskip("jinja2", reason='the pages need pip install "fleetsim[report]"')

BAD = ("<img src=x onerror=alert(1)>", "</script><script>alert(1)</script>", "a<b>c", "{{ 7 * 7 }}", "&lt;b&gt;")
NAMES = st.text(min_size=1, max_size=60).filter(str.strip) | st.sampled_from(BAD)


def figures(step_s: float) -> Figures:
    return Figures(
        step_s=step_s, wait_s=1.0, gen_s=step_s, tok_s=1e5 / step_s, generated_tok_s=1e5 / step_s, wait_share=0.1,
        capped=False, staleness_steps=1.0, queue_samples=0.0,
    )  # fmt: skip


@cache
def results(factor: float = 1.1) -> tuple[CaseResult, ...]:
    """Two cases of seconds per step, simulated with an error of `factor` on every arm but the baseline."""
    found = []
    for case in load_cases(("C03", "C08")):
        made = {a.name: figures((a.published or 1.0) * (1.0 if a.name == case.baseline else factor)) for a in case.arms}
        fitted = None if case.fit is None else Fitted(1.5, case.fit.value, True, 3)
        found.append(judge(case, fitted, made))
    return tuple(found)


def words_of(page: Page) -> str:
    return " ".join(" ".join(page.words).split())


def test_every_published_arm_has_a_dot_at_its_error() -> None:
    found = results(1.1)
    drawn_of = charts_in(document(found, len(found)))
    drawn = sorted(mark.value for mark in marks_of(drawn_of["errors"]))
    wanted = sorted(
        1 + (a.ratio_error if a.ratio_error is not None else a.error)
        for r in found for a in r.arms if a.error is not None
    )  # fmt: skip
    assert drawn == pytest.approx(wanted, rel=1e-4)
    both = [(x, y) for t in series_of(drawn_of["published"]) if t.name for x, y in zip(t.x, t.y, strict=True)]
    arms = [(a.arm.published, a.predicted) for r in found for a in r.arms if a.arm.published]
    assert np.array(sorted(both)) == pytest.approx(np.array(sorted(arms)), rel=1e-4)
    for result in found:
        assert result.case.id in document_page(document(found, len(found)))


def test_misses_are_named_with_their_reasons_and_drawn_with_a_mark_of_their_own() -> None:
    page = Page(document_page(document(results(1.6), len(case_files()))))
    words = words_of(page)
    assert "Not held: " in words
    assert f"Only 2 of {len(case_files())} cases were asked for" in words
    assert "What misses, and why" in words
    assert "C03 colocate-64." in words
    errors = charts_in(document(results(1.6), len(case_files())))["errors"].points
    assert isinstance(errors, Rows)
    assert len({look.symbol for _, look in errors.looks.values()}) == len(errors.looks)
    assert "missed" in {mark.key for row in errors.rows for mark in row.marks}


def test_when_every_arm_holds_that_is_said() -> None:
    found = [replace(r, arms=tuple(replace(a, bottleneck=None) for a in r.arms)) for r in results(1.02)]
    words = words_of(Page(document_page(document(found, 2))))
    assert "Every gate holds." in words
    assert "No arm that has a gate misses it." in words


def change(metric: str, ratio: float | None, verdict: Any, half: float = 0.01, why: str = "") -> MetricChange:
    a, b = Estimate(10.0, 9.9, 10.1), Estimate(10.0 * (ratio or 1), 9.9 * (ratio or 1), 10.1 * (ratio or 1))
    about = None if ratio is None else Estimate(ratio, ratio - half, ratio + half)
    gap = 10.0 * ((ratio or 1.0) - 1)
    difference = None if verdict == "not comparable" else Estimate(gap, gap - 0.1, gap + 0.1)
    return MetricChange(metric, a, b, about, difference, verdict, why, 0.01)


CHANGES = (
    change("step_s", 0.8, "better"),
    change("trainer_idle_fraction", 0.9, "better"),
    change("cost_per_step", 1.3, "worse"),
    change("queue_depth", 1.1, "changed"),
    change("generated_tok_s", 1.001, "no significant change"),
    change("goodput", 500.0, "changed", half=100.0),
    change("kv_use", None, "not comparable", why="nobody exports it"),
)


def comparison(**changes: Any) -> Comparison:
    found = Comparison(
        a_label="a.yaml", b_label="b.yaml", kind="scenarios", paired=True, replications=5, changes=CHANGES,
        inputs=(InputDifference("fleet.instances", 4, 8, a_assumed=True),), headline="B's step is 20 % shorter",
        notes=("a note",), min_change=0.02,
    )  # fmt: skip
    return replace(found, **changes)


def test_ratios_stand_beside_one_and_shares_beside_zero() -> None:
    page, found = Page(document_page(compared(comparison()))), charts_in(compared(comparison()))
    (better,) = marks_of(found["ratios"], "better")
    assert (better.value, better.low, better.high) == pytest.approx((0.8, 0.79, 0.81))
    assert [m.value for m in marks_of(found["ratios"], "worse")] == [1.3]
    assert [m.value for m in marks_of(found["ratios"], "changed")] == [1.1]  # 500 is in the table only
    assert [m.value for m in marks_of(found["shares"])] == pytest.approx([-100.0])
    ratios = found["ratios"].points
    assert isinstance(ratios, Rows)
    assert ratios.bands[0] == pytest.approx((1 / 1.02, 1.02))
    words = words_of(page)
    assert "Beyond a factor of 30, and in the table only: 1 metric." in words
    assert words.index("B's step is 20 % shorter") < words.index("Ratio of every metric")
    for told in ("4 (assumed)", "nobody exports it: KV cache in use", "a note", "5 replications, paired"):
        assert told in words
    assert len({look.symbol for _, look in ratios.looks.values()}) == len(ratios.looks)


def test_the_band_may_be_wide() -> None:
    ratios = charts_in(compared(comparison(min_change=3.0)))["ratios"].points
    assert isinstance(ratios, Rows)
    assert ratios.bands[0] == pytest.approx((1 / 4, 4))


def test_sides_that_are_the_same_are_said_to_be() -> None:
    words = words_of(Page(document_page(compared(comparison(changes=CHANGES[4:5], inputs=(), notes=())))))
    assert "Nothing changed beyond luck" in words
    assert "No input differs between the two sides" in words


def test_pages_ask_nobody() -> None:
    assert asks(document_page(compared(comparison()))) == []
    assert asks(document_page(document(results(), 2))) == []


def test_the_same_result_gives_the_same_bytes() -> None:
    assert document_page(compared(comparison())) == document_page(compared(comparison()))
    assert document_page(document(results(), 2)) == document_page(document(results(), 2))


@settings(max_examples=12)
@given(names=st.lists(NAMES, min_size=6, max_size=6))
def test_names_of_others_stay_words(names: list[str]) -> None:
    a, b, headline, path, value, note = names
    found = comparison(
        a_label=a, b_label=b, headline=headline, notes=(note,), inputs=(InputDifference(path, value, {"kind": value}),)
    )
    (case, *_) = results()
    arms = tuple(replace(arm, arm=arm.arm.model_copy(update={"name": a, "reading": b})) for arm in case.arms)
    told = replace(case, case=case.case.model_copy(update={"title": headline, "reading": note}), arms=arms)
    for text in (document_page(compared(found)), document_page(document([told], 1))):
        page = Page(text)
        assert page.wrong == []
        assert page.open == []
        assert not any(tag in ("img", "i", "a") for tag, _ in page.tags)
        assert sum(tag == "script" for tag, _ in page.tags) == 1


@pytest.mark.parametrize(
    "command",
    [
        ["replay", "--from", "nothing-there.om"],
        ["validate", "--case", "C03"],
        ["compare", "verl-sync", "verl-fully-async"],
    ],
)
def test_a_wrong_place_or_a_missing_library_is_refused_before_any_work(
    command: list[str], tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    def refused(page: Path) -> str:
        done = CliRunner().invoke(app, [*command, "--html", str(page)])
        assert done.exit_code in (2, 3)
        assert done.stdout == ""
        return " ".join(done.stderr.split())

    assert "its folder does not exist" in refused(tmp_path / "no" / "page.html")
    there = tmp_path / "there.html"
    there.write_text("mine", encoding="utf-8")
    assert "exists already" in refused(there)
    assert there.read_text(encoding="utf-8") == "mine"
    real = importlib.import_module

    def without(name: str, package: str | None = None) -> Any:
        if name == "jinja2":
            raise ImportError(name)
        return real(name, package)

    monkeypatch.setattr(importlib, "import_module", without)
    assert "needs jinja2" in refused(tmp_path / "page.html")
    assert not (tmp_path / "page.html").exists()
