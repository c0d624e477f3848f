"""What is raised in Python names keywords, where the command line names flags."""

from __future__ import annotations

from collections.abc import Iterator
from contextlib import contextmanager
from typing import Any

from fleetsim.errors import InputError, Interrupted, OutsideError, Problem
from fleetsim.faces import in_python
from fleetsim.records import replace


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
