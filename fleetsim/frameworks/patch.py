"""A scenario as changes of the user's own configuration: `fleetsim scenario to verl job.yaml --config run.yaml`.

Only settings that say something else than the scenario change. A file of YAML, TOML or Python is changed in place, all
its other characters stay; a script stays whole, and its command takes the words that are returned.
"""

from __future__ import annotations

import difflib
import re
import shlex
from collections.abc import Collection, Iterator, Mapping
from pathlib import Path
from typing import Any

import yaml
from msgspec import Struct

from fleetsim import units
from fleetsim.config.data_files import read_text
from fleetsim.config.scenario import Scenario
from fleetsim.errors import InputError, Problem
from fleetsim.frameworks.convert import framework_name
from fleetsim.frameworks.detection import expect
from fleetsim.frameworks.edits import Unchangeable, edit_of
from fleetsim.frameworks.export import WORDS, left_documents, left_out_words, plain
from fleetsim.frameworks.python_source import NOTEBOOK
from fleetsim.frameworks.reading import one_line
from fleetsim.frameworks.reversal import LeftOut, Limits, settled
from fleetsim.frameworks.settings import RunSettings, normal, settings_of
from fleetsim.frameworks.source import MAX_BYTES, parsed_source
from fleetsim.frameworks.tables import FRAMEWORKS, Framework

_HANDED_ON = re.compile(r"\$@|\$\{@|\$\*")
_PARSER = re.compile(r"TrlParser|HfArgumentParser")
_MARK = "\ufeff"


class ChangedSetting(Struct, frozen=True):
    """A setting that changes. old: None where it was not set. paths: what it says of the scenario."""

    key: str
    old: Any
    new: Any
    paths: tuple[str, ...]


class ConfigPatch(Struct, frozen=True):
    """A configuration and what of it changes.

    before, text: the file as it was, and as it is to be. words: for each command, those to put behind its own; the key
    is empty for the program that trains. removed: switches to take out. left_out: what this framework cannot be told.
    """

    framework: str
    mode: str
    name: str
    before: str
    text: str
    words: Mapping[str, tuple[str, ...]]
    removed: tuple[str, ...]
    changes: tuple[ChangedSetting, ...]
    left_out: tuple[LeftOut, ...]

    @property
    def diff(self) -> str:
        """The file's changed lines, as `patch` takes them; nothing where it stays."""
        before, after = (text.splitlines(keepends=True) for text in (self.before, self.text))
        lines = difflib.unified_diff(before, after, self.name, self.name)
        return "".join(line if line.endswith("\n") else f"{line}\n\\ No newline at end of file\n" for line in lines)

    def lines(self) -> Iterator[str]:
        """What changes and what cannot, for a terminal."""
        count = len(self.changes)
        what = f"{units.plural(count, 'setting')} of {self.name} change{'s' * (count == 1)}"
        yield f"{self.framework}, {self.mode}: {what if count else f'nothing of {self.name} changes'}"
        for change in self.changes:
            old = "not set" if change.old is None else one_line(change.old, 60)
            paths = f" ({', '.join(change.paths)})" if change.paths else ""
            yield f"  {change.key}: {old} -> {one_line(change.new, 60)}{paths}"
        for command, words in self.words.items():
            behind = f"at the end of the command in {self.name}"
            behind = f"bash {shlex.quote(self.name)}" if _HANDED_ON.search(self.before) else behind
            yield f"{command or behind}: {' '.join(words)}"
        if self.removed:
            yield f"take out of {self.name}: {' '.join(self.removed)}"
        if self.left_out:
            yield "cannot be told to it:"
        for left in self.left_out:
            yield f"  {left_out_words(self.framework, left)}"

    def document(self) -> dict[str, Any]:
        """The same as one JSON document, the file in it."""
        return {
            "schema_version": 1,
            "command": "scenario to",
            "framework": self.framework,
            "mode": self.mode,
            "config": self.name,
            "text": self.text,
            "diff": self.diff,
            "words": {command: list(words) for command, words in self.words.items()},
            "removed": list(self.removed),
            "changes": [
                {"key": c.key, "old": plain(c.old), "new": plain(c.new), "paths": list(c.paths)} for c in self.changes
            ],
            "left_out": left_documents(self.left_out),
        }


