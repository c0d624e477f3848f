"""Which exposed series carries which signal, and of which instance: for Prometheus and for files alike.

A source yields series (metric name, labels, values). `wanted` says which metrics to ask for, `match` which signals a
series carries, `Identities` which instance it belongs to. `merge.py` puts what was matched into one array per signal.

SGLang's schedulers label what they export with dp_rank, tp_rank, pp_rank and moe_ep_rank, and of each data-parallel
rank the first scheduler speaks (all of them with --enable-metrics-for-all-schedulers). With --enable-dp-attention the
ranks of a server take turns on the same GPUs, step by step, and their tp_rank goes on from one to the next: they are
added up. Without, each is an engine of its own, whose tp_rank begins at 0, as vLLM's ranks are (label `engine`). The
token counters and histograms of a server, exported by its tokenizer, have no ranks: each rank gets the share of them
that it has of the output tokens (`python/sglang/srt/observability/metrics_collector.py`, commit 44cedc2b).
"""

from __future__ import annotations

import re
from collections import defaultdict
from collections.abc import Iterable, Mapping, Sequence
from typing import Literal

import numpy as np
from msgspec import Struct

from fleetsim.config.tree import did_you_mean
from fleetsim.errors import InputError, Problem, Problems
from fleetsim.history.counters import growth, summed
from fleetsim.history.history import Floats, InstanceId, Note
from fleetsim.history.option_names import MAP
from fleetsim.history.signals import BY_NAME, SIGNALS, Signal

Part = Literal["value", "bucket", "sum", "count"]

REPLICA_LABELS = frozenset(
    {"prometheus_replica", "replica", "__replica__", "prometheus", "receive", "receive_replica", "monitor"}
    | {"thanos_replica", "rule_replica"}
)
"""Labels that tell who scraped, not what was scraped: series that differ in these alone are copies of one."""

SPECIFIC_LABELS = frozenset(
    {"finished_reason", "finish_reason", "sleep_state", "operation", "reason", "source", "is_streaming", "stage"}
    | {"cache_source"}
)
"""Labels that split one metric of one instance into parts, which are added up."""

_RANKS = ("tp_rank", "pp_rank", "moe_ep_rank", "rank")  # SGLang: every rank tells the same; the first one is kept
_METRIC = re.compile(r"^([A-Za-z_:][A-Za-z0-9_:./-]*)(?:\{(.*)\})?$")
_MATCHER = re.compile(r'\s*([A-Za-z_][A-Za-z0-9_]*)\s*=\s*"((?:[^"\\]|\\.)*)"\s*(?:,|$)')


class Exposed(Struct, frozen=True):
    """One exposed metric: its name, and labels that a series must have to be meant (`metric{label="value"}`)."""

    name: str
    matchers: tuple[tuple[str, str], ...] = ()

    def __str__(self) -> str:
        if not self.matchers:
            return self.name
        inside = ",".join(f'{k}="{v}"' for k, v in self.matchers)
        return f"{self.name}{{{inside}}}"

    def takes(self, labels: Mapping[str, str]) -> bool:
        """Whether a series of this metric with these labels is meant."""
        return all(labels.get(k) == v for k, v in self.matchers)


class SignalMetrics(Struct, frozen=True):
    """One signal and the metrics that may carry it, best first."""

    signal: Signal
    metrics: tuple[Exposed, ...]

    def sample_names(self) -> tuple[str, ...]:
        """Names of the samples to ask for: of a histogram its `_bucket` and `_sum`; each name once, best first."""
        names = [m.name for m in self.metrics]
        if self.signal.kind == "histogram":
            names = [f"{n}{suffix}" for n in names for suffix in ("_bucket", "_sum")]
        return tuple(dict.fromkeys(names))


class Match(Struct, frozen=True):
    """A series carries this signal. rank: which of the signal's metrics, 0 = best. le: a bucket's upper bound."""

    signal: Signal
    rank: int
    part: Part = "value"
    le: float | None = None


def parse_metric(text: str, path: str = "metric") -> Exposed:
    """`name` or `name{label="value",...}` (equality only). Raises InputError."""
    found = _METRIC.match(text.strip())
    matchers: list[tuple[str, str]] = []
    if found:
        rest, at = found[2] or "", 0
        while at < len(rest.rstrip()) and (one := _MATCHER.match(rest, at)):
            matchers.append((one[1], re.sub(r"\\(.)", r"\1", one[2])))
            at = one.end()
        if at >= len(rest.rstrip()):
            return Exposed(found[1], tuple(matchers))
    rule = "a metric is a name, or a name with labels that must be equal"
    raise InputError([Problem(path, text, rule, 'write name or name{label="value"}')])


