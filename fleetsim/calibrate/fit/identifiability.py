"""What the observations can tell, and what they cannot."""

from __future__ import annotations

import numpy as np
from numpy.typing import NDArray

from fleetsim.calibrate.fit.design import LINEAR, PAIRS, PREFILL, SEQ, Array, Basis, factor
from fleetsim.calibrate.fit.observations import PER_DURATION, PER_ITERATION, Observations
from fleetsim.calibrate.fit.outliers import per_observation
from fleetsim.dataclass import dataclass
from fleetsim.errors import InputError, Problem

TWICE, APART = 2.0, 1.5  # batch sizes and prompts; contexts
ALONE = 1e-7  # share of a column's square that no other column explains: below it the others explain the column
MOSTLY, VAGUE = 0.5, 0.1  # of a variance, of a coefficient: see `resting_on`


@dataclass(frozen=True, slots=True)
class Prior:
    """Durations from elsewhere (a roofline), for what a source does not measure.

    relative_sigma: how far off they may be, all of them together by one factor. So the whole prior counts as one
    observation of that spread, and measurements of a few per cent outweigh it wherever there are any. source: in words.
    """

    observations: Observations
    relative_sigma: float
    source: str = "a prior"


def require(o: Observations, prior: Prior | None) -> None:
    """Raises InputError, saying all that is missing, unless observations and prior can tell the coefficients."""
    wrong = []
    if prior is not None and not (0.0 < prior.relative_sigma < np.inf and len(prior.observations)):
        value = (prior.relative_sigma, len(prior.observations))
        wrong.append(Problem("prior", value, "a spread > 0 and observations", "give both, or no prior"))
    for name, part in (("observations", o), ("prior", prior.observations if prior else None)):
        if part is not None and not _sound(part):
            rule = "finite numbers, seconds > 0, every one with an iteration that held something"
            wrong.append(Problem(name, f"{len(part)} durations", rule, "leave out what was not measured"))
    if not wrong and prior is None:
        wrong = _missing(o)
    if not wrong and not len(o):
        wrong = [Problem("observations", "none", "at least one duration", "measure, or use the prior as it is")]
    if wrong:
        raise InputError(wrong)


def _sound(o: Observations) -> bool:
    columns = [getattr(o, name) for name in (*PER_DURATION, *PER_ITERATION) if name != "segment"]
    if any(not np.all(np.isfinite(v)) or np.any(v < 0) for v in columns) or np.any(o.seconds <= 0):
        return False
    n = o.tokens
    complete = np.array_equal(np.unique(o.of), np.arange(len(o))) and bool(np.all(np.diff(o.of) >= 0))
    return complete and bool(np.all(n > 0))


def _missing(o: Observations) -> list[Problem]:
    """What a fit without a prior lacks."""
    decoding, prompt = o.decodes > 0, o.prefill_tokens > 0
    context = o.kv_tokens[decoding] / o.decodes[decoding]
    checks = (
        ("decodes", o.decodes[decoding], TWICE, "decoding at two batch sizes, one at least twice the other"),
        ("context tokens per decode", context, APART, "decoding at two contexts, one at least 1.5 times the other"),
        ("prefill_tokens", o.prefill_tokens[prompt], TWICE, "prompts of two lengths, one at least twice the other"),
    )
    remedy = "measure with fleetsim calibrate, add what is missing, or fill it in: --gpu and --model give a roofline"
    return [
        Problem(f"observations: {name}", _span(values), f"needs {rule}", remedy)
        for name, values, ratio, rule in checks
        if not len(values) or values.max() < ratio * values.min()
    ]


def _span(values: Array) -> str:
    return f"{values.min():g} to {values.max():g}" if len(values) else "none"


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
        place = np.flatnonzero(use).tolist().index(len(xx) - len(LINEAR) + j) if free[j] else -1
        if place >= 0 and _own_share(xx[np.ix_(use, use)], place) < ALONE:
            free[j] = False
            assumed.append(f"{LINEAR[j]} = 0 ({reason})")
    return free, tuple(assumed)


def _own_share(xx: Array, j: int) -> float:
    """The share of column j's square that the other columns do not explain."""
    root, _ = factor(xx)
    unit = np.zeros(len(xx))
    unit[j] = 1.0
    return 1.0 / float(np.sum(np.linalg.solve(root.T, unit) ** 2))


def resting_on(
    prior: Prior, data: Array, added: Array, basis: Basis, free: NDArray[np.bool_], c: Array
) -> tuple[str, ...]:
    """Which coefficients rest mostly on the prior: more than half of what is known of them comes from it, and without
    it they would be known to no better than 10 %.

    data, added: weighted X'X of the measurements and of the prior. free: columns in use. c: the fit.
    """
    use = np.flatnonzero(free & (np.diag(data + added) > 0))
    block = np.ix_(use, use)
    width = len(basis.knots)
    asked = np.zeros((width + len(LINEAR), len(free)))
    asked[:width, :width] = basis.curve(np.asarray(basis.knots))
    asked[:width, width + SEQ] = basis.knots  # f alone is not measured, f(n) + per_seq_s n is: n decodes
    asked[width:, width:] = np.eye(len(LINEAR))
    everything = _variances(data[block] + added[block], asked[:, use])
    alone = _variances(data[block] + 1e-3 * added[block], asked[:, use])
    rests = (everything < MOSTLY * alone) & (alone > (VAGUE * (asked @ c)) ** 2)
    out = [f"{LINEAR[i]}: from {prior.source}" for i in range(len(LINEAR)) if free[width + i] and rests[width + i]]
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
    columns = (o.decodes, o.kv_tokens, o.prefill_tokens, o.attn_pairs)
    return np.column_stack([np.bincount(unit, per_observation(o, v), minlength=units) / n for v in columns])
