"""Fit the roofline's global efficiency factors on published vLLM latencies, and write docs/accuracy.md.

    python calibration/fit_roofline.py            fit, then write roofline_factors.json and docs/accuracy.md (a minute)
    python calibration/fit_roofline.py --check    simulate with the committed factors; exit 1 if the page would change

Every stage of calibration/vllm_h100_published.yaml is simulated request by request with `run_requests`, and the factors
are chosen by least squares on the logarithm of the mean end-to-end latency, with physical bounds and priors.
"""

from __future__ import annotations

import argparse
import json
import math
import sys
from collections.abc import Sequence
from dataclasses import asdict, dataclass, fields
from functools import cache
from pathlib import Path
from typing import Any

import numpy as np
import yaml
from numpy.typing import NDArray
from scipy.optimize import least_squares

from fleetsim.engine import roofline, run_requests
from fleetsim.engine.factors import RooflineFactors

HERE = Path(__file__).resolve().parent
MEASURED = HERE / "vllm_h100_published.yaml"
FACTORS = HERE / "roofline_factors.json"
ERRORS = HERE / "public_errors.json"
PAGE = HERE.parent / "docs" / "accuracy.md"

# vLLM 0.15.1's default; the experiments record no other.
GPU_MEMORY_UTILIZATION = 0.9
# Standard deviations of the residuals' logarithms: what a global model can be held to, and how little the time to first
# token counts (it holds client and server queues that no iteration explains).
E2E_SIGMA, TTFT_SIGMA, DECODE_SIGMA = 0.03, 0.5, 0.05


@dataclass(frozen=True, slots=True)
class Prior:
    """What is known of a factor before the fit: value, bounds, standard deviation of its logarithm, and from where."""

    value: float
    low: float
    high: float
    sigma: float
    source: str


PRIORS: dict[str, Prior] = {
    "memory_efficiency": Prior(
        0.85, 0.6, 0.95, 0.1, "weight reads of 2.6 to 2.8 TB/s under Nsight and a triad of 3.1 TB/s on H100 SXM (3.35)"
    ),
    "grouped_cache_efficiency": Prior(
        0.7, 0.4, 0.95, 0.2, "0.42 to 0.57 under Nsight in one report (70B, TP 8), up to 0.9 if it read like weights"
    ),
    "compute_efficiency": Prior(
        0.65, 0.4, 0.85, 0.15, "prefill MFU 0.65 in inference-sim's hardware_config.json; best square GEMMs reach 0.8"
    ),
    "link_efficiency": Prior(
        0.2,
        0.05,
        0.7,
        0.5,
        "0.13 (16 to 18 us per MB over two H100s, sgl-project/sglang pull request 2904) with a copy "
        "that captured graphs avoid",
    ),
    "iteration_s": Prior(500e-6, 100e-6, 5e-3, 0.7, "overhead of 500 us in inference-sim's hardware_config.json"),
    "layer_s": Prior(30e-6, 5e-6, 150e-6, 0.5, "20 us in the same file to ten small kernels of 4 us each"),
    "sequence_s": Prior(5e-6, 0.1e-6, 50e-6, 1.0, "Python work per request in scheduler and output processing"),
    "allreduce_s": Prior(
        6e-6, 3e-6, 20e-6, 0.4, "3.7 us (best kernel) to 8.7 us (vLLM's) for 512 bytes, two H100s, same pull request"
    ),
}
NAMES = tuple(field.name for field in fields(RooflineFactors))


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


def simulate(common: dict[str, Any], stages: Sequence[Stage], factors: RooflineFactors) -> list[Predicted]:
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
        factors=factors,
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


def evaluate(factors: RooflineFactors, use: str, model: str | None = None) -> list[tuple[Stage, Predicted]]:
    """Every stage of experiments with this `use` (and model), measured and predicted."""
    common, experiments = read_stages()
    return [
        pair
        for stages in experiments
        if stages[0].use == use and model in (None, stages[0].model)
        for pair in zip(stages, simulate(common, stages, factors), strict=True)
    ]


def to_factors(moved: NDArray[np.float64]) -> RooflineFactors:
    """Factors that lie `moved` prior standard deviations (of their logarithms) from their priors, shape (8,)."""
    return RooflineFactors(
        **{n: PRIORS[n].value * math.exp(PRIORS[n].sigma * m) for n, m in zip(NAMES, moved.tolist(), strict=True)}
    )


