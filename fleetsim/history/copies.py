"""Copies of one series as one; and series that look like copies and are not: several engines, several trainers."""

from __future__ import annotations

from collections import defaultdict
from collections.abc import Iterable, Mapping, Sequence

import numpy as np
from numpy.typing import NDArray

from fleetsim.history.catalogue import REPLICA_LABELS, SPECIFIC_LABELS, Match, base_key
from fleetsim.history.history import Floats

Key = tuple[str, str]
# Scrapes of one counter by two servers differ by the growth of so many intervals at most.
REACH = 1
# Times that both have, to say that they are not the same.
FEWEST = 4
MODEL = "model_name"
# Labels that say who looked, when others tell engines apart as well; and those that never tell engines.
_LAST = tuple(sorted(REPLICA_LABELS))
_NEVER = SPECIFIC_LABELS | {"le", "quantile", "engine", "dp_rank", "__name__", "namespace"}


def same(a: Floats, b: Floats) -> bool:
    """Whether two counters (T,) are one, read at other moments: where both stand still they are equal, and elsewhere
    each lies between the other's values nearby, at half of the times or more. True where too few times have both."""
    both = np.isfinite(a) & np.isfinite(b)
    if both.sum() < FEWEST:
        return True
    (low_a, high_a), (low, high) = (_near(values, both) for values in (a, b))
    slack = 1e-9 * np.abs(high)
    still = (low == high) & (low_a == high_a)
    if still.sum() >= FEWEST:
        return bool((np.abs(a[both] - b[both])[still] <= slack[still]).mean() >= 0.5)
    return bool(((a[both] >= low - slack) & (a[both] <= high + slack)).mean() >= 0.5)


def _near(values: Floats, at: NDArray[np.bool_]) -> tuple[Floats, Floats]:
    """Lowest and highest value within REACH intervals of each time."""
    padded = np.pad(values, REACH, constant_values=np.nan)
    near = np.lib.stride_tricks.sliding_window_view(padded, 2 * REACH + 1)[at]
    return np.fmin.reduce(near, axis=1), np.fmax.reduce(near, axis=1)


def engines_apart(rows: Iterable[tuple[Match, Mapping[str, str], Floats]]) -> dict[Key, str]:
    """(name, engine) of an instance -> the label that tells the engines apart which export under that name.

    Only output tokens judge, and only a label that other signals bear as well: one that splits a single metric into
    parts makes no engine."""
    tokens: dict[Key, list[tuple[Mapping[str, str], Floats]]] = defaultdict(list)
    bearing: dict[tuple[Key, str], set[str]] = defaultdict(set)
    signals: dict[Key, set[str]] = defaultdict(set)
    for match, labels, values in rows:
        if match.signal.scope != "instance" or match.signal.kind == "info":
            continue
        key = base_key(labels)
        signals[key].add(match.signal.name)
        for name in labels:
            bearing[key, name].add(match.signal.name)
        if match.signal.name == "generation_tokens" and match.rank == 0:
            tokens[key].append((labels, values))
    found = {}
    for key, mine in tokens.items():
        if len(mine) < 2:
            continue
        label = MODEL if _models_at_once(mine) else None
        if label is None and not all(same(mine[0][1], other) for _, other in mine[1:]):
            label = telling([labels for labels, _ in mine])
        if label is not None and len(bearing[key, label]) >= min(2, len(signals[key])):
            found[key] = label
    return found


def _models_at_once(series: Sequence[tuple[Mapping[str, str], Floats]]) -> bool:
    """Two models, both there at some times: no copy of an engine has another model."""
    there: dict[str, NDArray[np.bool_]] = {}
    for labels, values in series:
        model = labels.get(MODEL, "")
        there[model] = there.get(model, np.zeros(len(values), dtype=bool)) | np.isfinite(values)
    return "" not in there and bool((np.sum(list(there.values()), axis=0) > 1).sum() >= FEWEST)


def telling(labelsets: Sequence[Mapping[str, str]]) -> str | None:
    """The label with most values among these sets, one that every set has; those of who looked come last."""
    common = set.intersection(*(set(labels) for labels in labelsets)) - _NEVER
    values = {label: len({labels[label] for labels in labelsets}) for label in common}
    differing = [label for label, count in values.items() if count > 1]
    return min(differing, key=lambda label: (label in _LAST, -values[label], label), default=None)


def fill(first: Floats, other: Floats, *, counter: bool) -> Floats:
    """first, with its gaps filled from other. Copies of one counter are not scraped at the same moment: what is filled
    in stays between the first one's own values on both sides, so that no false reset appears."""
    out = np.where(np.isnan(first), other, first)
    if not counter:
        return out
    holes = np.flatnonzero(np.isnan(first) & ~np.isnan(other))
    known = np.flatnonzero(~np.isnan(first))
    if not holes.size or not known.size:
        return out
    after = np.searchsorted(known, holes)
    for hole, right in zip(holes, after, strict=True):
        low = first[known[right - 1]] if right > 0 else -np.inf
        high = first[known[right]] if right < len(known) else np.inf
        if low > high:
            continue  # a reset lies in the hole
        if right > 0 and out[hole] < low:
            then = other[known[right - 1]]
            if not np.isnan(then) and other[hole] < then:
                continue  # the other one fell as well: a reset, at the end of what the first one saw
        out[hole] = min(max(out[hole], low), high)
    return out


def fuller_first(copies: Sequence[Floats], *, counter: bool) -> Floats:
    """Copies of one series as one: the one with most samples counts, the others fill its holes."""
    ordered = sorted(copies, key=lambda v: int(np.isnan(v).sum()))
    out = ordered[0]
    for other in ordered[1:]:
        out = fill(out, other, counter=counter)
    return out


def summed(parts: Sequence[Floats]) -> Floats:
    """Sum of the parts that are there; NaN where none is."""
    stack = np.stack(parts).astype(float, copy=False)
    out: Floats = np.nansum(stack, axis=0)
    out[np.isnan(stack).all(axis=0)] = np.nan
    return out


def highest(parts: Sequence[Floats]) -> Floats:
    """The highest of the parts at each time."""
    out: Floats = np.fmax.reduce(np.stack(parts))
    return out
