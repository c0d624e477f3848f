"""Any `History`, for hypothesis, and whether two are the same to the last bit."""

from __future__ import annotations

from typing import Any

import numpy as np
from hypothesis import strategies as st
from hypothesis.extra import numpy as nps

from fleetsim.history.history import Buckets, Floats, History, InstanceId, Note, StepLog
from fleetsim.history.signals import SIGNALS

_texts = st.text(st.characters(codec="utf-8", exclude_characters="\x00"), max_size=12)
_labels = st.dictionaries(_texts, _texts, max_size=3)


def _names(kind: str, scope: str) -> list[str]:
    kinds = {"counter", "gauge"} if kind == "plain" else {kind}
    return [s.name for s in SIGNALS if s.kind in kinds and s.scope == scope]


def _array(draw: st.DrawFn, *shape: int) -> Floats:
    if draw(st.booleans()):
        return np.arange(int(np.prod(shape)), dtype=float).reshape(shape) / 3
    out: Floats = draw(nps.arrays(np.float64, shape, elements=st.floats(width=64)))
    return np.where(np.isnan(out), np.nan, out)


@st.composite
def histories(draw: st.DrawFn) -> History:
    """Up to 3 instances, 5 times, NaN and infinities anywhere, with or without a step log and histograms, which share
    their times."""
    t, n = draw(st.integers(1, 5)), draw(st.integers(0, 3))
    step_s = draw(st.floats(0.1, 1e4))
    start_s = draw(st.just(0.0) | st.floats(1, 2e9))
    times = np.array([start_s + step_s * k for k in range(t)])
    keys = draw(st.lists(st.tuples(_texts, _texts), min_size=n, max_size=n, unique=True))
    ids = tuple(InstanceId(name, engine, draw(_texts), draw(_labels)) for name, engine in sorted(keys))
    picked = {k: st.lists(st.sampled_from(v), unique=True, max_size=3) for k, v in {
        "values": _names("plain", "instance"), "fleet": _names("plain", "fleet"),
        "histograms": _names("histogram", "instance"),
    }.items()}  # fmt: skip
    histograms, h = {}, draw(st.integers(1, 3))
    for name in draw(picked["histograms"]) if n else ():
        le = [*sorted(draw(st.sets(st.floats(0.01, 1e6), max_size=3))), np.inf]
        histograms[name] = Buckets(
            np.array(le),
            np.array([times[0] + 300.0 * k for k in range(h)]),
            _array(draw, n, h, len(le)),
            _array(draw, n, h),
        )
    rows = draw(st.integers(0, 4))
    log = StepLog("verl", {"step": np.arange(rows, dtype=float), "step_s": _array(draw, rows)})
    notes = draw(st.lists(st.builds(Note, _texts, _texts, st.none() | st.floats(0, 1)), max_size=2))
    return History(
        times=times,
        step_s=step_s,
        instances=ids,
        values={k: _array(draw, n, t) for k in draw(picked["values"])} if n else {},
        fleet={k: _array(draw, t) for k in draw(picked["fleet"])},
        histograms=histograms,
        configs=tuple(draw(_labels) for _ in ids),
        steps=draw(st.none() | st.just(log)),
        notes=tuple(notes),
        source=draw(_texts),
    )


def facts(history: History) -> dict[str, Any]:
    """Everything in it as things that `==` compares, floats by their bits (NaN equals NaN, 0.0 is not -0.0)."""

    def bits(values: Floats) -> tuple[tuple[int, ...], bytes]:
        clean = np.where(np.isnan(values), np.nan, np.asarray(values, dtype=np.float64))
        return clean.shape, clean.tobytes()

    steps = history.steps
    return {
        "times": bits(history.times),
        "step_s": history.step_s,
        "instances": [(i.name, i.engine, i.model, dict(i.labels)) for i in history.instances],
        "values": {k: bits(v) for k, v in history.values.items()},
        "fleet": {k: bits(v) for k, v in history.fleet.items()},
        "histograms": {
            k: (bits(b.le), bits(b.times), bits(b.counts), bits(b.sums)) for k, b in history.histograms.items()
        },
        "configs": [dict(c) for c in history.configs],
        "steps": None if steps is None else (steps.framework, {k: bits(v) for k, v in steps.columns.items()}),
        "notes": history.notes,
        "source": history.source,
    }
