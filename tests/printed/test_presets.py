"""Every preset, and every shipped example as a file with a space in its name: what size, simulate, split and plan print
to be typed runs as it stands, from the folder where it was printed."""

from __future__ import annotations

import html
import re
import shlex
import shutil
from pathlib import Path

import pytest

from fleetsim.config.data_files import presets
from tests.golden.inputs import INPUTS
from tests.once import simulated_once
from tests.printed.reading import Words, flags_in, in_document, in_page, in_text, settings_in
from tests.printed.shell import ANSWERS, Printed, accepted, command_of, every_face, options_of, short_runs, works

SCENARIOS = sorted(path for path in (Path(__file__).parents[2] / "scenarios").glob("*.yaml"))
_SMALL = ("--batch", "32", "--len", "100", "--replications", "1")
# A smaller model needs fewer GPUs, so a plan has fewer choices.
_PLANNED = ("--gpus", "2", "--model", "Qwen/Qwen2.5-1.5B")
_ASKED = {"size": (), "simulate": (), "split": ("--gpus", "8"), "plan": _PLANNED}
# slime keeps 512 groups an engine in flight: a thirtieth of them says the same in a fiftieth of the time.
_FEWER = {"slime-fully-async": ("--set", "admission.pool_samples=1024", "--set", "buffer.capacity_samples=1024")}
# Beside a trainer and an engine of one GPU each their judges need two.
_JUDGED = dict.fromkeys(("my async-judge.yaml", "my distillation.yaml"), ("--gpus", "4"))
# What a reader puts in the place of such a word.
_MEANT = {"LOG": "run.jsonl"}
# Pages say what --explain says, in the same words: they are drawn for a few.
_DRAWN = ("areal", "verl-fully-async")
_CHANGE = re.compile(r"^(--.*?)(?: needs | saves | costs | meets | instead of )")


def _call(command: str, start: str) -> Words:
    """What a user types. start: a preset, or a file."""
    file = ("--scenario", start) if command != "simulate" else (start,)
    job = file if start.endswith(".yaml") else ("--preset", start)
    more = _JUDGED.get(start, ()) if command == "plan" else ()
    return ("fleetsim", command, *_ASKED[command], *more, *job, *_SMALL, *_FEWER.get(start, ()))


def _permitted(found: Printed) -> Printed:
    """The same with what the remedies of refusals say; in runs of a few steps more than one may be needed."""
    asked = found.words
    for _ in range(3):
        remedy = re.search(r"give (--allow '[^']+')", " ".join(found.text.split()))
        if found.code != 2 or remedy is None:
            break
        found = every_face((*asked, *shlex.split(remedy[1])), drawn=False)
    return found


@pytest.mark.parts
@pytest.mark.parametrize("command", _ASKED)
@pytest.mark.parametrize("start", [*sorted(presets()), *(path.stem for path in SCENARIOS)])
def test_what_an_answer_prints_runs_as_it_stands(
    command: str, start: str, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.chdir(tmp_path)
    Path("run.jsonl").write_text(str(INPUTS["verl.jsonl"]), encoding="utf-8")
    file = next((path for path in SCENARIOS if path.stem == start), None)
    if file is not None:
        start = f"my {file.name}"
        shutil.copy(file, start)
    with short_runs(), simulated_once():
        found = every_face(_call(command, start), drawn=start in _DRAWN or file is not None)
        if found.code == 2 and command == "plan":
            found = _permitted(found)
        assert found.code in ANSWERS, found.text
        commands = found.commands()
        assert commands
        for words in commands:
            _type(words, found)
        _type_flags(found)
    mine = options_of(command_of(found.words)[0])
    others = {flag for words in commands for flag in flags_in(" ".join(words))}
    assert flags_in(found.text) <= mine | others | {"--explain", "--html", "--json"}, flags_in(found.text) - mine


def _type(words: Words, found: Printed) -> None:
    """Types a command. What asks the whole question again for a file goes as far as the work, and the answer that is
    there is written; so far, too, goes what needs a GPU. Another search is made where a page was drawn, and elsewhere
    goes as far as the work."""
    command, rest = command_of(words)
    if words[1] == "calibrate":
        command.make_context(words[1], list(rest))
    elif sorted(words[:-1]) == sorted((*found.words, "--save")):
        accepted(words)
        Path(words[-1]).write_text(found.saved, encoding="utf-8")
    elif words[1] != "simulate" and not found.page:
        accepted(tuple(_MEANT.get(word, word) for word in words))
    else:
        works(tuple(_MEANT.get(word, word) for word in words))


def _type_flags(found: Printed) -> None:
    """Flags that are proposed go with the call: the change, what is assumed, settings that a warning names."""
    brief = found.document.get("brief", {})
    change = _CHANGE.match(brief.get("change") or "")
    if change is not None:
        works((*found.words, *shlex.split(change[1])))
    assumed = brief.get("assumed")
    for flag in re.split(r", (?=--)", assumed) if assumed else ():
        accepted((*found.words, *shlex.split(flag)))
    for settings in settings_in(found.text):
        accepted((*found.words, *settings))
    for permission in re.findall(r"--allow '([^']+)'", found.text):
        accepted((*found.words, "--allow", permission))


@pytest.mark.parametrize(
    "words",
    [
        ("fleetsim", "simulate", "--preset", "areal", "--gpus", "4"),
        ("fleetsim", "simulate", "--preset", "areal", "--set", "admission.max_stalenes=4"),
        ("fleetsim", "size", "--scenario", "nowhere.yaml"),
        ("fleetsim", "replay"),
    ],
    ids=" ".join,
)
def test_what_does_not_run_is_found(words: Words, tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.chdir(tmp_path)
    for types in (works, accepted):
        with pytest.raises(AssertionError):
            types(words)


def test_commands_are_found_in_every_face() -> None:
    words = ("fleetsim", "size", "--scenario", "my job.yaml", "--len", "900")
    line = shlex.join(words)
    broken = f"  next: {line}".replace(" --len", " \\\n    --len")
    ticked = f"too few: `{line}` finds\nmore"
    for text in (line, broken, ticked, f"engine speed ({line}), worth $3"):
        assert list(in_text(text)) == [words], text
    assert list(in_page(f"<h1>fleetsim size</h1><pre><code>{html.escape(line)}</code></pre>")) == [words]
    assert list(in_document({"a": [{"command": list(words)}, line]})) == [words, words]
    assert settings_in("cap them with --set a.b=3, or --set c.d=VALUE.") == {("--set", "a.b=3")}