def wanted(mapping: Mapping[str, str] | None = None) -> tuple[SignalMetrics, ...]:
    """Every signal that some metric can carry. mapping: signal name -> metric, which then counts alone for it.

    Raises InputError for unknown signal names (with the nearest one) and for metrics that do not parse.
    """
    wrong, given = Problems(), dict[str, Exposed]()
    for name, metric in (mapping or {}).items():
        with wrong.check():
            if unknown := unknown_signals([name]):
                raise InputError(unknown)
            given[name] = parse_metric(metric, f"map.{name}")
    wrong.stop()
    return tuple(
        SignalMetrics(s, (given[s.name],) if s.name in given else tuple(map(parse_metric, s.metrics))) for s in SIGNALS
    )


def unknown_signals(names: Iterable[str]) -> list[Problem]:
    """Names that are no signal."""
    wrong = (name for name in names if name not in BY_NAME)
    return [Problem(MAP, name, "no signal has this name", did_you_mean(name, BY_NAME)) for name in wrong]


class Catalogue:
    """Looks series up by name; built once per reading."""

    def __init__(self, asked: Sequence[SignalMetrics]) -> None:
        self._by_name: dict[str, list[tuple[Exposed, Signal, int, Part]]] = defaultdict(list)
        for one in asked:
            parts: tuple[Part, ...] = ("bucket", "sum", "count") if one.signal.kind == "histogram" else ("value",)
            for rank, exposed in enumerate(one.metrics):
                for part in parts:
                    name = exposed.name if part == "value" else f"{exposed.name}_{part}"
                    self._by_name[name].append((exposed, one.signal, rank, part))

    def __contains__(self, name: str) -> bool:
        """Whether any signal is carried by samples of this name."""
        return name in self._by_name

    def match(self, name: str, labels: Mapping[str, str]) -> tuple[Match, ...]:
        """The signals that this series carries; several when one metric counts for two. Empty: not ours, or a copy
        that another rank of the same engine exposes, or a bucket whose `le` is no number."""
        if any(labels.get(rank, "0") not in ("0", "") for rank in _RANKS):
            return ()
        out = []
        for exposed, signal, rank, part in self._by_name.get(name, ()):
            if not exposed.takes(labels):
                continue
            le: float | None = None
            if part == "bucket":
                try:
                    le = float(labels["le"])
                except (KeyError, ValueError):
                    continue
            out.append(Match(signal, rank, part, le))
        return tuple(out)


def base_key(labels: Mapping[str, str]) -> tuple[str, str]:
    """(name, engine) of the instance that exposes these labels: pod, else instance, with Ray's replica where engines
    share a scrape target; the data-parallel rank."""
    name = labels.get("pod") or labels.get("instance") or ""
    replica = labels.get("ReplicaId") or labels.get("WorkerId")
    if replica:
        name = f"{name}/{replica}" if name else replica
    return name, labels.get("engine") or labels.get("dp_rank") or "0"


class Identities:
    """The instances that a set of series speaks of.

    labelsets: of all series of scope instance. Two pods of one name in two namespaces are two instances, as are two
    servers on two ports of one pod; a pod that came back with another address is still one. apart: (name, engine) ->
    the label that tells several engines under one name apart (`copies.py`); a series without it goes with the first of
    them. instances: sorted by name and engine; labels: those that all series of an instance share.
    """

    def __init__(
        self, labelsets: Iterable[Mapping[str, str]], apart: Mapping[tuple[str, str], str] | None = None
    ) -> None:
        namespaces: dict[tuple[str, str], set[str]] = defaultdict(set)
        ports: dict[tuple[str, str], set[str]] = defaultdict(set)
        every = [(labels, base_key(labels)) for labels in labelsets]
        for labels, key in every:
            namespaces[key].update({labels.get("namespace", "")} - {""})
            ports[key].update({_port(labels)} - {""})
        self._apart = dict(apart or {})
        self._first = {
            key: min(labels[label] for labels, base in every if base == key and label in labels)
            for key, label in self._apart.items()
        }
        self._many_namespaces = {k for k, v in namespaces.items() if len(v) > 1}
        self._many_ports = {k for k, v in ports.items() if len(v) > 1}
        shared: dict[tuple[str, str], dict[str, str]] = {}
        models: dict[tuple[str, str], set[str]] = defaultdict(set)
        for labels, base in every:
            key = self._key(labels, base)
            models[key].update({labels.get("model_name", "")} - {""})
            mine = {k: v for k, v in labels.items() if k not in _NOT_OF_THE_TARGET}
            known = shared.setdefault(key, mine)
            if known is not mine and known != mine:
                shared[key] = {k: v for k, v in known.items() if mine.get(k) == v}
        self.index = {key: i for i, key in enumerate(sorted(shared))}
        self.instances = tuple(
            # vLLM's cache_config_info names no model, unlike its other metrics; two names are none.
            InstanceId(name, engine, models[name, engine].pop() if len(models[name, engine]) == 1 else "", labels)
            for name, engine, labels in ((*key, shared[key]) for key in self.index)
        )

    def _key(self, labels: Mapping[str, str], key: tuple[str, str]) -> tuple[str, str]:
        name, engine = key
        if key in self._many_ports and _port(labels):
            name = f"{name}:{_port(labels)}"
        if key in self._apart:
            name = f"{name}/{labels.get(self._apart[key], self._first[key])}"
        if key in self._many_namespaces and labels.get("namespace"):
            name = f"{labels['namespace']}/{name}"
        return name, engine

    def of(self, labels: Mapping[str, str]) -> int:
        """Row of the instance that exposes these labels. Raises KeyError for a label set that was not given."""
        return self.index[self._key(labels, base_key(labels))]


