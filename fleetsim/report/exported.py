"""What the engines and the trainer of a simulated run would have exported: metric families over the scrape times.

Names and types are vLLM's (`vllm/v1/metrics/loggers.py`, 0.12 and later), the trainer's are those of
`history/signals.py`. Differences from a real engine: prompt tokens are counted while they are computed, and again when
a request is prefilled again; a sample of several turns is one request; histograms are observed when a sample ends.
"""

from __future__ import annotations

from collections.abc import Callable, Iterator, Mapping
from dataclasses import dataclass

import numpy as np
from numpy.typing import NDArray

from fleetsim.config.lengths import longest_length
from fleetsim.engine.kernel.tables import (
    G_ABORTED,
    G_FILTERED,
    G_OVERFLOW,
    G_STALE,
    GONE,
)
from fleetsim.sim.records import Records

Floats = NDArray[np.float64]
Ints = NDArray[np.int64]
Numbers = Floats | Ints

SECONDS = (0.3, 0.5, 0.8, 1.0, 1.5, 2.0, 2.5, 5.0, 10.0, 15.0, 20.0, 30.0, 40.0, 50.0, 60.0, 120.0, 240.0, 480.0, 960.0)
SECONDS_LE = (*SECONDS, 1920.0, 7680.0)
PARAMS_N_LE = (1.0, 2.0, 5.0, 10.0, 20.0)


@dataclass(frozen=True, slots=True)
class Series:
    """Samples of one target that belong together: a counter, a gauge, or all lines of one histogram.

    target: index of the instance, None = the trainer. labels: beside the target's. lines: what stands behind the
    family's name in each sample's name, and its own labels. rows: scrape indices. values: (rows, lines).
    """

    target: int | None
    labels: Mapping[str, str]
    lines: tuple[tuple[str, Mapping[str, str]], ...]
    rows: Ints
    values: Numbers


@dataclass(frozen=True, slots=True)
class Family:
    """One metric: name without `_total`, type, unit ("" = none said), help, and its series."""

    name: str
    kind: str
    unit: str
    help: str
    series: tuple[Series, ...]


@dataclass(frozen=True, slots=True)
class Incarnation:
    """One process of an instance: it began at born_s, the next one at end_s; rows: scrapes that found it up."""

    instance: int
    born_s: float
    end_s: float
    rows: Ints


@dataclass(frozen=True, slots=True)
class Observations:
    """Values of a histogram, one an event: when, on which instance, what."""

    time_s: Floats
    instance: Ints
    value: Floats


def scrape_times(records: Records) -> Floats:
    """Seconds of the run at which it was scraped: (T,). Raises ValueError when it was not."""
    if len(records.queue_scrapes) == 0:
        raise ValueError("the run was not scraped: simulate(..., scrape_every_s=15.0)")
    return records.queue_scrapes["time_s"].astype(np.float64)


def incarnations(records: Records) -> list[Incarnation]:
    """All processes of all instances, in the order of instance and time."""
    times = scrape_times(records)
    table = records.scrapes.reshape(len(times), -1)
    out = []
    for i in range(table.shape[1]):
        column = table[:, i]
        numbers, first = np.unique(column["incarnation"], return_index=True)
        born = [*column["born_s"][first].tolist(), np.inf]
        for k, number in enumerate(numbers):
            rows = np.flatnonzero((column["incarnation"] == number) & column["up"])
            if len(rows):
                out.append(Incarnation(i, born[k] if number else -1.0, born[k + 1], rows))
    return out


def families(records: Records, histogram_rows: int = 1) -> Iterator[Family]:
    """Every metric of the run. Histograms only at every `histogram_rows`-th scrape."""
    lives = incarnations(records)
    yield from _engine_values(records, lives)
    yield _request_success(records, lives)
    yield from _histograms(records, lives, histogram_rows)
    yield from _trainer(records)


