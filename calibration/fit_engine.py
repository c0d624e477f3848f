"""Fit the numbers of all operators together to published runs of whole engines, and write the page of their errors.

    python calibration/fit_engine.py              fit, cross-validate, write everything (half an hour of one core)
    python calibration/fit_engine.py --factors    the same from the committed numbers on: factors, and what moves beside
    python calibration/fit_engine.py --paths      with the committed curves: what a request to a server takes
    python calibration/fit_engine.py --check      predict with the committed curves; exit 1 if the page would change
    python calibration/fit_engine.py --tables     with the committed curves: print every table behind the page
    python calibration/fit_engine.py --page       with the committed curves: write the page and the errors anew

A number starts where `calibration/kernels.py` found it on single kernels, and moves only as far as whole engines ask
for: least squares of the logarithm of predicted over measured time, robust against runs that say less than happened,
plus each number's distance from its start. What no kernel table knows (gaps, the host) starts from a wide prior.

Then every published model gets a factor, and the numbers move once more beside it (`factors.py`, which says why).
Folds: runs of one model on one GPU are predicted by a fit that saw neither these runs nor any of the same pair.
"""

from __future__ import annotations

import argparse
import json
import sys
import time
from collections import Counter
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import numpy as np
from numpy.typing import NDArray

from fleetsim.engine.operators.curves import Curves, curves_of, key_of

HERE = Path(__file__).resolve().parent
sys.path.insert(0, str(HERE))
from accuracy_parts import PAGE, with_engines  # noqa: E402
from drafts import fit_accepted  # noqa: E402
from factors import GROUP, ROBUST, STAGE_SIGMA, STAYS, Problem, left_out, slopes_of, written  # noqa: E402
from points import ACCEPTED, Run, read_points, ready  # noqa: E402
from published_latencies import read_stages, simulate  # noqa: E402
from request_paths import fit_paths  # noqa: E402

CURVES, ERRORS = HERE / "engine_curves.json", HERE / "engine_errors.json"
KERNELS = HERE / "kernel_curves.json"
LEFT_OUT = HERE / "engine_left_out.json"
# What these runs say cannot be: the page reads 1.4 of the GPU's 4.0 TB/s for dense 16-bit models alone.
UNFITTED = {("Qwen", "bfloat16")}

# Prior standard deviations of the logarithms: how far engines' kernels may be from the tables'.
SIGMA = {
    "gemm": {"start_s": 0.15, "bandwidth": 0.12, "compute": 0.15},
    "experts": {"start_s": 0.3, "bandwidth": 0.15, "compute": 0.4},
    "decode": {"start_s": 0.2, "bandwidth": 0.12, "bandwidth_fp8": 0.2},
    "latent": {"start_s": 0.2, "bandwidth": 0.3, "bandwidth_fp8": 0.3, "compute": 0.3},
    "allreduce": {"start_s": 0.2, "link": 0.25},
}
PREFILL_SIGMA = 0.2
# No table of AMD's kernels is at hand: NVIDIA's shares, less what published end-to-end comparisons leave of them.
UNMEASURED = {
    "gemm": {
        "bfloat16": {"start_s": 8e-6, "bandwidth": 0.7, "compute": 0.45, "wave": 0.2, "knee": 1.5},
        "fp8": {"start_s": 12e-6, "bandwidth": 0.8, "compute": 0.35, "wave": 0.2, "knee": 1.2},
    },
    "experts": {
        "bfloat16": {"start_s": 60e-6, "bandwidth": 0.8, "compute": 0.25},
        "fp8": {"start_s": 60e-6, "bandwidth": 0.8, "compute": 0.2},
    },
    "grouped": {},
    "decode": {"start_s": 20e-6, "bandwidth": 0.7, "bandwidth_fp8": 0.6, "compute": 0.3},
    "latent": {"start_s": 20e-6, "bandwidth": 0.6, "bandwidth_fp8": 0.5, "compute": 0.3},
    "prefill": 0.4,
    "allreduce": {"start_s": 8e-6, "per_doubling": 0.1, "link": 0.5},
}
UNMEASURED_SIGMA = 0.4
# A family that nobody measured is its nearest relative on its own data sheet; fp8 from where there is fp8.
RELATIVES = {"ada": ("ampere", "hopper"), "blackwell-rtx": ("blackwell", "blackwell"), "cdna4": ("cdna3", "cdna3")}
# One engine's host: starts and standard deviations. One number for each engine.
HOST = {
    "iteration_s": (0.8e-3, 0.7), "layer_s": (12e-6, 0.5), "sequence_s": (4e-6, 0.7), "prompt_token_s": (5e-7, 1.0),
    "experts": (1.0, 0.25), "allreduce": (1.0, 0.25),
}  # fmt: skip
ENGINES = ("vllm", "sglang", "tensorrt-llm")


