"""`fleetsim size`: the smallest rollout fleet that keeps the trainer busy."""

from __future__ import annotations

from fleetsim.cli.answer import SavedOutput, answer
from fleetsim.records import replace
from fleetsim.size.ask import Size
from fleetsim.size.ask import size as ask


def size(asked: Size, output: SavedOutput) -> None:
    """The smallest rollout fleet that keeps the trainer busy.

    Examples:
    fleetsim size --batch 512 --len 1536
    fleetsim size --batch 256 --len 6000 --gpu H200 --model Qwen/Qwen3-32B
    fleetsim size --batch 512 --len 1536 --instance-tok-s 4000
    fleetsim size --scenario job.yaml --set workload.reward.latency_s=2
    fleetsim size --preset trl-async-grpo --len 3000 --batch 1024
    fleetsim size --batch 512 --len 1536 --html size.html

    Whatever is not given is assumed, as in parentheses below, and the answer lists it.

    A flag wins over a FLEETSIM_* variable, that over the scenario, that over the default.
    """
    brief = not (output.form != "table" or output.explain or output.html)
    answer(ask, replace(asked, for_page=output.html is not None, in_brief=brief), output, ("instances",))
