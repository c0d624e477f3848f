"""`fleetsim pack`: several jobs on one set of GPUs."""

from __future__ import annotations

from dataclasses import dataclass
from typing import Annotated

from fleetsim.cli.flags import Printed
from fleetsim.errors import InfeasibleError
from fleetsim.job.settings import RUN, Option
from fleetsim.pack.ask import NUMBERS, Pack
from fleetsim.pack.ask import pack as ask


@dataclass(frozen=True, kw_only=True)
class Packed(Printed):
    """What becomes of the answer."""

    explain: Annotated[bool, Option("Print the rest too: all ways, the rule, what is not simulated.", RUN)] = False


def pack(asked: Pack, output: Packed) -> None:
    """Which way should several jobs share one set of GPUs: apart, by phase, or in turn?

    Examples:
    fleetsim pack verl-sync verl-fully-async --gpus 32
    fleetsim pack a.yaml b.yaml --gpus 64 --fair --protect a:10

    Apart each job is searched as by `split`; by phase and in turn jobs run batch by batch on shared GPUs.
    """
    from fleetsim.cli.output import checked, show_result, stop_at, write_page
    from fleetsim.cli.progress import progress

    def ready() -> Pack:
        made = asked.ready()
        made.protected()
        return made

    question, gate, page = checked(ready, output, NUMBERS)
    with progress("loading the simulator", searches=True) as watch:
        result = ask(question, watch)
    show_result(result, output.form, output.explain)
    if page is not None:
        write_page(page, result.page())
    if result.best is None:
        raise InfeasibleError("no way keeps what --protect asks for; the nearest is printed above")
    stop_at(gate.tripped(result.numbers()))
