"""Copies of one series as one; and series that look like copies and are not: several engines, trainers, ranks.

SGLang's schedulers label what they export with dp_rank, tp_rank, pp_rank and moe_ep_rank, and of each data-parallel
rank the first scheduler speaks (all of them with --enable-metrics-for-all-schedulers). With --enable-dp-attention the
ranks of a server take turns on the same GPUs, step by step, and their tp_rank goes on from one to the next: they are
added up. Without, each is an engine of its own, whose tp_rank begins at 0, as vLLM's ranks are (label `engine`). The
token counters and histograms of a server, exported by its tokenizer, have no ranks: each rank gets the share of them
that it has of the output tokens (`python/sglang/srt/observability/metrics_collector.py`, commit 44cedc2b).
"""

from __future__ import annotations

from collections import defaultdict
from collections.abc import Iterable, Mapping, Sequence

import numpy as np
from numpy.typing import NDArray

from fleetsim.history.catalogue import REPLICA_LABELS, SPECIFIC_LABELS, Match, base_key
from fleetsim.history.history import Floats, Note

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
    out = ordered[0]
    for other in ordered[1:]:
        out = fill(out, other, counter=counter)
    return out


def summed(parts: Sequence[Floats]) -> Floats:
    """Sum of the parts that are there; NaN where none is."""
    if len(parts) == 1:
        return parts[0]
    stack = np.stack(parts).astype(float, copy=False)
    out: Floats = np.nansum(stack, axis=0)
    out[np.isnan(stack).all(axis=0)] = np.nan
    return out


def highest(parts: Sequence[Floats]) -> Floats:
    """The highest of the parts at each time."""
    out: Floats = np.fmax.reduce(np.stack(parts))
    return out


_RANKS = ("pp_rank", "tp_rank", "moe_ep_rank")
_SHARES = frozenset({"sglang:token_usage"})  # a mean over ranks; everything else is a sum
_DECODED = "sglang:realtime_tokens_total"

Sample = tuple[str, Mapping[str, str], Floats]
Server = tuple[str | None, ...]
Shares = Mapping[Server, Mapping[str, float]]
"""Server -> data-parallel rank -> its share of the server's output tokens, of servers whose ranks are instances."""


def ranks_apart(samples: Iterable[Sample]) -> Shares:
    """The servers of which every data-parallel rank has GPUs of its own and counts its own output tokens."""
    found: dict[Server, dict[str, list[tuple[tuple[int, ...], float]]]] = {}
    for name, labels, values in samples:
        if name == _DECODED and labels.get("mode") == "decode" and labels.get("dp_rank"):
            ranks = found.setdefault(_server(labels), defaultdict(list))
            ranks[labels["dp_rank"]].append((_rank(labels), _growth(values)))
    shares: dict[Server, dict[str, float]] = {}
    for server, ranks in found.items():
        made = {rank: max(tokens for _, tokens in copies) for rank, copies in ranks.items()}
        total = sum(made.values())
        if len(ranks) > 1 and total > 0 and len({min(own for own, _ in copies) for copies in ranks.values()}) == 1:
            shares[server] = {rank: tokens / total for rank, tokens in made.items()}
    return shares


def one_per_engine(samples: Iterable[Sample], apart: Shares) -> tuple[list[Sample], list[Note]]:
    """The samples with one series for each of SGLang's engines; other engines' as they are."""
    out: list[Sample] = []
    servers: dict[tuple[str, tuple[tuple[str, str], ...]], dict[str, list[tuple[tuple[int, ...], Floats]]]] = {}
    for name, labels, values in samples:
        if not name.startswith("sglang:"):
            out.append((name, labels, values))
            continue
        shares = apart.get(_server(labels), {})
        own = {k: v for k, v in labels.items() if k not in _RANKS and (k != "dp_rank" or v in shares)}
        if shares and "dp_rank" not in own:
            whole = name.endswith("_info")
            parts = ((rank, 1.0 if whole else share) for rank, share in shares.items())
            out += [(name, {**own, "dp_rank": rank}, values * share) for rank, share in parts]
            continue
        key = name, tuple(sorted(own.items()))
        servers.setdefault(key, defaultdict(list))[labels.get("dp_rank", "")].append((_rank(labels), values))
    most = 1
    for (name, rest), ranks in servers.items():
        first = [min(copies, key=lambda c: c[0])[1] for copies in ranks.values()]
        most = max(most, len(first))
        out.append((name, dict(rest), _together(name, first)))
    return out, [Note("other", text) for text in _told(most, max(map(len, apart.values()), default=1))]


def _told(together: int, each: int) -> Iterable[str]:
    if together > 1:
        yield f"SGLang servers have up to {together} data-parallel ranks; each server is read as one instance."
    if each > 1:
        yield (
            f"SGLang servers have up to {each} data-parallel ranks with GPUs of their own; each rank is read as an "
            "instance, and gets of what the server counts for all of them its share of the output tokens."
        )


def _together(name: str, parts: Sequence[Floats]) -> Floats:
    if len(parts) == 1:
        return parts[0]
    stack = np.stack(parts)
    there = np.isfinite(stack).sum(axis=0)
    total: Floats = np.where(there > 0, np.nansum(stack, axis=0), np.nan)
    return total / np.maximum(there, 1) if name in _SHARES else total


def _server(labels: Mapping[str, str]) -> Server:
    return tuple(labels.get(name) for name in ("namespace", "job", "pod", "instance", "model_name"))


def _rank(labels: Mapping[str, str]) -> tuple[int, ...]:
    return tuple(_number(labels.get(r, "")) for r in _RANKS)


def _number(rank: str) -> int:
    return int(rank) if rank.isdecimal() else 0


def _growth(values: Floats) -> float:
    """Growth of a counter over the window, what was counted after a reset included."""
    steps = np.diff(values[np.isfinite(values)])
    return float(steps[steps > 0].sum())
