"""Profiles for tests, made by hand: numbers of the size that an H200 with a 7B model has, not measured ones."""

from __future__ import annotations

import math
from bisect import bisect_right
from collections.abc import Mapping
from pathlib import Path
from typing import Any

from fleetsim.config.engine_profile import Profile, profile_from_mapping, profile_text

KNOTS = (1.0, 64.0, 256.0, 512.0, 1024.0, 4096.0, 16384.0)
KNOTS_S = (5.6e-3, 5.8e-3, 6.6e-3, 7.9e-3, 13.5e-3, 50e-3, 198e-3)
PER_SEQ_S, PER_KV_S, PER_PAIR_S = 4.0e-6, 1.35e-8, 1.0e-10
CONTEXTS, DECODES = (128, 1024, 4096, 16384, 32768), (1, 8, 32, 64, 128, 256, 512, 1024)
KV_TOKENS = 1_600_000


def curve(tokens: float) -> float:
    """f through the knots; flat before the first, the last slope after the last."""
    i = min(max(bisect_right(KNOTS, tokens), 1), len(KNOTS) - 1)
    share = max(0.0, (tokens - KNOTS[i - 1]) / (KNOTS[i] - KNOTS[i - 1]))
    return KNOTS_S[i - 1] + share * (KNOTS_S[i] - KNOTS_S[i - 1])


def seconds(decodes: float, kv_tokens: float = 0.0, prefill_tokens: float = 0.0, attn_pairs: float = 0.0) -> float:
    """What an iteration of the invented engine takes."""
    n = decodes + prefill_tokens
    return curve(n) + PER_SEQ_S * decodes + PER_KV_S * kv_tokens + PER_PAIR_S * attn_pairs


def mapping(**changes: Any) -> dict[str, Any]:
    """The profile as a file has it; `changes` replace whole sections."""

    def estimate(value: float, half: float = 0.015) -> dict[str, float]:
        return {"value": value, "ci_low": value * (1 - half), "ci_high": value * (1 + half)}

    points: list[dict[str, Any]] = []

    def point(kind: str, **load: float) -> None:
        off = 1.0 + 0.03 * math.sin(7.0 * len(points))  # a point is never quite on the curve
        measured = off * seconds(**load)
        points.append({"kind": kind, **load, "seconds": measured, "p90_s": 1.04 * measured, "count": 30})

    for context in CONTEXTS:
        for b in DECODES:
            if b * context <= KV_TOKENS:
                point("decode", decodes=float(b), kv_tokens=float(b * context))
    for p in (128, 512, 2048, 8192, 16384):
        point("prefill", decodes=0.0, prefill_tokens=float(p), attn_pairs=p * (p + 1) / 2)
    for b in (32, 256):
        point("mixed", decodes=float(b), kv_tokens=b * 1024.0, prefill_tokens=2048.0, attn_pairs=2048 * 2049 / 2)
    whole: dict[str, Any] = {
        "schema_version": 1,
        "name": "h200-qwen2.5-7b-tp1-vllm-0.26.0",
        "kind": "measured",
        "coefficients": {
            "knots_tokens": list(KNOTS),
            "knots_s": [estimate(s) for s in KNOTS_S],
            "per_seq_s": estimate(PER_SEQ_S, 0.1),
            "per_kv_token_s": estimate(PER_KV_S, 0.03),
            "per_attn_pair_s": estimate(PER_PAIR_S, 0.2),
        },
        "ranges": {"decodes": [1, 1024], "kv_tokens": [128, 1_500_000], "prefill_tokens": [128, 16384]},
        "limits": {"max_num_seqs": 1024, "max_num_batched_tokens": 16384, "kv_blocks": 100_000, "block_size": 16},
        "error": {"median": 0.017, "p90": 0.026, "worst": 0.028, "what": "makespan of 3 batches kept out of the fit"},
        "fit": {"observations": 5120, "left_out": 41, "median": 0.012, "p90": 0.041},
        "checks": [
            check("rl_on: 64 groups of 8, prompt 512, mean 1536", 49.0, -0.017, 0.011),
            check("rl_off: 64 groups of 8, prompt 512, mean 1536, prefix not cached", 50.4, 0.028, 0.016),
            check("rl_preempt: small KV pool", 61.8, 0.004, 0.021, preemptions=112, predicted_preemptions=108),
        ],
        "points": points,
        "prefix_cache": {"enabled": True, "hit_tokens": 222_208, "expected_tokens": 222_208},
        "sync": {
            "pause_s": 0.012,
            "resume_s": 0.009,
            "load_s": 0.031,
            "load_from_host_s": 0.29,
            "model_bytes": 15_231_233_024,
            "host_bytes_s": 5.2e10,
        },
        "provenance": {
            "source": "vllm",
            "gpu": "NVIDIA H200",
            "gpu_count": 1,
            "driver": "580.95.05",
            "cuda": "13.0",
            "torch": "2.10.0",
            "engine": "vllm",
            "engine_version": "0.26.0",
            "model": "Qwen/Qwen2.5-7B",
            "dtype": "bfloat16",
            "tp": 1,
            "date": "2026-11-20",
            "flags": ["load_format=dummy", "max_model_len=32768"],
            "assumed": [],
            "fleetsim_version": "0.2.0",
        },
        "raw": "h200-7b.raw.jsonl.gz",
    }
    return {k: v for k, v in {**whole, **changes}.items() if v is not None}


def check(name: str, makespan_s: float, error: float, finish: float, **others: int) -> dict[str, Any]:
    """A kept-out batch of a profile file."""
    return {
        "name": name,
        "samples": 512,
        "output_tokens": 701_234,
        "makespan_s": makespan_s,
        "predicted_s": makespan_s * (1 + error),
        "makespan_error": error,
        "finish_error_median": finish,
        "finish_error_p90": 2 * finish,
        **others,
    }


def profile(**changes: Any) -> Profile:
    """The profile; `changes` replace whole sections, None leaves one out."""
    return profile_from_mapping(mapping(**changes))


def provenance(**changes: Any) -> dict[str, Any]:
    """Its provenance with changes."""
    return {**mapping()["provenance"], **changes}


def profile_file(folder: Path, name: str = "h200-7b.profile.json", **changes: Any) -> str:
    """The profile as a sealed file."""
    place = folder / name
    place.write_text(profile_text(profile(**changes)), encoding="utf-8")
    return str(place)


def estimate(**changes: Mapping[str, Any]) -> dict[str, Any]:
    """Sections that make an estimate of it: derived, without ranges, points and checks."""
    return {
        "kind": "derived",
        "ranges": None,
        "points": None,
        "checks": None,
        "fit": None,
        "prefix_cache": None,
        "sync": None,
        "raw": None,
        "error": {"median": 0.07, "worst": 0.21, "what": "roofline"},
        "provenance": {"source": "roofline", "gpu": "H100-SXM", "model": "Qwen/Qwen2.5-7B", "tp": 1},
        **changes,
    }
