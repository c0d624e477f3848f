"""The table of the frameworks (`frameworks.txt`): whose configuration is whose, how each is run, what its settings say.

The head of the file tells how its rows are written; here they are read, and put into a draft.
"""

from __future__ import annotations

import json
from collections.abc import Callable, Mapping, Sequence
from pathlib import Path
from typing import Any, Literal, cast

from msgspec import Struct, field

from fleetsim.config.plain_scalar import plain_scalar
from fleetsim.frameworks import common, micro_batch
from fleetsim.frameworks.draft import NEVER, Draft
from fleetsim.frameworks.reading import Read, never, on_nodes, turned, worded
from fleetsim.frameworks.settings import RunSettings, Setting, normal
from fleetsim.records import tables_of

# A YAML or TOML file; or a script with `key.path=value` words (overrides), with `--key value` where a switch stands
# alone (flags; dashes where they are spelled `--a-key`), or with `--key value` where true and false are values too.
Form = Literal["yaml", "toml", "overrides", "flags", "dashes", "values"]


class Mode(Struct, frozen=True):
    """A way to run the framework. start: the command that starts it so; {key} is a setting that stands in the command
    itself. settings: what selects this way.
    """

    name: str
    start: str
    settings: Mapping[str, Any] = field(default_factory=dict)


class SettingRow(Struct, frozen=True):
    """A scenario value and what says it. kind: `=` for a value that the mode fixes. options: of the kind, by name.

    keys: those that begin with a dot go behind the prefix of a section. words: the framework's word -> the scenario's.
    """

    path: str
    kind: str
    default: Any
    keys: tuple[str, ...]
    why: str
    options: Mapping[str, Any]
    words: Mapping[str, str]


class Framework(Struct, frozen=True):
    """repository: where it lives. starts: vLLM, where the trainer waits for a batch, and where it does not. holds: the
    law under which its client has no more prompts in flight than the steps ahead take, whatever is set. moves: a
    colocated trainer's states leave the GPUs at every hand-over, whatever is set. modes: the one that can say most of a
    scenario is written. form: in which text. yours: what a run needs that no scenario says. marks, programs: keys (or
    the first parts of keys) and programs that give it away. beside: prefix of the keys of another command -> that
    command, which runs beside. left_out: settings that are recognised -> why they are not modelled. seen: sections that
    bear on what other settings say. told: what else its reader alone asks for. blocks: its rows, by name.
    """

    repository: str
    starts: Sequence[str]
    holds: str
    moves: bool
    form: Form
    yours: str
    marks: tuple[str, ...]
    programs: tuple[str, ...]
    modes: tuple[Mode, ...]
    beside: Mapping[str, str]
    left_out: Mapping[str, str]
    seen: tuple[str, ...]
    takes_words: bool
    told: Mapping[str, Mapping[str, Sequence[str]]]
    blocks: Mapping[str, Sequence[SettingRow]]


def put_rows(draft: Draft, block: str, *sections: str) -> dict[str, Read[Any]]:
    """Put the values of a block of rows; what was read for them, by path.

    sections: prefixes of the keys that begin with a dot, each with a dot of its own, or empty.
    """
    found: dict[str, Read[Any]] = {}
    for row in FRAMEWORKS[draft.framework].blocks[block]:
        keys = [k for key in row.keys for k in ([s + key[1:] for s in sections] if key[0] == "." else [key])]
        unless = row.options.get("unless", NEVER)
        if row.kind == "=":
            # Limits that no setting gives are those of the way in which vLLM is started.
            if row.path != "engine.entry_point" or draft.values.get("engine.name", "vllm") == "vllm":
                draft.semantics(row.path, row.default, row.why)
        elif row.kind == "not":
            off = draft.flag(*keys, default=row.default)
            draft.put(row.path, not off.value, off, back=turned(off).written, unless=unless)
        elif row.kind == "words":
            _put_word(draft, row, keys, unless)
        elif row.kind in _SHARED:
            _SHARED[row.kind](draft, row, keys)
        elif row.kind == "either":
            (on, off), (why, other, *_) = row.options["of"].split("/"), (*row.why.split("; "), "")
            switch = draft.flag(*keys, default=row.default)
            draft.either(row.path, switch, on, off, why=(why, other), unless=unless)
        elif row.default is None and row.kind == "count":
            said = draft.maybe_count(*keys)
            draft.where_said(row.path, said, keys[0], now=row.options.get("unless"), unless=unless)
        else:
            found[row.path] = read = _read(draft, row, keys)
            if "if" not in row.options:
                value = float(read.value) if "as" in row.options else read.value
                draft.put(row.path, value, read, why=row.why, unless=unless)
            else:
                draft.where_said(row.path, read, now=None if unless is NEVER else row.default, unless=unless)
    return found


