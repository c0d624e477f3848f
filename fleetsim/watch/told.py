"""What one evaluation of `fleetsim watch --once` says, for people and as JSON."""

from __future__ import annotations

from typing import Any

from fleetsim import units
from fleetsim.quantities import quantity
from fleetsim.tell.data import SCHEMA_VERSION
from fleetsim.tell.document import Document
from fleetsim.tell.facts import Fact, facts
from fleetsim.watch.watch import Look


def data(look: Look, now_s: float) -> dict[str, Any]:
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


def document(look: Look, now_s: float) -> Document:
    """The same for people."""

    def share(value: float | None) -> str:
        return "unknown" if value is None else units.share(value)

    idle = quantity("trainer_idle_fraction").title
    kept = f"nothing recommended ({look.withheld}): {look.why}"
    rows = [("instances", f"{look.current} now, " + (kept if look.wanted is None else f"{look.wanted} wanted"))]
    if look.then is not None:
        then = units.plural(look.then, "instance")
        rows.append(("then", f"{then}, simulated as if that were mended; look again after the change"))
    rows += [
        (idle, f"{share(look.observed_idle)} observed, {share(look.predicted_idle)} predicted"),
        ("model error", share(look.model_error)),
        ("newest sample", f"{units.seconds(now_s - look.data_s)} ago"),
        ("faults", ", ".join(check for check, fault in look.faults.items() if fault) or "none"),
        *(("note", note) for note in look.notes),
    ]
    return Document("fleetsim watch", facts(look.headline, (Fact(*row, apart=True) for row in rows), rest=False))
