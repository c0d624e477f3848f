"""The step-time model fitted to durations: non-negative, relative errors, robust, with intervals."""

from __future__ import annotations

from collections.abc import Sequence

import numpy as np
from msgspec import Struct
from numpy.typing import NDArray

from fleetsim import units
from fleetsim.calibrate.fit.design import (
    LINEAR,
    OVERHEAD,
    PREFILL,
    SEQ,
    Array,
    Basis,
    Observations,
    candidates,
    expanded,
    in_a_row,
    solve,
    sum_up,
)
from fleetsim.calibrate.fit.identifiability import Prior, Weights, held_by, lacking, resting_on, separable, spans, weigh
from fleetsim.calibrate.fit.knots import NEGLIGIBLE, Candidates, KnotChoice, choose, draws, folds, interval
from fleetsim.config.engine_profile import Coefficients, EstimateFields, FitError, Ranges
from fleetsim.engine.step_time import StepTime
from fleetsim.errors import Problems
from fleetsim.records import replace

DRAWS = 400
LOST = 0.01  # of the time: outliers that took more are told
SLACK = 0.1  # of a prior's spread: a curve this near to it is as good as the prior itself

__all__ = ["Fit", "Prior", "fit"]


class Fit(Struct, frozen=True):
    """A fitted step-time model.

    coefficients: with 95 % intervals. error: on loads that the fit had not seen. ranges: what the observations held.
    padded: whether f is one of n padded up to the graph sizes. assumed: what the observations do not tell, in words.
    """

    step_time: StepTime
    coefficients: Coefficients
    error: FitError
    ranges: Ranges
    padded: bool
    assumed: tuple[str, ...]


class _Model(Struct, frozen=True):
    """One form of the model, its knots chosen. free: per linear coefficient; c: of the kept knots."""

    of: Candidates
    free: NDArray[np.bool_]
    choice: KnotChoice
    c: Array
    assumed: tuple[str, ...]


def fit(
    observations: Observations, *, graph_sizes: Sequence[int] = (), prior: Prior | None = None, seed: int = 0
) -> Fit:
    """Fits t = f(n) + g b + h p + beta K + delta A to durations; the same arguments give the same result.

    graph_sizes: batch sizes that an engine pads decodes up to; f becomes steps where that predicts better. prior: fills
    in what the observations do not tell. seed: of the bootstrap. Raises InputError where they are too few to tell.

    h is 0 unless g is 0 too and h predicts unseen loads clearly better: c added to all slopes of f and taken from both
    g and h changes no prediction, so one of the two can always be 0.
    """
    Problems(lacking(observations, prior)).stop()
    o = observations
    if prior is not None:  # the loads of a prior come after those that were measured
        first, own = o.segment.max(initial=-1) + 1, prior.observations.segment
        segment = (own - own.min(initial=0) + first).astype(np.int32)
        o = in_a_row([o, replace(prior.observations, segment=segment)])
    sizes = tuple(float(s) for s in sorted(set(graph_sizes)))
    tokens, beyond = _shaping(o, observations)
    basis = candidates(tokens, sizes, pad=False)
    rows = basis.rows(o)
    w = _with_prior(weigh(observations, rows[: len(observations)]), prior)
    measured = np.arange(len(w.load)) <= int(w.unit[: len(observations)].max())
    guessed = np.isin(np.arange(len(w.load)), w.unit[beyond])
    fold = folds(held_by(o, w.unit, len(w.load)), w.load)

    def model(rows: Array, basis: Basis) -> _Model:
        grams = sum_up(rows / w.scale_s[:, None], o.seconds / w.scale_s, w.unit, w.row, w.load, w.weight)
        slack = SLACK * prior.relative_sigma if prior else 0.0
        return _model(Candidates(rows, basis, grams, fold, measured, guessed, slack))

    best = model(rows, basis)
    if sizes:
        basis = candidates(tokens, sizes, pad=True)
        stepped = model(basis.rows(o), basis)
        if _clearly_better(stepped, best):
            best = stepped
    return _fit_of(best, observations, w, prior, seed)


def _shaping(o: Observations, measured: Observations) -> tuple[Array, NDArray[np.bool_]]:
    """Tokens n of the iterations that say where f bends, and which observations of a prior are among them.

    Where there are measurements they alone do; a prior shapes f below and beyond them. Otherwise f would wind between
    measured sizes to please a prior there.
    """
    n, own = o.tokens, measured.tokens
    beyond = (n < own.min()) | (n > own.max())
    uses = beyond | (np.arange(len(n)) < len(own))
    prior = np.zeros(len(o), np.bool_)
    prior[o.of[beyond]] = True
    return n[uses], prior


def _with_prior(w: Weights, prior: Prior | None) -> Weights:
    """The weights of the measurements, and those of a prior: every load of it alike, one observation in all."""
    if prior is None:
        return w
    p = prior.observations
    load = np.unique(p.segment, return_inverse=True)[1].astype(np.int64)
    n = int(load.max()) + 1
    return Weights(
        scale_s=np.concatenate([w.scale_s, p.seconds]),
        row=np.concatenate([w.row, np.ones(len(p))]),
        unit=np.concatenate([w.unit, load + len(w.load)]),
        load=np.concatenate([w.load, np.arange(n) + w.load.max(initial=-1) + 1]),
        weight=np.concatenate([w.weight, np.full(n, 1.0 / (n * prior.relative_sigma**2))]),
    )


