"""The tables of a comparison in terminals of any width: whole words, all values, nothing beyond the edge."""

from __future__ import annotations

import io

import pytest
from hypothesis import given
from hypothesis import strategies as st
from rich.console import Console, RenderableType
from rich.text import Text

from fleetsim.compare.compare import Change, Comparison, InputDifference
from fleetsim.compare.table import ChangeRow, ChangeTable, InputTable
from fleetsim.compare.told import compare_report
from fleetsim.estimates import Estimate
from fleetsim.quantities import METRICS, WINDOW_METRICS

VERDICTS = ("better", "worse", "changed", "no significant change", "not comparable")


def printed(it: RenderableType, width: int) -> list[str]:
    out = io.StringIO()
    Console(file=out, width=width, highlight=False).print(it, crop=False)
    return out.getvalue().splitlines()


def comparison(metrics: tuple[str, ...]) -> Comparison:
    changes = tuple(
        Change(
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
    lines = printed(compare_report(found), width)
    words = {word.strip("():,") for line in lines for word in line.split()}
    asked = {word.strip("():,") for word in " ".join(printed(compare_report(found), 400)).split()}
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
ROWS = st.lists(st.builds(ChangeRow, WORDS, st.sampled_from(VERDICTS), CELLS, st.just("")), min_size=1, max_size=5)


@given(ROWS, st.integers(40, 140))
def test_whatever_it_is_called(rows: list[ChangeRow], width: int) -> None:
    lines = printed(ChangeTable(rows), width)
    text = " ".join(" ".join(lines).split())
    for row in rows:
        for part in (*row.name.split(), *row.verdict.split(), *(c for c in row.cells[:2] if c)):
            assert part in text
    assert max(len(line.rstrip()) for line in lines) <= width


def test_inputs_stand_below_one_another_where_it_is_narrow() -> None:
    table = InputTable([("workload.output_tokens.mean", Text("1536"), Text("900 (assumed)"))])
    assert [line.split() for line in printed(table, 60)] == [
        ["A", "B"],
        ["workload.output_tokens.mean", "1536", "900", "(assumed)"],
    ]
    assert [line.rstrip() for line in printed(table, 40)] == [
        "workload.output_tokens.mean",
        "  A 1536",
        "  B 900 (assumed)",
    ]
