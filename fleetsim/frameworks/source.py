"""From a file, standard input or flags to settings: what form it is in, and the files that it builds on.

Forms: YAML (with `defaults:` parents and OmegaConf pointers), TOML, JSON, a shell script or a text of flags, a Python
script or notebook that builds a configuration object, and a log into which the framework printed what it runs with.
"""

from __future__ import annotations

import os
import re
import shlex
import sys
from collections.abc import Callable, Mapping, Sequence
from pathlib import Path
from typing import Any

from fleetsim.config.data_files import read_text
from fleetsim.errors import InputError, Problem
from fleetsim.frameworks.arguments import PROGRAM, add_arguments, entry_of, environment_of, server_of, starts_something
from fleetsim.frameworks.python_flags import flags_of
from fleetsim.frameworks.python_source import NOTEBOOK, code_of_notebook, command_of, settings_of_python
from fleetsim.frameworks.settings import RunSettings, requirements_of
from fleetsim.frameworks.shell import expanded, places
from fleetsim.frameworks.shell_values import Words
from fleetsim.frameworks.trees import tree_of_json, tree_of_toml, tree_of_yaml
from fleetsim.frameworks.trl import CLASSES

Printed = Callable[[str], Mapping[str, Any] | None]
MAX_BYTES = 2**20
_DEEPEST_PARENT = 6
_TREES = {".yaml": tree_of_yaml, ".yml": tree_of_yaml, ".toml": tree_of_toml, ".json": tree_of_json}
_SCRIPTS = frozenset({".sh", ".bash", ".txt", ".args", ".flags", ".slurm", ".sbatch"})
# Blanks within a line only: \s would make a file of empty lines take quadratic time.
_LOOKS_LIKE_SHELL = re.compile(
    r"\A#!|\\\n|(?m:^[ \t]*--[a-zA-Z])|(?m:^[ \t]*(?:export[ \t]+)?[A-Z_]+=)|\bpython3?[ \t]"
)
_LOOKS_LIKE_TOML = re.compile(r"(?m)^[ \t]*\[\[?[\w.-]+\]\]?[ \t]*(?:#.*)?$|^[ \t]*[\w.-]+[ \t]+=[ \t]")
_LOOKS_LIKE_PYTHON = re.compile(r"(?m)^[ \t]*(?:from[ \t]+\w[\w.]*[ \t]+import[ \t]|import[ \t]+\w)")
# A program's own configuration, as NeMo-RL's programs and Hydra's name it.
_OWN_CONFIG = re.compile(
    r'dirname\(__file__\),\s*((?:"[\w-]+",\s*)*"[\w.-]+\.yaml")'
    r'|hydra\.main\(config_path=("[\w./-]+", config_name="[\w.-]+")'
)
# A word that starts no command: a flag, or Hydra's dotted key.
_NO_COMMAND = re.compile(r"--|[+~]{0,2}\w+\.[\w.]+=")
# Keys with which a program is told its configuration file.
_CONFIG_KEYS = ("config", "config_file", "config_path")


def read_source(path: str, words: Sequence[str] = (), printed: Printed = lambda path: None) -> RunSettings:
    """The settings of a configuration file, with flags or `key=value` words on top.

    printed: what finds the configuration that a framework printed into its log. Raises InputError.
    """
    if os.path.splitext(path)[1].lower() not in (*_TREES, ".py"):
        found = printed(path)
        if found is not None:
            settings = _of_tree({**found, "defaults": None}, path, None, 0)
            return settings_of_words(words).over(settings) if words else settings
    return parsed_source(read_text(path, "CONFIG", MAX_BYTES), path, words, Path(path).parent)


