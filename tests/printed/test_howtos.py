"""Every how-to: its commands are typed in a folder, and what each prints to be typed runs as it stands, there."""

from __future__ import annotations

import re
import shlex
from collections.abc import Iterator
from pathlib import Path

import pytest

from tests.golden.inputs import INPUTS
from tests.once import once, simulated_once
from tests.printed.reading import Words
from tests.printed.shell import ANSWERS, Printed, accepted, command_of, every_face, short_runs, typed, works

HOWTO = Path(__file__).parents[2] / "docs" / "howto"
_BLOCK = re.compile(r"^```console\n(.*?)^```", re.DOTALL | re.MULTILINE)
# These have all faces; an answer of the others is read as it is printed.
_FACED = ("size", "simulate", "split", "replay")
# Words of an answer's form.
_FORMS = ("--json", "--explain")
# What a reader puts in the place of such a word; URL is a server, where nobody answers here.
_MEANT = {"LOG": "run.jsonl", "FILE": "job.yaml"}
# A window and a plan of his own: the command is known, and its flags.
_HIS = ("WINDOW", "PLAN.json")


def _commands(page: str) -> Iterator[tuple[Words, bool]]:
    """Those of a page, in order, and whether it shows the exit code of each."""
    for block in _BLOCK.findall(page):
        lines = re.findall(r"^\$ ((?:.*\\\n)*.*)$", block, re.MULTILINE)
        for line, after in zip(lines, (*lines[1:], ""), strict=True):
            words = tuple(shlex.split(line.replace("\\\n", "")))
            if words[0] == "fleetsim" and "|" not in words:
                yield words, after == "echo $?"


def _printed(words: Words, failing: bool) -> Printed:
    """What the command prints, on all its faces where it has them."""
    plain = tuple(word for word in words[: words.index(">") if ">" in words else None] if word not in _FORMS)
    if words[1] in _FACED and "--openmetrics" not in words and not failing:
        return every_face(plain, drawn=words[1] == "replay")
    code, text = typed(plain)
    return Printed(words, code, (text,))


@pytest.mark.parts
@pytest.mark.parametrize("page", sorted(HOWTO.glob("*.md")), ids=lambda page: page.stem)
def test_what_its_commands_print_runs_as_it_stands(page: Path, tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.chdir(tmp_path)
    Path("run.jsonl").write_text(str(INPUTS["verl.jsonl"]), encoding="utf-8")
    done: set[Words] = set()
    with short_runs(), simulated_once():
        for name, data in once("files of the how-tos", _examples).items():
            Path(name).write_bytes(data)
        for words, failing in _commands(page.read_text(encoding="utf-8")):
            found = _printed(words, failing)
            assert failing or found.code in ANSWERS, (shlex.join(words), found.text)
            done.add(words)
            for command in found.commands():
                if command not in done:
                    done.add(command)
                    _type(command, found)


def _examples() -> dict[str, bytes]:
    """The files that `fleetsim examples` writes, by name."""
    works(("fleetsim", "examples", "made"))
    return {file.name: file.read_bytes() for file in Path("made").iterdir()}


def _type(words: Words, found: Printed) -> None:
    command, rest = command_of(words)
    meant = tuple(_MEANT.get(word, word) for word in words)
    if words[1] == "calibrate" or any(word in _HIS for word in words):
        command.make_context(words[1], list(rest))
    elif "--prometheus" in words:
        accepted(meant)
    elif sorted(words[:-1]) == sorted((*found.words, "--save")):
        accepted(meant)
        Path(words[-1]).write_text(found.saved, encoding="utf-8")
    else:
        works(meant)


def test_every_how_to_has_commands_that_print_some() -> None:
    """The reading of pages finds something: `index` is a list of the others."""
    for page in HOWTO.glob("*.md"):
        found = [words for words, _ in _commands(page.read_text(encoding="utf-8"))]
        assert bool(found) == (page.stem != "index"), page.stem
