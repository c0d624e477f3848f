"""What a configuration says: dotted keys with the values and spellings of the file, whatever form it came in.

Keys are looked up without regard to `-` and `_`, so that `--rollout-batch-size`, `rollout_batch_size` and a YAML key
are one. A value may point to other keys (`${data.max_response_length}`, OmegaConf); it is followed when it is read.
Versions that a text pins (`trl[vllm]==1.10.0`, `"trl>=1.12,<2"`) are kept as well: defaults change with them.
"""

from __future__ import annotations

import re
from collections.abc import Iterable, Iterator, Mapping
from typing import Any

from msgspec import Struct, field

from fleetsim.config.plain_scalar import plain_scalar
from fleetsim.config.tree import is_at
from fleetsim.frameworks.shell_values import Undecided
from fleetsim.frameworks.shell_words import sum_of

Version = tuple[int, ...]
_ONE = r"(?:===?|~=|<=|>=|!=|<|>)[ ]{0,4}\d{1,9}(?:\.\d{1,9}){0,5}(?:\.\*)?[a-z0-9.]{0,12}"
_ALL = re.compile(
    rf"(?<![\w.-])([A-Za-z][\w-]{{0,60}})(?:\[[\w, -]{{0,80}}\])?[ ]{{0,4}}({_ONE}(?:[ ]?,[ ]?{_ONE}){{0,6}})"
)
_PARTS = re.compile(r"(===?|~=|<=|>=|!=|<|>)[ ]*(\d+(?:\.\d+)*)")


class Requirement(Struct, frozen=True):
    """A package and the versions that it may have. text: as it is written."""

    package: str
    text: str

    def only_before(self, version: Version) -> bool:
        """Whether every version that it allows is older than this one."""
        return any(
            found <= version if sign == "<" else found < version
            for sign, found, written in _bounds(self.text)
            if sign in ("==", "===", "<=", "<") or (sign == "~=" and written > len(version))
        )

    def only_from(self, version: Version) -> bool:
        """Whether every version that it allows is this one or newer."""
        return any(found >= version for sign, found, _ in _bounds(self.text) if sign in ("==", "===", "~=", ">=", ">"))


def requirements_of(text: str) -> dict[str, Requirement]:
    """Package -> the first requirement of it in a text. Any text gives some."""
    found: dict[str, Requirement] = {}
    for match in _ALL.finditer(text):
        found.setdefault(match[1].lower(), Requirement(match[1].lower(), match[0].strip()))
    return found


def _bounds(text: str) -> Iterator[tuple[str, Version, int]]:
    """Each sign with its version, without zeros at its end (1.11 and 1.11.0 are one), and the numbers that it has."""
    for sign, version in _PARTS.findall(text):
        yield sign, tuple(map(int, re.sub(r"(\.0+)+\Z", "", version).split("."))), version.count(".") + 1


# Resolvers of NeMo-RL, of verl and of RLinf.
_SIGNS = {"eval": "", "add": "+", **dict.fromkeys(("mul", "multiply"), "*"), **dict.fromkeys(("sub", "subtract"), "-")}
_SIGNS |= dict.fromkeys(("div", "int_div"), "//")
_POINTER = re.compile(r"\$\{([^${}]*)\}")
_MOST_POINTERS = 50  # followed for one value
_LONGEST = 10_000
_MOST_KEYS = 50_000
_MOST_LEVELS = 40
_MOST_BITS = 1000
_NOTHING = frozenset({None, "", "null", "None", "~", "???"})


def _is_nothing(value: Any) -> bool:
    """Whether a key is there and says nothing."""
    return isinstance(value, (str, type(None))) and value in _NOTHING


class Setting(Struct, frozen=True):
    """One key as it was written, and its value."""

    key: str
    value: Any


def normal(key: str) -> str:
    """The form under which a key is looked up."""
    return key.lstrip("+-").replace("-", "_")


