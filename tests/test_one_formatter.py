"""Numbers are written in `fleetsim/units.py` and quantities named in `fleetsim/quantities.py`, nowhere else."""

from __future__ import annotations

import ast
from collections.abc import Iterator
from functools import cache
from pathlib import Path

import pytest

import fleetsim
from fleetsim.quantities import CATALOGUE

ROOT = Path(fleetsim.__file__).parent
FILES = [p for p in sorted(ROOT.rglob("*.py")) if p.name not in ("units.py", "quantities.py")]
# An optimizer step is also a thing: it is counted ("12 optimizer steps") and stands along the axes of charts.
TITLES = {q.title for q in CATALOGUE} - {"optimizer step"}


@cache
def tree_of(path: Path) -> ast.AST:
    return ast.parse(path.read_text())


def shares_by_hand(tree: ast.AST) -> Iterator[int]:
    """Lines that write a share as a percentage: `{x:.1%}`, or `{100 * x:.1f}` before a percent sign."""
    for node in ast.walk(tree):
        if not isinstance(node, ast.JoinedStr):
            continue
        for value, after in zip(node.values, [*node.values[1:], None], strict=True):
            if not isinstance(value, ast.FormattedValue) or value.format_spec is None:
                continue
            spec = ast.unparse(value.format_spec)[2:-1]
            is_percent = isinstance(after, ast.Constant) and str(after.value).startswith((" %", "%"))
            if (spec.endswith("%") and not spec.startswith("%")) or (is_percent and not spec.startswith("%")):
                yield value.lineno


def titles(tree: ast.AST) -> Iterator[tuple[int, str]]:
    """Strings that are the title of a quantity, and their lines."""
    for node in ast.walk(tree):
        if isinstance(node, ast.Constant) and isinstance(node.value, str) and node.value in TITLES:
            yield node.lineno, node.value


def test_the_search_finds_what_it_is_for() -> None:
    bad = ast.parse("f'{x:.1%}', f'{100 * x:.0f} %', f'{x:+.0%} more', 'trainer idle'")
    assert len(list(shares_by_hand(bad))) == 3
    assert list(titles(bad)) == [(1, "trainer idle")]
    assert not list(shares_by_hand(ast.parse("f'{when:%H:%M}', f'{share(x)} of it', f'{n:,} samples'")))


@pytest.mark.parametrize("find", [shares_by_hand, titles])
def test_nothing_is_written_or_named_by_hand(find: object) -> None:
    found = [
        f"{path.relative_to(ROOT)}: {hit}"
        for path in FILES
        for hit in find(tree_of(path))  # type: ignore[operator]
    ]
    assert not found, "use fleetsim/units.py and fleetsim/quantities.py"
