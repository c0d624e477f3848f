"""vLLM on H100 under a known load, as others published it, and the same simulated request by request."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from functools import cache
from pathlib import Path
from typing import Any

import numpy as np
import yaml

from fleetsim.engine import roofline, run_requests
from fleetsim.engine.operators.curves import Curves

MEASURED = Path(__file__).resolve().parent / "vllm_h100_published.yaml"
# vLLM 0.15.1's default; the experiments record no other.
GPU_MEMORY_UTILIZATION = 0.9


@dataclass(frozen=True, slots=True)
class Stage:
    """One measured load level. Latencies are means in seconds, as the client saw them."""

    experiment: str
    model: str
    tp: int
    use: str
    offered_req_s: float
    duration_s: float
    start_s: float
    prompt_tokens: int
    output_tokens: int
    failed: int
    e2e_s: float
    ttft_s: float
    output_tok_s: float

    @property
    def name(self) -> str:
        return f"{self.experiment.split('-', 2)[2]} @ {self.offered_req_s:g}/s"

    @property
    def overloaded(self) -> bool:
        """Requests failed: the queue grew until clients gave up, so latencies say how long clients would wait."""
        return self.failed > 0

    @property
    def survivors_only(self) -> bool:
        """So many gave up that means are of a selection."""
        return self.failed > 0.01 * self.duration_s * self.offered_req_s

    @property
    def decode_s(self) -> float:
        """Seconds per output token after the first: the pace of decoding, whatever the queue was."""
        return (self.e2e_s - self.ttft_s) / (self.output_tokens - 1)


@dataclass(frozen=True, slots=True)
class Predicted:
    """What the simulation gives for a stage; kv_tokens is the engine's capacity, end_s when its last request ended."""

    e2e_s: float
    ttft_s: float
    end_s: float
    preemptions: int
    kv_tokens: int

    def decode_s(self, stage: Stage) -> float:
        """As `Stage.decode_s`."""
        return (self.e2e_s - self.ttft_s) / (stage.output_tokens - 1)


@cache
def read_stages(path: Path = MEASURED) -> tuple[dict[str, Any], list[list[Stage]]]:
    """The common settings, and the stages of each experiment in the order in which they ran."""
    document = yaml.safe_load(path.read_text(encoding="utf-8"))
    experiments = []
    for entry in document["experiments"]:
        start_s, stages = 0.0, []
        for row in entry["stages"]:
            column = dict(zip(document["stage_columns"], row, strict=True))
            stages.append(
                Stage(
                    experiment=entry["id"],
                    model=entry["model"],
                    tp=entry["tp"],
                    use=entry["use"],
                    offered_req_s=column["offered_req_s"],
                    duration_s=column["duration_s"],
                    start_s=start_s,
                    prompt_tokens=round(column["prompt_tokens_mean"]),
                    output_tokens=entry["output_tokens"],
                    failed=column["failed"],
                    e2e_s=column["e2e_mean_s"],
                    ttft_s=column["ttft_mean_s"],
                    output_tok_s=column["output_tok_s"],
                )
            )
            start_s += column["duration_s"]
        experiments.append(stages)
    return document["common"], experiments


def simulate(common: dict[str, Any], stages: Sequence[Stage], curves: Curves) -> list[Predicted]:
    """One experiment, its stages one after the other on the same engine; means over every request of a stage."""
    first = stages[0]
    step_time, limits = roofline(
        common["gpu"],
        first.model,
        first.tp,
        common["dtype"],
        GPU_MEMORY_UTILIZATION,
        max_num_seqs=common["max_num_seqs"],
        max_num_batched_tokens=common["max_num_batched_tokens"],
        curves=curves,
    )
    sizes = [int(s.duration_s * s.offered_req_s) for s in stages]
    arrival = np.concatenate([s.start_s + np.arange(n) / s.offered_req_s for s, n in zip(stages, sizes, strict=True)])
    result = run_requests(
        step_time,
        limits,
        np.full(len(arrival), first.prompt_tokens),
        np.full(len(arrival), first.output_tokens),
        arrival_s=arrival,
        group=np.arange(len(arrival)) % common["distinct_prompts"],
        prefix_caching=True,
    )
    predicted, at = [], 0
    for n in sizes:
        rows = slice(at, at + n)
        first_token, finish = result.first_token_s[rows] - arrival[rows], result.finish_s[rows] - arrival[rows]
        # Async scheduling: when a request arrives, the next iteration is already planned without it.
        iteration_s = float(np.mean(finish - first_token)) / (first.output_tokens - 1)
        predicted.append(
            Predicted(
                e2e_s=float(np.mean(finish)) + iteration_s,
                ttft_s=float(np.mean(first_token)) + iteration_s,
                end_s=float(result.finish_s[rows].max()),
                preemptions=int(result.preemptions[rows].sum()),
                kv_tokens=limits.kv_tokens,
            )
        )
        at += n
    return predicted


def evaluate(curves: Curves, use: str, model: str | None = None) -> list[tuple[Stage, Predicted]]:
    """Every stage of experiments with this `use` (and model), measured and predicted."""
    common, experiments = read_stages()
    return [
        pair
        for stages in experiments
        if stages[0].use == use and model in (None, stages[0].model)
        for pair in zip(stages, simulate(common, stages, curves), strict=True)
    ]


def fitted_models() -> list[str]:
    _, experiments = read_stages()
    return sorted({stages[0].model for stages in experiments if stages[0].use == "fit"})