def _model(of: Candidates) -> _Model:
    # With as many bends as batch sizes were measured, f alone could explain whatever else grows with them. What half of
    # the bends, the outer two among them, cannot explain counts as told; which bends stay is chosen later.
    half = np.arange(len(of.basis.knots)) % 2 == 0
    half[-1:] = True
    free, assumed = separable(of.kept(half).total()[0])

    def chosen(free: NDArray[np.bool_]) -> _Model:
        choice = choose(of, free)
        return _Model(of, free, choice, solve(*of.kept(choice.keep).total(), free), assumed)

    model = chosen(free)
    if free[SEQ] and model.c[len(model.c) - len(LINEAR) + SEQ] == 0.0:
        other = free.copy()
        other[SEQ], other[PREFILL] = False, True
        dearer = chosen(other)
        if _clearly_better(dearer, model):
            return dearer
    return model


def _clearly_better(a: _Model, b: _Model) -> bool:
    """Whether a predicts unseen measurements better than b by more than a standard error of the difference."""
    better = (b.choice.errors - a.choice.errors)[a.of.measured]
    return bool(better.mean() > better.std() / np.sqrt(len(better)) + NEGLIGIBLE)


def _fit_of(model: _Model, o: Observations, w: Weights, prior: Prior | None, seed: int) -> Fit:
    basis = model.of.basis.without(model.choice.keep)
    width = len(basis.knots)
    tokens = expanded(basis)
    curve = basis.curve(tokens) @ model.c[:width]
    # of a piecewise linear curve the ends are needed to draw it, and where the slope changes
    bends = np.ones(len(tokens), np.bool_)
    if len(tokens) > 2:
        past, gone = tokens[2:] - tokens[:-2], tokens[1:-1] - tokens[:-2]
        on_line = curve[:-2] + (curve[2:] - curve[:-2]) * gone / past
        bends[1:-1] = np.abs(on_line - curve[1:-1]) > 1e-9 * curve[-1]
    tokens, curve = tokens[bends], curve[bends]
    estimates = _estimates(model, tokens, np.append(curve, model.c[width:]), prior, seed)
    knots, linear = len(tokens), dict(zip(LINEAR, estimates[len(tokens) :], strict=True))
    overhead = linear.pop(LINEAR[OVERHEAD])
    assumed = model.assumed
    out = w.row[: len(o)] == 0.0
    expected = model.of.rows[: len(o)][out] @ model.of.basis.merged(model.choice.keep) @ model.c
    lost = float(np.sum(o.seconds[out] - expected) / np.sum(o.seconds))
    if lost >= LOST:  # whatever caused it may come again
        assumed += (f"{units.share(lost)} of the time measured went into outliers, which predictions leave out",)
    if prior is not None:
        kept, measured = model.of.kept(model.choice.keep), model.of.measured
        data, added = (kept.total(kept.weight * here)[0] for here in (measured, ~measured))
        assumed += resting_on(prior, data, added, basis, model.free, model.c)
    return Fit(
        step_time=StepTime(
            tuple(tokens.tolist()),
            tuple(e.value for e in estimates[:knots]),
            linear["per_seq_s"].value,
            linear["per_prefill_token_s"].value,
            linear["per_kv_token_s"].value,
            linear["per_attn_pair_s"].value,
            kind="measured",
            source=f"fitted to {units.plural(int(np.sum(w.row[: len(o)] > 0)), 'duration')}",
        ),
        coefficients=Coefficients(knots_tokens=tuple(tokens.tolist()), knots_s=tuple(estimates[:knots]), **linear),
        error=_error(model, o, w, overhead.value),
        ranges=Ranges(**spans(o)),
        padded=bool(basis.pad_to),
        assumed=assumed,
    )


def _estimates(model: _Model, tokens: Array, middle: Array, prior: Prior | None, seed: int) -> list[EstimateFields]:
    """f at the tokens and the linear coefficients, with intervals over all plausible choices of knots."""
    measured = np.zeros(model.of.grams.loads, np.bool_)
    measured[model.of.grams.load[model.of.measured]] = True
    rng = np.random.default_rng([seed, 0x6669])
    found = []
    each = -(-DRAWS // len(model.choice.plausible))
    for keep in model.choice.plausible:
        basis, grams = model.of.basis.without(keep), model.of.kept(keep)
        random = rng.standard_normal((each, 2 * len(measured) + 1))
        sigma = prior.relative_sigma if prior else 0.0
        drawn = draws(grams, solve(*grams.total(), model.free), model.free, measured, sigma, random)
        width = len(basis.knots)
        found.append(np.hstack([drawn[:, :width] @ basis.curve(tokens).T, drawn[:, width:]]))
    low, high = interval(np.vstack(found), middle)
    return [
        EstimateFields(value=units.short(v), ci_low=units.short(a), ci_high=units.short(b))
        for v, a, b in zip(middle, low, high, strict=True)
    ]


def _error(model: _Model, o: Observations, w: Weights, overhead_s: float) -> FitError:
    """Relative errors of the durations that count, each predicted by a fit to the other folds."""
    rows = model.of.rows[: len(o)] @ model.of.basis.merged(model.choice.keep)
    fold = model.of.fold[w.unit[: len(o)]]
    expected = np.zeros(len(o))
    for k, c in model.of.without_folds(model.choice.keep, model.free).items():
        expected[fold == k] = rows[fold == k] @ c
    used = w.row[: len(o)] > 0
    off = np.abs(expected[used] / o.seconds[used] - 1.0)
    return FitError(observations=int(used.sum()), left_out=int((~used).sum()), **spread_of(off), overhead_s=overhead_s)


def spread_of(off: Array) -> dict[str, float]:
    """The median of relative errors, and what nine of ten are below."""
    return {"median": units.short(float(np.median(off))), "p90": units.short(float(np.percentile(off, 90.0)))}
