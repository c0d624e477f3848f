"""Dataclasses whose methods are made when they are first used, for a command makes hundreds of classes when it starts.

Python's own `dataclass` compiles up to six methods of every class as text while its module is imported: a tenth of a
short command, most of it for methods that nobody calls. Here `__init__` is compiled when the first object is made, and
the others read their fields without being compiled. To everything else (`fields`, `replace`, `asdict`, `match`,
`pickle`, a type checker) these are dataclasses. Supported is what this code base uses.
"""

from __future__ import annotations

import dataclasses
from collections.abc import Callable
from dataclasses import MISSING, FrozenInstanceError, fields
from operator import attrgetter
from typing import TYPE_CHECKING, Any


class _Factory:
    """Stands in a signature for a default that is made anew for every object."""

    def __repr__(self) -> str:
        return "<factory>"


_FACTORY = _Factory()


class _Init:
    """The `__init__` of one class until it is first asked for."""

    def __init__(self, cls: Any, frozen: bool) -> None:
        self._cls, self._frozen = cls, frozen

    def __get__(self, obj: object, owner: type | None = None) -> Any:
        self._cls.__init__ = made = _compiled(self._cls, self._frozen)
        return made.__get__(obj, owner)


def _compiled(cls: Any, frozen: bool) -> Any:
    """`__init__` of a class: parameters in the order of its fields, those by keyword only behind them."""
    scope: dict[str, Any] = {"_set": object.__setattr__, "_factory": _FACTORY}
    positional: list[str] = []
    keywords: list[str] = []
    body: list[str] = []
    for field in fields(cls):
        name, value = field.name, field.name
        parameter = name
        if field.default is not MISSING:
            scope[f"_default_{name}"] = field.default
            parameter = f"{name}=_default_{name}"
        elif field.default_factory is not MISSING:
            scope[f"_make_{name}"] = field.default_factory
            parameter = f"{name}=_factory"
            value = f"_make_{name}() if {name} is _factory else {name}"
        if not field.init:
            continue  # `__post_init__` sets it
        (keywords if field.kw_only else positional).append(parameter)
        body.append(f"_set(self, {name!r}, {value})" if frozen else f"self.{name} = {value}")
    if hasattr(cls, "__post_init__"):
        body.append("self.__post_init__()")
    parameters = ", ".join(["self", *positional, *(["*", *keywords] if keywords else [])])
    exec(f"def __init__({parameters}):\n " + "\n ".join(body or ["pass"]), scope)
    made = scope["__init__"]
    made.__module__, made.__qualname__ = cls.__module__, f"{cls.__qualname__}.__init__"
    made.__annotations__ = {field.name: field.type for field in fields(cls) if field.init} | {"return": None}
    return made


def _values(of: list[str]) -> Callable[[Any], tuple[Any, ...]]:
    """Reads these attributes of an object."""
    if len(of) > 1:
        return attrgetter(*of)
    return lambda self: tuple(getattr(self, name) for name in of)


def _repr(self: Any) -> str:
    told = ", ".join(f"{field.name}={getattr(self, field.name)!r}" for field in fields(self) if field.repr)
    return f"{type(self).__qualname__}({told})"


def _compared(cls: Any) -> tuple[Callable[[Any, object], bool], Callable[[Any], int]]:
    """`__eq__` and `__hash__` of a class."""
    values = _values([field.name for field in fields(cls) if field.compare])

    def equal(self: Any, other: object) -> bool:
        return values(self) == values(other) if other.__class__ is self.__class__ else NotImplemented

    def hashed(self: Any) -> int:
        return hash(values(self))

    return equal, hashed


def _refuse_to_set(self: Any, name: str, value: object) -> None:
    raise FrozenInstanceError(f"cannot assign to field {name!r}")


def _refuse_to_delete(self: Any, name: str) -> None:
    raise FrozenInstanceError(f"cannot delete field {name!r}")


def _state(self: Any) -> list[Any]:
    return [getattr(self, field.name) for field in fields(self)]


def _set_state(self: Any, state: list[Any]) -> None:
    for field, value in zip(fields(self), state, strict=True):
        object.__setattr__(self, field.name, value)


def _made(cls: Any, *, frozen: bool, slots: bool, eq: bool, told: bool, kw_only: bool) -> Any:
    if not cls.__doc__:
        cls.__doc__ = cls.__name__  # else the signature is put there, for which `__init__` would be compiled
    # Beside an `__eq__` Python puts a `__hash__` of None, which nobody wrote.
    own = {name for name, value in vars(cls).items() if name != "__hash__" or value is not None}
    cls = dataclasses.dataclass(init=False, repr=False, eq=False, slots=slots, kw_only=kw_only)(cls)
    methods: dict[str, Any] = {"__init__": _Init(cls, frozen)}
    if told:
        methods["__repr__"] = _repr
    if eq:
        equal, hashed = _compared(cls)
        methods |= {"__eq__": equal, "__hash__": hashed if frozen else None}
    if frozen:
        methods |= {"__setattr__": _refuse_to_set, "__delattr__": _refuse_to_delete}
        if slots:  # what pickle does without these is to set the fields
            methods |= {"__getstate__": _state, "__setstate__": _set_state}
    for name, method in methods.items():
        if name not in own:
            setattr(cls, name, method)
    return cls


if TYPE_CHECKING:
    from dataclasses import dataclass as dataclass
else:

    def dataclass(*, frozen=False, slots=False, eq=True, repr=True, kw_only=False):  # noqa: A002 - Python's names
        """Makes a class a dataclass; the arguments mean what they mean to `dataclasses.dataclass`."""
        return lambda cls: _made(cls, frozen=frozen, slots=slots, eq=eq, told=repr, kw_only=kw_only)
