"""`fleetsim compare --json`: everything that the view shows, and each metric's interval and adjusted p-value."""

from __future__ import annotations

from dataclasses import asdict
from typing import Any

from fleetsim.compare.compare import Comparison, MetricChange
from fleetsim.compare.told import compare_facts
from fleetsim.quantities import quantity
from fleetsim.tell.data import told, versions


def compare_document(found: Comparison) -> dict[str, Any]:
    """Ratios are B / A, differences B - A in the metric's unit; null = there is none."""
    return {
        **versions("compare"),
        "headline": found.headline,
        **told(compare_facts(found)),
        "kind": found.kind,
        "a": found.a_label,
        "b": found.b_label,
        "paired": found.paired,
        "replications": found.replications,
        "min_change": found.min_change,
        "changed": [c.metric for c in found.significant],
        "worse": [c.metric for c in found.changes if c.verdict == "worse"],
        "changes": [_change(c) for c in found.changes],
        "inputs": [asdict(d) for d in found.inputs],
        "notes": list(found.notes),
    }


def _change(change: MetricChange) -> dict[str, Any]:
    metric = quantity(change.metric)
    return {**asdict(change), "title": metric.title, "unit": metric.unit, "better_is": metric.better}
