"""Modules that a framework imports beside its parser, and that the parser itself does not need: torch, ray and others.

Whatever is asked of one of them is there, is false, and does nothing when it is called.
"""

from __future__ import annotations

import importlib.metadata
import sys
from collections.abc import Sequence
from importlib.abc import Loader, MetaPathFinder
from importlib.machinery import ModuleSpec
from types import ModuleType
from typing import Any

VERSION = "2.9.0"  # transformers asks for a torch of at least 2.5


class _Class(type):
    def __getattr__(cls, name: str) -> Any:
        if name.startswith("__"):
            raise AttributeError(name)
        return cls

    def __or__(cls, other: Any) -> Any:
        return cls

    __ror__ = __or__
    __getitem__ = __or__

    def __iter__(cls) -> Any:
        return iter(())

    def __bool__(cls) -> bool:
        return False


class StandIn(metaclass=_Class):
    """A class, a function, a decorator, a base class or a constant."""

    def __init__(self, *args: Any, **kwargs: Any) -> None:
        pass

    def __call__(self, *args: Any, **kwargs: Any) -> Any:
        return args[0] if len(args) == 1 and callable(args[0]) and not kwargs else self

    def __getattr__(self, name: str) -> Any:
        if name.startswith("__"):
            raise AttributeError(name)
        return StandIn()

    def __bool__(self) -> bool:
        return False

    def __mro_entries__(self, bases: tuple[type, ...]) -> tuple[type, ...]:
        return (object,)


class _Module(ModuleType):
    __version__ = VERSION
    __path__: list[str] = []  # noqa: RUF012 a package: what is below it stands in, too

    def __getattr__(self, name: str) -> Any:
        if name.startswith("__"):
            raise AttributeError(name)
        return StandIn


class _Finder(MetaPathFinder, Loader):
    def __init__(self, names: Sequence[str]) -> None:
        self.names = frozenset(names)

    def find_spec(self, fullname: str, path: Any = None, target: Any = None) -> ModuleSpec | None:
        parts = fullname.split(".")
        known = any(".".join(parts[:n]) in self.names for n in range(1, len(parts) + 1))
        return ModuleSpec(fullname, self, is_package=True) if known else None

    def create_module(self, spec: ModuleSpec) -> ModuleType:
        return _Module(spec.name)

    def exec_module(self, module: ModuleType) -> None:
        pass


def stand_in_for(names: Sequence[str]) -> None:
    """Let modules of these names, and all below them, be stand-ins from now on."""
    sys.meta_path.insert(0, _Finder(names))
    version = importlib.metadata.version
    importlib.metadata.version = lambda name: VERSION if name in names else version(name)
