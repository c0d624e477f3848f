"""Every command's help has one form: purpose, examples that parse, options in panels, codes, variables, see also."""

from __future__ import annotations

import re
import shlex
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import pytest
import typer.main
import typer.rich_utils
from hypothesis import given
from hypothesis import strategies as st
from typer.testing import CliRunner

from fleetsim.cli.help import CODES, MANUALS, VARIABLES, examples_in
from fleetsim.cli.main import app
from fleetsim.config.load import default_scenario
from fleetsim.errors import EXIT_CODES
from fleetsim.history.step_logs.frameworks import ANY_CURES, FRAMEWORKS
from fleetsim.job.settings import PATHS
from fleetsim.tell.next_lines import broken, resolved
from fleetsim.workload.lengths import mean_length

ROOT = Path(__file__).parents[2]
MOST_UNSORTED = 8  # options that may stand in one panel without a name


def _commands(group: Any, prefix: str = "") -> Iterator[tuple[str, Any]]:
    for name, command in group.commands.items():
        if hasattr(command, "commands"):
            yield from _commands(command, f"{prefix}{name} ")
        else:
            yield f"{prefix}{name}", command


GROUP = typer.main.get_command(app)
COMMANDS = dict(_commands(GROUP))


def examples(command: Any) -> list[str]:
    return [example for part in command.help.split("\n\n") for example in examples_in(part)]


def shown(path: str, columns: int) -> str:
    with pytest.MonkeyPatch.context() as patch:
        patch.setattr(typer.rich_utils, "MAX_WIDTH", columns)
        done = CliRunner().invoke(app, [*path.split(), "--help"])
    assert done.exit_code == 0
    return done.stdout


def test_there_is_a_manual_for_every_command_and_no_other() -> None:
    assert set(MANUALS) == set(COMMANDS)


def test_codes_are_the_ones_there_are() -> None:
    assert set(CODES) == set(EXIT_CODES)


@pytest.mark.parametrize("path", COMMANDS)
def test_what_a_manual_names_exists(path: str) -> None:
    manual = MANUALS[path]
    assert set(manual.codes) <= set(EXIT_CODES)
    assert set(manual.variables) <= set(VARIABLES)
    assert manual.see
    for word in manual.see:
        if word.startswith("docs/"):
            assert (ROOT / word).is_file(), word
        else:
            assert any(known == word or known.startswith(f"{word} ") for known in COMMANDS), word
    options = {name for param in COMMANDS[path].params for name in param.opts}
    if "--fail-if" in options:
        assert 10 in manual.codes
    if "--strict" in options and path != "validate":
        assert 12 in manual.codes
    if {"--token-file", "--run"} & options:
        assert "FLEETSIM_PROMETHEUS_TOKEN" in manual.variables


@pytest.mark.parametrize("path", COMMANDS)
def test_examples_parse_as_they_stand(path: str) -> None:
    found = examples(COMMANDS[path])
    assert found
    for example in found:
        command = re.split(r"\s(?:&&|>|\|)\s", example)[0]
        words = shlex.split(command)
        assert words[: 1 + len(path.split())] == ["fleetsim", *path.split()]
        COMMANDS[path].make_context(path, words[1 + len(path.split()) :])  # a flag that is none would raise here


def test_commands_that_a_diagnosis_gives_parse_as_they_stand() -> None:
    for cures in (ANY_CURES, *(known.cures for known in FRAMEWORKS)):
        for row in "; ".join(cures.values()).split("; "):
            if row.startswith("fleetsim "):
                _, path, *words = shlex.split(resolved(row, ("--from", "run.jsonl")))
                COMMANDS[path].make_context(path, words)


@pytest.mark.parametrize("columns", [80, 120])
@pytest.mark.parametrize("path", COMMANDS)
def test_the_form(path: str, columns: int) -> None:
    text = shown(path, columns)
    assert max(map(len, text.splitlines())) <= columns
    order = [text.index(word) for word in ("Usage:", "Examples:", "─ Options", "Exit codes:", "See also:")]
    assert order[:2] == sorted(order[:2])
    assert order[1] < text.index("╭─") < order[3] < order[4]
    # Each example can be copied out of the terminal: its lines, joined at the backslashes, are the example.
    block = text[order[1] : text.index("╭─")]
    joined = re.sub(r" \\\s*\n\s+", " ", "\n".join(line.rstrip() for line in block.splitlines()))
    for example in examples(COMMANDS[path]):
        assert example in joined, example


@pytest.mark.parametrize("path", COMMANDS)
def test_options_say_what_they_are_and_stand_in_panels(path: str) -> None:
    options = [p for p in COMMANDS[path].params if p.param_type_name == "option" and p.name != "help"]
    for option in options:
        assert option.help, option.opts
        assert option.help.rstrip("…").endswith((".", "?")), option.help
    assert sum(getattr(p, "rich_help_panel", None) is None for p in options) <= MOST_UNSORTED


# What follows from the rest of the job where nobody gives it, and what the help says of that.
FOLLOWS = {
    "tp": "(the cheapest that fits)",
    "trainer_step_s": "(by model)",
    "trainer_gpus": "(the fewest servers)",
    "instance_price": "(by type)",
    "trainer_price": "(by type)",
}


def test_defaults_that_follow_from_the_job_say_from_what() -> None:
    said = {p.name: p.help for p in COMMANDS["size"].params}
    for name, words in FOLLOWS.items():
        assert words in said[name], name


def test_defaults_in_parentheses_are_the_scenarios() -> None:
    scenario = default_scenario()
    for path in ("size", "split", "simulate"):
        for option in COMMANDS[path].params:
            place = PATHS.get(option.name.rstrip("_"))
            said = re.search(r"\(([\w.,/-]+)\)\.", option.help or "")
            if place is None or said is None or place.startswith("targets."):
                continue
            value: Any = scenario
            for key in place.split("."):
                value = getattr(value, key)
            value = getattr(value, "value", value)
            if value is None:  # said by a word
                assert said[1] == "never", option.name
                continue
            wanted = str(value) if isinstance(value, str) else f"{value:,g}"
            assert wanted.startswith(said[1]), (option.name, said[1], wanted)
    lengths = scenario.workload.output_tokens.model_dump()
    said = {p.name: p.help for p in COMMANDS["size"].params}
    for name, key in (("max_len", "max"), ("len_cv", "cv")):
        assert f"({lengths[key]:,g})" in said[name]
    assert f"({mean_length(scenario.workload.output_tokens, at_least=1.0):,.0f})" in said["len_"]  # after the cap


@given(st.lists(st.text("abc-=/.", min_size=1, max_size=30), min_size=1, max_size=12), st.integers(30, 120))
def test_a_broken_command_is_the_same_command(words: list[str], width: int) -> None:
    command = " ".join(["fleetsim", *words])
    lines = broken(command, width, indent=4)
    assert all(line.endswith(" \\") for line in lines[:-1])
    assert " ".join(line.removesuffix("\\").strip() for line in lines) == command
    assert all(len(line) <= width or len(line.split()) <= 3 for line in lines)
