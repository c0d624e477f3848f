"""Versions that no trained group is ever older than, by an admission law and the order of batches; None = no bound."""

from __future__ import annotations

import math

from fleetsim.policies.law_inputs import Order, Settings


def barrier(a: Settings, order: Order) -> float | None:
    """A barrier trains what it has just started, unless late groups are carried over."""
    return None if order.carries_over else 0.0


def batches(a: Settings, order: Order) -> float | None:
    """One batch ahead: the next batch is exactly what was sent when the last was taken. With k batches and a drain
    before every publication, whatever was sent is complete one version later, and k are trained before it."""
    if order.oversampled or not order.one_by_one:
        return None
    if a.batches_ahead == 1:
        return 1.0
    return float(a.batches_ahead) if order.drains and order.in_order else None


def window(a: Settings, order: Order) -> float | None:
    """Where batches wait for the oldest, whole versions are trained in order, eta ahead."""
    return float(math.ceil(a.max_staleness)) if order.waits_for_oldest and order.one_by_one else None


def target(a: Settings, order: Order) -> float | None:
    """Exact target steps: each group is trained at most eta steps after it was let in."""
    return float(math.ceil(a.max_staleness)) if order.exact and order.one_by_one else None


def ratio(a: Settings, order: Order) -> float | None:
    """Where batches wait for the oldest, and nothing runs beyond the count, batches are trained in order."""
    in_order = order.waits_for_oldest and order.one_by_one and a.extra_groups == 0
    return float(math.ceil(a.async_ratio)) if in_order else None


def unbounded(a: Settings, order: Order) -> float | None:
    """The law bounds how far generation runs ahead, not how long one response takes."""
    return None
