"""A profile in sentences: what it is, how good, how fast."""

from __future__ import annotations

from typing import TYPE_CHECKING

from fleetsim import units
from fleetsim.calibrate.points import rows_of

if TYPE_CHECKING:
    from fleetsim.config.engine_profile import BatchCheck, Profile


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
