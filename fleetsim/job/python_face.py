"""What Python users meet: errors that name keywords instead of flags, and objects that never change."""

from __future__ import annotations

from collections.abc import Iterator
from contextlib import contextmanager
from dataclasses import FrozenInstanceError, replace
from typing import Any, TypeVar

from fleetsim.errors import InputError, Interrupted, OutsideError, Problem
from fleetsim.faces import in_python


@contextmanager
def keywords() -> Iterator[None]:
    """As a decorator, or around a block: what is raised there names keywords instead of flags."""
    try:
        yield
    except InputError as error:
        error.problems = tuple(map(_told, error.problems))
        error.args = (error.problems,)
        raise
    except Interrupted as cut:
        cut.missing = in_python(cut.missing)
        cut.args = tuple(map(in_python, cut.args))
        raise
    except OutsideError as error:
        error.args = tuple(map(_told, error.args))
        raise


def _told(part: Any) -> Any:
    if isinstance(part, Problem):
        return replace(part, path=in_python(part.path), rule=in_python(part.rule), remedy=in_python(part.remedy))
    return in_python(part)


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
