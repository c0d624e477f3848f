"""fleetsim's dataclasses do what Python's own do, and compile nothing that nobody calls."""

from __future__ import annotations

import copy
import dataclasses
import inspect
import pickle
import subprocess
import sys
from collections.abc import Callable
from dataclasses import FrozenInstanceError, field
from typing import Any

import pytest
from hypothesis import given
from hypothesis import strategies as st

from fleetsim import dataclass as ours


def _family(dataclass: Callable[..., Any]) -> dict[str, Any]:
    """The same classes, made by one decorator or the other."""

    @dataclass(frozen=True, slots=True)
    class Point:
        """A point."""

        x: float
        y: float = 0.0
        seen: list[int] = field(default_factory=list, repr=False, compare=False)

    @dataclass(frozen=True, slots=True)
    class Named(Point):
        """With a name, and a default of its base's field changed."""

        y: float = 1.0
        name: str = "p"

    @dataclass(frozen=True, kw_only=True)
    class Base:
        """By keyword only."""

        a: int
        b: int = 2

    @dataclass(frozen=True)
    class Mixed(Base):
        """A positional field behind keywords."""

        c: int

    @dataclass(slots=True)
    class Running:
        """Changes, and works something out."""

        start: int
        end: int = field(init=False)

        def __post_init__(self) -> None:
            self.end = self.start + 1

    @dataclass(frozen=True, slots=True, eq=False, repr=False)
    class Bare:
        """Neither compared nor shown by its fields."""

        x: int

        def __repr__(self) -> str:
            return "bare"

    @dataclass(frozen=True, slots=True)
    class Own:
        """Brings its own equality."""

        x: int

        def __eq__(self, other: object) -> bool:
            return True

    @dataclass(frozen=True, slots=True)
    class Empty:
        """No fields."""

    return {cls.__name__: cls for cls in (Point, Named, Base, Mixed, Running, Bare, Own, Empty)}


OURS, PYTHONS = _family(ours.dataclass), _family(dataclasses.dataclass)
BOTH = [(OURS[name], PYTHONS[name]) for name in OURS]


@ours.dataclass(frozen=True, slots=True)
class Kept:
    """In a module, where pickle finds it."""

    x: object
    y: tuple[int, ...] = ()


def _outcome(cls: Any, *positional: int, **named: int) -> Any:
    try:
        return repr(cls(*positional, **named))
    except (TypeError, AttributeError) as error:  # a FrozenInstanceError is an AttributeError
        return type(error), str(error)


@pytest.mark.parametrize(("mine", "python"), BOTH, ids=OURS)
def test_the_class_looks_the_same(mine: Any, python: Any) -> None:
    assert str(inspect.signature(mine)) == str(inspect.signature(python))
    assert mine.__match_args__ == python.__match_args__
    assert [(f.name, f.type, f.init, f.compare) for f in dataclasses.fields(mine)] == [
        (f.name, f.type, f.init, f.compare) for f in dataclasses.fields(python)
    ]
    assert getattr(mine, "__slots__", None) == getattr(python, "__slots__", None)
    assert (mine.__hash__ is None) == (python.__hash__ is None)


@given(
    st.sampled_from(list(OURS)),
    st.lists(st.integers(0, 2), max_size=4),
    st.dictionaries(st.sampled_from(["x", "y", "a", "b", "c", "start", "name", "seen"]), st.integers(0, 2), max_size=3),
)
def test_objects_are_made_and_told_the_same(name: str, positional: list[int], named: dict[str, int]) -> None:
    one, other = (_outcome(cls, *positional, **named) for cls in (OURS[name], PYTHONS[name]))
    if name == "Bare":
        assert (one == "bare") == (other == "bare")
    else:
        assert one == other


@given(st.tuples(st.integers(0, 1), st.integers(0, 1)), st.tuples(st.integers(0, 1), st.integers(0, 1)))
def test_objects_compare_and_hash_the_same(a: tuple[int, int], b: tuple[int, int]) -> None:
    for name in ("Point", "Named", "Own"):
        mine, python = OURS[name], PYTHONS[name]
        n = 1 if name == "Own" else 2
        assert (mine(*a[:n]) == mine(*b[:n])) == (python(*a[:n]) == python(*b[:n]))
        assert hash(mine(*a[:n])) == hash(python(*a[:n]))
    assert OURS["Point"](*a) != OURS["Named"](*a)
    assert OURS["Bare"](1) != OURS["Bare"](1)
    assert OURS["Empty"]() == OURS["Empty"]()


def test_what_is_frozen_stays() -> None:
    for cls in (OURS["Point"], PYTHONS["Point"]):
        point = cls(1.0)
        with pytest.raises(FrozenInstanceError, match="cannot assign to field 'x'"):
            point.x = 2.0
        with pytest.raises(FrozenInstanceError, match="cannot delete field 'x'"):
            del point.x
        assert dataclasses.replace(point, y=3.0) == cls(1.0, 3.0)
        assert dataclasses.asdict(point) == {"x": 1.0, "y": 0.0, "seen": []}
        assert point.seen is not cls(1.0).seen
    running = OURS["Running"](1)
    running.start = 5
    assert (running.start, running.end) == (5, 2)


@given(st.integers() | st.text(), st.lists(st.integers()).map(tuple))
def test_an_object_survives_pickle_and_copy(x: object, y: tuple[int, ...]) -> None:
    kept = Kept(x, y)
    assert pickle.loads(pickle.dumps(kept)) == kept
    assert copy.deepcopy(kept) == kept


def test_nothing_is_compiled_while_a_class_is_made() -> None:
    program = (
        "import dataclasses, sys\n"
        "from fleetsim.dataclass import dataclass\n"
        "compiled = []\n"
        "sys.addaudithook(lambda event, given: compiled.append(given) if event == 'compile' else None)\n"
        "@dataclass(frozen=True, slots=True)\n"
        "class Point:\n"
        "    x: float\n"
        "    y: float = 0.0\n"
        "print(len(compiled))\n"
        "Point(1.0), Point(2.0)\n"
        "print(len(compiled))\n"
    )
    done = subprocess.run([sys.executable, "-c", program], capture_output=True, text=True, check=True)
    assert done.stdout.split() == ["0", "1"]
