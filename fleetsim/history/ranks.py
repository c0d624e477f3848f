"""SGLang's ranks: one server, one instance.

Its schedulers label what they export with dp_rank, tp_rank, pp_rank and moe_ep_rank, and of each data-parallel rank the
first scheduler speaks (all of them with --enable-metrics-for-all-schedulers); its token counters, exported by the
tokenizer, have no ranks (`python/sglang/srt/observability/metrics_collector.py`, commit 44cedc2b). So that both speak
of the same instance, the data-parallel ranks of a server are added up. vLLM's ranks (label `engine`) stay instances.
"""

from __future__ import annotations

from collections import defaultdict
from collections.abc import Iterable, Mapping, Sequence

import numpy as np

from fleetsim.history.history import Floats, Note

_RANKS = ("pp_rank", "tp_rank", "moe_ep_rank")
_SHARES = frozenset({"sglang:token_usage"})  # a mean over ranks; everything else is a sum

Sample = tuple[str, Mapping[str, str], Floats]


def one_per_server(samples: Iterable[Sample]) -> tuple[list[Sample], list[Note]]:
    """The samples with SGLang's ranks taken together; other engines' as they are."""
    out: list[Sample] = []
    servers: dict[tuple[str, tuple[tuple[str, str], ...]], dict[str, list[tuple[tuple[int, ...], Floats]]]] = {}
    for name, labels, values in samples:
        if not name.startswith("sglang:"):
            out.append((name, labels, values))
            continue
        rest = tuple(sorted((k, v) for k, v in labels.items() if k not in (*_RANKS, "dp_rank")))
        rank = tuple(_number(labels.get(r, "")) for r in _RANKS)
        servers.setdefault((name, rest), defaultdict(list))[labels.get("dp_rank", "")].append((rank, values))
    most = 1
    for (name, rest), ranks in servers.items():
        first = [min(copies, key=lambda c: c[0])[1] for copies in ranks.values()]
        most = max(most, len(first))
        out.append((name, dict(rest), _together(name, first)))
    if most == 1:
        return out, []
    text = f"SGLang servers have up to {most} data-parallel ranks; each server is read as one instance."
    return out, [Note("other", text)]


def _together(name: str, parts: Sequence[Floats]) -> Floats:
    if len(parts) == 1:
        return parts[0]
    stack = np.stack(parts)
    there = np.isfinite(stack).sum(axis=0)
    total: Floats = np.where(there > 0, np.nansum(stack, axis=0), np.nan)
    return total / np.maximum(there, 1) if name in _SHARES else total


def _number(rank: str) -> int:
    return int(rank) if rank.isdecimal() else 0
