"""Pictures of a profile: what was measured against what is predicted."""

from __future__ import annotations

from typing import Any

from fleetsim import units
from fleetsim.calibrate.points import PointRow, batch_words, by_context, decode_line, rows_of, swept_drafts
from fleetsim.config.engine_profile import Profile
from fleetsim.tell.charts.chart import LEGEND, Chart, axis, log_axis, plain_text, shade
from fleetsim.tell.charts.parts import wrapped

# Told apart without colour as well: each series has a symbol of its own.
_SYMBOLS = ("circle", "square", "diamond", "triangle-up", "cross", "x", "star", "hexagon")
_KINDS = (("decode", "accent", "circle"), ("prefill", "second", "square"), ("mixed", "third", "diamond"))
_GOOD = 0.05  # the band that the pictures draw: what `profile check` allows
_MS = 1e3


def charts(profile: Profile) -> tuple[Chart, ...]:
    """All charts that have something to show, in reading order."""
    made = (_batches(profile), _decodes(profile), _prompts(profile), _errors(profile))
    return tuple(chart for chart in made if chart is not None)


def _markers(name: str, x: list[float], y: list[Any], colour: str, symbol: str, **more: Any) -> dict[str, Any]:
    return {
        "type": "scatter",
        "mode": "markers",
        "name": name,
        "x": x,
        "y": y,
        "meta": {"colour": colour},
        "marker": {"symbol": symbol, "size": 9, "line": {"width": 1.5}},
        "hoverinfo": "text",
        **more,
    }


def _batches(profile: Profile) -> Chart | None:
    checks = profile.checks
    if not checks:
        return None
    # Names stand above their bars, not beside them: a phone has no room there.
    places = [float(i) for i in range(len(checks))]
    series = (
        ("measured", [c.makespan_s for c in checks], "accent", "", [""] * len(checks)),
        (
            "predicted",
            [c.predicted_s for c in checks],
            "second",
            "/",
            [f" ({units.change(c.makespan_error)})" for c in checks],
        ),
    )
    told = [plain_text(batch_words(c)) for c in checks]
    bars = tuple(
        {
            "type": "bar",
            "orientation": "h",
            "name": name,
            "y": places,
            "x": seconds,
            "meta": {"colour": colour},
            "marker": {"line": {"width": 1.5}, "pattern": {"shape": pattern, "solidity": 0.25}},
            "text": [f"{s:,.1f} s{error}" for s, error in zip(seconds, errors, strict=True)],
            "textposition": "outside",
            "cliponaxis": False,
            "hovertext": told,
            "hoverinfo": "text",
        }
        for name, seconds, colour, pattern, errors in series
    )
    names = [
        {"x": 0, "y": y, "text": wrapped(c.name, 42), "showarrow": False, "align": "left", "xanchor": "left",
         "yanchor": "bottom", "yshift": 24}
        for y, c in zip(places, checks, strict=True)
    ]  # fmt: skip
    worst = max(checks, key=lambda c: abs(c.makespan_error))
    longest = max(max(c.makespan_s, c.predicted_s) for c in checks)
    layout = {
        "barmode": "group",
        "bargap": 0.54,
        "annotations": names,
        "xaxis": axis("seconds", range=[0, 1.65 * longest or 1.0]),
        "yaxis": axis("", showticklabels=False, showgrid=False, ticks="", range=[len(checks) - 0.6, -0.75]),
    }
    words = (
        "RL-like batches that the fit never saw, run on the engine and then predicted by the simulator from their "
        "lengths alone: seconds from the first submission to the last token. "
        f"The worst, {worst.name}: {batch_words(worst)}."
    )
    return Chart("batches", "Batches kept out of the fit", words, bars, layout, 110 + 100 * len(checks))