def patch_of(framework: str, scenario: Scenario, limits: Limits, path: str) -> ConfigPatch:
    """What must change of the configuration at a path, so that it says the scenario.

    limits: what an engine takes where a scenario gives no limits. Raises InputError for a file that is not this
    framework's, one that cannot be changed in place, or a scenario that it cannot run.
    """
    framework, text, own = configuration(framework, path)
    known = FRAMEWORKS[framework]
    if edit_of(path) is None and not known.takes_words:
        rule = f"is a script, and {framework}'s program takes no settings on its command line"
        raise InputError([Problem("--config", path, rule, "give the file that the script names")])
    if path.endswith(NOTEBOOK):
        remedy = "export it (jupyter nbconvert --to script), and give the script"
        raise InputError([Problem("--config", path, "is a notebook: its cells are not changed in place", remedy)])
    found = settled(framework, scenario, limits, own)
    new = {_key(key, own): value for key, value in found.settings.items()}
    says = {_key(key, own): paths for key, paths in found.says.items()}
    changes = tuple(ChangedSetting(key, _value(own, key), value, says.get(key, ())) for key, value in new.items())
    inside, words, removed = _parted(known, path, text, own, new)
    after = _edited(text, path, own, inside)
    if Path(path).read_bytes().startswith(_MARK.encode()):
        text, after = _MARK + text, _MARK + after
    name = Path(path).name
    return ConfigPatch(framework, found.mode.name, name, text, after, words, removed, changes, found.left_out)


def configuration(framework: str, path: str) -> tuple[str, str, RunSettings]:
    """A framework's name as it is known, the text of a configuration of it, and its settings. Raises InputError."""
    framework, text = framework_name(framework), read_text(path, "--config", MAX_BYTES)
    own = parsed_source(text, path, (), Path(path).parent)
    expect(own, framework)
    return framework, text, own


def _key(key: str, own: RunSettings) -> str:
    """A setting as the file spells it; Hydra's `+` before one that is new."""
    known = own.found.get(normal(key))
    return key.lstrip("-") if known is None else known.key.lstrip("+-")


def _value(own: RunSettings, key: str) -> Any:
    known = own.found.get(normal(key))
    return None if known is None else known.value


def _parted(
    known: Framework, path: str, text: str, own: RunSettings, new: Mapping[str, Any]
) -> tuple[dict[str, Any], dict[str, tuple[str, ...]], tuple[str, ...]]:
    """Settings that the file itself takes; words of commands; switches that must go."""
    edit, word = edit_of(path), WORDS[known.form]
    inside: dict[str, Any] = {}
    words: dict[str, tuple[str, ...]] = {}
    removed = []
    # Else its flags are the script's own; slime's scripts have no object that holds settings.
    parsed = path.endswith(".py") and (known.form == "dashes" or _PARSER.search(text) is not None)
    for key, value in new.items():
        prefix = next((prefix for prefix in known.beside if key.startswith(prefix)), "")
        name = key.removeprefix(prefix).removeprefix("launcher.")
        launched = next((mode.start for mode in known.modes if f"{{{name}}}" in mode.start), "")
        if prefix:
            command = known.beside[prefix]
        elif launched and (edit is None or path.endswith(".py")):
            command = "the launcher"
            if f"{name.upper()}=" in launched:
                words[command] = (*words.get(command, ()), f"{name.upper()}={value}")
                continue
        elif edit is not None and not (own.found[key].key.startswith("--") if key in own.found else parsed):
            inside[key] = value
            continue
        else:
            command = ""
        said = WORDS["values"](name, value) if command else word(name, value)
        if said:
            words[command] = (*words.get(command, ()), said)
        elif _value(own, key) not in (None, False):
            removed.append(f"--{name}")
    return inside, words, tuple(removed)


def _edited(text: str, path: str, own: RunSettings, inside: Mapping[str, Any]) -> str:
    """The text with these settings, read again and compared. Raises InputError where one cannot be changed alone."""
    edit, after = edit_of(path), text
    if edit is None or not inside:
        return text
    wanted = settings_of(inside.items()).over(own)
    try:
        for key, value in inside.items():
            after = edit(after, key, value)
        sections = {normal(key)[:n] for key in inside for n, c in enumerate(normal(key)) if c == "."}  # empty until now
        same = _values(parsed_source(after, path, (), Path(path).parent), sections) == _values(wanted, sections)
    except (Unchangeable, yaml.YAMLError, ValueError, KeyError, TypeError, AttributeError):
        same = False
    if not same:
        rule = "is told by an alias or a pointer of the file, and cannot be changed alone"
        raise InputError([Problem("--config", ", ".join(inside), rule, "write these keys out in the file first")])
    return after


def _values(settings: RunSettings, but: Collection[str]) -> dict[str, Any]:
    return {key: setting.value for key, setting in settings.found.items() if key not in but}