class RunSettings(Struct):
    """All settings of a run, later sources over earlier ones.

    programs: what a script starts (`train_async.py`, `verl.trainer.main_ppo`). parents: configurations that the file
    builds on and that were not read. not_understood: settings that could not be followed. remarks: expressions of a
    script that could not, but need not hold a setting. pinned: package -> the versions that a script asks for.
    """

    found: dict[str, Setting] = field(default_factory=dict)
    programs: list[str] = field(default_factory=list)
    parents: list[str] = field(default_factory=list)
    not_understood: list[str] = field(default_factory=list)
    remarks: list[str] = field(default_factory=list)
    pinned: dict[str, Requirement] = field(default_factory=dict)
    looked_at: set[str] = field(default_factory=set)
    pointers_left: int = 0
    drops_left: int = 100

    def add(self, key: str, value: Any) -> None:
        """One setting; mappings become dotted keys. An empty mapping stays a value."""
        pending: list[tuple[str, Any, int]] = [(key, value, 0)]
        while pending and len(self.found) < _MOST_KEYS:
            name, here, level = pending.pop()
            if isinstance(here, Mapping) and here and level < _MOST_LEVELS:
                pending += [(f"{name}.{k}" if name else str(k), v, level + 1) for k, v in reversed(list(here.items()))]
            elif name:
                large = isinstance(here, int) and abs(here).bit_length() > _MOST_BITS
                self.found.pop(normal(name), None)
                self.found[normal(name)] = Setting(name, "a very large number" if large else here)

    def drop(self, key: str) -> None:
        """Take a key back, and all below it (Hydra's `~key`). Nobody takes back more than a few."""
        self.drops_left -= 1
        if self.drops_left < 0:
            return
        gone = normal(key)
        for name in [n for n in self.found if is_at(n, gone)]:
            del self.found[name]

    def over(self, base: RunSettings) -> RunSettings:
        """These settings on top of those of a file that they build on."""
        return RunSettings(
            {**base.found, **self.found},
            [*base.programs, *self.programs],
            [*base.parents, *self.parents],
            [*base.not_understood, *self.not_understood],
            [*base.remarks, *self.remarks],
            {**base.pinned, **self.pinned},
        )

    def below_key(self, prefix: str) -> RunSettings:
        """The same settings, all of them below a key."""
        found = {f"{normal(prefix)}.{key}": Setting(f"{prefix}.{s.key}", s.value) for key, s in self.found.items()}
        return RunSettings(found, [*self.programs], [*self.parents], [*self.not_understood], [*self.remarks])

    def see(self, *prefixes: str) -> None:
        """These keys, and all below them, count as looked at: what they hold is told elsewhere."""
        for prefix in prefixes:
            self.looked_at |= {normal(prefix), *self.below(prefix)}

    def get(self, *keys: str) -> tuple[Setting, Any] | None:
        """The first of these keys that is set to something, with its value, pointers followed; None if none is.

        Every key that is found counts as looked at, whether it decides or not.
        """
        best: tuple[Setting, Any] | None = None
        for key in map(normal, keys):
            setting = self.found.get(key)
            if setting is None:
                continue
            self.looked_at.add(key)
            self.pointers_left = _MOST_POINTERS
            value = self._followed(setting.value, key, frozenset({key}))
            if best is None and not _is_nothing(value):
                best = setting, value
        return best

    def below(self, prefix: str) -> list[str]:
        """The keys under a dotted prefix, in the order of the file."""
        start = f"{normal(prefix)}."
        return [key for key in self.found if key.startswith(start)]

    def has(self, *prefixes: str) -> bool:
        """Whether any of these keys, or one below it, is set to something: a framework prints all keys that it has."""
        keys = (key for p in prefixes for key in (normal(p), *self.below(p)) if key in self.found)
        return any(not _is_nothing(self.found[key].value) for key in keys)

    def lost(self) -> set[str]:
        """The keys that were given with a value of which nothing is known but to a running shell."""
        return {normal(note.partition(" = ")[0]) for note in self.not_understood if " = ...:" in note}

    def has_lost(self, *keys: str) -> bool:
        """Whether one of these keys was given with a value that only a running shell knows."""
        notes = (*self.not_understood, *self.remarks)
        return any(normal(note.partition(" = ")[0]) in keys for note in notes)

    def runs(self, *parts: str) -> bool:
        """Whether a started program, or a configuration that is built on, has one of these in its name."""
        return any(part in name for part in parts for name in (*self.programs, *self.parents))

    def never_looked_at(self) -> list[str]:
        """Keys that nothing asked for, as they were written."""
        return [s.key for key, s in self.found.items() if key not in self.looked_at]

    def _followed(self, value: Any, key: str, seen: frozenset[str]) -> Any:
        if not isinstance(value, str) or "${" not in value:
            return value
        text = value
        while self.pointers_left > 0 and len(text) <= _LONGEST:
            self.pointers_left -= 1
            match = _POINTER.search(text)
            if match is None:
                return plain_scalar(text.strip())
            target = self._target(match[1].strip(), key, seen)
            if target is None:
                self._say(f"{key} = {value}")
                return None
            if match[0] == text.strip():
                return target
            text = text[: match.start()] + str(target) + text[match.end() :]
        self._say(f"{key} = {value}")
        return None

    def _target(self, pointer: str, key: str, seen: frozenset[str]) -> Any:
        """What stands behind `${...}`: another key, one with a fallback, or a product; None if nothing does."""
        name, colon, rest = pointer.partition(":")
        if name == "not":
            return str(plain_scalar(rest.strip())).lower() not in ("true", "1")
        if colon and name in _SIGNS:
            sign = _SIGNS[name]
            parts = [p.strip() for p in rest.split(",")] if sign else [rest]
            return whole_number(sign.join(f"({p})" for p in parts))
        if colon:
            wanted, comma, fallback = rest.partition(",")
            target = self._target(wanted.strip(), key, seen) if name == "oc.select" else None
            return target if target is not None else plain_scalar(fallback.strip().strip("'\"")) if comma else None
        dots = len(name) - len(name.lstrip("."))
        if dots:
            above = key.split(".")[:-dots]
            name = ".".join([*above, name[dots:]])
        other = normal(name)
        if other in seen or other not in self.found:
            return None
        self.looked_at.add(other)
        return self._followed(self.found[other].value, other, seen | {other})

    def _say(self, what: str) -> None:
        if what not in self.not_understood:
            self.not_understood.append(what)


def settings_of(pairs: Iterable[tuple[str, Any]]) -> RunSettings:
    """Settings from (key, value) pairs, later ones over earlier ones."""
    settings = RunSettings()
    for key, value in pairs:
        settings.add(key, value)
    return settings


# Sums and products of whole numbers, as scripts and resolvers write them: nothing else is evaluated.
_SUM = re.compile(r"[\d_\s()+*/%-]{1,200}")
_LARGEST_SUM = 10**15


def whole_number(text: str) -> int | None:
    """The value of an expression of whole numbers with + - * / // %, as a shell divides (towards zero); else None."""
    if not _SUM.fullmatch(text):
        return None
    try:
        number = sum_of(text.replace("//", "/").replace("\n", " "))
    except Undecided:
        return None
    return number if abs(number) <= _LARGEST_SUM else None
