"""What is asked of a server, in which order: sweeps that fits see, batches that they do not."""

from __future__ import annotations

import heapq
from dataclasses import field
from typing import Any

import numpy as np

from fleetsim.calibrate.batches import CV, PROMPT, G, heavy_tailed
from fleetsim.calibrate.loads import Limits
from fleetsim.calibrate.server.play import Ask, Play
from fleetsim.dataclass import dataclass

CACHE_SHARE = 0.85  # of the KV cache that a sweep may fill: nothing is to be preempted in it
PASSES = 3


@dataclass(frozen=True, slots=True)
class Item:
    """One load: phase and label as the records have them, and what to play (repeats times).

    computed: prompt tokens that the server must compute for it, 0 where they lie in its prefix cache; what an item
    costs is judged from it.
    """

    phase: str
    label: dict[str, Any]
    plays: tuple[Play, ...]
    computed: int = 0


@dataclass(slots=True)
class Keys:
    """Prompt keys that no other load has."""

    last: int = 1_000_000

    def fresh(self) -> int:
        """A key that was never given out."""
        self.last += 1
        return self.last


@dataclass(frozen=True, slots=True)
class LoadSweep:
    """The loads of a calibration: decode in several passes, the rest between, so that a drift averages out."""

    warm_up: tuple[Play, ...]
    prefill: tuple[Item, ...]
    decode: tuple[tuple[Item, ...], ...]
    mixed: tuple[Item, ...]
    keys: Keys = field(default_factory=Keys)


def sweep(limits: Limits, *, quick: bool, seed: int, at_once: int) -> LoadSweep:
    """The loads for a server of these limits. at_once: streams that the client can hold open."""
    keys = Keys()
    slots = min(limits.max_num_seqs, at_once)
    random = np.random.default_rng([seed, 1])
    return LoadSweep(
        warm_up=_warm_up(limits, slots, keys),
        prefill=tuple(_prefill(limits, slots, quick, keys)),
        decode=_decode(limits, slots, quick, random),
        mixed=tuple(_mixed(limits, slots, quick, keys)),
        keys=keys,
    )