def from_factors(factors: RooflineFactors) -> NDArray[np.float64]:
    """The inverse of `to_factors`."""
    return np.array([math.log(getattr(factors, n) / PRIORS[n].value) / PRIORS[n].sigma for n in NAMES])


def residuals(moved: NDArray[np.float64], without: str | None = None) -> NDArray[np.float64]:
    """Latency residuals of the fitted stages that were not overloaded, then those of the priors, in their sigmas."""
    factors = to_factors(moved)
    common, experiments = read_stages()
    out: list[float] = []
    for stages in experiments:
        usable = stages[0].use == "fit" and stages[0].model != without and not stages[0].survivors_only
        for stage, predicted in zip(stages, simulate(common, stages, factors), strict=True) if usable else ():
            if stage.overloaded:
                out.append(math.log(predicted.decode_s(stage) / stage.decode_s) / DECODE_SIGMA)
                continue
            out.append(math.log(predicted.e2e_s / stage.e2e_s) / E2E_SIGMA)
            out.append(math.log(predicted.ttft_s / stage.ttft_s) / TTFT_SIGMA)
    return np.array([*out, *moved])


def jacobian(moved: NDArray[np.float64], without: str | None = None) -> NDArray[np.float64]:
    """Central differences over a tenth of a sigma: wide, because arrivals that land on another iteration are noise."""
    steps = 0.1 * np.eye(len(moved))
    return np.stack([(residuals(moved + h, without) - residuals(moved - h, without)) / 0.2 for h in steps], axis=1)


def fit(without: str | None = None) -> tuple[RooflineFactors, dict[str, float]]:
    """Factors, and how far the data narrowed each: posterior over prior standard deviation (1: they say nothing)."""
    low = from_factors(RooflineFactors(**{name: PRIORS[name].low for name in NAMES}))
    high = from_factors(RooflineFactors(**{name: PRIORS[name].high for name in NAMES}))
    found = least_squares(
        residuals, np.zeros(len(NAMES)), jac=jacobian, bounds=(low, high), xtol=1e-4, ftol=1e-5, args=(without,)
    )
    slopes = jacobian(found.x, without)
    narrowed = np.sqrt(np.diag(np.linalg.inv(slopes.T @ slopes)))
    rounded = {name: float(f"{value:.4g}") for name, value in asdict(to_factors(found.x)).items()}
    return RooflineFactors(**rounded), {n: round(float(v), 2) for n, v in zip(NAMES, narrowed, strict=True)}


def fitted_models() -> list[str]:
    _, experiments = read_stages()
    return sorted({stages[0].model for stages in experiments if stages[0].use == "fit"})


def fit_all() -> dict[str, Any]:
    """The document that becomes roofline_factors.json: factors, leave-one-model-out factors, provenance."""
    factors, narrowed = fit()
    return {
        "schema": 1,
        "what": "efficiency factors of fleetsim's roofline, written by calibration/fit_roofline.py",
        "fitted_on": "vllm_h100_published.yaml, use: fit (inference-sim/training, vLLM 0.15.1, H100 SXM)",
        "priors": "in calibration/fit_roofline.py; errors in docs/accuracy.md",
        "factors": asdict(factors),
        "posterior_over_prior_sigma": narrowed,
        "leave_one_model_out": {model: asdict(fit(without=model)[0]) for model in fitted_models()},
    }


def main(argv: Sequence[str] | None = None) -> int:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--check", action="store_true", help="fit nothing, write nothing: compare with what is there")
    arguments = parser.parse_args(argv)
    sys.path.insert(0, str(HERE))
    from accuracy_page import left_out_error, render

    if arguments.check:
        page = render(json.loads(FACTORS.read_text(encoding="utf-8")))
        if not PAGE.exists() or PAGE.read_text(encoding="utf-8") != page:
            print("docs/accuracy.md is not what the committed factors give: run calibration/fit_roofline.py")
            return 1
        print("docs/accuracy.md is up to date")
        return 0
    document = fit_all()
    document["error"] = left_out_error(document)
    FACTORS.write_text(json.dumps(document, indent=2) + "\n", encoding="utf-8")
    page = render(document)
    PAGE.parent.mkdir(exist_ok=True)
    PAGE.write_text(page, encoding="utf-8")
    print(page.partition("## How")[0])
    return 0


if __name__ == "__main__":
    sys.exit(main())
