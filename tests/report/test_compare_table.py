"""The tables of a comparison in terminals of any width: whole words, all values, nothing beyond the edge."""

from __future__ import annotations

import io

import pytest
from hypothesis import given
from hypothesis import strategies as st
from rich.console import Console, RenderableType

from fleetsim.compare.compare import Comparison, InputDifference, MetricChange
from fleetsim.compare.facts import document
from fleetsim.estimates import Estimate
from fleetsim.quantities import METRICS, WINDOW_METRICS
from fleetsim.tell.document import Table, Words
from fleetsim.tell.terminal import draw, drawn

VERDICTS = ("better", "worse", "changed", "no significant change", "not comparable")


def printed(it: RenderableType, width: int) -> list[str]:
    out = io.StringIO()
    Console(file=out, width=width, highlight=False).print(it, crop=False)
    return out.getvalue().splitlines()


def comparison(metrics: tuple[str, ...]) -> Comparison:
    changes = tuple(
        MetricChange(
            metric,
            Estimate(64.2, 63.0, 65.4),
            Estimate(61.9, 61.0, 62.8),
            Estimate(0.968, 0.964, 0.971),
            Estimate(-0.11, -0.12, -0.10),
            VERDICTS[k % 4],  # type: ignore[arg-type]
            "not shown to exceed 1 point" if k % 4 == 3 else "",
            0.04,
        )
        for k, metric in enumerate(metrics)
    )
    inputs = (
        InputDifference("workload.output_tokens.mean", 1536, 900),
        InputDifference("workload.output_tokens", {"kind": "lognormal", "mean": 900.0, "cv": 1.0, "max": 8192}, None),
    )
    return Comparison("a.yaml", "b.yaml", "scenarios", True, 10, changes, inputs, "B's step is 3.2 % shorter", (), 0.01)


@pytest.mark.parametrize("width", [40, 60, 80, 120])
@pytest.mark.parametrize("metrics", [METRICS, WINDOW_METRICS])
def test_no_word_is_cut(width: int, metrics: tuple[str, ...]) -> None:
    found = comparison(metrics)
    lines = printed(draw(document(found), explain=True), width)
    words = {word.strip("():,") for line in lines for word in line.split()}
    asked = {word.strip("():,") for word in " ".join(printed(draw(document(found), explain=True), 400)).split()}
    values = {
        "0.968",
        "0.964",
        "0.971",
        "-11.0",
        "-12.0",
        "-10.0",
        "instance-seconds",
        "better",
        "workload.output_tokens",
    }
    assert asked - words - {"95", "interval"} == set()
    assert values - words == (set() if metrics is WINDOW_METRICS else {"instance-seconds"})
    assert max(map(len, (line.rstrip() for line in lines))) <= width


WORDS = st.lists(st.text("abcdef/-", min_size=1, max_size=14), min_size=1, max_size=7).map(" ".join)
CELLS = st.tuples(*[st.text("0123456789.", max_size=8)] * 4)
ROWS = st.lists(st.tuples(WORDS, st.sampled_from(VERDICTS), CELLS), min_size=1, max_size=5)


@given(ROWS, st.integers(40, 140))
def test_whatever_it_is_called(rows: list[tuple[str, str, tuple[str, ...]]], width: int) -> None:
    told = tuple((name, Words(verdict, strong=True), *cells) for name, verdict, cells in rows)
    lines = printed(drawn(Table("", ("", "", "A", "B", "change", "95 % interval"), told, left=2, wordy=True)), width)
    text = " ".join(" ".join(lines).split())
    for name, verdict, cells in rows:
        for part in (*name.split(), *verdict.split(), *(c for c in cells if c)):
            assert part in text
    assert max(len(line.rstrip()) for line in lines) <= width


@pytest.mark.parametrize(
    ("width", "lines"),
    [
        (60, ["                             A     B", "workload.output_tokens.mean  1536  900 (assumed)"]),
        (40, ["  A     B", "workload.output_tokens.mean", "  1536  900 (assumed)"]),
        (16, ["workload.output_", "tokens.mean", "  A 1536, B 900", "  (assumed)"]),
    ],
)
def test_values_stand_below_their_words_where_it_is_narrow(width: int, lines: list[str]) -> None:
    rows = (("workload.output_tokens.mean", "1536", Words("900", " (assumed)")),)
    table = Table("", ("", "A", "B"), rows, words_last=2, wordy=True)
    assert [line.rstrip() for line in printed(drawn(table), width)] == lines
