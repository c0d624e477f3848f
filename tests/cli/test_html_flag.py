"""`--html FILE` on size, simulate and split: one whole file beside the usual answer, or a refusal before any work."""

from __future__ import annotations

import json
import sys
from pathlib import Path

import pytest
from typer.testing import CliRunner, Result

from fleetsim.cli.main import app

pytestmark = pytest.mark.usefixtures("quick")

pytest.importorskip("jinja2", reason='the pages need pip install "fleetsim[report]"')

SMALL = ("--batch", "64", "--len", "300", "--set", "run.steps=8", "--replications", "2", "--trainer-step-s", "3")
COMMANDS = {
    "size": ("size", *SMALL),
    "simulate": ("simulate", "async-one-step", "--set", "trainer.batch_samples=64", "--steps=6", "--replications=2"),
    "split": ("split", "--gpus", "4", *SMALL),
}  # fmt: skip


def run(*arguments: str) -> Result:
    return CliRunner().invoke(app, list(arguments))


@pytest.mark.parametrize("command", list(COMMANDS))
def test_the_page_stands_beside_an_answer_that_stays_the_same(command: str, tmp_path: Path) -> None:
    place = tmp_path / "page.html"
    plain = run(*COMMANDS[command], "--json")
    made = run(*COMMANDS[command], "--json", "--html", str(place))
    assert (made.exit_code, plain.exit_code) == (0, 0)
    assert json.loads(made.stdout) == json.loads(plain.stdout)
    assert f"wrote {place}" in made.stderr
    text = place.read_text(encoding="utf-8")
    assert text.startswith("<!doctype html>")
    assert text.rstrip().endswith("</html>")
    assert [p.name for p in tmp_path.iterdir()] == ["page.html"]


@pytest.fixture
def no_work(monkeypatch: pytest.MonkeyPatch) -> None:
    """Whoever simulates fails."""

    def refuse(*arguments: object, **more: object) -> None:
        raise AssertionError("work was done before the refusal")

    work = {"fleetsim.size.size": "size", "fleetsim.split.split": "split", "fleetsim.sim.replications": "replicate"}
    for module, function in work.items():
        __import__(module)
        monkeypatch.setattr(sys.modules[module], function, refuse)


@pytest.mark.usefixtures("no_work")
@pytest.mark.parametrize("command", list(COMMANDS))
def test_a_path_that_cannot_be_is_refused_before_the_work(command: str, tmp_path: Path) -> None:
    taken = tmp_path / "taken.html"
    taken.write_text("mine")
    for path, rule in ((taken, "exists already"), (tmp_path / "no" / "x.html", "folder"), (tmp_path, "directory")):
        result = run(*COMMANDS[command], "--html", str(path))
        assert result.exit_code == 2
        assert rule in " ".join(result.stderr.split())
        assert "--html" in result.stderr
    assert taken.read_text() == "mine"


@pytest.mark.usefixtures("no_work")
@pytest.mark.parametrize("command", list(COMMANDS))
def test_a_missing_extra_is_told_before_the_work(command: str, tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setitem(sys.modules, "jinja2", None)
    result = run(*COMMANDS[command], "--html", str(tmp_path / "page.html"))
    assert result.exit_code == 3
    assert "fleetsim[report]" in result.stderr
    assert list(tmp_path.iterdir()) == []


def test_a_page_that_cannot_be_written_leaves_nothing_behind(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    def full(self: Path, *arguments: object, **more: object) -> None:
        raise OSError(28, "No space left on device")

    monkeypatch.setattr(Path, "write_bytes", full)
    result = run(*COMMANDS["simulate"], "--html", str(tmp_path / "page.html"))
    assert result.exit_code == 3
    assert "No space left" in result.stderr
    assert result.stdout.startswith("async-one-step: a step takes ")  # the answer is not lost with the page
    assert list(tmp_path.iterdir()) == []
