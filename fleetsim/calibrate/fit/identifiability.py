"""What the observations can tell, and what they cannot; which of them count, and how much."""

from __future__ import annotations

from itertools import product

import numpy as np
from msgspec import Struct
from numpy.typing import NDArray

from fleetsim import units
from fleetsim.calibrate.fit.design import (
    LINEAR,
    PAIRS,
    PREFILL,
    SEQ,
    Array,
    Basis,
    Observations,
    factor,
    solve,
    sum_up,
    with_curve,
)
from fleetsim.errors import Problem

# --- Which durations count, and how much. Hiccups are left out; loads count alike, but one that is known badly less.
# Three things spoil durations.
# - A hiccup (garbage collection, a graph captured late, a neighbour) makes one iteration long; a result that arrives
#   late makes one long and the next short. Such rows are found inside their own load, beside iterations that held the
#   same. So a load that the model predicts badly as a whole is never taken for an outlier.
# - What is left still has long tails. Huber's weights make it count less.
# - What a load shares (a clock, a temperature, the model's own error) does not average out over its iterations. So a
#   load counts with 1 / (tau^2 + sigma^2 / n), tau between loads, sigma within.

ALIKE = 5  # iterations that held the same, at least, to judge one by the others
ROUNDS = 4
HUBER = 3.0  # standard deviations from which on a row counts less
FAR, FAR_LEAST = 6.0, 0.10  # left out beside iterations alike: standard deviations, and relative
LONE, LONE_LEAST = 8.0, 0.50  # left out where only the model can judge
FINEST = 1e-3  # relative: noise is never taken to be less
SHARED_LEAST = 5e-3  # tau is never taken to be less: no load outweighs another because it ran longer


class Weights(Struct, frozen=True):
    """How each observation counts.

    scale_s: seconds that its error is relative to, shape (observations,). row: 0 = left out. unit: a load's iterations
    with or without prefill, 0, 1, 2... load: the load of each unit. weight: how much each unit counts, 1 / variance.
    """

    scale_s: Array
    row: Array
    unit: NDArray[np.int64]
    load: NDArray[np.int64]
    weight: Array


