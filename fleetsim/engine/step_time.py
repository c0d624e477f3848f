"""How long one engine iteration takes: the one seam between hardware and scheduling.

Measured profiles, rooflines and the constant rate all end as the same five numbers and one curve:

    t = f(n) + per_seq_s * b + per_prefill_token_s * p + per_kv_token_s * K + per_attn_pair_s * A

with n = tokens in the iteration (b + p), b = decodes, p = prefill tokens, K = tokens in the KV cache summed over
the decodes before the iteration runs, A = query-key pairs of the prefill chunks (chunk of q tokens after c cached
ones: q*c + q*(q+1)/2). f is piecewise linear and non-decreasing.

Layers that look back a number of tokens only have a K and an A of their own, of the tokens that they see (`window`).

Under speculative decoding a decode puts 1 + k tokens into f, the drafter's seconds are added, and an iteration brings
more than one token of each decode: `speculation` says how many (`engine/speculation.py`).
"""

from __future__ import annotations

import math
from dataclasses import dataclass, field
from functools import lru_cache

import numpy as np
from msgspec import Struct
from numpy.typing import NDArray

from fleetsim.config.iteration import iteration_s
from fleetsim.engine.limits import EngineLimits
from fleetsim.engine.speculation import Speculation
from fleetsim.engine.window import AttentionWindow
from fleetsim.errors import InputError, Problem
from fleetsim.records import replace


