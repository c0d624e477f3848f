"""A factor for every published model, drawn towards 1, fitted together with the numbers of all operators.

A model's own kernels, and what its config does not say, make all of its runs some per cent faster or slower than its
operators come to, on every GPU. Where the fit does not know that, it bends the operators until they say so, and other
models pay for it. So each model has a factor for all of its runs, and one for its runs under one engine in one
precision; both are drawn towards 1 (partial pooling), and a model that nobody published has none.

Tried on runs whose pair of model and GPU was left out (median 11.9 % without factors, solved as here): a factor per
engine and family of GPUs 13.0 %, with the kind of model 12.5 %, per family and kind 12.9 %, per source 11.3 %; both
factors on operators that stay 11.2 %, with operators that move 9.6 %. Beside these, own hosts for Blackwell or for
mixtures, and own kernels of one engine, bring nothing (9.8 to 10.8 %).

Numbers of the default jobs (models in 16 bits under vLLM on Hopper) stay as the first fit left them. All is solved
with the slopes of each run's logarithm at the first fit's numbers; what the page shows is predicted anew.
"""

from __future__ import annotations

from collections import Counter
from collections.abc import Callable, Iterator, Mapping, Sequence
from dataclasses import dataclass
from typing import Any

import numpy as np
from numpy.typing import NDArray
from points import Run
from published_latencies import read_stages, simulate

from fleetsim.engine.model.precision import PRECISIONS
from fleetsim.engine.operators.curves import Curves, key_of

FOLDS = 6
# A run counts as a square up to here and then ever less: one with cached prompts in it cannot pull a number.
ROBUST = 0.1
# Runs of one source, GPU, engine, model and precision count together as so many.
GROUP = 8
STAGE_SIGMA = 0.05
# Standard deviations of the logarithms of a model's factor and of the one by engine and bits, and how much nearer to
# their starts numbers stay beside them.
OF_MODEL, OF_ENGINE, NEARER = 0.1, 0.05, 1.5
STEP = 0.3
ROUNDS = 10
STAYS = (
    "hosts.vllm.", "families.hopper.gemm.bfloat16.", "families.hopper.experts.bfloat16.",
    "families.hopper.decode.start_s", "families.hopper.decode.bandwidth", "families.hopper.prefill",
    "families.hopper.allreduce.", "passes",
)  # fmt: skip
Array = NDArray[np.float64]
Document = dict[str, Any]


def factor_keys(run: Run) -> tuple[tuple[str, str], tuple[str, str]]:
    """The model and "" (all of its runs), and the model with engine and bits."""
    bits = PRECISIONS[run.shape.weights_type(run.point.dtype)].bits
    return (key_of(run.shape), ""), (key_of(run.shape), f"{run.point.engine}/{bits}")


@dataclass(frozen=True, slots=True)
class Slopes:
    """Logarithms of predicted over measured time of runs and of H100 stages, and what a prior sigma of each number
    adds, around the numbers x (prior sigmas from their starts)."""

    x: Array
    runs: Array
    runs_by: Array
    stages: Array
    stages_by: Array


def slopes_of(runs: Sequence[Run], x: Array, curves_at: Callable[[Array], Curves]) -> Slopes:
    """Predicts all runs once for each number."""
    common, experiments = read_stages()
    kept = [e for e in experiments if e[0].use == "fit" and not e[0].survivors_only]

    def logs(at: Array) -> tuple[Array, Array]:
        curves = curves_at(at)
        stages = [
            np.log(p.decode_s(s) / s.decode_s if s.overloaded else p.e2e_s / s.e2e_s)
            for e in kept
            for s, p in zip(e, simulate(common, e, curves), strict=True)
        ]
        return np.log([max(r.predict(curves).time, 1e-3) for r in runs]), np.array(stages)

    here = logs(x)
    moved = [logs(x + STEP * unit) for unit in np.eye(len(x))]
    by = [np.stack([(m[k] - here[k]) / STEP for m in moved], axis=1) for k in (0, 1)]
    return Slopes(x, here[0], by[0], here[1], by[1])


