"""What an admission law lets in, samples that it keeps in flight, when it starves the trainer, and how old they get."""

from __future__ import annotations

import math
from collections.abc import Callable

from fleetsim.errors import Problem
from fleetsim.policies.law import PLENTY, Order, Progress, Settings, Sizes

# --- How many groups an admission law lets in, samples that it keeps in flight, and when it starves the trainer.


def sync_window(a: Settings, sizes: Sizes) -> int:
    """Groups that may start in one sync window, those in flight and queued at its begin included (verl)."""
    return math.floor(sizes.version * (1 + a.staleness_threshold) + 1e-9)


def a_round(a: Settings, sizes: Sizes, progress: Progress) -> int:
    """One batch, started when the trainer is done with the last one and has published."""
    if not progress.generating:
        return 0
    whole = sizes.round if progress.round_groups is None else progress.round_groups
    return whole - progress.taken_of_round


def batches_ahead(a: Settings, sizes: Sizes, progress: Progress) -> int:
    """k batches beyond the one being trained (OpenRLHF's semaphore, one-step-off for k = 1)."""
    return a.batches_ahead * sizes.round


def version_window(a: Settings, sizes: Sizes, progress: Progress) -> int:
    """(eta + v + 1) * B - accepted (AReaL), B the groups trained per published version."""
    return math.floor((a.max_staleness + progress.version + 1) * sizes.version + 1e-9) - progress.taken_groups


def plenty(a: Settings, sizes: Sizes, progress: Progress) -> int:
    """Whatever the engines can hold."""
    return PLENTY


def a_batch_and_more_at_first(a: Settings, sizes: Sizes, first: bool) -> int:
    """B groups with every step, alpha * B more with the first one (ROLL)."""
    return sizes.step + (math.ceil(a.async_ratio * sizes.step - 1e-9) if first else 0)


def batches_in_flight(most: Callable[[Settings], float]) -> Callable[[Settings, Sizes], float]:
    """Samples of so many batches, of one at least."""
    return lambda a, sizes: sizes.batch * max(1.0, most(a))


def too_few_outstanding(
    limit: Callable[[Settings, Sizes, Progress], int], setting: str
) -> Callable[[Settings, Sizes, Progress], Problem | None]:
    """Less than a batch may be outstanding. setting: the path that the problem is told of."""

    def starves(a: Settings, sizes: Sizes, progress: Progress) -> Problem | None:
        allowed = limit(a, sizes, progress)
        if allowed >= sizes.step:
            return None
        return Problem(
            setting,
            getattr(a, setting.rpartition(".")[2]),
            f"admission allows {allowed * sizes.group} outstanding samples at weight version {progress.version}, "
            f"a batch needs {sizes.batch}",
            "raise the staleness budget, sync every step (sync.every_steps: 1), or lower trainer.batch_samples",
        )

    return starves


def window_used_up(a: Settings, sizes: Sizes, progress: Progress) -> Problem:
    """A window's groups were thrown away, and nothing replaces them before the next publication."""
    return Problem(
        "admission.staleness_threshold",
        a.staleness_threshold,
        f"a sync window starts {sync_window(a, sizes) * sizes.group} samples, those that were filtered or dropped "
        "included: too few are left for its batches",
        "raise staleness_threshold, or lower workload.filter.zero_variance_share",
    )


def pool_below_a_group(a: Settings, sizes: Sizes, progress: Progress) -> Problem | None:
    """No group is ever let in."""
    pool, group = a.pool_samples or 0, sizes.group
    if pool >= group:
        return None
    return Problem("admission.pool_samples", pool, f"must be at least one group ({group})", f"raise it to {group}")


def never(a: Settings, sizes: Sizes, progress: Progress) -> None:
    """The law lets a batch start, whatever happens."""


# --- Versions that no trained group is ever older than, by an admission law and the order of batches; None = no bound.


def oldest_by_barrier(a: Settings, order: Order) -> float | None:
    """A barrier trains what it has just started, unless late groups are carried over."""
    return None if order.carries_over else 0.0


def oldest_by_batches(a: Settings, order: Order) -> float | None:
    """One batch ahead: the next batch is exactly what was sent when the last was taken. With k batches and a drain
    before every publication, whatever was sent is complete one version later, and k are trained before it."""
    if order.oversampled or not order.one_by_one:
        return None
    if a.batches_ahead == 1:
        return 1.0
    return float(a.batches_ahead) if order.drains and order.in_order else None


def oldest_by_window(a: Settings, order: Order) -> float | None:
    """Where batches wait for the oldest, whole versions are trained in order, eta ahead."""
    return float(math.ceil(a.max_staleness)) if order.waits_for_oldest and order.one_by_one else None


def oldest_by_target(a: Settings, order: Order) -> float | None:
    """Exact target steps: each group is trained at most eta steps after it was let in."""
    return float(math.ceil(a.max_staleness)) if order.exact and order.one_by_one else None


def oldest_by_ratio(a: Settings, order: Order) -> float | None:
    """Where batches wait for the oldest, and nothing runs beyond the count, batches are trained in order."""
    in_order = order.waits_for_oldest and order.one_by_one and a.extra_groups == 0
    return float(math.ceil(a.async_ratio)) if in_order else None


def oldest_by_unbounded(a: Settings, order: Order) -> float | None:
    """The law bounds how far generation runs ahead, not how long one response takes."""
    return None
