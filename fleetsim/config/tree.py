"""What may stand where in a scenario: the tree of keys, read off the pydantic models, and dotted paths into it.

Used to say "did you mean", to check the paths of `--set` and FLEETSIM_ variables before anything is validated, and to
turn pydantic's locations, which name union branches, into the paths that a user writes.
"""

from __future__ import annotations

import difflib
import json
import re
import typing
from collections.abc import Collection, Iterable, Mapping, Sequence
from functools import cache
from types import UnionType
from typing import TYPE_CHECKING, Any, Union

from msgspec import Struct, field

from fleetsim.errors import InputError, Problem
from fleetsim.faces import Text

if TYPE_CHECKING:
    from pydantic import BaseModel


_WORD = re.compile(r"[\w-]+")
# How a union of laws calls its branch of plain numbers, where it has one.
A_NUMBER = "number"


class Node(Struct, frozen=True):
    """One place: the keys below it, the node of its list items, whether it is a union of laws told by `kind`. named:
    the node of each of its sections, where their keys are names that somebody gave."""

    children: dict[str, Node] = field(default_factory=dict)
    items: Node | None = None
    laws: tuple[str, ...] = ()
    named: Node | None = None

    def below(self, key: str) -> Node | None:
        """The node at a key; None where nothing may stand."""
        return self.children.get(key, self.named)


@cache
def tree_of(model: type[BaseModel]) -> Node:
    """The tree of a model's keys."""
    return Node(children={name: _node(f.annotation) for name, f in model.model_fields.items()})


def _node(annotation: Any) -> Node:
    from pydantic import BaseModel  # here, for a command's question is made of paths and must not import it

    if isinstance(annotation, type) and issubclass(annotation, BaseModel):
        return tree_of(annotation)
    origin, arguments = typing.get_origin(annotation), typing.get_args(annotation)
    if origin is typing.Annotated:
        return _node(arguments[0])
    if origin is tuple:
        return Node(items=_node(arguments[0]))
    if origin is dict:
        return Node(named=_node(arguments[1]))
    if origin in (Union, UnionType):
        nodes = [_node(a) for a in arguments if a is not type(None)]
        if len(nodes) == 1:
            return nodes[0]
        children: dict[str, Node] = {}
        laws: list[str] = []
        for node, tagged in zip(nodes, (a for a in arguments if a is not type(None)), strict=True):
            branch = typing.get_args(tagged)[0] if typing.get_origin(tagged) is typing.Annotated else tagged
            for key, child in node.children.items():
                children.setdefault(key, child)
            if isinstance(branch, type) and issubclass(branch, BaseModel) and "kind" in branch.model_fields:
                laws.append(str(branch.model_fields["kind"].default))
        return Node(children=children, laws=tuple(laws))
    return Node()


class Place(Struct, frozen=True):
    """Where a pydantic location points to: its keys as a user writes them, the node there and the node above it."""

    keys: tuple[int | str, ...]
    node: Node
    above: Node

    @property
    def path(self) -> str:
        """`run.events[0].step`; keys that are no plain words are quoted."""
        text = ""
        for key in self.keys:
            if isinstance(key, int):
                text += f"[{key}]"
            else:
                word = key if _WORD.fullmatch(key) else json.dumps(key)
                text += f".{word}" if text else word
        return text


def place_of(root: Node, location: Sequence[int | str]) -> Place:
    """The place of a pydantic location, which names the branch of a union where the user wrote none.

    ('workload', 'output_tokens', 'lognormal', 'cv') is workload.output_tokens.cv. Unknown keys give an empty node.
    """
    keys: list[int | str] = []
    node, above, told = root, root, False
    for part in location:
        if isinstance(part, str) and node.laws and not told and part in (*node.laws, A_NUMBER):
            told = True
            continue
        keys.append(part)
        below = node.items if isinstance(part, int) else node.below(part)
        node, above, told = below or Node(), node, False
    return Place(tuple(keys), node, above)


def did_you_mean(word: str, known: Iterable[str]) -> str:
    """'did you mean "fleet"?', or the list of what is known when nothing is close."""
    names = sorted(known)
    word = word[:100]  # comparing megabytes letter by letter would take minutes
    close = difflib.get_close_matches(word, names, n=1, cutoff=0.6)
    if not close:
        close = difflib.get_close_matches(word.lower().replace("-", "_"), names, n=1, cutoff=0.6)
    if close:
        return f'did you mean "{close[0]}"?'
    return f"known here: {', '.join(names)}" if names else "nothing may be given below this key"


def did_you_mean_one_of(word: str, known: Iterable[str]) -> str:
    """The same where the rule has told already what is known."""
    hint = did_you_mean(word, known)
    return hint if "did you mean" in hint else "write one of these"


def paths_ending_in(root: Node, key: str, prefix: str = "") -> list[str]:
    """Every dotted path whose last key is `key`: where a key that was given in the wrong section belongs."""
    found = [f"{prefix}{name}" for name in root.children if name == key]
    for name, child in root.children.items():
        found += paths_ending_in(child, key, f"{prefix}{name}.")
    return found


def _whole(path: str) -> Text:
    """How a list is set."""
    return Text(f"write --set '{path}=[...]'", f'write {{"{path}": [...]}}')


