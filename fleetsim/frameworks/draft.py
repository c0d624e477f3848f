"""A scenario in the making: every value with the framework's own key that it came from.

A framework's module reads settings (`draft.count("data.train_batch_size", default=1024)`) and puts values at scenario
paths (`draft.put("trainer.batch_samples", batch.value * n.value, batch, n)`). The draft keeps the three lists that the
user is shown, what was taken, what was assumed and what is not modelled, and every problem.
"""

from __future__ import annotations

import math
import re
from collections.abc import Callable, Mapping, Sequence
from typing import Any

from msgspec import Struct, field

from fleetsim.config.tree import is_touched
from fleetsim.errors import Problem
from fleetsim.frameworks.reading import Back, Link, Read, T, never, one_line, one_of, parts_of, times
from fleetsim.frameworks.settings import RunSettings, normal

_MOST = 1_000_000_000
_TRUE, _FALSE = frozenset({"true", "yes", "on", "1", "enable", "enabled"}), frozenset({"false", "no", "off", "0"})
# Values with which a setting asks for nothing, or for what every scenario has.
SWITCHED_OFF: tuple[object, ...] = (False, 0, -1, 1, "none", "None", "no", "false", "False", "auto", [])
# Equal to no value: always written.
NEVER: Any = object()
_ONE_WORD = "must be one word"
_KEY, _LAST = re.compile(r"[\w./-]+"), re.compile(r"[^.]+\Z")
_WHOLE = re.compile(r"[-+]?\d[\d_]{0,30}")


class Taken(Struct, frozen=True):
    """A scenario value that follows from settings. why: the rule, where it is more than the value itself."""

    path: str
    value: Any
    settings: tuple[str, ...]
    why: str = ""


class Assumed(Struct, frozen=True):
    """A scenario value that the configuration does not say. remedy: how the user says it."""

    path: str
    value: Any
    why: str
    remedy: str


class NotModelled(Struct, frozen=True):
    """A setting that bears on speed or staleness, and that the scenario cannot hold."""

    setting: str
    why: str


class ServedModel(Struct, frozen=True):
    """The engines of another model. model: empty where nothing names it. ranks: GPUs of an engine, 0 likewise."""

    model: str = ""
    ranks: int = 0


class Apart(Struct, frozen=True):
    """Who reads samples on GPUs of its own, for which station, by which engines."""

    station: str
    who: str
    gpus: int
    by: ServedModel


