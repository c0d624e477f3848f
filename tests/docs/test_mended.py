"""Every test that docs/mended.md names is there."""

from __future__ import annotations

import ast
import re
from pathlib import Path

ROOT = Path(__file__).parents[2]
NAMED = re.compile(r"`(tests/[\w/]+\.py)(?:::(\w+))?`")


def test_every_test_that_the_page_names_exists() -> None:
    page = (ROOT / "docs/mended.md").read_text(encoding="utf-8")
    rows = [line for line in page.splitlines() if line.startswith("| ") and "held by" not in line and "---" not in line]
    assert len(rows) > 20
    for row in rows:
        found = NAMED.findall(row)
        assert found, row
        for path, name in found:
            tree = ast.parse((ROOT / path).read_text(encoding="utf-8"))
            tests = {node.name for node in tree.body if isinstance(node, ast.FunctionDef)}
            assert any(t.startswith("test_") for t in tests), path
            assert not name or name in tests, f"{path}::{name}"
