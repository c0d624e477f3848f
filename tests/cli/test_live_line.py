"""The live line fits, whatever the terminal's width, and what matters most is the last thing to go."""

from __future__ import annotations

import io
import re

import pytest
from hypothesis import given
from hypothesis import strategies as st
from rich.console import Console

from fleetsim.cli.progress import live_line

BEST = "best cost per step $0.477 at fleet.instances=12, admission.max_staleness=0.5"


def drawn(width: int, what: str = "cells", best: str = BEST, left: str = "1 min 03 s left", of: int | None = 80) -> str:
    """The text of the line in a terminal so wide."""
    console = Console(file=io.StringIO(), width=width, height=20, force_terminal=True, color_system=None, record=True)
    bar = live_line(console)
    bar.add_task(what, total=of, completed=24, best=best, left=left)
    console.print(bar.get_renderable())
    return console.export_text()


@pytest.mark.parametrize("width", [40, 60, 80, 100, 120, 200])
def test_it_is_one_line_with_what_matters(width: int) -> None:
    text = drawn(width)
    assert len(text.splitlines()) == 1
    assert len(text.rstrip("\n")) <= width
    assert "cells" in text
    assert "24 of 80 1 min 03 s left" in text
    bar = re.search(r"[━╸╺ -]{6,}", text)
    if width >= 60:
        assert bar is not None, text
        assert " best cost per" in text
    if width == 80:
        assert "…" in text
    if width == 200:
        assert BEST in text


@given(
    st.integers(8, 200), st.text(max_size=90), st.text(max_size=90), st.sampled_from(["", "3 s left"]), st.booleans()
)
def test_no_width_and_no_text_makes_it_two(width: int, what: str, best: str, left: str, counted: bool) -> None:
    plain = [re.sub(r"[^ -~]", "x", text) for text in (what, best)]
    assert len(drawn(width, plain[0], plain[1], left, 80 if counted else None).splitlines()) == 1
