"""Fits the trainer's few parameters to published steps, and says how far off they are: trainer_fit.json and the page.

python calibration/fit_trainer.py            fit, leave out each framework and each model in turn, write both
python calibration/fit_trainer.py --check    only predict with the committed fit; exit 1 when the page would change
python calibration/fit_trainer.py --tables   only predict with the committed fit; print every table behind the page
python calibration/fit_trainer.py --page     only predict with the committed fit; write the page anew

Residuals are logarithms of predicted over published seconds, in a robust norm (Huber, 30 %). Each framework, model, GPU
and pass weighs the same, however many rows it has. Every parameter has a prior from what is known of the hardware; a
framework's own factor has one that is flat far out, so that a framework that is much slower than all others (SkyRL)
says so and does not slow the others down.
"""

from __future__ import annotations

import argparse
import json
import sys
from collections import Counter
from collections.abc import Callable, Sequence
from pathlib import Path

import numpy as np
from numpy.typing import NDArray
from scipy.optimize import least_squares

from fleetsim.records import as_dict, field_names, replace

sys.path.insert(0, str(Path(__file__).resolve().parent))
from accuracy_parts import PAGE, with_trainer
from trainer_page import render, tables
from trainer_points import Step, read_steps

from fleetsim.tell.page import same
from fleetsim.trainer.seconds import Efficiency, KnownTrainerError, TrainerFit, shipped_fit

FIT = Path(__file__).resolve().parent / "trainer_fit.json"
LEFT_OUT = Path(__file__).resolve().parent / "trainer_left_out.json"

# Where a parameter is expected, and how far from it, as a factor's logarithm: products reach 60 to 80 % of the peak in
# large products and flash attention 35 to 60 % forward and backward (NVIDIA/cutlass, Dao-AILab/flash-attention); NCCL
# 60 to 90 % of a link; a number of a forward pass goes through memory several times.
PRIORS = {
    "product": (0.7, 0.15), "expert": (0.5, 0.3), "attention": (0.45, 0.3), "touches": (8.0, 0.6),
    "head_touches": (8.0, 0.8), "links": (0.7, 0.3), "exposed": (0.3, 0.5), "forward": (1.2, 0.2),
    "step_s": (0.3, 0.4), "micro_s": (0.05, 1.0),
    "context": (0.1, 1.0), "blackwell": (1.0, 0.2),
}  # fmt: skip
KIND_SPREAD, FRAMEWORK_SPREAD, RESIDUAL, HUBER = 0.25, 0.2, 0.1, 0.3

Vector = NDArray[np.float64]


def fitted(steps: Sequence[Step]) -> TrainerFit:
    """The fit to those of the steps that are fitted."""
    seen = [s for s in steps if s.fitted]
    kinds, families = sorted({s.kind for s in seen}), sorted({s.family for s in seen})
    names = field_names(Efficiency)
    groups = Counter(map(_group, seen))
    weights = np.array([groups[_group(s)] ** -0.5 for s in seen]) / RESIDUAL
    first, last = len(names), len(names) + len(kinds)

    def unpacked(x: Vector) -> TrainerFit:
        efficiency = Efficiency(**{n: float(PRIORS[n][0] * np.exp(x[i])) for i, n in enumerate(names)})
        factors = np.exp(x).tolist()
        return TrainerFit(
            efficiency,
            dict(zip(kinds, factors[first:last], strict=True)),
            dict(zip(families, factors[last:], strict=True)),
            {},
        )

    def residuals(x: Vector) -> Vector:
        fit = unpacked(x)
        wrong = np.array([np.log(s.predicted(fit) / s.seconds) for s in seen])
        spread = np.array([x[i] / PRIORS[n][1] for i, n in enumerate(names)])
        return np.concatenate(
            [weights * _huber(wrong), spread, x[first:last] / KIND_SPREAD, _flat(x[last:] / FRAMEWORK_SPREAD)]
        )

    return unpacked(least_squares(residuals, np.zeros(last + len(families))).x)


def _group(step: Step) -> tuple[str, str, str, str]:
    return step.family, step.plan.shape.name, step.plan.gpu.name, step.what


def _huber(r: Vector) -> Vector:
    """The residual whose square is Huber's loss."""
    size = np.abs(r)
    return np.sign(r) * np.sqrt(np.where(size < HUBER, size**2, 2 * HUBER * size - HUBER**2))