_NOT_OF_THE_TARGET = REPLICA_LABELS | SPECIFIC_LABELS | {"le", "engine", "quantile", "__name__"}


def _port(labels: Mapping[str, str]) -> str:
    """Port of the scrape target, where a pod is named apart from it."""
    port = labels.get("instance", "").rpartition(":")[2] if "pod" in labels else ""
    return port if port.isdigit() else ""


def specific(labels: Mapping[str, str]) -> tuple[tuple[str, str], ...]:
    """The labels that make this series a part of its metric (finished_reason, operation, ...), sorted."""
    return tuple(sorted((k, v) for k, v in labels.items() if k in SPECIFIC_LABELS))


def unreplicated(labels: Mapping[str, str]) -> tuple[tuple[str, str], ...]:
    """The labels that say what was scraped, not who did, sorted: copies of one series have the same."""
    return tuple(sorted((k, v) for k, v in labels.items() if k not in REPLICA_LABELS))


# ------------------------------------------------------------------------------------------------ SGLang's ranks


_ORDER = ("pp_rank", "tp_rank", "moe_ep_rank")
_SHARES = frozenset({"sglang:token_usage", "sglang:page_size"})  # a mean over ranks; everything else is a sum
_DECODED = "sglang:realtime_tokens_total"

Sample = tuple[str, Mapping[str, str], Floats]
"""A series: name of its samples, labels, values on a grid."""
Server = tuple[str | None, ...]
Shares = Mapping[Server, Mapping[str, float]]
"""Server -> data-parallel rank -> its share of the server's output tokens, of servers whose ranks are instances."""


def ranks_apart(samples: Iterable[Sample]) -> Shares:
    """The servers of which every data-parallel rank has GPUs of its own and counts its own output tokens."""
    found: dict[Server, dict[str, list[tuple[tuple[int, ...], float]]]] = {}
    for name, labels, values in samples:
        if name == _DECODED and labels.get("mode") == "decode" and labels.get("dp_rank"):
            ranks = found.setdefault(_server(labels), defaultdict(list))
            ranks[labels["dp_rank"]].append((_rank(labels), float(np.nan_to_num(growth(values)))))
    shares: dict[Server, dict[str, float]] = {}
    for server, ranks in found.items():
        made = {rank: max(tokens for _, tokens in copies) for rank, copies in ranks.items()}
        total = sum(made.values())
        if len(ranks) > 1 and total > 0 and len({min(own for own, _ in copies) for copies in ranks.values()}) == 1:
            shares[server] = {rank: tokens / total for rank, tokens in made.items()}
    return shares


def one_per_engine(samples: Iterable[Sample], apart: Shares) -> tuple[list[Sample], list[Note]]:
    """The samples with one series for each of SGLang's engines; other engines' as they are. Of a count that it exports
    by the requests' priority too, the whole."""
    out: list[Sample] = []
    samples = list(samples)
    split = any(labels.get("priority") for _, labels, _ in samples)
    wholes = {(name, _any_priority(labels)) for name, labels, _ in samples if split and not labels.get("priority")}
    servers: dict[tuple[str, tuple[tuple[str, str], ...]], dict[str, list[tuple[tuple[int, ...], Floats]]]] = {}
    for name, labels, values in samples:
        if not name.startswith("sglang:"):
            out.append((name, labels, values))
            continue
        if labels.get("priority") and (name, _any_priority(labels)) in wholes:
            continue
        shares = apart.get(_server(labels), {})
        own = {k: v for k, v in labels.items() if k not in _ORDER and (k != "dp_rank" or v in shares)}
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
    there = np.isfinite(parts).sum(axis=0)
    return summed(parts) / np.maximum(there, 1) if name in _SHARES else summed(parts)


def _server(labels: Mapping[str, str]) -> Server:
    return tuple(labels.get(name) for name in ("namespace", "job", "pod", "instance", "model_name"))


def _any_priority(labels: Mapping[str, str]) -> frozenset[tuple[str, str]]:
    return frozenset((k, v) for k, v in labels.items() if k != "priority")


def _rank(labels: Mapping[str, str]) -> tuple[int, ...]:
    return tuple(int(rank) if (rank := labels.get(r, "")).isdecimal() else 0 for r in _ORDER)