def _engine_values(records: Records, lives: list[Incarnation]) -> Iterator[Family]:
    table = records.scrapes.reshape(len(scrape_times(records)), -1)
    caching = int(caches_prefixes(records))
    prompt = table["prefilled"] + table["hit_tokens"]
    for name, kind, text, values in (
        ("generation_tokens", "counter", "Number of generation tokens processed.", table["generated"]),
        ("prompt_tokens", "counter", "Number of prefill tokens processed.", prompt),
        ("num_requests_running", "gauge", "Requests in the execution batch.", table["running"]),
        ("num_requests_waiting", "gauge", "Requests that wait to be processed.", table["waiting"]),
        ("kv_cache_usage_perc", "gauge", "KV cache in use; 1 is all of it.", table["kv_use"]),
        ("num_preemptions", "counter", "Preemptions.", table["preemptions"]),
        ("prefix_cache_queries", "counter", "Prompt tokens looked up in the prefix cache.", caching * prompt),
        ("prefix_cache_hits", "counter", "Prompt tokens found in the prefix cache.", table["hit_tokens"]),
    ):
        suffix = "_total" if kind == "counter" else ""
        series = (
            Series(life.instance, {}, ((suffix, {}),), life.rows, values[life.rows, life.instance][:, None])
            for life in lives
        )
        yield Family(f"vllm:{name}", kind, "", text, tuple(series))
    yield Family("vllm:cache_config_info", "gauge", "", "Information of the cache.", tuple(_configs(records, lives)))
    if records.scenario.fleet.placement == "colocated":
        yield _sleep_state(records, lives)


def caches_prefixes(records: Records) -> bool:
    """Whether the engines keep a prefix cache."""
    return records.scenario.engine.prefix_caching and records.scenario.engine.kind != "constant"


def _configs(records: Records, lives: list[Incarnation]) -> Iterator[Series]:
    limits = records.engine[1]
    labels = {
        "block_size": str(limits.block_size),
        "enable_prefix_caching": str(caches_prefixes(records)),
        "num_gpu_blocks": str(limits.kv_blocks),
    }
    for life in lives:
        yield Series(life.instance, labels, (("", {}),), life.rows, np.ones((len(life.rows), 1), np.int64))


def _sleep_state(records: Records, lives: list[Incarnation]) -> Family:
    """Engines on shared GPUs sleep while the trainer has them."""
    table = records.scrapes.reshape(len(scrape_times(records)), -1)
    series = []
    for life in lives:
        asleep = table["paused"][life.rows, life.instance].astype(np.int64)
        for state, values in (("awake", 1 - asleep), ("weights_offloaded", asleep), ("discard_all", 0 * asleep)):
            series.append(Series(life.instance, {"sleep_state": state}, (("", {}),), life.rows, values[:, None]))
    return Family("vllm:engine_sleep_state", "gauge", "", "State of the engine's sleep mode.", _in_order(series))


def _in_order(series: list[Series]) -> tuple[Series, ...]:
    """All processes of an instance one after the other, label by label: the format wants a series in one piece."""
    return tuple(sorted(series, key=lambda s: (s.target or 0, *s.labels.values())))


def _request_success(records: Records, lives: list[Incarnation]) -> Family:
    samples = records.samples
    cap = getattr(records.scenario.workload.output_tokens, "max", None)
    ended = samples["finish_s"] >= 0
    cut = ended & (samples["target"] >= (np.inf if cap is None else round(cap)))
    reasons = {
        "stop": _at(records, ended & ~cut, samples["finish_s"], samples["finish_s"]),
        "length": _at(records, cut, samples["finish_s"], samples["finish_s"]),
        "abort": _aborts(records),
    }
    series = []
    times = scrape_times(records)
    for life in lives:
        for reason, seen in reasons.items():
            counts = _running_counts(seen, life, times, np.array([np.inf]), life.rows)[0]
            series.append(Series(life.instance, {"finished_reason": reason}, (("_total", {}),), life.rows, counts))
    return Family("vllm:request_success", "counter", "", "Requests that ended.", _in_order(series))