def _warm_up(limits: Limits, slots: int, keys: Keys) -> tuple[Play, ...]:
    """Compiles kernels, makes connections, warms caches. Nothing of it is recorded."""
    long = min(limits.max_model_len - 8, 2 * limits.max_num_batched_tokens, 8192)
    few, many = min(4, slots), min(64, slots)
    return (
        Play(tuple(Ask(keys.fresh(), 64, 8) for _ in range(few))),
        Play(tuple(Ask(keys.fresh(), min(128, limits.max_model_len // 2), 16) for _ in range(many))),
        Play((Ask(keys.fresh(), max(1, long), 2),)),
    )


def _prefill(limits: Limits, slots: int, quick: bool, keys: Keys) -> list[Item]:
    longest = limits.max_model_len - 2
    lengths = (128, 512, 2048, 8192) if quick else (64, 128, 256, 512, 1024, 2048, 4096, 8192, 16384)
    several = ((4, 256), (8, 512)) if quick else ((4, 128), (16, 128), (4, 512), (16, 512), (4, 2048), (8, 1024))
    points = [(1, min(p, longest)) for p in lengths] + [(n, min(p, longest)) for n, p in several]
    found = []
    for n, p in dict.fromkeys(points):
        if n <= slots and n * p <= CACHE_SHARE * limits.kv_tokens and p >= 16:
            repeats = 3 if quick else 5
            plays = tuple(Play(tuple(Ask(keys.fresh(), p, 1) for _ in range(n))) for _ in range(repeats))
            found.append(Item("prefill", {"N": n, "P": p, "client": True}, plays, computed=n * p * repeats))
    return found


def _decode(limits: Limits, slots: int, quick: bool, random: np.random.Generator) -> tuple[tuple[Item, ...], ...]:
    """Batch x context, each in every pass. Prompts have the keys 0, 1, ...: computed once, then found in the cache."""
    batches = (
        [1, 4, 16, 64, 128, 256, 512, 1024]
        if quick
        else [1, 2, 4, 8, 16, 32, 64, 96, 128, 192, 256, 384, 512, 768, 1024]
    )
    contexts = [128, 2048] if quick else [128, 1024, 4096, 16384]
    window = 28 if quick else 52
    points = []
    for c in contexts:
        for b in sorted({b for b in batches if b <= slots} | {slots}):
            most = window + 64 + b // 4 + -(-b * c // limits.max_num_batched_tokens)
            most = min(most, 512)
            room = int(CACHE_SHARE * limits.kv_tokens / b) - most
            fits = min(c, limits.max_model_len - most - 2, room)
            if fits >= min(c, 16) and (fits >= 0.4 * c or c == contexts[0]):
                points.append((b, fits, most))
    passes = []
    for rep in range(PASSES):
        items = [
            Item(
                "decode",
                {"B": b, "C": c, "rep": rep, "client": True},
                (Play(tuple(Ask(i, c, most) for i in range(b)), window=window),),
                computed=b * c,
            )
            for b, c, most in dict.fromkeys(points)
        ]
        passes.append(tuple(items[i] for i in random.permutation(len(items))))
    return tuple(passes)


def _mixed(limits: Limits, slots: int, quick: bool, keys: Keys) -> list[Item]:
    batches = [b for b in ((16, 128) if quick else (8, 32, 128, 256)) if b < slots] or [max(1, slots // 2)]
    lengths = (256, 1024) if quick else (128, 512, 2048, 8192)
    several, gap = (3, 6) if quick else (5, 8)
    found = []
    for b in batches:
        context = min(128, limits.max_model_len // 8)
        for p in dict.fromkeys(min(p, limits.max_model_len - 2) for p in lengths):
            most = min(several * (gap + 4 + -(-p // max(1, limits.max_num_batched_tokens - b))) + 96 + b // 4, 1024)
            most = min(most, limits.max_model_len - context - 1)
            if b * (context + most) + several * p <= CACHE_SHARE * limits.kv_tokens:
                base = tuple(Ask(i, context, most) for i in range(b))
                then = tuple(Ask(keys.fresh(), p, 1) for _ in range(several))
                label = {"B": b, "C": context, "P": p, "client": True}
                found.append(Item("mixed", label, (Play(base, then=then, gap=gap),), computed=several * p))
    return found


@dataclass(frozen=True, slots=True)
class BatchPlan:
    """A kept-out batch before time bounds its lengths. lengths: planned output tokens per sample, siblings in a row."""

    phase: str
    label: dict[str, Any]
    prompt_tokens: int
    cap: int
    lengths: tuple[float, ...]
    n: int

    def scaled(self, scale: float) -> list[int]:
        """Output tokens per sample at this scale of the lengths."""
        return [int(min(max(1.0, round(x * scale)), max(1, round(self.cap * scale)))) for x in self.lengths]

    def play(self, scale: float, keys: Keys) -> Play:
        """The batch at this scale, all of it sent at once."""
        wants = self.scaled(scale)
        prompts = [keys.fresh() for _ in range(len(wants) // G)]
        step = self.n
        return Play(
            tuple(Ask(prompts[i // G], self.prompt_tokens, wants[i], n=step) for i in range(0, len(wants), step))
        )


def batches(limits: Limits, *, quick: bool, seed: int, at_once: int, cached: bool) -> tuple[BatchPlan, BatchPlan]:
    """RL-like batches: groups of 8, lognormal lengths. One with a request per sample, one with n = 8 per request.

    n samples in one request share max_tokens, so there a group's siblings are equally long. On a small server they
    shrink: prompts to a quarter of its longest context, samples to twice what runs at once.
    """
    longest = limits.max_model_len
    groups = max(2, min(32 if quick else 64, 2 * limits.max_num_seqs // G, at_once // G))
    prompt = max(8, min(PROMPT, longest // 4))
    cap = min(2048 if quick else 8192, longest - prompt - 1)
    mean = min(384 if quick else 1536, max(8, cap // 5))
    random = np.random.default_rng([seed, 2])
    found = []
    for phase, n in (("rl_requests", 1), ("rl_n", G)):
        lengths = tuple(float(x) for x in np.repeat(heavy_tailed(groups * G // n, mean, random), n))
        label = {
            "groups": groups,
            "G": G,
            "P": prompt,
            "mean": mean,
            "cap": cap,
            "cv": CV,
            "cached": cached,
            "client": True,
        }
        if n > 1:
            label["n"] = n
        found.append(BatchPlan(phase, label, prompt, cap, lengths, n))
    return found[0], found[1]


def batch_seconds(lengths: list[int], slots: int, decode_s: dict[int, float], prefill_s: float) -> float:
    """A guess at a batch's seconds: its samples decode in admission order, `slots` at a time.

    decode_s: measured seconds of an iteration by batch size; without any, 12 ms. prefill_s: its prompts alone.
    """
    if not lengths:
        return 0.0
    free, starts, ends = [0] * min(slots, len(lengths)), [], []
    for length in lengths:
        begin = heapq.heappop(free) if free else 0
        starts.append(begin)
        ends.append(begin + length)
        heapq.heappush(free, begin + length)
    change = np.zeros(max(ends) + 1)
    np.add.at(change, starts, 1.0)
    np.add.at(change, ends, -1.0)
    running = np.cumsum(change)[:-1]
    sizes = sorted(decode_s) or [1]
    return float(np.interp(running, sizes, [decode_s.get(b, 0.012) for b in sizes]).sum()) + prefill_s
