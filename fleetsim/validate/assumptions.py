"""What no source publishes, assumed once for every case and never tuned for one of them."""

from __future__ import annotations

import math

from fleetsim import units
from fleetsim.config.workload import Lognormal
from fleetsim.engine.slowdown import slowdown_of
from fleetsim.errors import InputError, Problem
from fleetsim.workload.lengths import limited_mean

# Spread of the log of the output length. Two GSM8K runs of marin-community/marin issue 8936 publish mean and truncated
# share at caps of 2048 and 4096: a capped lognormal through both has sigma 0.875 and 0.905. p99 / median = 10
# (arXiv 2510.12633) is 0.99, longest / median = 25 to 32 of 1,024 samples (RollPacker, NSDI 2026) 1.04 to 1.12.
LENGTH_SIGMA = 0.9
# Siblings of a group resemble each other in length (RollPacker section 3, Seer), but nobody publishes a coefficient.
# Public logs say how much (aishukamal/rl-time-slicing at 6a343557756d): the mean of a step varies between steps with
# 3 to 7 times the variance of as many independent responses. By that 0.25 to 0.4 of the variance of the logarithm is
# common to 16 responses of Qwen2.5-Math-7B (verl-benchmarks, three runs in mode 1), and 0.45 to 0.6 to 8 of
# DeepSeek-R1-Distill-Qwen-1.5B (async-longcot, three runs); drift of the policy is in it. With 0.4 for all, the
# slowdowns fitted anew, C06 is predicted better and C02 and C09 worse: benchmarks/siblings.py, docs/not_modelled.md.
GROUP_CORRELATION = 0.0
# No mean makes a capped lognormal longer than this share of its cap with fewer than three quarters of it at the cap.
_LONGEST_SHARE = 0.97

# All figures are means of runs under different draws: of at most so many, and of fewer, two at least, where the
# standard error of the seconds of a step is below this share of them.
REPLICATIONS, PRECISE = 5, 0.005
# Without CUDA graphs the host launches every kernel of every layer. vllm-project/vllm-omni issue 7960: 22 to 23 ms a
# token without and 13 ms with graphs for the 28 layers of Qwen2.5-7B's shape.
EAGER_S_PER_LAYER = 0.34e-3

STATED = (
    f"Output lengths are lognormal with sigma {LENGTH_SIGMA:g} of the log, cut at the published cap; the mean is the "
    "published one (after the cap) or, where none is published, the fitted scalar. A spread that the source itself "
    "publishes is taken instead (C12, D04). Siblings of a group are independent.",
    "Iteration times are the roofline of the GPU and model named (of the source's other experiments, where it names "
    "no GPU), times the fitted decode slowdown. Where another scalar is fitted, they are multiplied by what published "
    f"runs of the framework lost inside a job (the table below); for a release far from theirs (verl of "
    f"2025) by what runs of all frameworks lost, {slowdown_of(None):g}.",
    "An engine that ran without CUDA graphs takes 0.34 ms per layer and iteration longer (vllm-project/vllm-omni issue "
    "7960: 22 to 23 ms a token against 13 for 28 layers).",
    "Seconds of the trainer's own computation come, in this order, from the arm's own published phases; from published "
    "training FLOP/s of the same paper (AReaL); from another publication of the same framework and model (NeMo-RL "
    "v0.3's table, verl's 28 % of the peak in C02); for mixtures with 3 billion active parameters from NeMo-RL v0.3's "
    "677 GPU-microseconds a token; else from the trainer's model. A trainer on other GPUs of the same kind takes time "
    "in inverse proportion to their number; in D10 and D10b, and blind, it is modelled.",
    "Weight syncs take the seconds published; where none are, those that the framework's way of moving weights comes "
    "to. Other hand-overs take the seconds published, and none where none are. What verl of 2025 counts as generation "
    "of a colocated step is 22.5 % hand-over (its one_step_off page: 247 of 321 s, 162 of 207 s).",
    f"Every figure is the mean of {REPLICATIONS} simulated runs under different draws, or of fewer, two at least, "
    f"where these leave the seconds of a step uncertain by less than {units.share(PRECISE)}.",
    "No instance fails or is slower than the others, no reward takes time, and nothing else uses the fleet.",
)


def length_law(mean: float, cap: float, sigma: float | None = None) -> Lognormal:
    """The length law whose mean after the cap is `mean` tokens; sigma None: the assumed spread.

    Raises InputError if the cap allows no such mean.
    """
    if not 0 < mean <= _LONGEST_SHARE * cap:
        rule = f"between 0 and {units.share(_LONGEST_SHARE, 0)} of the cap of {cap:g} tokens"
        raise InputError([Problem("lengths.mean", mean, rule, "lower the mean or raise the cap")])
    cv = math.sqrt(math.expm1((LENGTH_SIGMA if sigma is None else sigma) ** 2))
    low, high = mean, 1000.0 * cap
    for _ in range(80):
        middle = math.sqrt(low * high)
        if limited_mean(Lognormal(mean=middle, cv=cv, max=cap), cap) < mean:
            low = middle
        else:
            high = middle
    return Lognormal(mean=round(high, 3), cv=cv, max=cap)
