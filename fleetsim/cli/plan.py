"""`fleetsim plan`: which fleet, engines and split for a budget."""

from __future__ import annotations

from fleetsim.cli.answer import SavedOutput, answer
from fleetsim.plan.ask import COUNTS, Plan, ask


def plan(asked: Plan, output: SavedOutput) -> None:
    """Which GPUs, engines and split for a budget: every choice together, the few plans that are worth a look.

    Examples:
    fleetsim plan --gpus 64 --model Qwen/Qwen3-32B --batch 512 --len 4000
    fleetsim plan --max-price-per-hour 200 --gpu-types H100,H200 --model Qwen/Qwen3-30B-A3B
    fleetsim plan --step-s 60 --model Qwen/Qwen3-8B --batch 512 --len 4000 --save plan.yaml
    fleetsim plan --gpus 64 --scenario job.yaml --allow 'fp8,staleness<=2,speculation'

    Chosen are GPU type, GPUs of an engine, precision, drafts, staleness and sync, shares of the GPUs, and limits.

    What changes training needs --allow; the answer says what each such thing would buy.
    """
    answer(ask, asked, output, COUNTS)