def parsed_source(text: str, name: str, words: Sequence[str] = (), folder: Path | None = None) -> RunSettings:
    """The settings of a configuration's text. `name` says where it is from; its ending, if any, decides the form.

    folder: where the files that it names are looked for; None reads no other file. Raises InputError.
    """
    if len(text.encode("utf-8", "replace")) > MAX_BYTES:
        raise InputError([Problem(name, f"> {MAX_BYTES:,} bytes", "is too big", "give the right file")])
    settings = _settings(text, name, folder, 0)
    if words:
        settings = settings_of_words(words).over(settings)
    return settings


def settings_of_words(words: Sequence[str]) -> RunSettings:
    """Settings of the words that a user typed after `--`: the program's flags, with or without the program.

    A word may be a version instead, as it is installed: `trl==1.10.0`.
    """
    pairs: Words = [(word.encode("utf-8", "replace").decode(), True) for word in words]
    versions = {text: found for text, _ in pairs for found in requirements_of(text).values() if found.text == text}
    settings = _command([pair for pair in pairs if pair[0] not in versions])
    settings.pinned |= {found.package: found for found in versions.values()}
    return settings


def _settings(text: str, name: str, folder: Path | None, depth: int) -> RunSettings:
    ending = os.path.splitext(name)[1].lower()
    if ending == NOTEBOOK:
        text, ending = code_of_notebook(tree_of_json(text, name)), ".py"
    if ending in _TREES:
        return _of_tree(_TREES[ending](text, name), name, folder, depth)
    if ending in _SCRIPTS or (ending != ".py" and _LOOKS_LIKE_SHELL.search(text)):
        return _of_script(text, name, folder, depth)
    if ending == ".py" or _LOOKS_LIKE_PYTHON.search(text):
        settings = settings_of_python(text, CLASSES, name)
        shown = command_of(text) if settings.runs(*CLASSES) else ""
        built, lost = flags_of(text)
        if built:
            settings = _of_script(built, name, folder, depth).over(settings)
            settings.not_understood += [f"{flag} = ...: a condition decides it" for flag in dict.fromkeys(lost)]
        if shown:
            settings = _of_script(shown, name, folder, depth).over(settings)
            settings.not_understood.append("its command line: read from the command that its docstring shows")
        settings.programs.append(os.path.basename(name))
        settings.pinned = requirements_of(text)
        return settings
    if text.lstrip().startswith("{"):
        return _of_tree(tree_of_json(text, name), name, folder, depth)
    if _LOOKS_LIKE_TOML.search(text):
        return _of_tree(tree_of_toml(text, name), name, folder, depth)
    tree = tree_of_yaml(text, name)
    # A line of `key=value` words is a YAML string; a mapping is a YAML file.
    return _of_tree(tree, name, folder, depth) if isinstance(tree, Mapping) else _of_script(text, name, folder, depth)


def _of_tree(tree: Any, name: str, folder: Path | None, depth: int) -> RunSettings:
    if not isinstance(tree, Mapping):
        raise InputError(
            [Problem(name, str(tree)[:80], "must be a mapping of keys", "give the framework's configuration file")]
        )
    if isinstance(tree.get("run"), str) and "resources" in tree:
        resources = tree["resources"] if isinstance(tree["resources"], Mapping) else {}
        gpu, count = _accelerators(resources.get("accelerators"))
        settings = _of_script(_sky_script(tree, count), name, folder, depth)
        if gpu:
            settings.add("launcher.accelerators", gpu)
        return settings
    base = RunSettings()
    parents: list[str] = []
    for parent, package in _parents(tree.get("defaults")):
        read = _other_file(parent, folder, depth)
        if read is None:
            parents.append(parent)
        else:
            base = (read.below_key(package) if package else read).over(base)
            base.programs.append(parent)
    settings = RunSettings(parents=parents)
    for key, value in tree.items():
        if key not in ("defaults", "hydra"):
            settings.add(str(key), value)
    return settings.over(base)


