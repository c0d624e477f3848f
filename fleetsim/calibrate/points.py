"""What a profile measured, beside what it predicts: the numbers behind its tables, its pictures and its JSON.

Plain Python: a profile is shown in less time than numpy takes to import.
"""

from __future__ import annotations

from collections.abc import Sequence
from typing import TYPE_CHECKING

from msgspec import Struct

from fleetsim import units
from fleetsim.config.engine_profile import Coefficients
from fleetsim.config.iteration import curve_s, iteration_s

if TYPE_CHECKING:
    from fleetsim.config.engine_profile import BatchCheck, Point, Profile

# Contexts of one sweep differ by the tokens that were decoded meanwhile; two sweeps differ by more.
_SAME_CONTEXT = 1.25


class PointRow(Struct, frozen=True):
    """A point and its prediction. context: KV tokens per decode. error: predicted / measured - 1. tok_s: at the
    measured seconds, with the acceptance of drafts that the profile has."""

    point: Point
    context: float
    predicted_s: float
    error: float
    tok_s: float


def seconds_of(
    c: Coefficients,
    decodes: float,
    prefill_tokens: float = 0.0,
    kv_tokens: float = 0.0,
    attn_pairs: float = 0.0,
    drafted: float = 0.0,
) -> float:
    """Seconds of an iteration of so much work, as `StepTime.seconds` has them. drafted: tokens for each decode."""
    per = (c.per_seq_s.value, c.per_prefill_token_s.value, c.per_kv_token_s.value, c.per_attn_pair_s.value)
    curve = c.knots_tokens, c.knot_seconds
    found = iteration_s(curve, per, (decodes, prefill_tokens, kv_tokens, attn_pairs))
    if not drafted:
        return found
    n = decodes + prefill_tokens
    return found + curve_s(*curve, n + drafted * decodes) - curve_s(*curve, n)


def tokens_each(profile: Profile) -> float:
    """Tokens that an iteration brings of each decode."""
    return 1.0 + sum(profile.speculation.acceptance) if profile.speculation is not None else 1.0


def swept_drafts(profile: Profile) -> float:
    """Tokens drafted for each decode in the loads that a profile measured."""
    return profile.speculation.swept_tokens if profile.speculation is not None else 0.0


def rows_of(profile: Profile, kind: str) -> tuple[PointRow, ...]:
    """The points of a kind (decode, prefill, mixed) with their predictions, by context, decodes, prefill tokens."""
    found = []
    for p in profile.points:
        if p.kind != kind or p.seconds <= 0:
            continue
        held = p.decodes, p.prefill_tokens, p.kv_tokens, p.attn_pairs
        predicted = seconds_of(profile.coefficients, *held, drafted=swept_drafts(profile))
        context = p.kv_tokens / p.decodes if p.decodes > 0 else 0.0
        made = p.decodes * tokens_each(profile) or p.prefill_tokens
        found.append(PointRow(p, context, predicted, predicted / p.seconds - 1.0, made / p.seconds))
    return tuple(sorted(found, key=lambda r: (r.context, r.point.decodes, r.point.prefill_tokens)))


