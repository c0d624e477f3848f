"""Matched series into arrays: copies become one, parts are added up, a renamed metric fills the gaps of the other."""

from __future__ import annotations

from collections import defaultdict
from collections.abc import Callable, Iterable, Mapping, Sequence
from functools import partial, reduce

import numpy as np
from numpy.typing import NDArray

from fleetsim.errors import InputError, Problem
from fleetsim.faces import text
from fleetsim.history import faults
from fleetsim.history.catalogue import (
    REPLICA_LABELS,
    SPECIFIC_LABELS,
    Catalogue,
    Identities,
    Match,
    Sample,
    base_key,
    one_per_engine,
    ranks_apart,
    specific,
    unreplicated,
)
from fleetsim.history.counters import summed
from fleetsim.history.history import Buckets, Floats, History, Note
from fleetsim.history.option_names import SELECTOR
from fleetsim.history.signals import ADDED, BY_NAME, SCALES

Row = tuple[Match, Mapping[str, str], Floats]
"""One matched series: what it carries, its labels, its values on the grid (T,), NaN where there is none."""


def merge(
    catalogue: Catalogue,
    series: Iterable[Sample],
    histograms: Iterable[Sample],
    *,
    times: Floats,
    step_s: float,
    coarse: Floats,
    source: str,
) -> History:
    """series: (sample name, labels, values (T,) at times) of counters, gauges and infos; histograms: `_bucket` and
    `_sum` samples with values (H,) at the coarse times. Series that carry no signal are passed over. Raises InputError
    for what is carried as a running total and is none, and for trainers that cannot be of one job."""
    series = list(series)
    shares = ranks_apart(series)
    series, ranks = one_per_engine(series, shares)
    histograms, _ = one_per_engine(histograms, shares)
    rows, hists = _matched(catalogue, series), _matched(catalogue, histograms)
    faults.check_totals((m.signal.name, labels, values) for m, labels, values in rows if m.signal.kind == "counter")
    apart = engines_apart(rows)
    who = Identities((labels for match, labels, _ in (*rows, *hists) if match.signal.scope == "instance"), apart)
    mine = [r for r in rows if r[0].signal.scope == "instance" and r[0].signal.kind != "info"]
    values, copies = _instance_values(who, mine)
    fleet, doubled = _fleet_values([r for r in rows if r[0].signal.scope == "fleet"])
    buckets, rounded = _histograms(who, hists, coarse)
    _check_trainers([r for r in rows if r[0].signal.name == "trainer.steps"])
    notes = [*ranks, *_apart_notes(apart), *_copy_notes(copies), *doubled, *rounded]
    notes += [*faults.holes(values, who.instances, step_s), *faults.resets(values, who.instances)]
    configs = _configs(who, rows)
    return History(times, step_s, who.instances, values, fleet, buckets, configs, None, tuple(notes), source)


def _matched(catalogue: Catalogue, series: Iterable[Sample]) -> list[Row]:
    return [
        (match, labels, values * SCALES[name] if name in SCALES else values)
        for name, labels, values in series
        for match in catalogue.match(name, labels)
    ]


Parts = dict[int, dict[tuple[tuple[str, str], ...], list[Floats]]]
"""Rank of a metric -> labels of a part of it -> the copies of that part."""


def _grouped(
    rows: Sequence[Row],
    row_of: Callable[[Mapping[str, str]], int],
    part_of: Callable[[Mapping[str, str]], tuple[tuple[str, str], ...]],
) -> dict[tuple[str, int], Parts]:
    """By signal and row."""
    groups: dict[tuple[str, int], Parts] = {}
    for match, labels, values in rows:
        ranks = groups.setdefault((match.signal.name, row_of(labels)), {})
        ranks.setdefault(match.rank, {}).setdefault(part_of(labels), []).append(values)
    return groups


def _one(signal: str, ranks: Parts, together: Callable[[Sequence[Floats]], Floats]) -> Floats:
    """Copies as one, parts put together, and of several names of one metric the next fills the gaps of the first."""
    counter = BY_NAME[signal].kind == "counter"
    names = []
    for rank in sorted(ranks):
        parts = [fuller_first(alike, counter=counter) for alike in ranks[rank].values()]
        names.append(parts[0] if len(parts) == 1 else together(parts))
    if signal == "asleep":  # its names are two states: an engine sleeps when either is on
        return highest(names)
    if signal in ADDED:
        return summed(names)
    return reduce(partial(fill, counter=counter), names)


