"""What engines lose inside a training job: the time of an iteration there over that of the engine alone.

A job's client, its tokenizers and the host's other work slow an engine down (`engine.slowdown`). `RUNS` holds what
published runs came to: the multiplier of all iterations at which a baseline arm shows its published figure, with all
else as published. `fleetsim validate` fits it on that arm alone, and a test holds these figures against its fits. What
the engine's own model is off by stands in them as well.

The log-probs of generated tokens, which the frameworks of all these runs ask for, come on top, for they cost each token
the same. The code of vLLM 0.32 takes 8 to 13 us a token for them in the engine's process, and 20 to 36 beside it (its
slicing, encoding, decoding and keeping, timed without a model); vllm-project/vllm pull request 57442 measured 20 us,
NovaSky-AI/SkyRL issue 857 5 to 10 % of the generation. What is done beside the engine's process counts as slowdown.
With 20 us arms come nearer still, but D01's engine would be faster in its job than alone by 27 %.
"""

from __future__ import annotations

import math
from collections.abc import Iterator, Mapping
from statistics import median

from msgspec import Struct


class InAJob(Struct, frozen=True):
    """Published runs of one framework and release. ratios: by case of scenarios/published. source: who published
    them."""

    framework: str
    release: str
    ratios: Mapping[str, float]
    source: str

    @property
    def central(self) -> float:
        """The median of the runs."""
        return median(self.ratios.values())

    @property
    def low(self) -> float:
        """The least that a run lost."""
        return min(self.ratios.values())

    @property
    def high(self) -> float:
        """The most that a run lost."""
        return max(self.ratios.values())


RUNS: tuple[InAJob, ...] = (
    InAJob("areal", "2025, SGLang 0.4.6", {"C06": 1.18, "C07": 1.79, "C07b": 1.17}, "inclusionAI/AReaL, paper"),
    InAJob("nemo-rl", "v0.3", {"D09": 1.35, "D09b": 1.3, "D09c": 1.4}, "NVIDIA-NeMo/RL, blog of v0.3"),
    InAJob("skyrl", "Marin's fork of 2026", {"C11": 1.11}, "marin-community/marin issue 8936"),
    InAJob("trl", "AsyncGRPO of 2026", {"C01": 1.65}, "huggingface/blog, asyncgrpo-lora-hfjobs.md"),
    InAJob(
        "verl", "fully_async of 2026, vLLM 0.20", {"D01": 0.87, "D03": 0.95, "D04": 1.06}, "aishukamal/rl-time-slicing"
    ),
    InAJob("verl", "V1 of 2026", {"C04": 1.35, "C04b": 1.22}, "verl-project/verl, v1_async_trainer.md"),
)
# Seconds of the log-probs of a generated token.
LOG_PROBS_S = 10e-6
# A framework's few runs are drawn to those of all, as if so many at the median of all stood beside them. Each run
# predicted by the others: with none beside them four of five lie within 33 % of it, with two 32 %, with all alike 36 %.
_BESIDE = 2
# ... and of that, the spread that the engines' own errors do not account for (13 %, docs/accuracy.md: in logarithms
# 0.276 and 0.304 are the roots of 0.243^2 + 0.13^2 and 0.275^2 + 0.13^2): of a known framework, and of any.
_KNOWN, _ANY = 0.243, 0.275


def slowdown_of(framework: str | None, without: str | None = None) -> float:
    """The published centre: of the framework where runs of it are known, else of all. Two digits after the point.

    without: a case whose run does not count, so that it can be predicted.
    """
    everywhere = math.log(median(_ratios(None, without)))
    own = list(_ratios(framework, without))
    if framework is None or not own:
        return round(math.exp(everywhere), 2)
    share = len(own) / (len(own) + _BESIDE)
    return round(math.exp(share * math.log(median(own)) + (1 - share) * everywhere), 2)


def off_by(framework: str | None) -> tuple[float, float]:
    """The factors between which eight of ten runs lie about their centre."""
    reach = math.exp(_KNOWN if is_known(framework) else _ANY)
    return 1 / reach, reach


def is_known(framework: str | None) -> bool:
    """Whether runs of the framework were published."""
    return any(True for _ in _ratios(framework)) if framework is not None else False


def _ratios(framework: str | None = None, without: str | None = None) -> Iterator[float]:
    """Of one framework, or of all."""
    for row in RUNS:
        if framework in (None, row.framework):
            yield from (ratio for case, ratio in row.ratios.items() if case != without)
