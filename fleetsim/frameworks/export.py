"""A scenario in a framework's own words: `fleetsim scenario to verl job.yaml`.

The text is the framework's own YAML, TOML or launch script, with a comment behind each setting.
"""

from __future__ import annotations

import json
import shlex
import textwrap
from collections.abc import Callable, Iterator, Mapping, Sequence
from typing import Any

from msgspec import Struct

from fleetsim import units
from fleetsim.config.scenario import Scenario
from fleetsim.config.tree import put
from fleetsim.frameworks.convert import framework_name
from fleetsim.frameworks.equal_parts import divides, refusal
from fleetsim.frameworks.reading import one_line
from fleetsim.frameworks.reversal import LeftOut, Limits, longest, settled
from fleetsim.frameworks.scenario_text import commented, scenario_yaml
from fleetsim.frameworks.tables import FRAMEWORKS, Framework

# Nodes, and GPUs of each, as the frameworks call them.
_NODE_KEYS = (("nnodes", "n_gpus_per_node"), ("num_nodes", "num_gpus_per_node"), ("num_nodes", "gpus_per_node"))
_WHOLE_NODE = 8
_PLAIN = (str, int, float, bool)
_COMMENT_COLUMN = 60
_WIDTH = 118


class Exported(Struct, frozen=True):
    """A configuration made of a scenario.

    text: what to paste, in the framework's own form. settings: the same by key. says: setting -> the scenario paths
    that it stands for. left_out: what this framework cannot be told. facts: what the plan rests on, and no framework is
    told. yours: what a run needs besides. notes: what is odd about it.
    """

    framework: str
    mode: str
    text: str
    settings: Mapping[str, Any]
    says: Mapping[str, tuple[str, ...]]
    left_out: tuple[LeftOut, ...]
    facts: tuple[str, ...]
    yours: str
    notes: tuple[str, ...] = ()


def scenario_to(
    framework: str,
    scenario: Scenario,
    limits: Limits,
    name: str = "scenario",
    generated: float | None = None,
    step_s: float | None = None,
) -> Exported:
    """The scenario in the framework's own words.

    limits: what an engine takes where a scenario gives no limits. name: what the scenario is called. generated: mean
    tokens of a sample, after the cap. step_s: seconds of a training step. Raises InputError for a framework that is not
    known, or one that cannot run this scenario in any of its modes.
    """
    framework = framework_name(framework)
    known, found = FRAMEWORKS[framework], settled(framework, scenario, limits)
    facts = tuple(facts_of(scenario, generated, step_s))
    comments = {key: ", ".join(found.says.get(key, ("the mode",))) for key in found.settings}
    header = [
        f"Made by `fleetsim scenario to {framework} {name}`: {framework}, {found.mode.name}.",
        "Behind each setting stands what it says of the scenario.",
        f"The plan holds for {'; '.join(facts)}.",
        f"Yours to add: {known.yours}.",
    ]
    if found.left_out:
        header += [f"{framework} cannot be told:", *(f"  {left_out_words(framework, o)}" for o in found.left_out)]
    notes = tuple(_small_nodes(found.settings))
    gpus = scenario.trainer.gpus
    if not divides(scenario, gpus, framework):
        notes = (*notes, refusal(scenario, gpus, framework))
    header += [f"Note: {note}" for note in notes]
    text = _written(known, found.mode.start, found.settings, comments, header)
    left_out, yours = found.left_out, known.yours
    return Exported(framework, found.mode.name, text, found.settings, found.says, left_out, facts, yours, notes)