@dataclass(frozen=True, slots=True)
class Parameter:
    """One number: where it stands in the document, where it starts, and the standard deviation of its logarithm."""

    path: tuple[str, ...]
    start: float
    sigma: float

    @property
    def name(self) -> str:
        return ".".join(self.path)


def start() -> dict[str, Any]:
    """The document of curves before the fit."""
    families: dict[str, Any] = {"cdna3": UNMEASURED}
    for name, kernels in json.loads(KERNELS.read_text(encoding="utf-8"))["families"].items():
        pick = lambda row, *keys: {key: row[key] for key in keys}  # noqa: E731
        decode, latent = kernels["decode"], kernels["latent"]
        families[name] = {
            "gemm": {
                kind: pick(row, "start_s", "bandwidth", "compute", "wave", "knee")
                for kind, row in kernels["gemm"].items()
            },
            "experts": {kind: pick(row, "start_s", "bandwidth", "compute") for kind, row in kernels["experts"].items()},
            # Few published runs send tokens to their experts: these stay as the tables have them.
            "grouped": {
                kind: pick(row, "start_s", "bandwidth", "compute") for kind, row in kernels.get("grouped", {}).items()
            },
            "decode": _attention(decode),
            "latent": _attention(latent),
            "prefill": kernels["prefill"]["bfloat16"]["compute"],
            "allreduce": pick(kernels["allreduce"]["bfloat16"], "start_s", "per_doubling", "link"),
        }
    # What a request takes is no part of an iteration: it is fitted apart, afterwards.
    hosts = {engine: {name: value for name, (value, _) in HOST.items()} | {"request_s": 0.0} for engine in ENGINES}
    return {"families": families, "hosts": hosts, "passes": 16.0, "uneven": 1.2, "models": {}}


def _attention(kernels: Mapping[str, Mapping[str, float]]) -> dict[str, float]:
    """Of a cache in 16 and in 8 bits; the start and the operations are those in 16."""
    wide = kernels["bfloat16"]
    small = kernels.get("fp8", wide)
    return {
        "start_s": wide["start_s"],
        "bandwidth": wide["bandwidth"],
        "bandwidth_fp8": max(small["bandwidth"], 0.4),  # below: one engine's kernel that unpacks first
        "compute": wide.get("compute", 1.0),  # operations never bind where heads do not share a latent
    }


def parameters(document: Mapping[str, Any]) -> list[Parameter]:
    """All numbers that are fitted, in a fixed order."""
    found = []
    for family, rows in sorted(document["families"].items()):
        wide = UNMEASURED_SIGMA if rows is UNMEASURED else 0.0
        for kernel, sigmas in SIGMA.items():
            kinds = sorted(rows[kernel]) if kernel in ("gemm", "experts") else [""]
            for kind in kinds:
                row = rows[kernel][kind] if kind else rows[kernel]
                path = ("families", family, kernel, *([kind] if kind else []))
                found += [Parameter((*path, key), row[key], wide or sigma) for key, sigma in sigmas.items()]
        found.append(Parameter(("families", family, "prefill"), rows["prefill"], wide or PREFILL_SIGMA))
    for engine in ENGINES:
        found += [Parameter(("hosts", engine, key), value, sigma) for key, (value, sigma) in HOST.items()]
    return [*found, Parameter(("passes",), document["passes"], 0.5), Parameter(("uneven",), document["uneven"], 0.3)]


