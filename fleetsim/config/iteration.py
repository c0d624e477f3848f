"""The seconds of one iteration, in plain Python: whoever asks for a few numbers waits neither for numpy nor for models.

The formula is that of `fleetsim/engine/step_time.py`, which calls this for one iteration, and has it for arrays.
"""

from bisect import bisect_right
from collections.abc import Sequence


def iteration_s(
    curve: tuple[Sequence[float], Sequence[float]],
    per: tuple[float, float, float, float],
    held: tuple[float, float, float, float],
) -> float:
    """f(decodes + prefill tokens) + seconds per unit x units.

    curve: tokens and seconds of the knots of f. held: decodes, prefill tokens, KV tokens, attention pairs; per: seconds
    of one more of each.
    """
    decodes, prefill_tokens, kv_tokens, attn_pairs = held
    per_seq_s, per_prefill_token_s, per_kv_token_s, per_attn_pair_s = per
    return (
        curve_s(*curve, decodes + prefill_tokens)
        + per_seq_s * decodes
        + per_prefill_token_s * prefill_tokens
        + per_kv_token_s * kv_tokens
        + per_attn_pair_s * attn_pairs
    )


def curve_s(x: Sequence[float], y: Sequence[float], n: float) -> float:
    """f(n): linear between the knots (x tokens, y seconds), flat before the first, the last slope beyond the last."""
    if n < x[0] or len(x) == 1:
        return y[0]
    i = min(bisect_right(x, n) - 1, len(x) - 2)
    slope = (y[i + 1] - y[i]) / (x[i + 1] - x[i])
    return slope * (n - x[i]) + y[i] if n <= x[-1] else y[-1] + slope * (n - x[-1])
