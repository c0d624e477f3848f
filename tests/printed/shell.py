"""Calls typed in this process, in a folder as a user has one, with runs of a few steps.

What is printed to be typed does not depend on how long the runs behind the figures were; how long they are is
tested elsewhere.
"""

from __future__ import annotations

import json
import shlex
from collections.abc import Iterator
from contextlib import contextmanager
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any
from unittest import mock

import typer.main
from typer.testing import CliRunner

import fleetsim.cli.output
import fleetsim.cli.progress
from fleetsim.cli.main import app
from fleetsim.config.scenario import Scenario
from fleetsim.job import looks
from fleetsim.sim.run import Steady
from fleetsim.sim.window import least_warmup_steps
from tests.printed.reading import Words, in_document, in_page, in_text

# Answers: yes, a condition that does not hold, a wish that nothing meets.
ANSWERS = (0, 10, 11)
# Two steps behind the beginning: with one, no interval can be worked out.
_COUNTED = 2


@dataclass(frozen=True, slots=True)
class Printed:
    """What a call printed. texts: what a terminal shows. document: of --json. page: of --html."""

    words: Words
    code: int
    texts: tuple[str, ...]
    document: dict[str, Any] = field(default_factory=dict)
    page: str = ""
    saved: str = ""

    @property
    def text(self) -> str:
        """All that a terminal shows."""
        return "\n".join(self.texts)

    def commands(self) -> list[Words]:
        """Each command once, in the order in which it is told."""
        found = (in_text(self.text), in_document(self.document), in_page(self.page))
        return list(dict.fromkeys(words for face in found for words in face))


@contextmanager
def short_runs() -> Iterator[None]:
    """Runs end a few steps after their beginning."""

    def begun(self: Any, scenario: Scenario) -> None:
        self._enough = least_warmup_steps(scenario) + _COUNTED

    def ends(self: Any, steps: int, now_s: float) -> bool:
        return bool(steps >= self._enough)

    with (
        mock.patch.object(Steady, "__init__", begun),
        mock.patch.object(Steady, "__call__", ends),
        mock.patch.object(looks, "_LOOK", 4),
        mock.patch.object(looks, "_FEWEST", 4),
        mock.patch.object(looks, "_DEPTHS", 2),
    ):
        yield


def typed(words: Words) -> tuple[int, str]:
    """The exit code of a command and what it prints; to be called in the folder."""
    assert words[0] == "fleetsim"
    done = CliRunner().invoke(app, list(words[1:]))
    if done.exception is not None and not isinstance(done.exception, SystemExit):
        raise done.exception
    return done.exit_code, done.output


def works(words: Words) -> Any:
    """Runs a command to its exit code and gives its answer, if it has one; that is not drawn, which would take longer
    than to find it. Raises AssertionError for an exit code that is no answer."""
    with mock.patch.object(fleetsim.cli.output, "show_result", return_value=None) as shown:
        code, text = typed(words)
    assert code in ANSWERS, (shlex.join(words), text)
    return shown.call_args.args[0] if shown.called else None


def every_face(words: Words, drawn: bool = True) -> Printed:
    """What a command prints in brief, under --explain, under --json and, if it is drawn, on its page, of one run."""
    results: list[Any] = []
    show = fleetsim.cli.output.show_result

    def shown(result: Any, as_json: bool, explain: bool = False) -> None:
        results.append(result)
        show(result, as_json, explain)

    page = Path("a page.html")
    with mock.patch.object(fleetsim.cli.output, "show_result", shown):
        code, text = typed((*words, "--explain", *(("--html", str(page)) if drawn else ())))
    if not results:
        return Printed(words, code, (text,))
    (result,) = results
    document = json.loads(result.to_json())
    written = page.read_text(encoding="utf-8") if page.exists() else ""
    page.unlink(missing_ok=True)
    saved = result.saved() if hasattr(result, "saved") else ""
    return Printed(words, code, (text, str(result)), document, written, saved)


def accepted(words: Words) -> None:
    """Goes as far as the work: flags, values and files are right. Raises AssertionError."""

    def begins(*_: Any, **__: Any) -> Any:
        raise SystemExit(0)

    with mock.patch.object(fleetsim.cli.progress, "progress", begins):
        code, text = typed(words)
    assert code in ANSWERS, (words, text)


def command_of(words: Words) -> tuple[Any, Words]:
    """The command that these words call, and the words behind its name. Raises AssertionError."""
    here: Any = typer.main.get_command(app)
    rest = list(words[1:])
    with here.make_context("fleetsim", [], resilient_parsing=True) as context:
        while hasattr(here, "get_command") and rest and not rest[0].startswith("-"):
            found = here.get_command(context, rest[0])
            assert found is not None, f"fleetsim has no command {rest[0]!r}: {' '.join(words)}"
            here, rest = found, rest[1:]
    return here, tuple(rest)


def options_of(command: Any) -> set[str]:
    """The flags of a command."""
    return {flag for param in command.params for flag in (*param.opts, *param.secondary_opts)} | {"--help"}
