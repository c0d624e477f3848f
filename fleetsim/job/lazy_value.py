"""A value that is worked out when it is first asked for."""

from __future__ import annotations

from collections.abc import Callable
from typing import Generic, TypeVar

Value = TypeVar("Value")


class Later(Generic[Value]):
    """`later()` is what `make` returns, called once; what `make` needed for it is then let go."""

    __slots__ = ("_made", "_make")

    def __init__(self, make: Callable[[], Value]) -> None:
        self._make: Callable[[], Value] | None = make
        self._made: list[Value] = []

    def __call__(self) -> Value:
        """The value. Raises what `make` raises, and then asks it again the next time."""
        if self._make is not None:
            self._made, self._make = [self._make()], None
        return self._made[0]
