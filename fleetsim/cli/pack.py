"""`fleetsim pack`: several jobs on one set of GPUs."""

from __future__ import annotations

from fleetsim.cli.answer import answer
from fleetsim.cli.flags import Printed
from fleetsim.pack.ask import NUMBERS, Pack
from fleetsim.pack.ask import pack as ask


def pack(asked: Pack, output: Printed) -> None:
    """Which way should several jobs share one set of GPUs: apart, by phase, in turn, or together?

    Examples:
    fleetsim pack verl-sync verl-fully-async --gpus 32
    fleetsim pack a.yaml b.yaml --gpus 64 --fair --protect a:10

    Apart each job is searched as by `split`; by phase and in turn jobs run batch by batch on shared GPUs.
    """
    answer(ask, asked, output, only=NUMBERS)
