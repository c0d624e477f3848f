"""README says what is true: its commands are the ones that CI runs, its figures are the ones that scripts wrote.

Its Python example is executed as a doctest (pyproject.toml, `--doctest-glob`).
"""

from __future__ import annotations

import re
from pathlib import Path

import pytest
from typer.testing import CliRunner

from docs.make_readme import filled, with_rows
from docs.package_page import absolute, repository
from fleetsim.cli.main import app

ROOT = Path(__file__).resolve().parents[2]
README = (ROOT / "README.md").read_text(encoding="utf-8")
HEADS = (
    "| published runs of | number | fitted: median | 90 % within | model left out: median | 90 % within |",
    "| published runs, one scalar fitted per case | wanted | reached | sealed alone |",
    "| what | measured |",
)


def test_ci_runs_the_test_command_of_readme() -> None:
    commands = [line for line in README.splitlines() if line.startswith("python3 -m venv .venv-test ")]
    assert len(commands) == 1
    assert "/pytest" in commands[0]
    assert "grep -m1 '^python3 -m venv \\.venv-test ' README.md" in (ROOT / ".ci" / "run").read_text(encoding="utf-8")


def test_readme_installs_and_sizes_in_one_command() -> None:
    commands = [line for line in README.splitlines() if line.startswith("python3 -m venv .venv ")]
    assert len(commands) == 1
    assert commands[0].endswith(".venv/bin/fleetsim size --batch 512 --len 1536")
    assert "grep -m1 '^python3 -m venv \\.venv && ' README.md" in (ROOT / ".ci" / "run").read_text(encoding="utf-8")


def test_figures_are_those_that_the_scripts_wrote() -> None:
    assert filled(README) == README, "run python docs/make_readme.py"
    assert [len(with_rows(README, head, []).splitlines()) - len(README.splitlines()) for head in HEADS] == [-7, -9, -10]


def test_files_that_readme_links_to_exist() -> None:
    targets = re.findall(r"\]\(([^)#:]+)\)", README)
    assert targets
    for target in targets:
        assert (ROOT / target).exists(), target


@pytest.mark.parametrize("name", sorted(set(re.findall(r"^(?:`|)fleetsim ([a-z]+)", README, re.MULTILINE))))
def test_commands_that_readme_names_exist(name: str) -> None:
    done = CliRunner().invoke(app, [name, "--help"])
    assert done.exit_code == 0, done.output


def test_on_a_package_page_every_link_leads_to_the_repository() -> None:
    page = absolute(README, "https://host/owner/name", "v1")
    links = re.findall(r"(!?)\[[^]]*\]\(([^)]+)\)", page)
    assert len(links) == len(re.findall(r"\]\(([^)]+)\)", README))
    assert {target.partition("/docs/")[0] for picture, target in links if picture} == {"https://host/owner/name/raw/v1"}
    assert all(target.startswith(("https://host/owner/name/", "http")) for _, target in links)
    assert "(https://host/owner/name/blob/v1/docs/model.md#metrics)" in page
    assert repository({}) is None
    assert repository({"GITHUB_REPOSITORY": "o/n"}) == "https://github.com/o/n"
