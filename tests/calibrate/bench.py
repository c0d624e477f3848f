"""A benchmark client against an engine with known iteration times: results as `vllm bench` and guidellm write them.

Requests wait in line; at most `concurrency` are in the engine, the next one starts the moment that one ends. Iteration
by iteration, as the scheduler of fake_scheduler.py takes them. No KV limit, no preemption.
"""

from __future__ import annotations

import json
import statistics
from collections.abc import Sequence
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any

import numpy as np

from fleetsim.calibrate.derivation import predicted_s
from fleetsim.calibrate.sources.source import Source
from fleetsim.engine import EngineLimits, StepTime
from tests.calibrate.fake_scheduler import Job, Scheduler

# An H200 with a 7B model, about: not measured, chosen.
TRUTH = StepTime(
    (1.0, 128.0, 512.0, 8192.0), (5.5e-3, 6.0e-3, 11.5e-3, 170e-3), 5e-6, 0.0, 1.4e-8, 1.2e-10, source="the truth"
)


@dataclass
class Request:
    """One request as its client saw it, seconds from the start of the benchmark."""

    prompt: int
    output: int
    start: float = 0.0
    tokens: list[float] = field(default_factory=list)


def play(truth: StepTime, concurrency: int, lengths: Sequence[tuple[int, int]], budget: int = 8192) -> list[Request]:
    """Runs requests of (prompt, output) tokens; returns them with the times of their tokens."""
    engine = Scheduler(truth, EngineLimits(concurrency, budget, 10**6), caching=False)
    every, now = [Request(p, o) for p, o in lengths], 0.0
    waiting, running = list(every), dict[int, Request]()
    while waiting or running:
        while waiting and len(running) < concurrency:
            waiting[0].start = now
            engine.waiting.append(job := Job(None, waiting[0].prompt, waiting[0].output))
            running[id(job)] = waiting.pop(0)
        seconds, out = engine.step()
        now += seconds
        for job in out:
            running[id(job)].tokens.append(now)
            if job.gone:
                del running[id(job)]
    return every


def write(path: Path, document: Any) -> str:
    """The path of a file with this text, or with this document as JSON."""
    path.write_text(document if isinstance(document, str) else json.dumps(document), encoding="utf-8")
    return str(path)


def off(source: Source) -> np.ndarray:
    """How far the truth lies from each observation: what the reading itself costs."""
    return predicted_s(TRUTH, 0.0, source.observations) / source.observations.seconds - 1.0


def _gaps(r: Request) -> list[float]:
    return [b - a for a, b in zip(r.tokens, r.tokens[1:], strict=False)]


def serve_result(requests: list[Request], concurrency: int | None, *, detailed: bool = False) -> dict[str, Any]:
    """What `vllm bench serve --save-result [--save-detailed]` writes."""
    ttfts = [r.tokens[0] - r.start for r in requests]
    gaps = [_gaps(r) for r in requests]
    tpots = [statistics.fmean(g) for g in gaps if g]
    flat = [g for each in gaps for g in each]
    duration = max(r.tokens[-1] for r in requests)
    result: dict[str, Any] = {
        "date": "20261120-101500",
        "endpoint_type": "openai",
        "backend": "openai",
        "label": None,
        "model_id": "Qwen/Qwen2.5-7B",
        "tokenizer_id": "Qwen/Qwen2.5-7B",
        "num_prompts": len(requests),
        "request_rate": "inf",
        "burstiness": 1.0,
        "max_concurrency": concurrency,
        "duration": duration,
        "completed": len(requests),
        "failed": 0,
        "total_input_tokens": sum(r.prompt for r in requests),
        "total_output_tokens": sum(r.output for r in requests),
        "request_throughput": len(requests) / duration,
        "output_throughput": sum(r.output for r in requests) / duration,
        "mean_ttft_ms": 1e3 * statistics.fmean(ttfts),
        "median_ttft_ms": 1e3 * statistics.median(ttfts),
        "mean_tpot_ms": 1e3 * statistics.fmean(tpots) if tpots else 0.0,
        "mean_itl_ms": 1e3 * statistics.fmean(flat) if flat else 0.0,
    }
    if detailed:
        result |= {
            "input_lens": [r.prompt for r in requests],
            "output_lens": [r.output for r in requests],
            "ttfts": ttfts,
            "itls": gaps,
            "start_times": [1e5 + r.start for r in requests],
            "generated_texts": ["" for _ in requests],
            "errors": ["" for _ in requests],
        }
    return result


def guidellm_benchmark(requests: list[Request], concurrency: int) -> dict[str, Any]:
    """One item of `benchmarks` in a guidellm report: distributions by status, each with a mean."""
    duration = max(r.tokens[-1] for r in requests)
    latencies = [r.tokens[-1] - r.start for r in requests]
    ttfts = [1e3 * (r.tokens[0] - r.start) for r in requests]
    later = sum(r.output - 1 for r in requests)

    def summary(mean: float, median: float | None = None) -> dict[str, Any]:
        one = {"mean": mean, "median": mean if median is None else median, "count": len(requests)}
        none = {"mean": 0.0, "median": 0.0, "count": 0}
        return {"successful": one, "incomplete": none, "errored": none, "total": one}

    metrics = {
        "requests_per_second": summary(len(requests) / duration),
        "request_concurrency": summary(sum(latencies) / duration),
        "request_latency": summary(statistics.fmean(latencies)),
        "prompt_token_count": summary(statistics.fmean(r.prompt for r in requests)),
        "output_token_count": summary(statistics.fmean(r.output for r in requests)),
        "time_to_first_token_ms": summary(statistics.fmean(ttfts), statistics.median(ttfts)),
        "inter_token_latency_ms": summary(1e3 * sum(r.tokens[-1] - r.tokens[0] for r in requests) / max(1, later)),
    }
    config = {"strategy": {"type_": "concurrent", "streams": concurrency}}
    times = {"start_time": 1.79e9, "end_time": 1.79e9 + duration, "duration": duration}
    return {**times, "config": config, "metrics": metrics}