def rename(framework: str, settings: RunSettings, project: str, *, own: bool = False, off: str = "") -> None:
    """Put the framework's keys in the place of a project's, with its defaults.

    own: the project's go before the framework's. off: a section that is switched off.
    """
    told = FRAMEWORKS[framework].told
    settings.see(*[off] if off else [])
    texts = [told[word].get(project, [""])[0].replace("@", "actor_rollout_ref.") for word in ("renamed", "usual")]
    pairs = [[pair.split("=") for pair in text.split()] for text in texts]
    renamed, usual = ({k: v for k, v in each if not (off and k.startswith(off))} for each in pairs)
    for theirs, ours in renamed.items():
        for key in [key for key in (theirs, *settings.below(theirs)) if key in settings.found]:
            name, setting = normal(ours + key[len(theirs) :]), settings.found.pop(key)
            settings.found[name] = setting if own else settings.found.get(name, setting)
    for key, value in usual.items():
        theirs = next((name for name in renamed if f"{key}.".startswith(f"{name}.")), "")
        name = normal(renamed.get(theirs, "") + key[len(theirs) :])
        settings.found.setdefault(name, Setting(key, plain_scalar(value)))


def _read(draft: Draft, row: SettingRow, keys: list[str]) -> Read[Any]:
    """A setting, or the framework's default for it."""
    if row.kind == "count":
        return draft.count(*keys, default=row.default, least=row.options.get("least", 1))
    if row.kind == "number":
        return draft.number(*keys, default=float(row.default), most=row.options.get("most", 1e9))
    if row.kind == "nodes":
        usual, half = map(int, row.default.split("x")), len(keys) // 2
        nodes, each = (draft.count(*part, default=next(usual)) for part in (keys[:half], keys[half:]))
        return on_nodes(nodes, each)
    return draft.flag(*keys, default=row.default)


def _put_word(draft: Draft, row: SettingRow, keys: list[str], usual: Any) -> None:
    """A value whose words are the framework's own; for a word that is not known the usual one holds."""
    read, default = draft.maybe_text(*keys), row.options.get("default")
    read = Read(keys[0], default, False) if read is None and default is not None else read
    back = worded(row.words, lambda word: {keys[0]: True if word == "true" else word})
    back = never if "back" in row.options else back
    value = None if read is None else row.words.get(read.value.lower())
    if read is None or value is None:
        draft.could(row.path, usual, back, usual)
    else:
        draft.put(row.path, value, read, back=back, unless=usual)
    if read is not None and value is None and "else" in row.options:
        other = row.options["else"]
        draft.assume(row.path, other, f"{read}: {other} stands in", f"--set {row.path}=VALUE")


def _word(draft: Draft, row: SettingRow, keys: list[str]) -> Read[str]:
    return draft.text(*keys, default=row.options["default"])


# Kinds of rows that are read as `common` has it.
_SHARED: Mapping[str, Callable[[Draft, SettingRow, list[str]], None]] = {
    "transport": lambda draft, row, keys: common.transport(
        draft, _word(draft, row, keys) if "default" in row.options else draft.maybe_text(*keys), row.words
    ),
    "engine": lambda draft, row, keys: common.engine_name(draft, _word(draft, row, keys), row.words),
    "model": lambda draft, row, keys: common.model(draft, *keys, remedy=row.why),
    "recompute": lambda draft, row, keys: micro_batch.recomputed(
        draft, keys, row.default or "null", row.options.get("switch")
    ),
    "tokens": lambda draft, row, keys: micro_batch.tokens(draft, keys, row.default, row.options),
    "samples": lambda draft, row, keys: micro_batch.samples(draft, keys, row.default, row.options),
    "shards": lambda draft, row, keys: common.shared(draft, keys, row.options),
    "packed": lambda draft, row, keys: micro_batch.packed(draft, keys, str(row.options.get("alone", ""))),
    "weights": lambda draft, row, keys: common.weights_type(draft, *keys),
    "filter": lambda draft, row, keys: common.filtering(draft, draft.flag(*keys, default=bool(row.default))),
}


# What a framework has several of, each with a name.
_NAMED = ("beside", "left out", "instead", "only", "project", "renamed", "usual", "recipe", "kind")