def unknown_path(root: Node, path: str) -> Problem | None:
    """What is wrong with a dotted path that nothing of a scenario has; None for one that names something."""
    node = root
    parts = path.split(".")
    for i, part in enumerate(parts):
        below = node.below(part)
        if below is not None:
            node = below
            continue
        if node.items is not None:
            return Problem(path, part, "a list is set as a whole", _whole(".".join(parts[:i])))
        elsewhere = paths_ending_in(root, part)
        hint = did_you_mean(part, node.children)
        if elsewhere and "did you mean" not in hint:
            hint = f"did you mean {' or '.join(elsewhere)}?"
        return Problem(path, part, "unknown key", hint)
    return None


# --- Dotted paths of a scenario: what stands at one, which were given, which lie in which.


def is_at(path: str, place: str) -> bool:
    """Whether `path` is `place` or lies in it."""
    return path == place or path.startswith(f"{place}.")


def overlap(a: str, b: str) -> bool:
    """Whether one of two paths is the other or lies in it: who gives both says something twice."""
    return is_at(a, b) or is_at(b, a)


def is_given(path: str, given: Collection[str]) -> bool:
    """Whether the path, or one above it, was given: a whole `fleet.failures` gives fleet.failures.mtbf_s."""
    return any(is_at(path, other) for other in given)


def is_touched(path: str, given: Collection[str]) -> bool:
    """Whether the path was given: itself, a part of it, or above it."""
    return any(overlap(path, other) for other in given)


def given_paths(section: BaseModel, prefix: str = "") -> set[str]:
    """Dotted paths of the fields that were set, not defaulted, in a model that was just validated."""
    from pydantic import BaseModel  # here, for a command's question is made of paths and must not import it

    paths: set[str] = set()
    for name in section.model_fields_set:
        value = getattr(section, name)
        sections = {f"{prefix}{name}": value}
        if isinstance(value, Mapping):
            sections = {f"{prefix}{name}.{key}": below for key, below in value.items()}
        for path, below in sections.items():
            paths |= given_paths(below, f"{path}.") if isinstance(below, BaseModel) else {path}
    return paths


def field_at(section: BaseModel, path: str) -> Any:
    """The field at a dotted path; None where there is none, as a parameter of another law."""
    value: Any = section
    for key in path.split("."):
        value = value.get(key) if isinstance(value, Mapping) else getattr(value, key, None)
    return value


def value_at(section: BaseModel, path: str) -> Any:
    """The value at a dotted path; sections and laws, also in lists, as mappings. Raises AttributeError where there is
    none."""
    value: Any = section
    for key in path.split("."):
        if isinstance(value, Mapping) and key not in value:
            raise AttributeError(path)
        value = value[key] if isinstance(value, Mapping) else getattr(value, key)
    return [_plain(one) for one in value] if type(value) in (list, tuple) else _plain(value)


def _plain(value: Any) -> Any:
    if isinstance(value, Mapping):
        return {key: _plain(below) for key, below in value.items()}
    return value.model_dump(exclude_none=True) if hasattr(value, "model_dump") else value


def put(raw: dict[str, Any], path: str, value: Any) -> None:
    """Sets the value at a dotted path of a raw scenario; sections that it lacks are made."""
    *above, last = path.split(".")
    for key in above:
        raw = raw.setdefault(key, {})
    raw[last] = value


# --- The short forms of a scenario file: read at its edge, written out, and known nowhere below.

# What may be written, and what it stands for.
SHORT_FORMS = {"workload.reward.workers": "stations.reward.workers", "fleet.second": "fleet.pools.second"}


def long_path(path: str) -> str:
    """What a dotted path stands for: itself, unless it is a short form or lies in one."""
    for short, long in SHORT_FORMS.items():
        if path == short or path.startswith(f"{short}."):
            return long + path[len(short) :]
    return path


def written_out(raw: Mapping[str, Any], *, last_word: bool = False) -> dict[str, Any]:
    """A copy of a raw scenario without the short forms. last_word: they were said later than what they stand for.

    Raises InputError where a file gives both, with different values. What is no mapping stays: the validation tells.
    """
    result = dict(raw)
    for short, long in SHORT_FORMS.items():
        *above, last = short.split(".")
        section = _copied(result, above, known=True)
        if section is None or last not in section:
            continue
        value = section.pop(last)
        *above, last = long.split(".")
        target = _copied(result, above, known=False)
        if target is None:
            continue
        given = target.get(last)
        if given is not None and given != value and not last_word:
            rule = f"stands for {long}, which is {given}"
            raise InputError([Problem(short, value, rule, "give one of them")])
        target[last] = value
    if isinstance(result.get("assumed"), (list, tuple)):
        result["assumed"] = [long_path(path) if isinstance(path, str) else path for path in result["assumed"]]
    return result


def _copied(raw: dict[str, Any], keys: list[str], *, known: bool) -> dict[str, Any] | None:
    """The section at these keys, copied with all above it; None where one is no mapping. known: and where one is not
    there, which else is made."""
    for key in keys:
        below = raw.get(key)
        if below is None and not known:
            below = {}
        if not isinstance(below, Mapping):
            return None
        raw[key] = dict(below)
        raw = raw[key]
    return raw
