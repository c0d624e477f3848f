"""Every error a user can meet: value, rule, remedy, and the exit code that goes with it (all of them: EXIT_CODES).

`cli/main.py` ends the process with the code of the error that reaches it, and with 130 after Ctrl-C. With 10 and 12,
which are no errors, a command ends once its answer is shown: `cli/output.py`.
"""

from __future__ import annotations

from collections.abc import Callable, Iterator, Mapping, Sequence
from contextlib import contextmanager
from typing import Any, ParamSpec, TypeVar, cast

from msgspec import Struct

from fleetsim.visible import visible

NOT_HELD, OUTSIDE_RANGE = 10, 12
# The one list of exit codes, for the reference and for whoever writes a script around fleetsim.
EXIT_CODES: Mapping[int, str] = {
    0: "ok",
    1: "internal error: a bug in fleetsim; FLEETSIM_DEBUG=1 shows where it happened",
    2: "usage or bad input: all problems at once, each with value, rule and remedy; also a run that can never go on",
    3: "the outside world did not do its part: a server, a GPU, a file system, an extra that is not installed",
    NOT_HELD: "a condition that was asked for does not hold: `--fail-if`, `--verify`, or a check that failed",
    11: "no fleet in the searched range holds the targets that were asked for",
    OUTSIDE_RANGE: "under `--strict`: the answer lies outside the range that the profile measured",
    130: "interrupted (Ctrl-C)",
}


class Problem(Struct, frozen=True):
    """One thing that is wrong: where, what was given (None: nothing was), which rule it breaks, how to mend it."""

    path: str
    value: object
    rule: str
    remedy: str

    def __str__(self) -> str:
        shown = "" if self.value is None else f" {self.value!r}:"
        if len(shown) > 82:
            shown = shown[:78] + "...:"
        return visible(f"{self.path}:{shown} {self.rule}; {self.remedy}")


class FleetsimError(Exception):
    """Base of all errors that are the user's to mend; carries the process's exit code."""

    exit_code = 1

    def __str__(self) -> str:
        return visible(super().__str__())


class InputError(FleetsimError):
    """Bad input: all problems at once."""

    exit_code = 2

    def __init__(self, problems: Sequence[Problem]) -> None:
        self.problems = tuple(problems)
        super().__init__(self.problems)  # the event library rebuilds an error from its arguments

    def __str__(self) -> str:
        return "\n".join(str(p) for p in self.problems)


P = ParamSpec("P")
T = TypeVar("T")


class Problems(list[Problem]):
    """All that is wrong, gathered over several checks: one that fails must not hide the next.

        >>> wrong = Problems()
        >>> with wrong.check():
        ...     raise InputError([Problem("fleet.instances", 0, "must be at least 1", "give a number at least 1")])
        >>> wrong.made(len, "tp"), len(wrong)
        (2, 1)

    A check that failed has no result: nothing before `stop` may need it.
    """

    @contextmanager
    def check(self) -> Iterator[None]:
        """Around one check, or some that hang together; any other error than bad input is raised at once."""
        try:
            yield
        except InputError as error:
            self += error.problems

    def made(self, make: Callable[P, T], *given: P.args, **named: P.kwargs) -> T:
        """What one check makes."""
        with self.check():
            return make(*given, **named)
        return cast("T", None)

    def stop(self) -> None:
        """Raises InputError with all of them, if there are any."""
        if self:
            raise InputError(self)


class StuckError(FleetsimError):
    """A run in which nothing can ever happen again: says which limits block each other."""

    exit_code = 2

    def __init__(self, what: str, limits: Sequence[Problem]) -> None:
        self.what, self.limits = what, tuple(limits)
        super().__init__(what, self.limits)

    def __str__(self) -> str:
        return "\n".join([visible(self.what), *(str(p) for p in self.limits)])


class OutsideError(FleetsimError):
    """The outside world (a server, a GPU, a file system) did not do its part."""

    exit_code = 3


class UnfinishedError(OutsideError):
    """The outside world ended long work before its time. known: its result so far."""

    def __init__(self, what: str, known: Any = None) -> None:
        self.known = known
        super().__init__(what)


class InfeasibleError(FleetsimError):
    """No fleet in the searched range holds the targets that the user asked for."""

    exit_code = 11


class Interrupted(KeyboardInterrupt):
    """Ctrl-C in the middle of long work. known: its result so far, None if there is none. missing: what is not in it,
    in words."""

    def __init__(self, known: Any = None, missing: str = "") -> None:
        self.known, self.missing = known, missing
        super().__init__(*([missing] if missing else []))
