"""One text for two readers: on the command line a setting is `--max-staleness`, in Python it is `max_staleness`.

A message that names settings is made by `text` from references to them. As a string it reads as on the command line;
`in_python` gives what it says in Python. Nothing ever looks for flags in a finished text.
"""

from __future__ import annotations

from collections.abc import Iterator
from contextlib import contextmanager
from typing import Any

from fleetsim.errors import InputError, Interrupted, OutsideError, Problem
from fleetsim.records import replace


class Text(str):
    """A text that names settings: the string is the command line's, `python` is Python's."""

    __slots__ = ("python",)
    python: str

    def __new__(cls, flags: str, python: str) -> Text:
        """flags: the command line's text. python: Python's."""
        made = super().__new__(cls, flags)
        made.python = python
        return made

    def __reduce__(self) -> tuple[type[Text], tuple[str, str]]:
        return Text, (str.__str__(self), self.python)


SET = Text("--set", "changes")
"""The way to change any key of a scenario."""


def flag(name: str, value: object = None) -> Text:
    """An option by the name of its keyword, with a value if there is one: `--batch 512` and `batch=512`."""
    option = f"--{name.replace('_', '-')}"
    return Text(option, name) if value is None else Text(f"{option} {value}", f"{name}={value}")


def setting(path: str, value: object) -> Text:
    """A key of the scenario with its value: `--set sync.pause_s=2` and `{"sync.pause_s": 2}`."""
    return Text(f"--set {path}={value}", f'{{"{path}": {value}}}')


def text(template: str, *parts: Any) -> Text:
    """The template of `str.format` with its parts, each of them written for the reader."""
    return Text(template.format(*parts), template.format(*(in_python(part) for part in parts)))


def in_python(part: Any) -> Any:
    """What is said in Python: a Text's other face, anything else as it is."""
    return part.python if isinstance(part, Text) else part


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
