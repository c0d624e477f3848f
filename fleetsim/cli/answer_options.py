"""What a command does with its answer, as options. Python has methods of the result for it."""

from __future__ import annotations

from typing import Annotated

from fleetsim.dataclass import dataclass
from fleetsim.job.question import Option
from fleetsim.job.settings import RUN


@dataclass(frozen=True, kw_only=True)
class Printed:
    """What a command does with its answer. Python has methods of the result for it."""

    json_: Annotated[bool, Option("One JSON document.", RUN)] = False
    html: Annotated[str | None, Option("Write a page with charts there; it opens offline.", RUN, metavar="FILE")] = None
    fail_if: Annotated[
        list[str] | None, Option('Exit 10 if true: "step_s>30". Repeatable.', RUN, metavar="CONDITION")
    ] = None


@dataclass(frozen=True, kw_only=True)
class Output(Printed):
    """What a command does with an answer that rests on an engine's speed."""

    strict: Annotated[bool, Option("Exit 12 outside the measured range.", RUN)] = False


@dataclass(frozen=True, kw_only=True)
class BriefOutput(Output):
    """What a command does with an answer that is told in brief."""

    explain: Annotated[bool, Option("Print the rest too: why, what else was tried, what was assumed.", RUN)] = False
