"""One evaluation of `fleetsim watch --once`, as lines and as a document."""

from __future__ import annotations

from collections.abc import Iterator
from typing import Any

from fleetsim import units
from fleetsim.tell.data import SCHEMA_VERSION
from fleetsim.watch.watch import Look


def look_document(look: Look, now_s: float) -> dict[str, Any]:
    """The evaluation, in the exporter's words where it exports the same."""
    return {
        "schema_version": SCHEMA_VERSION,
        "command": "watch",
        "current_instances": look.current,
        "wanted_instances": look.wanted,
        "withheld": look.withheld,
        "why": look.why or None,
        "then_instances": look.then,
        "observed_trainer_idle_ratio": look.observed_idle,
        "predicted_trainer_idle_ratio": look.predicted_idle,
        "model_error_ratio": look.model_error,
        "data_age_seconds": now_s - look.data_s,
        "starves": look.starves,
        "headline": look.headline or None,
        "verdict": dict(look.faults),
        "notes": list(look.notes),
    }


def look_lines(look: Look, now_s: float) -> Iterator[str]:
    """The same for people."""

    def share(value: float | None) -> str:
        return "unknown" if value is None else units.share(value)

    if look.headline:
        yield look.headline
    yield f"instances         {look.current} now, " + (
        f"{look.wanted} wanted" if look.wanted is not None else f"nothing recommended ({look.withheld}): {look.why}"
    )
    if look.then is not None:
        yield f"then              {look.then} instances, simulated as if that were mended; look again after the change"
    yield f"trainer idle      {share(look.observed_idle)} observed, {share(look.predicted_idle)} predicted"
    yield f"model error       {share(look.model_error)}"
    yield f"newest sample     {units.seconds(now_s - look.data_s)} ago"
    faults = [check for check, fault in look.faults.items() if fault]
    yield f"faults            {', '.join(faults) or 'none'}"
    for note in look.notes:
        yield f"note              {note}"
