"""Files that a command line names: each its own, and none of them stdout; refused before any work."""

from __future__ import annotations

import sys
from pathlib import Path

import pytest
from hypothesis import given
from hypothesis import strategies as st
from typer.testing import CliRunner

from fleetsim.cli.main import app
from fleetsim.errors import InputError, OutsideError
from fleetsim.files import apart
from fleetsim.tell.page import check_installed

SEVERAL = {
    "size": (("size",), ("--save", "--html")),
    "split": (("split", "--gpus", "8"), ("--save", "--html")),
    "plan": (("plan", "--gpus", "8"), ("--save", "--html")),
    "simulate": (("simulate", "async-one-step"), ("--html", "--openmetrics", "--perfetto", "--parquet")),
    "replay": (("replay", "--from", "w.om"), ("--save", "--html", "--plan-out", "--patch")),
    "alerts": (("alerts", "async-one-step"), ("--output", "--tests")),
}


def said(folder: Path, monkeypatch: pytest.MonkeyPatch, *arguments: str) -> str:
    monkeypatch.chdir(folder)
    result = CliRunner().invoke(app, list(arguments))
    assert result.exit_code == 2, result.output
    assert result.stdout == ""
    assert not [place for place in folder.iterdir() if place.is_file()]
    return " ".join(result.stderr.split())


@pytest.mark.parametrize("command", list(SEVERAL))
def test_two_outputs_at_one_place_are_refused(command: str, tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    words, flags = SEVERAL[command]
    words = (*words, "--deployment", "rollout") if command == "replay" else words
    same = [word for flag in flags for word in (flag, "same")]
    same[-1] = "./x/../same"
    (tmp_path / "x").mkdir()
    told = said(tmp_path, monkeypatch, *words, *same)
    for flag in flags[1:]:
        assert f"{flag} = " in told or f"{flag}:" in told
    assert told.count(f"is the place of {flags[0]} as well") == len(flags) - 1


@pytest.mark.parametrize(("command", "flag"), [(c, flag) for c, (_, flags) in SEVERAL.items() for flag in flags])
def test_a_dash_is_no_file(command: str, flag: str, tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    words, _ = SEVERAL[command]
    more = {"--tests": ("--output", "rules.yaml"), "--patch": ("--deployment", "rollout")}.get(flag, ())
    told = said(tmp_path, monkeypatch, *words, *more, flag, "-")
    assert flag in told
    assert "give a f" in told or "give one, for example window.parquet" in told


@given(st.lists(st.sampled_from(["a", "b", "./a", "c/../b", "", None]), max_size=5))
def test_places_are_compared_and_not_their_spelling(paths: list[str | None]) -> None:
    outputs = {f"--{i}": path for i, path in enumerate(paths)}
    given_paths = [path[-1] for path in paths if path]
    twice = len(given_paths) - len(set(given_paths))
    try:
        apart(outputs)
    except InputError as error:
        assert len(error.problems) == twice > 0
    else:
        assert twice == 0


def test_what_pages_need_and_is_missing_is_named(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setitem(sys.modules, "jinja2", None)
    with pytest.raises(OutsideError, match="needs jinja2; install it"):
        check_installed()