def _at(records: Records, which: NDArray[np.bool_], time_s: Floats, value: Floats) -> Observations:
    """Observations of those samples, in the order of time."""
    rows = np.flatnonzero(which & (records.samples["instance"] >= 0))
    rows = rows[np.argsort(time_s[rows], kind="stable")]
    return Observations(time_s[rows], records.samples["instance"][rows], value[rows].astype(np.float64))


def _aborts(records: Records) -> Observations:
    """Requests aborted: with their group, or when the group was complete without them."""
    samples, groups = records.samples, records.groups
    gone = (samples["status"] == GONE) & (samples["finish_s"] < 0)
    when = groups["ready_s"].astype(np.float64)
    known = records.discards["group"] < len(groups)
    when[records.discards["group"][known]] = records.discards["time_s"][known]
    time_s = when[samples["group"]]
    return _at(records, gone & (time_s >= 0), time_s, time_s)


def _histograms(records: Records, lives: list[Incarnation], every: int) -> Iterator[Family]:
    samples, workload = records.samples, records.scenario.workload
    ended, finish = samples["finish_s"] >= 0, samples["finish_s"]
    submitted = records.groups["submit_s"][samples["group"]]
    longest = [longest_length(law) for law in (workload.prompt_tokens, workload.output_tokens)]
    seen = int((samples["prompt"] + samples["target"]).max()) if len(samples) else 1
    tokens_le = one_two_five(seen if None in longest else int(sum(x or 0.0 for x in longest)))
    laws: tuple[tuple[str, str, str, tuple[float, ...], Callable[[], Observations]], ...] = (
        (
            "request_generation_tokens",
            "",
            "Generation tokens of ended requests.",
            tokens_le,
            lambda: _at(records, ended, finish, samples["target"]),
        ),
        (
            "request_prompt_tokens",
            "",
            "Prompt tokens of ended requests.",
            tokens_le,
            lambda: _at(records, ended, finish, samples["prompt"]),
        ),
        ("request_params_n", "", "Parameter n of requests.", PARAMS_N_LE, lambda: _parents(records)),
        (
            "e2e_request_latency_seconds",
            "seconds",
            "Seconds from submission to the last token.",
            SECONDS_LE,
            lambda: _at(records, ended, finish, finish - submitted),
        ),
        (
            "request_queue_time_seconds",
            "seconds",
            "Seconds that a request waited.",
            SECONDS_LE,
            lambda: _at(records, ended, finish, np.maximum(0.0, samples["start_s"] - submitted)),
        ),
    )
    times = scrape_times(records)
    for name, unit, text, bounds, observe in laws:
        le = np.array([*bounds, np.inf])
        lines = (*(("_bucket", {"le": _bound(x)}) for x in le), ("_count", {}), ("_sum", {}))
        observed, series = observe(), []
        for life in lives:
            rows = life.rows[life.rows % every == 0]
            counts, sums = _running_counts(observed, life, times, le, rows)
            values = np.column_stack([counts, counts[:, -1], sums])
            series.append(Series(life.instance, {}, lines, rows, values))
        yield Family(f"vllm:{name}", "histogram", unit, text, tuple(series))


def _bound(x: float) -> str:
    return "+Inf" if np.isinf(x) else repr(float(x))


def _parents(records: Records) -> Observations:
    """One request per group where its samples go to one instance (n = its size), else one per sample."""
    samples, groups = records.samples, records.groups
    if records.scenario.fleet.group_placement != "together":
        return _at(records, samples["finish_s"] >= 0, samples["finish_s"], np.ones(len(samples)))
    ended = np.flatnonzero(samples["finish_s"] >= 0)
    ended = ended[np.argsort(samples["finish_s"][ended], kind="stable")]
    count = np.bincount(samples["group"][ended], minlength=len(groups))
    last = np.full(len(groups), -1)
    last[samples["group"][ended]] = ended  # the latest one stays
    whole = np.flatnonzero((count >= groups["need"]) & (count > 0))
    which = np.zeros(len(samples), bool)
    which[last[whole]] = True
    return _at(records, which, samples["finish_s"], groups["size"][samples["group"]].astype(np.float64))