def moved(document: Mapping[str, Any], wanted: Sequence[Parameter], x: NDArray[np.float64]) -> dict[str, Any]:
    """The document with each number `x` prior standard deviations (of its logarithm) from its start, and relatives."""
    out = json.loads(json.dumps(document))
    for parameter, step in zip(wanted, x.tolist(), strict=True):
        row = out
        for key in parameter.path[:-1]:
            row = row[key]
        row[parameter.path[-1]] = float(f"{parameter.start * np.exp(parameter.sigma * step):.4g}")
    for family, (near, fp8) in RELATIVES.items():
        rows = json.loads(json.dumps(out["families"][near]))
        for kernel in ("gemm", "experts"):
            rows[kernel]["fp8"] = out["families"][fp8][kernel]["fp8"]
            rows[kernel].setdefault("fp4", rows[kernel]["fp8"])
        out["families"][family] = rows
    return dict(out)


Residuals = Callable[[Curves], NDArray[np.float64]]


def residuals_of(runs: Sequence[Run], stages: bool) -> Residuals:
    """Robust logarithms of predicted over measured time, weighted by group."""
    runs = [r for r in runs if (r.point.source, r.point.dtype) not in UNFITTED]
    sizes = Counter(r.group for r in runs)
    weights = np.array([min(1.0, (GROUP / sizes[r.group]) ** 0.5) for r in runs])
    common, experiments = read_stages()
    kept = [e for e in experiments if e[0].use == "fit" and not e[0].survivors_only] if stages else []

    def residuals(curves: Curves) -> NDArray[np.float64]:
        logs = np.log([max(r.predict(curves).time, 1e-3) for r in runs]) / ROBUST
        robust = np.sign(logs) * np.sqrt(2 * (np.sqrt(1 + logs**2) - 1))
        published = [
            np.log(p.decode_s(s) / s.decode_s if s.overloaded else p.e2e_s / s.e2e_s) / STAGE_SIGMA
            for e in kept
            for s, p in zip(e, simulate(common, e, curves), strict=True)
        ]
        return np.concatenate([weights * robust, published])

    return residuals


def fit(residuals: Residuals, rounds: int = 6, tell: Callable[[str], None] = print) -> dict[str, Any]:
    """Levenberg and Marquardt, with slopes over a seventh of a sigma: a request that lands elsewhere is noise."""
    document = start()
    wanted = parameters(document)

    def all_of(x: NDArray[np.float64]) -> NDArray[np.float64]:
        return np.concatenate([residuals(curves_of(moved(document, wanted, x))), x])

    x = np.zeros(len(wanted))
    now = all_of(x)
    damping = 0.3
    for turn in range(rounds):
        began, before = time.monotonic(), float(now @ now)
        slopes = np.stack([(all_of(x + 0.15 * unit) - now) / 0.15 for unit in np.eye(len(x))], axis=1)
        normal, gradient = slopes.T @ slopes, slopes.T @ now
        for _ in range(5):
            step = np.linalg.solve(normal + damping * np.diag(np.diag(normal)), -gradient)
            tried = np.clip(x + step, -3, 3)
            then = all_of(tried)
            if then @ then < before:
                x, now, damping = tried, then, damping / 3
                break
            damping *= 4
        gained = 1 - float(now @ now) / before
        tell(f"round {turn + 1}: cost {now @ now:.1f}, {gained:.2%} less, {time.monotonic() - began:.0f} s")
        if gained < 2e-3:
            break
    return {
        **moved(document, wanted, x),
        "sigmas": {p.name: round(float(v), 2) for p, v in zip(wanted, x, strict=True)},
    }


