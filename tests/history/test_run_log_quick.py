"""What is read quickly is what the careful readers read: the same rows, whatever stands between and in the lines."""

from __future__ import annotations

import json
import re

import numpy as np
import pytest
from hypothesis import example, given
from hypothesis import strategies as st

from fleetsim.history.step_logs.console import SHAPES, Shape, rows_of, shape_of
from fleetsim.history.step_logs.packed import RunLogTable
from fleetsim.history.step_logs.rows import flat
from fleetsim.history.text import _PAIR, Row, clean, dict_of, number, numbers_of
from fleetsim.json_text import from_loose_json
from fleetsim.records import replace

_NUMBERS = st.floats().map(repr) | st.integers().map(str) | st.sampled_from(["-0", "1e999", "007", "1.", ".5", "+1"])
_TEXTS = st.text(st.sampled_from(" a1:-()\"'\\.,{}\x1b[m\t\u2029é"), max_size=6)
_VALUES = (
    _NUMBERS
    | _NUMBERS.map("np.float64({})".format)
    | _NUMBERS.map("np.int64({})".format)
    | st.sampled_from(["None", "True", "'3.5'", "np.float64(", "[1, 2]", "2026-11-23T05:27:00"])
    | _TEXTS
)
_NAMES = st.sampled_from(["timing_s/gen", "a", "Time (s)", " b", "b ", "step", ""]) | _TEXTS
_HEADS = st.sampled_from(
    ["", " ", "\x1b[36m(TaskRunner pid=3)\x1b[0m ", "(A (x) pid=4, ip=1.2.3.4) ", "INFO ", "global_", '"', "x:"]
)


@st.composite
def _lines(draw: st.DrawFn) -> str:
    """A line of verl's console, or one that is nearly that."""
    step = draw(st.integers(0, 9).map(str) | st.sampled_from(["", "-1", "1.0", "01"]))
    parts = [f"step:{step}"]
    for name, value in draw(st.lists(st.tuples(_NAMES, _VALUES), max_size=5)):
        parts.append(f"{name}:{value}")
    end = draw(st.sampled_from(["", " ", "\x1b[0m", " - ", "\r"]))
    return draw(_HEADS) + draw(st.sampled_from([" - ", " - ", "  - ", " -  "])).join(parts) + end + "\n"


def _carefully(line: str) -> Row | None:
    """A line by itself, a number at a time."""
    found = re.search(r"\bstep:(\d+) - (\S.*)", clean(line))
    if found is None:
        return None
    row = {"step": float(found[1])}
    for part in found[2].split(" - "):
        name, _, value = part.rpartition(":")
        inside = re.match(r"(?:np\.\w+\()?([^()]+)\)?$", value.strip())
        amount = number(value)
        if amount is None and inside is not None:
            amount = number(inside[1])
        if name and amount is not None:
            row[name.strip()] = amount
    return row


@given(st.lists(_lines() | _TEXTS.map("{}\n".format), max_size=6))
@example(["step:1 - a:1\n", 'step:2 - a:1, "b:2\n', "step:3 - a :1 -  a:2\n", "global_step:4 - a:1\n"])
def test_a_line_of_verl_is_read_the_same_as_a_number_at_a_time(lines: list[str]) -> None:
    shape = shape_of(["step:1 - a:1"])
    assert shape is not None
    each = [row for row in map(_carefully, lines) if row is not None]
    for quick, careful in zip(shape.rows(lines), each, strict=True):
        assert set(quick) == set(careful)
        np.testing.assert_array_equal([quick[name] for name in careful], list(careful.values()))


_HEADINGS = (
    *("10:00 INFO Train step 3/9 done.", "╒══╕", "│ a │ 1.5 │ b/c │  2e-01 │", "│ d │ 3 │   │   │", "├──┼──┤", "╘══╛"),
    *(
        "╭─── Metrics ───╮",
        "│ time    total: 1.50 | a:   │",
        "│         2 | b: nan         │",
        "│ other   c: 3 │",
        "╰────╯",
    ),
    *("========== Step 3/9 ==========", "========== Epoch 1/2 ==========", "📊 Training Results:", "⏱️  Timing:"),
    *("  • Total step time: 3.5s", "  • generation: 1.25s (36%)", "• Mean Generation Length: 3.5"),
    *("x - Step 4: ", "{'a': '1.5',", " 'b/c': 2,", " 'd': 'nan'}", "Finished: 'a', cost: 3s"),
    *("10:00 SUCCESS Step 7 |  1m 3s | Loss 0.1 | MFU 3.0%", "Waited for batch to arrive for 2.50 seconds"),
    *(
        "  3%|█   | 3/9 [01:02<09:00, 3.0s/it]",
        "perf 3: {'a': 1, 'perf/b': np.float64(2.5)}",
        "Eval at step 3: {'a': 4}",
    ),
    *(
        "(x)step 4: {'train/step': 3}",
        "step:4 - a:3 - b:np.float64(2.5)",
        "[P 3] {'a': '1.5', 'b': '1e-06', 'c': 'text'}",
    ),
    *("      Step 3      ", "┃ Metric ┃ Value ┃", "│ a/b │ 1.500000 │", "│ c │   │", "└──┴──┘"),
    *("Global Step:  3%|█ | 3/9 [01:02<09:00, 3.0s/it, step_time=3.5, a=2e-06]", "├── Time ──┤", "│step=3.5 │ │"),
)