def by_context(rows: Sequence[PointRow]) -> tuple[tuple[float, tuple[PointRow, ...]], ...]:
    """(median context, rows by decodes) of each context of a sweep, shortest first."""
    groups: list[list[PointRow]] = []
    for row in sorted(rows, key=lambda r: r.context):
        if groups and row.context <= max(1.0, groups[-1][0].context) * _SAME_CONTEXT:
            groups[-1].append(row)
        else:
            groups.append([row])
    return tuple((g[len(g) // 2].context, tuple(sorted(g, key=lambda r: r.point.decodes))) for g in groups)


def decode_line(
    c: Coefficients, context: float, fewest: float, most: float, drafted: float = 0.0
) -> list[tuple[float, float]]:
    """(decodes, predicted seconds) from `fewest` to `most` at one context: every knot, and eight steps per octave."""
    inner = [x for x in c.knots_tokens if fewest < x < most]
    step = fewest
    while step < most:
        inner.append(step)
        step *= 2 ** (1 / 8)
    return [(b, seconds_of(c, b, kv_tokens=b * context, drafted=drafted)) for b in sorted({*inner, most})]


def opening(profile: Profile) -> tuple[str, ...]:
    """What it is, how good it is, how fast the engine: a sentence each."""
    return (what_it_is(profile), how_good(profile), *how_fast(profile))


def what_it_is(profile: Profile) -> str:
    """The engine that was measured, on what, when, how."""
    p = profile.provenance
    gpu = f"{p.device}{f' x {p.tp}' if p.tp else ''}"
    engine = f"{p.engine} {p.engine_version}".strip() or "an engine of no name"
    model = " ".join(text for text in (p.model or "a model of no name", p.dtype) if text)
    if is_estimate(profile):
        return f"An estimate, not a measurement: {model} on {gpu}, from the data sheet and the model's shape."
    if p.source.startswith("roofline calibrated"):
        return f"An estimate, {p.source.removeprefix('roofline ')}: {model} on {gpu}."
    if profile.kind == "derived":
        date = f", {p.date}" if p.date else ""
        return f"Derived from {p.source or 'an unnamed source'}{date}: {model} on {gpu}, {engine}."
    return f"Measured{f' on {p.date}' if p.date else ''}: {model} on {gpu}, {engine}."


def is_estimate(profile: Profile) -> bool:
    """Whether nothing of a profile was measured by anybody."""
    return profile.kind == "derived" and profile.provenance.source == "roofline"


def how_good(profile: Profile) -> str:
    """The profile's error on batches that were kept out of the fit."""
    e = profile.error
    if profile.checks:
        errors = [abs(c.makespan_error) for c in profile.checks]
        finish = max(c.finish_error_median for c in profile.checks)
        if len(errors) == 1:
            return (
                f"Predicts a batch kept out of the fit: makespan off by {units.share(errors[0])}, the requests' finish "
                f"times by {units.share(finish)} in the median."
            )
        median = units.share(_median(errors))
        return (
            f"Predicts {len(errors)} batches kept out of the fit: makespan off by {median} in the "
            f"median, {units.share(max(errors))} at worst; the requests' finish times by {units.share(finish)} in the "
            "median of the worst batch."
        )
    if e.median is not None:
        worst = f", {units.share(e.worst)} at worst" if e.worst is not None else ""
        return f"Its error: {units.share(e.median)} in the median{worst}{f' ({e.what})' if e.what else ''}."
    return "No error is on record for it: no batch was kept out of the fit."


def how_fast(profile: Profile) -> tuple[str, ...]:
    """The fastest decoding that was measured, as one sentence or none."""
    rows = rows_of(profile, "decode")
    if not rows:
        return ()
    best = max(rows, key=lambda r: r.tok_s)
    return (
        f"Up to {best.tok_s:,.0f} output tok/s, measured with {best.point.decodes:,.0f} sequences of "
        f"{best.context:,.0f} tokens.",
    )


def batch_words(check: BatchCheck) -> str:
    """What is worth knowing of a kept-out batch beside its two makespans."""
    told = [
        f"{units.change(check.makespan_error)} makespan",
        f"finish times {units.share(check.finish_error_median)} (p90 {units.share(check.finish_error_p90)})",
    ]
    if check.preemptions or check.predicted_preemptions:
        told.append(f"{check.preemptions:,} preemptions, predicted {check.predicted_preemptions:,}")
    if check.length_scale < 1:
        told.append(f"responses at {units.share(check.length_scale)} of their planned length")
    return ", ".join(told)


def _median(values: list[float]) -> float:
    ordered, n = sorted(values), len(values)
    return (ordered[(n - 1) // 2] + ordered[n // 2]) / 2.0