def _small_nodes(settings: Mapping[str, Any]) -> Iterator[str]:
    """A number of GPUs that no full node divides is asked for in small nodes, which few clusters have."""
    for key, nodes in settings.items():
        for name, per_node in _NODE_KEYS:
            each = settings.get(key.removesuffix(name) + per_node) if key.endswith(name) else None
            if isinstance(each, int) and isinstance(nodes, int) and nodes > 1 and each < _WHOLE_NODE:
                gpus = nodes * each
                more = -(-gpus // _WHOLE_NODE) * _WHOLE_NODE
                asked = f"{gpus} GPUs are {nodes} nodes of {each} here ({key})"
                yield f"{asked}; {more} GPUs would be whole nodes of {_WHOLE_NODE}"


def left_out_words(framework: str, left: LeftOut) -> str:
    """A value that cannot be said, what holds in its place, and why."""
    want, has = (_shown(left.path, v) for v in (left.value, left.has))
    return f"{left.path} = {want}: {framework} has {has}" + (f" ({left.why})" if left.why else "")


def _shown(path: str, value: Any) -> str:
    own = "the engine's own" if path.startswith("engine.") else "no limit"
    return own if value is None else one_line(value, 60)


def facts_of(scenario: Scenario, generated: float | None = None, step_s: float | None = None) -> list[str]:
    """What decides the plan and stands in no configuration."""
    cap = longest(scenario.workload.output_tokens)
    outputs = "outputs" if generated is None else f"outputs of {generated:,.0f} tokens in the mean"
    return [
        f"{scenario.engine.gpu} GPUs",
        f"{outputs}, at most {cap:,}" if cap else outputs,
        *([] if step_s is None else [f"a trainer that takes {units.seconds(step_s)} a step"]),
    ]


def to_document(result: Exported) -> dict[str, Any]:
    """The same as one JSON document, the text in it."""
    return {
        "schema_version": 1,
        "command": "scenario to",
        **{key: getattr(result, key) for key in ("framework", "mode", "text")},
        "settings": dict(result.settings),
        "says": {key: list(paths) for key, paths in result.says.items()},
        "left_out": left_documents(result.left_out),
        "rests_on": list(result.facts),
        "yours": result.yours,
        "notes": list(result.notes),
    }


def left_documents(left_out: Sequence[LeftOut]) -> list[dict[str, Any]]:
    """What cannot be told, for JSON."""
    return [{"path": o.path, "value": plain(o.value), "has": plain(o.has), "why": o.why} for o in left_out]


def plain(value: Any) -> Any:
    """A value, or its text where JSON has none like it."""
    return value if value is None or isinstance(value, _PLAIN) else str(value)


def _written(
    framework: Framework, start: str, settings: Mapping[str, Any], comments: Mapping[str, str], header: Sequence[str]
) -> str:
    """The text of a file. start: the command that runs it. comments, settings: by dotted key."""
    form = framework.form
    if form == "yaml":
        settings = dict(sorted(settings.items(), key=lambda item: "." in item[0]))  # sections after single keys
        tree: dict[str, Any] = {}
        for key, value in settings.items():
            put(tree, key, value)
        return "\n".join([*_comments(header), f"# Start it with: {start}", scenario_yaml(tree, comments, [])])
    if form == "toml":
        return _toml(settings, comments, [*header, f"Start it with: {start}"])
    inside = {key: str(value) for key, value in settings.items() if f"{{{key}}}" in start}
    word = WORDS[form]
    lines = ["#!/usr/bin/env bash", *_comments(header)]
    apart = {key for key in settings if key in inside or key.startswith(tuple(framework.beside))}
    for prefix, command in framework.beside.items():
        own = {key: value for key, value in settings.items() if key.startswith(prefix)}
        if own:
            name = prefix.strip(".").upper()
            lines += [*_array(name, *_as_json(own, comments, prefix), _flag, prefix), f'{command} "${{{name}[@]}}" &']
    lines += _array("SETTINGS", {k: v for k, v in settings.items() if k not in apart}, comments, word)
    for key, text in inside.items():
        start = start.replace(f"{{{key}}}", text)
    return "\n".join([*lines, f'{start} "${{SETTINGS[@]}}" "$@"']) + "\n"


def _array(
    name: str,
    settings: Mapping[str, Any],
    comments: Mapping[str, str],
    word: Callable[[str, Any], str],
    prefix: str = "",
) -> Iterator[str]:
    """A shell array of words, each setting on a line of its own."""
    yield f"{name}=("
    for key, value in settings.items():
        text = word(key.removeprefix(prefix), value)
        if text:
            yield commented(f"    {text}", comments.get(key), _COMMENT_COLUMN)
    yield ")"


def _as_json(
    settings: Mapping[str, Any], comments: Mapping[str, str], prefix: str
) -> tuple[dict[str, Any], dict[str, str]]:
    """Settings of a section as one, whose value is a JSON object."""
    folded: dict[str, Any] = {}
    said: dict[str, list[str]] = {}
    for key, value in settings.items():
        section, dot, name = key.removeprefix(prefix).partition(".")
        into = prefix + section
        said.setdefault(into, []).append(comments.get(key, ""))
        folded[into] = {**folded.get(into, {}), name: value} if dot else value
    texts = {k: json.dumps(v) if isinstance(v, dict) else v for k, v in folded.items()}
    return texts, {key: ", ".join(filter(None, all_)) for key, all_ in said.items()}


def _override(key: str, value: Any) -> str:
    """Hydra's `key=value`."""
    return shlex.quote(f"{key}={_word(value)}")


def _flag(key: str, value: Any) -> str:
    """`--key value`, true and false among the values."""
    values = value if isinstance(value, list) else [value]
    return f"--{key} {' '.join(shlex.quote(_word(v)) for v in values)}"


def _switch(key: str, value: Any) -> str:
    """`--key value`; a switch stands there or not, and so does what has no value."""
    return "" if value is False or value is None else f"--{key}" if value is True else _flag(key, value)


# Form -> a setting as a word of a command line; nothing for a switch that is off.
WORDS: Mapping[str, Callable[[str, Any], str]] = {
    "yaml": _override,
    "toml": _flag,
    "overrides": _override,
    "flags": _switch,
    "dashes": lambda key, value: _switch(key.replace("_", "-"), value),
    "values": _flag,
}


def _word(value: Any) -> str:
    if isinstance(value, bool):
        return "True" if value else "False"
    return value if isinstance(value, str) else json.dumps(value)


def _toml(settings: Mapping[str, Any], comments: Mapping[str, str], header: Sequence[str]) -> str:
    tables: dict[str, list[str]] = {}
    for key, value in settings.items():
        table, _, name = key.rpartition(".")
        line = f"{name} = {json.dumps(value, ensure_ascii=False)}"
        tables.setdefault(table, []).append(commented(line, comments.get(key), _COMMENT_COLUMN))
    lines = [*_comments(header)]
    for table in sorted(tables, key=bool):
        lines += ["", *([f"[{table}]"] if table else []), *tables[table]]
    return "\n".join(lines) + "\n"


def _comments(lines: Sequence[str]) -> Iterator[str]:
    for line in lines:
        indent = " " * (len(line) - len(line.lstrip()))
        yield from textwrap.wrap(
            one_line(line.strip(), 400), _WIDTH, initial_indent=f"# {indent}", subsequent_indent=f"# {indent}  "
        )