def factored(runs: Sequence[Run], first: Mapping[str, Any]) -> tuple[dict[str, Any], dict[str, dict[str, float]]]:
    """The document with a factor for each model, and the numbers that move beside them; and the runs left out."""
    wanted, names = parameters(start()), {key_of(r.shape): r.shape.name for r in runs}
    x = np.array([_place(first, p) for p in wanted])

    def at(x: NDArray[np.float64], factors: Mapping[Any, float]) -> dict[str, Any]:
        return written(moved(first, wanted, x), factors, names)

    problem = Problem(
        runs,
        slopes_of(runs, x, lambda x: curves_of(at(x, {}))),
        np.array([(r.point.source, r.point.dtype) in UNFITTED for r in runs]),
        np.array([p.name.startswith(STAYS) for p in wanted]),
    )
    found = at(*problem.with_factors(np.ones(len(runs), bool), True, x))
    sigmas = {p.name: round(_place(found, p), 2) for p in wanted}
    return {**found, "sigmas": sigmas}, left_out(problem, lambda x, factors: curves_of(at(x, factors)))


def _place(document: Mapping[str, Any], parameter: Parameter) -> float:
    """How many prior standard deviations of its logarithm a number is from its start."""
    row: Any = document
    for key in parameter.path:
        row = row[key]
    return float(np.log(row / parameter.start) / parameter.sigma)


def with_paths(runs: Sequence[Run], document: dict[str, Any]) -> dict[str, Any]:
    """The document with what a request to each engine's server takes; writes the runs' ratios with their pair left
    out beside the others."""
    found, left = fit_paths(runs, curves_of(document))
    for engine, request_s in found.items():
        document["hosts"][engine]["request_s"] = request_s
    accepted, drafted = fit_accepted(runs, curves_of(document))
    print(f"{accepted:g} of the drafted tokens are accepted: points.ACCEPTED is {ACCEPTED:g}")
    kept = json.loads(LEFT_OUT.read_text(encoding="utf-8")) if LEFT_OUT.exists() else {}
    LEFT_OUT.write_text(json.dumps({**kept, "first": left, "drafted": drafted}, indent=0) + "\n", encoding="utf-8")
    return document


def main(argv: Sequence[str] | None = None) -> int:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--check", action="store_true", help="fit nothing, write nothing: compare with what is there")
    parser.add_argument("--factors", action="store_true", help="fit the factors and what moves beside them only")
    parser.add_argument("--paths", action="store_true", help="fit what a request takes only, with the committed curves")
    parser.add_argument("--tables", action="store_true", help="print every table behind the page, fit nothing")
    parser.add_argument("--page", action="store_true", help="fit nothing: write the page and the errors anew")
    arguments = parser.parse_args(argv)
    runs, refused = ready(read_points())
    if not (arguments.check or arguments.tables or arguments.page):
        if arguments.paths or arguments.factors:
            document = json.loads(CURVES.read_text(encoding="utf-8"))
        else:
            document = {
                "schema": 1,
                "what": "curves of fleetsim's operators, written by calibration/fit_engine.py",
                **fit(residuals_of(runs, stages=True)),
            }
        if not arguments.paths:
            document, left = factored(runs, document)
            LEFT_OUT.write_text(json.dumps(left, indent=0) + "\n", encoding="utf-8")
        CURVES.write_text(json.dumps(with_paths(runs, document), indent=1) + "\n", encoding="utf-8")
    from accuracy_page import errors_text, render, tables

    if arguments.tables:
        print(tables(runs))
        return 0
    wanted = {ERRORS: errors_text(runs), PAGE: with_engines(render(runs, refused))}
    stale = [
        path.name for path, text in wanted.items() if not path.exists() or path.read_text(encoding="utf-8") != text
    ]
    if arguments.check:
        print(f"stale: {', '.join(stale)}: run calibration/fit_engine.py" if stale else "up to date")
        return 1 if stale else 0
    for path, text in wanted.items():
        path.write_text(text, encoding="utf-8")
    return 0


if __name__ == "__main__":
    sys.exit(main())