@given(
    st.lists(
        st.tuples(st.sampled_from(["", "\x1b[36m(A pid=3)\x1b[0m \x1b[1m"]), st.sampled_from(_HEADINGS)), max_size=30
    )
)
@pytest.mark.parametrize("shape", SHAPES, ids=lambda shape: shape.framework)
def test_the_lines_that_are_passed_over_say_nothing(shape: Shape, parts: list[tuple[str, str]]) -> None:
    lines = ["".join(part) + "\n" for part in parts]
    unfiltered = replace(shape, says=lambda line: True)
    assert repr(list(rows_of(shape, lines))) == repr(list(rows_of(unfiltered, lines)))


@pytest.mark.parametrize("shape", SHAPES, ids=lambda shape: shape.framework)
@pytest.mark.parametrize(
    "head",
    [
        "2026-08-20T09:00:01.123456789Z stdout F ",
        "2026-08-20T09:00:01Z ",
        "[2026-08-20 09:00:01] ",
        "0: ",
        "[rank0]: ",
        "0: \x1b[36m(A pid=3)\x1b[0m ",
        "[pod/trainer-0/main] ",
        "trainer-1  | ",
        "Aug 20 09:00:01 node-3 python[123]: ",
        "2026-08-20T09:00:01+0000 node-3 python[123]: ",
    ],
)
def test_what_carries_a_line_does_not_change_it(shape: Shape, head: str) -> None:
    """Kubernetes with times and pods, moreutils' ts, srun --label, torchrun, Docker Compose, journalctl."""
    plain = list(rows_of(shape, [f"{line}\n" for line in _HEADINGS]))
    assert plain
    assert repr(list(rows_of(shape, [f"{head}{line}\n" for line in _HEADINGS]))) == repr(plain)


_ITEMS = (
    st.floats()
    | st.integers()
    | st.integers(2**63 - 3, 2**63 + 3)
    | st.booleans()
    | st.none()
    | st.text(max_size=3)
    | st.sampled_from(["1.5", "NaN"])
    | st.lists(st.integers(), max_size=2)
    | st.dictionaries(st.text(max_size=2), st.floats(), max_size=2)
)


@example({"tokens": 2**53 + 1})  # the narrowest integer that no float holds: a metric is a float
@given(st.dictionaries(st.text(max_size=4), _ITEMS, max_size=5))
def test_a_row_of_json_is_read_the_same_either_way(row: dict[str, object]) -> None:
    text = json.dumps(row, ensure_ascii=False) if len(row) % 2 else json.dumps(row)
    careful = {key: float(value) for key, value in flat(from_loose_json(text))}
    quick = numbers_of(text)
    if quick is not None:
        assert quick == careful
    else:  # something in it is no plain number, or one that only the careful reader judges
        odd = (type(v) not in (int, float) or not abs(float(v)) < 2.0**63 for v in from_loose_json(text).values())
        assert any(odd) or "\\u" in text


@given(st.dictionaries(st.text(max_size=4), _ITEMS | st.floats().map(np.float64) | st.just(np.int64(3)), max_size=5))
def test_a_printed_dictionary_is_read_the_same_either_way(row: dict[str, object]) -> None:
    for text in (str(row), json.dumps(row, default=float)):
        found = ((match["key"], number(match["value"])) for match in _PAIR.finditer(text))
        assert dict_of(text) == pytest.approx({k: v for k, v in found if v is not None}, rel=0, abs=0, nan_ok=True)


@pytest.mark.parametrize("text", ["", "1", "[1]", '{"a": 1', '{"a": 1,}', '{"a": .5}', '{"a": 01}', '{"a\x01": 1}'])
def test_what_is_no_json_is_no_row(text: str) -> None:
    assert numbers_of(text) is None


@given(st.lists(st.dictionaries(st.sampled_from("abcdef"), st.floats(), max_size=4), max_size=30))
def test_a_table_holds_its_rows(rows: list[Row]) -> None:
    table = RunLogTable(lambda name: name != "f")
    for row in rows:
        table.add(row)
    assert len(table) == len(rows)
    assert set(table.names) == {name for row in rows for name in row}
    for name in "abcde":
        np.testing.assert_array_equal(table.column(name), [row.get(name, np.nan) for row in rows])
    assert np.isnan(table.column("f")).all()
