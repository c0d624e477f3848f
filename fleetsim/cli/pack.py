"""`fleetsim pack`: several jobs on one set of GPUs."""

from __future__ import annotations

from dataclasses import dataclass
from typing import Annotated

from fleetsim.cli.answer import answer
from fleetsim.cli.flags import Printed
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
    answer(ask, asked, output, only=NUMBERS)
