"""`fleetsim split`: one set of GPUs, shared by rollout and trainer or split between them."""

from __future__ import annotations

from fleetsim.cli.answer import SavedOutput, answer
from fleetsim.split.ask import Split
from fleetsim.split.ask import split as ask


def split(asked: Split, output: SavedOutput) -> None:
    """Share these GPUs between rollout and trainer, or split them, and how: every way simulated and ranked.

    Examples:
    fleetsim split --gpus 16 --batch 512 --len 1536
    fleetsim split --gpus 64 --model Qwen/Qwen3-32B --tp 4 --trainer-step-s 90 --trainer-gpus 32
    fleetsim split --gpus 32 --trainer-point 8:41 --trainer-point 16:23 --by cost_per_step
    fleetsim split --gpus 32 --preset verl-fully-async --len 3000
    fleetsim split --gpus 16 --scenario job.yaml --html split.html

    The trainer's seconds are those on --trainer-gpus; on other counts they follow a law, or measured points.

    Whatever is not given is assumed, as in parentheses below, and the answer lists it.
    """
    answer(ask, asked, output, ("rollout_gpus", "trainer_gpus"))