@dataclass(frozen=True, slots=True)
class StepTime:
    """Seconds of one engine iteration as a function of what is in it.

    `knots_tokens` and `knots_s` give f: linear between knots, flat before the first, the last slope after the last.
    `kind` says where the numbers come from (measured, roofline, constant, linear); `source` says so in words.
    `speculation`: drafts that an iteration verifies; `seconds` and `each_s` are of iterations without them.
    `prefill`: the engines that compute the prompts of an instance, which else its own do.
    `engines`: engines of an instance that share its decodes evenly and run side by side; `seconds` and `each_s` are of
    one of them, `mixed_s`, `decode_tok_s` and `table` of the instance.
    `window`: layers that do not see the whole context, beside those of `per_kv_token_s` and `per_attn_pair_s`. The
    kernel counts what each request sees; `seconds` and `each_s` take all decodes, and all prompts, as alike.

    Raises InputError for a negative or non-finite coefficient, unsorted knots or a decreasing curve.
    """

    knots_tokens: tuple[float, ...]
    knots_s: tuple[float, ...]
    per_seq_s: float = 0.0
    per_prefill_token_s: float = 0.0
    per_kv_token_s: float = 0.0
    per_attn_pair_s: float = 0.0
    kind: str = "linear"
    source: str = field(default="given as numbers", compare=False)
    speculation: Speculation | None = None
    prefill: PrefillSide | None = None
    engines: int = 1
    window: AttentionWindow | None = None

    def __post_init__(self) -> None:
        problems = [
            Problem(f"step_time.{name}", value, "a finite number >= 0", "give seconds, not negative")
            for name, value in (
                ("per_seq_s", self.per_seq_s),
                ("per_prefill_token_s", self.per_prefill_token_s),
                ("per_kv_token_s", self.per_kv_token_s),
                ("per_attn_pair_s", self.per_attn_pair_s),
                *((f"knots_s[{i}]", s) for i, s in enumerate(self.knots_s)),
            )
            if not (math.isfinite(value) and value >= 0)
        ]
        sorted_up = all(a < b for a, b in zip(self.knots_tokens, self.knots_tokens[1:], strict=False))
        rising = all(a <= b for a, b in zip(self.knots_s, self.knots_s[1:], strict=False))
        if not self.knots_tokens or len(self.knots_tokens) != len(self.knots_s) or not sorted_up or not rising:
            problems.append(
                Problem(
                    "step_time.knots",
                    (self.knots_tokens, self.knots_s),
                    "as many seconds as tokens, tokens increasing, seconds non-decreasing",
                    "sort the knots; an iteration with more tokens is never faster",
                )
            )
        if problems:
            raise InputError(problems)

    def table(self, max_tokens: int) -> NDArray[np.float64]:
        """f(n) in seconds for n = 0..max_tokens, shape (max_tokens + 1,): what the kernel looks up."""
        return _table(self, max_tokens)

    def at_work(self, decodes: NDArray[np.float64]) -> NDArray[np.float64]:
        """Engines that have a decode, where an instance has so many of them."""
        return np.asarray(np.clip(decodes, 1.0, self.engines))

    def curve(self, n: NDArray[np.float64]) -> NDArray[np.float64]:
        """f(n) in seconds for any token counts."""
        x, y = np.asarray(self.knots_tokens, dtype=np.float64), np.asarray(self.knots_s, dtype=np.float64)
        f = np.interp(n, x, y)
        if len(x) > 1:
            slope = (y[-1] - y[-2]) / (x[-1] - x[-2])
            f = np.where(n > x[-1], y[-1] + slope * (n - x[-1]), f)
        return f

    def blocks_of_one(self, blocks: int) -> int:
        """KV blocks that a request may take at most, where all engines of the instance have so many together."""
        each = blocks // self.engines
        return each if self.prefill is None else min(each, self.prefill.limits.kv_blocks)

    @property
    def _per_unit(self) -> tuple[float, float, float, float]:
        return self.per_seq_s, self.per_prefill_token_s, self.per_kv_token_s, self.per_attn_pair_s

    def seconds(
        self, decodes: float, prefill_tokens: float = 0, kv_tokens: float = 0.0, attn_pairs: float = 0.0
    ) -> float:
        """One iteration's seconds: to the last bit what `each_s` says, many times faster than an array of one."""
        held = (float(decodes), float(prefill_tokens), float(kv_tokens), float(attn_pairs))
        found = iteration_s((self.knots_tokens, self.knots_s), self._per_unit, held)
        return found if self.window is None else found + _in_window_s(self.window, *held)

    def each_s(
        self,
        decodes: NDArray[np.float64],
        prefill_tokens: NDArray[np.float64] | float = 0.0,
        kv_tokens: NDArray[np.float64] | float = 0.0,
        attn_pairs: NDArray[np.float64] | float = 0.0,
    ) -> NDArray[np.float64]:
        """Seconds of many iterations, in the shape of `decodes`."""
        found = np.asarray(
            self.curve(decodes + prefill_tokens)
            + self.per_seq_s * decodes
            + self.per_prefill_token_s * prefill_tokens
            + self.per_kv_token_s * kv_tokens
            + self.per_attn_pair_s * attn_pairs
        )
        if self.window is None:
            return found
        held = np.broadcast_arrays(decodes, prefill_tokens, kv_tokens, attn_pairs)
        added = [_in_window_s(self.window, *each) for each in zip(*(a.ravel().tolist() for a in held), strict=True)]
        return np.asarray(found + np.reshape(added, found.shape))

    def mixed_s(
        self, decodes: NDArray[np.float64], context: float, prefills: float, pairs: float
    ) -> NDArray[np.float64]:
        """Seconds in which so many decodes with `context` cached tokens each make a token each.

        That is an iteration, or under speculative decoding a part of one. To each token that a decode makes
        belong `prefills` prompt tokens, each of which looks at `pairs` tokens.
        """
        decodes = decodes / self.at_work(decodes)
        each = self.per_seq_s + self.per_kv_token_s * context
        of_prompt = self.prompt_token_s + self.attention_s(pairs)
        if self.window is not None:
            each += self.window.decode_s(context)
        if self.speculation is None:
            return self.curve(decodes * (1.0 + prefills)) + (each + prefills * of_prompt) * decodes
        at = self.speculation.at(decodes)
        prompts = prefills * at.tokens
        of_decode = each + at.added_kv_token_s * context + prompts * of_prompt
        seconds = self.curve(decodes * (1.0 + at.k + prompts)) + at.added_s + of_decode * decodes
        return np.asarray(seconds / at.tokens)

    def slower(self, factor: float) -> StepTime:
        """The same engine, each iteration `factor` times as long, a drafter's part included."""
        if factor == 1.0:
            return self
        drafts = self.speculation
        return replace(
            self,
            knots_s=tuple(factor * s for s in self.knots_s),
            per_seq_s=factor * self.per_seq_s,
            per_prefill_token_s=factor * self.per_prefill_token_s,
            per_kv_token_s=factor * self.per_kv_token_s,
            per_attn_pair_s=factor * self.per_attn_pair_s,
            speculation=None if drafts is None else drafts.slower(factor),
            prefill=None if self.prefill is None else self.prefill.slower(factor),
            window=None if self.window is None else self.window.slower(factor),
        )

    @property
    def seeing_all(self) -> StepTime:
        """The same engine, whose layers all see the whole context: what has no place for a window takes it for that."""
        if self.window is None:
            return self
        return replace(
            self,
            per_kv_token_s=self.per_kv_token_s + self.window.per_kv_token_s,
            per_attn_pair_s=self.per_attn_pair_s + self.window.per_attn_pair_s,
            window=None,
        )

    def attention_s(self, looks_at: float) -> float:
        """Seconds of a prompt's token in attention, where it looks at so many tokens in the mean."""
        full = self.per_attn_pair_s * looks_at
        return full if self.window is None else full + self.window.prompt_token_s(looks_at)

    @property
    def prompt_token_s(self) -> float:
        """Seconds for each prompt token beside f, those of the drafter's own prompt pass included."""
        return self.per_prefill_token_s + (self.speculation.prompt_token_s if self.speculation is not None else 0.0)

    def decode_tok_s(self, decodes: int, context_tokens: float) -> float:
        """Output tokens per second of an instance that decodes `decodes` sequences of `context_tokens` each."""
        if self.speculation is not None:
            t = float(self.mixed_s(np.array([float(decodes)]), context_tokens, 0.0, 0.0)[0])
            return math.inf if t == 0 else decodes / t
        each = decodes / min(max(1, decodes), self.engines)
        t = self.seconds(each, kv_tokens=each * context_tokens)
        return math.inf if t == 0 else decodes / t


