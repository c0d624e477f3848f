"""What a profile measured, beside what it predicts: the numbers behind its tables, its pictures and its JSON.

Plain Python: a profile is shown in less time than numpy takes to import.
"""

from __future__ import annotations

from collections.abc import Sequence
from statistics import median

from msgspec import Struct

from fleetsim import units
from fleetsim.config.engine_profile import BatchCheck, Coefficients, Point, Profile
from fleetsim.config.iteration import curve_s, iteration_s
from fleetsim.tell.charts.axes import ChartAxis, from_zero, log_axis
from fleetsim.tell.charts.chart import Chart, ChartRow, ChartSeries, MarkLook, Panel, Plot, RowMark, Rows, look, shade

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


def swept_drafts(profile: Profile) -> float:
    """Tokens drafted for each decode in the loads that a profile measured."""
    return profile.speculation.swept_tokens if profile.speculation is not None else 0.0


def rows_of(profile: Profile, kind: str) -> tuple[PointRow, ...]:
    """The points of a kind (decode, prefill, mixed) with their predictions, by context, decodes, prefill tokens."""
    found = []
    each = 1.0 + sum(profile.speculation.acceptance) if profile.speculation is not None else 1.0  # tokens of a decode
    for p in profile.points:
        if p.kind != kind or p.seconds <= 0:
            continue
        held = p.decodes, p.prefill_tokens, p.kv_tokens, p.attn_pairs
        predicted = seconds_of(profile.coefficients, *held, drafted=swept_drafts(profile))
        context = p.kv_tokens / p.decodes if p.decodes > 0 else 0.0
        made = p.decodes * each or p.prefill_tokens
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
    """What it is, how good it is, how fast decoding was where it was measured: a sentence each."""
    said = what_it_is(profile), how_good(profile)
    best = max(rows_of(profile, "decode"), key=lambda r: r.tok_s, default=None)
    if best is None:
        return said
    many = units.plural(round(best.point.decodes), "sequence")
    return (*said, f"Up to {best.tok_s:,.0f} output tok/s, measured with {many} of {best.context:,.0f} tokens.")


def what_it_is(profile: Profile) -> str:
    """The engine that was measured, on what, when, how."""
    p = profile.provenance
    gpu = f"{p.device}{f' x {p.tp}' if p.tp else ''}"
    engine = f"{p.engine} {p.engine_version}".strip() or "an engine of no name"
    model = " ".join(text for text in (p.model or "a model of no name", p.dtype) if text)
    if profile.kind == "derived" and p.source == "roofline":
        return f"An estimate, not a measurement: {model} on {gpu}, from the data sheet and the model's shape."
    if p.source.startswith("roofline calibrated"):
        return f"An estimate, {p.source.removeprefix('roofline ')}: {model} on {gpu}."
    if profile.kind == "derived":
        date = f", {p.date}" if p.date else ""
        return f"Derived from {p.source or 'an unnamed source'}{date}: {model} on {gpu}, {engine}."
    return f"Measured{f' on {p.date}' if p.date else ''}: {model} on {gpu}, {engine}."


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
        return (
            f"Predicts {units.plural(len(errors), 'batch')} kept out of the fit: makespan off by "
            f"{units.share(median(errors))} in the "
            f"median, {units.share(max(errors))} at worst; the requests' finish times by {units.share(finish)} in the "
            "median of the worst batch."
        )
    if e.median is not None:
        most = f", {units.share(e.worst)} at worst" if e.worst is not None else ""
        most = most or (f", 90 % within {units.share(e.p90)}" if e.p90 is not None else "")
        return f"Its error: {units.share(e.median)} in the median{most}{f' ({e.what})' if e.what else ''}."
    return "No error is on record for it: no batch was kept out of the fit."


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


# --- Pictures of a profile: what was measured against what is predicted.

# Told apart without colour as well: each series has a symbol of its own.
_SYMBOLS = ("circle", "square", "diamond", "triangle", "cross", "x", "star", "circle-open")
_KINDS = (("decode", look(0)), ("prefill", look(1)), ("mixed", look(2)))
_GOOD = 0.05  # the band that the pictures draw: what `profile check` allows
_MS = 1e3


def charts(profile: Profile) -> tuple[Chart, ...]:
    """All charts that have something to show, in reading order."""
    made = (_batches(profile), _decodes(profile), _prompts(profile), _errors(profile))
    return tuple(chart for chart in made if chart is not None)


def _batches(profile: Profile) -> Chart | None:
    checks = profile.checks
    if not checks:
        return None
    rows = []
    for c in checks:
        told, both = f"{c.name}: {batch_words(c)}", (("measured", c.makespan_s), ("predicted", c.predicted_s))
        said = f"{c.makespan_s:,.1f} s, predicted {c.predicted_s:,.1f} s ({units.change(c.makespan_error)})"
        rows.append(ChartRow(c.name, said, tuple(RowMark(key, s, base=0.0, said=told) for key, s in both)))
    worst = max(checks, key=lambda c: abs(c.makespan_error))
    x = from_zero("seconds", [v for c in checks for v in (c.makespan_s, c.predicted_s)], grid=False)
    words = (
        "RL-like batches that the fit never saw, run on the engine and then predicted by the simulator from their "
        "lengths alone: seconds from the first submission to the last token. "
        f"The worst, {worst.name}: {batch_words(worst)}."
    )
    looks = {"measured": ("measured", look(0)), "predicted": ("predicted", look(1))}
    return Chart("batches", "Batches kept out of the fit", words, Rows(x, tuple(rows), looks))


