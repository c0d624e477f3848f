"""README says what is true: its commands are the ones that CI runs, its figures are the ones that scripts wrote.

Its Python example is executed as a doctest (pyproject.toml, `--doctest-glob`).
"""

from __future__ import annotations

import json
import re
import subprocess
import sys
from pathlib import Path

import pytest

from benchmarks.run import ROWS, shown

ROOT = Path(__file__).resolve().parents[2]
README = (ROOT / "README.md").read_text(encoding="utf-8")


def rows(text: str) -> list[list[str]]:
    """Cells of all table rows with a figure in them."""
    lines = [line for line in text.splitlines() if line.startswith("|") and re.search(r"\d", line)]
    return [[cell.strip() for cell in line.strip("|").split("|")] for line in lines]


def section(title: str) -> str:
    """README's text under a second-level heading."""
    return README.split(f"\n## {title}\n")[1].split("\n## ")[0]


def test_ci_runs_the_test_command_of_readme() -> None:
    commands = [line for line in README.splitlines() if line.startswith("python3 -m venv .venv-test ")]
    assert len(commands) == 1
    assert "/pytest" in commands[0]
    assert "grep -m1 '^python3 -m venv \\.venv-test ' README.md" in (ROOT / ".ci" / "run").read_text(encoding="utf-8")


def test_readme_installs_and_sizes_in_one_command() -> None:
    commands = [line for line in README.splitlines() if line.startswith("python3 -m venv .venv ")]
    assert len(commands) == 1
    assert commands[0].endswith(".venv/bin/fleetsim size --batch 512 --len 1536")


def test_accuracy_is_quoted_from_the_page() -> None:
    page = rows((ROOT / "docs" / "accuracy.md").read_text(encoding="utf-8"))
    quoted = rows(section("How accurate is it?").split("Published runs")[0])
    assert quoted
    for row in quoted:
        assert row in [candidate[: len(row)] for candidate in page], row


def test_published_runs_are_quoted_from_the_page() -> None:
    page = rows((ROOT / "docs" / "published.md").read_text(encoding="utf-8"))
    quoted = rows(section("How accurate is it?").split("Published runs")[1])
    assert len(quoted) == 3
    for row in quoted:
        assert row in [candidate[: len(row)] for candidate in page], row


def test_speed_is_quoted_from_the_benchmark() -> None:
    figures = json.loads((ROOT / "benchmarks" / "results.json").read_text(encoding="utf-8"))["figures"]
    measured = {what.removeprefix("- "): shown(figures[key], unit) for key, what, unit, _ in ROWS}
    quoted = rows(section("How fast is it?"))
    assert quoted
    for what, figure in quoted:
        assert measured[what] == figure


def test_files_that_readme_links_to_exist() -> None:
    targets = re.findall(r"\]\(([^)#:]+)\)", README)
    assert targets
    for target in targets:
        assert (ROOT / target).exists(), target


@pytest.mark.parametrize("name", sorted(set(re.findall(r"^(?:`|)fleetsim ([a-z]+)", README, re.MULTILINE))))
def test_commands_that_readme_names_exist(name: str) -> None:
    code = "from fleetsim.cli.main import main; main()"
    done = subprocess.run([sys.executable, "-c", code, name, "--help"], capture_output=True, text=True, check=False)
    assert done.returncode == 0, done.stderr
