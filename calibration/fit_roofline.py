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
from dataclasses import asdict
from typing import Any

import numpy as np
from accuracy_page import FACTORS, PAGE, left_out_error, render
from factor_priors import NAMES, PRIORS
from numpy.typing import NDArray
from published_latencies import fitted_models, read_stages, simulate
from scipy.optimize import least_squares

from fleetsim.engine.factors import RooflineFactors

# Standard deviations of the residuals' logarithms: what a global model can be held to, and how little the time to first
# token counts (it holds client and server queues that no iteration explains).
E2E_SIGMA, TTFT_SIGMA, DECODE_SIGMA = 0.03, 0.5, 0.05


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


def fit_all() -> dict[str, Any]:
    """The document that becomes roofline_factors.json: factors, leave-one-model-out factors, provenance."""
    factors, narrowed = fit()
    return {
        "schema": 1,
        "what": "efficiency factors of fleetsim's roofline, written by calibration/fit_roofline.py",
        "fitted_on": "vllm_h100_published.yaml, use: fit (inference-sim/training, vLLM 0.15.1, H100 SXM)",
        "priors": "in calibration/factor_priors.py; errors in docs/accuracy.md",
        "factors": asdict(factors),
        "posterior_over_prior_sigma": narrowed,
        "leave_one_model_out": {model: asdict(fit(without=model)[0]) for model in fitted_models()},
    }


def main(argv: Sequence[str] | None = None) -> int:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--check", action="store_true", help="fit nothing, write nothing: compare with what is there")
    arguments = parser.parse_args(argv)
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