def _decodes(profile: Profile) -> Chart | None:
    rows = [r for r in rows_of(profile, "decode") if r.point.decodes > 0]
    if not rows:
        return None
    contexts = by_context(rows)
    series: list[ChartSeries] = []
    for i, (context, group) in enumerate(contexts):
        style = MarkLook(shade(i, len(contexts)), symbol=_SYMBOLS[i % len(_SYMBOLS)])
        name, (fewest, most) = f"{context:,.0f} tokens of context", (group[0].point.decodes, group[-1].point.decodes)
        line = decode_line(profile.coefficients, context, fewest, most, swept_drafts(profile))
        series.append(ChartSeries("", "line", [b for b, _ in line], [_MS * s for _, s in line], style))
        told = [
            f"{units.plural(round(r.point.decodes), 'sequence')}, context {r.context:,.0f}: {_both(r)}" for r in group
        ]
        x, y = [r.point.decodes for r in group], [_MS * r.point.seconds for r in group]
        series.append(ChartSeries(name, "dots", x, y, style, said=told))
    seconds = [s for r in rows for s in (r.point.seconds, r.predicted_s)]
    x = log_axis("sequences decoding", min(r.point.decodes for r in rows), max(r.point.decodes for r in rows))
    y = log_axis("ms per iteration", _MS * min(seconds), _MS * max(seconds))
    first, last = contexts[0][1][-1], contexts[-1][1][-1]
    words = (
        "Symbols are measured, lines are predicted. With "
        f"{units.plural(round(first.point.decodes), 'sequence')} of {first.context:,.0f} "
        f"tokens an iteration takes {_MS * first.point.seconds:,.1f} ms"
    )
    if len(contexts) > 1:
        words += (
            f", with {last.point.decodes:,.0f} of {last.context:,.0f} tokens {_MS * last.point.seconds:,.1f} ms: "
            "what is read from the KV cache grows with the context"
        )
    return Chart("decodes", "Decoding", f"{words}.", Plot(x, (Panel(y, tuple(series), height_px=340),)))


def _both(r: PointRow) -> str:
    return (
        f"measured {_MS * r.point.seconds:,.2f} ms, predicted {_MS * r.predicted_s:,.2f} ms ({units.change(r.error)}), "
        f"{r.tok_s:,.0f} tok/s"
    )


def _prompts(profile: Profile) -> Chart | None:
    rows = [r for r in rows_of(profile, "prefill") if r.point.prefill_tokens > 0]
    if not rows:
        return None
    x = [r.point.prefill_tokens for r in rows]
    told = [f"{r.point.prefill_tokens:,.0f} prefill tokens: {_both(r)}" for r in rows]
    predicted, measured = [_MS * r.predicted_s for r in rows], [_MS * r.point.seconds for r in rows]
    series = (
        ChartSeries("measured", "dots", x, measured, MarkLook("accent", symbol="circle-open"), said=told),
        ChartSeries("predicted", "dots", x, predicted, MarkLook("second", symbol="x"), said=told),
    )
    y = log_axis("ms per iteration", min(*predicted, *measured), max(*predicted, *measured))
    plot = Plot(log_axis("prefill tokens in the iteration", min(x), max(x)), (Panel(y, series, height_px=280),))
    best = max(rows, key=lambda r: r.tok_s)
    words = (
        f"Iterations that only compute prompts. The fastest, of {best.point.prefill_tokens:,.0f} tokens, computes "
        f"{best.tok_s:,.0f} tok/s. Points above one another have the same tokens in longer contexts."
    )
    return Chart("prompts", "Computing prompts", words, plot)


def _errors(profile: Profile) -> Chart | None:
    rows = {kind: rows_of(profile, kind) for kind, _ in _KINDS}
    every = [r for found in rows.values() for r in found]
    if not every:
        return None
    series = tuple(
        ChartSeries(
            kind, "dots", [_MS * r.point.seconds for r in rows[kind]], [100 * r.error for r in rows[kind]], style,
            said=[f"{kind}, {_MS * r.point.seconds:,.2f} ms: {units.change(r.error)}" for r in rows[kind]],
        )
        for kind, style in _KINDS
        if rows[kind]
    )  # fmt: skip
    seconds = [r.point.seconds for r in every]
    most = max(100 * _GOOD, *(abs(100 * r.error) for r in every)) * 1.15
    y = ChartAxis("error of the prediction, %", -most, most, after=" %")
    panel = Panel(y, series, bands=((-100 * _GOOD, 100 * _GOOD),), height_px=260)
    x = log_axis("ms per iteration, measured", _MS * min(seconds), _MS * max(seconds))
    inside = sum(abs(r.error) <= _GOOD for r in every)
    words = (
        f"Predicted over measured, less one, for every load of the sweep: {inside} of {len(every)} lie within "
        f"{units.limit(_GOOD)} (the band). A slope or a bow would say that the model misses something."
    )
    return Chart("errors", "Errors of single iterations", words, Plot(x, (panel,)))
