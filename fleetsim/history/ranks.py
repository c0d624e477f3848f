"""SGLang's data-parallel ranks: instances where each has GPUs of its own, else one server, one instance.

Its schedulers label what they export with dp_rank, tp_rank, pp_rank and moe_ep_rank, and of each data-parallel rank the
first scheduler speaks (all of them with --enable-metrics-for-all-schedulers). With --enable-dp-attention the ranks of a
server take turns on the same GPUs, step by step, and their tp_rank goes on from one to the next: they are added up.
Without, each is an engine of its own, whose tp_rank begins at 0, as vLLM's ranks are (label `engine`). The token
counters and histograms of a server, exported by its tokenizer, have no ranks: each rank gets the share of them that it
has of the output tokens (`python/sglang/srt/observability/metrics_collector.py`, commit 44cedc2b).
"""

from __future__ import annotations

from collections import defaultdict
from collections.abc import Iterable, Mapping, Sequence

import numpy as np

from fleetsim.history.history import Floats, Note

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
