"""Errors of what Python asked: a setting is called by its keyword there."""

from __future__ import annotations

from collections.abc import Iterator
from contextlib import contextmanager
from dataclasses import replace

from fleetsim.errors import InputError, Interrupted, OutsideError
from fleetsim.faces import in_python


@contextmanager
def keywords() -> Iterator[None]:
    """As a decorator, or around a block: what is raised there names keywords instead of flags."""
    try:
        yield
    except InputError as error:
        error.problems = tuple(
            replace(p, path=in_python(p.path), rule=in_python(p.rule), remedy=in_python(p.remedy))
            for p in error.problems
        )
        error.args = (error.problems,)
        raise
    except Interrupted as cut:
        cut.missing = in_python(cut.missing)
        cut.args = tuple(map(in_python, cut.args))
        raise
    except OutsideError as error:
        error.args = tuple(map(in_python, error.args))
        raise