def _flat(z: Vector) -> Vector:
    """The residual whose square grows like a logarithm: far out nothing pulls."""
    return np.sign(z) * np.sqrt(2 * np.log1p(z**2 / 2))


def left_out(steps: Sequence[Step], key: Callable[[Step], str]) -> dict[str, float]:
    """Predicted over published seconds of every fitted step, by a fit without the steps of the same key."""
    found: dict[str, float] = {}
    for value in sorted({key(s) for s in steps if s.fitted}):
        fit = fitted([s for s in steps if key(s) != value])
        found |= {s.name: s.predicted(fit) / s.seconds for s in steps if s.fitted and key(s) == value}
    return found


def errors_of(steps: Sequence[Step], ratios: dict[str, dict[str, float]]) -> dict[str, KnownTrainerError]:
    """By kind and for all with the framework left out; by framework and kind of model with the model left out."""
    seen = [s for s in steps if s.fitted]
    found = {"": _error(seen, ratios["framework"])}
    for kind in sorted({s.kind for s in seen}):
        found[kind] = _error([s for s in seen if s.kind == kind], ratios["framework"])
    for family in sorted({s.family for s in seen}):
        own = [s for s in seen if s.family == family]
        if len({s.plan.shape.name for s in own}) > 1:
            found[family] = _error(own, ratios["model"])
    return found


def _error(steps: Sequence[Step], ratios: dict[str, float]) -> KnownTrainerError:
    groups = Counter(map(_group, steps))
    weights = np.array([1 / groups[_group(s)] for s in steps])
    signed = np.array([ratios[s.name] - 1 for s in steps])
    return KnownTrainerError(
        median=_quantile(np.abs(signed), weights, 0.5),
        p90=_quantile(np.abs(signed), weights, 0.9),
        bias=_quantile(signed, weights, 0.5),
        points=len(steps),
        sources=len({s.source for s in steps}),
    )


def _quantile(values: Vector, weights: Vector, part: float) -> float:
    order = np.argsort(values)
    below = np.cumsum(weights[order]) - weights[order] / 2
    return round(float(np.interp(part * weights.sum(), below, values[order])), 4)


def _rounded(fit: TrainerFit) -> TrainerFit:
    """The fit with four digits, as the file has it."""

    def few(values: dict[str, float]) -> dict[str, float]:
        return {name: float(f"{value:.4g}") for name, value in values.items()}

    return replace(
        fit,
        efficiency=Efficiency(**few(as_dict(fit.efficiency))),
        kinds=few(dict(fit.kinds)),
        frameworks=few(dict(fit.frameworks)),
    )


def main() -> int:
    """Fits and writes, or checks the page."""
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--check", action="store_true", help="predict with the committed fit; exit 1 on a difference")
    steps = read_steps()
    parser.add_argument("--tables", action="store_true", help="print every table behind the page, fit nothing")
    parser.add_argument("--page", action="store_true", help="fit nothing: write the page anew")
    arguments = parser.parse_args()
    if arguments.tables:
        print(tables(steps, shipped_fit(), json.loads(LEFT_OUT.read_text(encoding="utf-8"))))
        return 0
    if arguments.check:
        return 0 if same(PAGE.read_text(encoding="utf-8"), with_trainer(render(steps, shipped_fit()))) else 1
    if arguments.page:
        PAGE.write_text(with_trainer(render(steps, shipped_fit())), encoding="utf-8")
        return 0
    fit = _rounded(fitted(steps))
    keys: dict[str, Callable[[Step], str]] = {"framework": lambda s: s.framework, "model": lambda s: s.plan.shape.name}
    ratios = {by: {name: round(r, 4) for name, r in left_out(steps, key).items()} for by, key in keys.items()}
    fit = replace(fit, errors=errors_of(steps, ratios))
    FIT.write_text(json.dumps(as_dict(fit), indent=1) + "\n", encoding="utf-8")
    LEFT_OUT.write_text(json.dumps(ratios, indent=1) + "\n", encoding="utf-8")
    PAGE.write_text(with_trainer(render(steps, fit)), encoding="utf-8")
    return 0


if __name__ == "__main__":
    sys.exit(main())