def _instance_values(who: Identities, rows: Sequence[Row]) -> tuple[dict[str, Floats], dict[str, int]]:
    """Signal -> (I, T), and how many of its series are copies."""
    out: dict[str, Floats] = {}
    copies: dict[str, int] = defaultdict(int)
    for (signal, i), ranks in _grouped(rows, who.of, specific).items():
        copies[signal] += sum(len(alike) - 1 for parts in ranks.values() for alike in parts.values())
        if signal not in out:
            out[signal] = np.full((len(who.instances), len(rows[0][2])), np.nan)
        out[signal][i] = _one(signal, ranks, summed)
    return out, copies


def _fleet_values(rows: Sequence[Row]) -> tuple[dict[str, Floats], list[Note]]:
    """Trainers' series: every rank may export the same, so the highest counts; depths of several queues add up."""
    notes: list[Note] = []

    def together(name: str, parts: Sequence[Floats]) -> Floats:
        added = name == "queue.samples"
        if (~np.isnan(np.stack(parts))).sum(axis=0).max() > 1:
            how = "they are added up" if added else "the highest counts"
            text = f"{name} has {len(parts)} series at once; {how}. Narrow the selector if they are several jobs."
            notes.append(Note("duplicate", text))
        return summed(parts) if added else highest(parts)

    groups = _grouped(rows, lambda labels: 0, unreplicated)
    return {name: _one(name, ranks, partial(together, name)) for (name, _), ranks in groups.items()}, notes


def _check_trainers(rows: Sequence[Row]) -> None:
    """Ranks of one trainer count the same steps; series that count differently are trainers of several jobs."""
    each = [(labels, values) for match, labels, values in rows if match.rank == min(m.rank for m, _, _ in rows)]
    others = [labels for labels, values in each[1:] if not same(each[0][1], values)]
    if not others:
        return
    labelsets = [each[0][0], *others]
    label = telling(labelsets)
    names = sorted({f'{label}="{labels[label]}"' for labels in labelsets})[:5] if label is not None else []
    named = f": {', '.join(names)}" if names else ""
    rule = f"trainers at once that count their steps differently{named}; two of them make no step of one job"
    remedy = text("choose one of them and its engines with {}", SELECTOR)
    raise InputError([Problem(SELECTOR, f"{len(labelsets)} trainers", rule, remedy)])


def _configs(who: Identities, rows: Sequence[Row]) -> tuple[Mapping[str, str], ...]:
    """Per instance the labels of its cache_config; of several (a restart with another one) the last that was seen. A
    gauge's value stands under its name."""
    best: dict[tuple[int, str], tuple[int, Mapping[str, str]]] = {}
    for match, labels, values in rows:
        if match.signal.kind != "info":
            continue
        metric = match.signal.metrics[match.rank].rpartition(":")[2]
        seen = np.flatnonzero(~np.isnan(values))
        last = int(seen[-1]) if seen.size else -1
        if metric.endswith("_info"):
            key, tells = (who.of(labels), ""), labels
        elif seen.size:
            key, tells = (who.of(labels), metric), {metric: f"{values[last]:.0f}"}
        else:
            continue
        if key not in best or last > best[key][0]:
            best[key] = (last, tells)
    said: list[dict[str, str]] = [{} for _ in who.instances]
    for (i, _), (_, tells) in best.items():
        said[i].update(tells)
    # SGLang's words for blocks stand under vLLM's names as well
    also = (("block_size", "page_size"), ("num_gpu_blocks", "num_pages"))
    return tuple({**{name: one[other] for name, other in also if other in one}, **one} for one in said)


def _histograms(who: Identities, rows: Sequence[Row], times: Floats) -> tuple[dict[str, Buckets], list[Note]]:
    signals: dict[str, list[Row]] = defaultdict(list)
    for row in rows:
        signals[row[0].signal.name].append(row)
    out: dict[str, Buckets] = {}
    notes = []
    for signal, mine in signals.items():
        made = _buckets(who, mine, times)
        if made is None:
            notes.append(Note("missing", f"{signal} has sums but no buckets; it is left out."))
            continue
        out[signal], rounded = made
        if rounded:
            text = f"{rounded} instances lack bounds of {signal} that others have; rounded up."
            notes.append(Note("other", text))
    return out, notes