def _decodes(profile: Profile) -> Chart | None:
    rows = [r for r in rows_of(profile, "decode") if r.point.decodes > 0]
    if not rows:
        return None
    contexts = by_context(rows)
    data: list[dict[str, Any]] = []
    for i, (context, group) in enumerate(contexts):
        colour, symbol = shade(i, len(contexts)), _SYMBOLS[i % len(_SYMBOLS)]
        name = f"{context:,.0f}"
        fewest, most = group[0].point.decodes, group[-1].point.decodes
        line = decode_line(profile.coefficients, context, fewest, most, swept_drafts(profile))
        data.append(
            {
                "type": "scatter",
                "mode": "lines",
                "x": [b for b, _ in line],
                "y": [_MS * s for _, s in line],
                "meta": {"colour": colour},
                "line": {"width": 1.5},
                "legendgroup": name,
                "showlegend": False,
                "hoverinfo": "skip",
            }
        )
        x, y = [r.point.decodes for r in group], [_MS * r.point.seconds for r in group]
        data.append(_markers(name, x, y, colour, symbol, legendgroup=name, text=[_decode_words(r) for r in group]))
    seconds = [s for r in rows for s in (r.point.seconds, r.predicted_s)]
    layout = {
        "legend": {**LEGEND, "title": {"text": "tokens of context", "side": "top"}},
        "xaxis": log_axis("sequences decoding", min(r.point.decodes for r in rows), max(r.point.decodes for r in rows)),
        "yaxis": log_axis("ms per iteration", _MS * min(seconds), _MS * max(seconds)),
    }
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
    return Chart("decodes", "Decoding", f"{words}.", tuple(data), layout, 460)


def _decode_words(r: PointRow) -> str:
    return (
        f"{r.point.decodes:,.0f} sequences, context {r.context:,.0f}<br>measured {_MS * r.point.seconds:,.2f} ms, "
        f"predicted {_MS * r.predicted_s:,.2f} ms ({units.change(r.error)})<br>{r.tok_s:,.0f} tok/s"
    )


def _prompts(profile: Profile) -> Chart | None:
    rows = [r for r in rows_of(profile, "prefill") if r.point.prefill_tokens > 0]
    if not rows:
        return None
    x = [r.point.prefill_tokens for r in rows]
    told = [
        f"{r.point.prefill_tokens:,.0f} prefill tokens<br>measured {_MS * r.point.seconds:,.2f} ms, predicted "
        f"{_MS * r.predicted_s:,.2f} ms ({units.change(r.error)})<br>{r.tok_s:,.0f} tok/s"
        for r in rows
    ]
    measured = [_MS * r.point.seconds for r in rows]
    predicted = [_MS * r.predicted_s for r in rows]
    data = (
        _markers("measured", x, measured, "accent", "circle-open", text=told),
        _markers("predicted", x, predicted, "second", "x-thin", text=told),
    )
    layout = {
        "xaxis": log_axis("prefill tokens in the iteration", min(x), max(x)),
        "yaxis": log_axis("ms per iteration", min(measured + predicted), max(measured + predicted)),
    }
    best = max(rows, key=lambda r: r.tok_s)
    words = (
        f"Iterations that only compute prompts. The fastest, of {best.point.prefill_tokens:,.0f} tokens, computes "
        f"{best.tok_s:,.0f} tok/s. Points above one another have the same tokens in longer contexts."
    )
    return Chart("prompts", "Computing prompts", words, data, layout)


def _errors(profile: Profile) -> Chart | None:
    rows = {kind: rows_of(profile, kind) for kind, _, _ in _KINDS}
    every = [r for found in rows.values() for r in found]
    if not every:
        return None
    data = tuple(
        _markers(
            kind,
            [_MS * r.point.seconds for r in rows[kind]],
            [100 * r.error for r in rows[kind]],
            colour,
            symbol,
            text=[f"{kind}, {_MS * r.point.seconds:,.2f} ms: {units.change(r.error)}" for r in rows[kind]],
        )
        for kind, colour, symbol in _KINDS
        if rows[kind]
    )
    seconds = [r.point.seconds for r in every]
    most = max(100 * _GOOD, *(abs(100 * r.error) for r in every)) * 1.15
    band = {"type": "rect", "xref": "paper", "x0": 0, "x1": 1, "y0": -100 * _GOOD, "y1": 100 * _GOOD}
    layout = {
        "xaxis": log_axis("ms per iteration, measured", _MS * min(seconds), _MS * max(seconds)),
        "yaxis": axis(
            "error of the prediction, %", range=[-most, most], ticksuffix=" %", zeroline=True, zerolinewidth=1
        ),
        "shapes": [{**band, "line": {"width": 0}, "layer": "below"}],
    }
    inside = sum(abs(r.error) <= _GOOD for r in every)
    words = (
        f"Predicted over measured, less one, for every load of the sweep: {inside} of {len(every)} lie within "
        f"{units.limit(_GOOD)} (the band). A slope or a bow would say that the model misses something."
    )
    return Chart("errors", "Errors of single iterations", words, data, layout)
