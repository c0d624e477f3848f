"""What a question's fields are on the command line. Plain data: a question imports neither typer nor anything heavy.

A question is a frozen dataclass. Each field that the command line offers is `Annotated` with an Option or an Argument;
a field with Lends stands for a dataclass whose own fields become options; a field with neither is for Python alone.
A field's name is the keyword in Python and, without a final underscore, the name of the flag.
"""

from __future__ import annotations

from typing import Protocol, Self

from fleetsim.dataclass import dataclass


@dataclass(frozen=True, slots=True)
class Option:
    """help: one line. panel: where `--help` lists it, None = among those without a name. flag: where it is not made of
    the field's name. short: a second flag, of one letter. variable: the environment variable that stands in for it.
    metavar: what stands for its value. after: the field that it follows in `--help`, where its class has it
    elsewhere."""

    help: str
    panel: str | None
    flag: str | None = None
    metavar: str | None = None
    after: str | None = None
    short: str | None = None
    variable: str | None = None


@dataclass(frozen=True, slots=True)
class Argument:
    """help: one line. metavar: what stands for its value."""

    help: str
    metavar: str


@dataclass(frozen=True, slots=True)
class Lends:
    """fields: the dataclass whose fields are options of this command as well."""

    fields: type


class AnyJob:
    """What a question is about: a `Job`, or `JobFields` from which one is made. `job.ready` gives the job in either
    case."""

    __slots__ = ()


class Question(Protocol):
    """What a feature can be asked."""

    def ready(self) -> Self:
        """The same question with its job made. Raises InputError with all that is wrong with its fields."""