def _buckets(who: Identities, rows: Sequence[Row], times: Floats) -> tuple[Buckets, int] | None:
    """One histogram of all instances on the union of their bounds.

    Where an instance lacks a bound, the count up to its next higher one stands there. Engines cut their bounds at the
    longest length that they admit, so above its last finite bound that is exact.
    """
    parts: dict[tuple[int, int, float | None], dict[tuple[tuple[str, str], ...], list[Floats]]] = {}
    for match, labels, values in rows:
        if match.part == "count":
            continue  # the bucket up to infinity says the same
        key = (who.of(labels), match.rank, match.le)
        parts.setdefault(key, {}).setdefault(specific(labels), []).append(values)
    merged: dict[tuple[int, int], dict[float | None, Floats]] = defaultdict(dict)
    for (i, rank, le), split in parts.items():
        merged[i, rank][le] = summed([fuller_first(alike, counter=True) for alike in split.values()])
    bounds = sorted({le for mine in merged.values() for le in mine if le is not None})
    if not bounds:
        return None
    if bounds[-1] != np.inf:
        bounds.append(np.inf)
    counts = np.full((len(who.instances), len(times), len(bounds)), np.nan)
    sums = np.full((len(who.instances), len(times)), np.nan)
    rounded = set()
    for i, rank in sorted(merged):
        mine = merged[i, rank]
        last_finite = max((le for le in mine if le is not None and le != np.inf), default=-np.inf)
        above: Floats = np.full(len(times), np.nan)
        for e in range(len(bounds) - 1, -1, -1):
            if bounds[e] in mine:
                above = mine[bounds[e]]
            elif bounds[e] < last_finite:
                rounded.add(i)
            counts[i, :, e] = fill(counts[i, :, e], above, counter=True)
        if None in mine:
            sums[i] = fill(sums[i], mine[None], counter=True)
    return Buckets(np.array(bounds), np.asarray(times, float), counts, sums), len(rounded)


def _apart_notes(apart: Mapping[tuple[str, str], str]) -> list[Note]:
    if not apart:
        return []
    labels, (name, _) = sorted(set(apart.values())), min(apart)
    text = f"{name} stands for several engines whose counters differ; they are told apart by {', '.join(labels)}."
    return [Note("other", text)]


def _copy_notes(copies: Mapping[str, int]) -> list[Note]:
    doubled = {signal: n for signal, n in copies.items() if n}
    if not doubled:
        return []
    most = max(doubled, key=lambda s: doubled[s])
    text = f"{doubled[most]} series of {most} are copies of another (scraped twice); the fuller copy counts, once."
    return [Note("duplicate", text)]


# ------------------------------------------------------- copies of one series, and what only looks like it

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


def engines_apart(rows: Iterable[tuple[Match, Mapping[str, str], Floats]]) -> dict[tuple[str, str], str]:
    """(name, engine) of an instance -> the label that tells the engines apart which export under that name.

    Only output tokens judge, and only a label that other signals bear as well: one that splits a single metric into
    parts makes no engine."""
    tokens: dict[tuple[str, str], list[tuple[Mapping[str, str], Floats]]] = defaultdict(list)
    bearing: dict[tuple[tuple[str, str], str], set[str]] = defaultdict(set)
    signals: dict[tuple[str, str], set[str]] = defaultdict(set)
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
    missing = np.isnan(first)
    if not missing.any() or missing.all():
        return other if missing.any() else first
    out = np.where(missing, other, first)
    if not counter:
        return out
    holes, known = np.flatnonzero(missing & ~np.isnan(other)), np.flatnonzero(~missing)
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
    ordered = sorted(copies, key=lambda v: int(np.isnan(v).sum())) if len(copies) > 1 else copies
    return reduce(partial(fill, counter=counter), ordered)


def highest(parts: Sequence[Floats]) -> Floats:
    """The highest of the parts at each time."""
    return np.asarray(np.fmax.reduce(np.stack(parts)))