def weigh(o: Observations, rows: Array) -> Weights:
    """Weights from a fit with as many knots as the data bear. rows: its columns, shape (observations, columns)."""
    y = o.seconds
    prompt = o.sums()[:, 2] > 0
    load = np.unique(o.segment, return_inverse=True)[1].astype(np.int64)
    keys, unit = np.unique(2 * load + prompt, return_inverse=True)
    unit = unit.astype(np.int64)
    # observations of a load that held the same decodes and prefill share a number
    held = np.column_stack([load, o.sums()[:, [0, 2, 3]]])
    cell = np.unique(held, axis=0, return_inverse=True)[1].reshape(-1)
    many = np.bincount(cell)[cell] >= ALIKE
    center = np.where(many, _medians(y, cell), y)
    keep = ~many | ((y < 2.0 * center) & (y > 0.5 * center))
    scale, row = center, keep.astype(np.float64)
    alike = np.ones(len(keys))
    error = np.zeros(len(y))
    for _ in range(ROUNDS):
        grams = sum_up(rows / scale[:, None], y / scale, unit, row, keys // 2, alike)
        expected = rows @ solve(*grams.total())
        scale = np.clip(expected, 0.5 * center, 2.0 * center)
        error = (y - expected) / scale
        row = _robust(error, cell, many, prompt, keep)
    return Weights(scale, row, unit, (keys // 2).astype(np.int64), _unit_weights(error, row, unit, keys))


def _medians(values: Array, cell: NDArray[np.int64]) -> Array:
    """Each row's median over its cell."""
    in_order = values[np.lexsort((values, cell))]
    size = np.bincount(cell)
    first = np.cumsum(size) - size
    middle = (in_order[first + (size - 1) // 2] + in_order[first + size // 2]) / 2
    return np.asarray(middle[cell])


def _robust(
    error: Array, cell: NDArray[np.int64], many: NDArray[np.bool_], prompt: NDArray[np.bool_], keep: NDArray[np.bool_]
) -> Array:
    """Row weights: 0 for what is far off, Huber's for what is off."""
    row = keep.astype(np.float64)
    off = np.abs(error - np.where(many, _medians(error, cell), 0.0))
    kinds = product(((many, FAR, FAR_LEAST), (~many, LONE, LONE_LEAST)), (prompt, ~prompt))
    for group, far, least in ((rows & kind, far, least) for (rows, far, least), kind in kinds):
        if not np.any(group & keep):
            continue
        spread = max(1.4826 * float(np.median(off[group & keep])), FINEST)
        row[group] *= np.minimum(1.0, HUBER * spread / np.maximum(off[group], 1e-300))
        row[group & (off > max(far * spread, least))] = 0.0
    return row


def _unit_weights(error: Array, row: Array, unit: NDArray[np.int64], keys: NDArray[np.int64]) -> Array:
    """1 / (tau^2 + sigma^2 / n) per unit; sigma is pooled over units with and over units without prefill."""
    n = np.bincount(unit, row, minlength=len(keys))
    mean = np.bincount(unit, row * error, minlength=len(keys)) / np.maximum(n, 1e-300)
    within = np.bincount(unit, row * (error - mean[unit]) ** 2, minlength=len(keys))
    noise = np.zeros(len(keys))
    for kind in (0, 1):
        here = (keys % 2 == kind) & (n > 1.0)
        if np.any(here):
            noise[keys % 2 == kind] = within[here].sum() / np.maximum(n[here] - 1.0, 0.5).sum()
    used = n > 0
    noise = noise / np.maximum(n, 1.0)
    shared = float(np.mean(mean[used] ** 2 - noise[used])) if np.any(used) else 0.0
    return np.where(used, 1.0 / (max(shared, SHARED_LEAST**2) + noise), 0.0)


TWICE, APART = 2.0, 1.5  # batch sizes and prompts; contexts
ALONE = 1e-7  # share of a column's square that no other column explains: below it the others explain the column
MOSTLY, VAGUE = 0.5, 0.1  # of a variance, of a coefficient: see `resting_on`


class Prior(Struct, frozen=True):
    """Durations from elsewhere (a roofline), for what a source does not measure.

    relative_sigma: how far off they may be, all of them together by one factor. So the whole prior counts as one
    observation of that spread, and measurements of a few per cent outweigh it wherever there are any. source: in words.
    """

    observations: Observations
    relative_sigma: float
    source: str = "a prior"


def lacking(o: Observations, prior: Prior | None) -> list[Problem]:
    """All that is missing for observations and prior to tell the coefficients; nothing where they can."""
    wrong = []
    if prior is not None and not (0.0 < prior.relative_sigma < np.inf and len(prior.observations)):
        value = (prior.relative_sigma, len(prior.observations))
        wrong.append(Problem("prior", value, "a spread > 0 and observations", "give both, or no prior"))
    for name, part in (("observations", o), ("prior", prior.observations if prior else None)):
        if part is not None and not _sound(part):
            rule = "finite numbers, seconds > 0, every one with an iteration that held something"
            wrong.append(Problem(name, units.plural(len(part), "duration"), rule, "leave out what was not measured"))
    if not wrong and prior is None:
        decoding, prompt = o.decodes > 0, o.prefill_tokens > 0
        decodes, prompts = o.decodes[decoding], o.prefill_tokens[prompt]
        remedy = (
            "measure with fleetsim calibrate, add what is missing, or fill it in: --gpu and --model give a roofline"
        )
        for name, held, ratio, rule in (
            ("decodes", decodes, TWICE, "decoding at two batch sizes, one at least twice the other"),
            ("context tokens per decode", o.kv_tokens[decoding] / decodes, APART,
             "decoding at two contexts, one at least 1.5 times the other"),
            ("prefill_tokens", prompts, TWICE, "prompts of two lengths, one at least twice the other"),
        ):  # fmt: skip
            if not len(held) or held.max() < ratio * held.min():
                span = f"{held.min():g} to {held.max():g}" if len(held) else "none"
                wrong.append(Problem(f"observations: {name}", span, f"needs {rule}", remedy))
    if not wrong and not len(o):
        wrong = [Problem("observations", "none", "must be at least one duration", "measure, or use the prior as it is")]
    return wrong


def _sound(o: Observations) -> bool:
    if any(not np.all(np.isfinite(v)) or np.any(v < 0) for v in (o.seconds, o.overheads, o.held)):
        return False
    complete = np.array_equal(np.unique(o.of), np.arange(len(o))) and bool(np.all(np.diff(o.of) >= 0))
    return complete and bool(np.all(o.seconds > 0) and np.all(o.tokens > 0))


def separable(xx: Array) -> tuple[NDArray[np.bool_], tuple[str, ...]]:
    """Which linear coefficients may be above 0, and what was taken as 0 because nothing tells it.

    xx: the weighted X'X of everything, f's columns first. per_prefill_token_s is left at 0: t does not change when c
    is added to every slope of f and taken from both per_seq_s and per_prefill_token_s, so one of the two can be 0.
    """
    free = np.ones(len(LINEAR), np.bool_)
    free[PREFILL] = False
    free &= np.diag(xx)[-len(LINEAR) :] > 0
    assumed = []
    for j, reason in (
        (PAIRS, "prompts and chunks of one length only: part of f"),
        (SEQ, "no prefill beside decodes: part of f"),
    ):
        use = np.append(np.ones(len(xx) - len(LINEAR), np.bool_), free)
        if not free[j]:
            continue
        # the share of its column's square that the other columns do not explain
        root, _ = factor(xx[np.ix_(use, use)])
        own = np.linalg.solve(root.T, np.flatnonzero(use) == len(xx) - len(LINEAR) + j)
        if 1.0 / float(np.sum(own**2)) < ALONE:
            free[j] = False
            assumed.append(f"{LINEAR[j]} = 0 ({reason})")
    return free, tuple(assumed)


def resting_on(
    prior: Prior, data: Array, added: Array, basis: Basis, free: NDArray[np.bool_], c: Array
) -> tuple[str, ...]:
    """Which coefficients rest mostly on the prior: more than half of what is known of them comes from it, and without
    it they would be known to no better than 10 %.

    data, added: weighted X'X of the measurements and of the prior. free: linear coefficients in use. c: the fit.
    """
    use = np.flatnonzero(with_curve(free, len(c)) & (np.diag(data + added) > 0))
    block = np.ix_(use, use)
    width = len(basis.knots)
    asked = np.zeros((width + len(LINEAR), len(c)))
    asked[:width, :width] = basis.curve(np.asarray(basis.knots))
    asked[:width, width + SEQ] = basis.knots  # f alone is not measured, f(n) + per_seq_s n is: n decodes
    asked[width:, width:] = np.eye(len(LINEAR))
    everything = _variances(data[block] + added[block], asked[:, use])
    alone = _variances(data[block] + 1e-3 * added[block], asked[:, use])
    rests = (everything < MOSTLY * alone) & (alone > (VAGUE * (asked @ c)) ** 2)
    out = [f"{LINEAR[i]}: from {prior.source}" for i in range(len(LINEAR)) if free[i] and rests[width + i]]
    knots = [f"{k:g}" for k, r in zip(basis.knots, rests[:width], strict=True) if r]
    if knots:
        out.append(f"f at {', '.join(knots)} tokens: from {prior.source}")
    return tuple(out)


def _variances(xx: Array, asked: Array) -> Array:
    root, length = factor(xx)
    half = np.linalg.solve(root.T, (asked / length).T)
    return np.asarray(np.sum(half**2, axis=0))


def spans(o: Observations) -> dict[str, tuple[float, float] | None]:
    """Lowest and highest decodes, K and prefill tokens of the iterations that held any."""
    held = {
        "decodes": o.decodes[o.decodes > 0],
        "kv_tokens": o.kv_tokens[o.decodes > 0],
        "prefill_tokens": o.prefill_tokens[o.prefill_tokens > 0],
    }
    return {name: (float(v.min()), float(v.max())) if len(v) else None for name, v in held.items()}


def held_by(o: Observations, unit: NDArray[np.int64], units: int) -> Array:
    """What each unit's observations held on average: decodes, K, prefill tokens, pairs, shape (units, 4)."""
    n = np.maximum(np.bincount(unit, minlength=units), 1)
    return np.column_stack([np.bincount(unit, v, minlength=units) / n for v in o.sums().T])