def _accelerators(wanted: Any) -> tuple[str, Any]:
    """The GPUs of a node that a task of SkyPilot asks for, and how many: `A100:8`, or a mapping of that."""
    pairs = wanted if isinstance(wanted, Mapping) else dict([f"{wanted or ''}:1".split(":")[:2]])
    gpu, count = next(iter(pairs.items()), ("", 1))
    return {"A100": "A100-40GB"}.get(str(gpu), str(gpu)), count  # the one of 80 GB has a name of its own there


def _sky_script(task: Mapping[str, Any], gpus: Any) -> str:
    """What a task of SkyPilot runs, on its first node, with the variables that SkyPilot gives it (its page on
    environment variables). gpus: of a node."""
    given: dict[str, Any] = {"SKYPILOT_NUM_NODES": task.get("num_nodes", 1), "SKYPILOT_NODE_RANK": 0}
    given |= {"SKYPILOT_NUM_GPUS_PER_NODE": gpus} if gpus else {}
    given |= task["envs"] if isinstance(task.get("envs"), Mapping) else {}
    said = (f"{key}={shlex.quote(str(value))}" for key, value in given.items() if isinstance(value, (str, int, float)))
    return "\n".join((*said, task["run"]))


def _parents(defaults: Any) -> list[tuple[str, str]]:
    """What a Hydra or NeMo-RL `defaults:` names, each file with the key that it goes below.

    An entry is a file, `file@key` (`_here_`: no key), or a group and its option, which goes below the group's name.
    """
    found = []
    for entry in defaults if isinstance(defaults, list) else [defaults]:
        named, option = entry, None
        if isinstance(entry, Mapping) and len(entry) == 1:
            ((named, option),) = entry.items()
            named = str(named).removeprefix("optional ").removeprefix("override ")
            if not isinstance(option, str) or named.startswith("hydra/"):
                continue
        if isinstance(named, str) and named not in ("", "_self_"):
            file, _, package = named.partition("@")
            package = package or ("" if option is None else file.strip("/").replace("/", "."))
            key = "" if package in ("_here_", "_global_") else package
            found.append((file if option is None else f"{file}/{option}", key))
    return found[:20]


def _other_file(named: str, folder: Path | None, depth: int) -> RunSettings | None:
    """A file that a configuration or script names, if it is there to be read."""
    if folder is None or depth >= _DEEPEST_PARENT or not named or len(named) > 1000:
        return None
    # Hydra's are in `config`; a file's own folder may not be known (`$(pwd)/config`).
    below = named.lstrip("/")
    for place in places(folder, named, f"{named}.yaml", f"config/{named}.yaml", below, f"{below}.yaml"):
        if place.suffix in _TREES or not place.suffix:
            if not place.stat().st_size:
                return RunSettings()
            text = read_text(place, "CONFIG", MAX_BYTES)
            return _settings(text, str(place), place.parent, depth + 1)
    return None


def training_of(commands: Sequence[Words]) -> Words | None:
    """Of commands the one that starts training: that with the most settings, then words, of its own. None: there is
    none."""

    def size(words: Words) -> tuple[int, int]:
        entry = entry_of(words) if server_of(words) is None else None
        own = words[entry[1] :] if entry is not None else []
        return (-1, 0) if entry is None else (sum(starts_something(word) for word, _ in own), len(own))

    best = max(commands, key=size, default=[])
    return best if size(best) != (-1, 0) else None


def _of_script(text: str, name: str, folder: Path | None, depth: int) -> RunSettings:
    """The settings of the command that starts training: the one with the most settings, then words, of its own."""
    script = expanded(text, folder, os.path.basename(name))
    training = training_of([words for words, _ in script.commands])
    settings = _command([pair for words, _ in script.commands for pair in words] if training is None else training)
    settings.pinned = requirements_of(text)
    for program, words in filter(None, (server_of(words) for words, _ in script.commands)):
        settings.programs.append(program)
        served = RunSettings()
        add_arguments(served, words)
        for setting in served.found.values():
            settings.add(f"vllm_serve.{setting.key.lstrip('-')}", setting.value)
    settings.not_understood += script.not_understood
    if training is not None:
        # A comment or empty line within continued ones ends the command: bash starts the next line as another.
        lost = [(words, line) for words, line in script.commands if _NO_COMMAND.match(words[0][0])]
        settings.not_understood += [
            f"line {line}: {' '.join(text for text, _ in words)[:80]}: is no part of the command above it"
            for words, line in lost[:20]
        ]
    settings.remarks += script.remarks
    return _with_named_files(settings, folder, depth)


