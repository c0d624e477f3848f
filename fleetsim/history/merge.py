"""Matched series into arrays: copies become one, parts are added up, a renamed metric fills the gaps of the other."""

from __future__ import annotations

from collections import defaultdict
from collections.abc import Callable, Iterable, Mapping, Sequence
from dataclasses import dataclass
from functools import partial

import numpy as np

from fleetsim.errors import InputError, Problem
from fleetsim.faces import text
from fleetsim.history import faults
from fleetsim.history.catalogue import Catalogue, Identities, Match, specific, unreplicated
from fleetsim.history.copies import (
    engines_apart,
    fill,
    fuller_first,
    highest,
    one_per_engine,
    ranks_apart,
    same,
    summed,
    telling,
)
from fleetsim.history.history import Buckets, Floats, InstanceId, Note
from fleetsim.history.option_names import SELECTOR
from fleetsim.history.signals import ADDED, SCALES, Signal

Row = tuple[Match, Mapping[str, str], Floats]
"""One matched series: what it carries, its labels, its values on the grid (T,), NaN where there is none."""


@dataclass(frozen=True, slots=True)
class Merged:
    """What the series of one window say, as `History` holds it. problems: why they cannot be of one job."""

    instances: tuple[InstanceId, ...]
    values: dict[str, Floats]
    fleet: dict[str, Floats]
    histograms: dict[str, Buckets]
    configs: tuple[Mapping[str, str], ...]
    notes: tuple[Note, ...]
    problems: tuple[Problem, ...] = ()


def merge(
    catalogue: Catalogue,
    series: Iterable[tuple[str, Mapping[str, str], Floats]],
    histograms: Iterable[tuple[str, Mapping[str, str], Floats]],
    histogram_times: Floats,
) -> Merged:
    """series: (sample name, labels, values (T,)) of counters, gauges and infos; histograms: `_bucket` and `_sum`
    samples with values (H,) at histogram_times. Series that carry no signal are passed over. Raises InputError for
    what is carried as a running total and is none."""
    series = list(series)
    shares = ranks_apart(series)
    series, ranks = one_per_engine(series, shares)
    histograms, _ = one_per_engine(histograms, shares)
    rows = _matched(catalogue, series)
    hists = _matched(catalogue, histograms)
    _check_totals(rows)
    apart = engines_apart(rows)
    who = Identities((labels for match, labels, _ in (*rows, *hists) if match.signal.scope == "instance"), apart)
    values, copies = _instance_values(
        who, [r for r in rows if r[0].signal.scope == "instance" and r[0].signal.kind != "info"]
    )
    fleet, doubled = _fleet_values([r for r in rows if r[0].signal.scope == "fleet"])
    buckets, notes = _histograms(who, hists, histogram_times)
    notes = [*ranks, *_apart_notes(apart), *_copy_notes(copies), *doubled, *notes]
    problems = _trainers([r for r in rows if r[0].signal.name == "trainer.steps"])
    return Merged(who.instances, values, fleet, buckets, _configs(who, rows), tuple(notes), tuple(problems))


def _matched(catalogue: Catalogue, series: Iterable[tuple[str, Mapping[str, str], Floats]]) -> list[Row]:
    return [
        (match, labels, values * SCALES[name] if name in SCALES else values)
        for name, labels, values in series
        for match in catalogue.match(name, labels)
    ]


def _check_totals(rows: Sequence[Row]) -> None:
    """One problem a signal."""
    problems: dict[str, Problem] = {}
    for match, labels, values in rows:
        name = match.signal.name
        if match.signal.kind == "counter" and name not in problems:
            problem = faults.no_total(name, labels, values)
            if problem is not None:
                problems[name] = problem
    if problems:
        raise InputError(list(problems.values()))


Parts = dict[int, dict[tuple[tuple[str, str], ...], list[Floats]]]
"""Rank of a metric -> labels of a part of it -> the copies of that part."""


def _grouped(
    rows: Sequence[Row],
    row_of: Callable[[Mapping[str, str]], int],
    part_of: Callable[[Mapping[str, str]], tuple[tuple[str, str], ...]],
) -> dict[tuple[Signal, int], Parts]:
    groups: dict[tuple[str, int], tuple[Signal, Parts]] = {}
    for match, labels, values in rows:
        row = row_of(labels)
        _, ranks = groups.setdefault((match.signal.name, row), (match.signal, {}))
        ranks.setdefault(match.rank, {}).setdefault(part_of(labels), []).append(values)
    return {(signal, row): ranks for (_, row), (signal, ranks) in groups.items()}


