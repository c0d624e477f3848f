"""Pictures of a profile: what was measured against what is predicted."""

from __future__ import annotations

from collections.abc import Sequence

from fleetsim import units
from fleetsim.calibrate.points import PointRow, batch_words, by_context, decode_line, rows_of, swept_drafts
from fleetsim.config.engine_profile import Profile
from fleetsim.tell.charts.axes import ChartAxis, from_zero, log_axis
from fleetsim.tell.charts.chart import Chart, ChartRow, ChartSeries, MarkLook, Panel, Plot, RowMark, Rows, look, shade

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
        told = f"{c.name}: {batch_words(c)}"
        marks = (
            RowMark("measured", c.makespan_s, base=0.0, said=told),
            RowMark("predicted", c.predicted_s, base=0.0, said=told),
        )
        said = f"{c.makespan_s:,.1f} s, predicted {c.predicted_s:,.1f} s ({units.change(c.makespan_error)})"
        rows.append(ChartRow(c.name, said, marks))
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
        series.append(_dots(name, [r.point.decodes for r in group], group, style, [_decode_words(r) for r in group]))
    seconds = [s for r in rows for s in (r.point.seconds, r.predicted_s)]
    x = log_axis("sequences decoding", min(r.point.decodes for r in rows), max(r.point.decodes for r in rows))
    y = log_axis("ms per iteration", _MS * min(seconds), _MS * max(seconds))
    first, last = contexts[0][1][-1], contexts[-1][1][-1]
    words = (
        f"Symbols are measured, lines are predicted. With {first.point.decodes:,.0f} sequences of {first.context:,.0f} "
        f"tokens an iteration takes {_MS * first.point.seconds:,.1f} ms"
    )
    if len(contexts) > 1:
        words += (
            f", with {last.point.decodes:,.0f} of {last.context:,.0f} tokens {_MS * last.point.seconds:,.1f} ms: "
            "what is read from the KV cache grows with the context"
        )
    return Chart("decodes", "Decoding", f"{words}.", Plot(x, (Panel(y, tuple(series), height_px=340),)))


def _dots(name: str, x: list[float], rows: Sequence[PointRow], style: MarkLook, said: list[str]) -> ChartSeries:
    """What was measured at each load."""
    return ChartSeries(name, "dots", x, [_MS * r.point.seconds for r in rows], style, said=said)


def _decode_words(r: PointRow) -> str:
    return f"{r.point.decodes:,.0f} sequences, context {r.context:,.0f}: {_both(r)}"


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
    predicted = [_MS * r.predicted_s for r in rows]
    series = (
        _dots("measured", x, rows, MarkLook("accent", symbol="circle-open"), told),
        ChartSeries("predicted", "dots", x, predicted, MarkLook("second", symbol="x"), said=told),
    )
    every = [*predicted, *(_MS * r.point.seconds for r in rows)]
    plot = Plot(
        log_axis("prefill tokens in the iteration", min(x), max(x)),
        (Panel(log_axis("ms per iteration", min(every), max(every)), series, height_px=280),),
    )
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
