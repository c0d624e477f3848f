"""How many tokens an iteration with drafts brings: published curves, a law, and what age does to a drafter.

L(k) is the mean acceptance length with k drafted tokens, the certain one included. The laws and curves give it for
every k: a share by position a_j adds up to L(k) = 1 + a_1 + ... + a_k; one share p of each token whose predecessors
were accepted is a_j = p^j. A drafter that lost the share d of its acceptance in each of v weight versions has
a_j (1 - d)^(j v): each of the j tokens must be accepted.
"""

from __future__ import annotations

from collections.abc import Sequence
from itertools import pairwise
from typing import NamedTuple

from fleetsim.errors import InputError, Problem

_SPEED_BENCH = "SemiAnalysisAI/InferenceX at 843c625, golden_al_distribution/{}: SPEED-Bench coding, thinking on"


class Curve(NamedTuple):
    """Measured acceptance lengths for k = 1, 2, ..., how it drafts, and who published them."""

    lengths: tuple[float, ...]
    method: str
    source: str


def _speed_bench(method: str, file: str, *lengths: float) -> Curve:
    return Curve(lengths, method, _SPEED_BENCH.format(file))


CURVES: dict[str, Curve] = {
    "skyrl-qwen3.5-9b-mtp": Curve(
        (1.886, 2.656, 3.319),
        "mtp",
        "NovaSky-AI/SkyRL at 0071a0f, docs/content/docs/examples/spec_decode.mdx: DAPO",
    ),
    "qwen3.5-397b-mtp": _speed_bench("mtp", "qwen3.5_mtp.yaml", 1.93, 2.73, 3.39, 3.97, 4.41, 4.80, 5.04, 5.21),
    "glm-5.2-mtp": _speed_bench("mtp", "glm5.2_mtp.yaml", 1.84, 2.50, 2.99, 3.33, 3.61, 3.78, 3.91, 4.06),
    "deepseek-v4-mtp": _speed_bench("mtp", "dsv4_mtp.yaml", 1.79, 2.27, 2.49, 2.54, 2.55, 2.55, 2.54, 2.58),
    "kimi-k2.5-eagle3": _speed_bench("eagle3", "kimik2.5_eagle3.yaml", 1.83, 2.43, 2.88, 3.24, 3.46, 3.62, 3.71, 3.77),
    "minimax-m3-eagle3": _speed_bench(
        "eagle3", "minimaxm3_eagle3.yaml", 1.78, 2.38, 2.83, 3.11, 3.35, 3.45, 3.53, 3.74
    ),
}

# What stands in where a scenario says nothing: a published curve of the method, or a law of one share.
# n-gram, suffix and draft model: nothing that was published for RL rollouts gives positions. These are guesses, of text
# that hardly repeats its prompt, and the answer calls them assumed.
STANDS_IN: dict[str, str | float] = {
    "mtp": "glm-5.2-mtp",
    "eagle3": "kimi-k2.5-eagle3",
    "draft_model": 0.7,
    "ngram": 0.25,
    "suffix": 0.4,
}


def lengths_of_curve(name: str, most: int) -> tuple[float, ...]:
    """L(0) to L(most) of a published curve. Raises InputError for an unknown name or a longer draft than measured."""
    if name not in CURVES:
        raise InputError([Problem("speculation.curve", name, f"one of {', '.join(CURVES)}", "name a curve")])
    measured = CURVES[name].lengths
    if most > len(measured):
        rule = f"at most {len(measured)}: curve {name} was measured no further"
        raise InputError([Problem("speculation.num_speculative_tokens", most, rule, "draft fewer, or give acceptance")])
    return (1.0, *measured[:most])


def lengths_of_shares(shares: Sequence[float], most: int) -> tuple[float, ...]:
    """L(0) to L(most) of accepted shares by position; beyond the last they go on falling as they did at the end."""
    found = list(shares)
    before = found[-2] if len(found) > 1 else 1.0
    ratio = found[-1] / before if before > 0 else 0.0
    while len(found) < most:
        found.append(found[-1] * ratio)
    return tuple(1.0 + sum(found[:k]) for k in range(most + 1))


def lengths_of_law(share: float, most: int) -> tuple[float, ...]:
    """L(0) to L(most) where each token is accepted with one share if those before it were."""
    return lengths_of_shares([share ** (j + 1) for j in range(most)] or [share], most)


def share_of_length(length: float, k: int) -> float:
    """The share of `lengths_of_law` with which k drafts bring `length` tokens, by bisection."""
    low, high = 0.0, 1.0
    for _ in range(60):
        middle = (low + high) / 2.0
        low, high = (middle, high) if lengths_of_law(middle, k)[-1] < length else (low, middle)
    return (low + high) / 2.0


# A drafter is old when its first token is accepted no more often than this; at most so many ages are told apart.
_NOTHING_LEFT, _MOST_AGES = 1e-3, 1024


def aged(lengths: tuple[float, ...], decay: float, renewed_every: int | None) -> tuple[tuple[float, ...], ...]:
    """L(k) by the drafter's age in versions, from new to the age at which it is renewed, or nothing is left of it."""
    if decay == 0.0:
        return (lengths,)
    gains = [b - a for a, b in pairwise(lengths)]
    rows: list[tuple[float, ...]] = []
    while len(rows) < min(renewed_every or _MOST_AGES, _MOST_AGES):
        kept = (1.0 - decay) ** len(rows)
        rows.append(lengths_of(gains, kept))
        if renewed_every is None and gains and gains[0] * kept < _NOTHING_LEFT:
            break
    return tuple(rows)


def lengths_of(gains: Sequence[float], kept: float) -> tuple[float, ...]:
    """L(k) where the drafter keeps a part of its acceptance. A measured curve may fall a little: L stays 1 at least."""
    kept_gains = [g * kept ** (j + 1) for j, g in enumerate(gains)]
    return tuple(max(1.0, 1.0 + sum(kept_gains[:k])) for k in range(len(gains) + 1))
