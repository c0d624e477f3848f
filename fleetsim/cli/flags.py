"""A question as a command: the fields of its dataclasses are the options, with their types, defaults and help."""

from __future__ import annotations

import inspect
import typing
from collections.abc import Callable, Iterator
from dataclasses import MISSING, Field, dataclass, fields, is_dataclass
from typing import Annotated, Any, Literal

import typer

from fleetsim.errors import InputError, Problem
from fleetsim.job.settings import READERS, RUN, Argument, Lends, Option


def _read_run(*said: Any) -> Any:
    from fleetsim.replay.shown import with_run

    return with_run(*said)


READERS[:] = [_read_run]


def command(run: Callable[..., None]) -> Callable[..., None]:
    """A function for `app.command`, of a function whose parameters are questions.

    It takes every field of each question as an option, fills the questions and calls `run`, whose docstring is the
    command's help.
    """
    questions = {name: kind for name, kind in typing.get_type_hints(run).items() if name != "return"}

    def call(**values: Any) -> None:
        run(**{name: _filled(question, values) for name, question in questions.items()})

    offered = [one for question in questions.values() for one in _offered(question)]
    call.__doc__, call.__name__ = run.__doc__, run.__name__
    annotate(call, [_parameter(*one) for one in _in_order(offered)])
    return call


def annotate(call: Callable[..., None], parameters: list[inspect.Parameter]) -> None:
    """Gives a command its parameters; typer reads the signature, completion the annotations."""
    call.__signature__ = inspect.Signature(parameters)  # type: ignore[attr-defined]
    call.__annotations__ = {parameter.name: parameter.annotation for parameter in parameters}


def parameters_of(call: Callable[..., None]) -> list[inspect.Parameter]:
    """The parameters of a command, made here or written by hand."""
    return list(inspect.signature(call).parameters.values())


_Offered = tuple[str, Any, Option | Argument, Field[Any]]


def _offered(question: Any) -> Iterator[_Offered]:
    """Name, type, mark and field of whatever a question offers on the command line."""
    hints = typing.get_type_hints(question, include_extras=True)
    for field in fields(question):
        mark = _mark(hints[field.name])
        if isinstance(mark, Lends):
            yield from _offered(mark.fields)
        elif mark is not None:
            yield field.name, typing.get_args(hints[field.name])[0], mark, field


def _mark(hint: Any) -> Option | Argument | Lends | None:
    marks = [mark for mark in getattr(hint, "__metadata__", ()) if isinstance(mark, (Option, Argument, Lends))]
    return marks[0] if marks else None


def _in_order(offered: list[_Offered]) -> list[_Offered]:
    """As they come, but those that say `after` behind the field they name."""
    after = {name: mark.after for name, _, mark, _ in offered if isinstance(mark, Option) and mark.after is not None}
    placed = [one for one in offered if one[0] not in after]
    waiting = [one for one in offered if one[0] in after]
    while waiting:
        names = [name for name, *_ in placed]
        one = next(one for one in waiting if after[one[0]] in names)
        placed.insert(1 + names.index(after[one[0]]), one)
        waiting.remove(one)
    return placed


def _parameter(name: str, kind: Any, mark: Option | Argument, field: Field[Any]) -> inspect.Parameter:
    told: Any
    if isinstance(mark, Argument):
        told = typer.Argument(metavar=mark.metavar, help=mark.help)
    else:
        flag = mark.flag or f"--{name.rstrip('_').replace('_', '-')}"
        flags = (flag,) if mark.short is None else (flag, mark.short)
        told = typer.Option(
            *flags, metavar=mark.metavar, help=mark.help, rich_help_panel=mark.panel, envvar=mark.variable
        )
    default = inspect.Parameter.empty if field.default is MISSING else field.default
    return inspect.Parameter(name, inspect.Parameter.KEYWORD_ONLY, default=default, annotation=Annotated[kind, told])


def _filled(question: Any, values: dict[str, Any]) -> Any:
    """The question with the values of its options; what it does not offer keeps its default."""
    hints = typing.get_type_hints(question, include_extras=True)
    given: dict[str, Any] = {}
    for field in fields(question):
        mark = _mark(hints[field.name])
        if isinstance(mark, Lends):
            given[field.name] = _filled(mark.fields, values)
        elif mark is not None:
            given[field.name] = values[field.name]
    assert is_dataclass(question)
    return question(**given)


# --- What a command does with its answer, as options. Python has methods of the result for it.


Form = Literal["table", "json", "csv", "md"]


@dataclass(frozen=True, kw_only=True)
class Formed:
    """In which form a command prints its answer."""

    format: Annotated[
        Form, Option("table, json, csv (its rows) or md (all of it).", RUN, metavar="FORMAT", short="-o")
    ] = "table"
    json_: Annotated[bool, Option("One JSON document: -o json.", RUN)] = False

    def __post_init__(self) -> None:
        if self.json_ and self.format in ("csv", "md"):
            raise InputError(
                [Problem("--json", f"-o {self.format}", "each asks for another form", "drop one of the two")]
            )

    @property
    def form(self) -> Form:
        """The form that was asked for."""
        return "json" if self.json_ else self.format


@dataclass(frozen=True, kw_only=True)
class AsJson:
    """A text, or the same for a program."""

    json_: Annotated[bool, Option("One JSON document.", "Output")] = False


@dataclass(frozen=True, kw_only=True)
class Drawn(Formed):
    """An answer that is told in brief, whole, or on a page."""

    html: Annotated[str | None, Option("Write a page with charts there; it opens offline.", RUN, metavar="FILE")] = None
    explain: Annotated[bool, Option("Print the rest too: why, what else was looked at, what was assumed.", RUN)] = False


@dataclass(frozen=True, kw_only=True)
class Printed(Drawn):
    """What a command does with its answer. Python has methods of the result for it."""

    fail_if: Annotated[
        list[str] | None, Option('Exit 10 if true: "step_s>30". Repeatable.', RUN, metavar="CONDITION")
    ] = None


@dataclass(frozen=True, kw_only=True)
class Output(Printed):
    """What a command does with an answer that rests on an engine's speed."""

    strict: Annotated[bool, Option("Exit 12 outside the measured range.", RUN)] = False