def _one(signal: Signal, ranks: Parts, together: Callable[[Sequence[Floats]], Floats]) -> Floats:
    """Copies as one, parts put together, and of several names of one metric the next fills the gaps of the first."""
    counter = signal.kind == "counter"
    names = []
    for rank in sorted(ranks):
        parts = [fuller_first(alike, counter=counter) for alike in ranks[rank].values()]
        names.append(parts[0] if len(parts) == 1 else together(parts))
    if signal.name == "asleep":  # its names are two states: an engine sleeps when either is on
        return highest(names)
    if signal.name in ADDED:
        return summed(names)
    one = names[0]
    for other in names[1:]:
        one = fill(one, other, counter=counter)
    return one


def _instance_values(who: Identities, rows: Sequence[Row]) -> tuple[dict[str, Floats], dict[str, int]]:
    """Signal -> (I, T), and how many of its series are copies."""
    out: dict[str, Floats] = {}
    copies: dict[str, int] = defaultdict(int)
    for (signal, i), ranks in _grouped(rows, who.of, specific).items():
        copies[signal.name] += sum(len(alike) - 1 for parts in ranks.values() for alike in parts.values())
        if signal.name not in out:
            out[signal.name] = np.full((len(who.instances), len(rows[0][2])), np.nan)
        out[signal.name][i] = _one(signal, ranks, summed)
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
    out = {signal.name: _one(signal, ranks, partial(together, signal.name)) for (signal, _), ranks in groups.items()}
    return out, notes


def _trainers(rows: Sequence[Row]) -> list[Problem]:
    """Ranks of one trainer count the same steps; series that count differently are trainers of several jobs."""
    each = [(labels, values) for match, labels, values in rows if match.rank == min(m.rank for m, _, _ in rows)]
    others = [(labels, values) for labels, values in each[1:] if not same(each[0][1], values)]
    if not others:
        return []
    labelsets = [each[0][0], *(labels for labels, _ in others)]
    label = telling(labelsets)
    named = (
        "" if label is None else ": " + ", ".join(sorted({f'{label}="{labels[label]}"' for labels in labelsets})[:5])
    )
    rule = f"trainers at once that count their steps differently{named}; two of them make no step of one job"
    remedy = text("choose one of them and its engines with {}", SELECTOR)
    return [Problem(SELECTOR, f"{len(labelsets)} trainers", rule, remedy)]


def _configs(who: Identities, rows: Sequence[Row]) -> tuple[Mapping[str, str], ...]:
    """Per instance the labels of its cache_config; of several (a restart with another one) the last that was seen."""
    best: dict[int, tuple[int, Mapping[str, str]]] = {}
    for match, labels, values in rows:
        if match.signal.kind != "info":
            continue
        i, seen = who.of(labels), np.flatnonzero(~np.isnan(values))
        last = int(seen[-1]) if seen.size else -1
        if i not in best or last > best[i][0]:
            best[i] = (last, labels)
    return tuple(_config(best[i][1]) if i in best else {} for i in range(len(who.instances)))


def _config(labels: Mapping[str, str]) -> Mapping[str, str]:
    """With SGLang's words for blocks under vLLM's names as well."""
    also = {"block_size": labels.get("page_size"), "num_gpu_blocks": labels.get("num_pages")}
    return {**{name: value for name, value in also.items() if value is not None}, **labels}


def _histograms(who: Identities, rows: Sequence[Row], times: Floats) -> tuple[dict[str, Buckets], list[Note]]:
    signals: dict[str, list[Row]] = defaultdict(list)
    for row in rows:
        signals[row[0].signal.name].append(row)
    out, notes = {}, []
    for signal, mine in signals.items():
        made = _buckets(who, mine, times)
        if made is None:
            notes.append(Note("missing", f"{signal} has sums but no buckets; it is left out."))
        else:
            out[signal] = made[0]
            if made[1]:
                notes.append(
                    Note(
                        "other",
                        f"{made[1]} instances lack bounds of {signal} that others have; rounded up.",
                    )
                )
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
