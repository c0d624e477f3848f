"""One setting as it was read, and how it is written: `scenario from` goes this way, `scenario to` goes back.

A framework's module reads settings and puts scenario values that follow from them (`draft.put`). Each value knows its
way back: which settings, set to what, give a wanted value. For a value that is one setting, that is the setting
itself; for a product, a list or a law of its own, the way back stands beside the reader (`back=`).
"""

from __future__ import annotations

import math
from collections.abc import Callable, Mapping, Sequence
from typing import Any, Generic, TypeVar

from msgspec import Struct

from fleetsim.records import replace

T = TypeVar("T")
# A wanted value -> the settings that say it; None if none do.
Back = Callable[[Any], Mapping[str, Any] | None]
# GPUs of a server, where a framework asks for nodes.
NODE_GPUS = 8


class Read(Struct, Generic[T], frozen=True):
    """One setting as it was read. given: the configuration says so; else it is the framework's own default.

    back: how it is written, where that is not the value under its own key.
    """

    key: str
    value: T
    given: bool
    back: Back | None = None

    def __str__(self) -> str:
        return f"{self.key} = {one_line(self.value)}"

    def written(self, want: Any) -> Mapping[str, Any] | None:
        """The settings with which this reads as `want`; None where it cannot."""
        if self.back is not None:
            return self.back(want)
        if want is None or not self.key or " " in self.key:
            return None
        if isinstance(self.value, bool):
            return {self.key: want} if isinstance(want, bool) else None
        if isinstance(self.value, int):
            return {self.key: int(want)} if isinstance(want, (int, float)) and want == int(want) else None
        return {self.key: int(want) if isinstance(want, float) and want == int(want) else want}

    def plus(self: Read[int], more: int, name: str = "") -> Read[int]:
        """So many more than the setting, or fewer; its way back sets it to so many less."""
        name = name or (f"{self} + {more}" if more > 0 else f"{self.key} {self.value} - {-more}")
        back: Back = lambda want: self.written(want - more)  # noqa: E731
        return Read(name, self.value + more, self.given, back) if more else self


class Link(Struct, frozen=True):
    """A scenario value that settings say, or could: what they say now, and the way back.

    unless: the value with which nothing needs to be written.
    """

    path: str
    value: Any
    back: Back
    unless: Any


def times(*reads: Read[int]) -> Read[int]:
    """The product of settings, as one reading that names them all. Its way back sets the first, the others as they
    are."""
    value = math.prod(r.value for r in reads)
    name = " x ".join(r.key if len(reads) == 1 else f"{r.key} {r.value}" for r in reads)
    rest = math.prod(r.value for r in reads[1:])

    def back(want: Any) -> Mapping[str, Any] | None:
        if not isinstance(want, int) or want % rest or want < rest:
            return None
        return reads[0].written(want // rest)

    return Read(name, value, any(r.given for r in reads), back)


def on_nodes(
    nodes: Read[int], per_node: Read[int], per_node_key: str = "", *, part: int = 1, exact: bool = False
) -> Read[int]:
    """GPUs as nodes x GPUs of a node. Back: `nodes_of`.

    per_node_key: what is written, where that is another key than the one that was read.
    """

    def back(want: Any) -> Mapping[str, Any] | None:
        if not isinstance(want, int) or want < 1:
            return None
        (count,), each = nodes_of((want,), part, exact=exact)
        return {nodes.key: count, per_node_key or per_node.key: each}

    return replace(times(nodes, per_node), back=back)


def nodes_of(pools: Sequence[int], part: int = 1, *, exact: bool = False) -> tuple[tuple[int, ...], int]:
    """Nodes of each pool, and GPUs of a node, for so many GPUs of each: nodes as full as divides all of them evenly.

    Nodes that would be less than half full are no cluster, unless one is all there is: then as few nodes as hold the
    GPUs, with one or more beyond what was asked for. part: GPUs that must share a node. exact: never more than asked
    for.
    """
    fits = [n for n in range(min(NODE_GPUS, max(pools)), 0, -1) if n % part == 0 or part % n == 0]
    even = next((n for n in fits if all(gpus % n == 0 for gpus in pools)), 1)
    if exact or sum(pools) <= NODE_GPUS or even >= NODE_GPUS // 2:
        return tuple(gpus // even for gpus in pools), even
    nodes = tuple(-(-gpus // fits[0]) for gpus in pools)
    return nodes, min(n for n in fits if all(n * count >= gpus for count, gpus in zip(nodes, pools, strict=True)))


def parts_of(whole: Read[int], each: Read[int]) -> Back:
    """Back from a number of parts: `whole` is set to so many times `each`."""
    return lambda want: whole.written(want * each.value) if isinstance(want, int) else None


def one_of(words: Mapping[Any, Mapping[str, Any]]) -> Back:
    """Back from a value that has its own settings: a table of them."""
    return lambda want: words.get(want)


def switched(key: str, on: Any = True, off: Any = False) -> Back:
    """Back from true or false to a setting with a value for each."""
    return one_of({True: {key: on}, False: {key: off}})


def worded(words: Mapping[str, Any], write: Back) -> Back:
    """Back from the scenario's word to the first of the framework's words that means it. write: how that is written."""

    def back(want: Any) -> Mapping[str, Any] | None:
        found = next((word for word, meant in words.items() if meant == want), None)
        return None if found is None else write(found)

    return back


def writes(key: str, like: Any = 1) -> Back:
    """Back from a value of this kind to the setting of this key."""
    return Read(key, like, False).written


def turned(read: Read[bool]) -> Read[bool]:
    """The contrary of a switch."""
    return Read(read.key, not read.value, read.given, lambda want: read.written(not want))


def above_0(read: Read[float], on: float) -> Read[bool]:
    """Whether a number is more than nothing. on: what it is set to where it must be."""
    return Read(read.key, read.value > 0, read.given, switched(read.key, on, 0.0))


def never(_: Any) -> None:
    """No setting says it."""


def one_line(value: object, limit: int = 100) -> str:
    """A value on one short line, with nothing that a terminal or a YAML comment would stumble over."""
    text = value if isinstance(value, str) else repr(value)
    text = "".join(c if c.isprintable() else " " for c in text[: 2 * limit])
    return text if len(text) <= limit else f"{text[: limit - 3]}..."