def _running_counts(
    seen: Observations, life: Incarnation, times: Floats, le: Floats, rows: Ints
) -> tuple[Ints, Floats]:
    """Observations up to each row's time, of this process: cumulative over le (rows, le), and their sum (rows,)."""
    here = (seen.instance == life.instance) & (seen.time_s > life.born_s) & (seen.time_s <= life.end_s)
    at = np.searchsorted(times[rows], seen.time_s[here], side="left")
    bucket = np.searchsorted(le, seen.value[here], side="left") if len(le) > 1 else np.zeros(len(at), np.int64)
    cells = np.bincount(at * len(le) + bucket, minlength=(len(rows) + 1) * len(le))
    counts = cells.reshape(-1, len(le))[:-1].cumsum(axis=0).cumsum(axis=1)
    sums = np.bincount(at, weights=seen.value[here], minlength=len(rows) + 1)[:-1].cumsum()
    return counts, sums


def _trainer(records: Records) -> Iterator[Family]:
    """The trainer's own counters: as an exporter has them, they grow when a phase is over."""
    steps, groups, size = records.steps, records.groups, records.scenario.workload.group_size
    times, queue = scrape_times(records), records.queue_scrapes
    waited = steps["ready_s"] if records.scenario.trainer.minibatches == 1 else steps["train_end_s"]
    lost = np.isin(groups["status"], [G_STALE, G_OVERFLOW, G_ABORTED]) & (groups["left_s"] >= 0)
    filtered = groups["status"] == G_FILTERED
    gone_s = np.sort(np.concatenate([groups["left_s"][lost], groups["ready_s"][filtered]]))
    rows = np.arange(len(times))

    def family(name: str, kind: str, unit: str, text: str, values: Numbers) -> Family:
        line: tuple[str, Mapping[str, str]] = ("_total" if kind == "counter" else "", {})
        return Family(name, kind, unit, text, (Series(None, {}, (line,), rows, values[:, None]),))

    def total(at_s: Floats, amounts: Numbers) -> Numbers:
        grown = np.concatenate([np.zeros(1, amounts.dtype), np.cumsum(amounts)])
        return grown[np.searchsorted(at_s, times, side="left")]

    ones = np.ones(len(steps), np.int64)
    end = steps["end_s"]
    for name, unit, text, values in (
        ("steps", "", "Optimizer steps completed.", total(end, ones)),
        ("sample_wait_seconds", "seconds", "Waited for samples.", total(waited, steps["wait_s"])),
        ("train_seconds", "seconds", "Computed.", total(steps["train_end_s"], steps["train_s"])),
        ("weight_sync_seconds", "seconds", "Held by weight sync.", total(end, steps["sync_block_s"])),
        ("trained_samples", "", "Samples trained on.", total(end, steps["samples"].astype(np.int64))),
        ("trained_tokens", "", "Output tokens trained on.", total(end, steps["output_tokens"])),
        ("dropped_samples", "", "Finished samples thrown away.", total(gone_s, np.full(len(gone_s), size, np.int64))),
    ):
        yield family(f"rl_trainer_{name}", "counter", unit, text, values)
    waiting = queue["samples"] + queue["blocked"]
    yield family("rl_rollout_queue_samples", "gauge", "", "Finished samples not yet taken.", waiting)
    age = queue["oldest_age_steps"]
    yield family("rl_rollout_queue_oldest_age_steps", "gauge", "", "Age of the oldest queued sample.", age)


def one_two_five(most: int) -> tuple[float, ...]:
    """1, 2, 5, 10, ... up to `most`: the buckets of vLLM's token histograms."""
    out: list[float] = []
    power = 1
    while True:
        for m in (1, 2, 5):
            if m * power > most:
                return tuple(out)
            out.append(float(m * power))
        power *= 10