class Draft(Struct):
    """What a framework's module builds. given: what the user set himself. preset: the shipped one that is alike.

    guesses: paths whose values neither the configuration nor the framework says. links: the ways back. other_gpus: GPUs
    of what the scenario has no place for. apart: who reads samples on GPUs of its own.
    """

    framework: str
    settings: RunSettings
    given: Mapping[str, Any] = field(default_factory=dict)
    preset: str = ""
    mode: str = ""
    values: dict[str, Any] = field(default_factory=dict)
    comments: dict[str, str] = field(default_factory=dict)
    taken: list[Taken] = field(default_factory=list)
    assumed: list[Assumed] = field(default_factory=list)
    guesses: set[str] = field(default_factory=set)
    not_modelled: list[NotModelled] = field(default_factory=list)
    problems: list[Problem] = field(default_factory=list)
    links: list[Link] = field(default_factory=list)
    missing: set[str] = field(default_factory=set)
    other_gpus: int = 0
    apart: list[Apart] = field(default_factory=list)

    # ------------------------------------------------------------------------------------------------------ reading

    def _found(self, keys: Sequence[str], parse: Callable[[Any], T | None], rule: str) -> Read[T] | None:
        """What the first of these keys that is set says; None, and a problem, if that is something else."""
        found = self.settings.get(*keys)
        if found is None:
            return None
        value = parse(found[1])
        if value is None:
            self.refuse(found[0].key, found[1], rule, "mend it")
            return None
        return Read(found[0].key, value, True)

    def count(self, *keys: str, default: int, least: int = 1) -> Read[int]:
        """A whole number of at least `least`; a problem and the default if it is something else."""
        return self.maybe_count(*keys, least=least) or Read(keys[0], default, False)

    def maybe_count(self, *keys: str, least: int = 1) -> Read[int] | None:
        """A whole number, or None where the configuration has none."""
        return self._found(keys, lambda value: _whole(value, least), f"must be a whole number of at least {least}")

    def number(self, *keys: str, default: float, most: float = 1e9) -> Read[float]:
        """A number of at least 0."""
        return self.maybe_number(*keys, most=most) or Read(keys[0], default, False)

    def maybe_number(self, *keys: str, most: float = 1e9) -> Read[float] | None:
        """A number of at least 0, or None where the configuration has none."""
        return self._found(keys, lambda value: _number(value, most), f"must be a number from 0 to {most:g}")

    def flag(self, *keys: str, default: bool) -> Read[bool]:
        """True or False, in any of the spellings of YAML and command lines; `--no-flag` is false."""
        found = self._found(keys, _flag, "must be true or false")
        off = self.settings.get(*(_LAST.sub(r"no_\g<0>", key) for key in keys)) if found is None and default else None
        return found or Read(keys[0], default and off is None, off is not None)

    def text(self, *keys: str, default: str) -> Read[str]:
        """A word or path."""
        return self.maybe_text(*keys) or Read(keys[0], default, False)

    def maybe_text(self, *keys: str) -> Read[str] | None:
        """A word or path, or None where the configuration has none."""
        return self._found(keys, lambda value: None if isinstance(value, (list, dict)) else str(value), _ONE_WORD)

    def choice(self, *keys: str, default: str, known: Sequence[str]) -> Read[str]:
        """One of the known words; a problem and the default if it is another."""
        read = self.text(*keys, default=default)
        if read.value not in known:
            self.refuse(read.key, read.value, f"must be one of {', '.join(known)}", "mend it")
            return Read(keys[0], default, False)
        return read

    def needed_count(self, *keys: str, remedy: str, usual: int = 0) -> Read[int]:
        """A whole number that the framework has no default for, unless it has a usual one; a problem where it is
        missing."""
        before = len(self.problems)
        read = self.count(*keys, default=usual) if usual else self.maybe_count(*keys)
        if read is None:
            if len(self.problems) == before:
                self.refuse(keys[0], None, "is missing, and the framework has no default for it", remedy)
            self.missing.add(keys[0])
        return read or Read(keys[0], 1, False)

    # ------------------------------------------------------------------------------------------------------ writing

    def put(
        self, path: str, value: Any, *reads: Read[Any], why: str = "", back: Back | None = None, unless: Any = NEVER
    ) -> None:
        """A scenario value that follows from settings; from defaults of the framework alone, it counts as assumed.

        back: the settings that give another value, where one setting alone does not. unless: the scenario's own
        default, which needs no line.
        """
        self.could(path, value, back or (reads[0].written if len(reads) == 1 else never), unless)
        if value == unless:
            return
        shown = " and ".join(map(str, reads))
        defaults = [r.key for r in reads if not r.given]
        self.values[path] = value
        self.comments[path] = (f"{shown}: {why}" if shown and why else shown or why) + (
            f" ({self.framework}'s default)" if defaults and len(defaults) == len(reads) else ""
        )
        lost = self.settings.lost().intersection(map(normal, _KEY.findall(shown)))
        if lost:  # another source or the default stands in
            note = f"{shown}: {', '.join(sorted(lost))} is given with a value that is not known here"
            self.assume(path, value, note, f"-- {min(lost)}{'=' if '.' in min(lost) else ' '}VALUE")
        elif reads and len(defaults) == len(reads):
            note = f"{self.framework}'s default ({shown})" + (f": {why}" if why else "")
            first = reads[0]
            sign = "=" if "." in first.key or self.framework == "verl" else " "
            example = f"{first.key}{sign}{one_line(first.value)}"
            self.assumed.append(Assumed(path, value, note, f"-- {example}"))
        else:
            settings = tuple(f"{r} (default)" if not r.given else str(r) for r in reads)
            self.taken.append(Taken(path, value, settings, why))

    def take(
        self, path: str, read: Read[T], *, why: str = "", back: Back | None = None, unless: Any = NEVER
    ) -> Read[T]:
        """A scenario value that is one setting's own; the setting, to go on with."""
        self.put(path, read.value, read, why=why, back=back, unless=unless)
        return read

    def product(self, path: str, *reads: Read[int], why: str = "", unless: Any = NEVER) -> Read[int]:
        """A scenario value that is the product of settings, of which the way back sets the first; the product."""
        whole = times(*reads)
        self.put(path, whole.value, *reads, why=why, back=whole.written, unless=unless)
        return whole

    def parted(self, path: str, whole: Read[int], each: Read[int], what: str = "the number of instances") -> int:
        """A scenario value that is so many parts of a setting, with a problem where they are not whole."""
        value = self.divided(what, whole, each)
        self.put(path, value, whole, each, back=parts_of(whole, each))
        return value

    def where_said(
        self,
        path: str,
        read: Read[Any] | None,
        key: str = "",
        *,
        back: Back | None = None,
        now: Any = None,
        unless: Any = NEVER,
    ) -> None:
        """A scenario value that one setting says where it is there; else nobody does, and it, or `key`, would say it.

        now: what holds without it.
        """
        read = read or Read(key, 0, False)
        self.where(read.given, path, read.value, read, back=back or read.written, now=now, unless=unless)

    def where(
        self, holds: bool, path: str, value: Any, *reads: Read[Any], back: Back, now: Any = None, why: str = "",
        unless: Any = NEVER,
    ) -> None:  # fmt: skip
        """A scenario value that follows from settings where something holds; else `now`, and they would say it."""
        if holds:
            self.put(path, value, *reads, why=why, back=back, unless=unless)
        else:
            self.could(path, now, back, unless)

    def either(
        self, path: str, switch: Read[bool], on: str, off: str, *, why: tuple[str, str] = ("", ""), unless: Any = NEVER
    ) -> None:
        """A scenario value that a switch of the framework decides. why: of it when on, and when off."""
        back = one_of({on: {switch.key: True}, off: {switch.key: False}})
        value, reason = (on, why[0]) if switch.value else (off, why[1])
        self.put(path, value, switch, why=reason, back=back, unless=unless)

    def could(self, path: str, value: Any, back: Back, unless: Any = NEVER) -> None:
        """Settings that would say a scenario value. value: what holds now."""
        self.links.append(Link(path, value, back, unless))

    def semantics(self, path: str, value: Any, why: str) -> None:
        """A scenario value that follows from the mode as a whole, not from a number in the configuration."""
        self.values[path] = value
        self.comments[path] = f"{self.mode}: {why}" if self.mode else why
        self.taken.append(Taken(path, value, (self.mode,), why))

    def assume(self, path: str, value: Any, why: str, remedy: str = "") -> None:
        """A scenario value that no setting says; the user's own --set is none of ours to assume. Several reasons for
        one path are one assumption."""
        if self.is_given(path):
            return
        earlier = next((a for a in self.assumed if a.path == path and path in self.guesses), None)
        if earlier is not None:
            self.assumed.remove(earlier)
            why = f"{earlier.why}; {why}"
        self.values[path] = value
        self.comments[path] = f"assumed: {why}"
        self.assumed.append(Assumed(path, value, why, remedy or f"--set {path}=..."))
        self.guesses.add(path)

    def is_given(self, path: str) -> bool:
        """Whether the user set the path himself, a part of it, or what it is a part of."""
        return is_touched(path, self.given)

    def leave_out(self, table: Mapping[str, str]) -> None:
        """Report the settings of a table (key -> why it cannot be held) that are there and switched on."""
        for key, why in table.items():
            found = self.settings.get(key)
            if found is not None and (found[1] is True or found[1] not in SWITCHED_OFF):
                self.not_modelled.append(NotModelled(f"{found[0].key} = {one_line(found[1])}", why))

    def note(self, setting: str, why: str) -> None:
        """Something that is not modelled and has no entry of its own in a table."""
        self.not_modelled.append(NotModelled(setting, why))

    def refuse(self, key: str, value: object, rule: str, remedy: str) -> None:
        """A problem with a setting."""
        self.problems.append(Problem(key, value, rule, remedy))

    def divided(self, what: str, whole: Read[int], by: Read[int]) -> int:
        """whole / by, with a problem where that leaves a rest or nothing. At least 1."""
        known = whole.key not in self.missing and by.key not in self.missing
        if known and (whole.value % by.value or whole.value < by.value):
            self.refuse(
                whole.key, whole.value, f"{what} must be whole: {by} does not divide it", "change one of the two"
            )
        return max(1, whole.value // by.value)


def _whole(value: object, least: int) -> int | None:
    if isinstance(value, str) and _WHOLE.fullmatch(value):
        value = int(value.replace("_", ""))
    if isinstance(value, float) and math.isfinite(value) and value == int(value):
        value = int(value)
    return value if type(value) is int and least <= value <= _MOST else None


def _number(value: object, most: float) -> float | None:
    try:
        number = float(value) if isinstance(value, (int, float, str)) and not isinstance(value, bool) else math.nan
    except (ValueError, OverflowError):
        return None
    return number if 0 <= number <= most else None


def _flag(value: object) -> bool | None:
    text = str(value).strip().lower()[:20]
    return text in _TRUE if text in _TRUE or text in _FALSE else None