@dataclass(frozen=True, slots=True)
class Problem:
    """What is fitted: runs, their slopes, which runs never count, and which numbers stay beside factors."""

    runs: Sequence[Run]
    slopes: Slopes
    unfitted: NDArray[np.bool_]
    stays: NDArray[np.bool_]

    def numbers(self, seen: NDArray[np.bool_], stages: bool) -> Array:
        """Those of the first fit: without factors."""
        none: Array = np.zeros((len(self.runs), 0))
        return self._solved(seen, stages, self.slopes.x, np.ones(len(self.slopes.x), bool), none, np.ones(1))[0]

    def with_factors(self, seen: NDArray[np.bool_], stages: bool, first: Array) -> tuple[Array, Mapping[Any, float]]:
        """The numbers beside factors, of which some stay as `first` has them; and the factors."""
        keys = sorted({key for i in np.flatnonzero(seen) for key in factor_keys(self.runs[i])})
        has = np.array([[key in factor_keys(r) for key in keys] for r in self.runs], dtype=float)
        sigmas = np.array([OF_ENGINE if kind else OF_MODEL for _, kind in keys])
        x, found = self._solved(seen, stages, first, ~self.stays, has, np.array([NEARER, *1 / sigmas]))
        return x, {key: float(np.exp(b)) for key, b in zip(keys, found, strict=True)}

    def _solved(
        self, seen: NDArray[np.bool_], stages: bool, first: Array, free: NDArray[np.bool_], has: Array, near: Array
    ) -> tuple[Array, Array]:
        """Robust least squares by weights that are worked out again each round. near: 1 over the standard deviations of
        every number, and of each factor."""
        s, rows = self.slopes, np.flatnonzero(seen & ~self.unfitted)
        sizes = Counter(self.runs[i].group for i in rows)
        weights = np.array([min(1.0, (GROUP / sizes[self.runs[i].group]) ** 0.5) for i in rows])
        prior = np.concatenate([np.full(int(free.sum()), near[0]), near[1:]])
        by = np.hstack([s.runs_by[:, free], has])
        x, b = first.copy(), np.zeros(has.shape[1])
        for _ in range(ROUNDS):
            off = s.runs[rows] + s.runs_by[rows] @ (x - s.x) + has[rows] @ b
            scale = weights / (1 + (off / ROBUST) ** 2) ** 0.25 / ROBUST
            left, right = by[rows] * scale[:, None], -off * scale
            normal, gradient = left.T @ left, left.T @ right
            if stages:
                n, more = int(free.sum()), s.stages_by[:, free] / STAGE_SIGMA
                normal[:n, :n] += more.T @ more
                gradient[:n] -= more.T @ (s.stages + s.stages_by @ (x - s.x)) / STAGE_SIGMA
            at = np.concatenate([x[free], b])
            step = np.linalg.solve(normal + np.diag(prior**2), gradient - prior**2 * at)
            x[free] = np.clip(x[free] + step[: int(free.sum())], -3, 3)
            b = b + step[int(free.sum()) :]
        return x, b


def written(
    document: Mapping[str, Any], factors: Mapping[tuple[str, str], float], names: Mapping[str, str]
) -> Document:
    """The document of curves with factors: by the sizes of a model, with its name for readers."""
    models: dict[str, dict[str, Any]] = {}
    for (model, kind), factor in sorted(factors.items()):
        models.setdefault(model, {"of": names[model]})[kind] = float(f"{factor:.4g}")
    return {**document, "models": models}


def folds(runs: Sequence[Run]) -> Iterator[tuple[str, list[bool]]]:
    """What is left out, by name: in turn some pairs of model and GPU, so that folds weigh alike; then every GPU."""
    pairs = Counter((key_of(r.shape), r.gpu.name) for r in runs)
    dealt: dict[tuple[str, str], int] = {}
    load = [0] * FOLDS
    for pair, size in sorted(pairs.items(), key=lambda item: (-item[1], item[0])):
        dealt[pair] = load.index(min(load))
        load[dealt[pair]] += size
    for k in range(FOLDS):
        yield "pairs", [dealt[key_of(r.shape), r.gpu.name] == k for r in runs]
    for gpu in sorted({r.gpu.name for r in runs}):
        yield "gpus", [r.gpu.name == gpu for r in runs]


def left_out(
    problem: Problem, curves_at: Callable[[Array, Mapping[Any, float]], Curves]
) -> dict[str, dict[str, float]]:
    """Predicted over measured time of every run by a fit without it: without its pair, and without its GPU."""
    found: dict[str, dict[str, float]] = {"pairs": {}, "gpus": {}}
    for kind, hidden in folds(problem.runs):
        out = np.array(hidden)
        first = problem.runs[int(np.flatnonzero(out)[0])].gpu
        # The published stages are of the H100.
        stages = not (kind == "gpus" and first.family == "hopper" and "H100" in first.name)
        x, factors = problem.with_factors(~out, stages, problem.numbers(~out, stages))
        curves = curves_at(x, factors)
        times = {problem.runs[i].point.id: problem.runs[i].predict(curves).time for i in np.flatnonzero(out)}
        found[kind] |= {name: round(time, 4) for name, time in times.items()}
        sizes = np.abs(np.array(list(times.values())) - 1)
        print(
            f"{kind}, {len(sizes)} left out: median {np.median(sizes):.1%}, 90 % within {np.quantile(sizes, 0.9):.1%}"
        )
    return found