def _command(words: Words) -> RunSettings:
    entry = entry_of(words)
    settings = RunSettings()
    if entry is None:
        add_arguments(settings, words)
        return settings
    program, start, launcher = entry
    settings.programs.append(program)
    add_arguments(settings, words[start:])
    return settings.over(launcher).over(environment_of(words[:start]))


def _with_named_files(settings: RunSettings, folder: Path | None, depth: int) -> RunSettings:
    """The settings of the configuration file that a program is given (`--config`, `@ file`), under its flags."""
    program = settings.found.pop(PROGRAM, None)
    launched = settings.found.pop("launcher.config_file", None)  # `accelerate launch --config_file`
    processes = _other_file(str(launched.value), folder, depth) if launched is not None else None
    settings = settings if processes is None else settings.over(processes.below_key("launcher"))
    settings.see("launcher")
    named = [p for p in settings.parents if p.endswith(tuple(_TREES))]
    for key in _CONFIG_KEYS:
        setting = settings.found.get(key)
        if setting is not None and isinstance(setting.value, str) and setting.value.endswith(tuple(_TREES)):
            named.append(setting.value)
    config_name = settings.found.get("config_name")
    if config_name is not None:
        above = settings.found.get("config_path")
        named.append(str(Path(str(above.value) if above else "") / str(config_name.value)))
    if program is not None and folder is not None and not (named or settings.has_lost(*_CONFIG_KEYS, "config_name")):
        named = _own_config(str(program.value), folder)
    for file in named:
        read = _other_file(file, folder, depth)
        if read is None:
            if file not in settings.parents:
                settings.parents.append(file)
        else:
            settings = settings.over(read)
            settings.parents = [p for p in settings.parents if p != file]
            settings.programs.append(file)
    return settings


def _own_config(program: str, folder: Path) -> list[str]:
    """The configuration that a program takes where it is given none, if the program is there to be read."""
    below = program.lstrip("/")
    if below.startswith("verl/"):  # its defaults are its reader's
        return []
    for path in places(folder, below, below.partition("/")[2]):
        if path.suffix == ".py" and path.stat().st_size <= MAX_BYTES:
            match = _OWN_CONFIG.search(path.read_text("utf-8", "replace"))
            if match is not None:
                return [str(path.parent.joinpath(*re.findall(r'"([^"]+)"', match[1] or match[2])))]
    return []


def settings_from(words: Sequence[str], printed: Printed) -> tuple[str, RunSettings]:
    """What the configuration is called, and its settings: of a file or `-` (standard input), then of the other words.

    A first word that is a flag or `key=value` says that there is no file. printed: as of `read_source`.
    Raises InputError for what cannot be read.
    """
    if not words:
        raise InputError(
            [Problem("CONFIG", None, "nothing to read", "give the framework's file, or its flags after --")]
        )
    first, *rest = words
    if first == "-":
        try:
            text = sys.stdin.buffer.read(MAX_BYTES + 1).decode("utf-8-sig")
        except UnicodeDecodeError as error:
            raise InputError(
                [Problem("CONFIG", "-", f"is not UTF-8 text (byte {error.start})", "give the right file")]
            ) from None
        return "stdin", parsed_source(text, "stdin", rest)
    if "\0" not in first and os.path.lexists(first):
        return os.path.basename(first), read_source(first, rest, printed)
    if first.startswith("-") or "=" in first:
        return "flags", settings_of_words(words)
    return first, read_source(first, rest, printed)
