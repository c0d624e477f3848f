"""Objects of the Python interface never change, and say so when somebody tries to change one."""

from __future__ import annotations

from dataclasses import FrozenInstanceError
from typing import TypeVar

T = TypeVar("T")


def unchanging(cls: type[T]) -> type[T]:
    """Makes setting and deleting any attribute of a frozen, slotted dataclass a FrozenInstanceError with a remedy.

    The methods that `dataclass` writes refuse the fields only: for other names they call `super` of the class that was
    there before it got its slots, which is a TypeError about Python's insides.
    """
    what = cls.__name__
    remedy = "job.with_(...) makes another one" if what == "Job" else "ask again of another job: job.with_(...)"

    def refuse_set(self: T, name: str, value: object) -> None:
        raise FrozenInstanceError(f"cannot set {name!r}: a {what} never changes; {remedy}")

    def refuse_delete(self: T, name: str) -> None:
        raise FrozenInstanceError(f"cannot delete {name!r}: a {what} never changes; {remedy}")

    cls.__setattr__ = refuse_set  # type: ignore[assignment,method-assign]
    cls.__delattr__ = refuse_delete  # type: ignore[assignment,method-assign]
    return cls