def _framework(rows: list[list[str]]) -> Framework:
    """A framework of its rows: first what it is, then blocks."""
    facts: dict[str, str] = {}
    named: dict[str, dict[str, list[str]]] = {word: {} for word in _NAMED}
    modes: list[Mode] = []
    head = next((at for at, row in enumerate(rows) if row[0].endswith(":")), len(rows))
    for key, *cells in rows[:head]:
        word = next((word for word in named if key.startswith(f"{word} ")), None)
        if word is not None:
            named[word][key.removeprefix(f"{word} ")] = cells
        elif key.startswith("mode "):
            start, *settings = cells if cells and cells[0][0] != "{" else (facts["start"], *cells)
            modes.append(Mode(key.removeprefix("mode "), start, *map(json.loads, settings)))
        else:
            facts[key] = cells[0]
    marks, programs = (tuple(facts[word].split(", ")) for word in ("marks", "programs"))
    own, form, yours = facts["repository"], cast(Form, facts["form"]), facts["yours"]
    starts = facts.get("vLLM", "api_server, api_server").split(", ")
    beside, left_out = ({key: cell for key, (cell,) in named.pop(word).items()} for word in _NAMED[:2])
    blocks = _blocks(rows[head:], _ANY)
    seen, words = tuple(facts["seen"].split(", ")) if "seen" in facts else (), "no words" not in facts
    return Framework(own, starts, facts.get("holds", ""), "moves" in facts, form, yours, marks, programs, tuple(modes),
                     beside, left_out, seen, words, named, blocks)  # fmt: skip


def _blocks(rows: list[list[str]], shared: Mapping[str, Sequence[SettingRow]]) -> dict[str, list[SettingRow]]:
    found: dict[str, list[SettingRow]] = {}
    block: list[SettingRow] = []
    for name, *cells in rows:
        if not cells:
            block = found[name.removesuffix(":")] = []
        else:
            block += shared[cells[0]] if name == "as any" else [_row(name, *cells)]
    return found


_KINDS = {"count", "number", "flag", "nodes", "not", "words", "either", *_SHARED}
_OPTIONS = {"back", "least", "most", "unless", "if", "as", "else", "of", "default", "switch", "on", "each", "alone"}


def _row(path: str, rule: str, *cells: str) -> SettingRow:
    """A row of cells: path, rule, keys (none where the mode fixes the value), why."""
    if rule.startswith("= "):
        return SettingRow(path, "=", plain_scalar(rule[2:]), (), cells[0], {}, {})
    first, *rest = rule.split(", ")
    kind, _, default = first.partition(" ")
    words = dict(word.split("=") for word in default.split()) if "=" in default else {}
    options = {name: plain_scalar(value) for name, _, value in (option.partition(" ") for option in rest)}
    usual = plain_scalar(default) if default and not words else None
    if kind not in _KINDS or not options.keys() <= _OPTIONS:
        raise ValueError(f"frameworks.txt: {path} has no such rule: {rule}")
    return SettingRow(path, kind, usual, tuple(cells[0].split(", ")), "".join(cells[1:]), options, words)


_TABLES = tables_of(Path(__file__).with_name("frameworks.txt"))
OTHER_JOBS = _TABLES.pop("other jobs")
# Paths of a scenario that no framework is told; those that a framework's mode decides.
FACTS, SEMANTICS = (_TABLES.pop(name)[0][0].split(", ") for name in ("facts", "semantics"))
_ANY = _blocks(_TABLES.pop("any"), {})
FRAMEWORKS: Mapping[str, Framework] = {name: _framework(rows) for name, rows in _TABLES.items()}


def entry_point_of(framework: str | None, *, asynchronous: bool) -> str:
    """How a framework's engines are started where its configuration does not say."""
    known = FRAMEWORKS.get(framework or "")
    return "api_server" if known is None else known.starts[asynchronous]


def most_in_flight(framework: str | None, law: str, batch: int, ahead: float) -> int | None:
    """Samples that a framework's client has in flight at most though no setting says so: those of `ahead` batches, a
    prompt with all of its. None where it holds none back."""
    known = FRAMEWORKS.get(framework or "")
    return None if known is None or known.holds != law else round(batch * ahead)


def moves_states(framework: str | None) -> bool:
    """Whether a colocated trainer's states leave the GPUs at every hand-over, whatever its recipe says."""
    known = FRAMEWORKS.get(framework or "")
    return known is not None and known.moves