class PrefillSide(Struct, frozen=True):
    """Prefill engines of an instance, all alike.

    engines: how many. step_time, limits: of one of them; its blocks are as large as those where it decodes.
    transfer_s, transfer_token_s: seconds until the cache of a computed prompt is there, and for each of its tokens.
    Transfers do not wait for each other: prompts take far longer to be computed than to be moved. source: in words.

    Raises InputError for no engine, or times that are none.
    """

    engines: int
    step_time: StepTime
    limits: EngineLimits
    transfer_s: float = 0.0
    transfer_token_s: float = 0.0
    source: str = "given as numbers"

    def __post_init__(self) -> None:
        problems = []
        if self.engines < 1:
            problems.append(Problem("prefill.engines", self.engines, "an integer >= 1", "give the prefill engines"))
        for name in ("transfer_s", "transfer_token_s"):
            seconds = getattr(self, name)
            if not (math.isfinite(seconds) and seconds >= 0):
                problems.append(Problem(f"prefill.{name}", seconds, "a finite number >= 0", "give seconds"))
        if problems:
            raise InputError(problems)

    def slower(self, factor: float) -> PrefillSide:
        """The same engines, each iteration `factor` times as long."""
        return replace(self, step_time=self.step_time.slower(factor))

    def table(self) -> NDArray[np.float64]:
        """What `StepTime.table` gives for an iteration of one of the engines."""
        return self.step_time.table(self.limits.max_num_batched_tokens)


@lru_cache(maxsize=16)
def _table(step_time: StepTime, max_tokens: int) -> NDArray[np.float64]:
    tokens = np.arange(max_tokens + 1, dtype=np.float64)
    table = step_time.curve(tokens / step_time.at_work(tokens))
    table.setflags(write=False)  # every run with this engine looks it up
    return table


def _in_window_s(window: AttentionWindow, decodes: float, prompts: float, kv_tokens: float, pairs: float) -> float:
    """Seconds of the layers with a window in an iteration whose decodes, and whose prompts, are alike."""
    of_decodes = decodes * window.decode_s(kv_tokens / decodes) if decodes else 0.0
    return of_decodes + (prompts * window.prompt_token_s(pairs / prompts) if prompts else 0.0)


def LinearStepTime(  # noqa: N802 - reads as a constructor, and is one
    base_s: float, per_seq_s: float = 0.0, per_prefill_token_s: float = 0.0, per_kv_token_s: float = 0.0
) -> StepTime:
    """t = base + per_seq * decodes + per_prefill_token * prefill tokens + per_kv_token * K, all in seconds."""
    return StepTime((0.0,), (base_s,), per_seq_s, per_prefill_token_s, per_kv_token_s)


def constant_rate(tok_s: float) -> StepTime:
    """The runbook's engine: `tok_s` output tokens per second however many sequences it holds, prompts free.

    b decodes take b / tok_s seconds. Source: runbook "rollout fleet sizing", `per_instance_tok_s`.
    Raises InputError unless tok_s is finite and positive.
    """
    if not (math.isfinite(tok_s) and tok_s > 0):
        raise InputError([Problem("instance_tok_s", tok_s, "a finite number > 0", "give output tokens per second")])
    return StepTime((0.0,), (0.0,), per_seq_s=1.0 / tok_s, kind="constant", source=f"constant {tok_s:g} tok/s")
