"""What the engines and the trainer of a simulated run would have exported: families, and an OpenMetrics file of them.

Names and types are vLLM's (`vllm/v1/metrics/loggers.py`, 0.12 and later), the trainer's are those of
`history/signals.py`. Differences from a real engine: prompt tokens are counted while they are computed, and again when
a request is prefilled again. A sample of several turns is as many requests, all of which are taken to be as long, in
tokens and in seconds: those of its tools are in them.
"""

from __future__ import annotations

import time
from collections.abc import Iterator, Mapping
from pathlib import Path
from typing import TextIO

import numpy as np
from msgspec import Struct

from fleetsim.engine.kernel.tables import G_ABORTED, G_FILTERED, G_OVERFLOW, G_STALE
from fleetsim.export.series import (
    Family,
    Floats,
    Incarnation,
    Numbers,
    Series,
    histograms,
    in_order,
    incarnations,
    request_success,
    scrape_times,
)
from fleetsim.files import whole
from fleetsim.sim.records import Records
from fleetsim.sim.timeline import waits_for_samples


def families(records: Records, histogram_rows: int = 1) -> Iterator[Family]:
    """Every metric of the run. Histograms only at every `histogram_rows`-th scrape."""
    lives = incarnations(records)
    yield from engine_values(records, lives)
    yield request_success(records, lives)
    yield from histograms(records, lives, histogram_rows)
    yield from trainer_values(records)


def engine_values(records: Records, lives: list[Incarnation]) -> Iterator[Family]:
    """What each engine shows at a scrape, but for requests that ended."""
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
        ("inter_token_latency_seconds", "summary", "Seconds between tokens.", table["decode_s"]),
    ):
        suffix = {"counter": "_total", "summary": "_sum"}.get(kind, "")
        series = (
            Series(life.instance, {}, ((suffix, {}),), life.rows, values[life.rows, life.instance][:, None])
            for life in lives
        )
        yield Family(f"vllm:{name}", kind, "", text, tuple(series))
    limits = records.engine[1]
    labels = {
        "block_size": str(limits.block_size),
        "enable_prefix_caching": str(caches_prefixes(records)),
        "num_gpu_blocks": str(limits.kv_blocks),
    }
    configs = (
        Series(life.instance, labels, (("", {}),), life.rows, np.ones((len(life.rows), 1), np.int64)) for life in lives
    )
    yield Family("vllm:cache_config_info", "gauge", "", "Information of the cache.", tuple(configs))
    if records.scenario.fleet.placement == "colocated":
        yield _sleep_state(records, lives)


def caches_prefixes(records: Records) -> bool:
    """Whether the engines keep a prefix cache."""
    return records.scenario.engine.prefix_caching and records.scenario.engine.kind != "constant"


def _sleep_state(records: Records, lives: list[Incarnation]) -> Family:
    """Engines on shared GPUs sleep while the trainer has them."""
    table = records.scrapes.reshape(len(scrape_times(records)), -1)
    series = []
    for life in lives:
        asleep = table["paused"][life.rows, life.instance].astype(np.int64)
        for state, values in (("awake", 1 - asleep), ("weights_offloaded", asleep), ("discard_all", 0 * asleep)):
            series.append(Series(life.instance, {"sleep_state": state}, (("", {}),), life.rows, values[:, None]))
    return Family("vllm:engine_sleep_state", "gauge", "", "State of the engine's sleep mode.", in_order(series))


def trainer_values(records: Records) -> Iterator[Family]:
    """The trainer's own counters: as an exporter has them, they grow when a phase is over."""
    steps, groups, size = records.steps, records.groups, records.scenario.workload.group_size
    times, queue = scrape_times(records), records.queue_scrapes
    waits = waits_for_samples(records)
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
        ("sample_wait_seconds", "seconds", "Waited for samples.", total(*waits)),
        ("train_seconds", "seconds", "Computed.", total(steps["train_end_s"], steps["train_s"])),
        ("weight_sync_seconds", "seconds", "Held by weight sync.", total(end, steps["sync_block_s"])),
        ("trained_samples", "", "Samples trained on.", total(end, steps["samples"].astype(np.int64))),
        ("trained_tokens", "", "Output tokens trained on.", total(end, steps["output_tokens"])),
        ("dropped_samples", "", "Finished samples thrown away.", total(gone_s, np.full(len(gone_s), size, np.int64))),
    ):
        yield family(f"rl_trainer_{name}", "counter", unit, text, values)
    # The size of the queue itself, as TRL's `queue.qsize()`: a client that finds it full still holds what it puts.
    yield family("rl_rollout_queue_samples", "gauge", "", "Finished samples not yet taken.", queue["samples"])
    age = queue["oldest_age_steps"]
    yield family("rl_rollout_queue_oldest_age_steps", "gauge", "", "Age of the oldest queued sample.", age)


# Prometheus forgets a series five minutes after its last sample; histograms are most of a history and change slowly.
HISTOGRAMS_EVERY_S = 120.0
_HOUR_S = 3600.0


class Written(Struct, frozen=True):
    """What a history file holds: samples (lines), and the unix seconds of its first and last one."""

    samples: int
    start_s: float
    end_s: float


def write_openmetrics(records: Records, file: TextIO, *, end_s: float, until_s: float | None = None) -> Written:
    """Writes the history of a scraped run, its last scrape at unix second `end_s`.

    until_s: seconds of the run after which nothing is written. Raises ValueError for a run that was not scraped.
    """
    times = scrape_times(records)
    last = len(times) if until_s is None else int(np.searchsorted(times, until_s + 1e-6, side="right"))
    start_s = end_s - float(times[last - 1])
    stamps = [f" {_stamp(start_s + t)}\n" for t in times[:last].tolist()]
    every = float(times[1]) if len(times) > 1 else HISTOGRAMS_EVERY_S
    targets: dict[int | None, dict[str, str]] = {
        None: {"instance": "trainer-0:9100", "job": "trainer", "pod": "trainer-0"}
    }
    for i in range(int(records.scrapes["instance"].max(initial=-1)) + 1):
        pod, model = f"rollout-{i}", records.scenario.engine.model
        targets[i] = {"engine": "0", "model_name": model, "instance": f"{pod}:8000", "job": "rollout", "pod": pod}
    count = 0
    for family in families(records, max(1, round(HISTOGRAMS_EVERY_S / every))):
        file.write(f"# TYPE {family.name} {family.kind}\n")
        if family.unit:
            file.write(f"# UNIT {family.name} {family.unit}\n")
        file.write(f"# HELP {family.name} {family.help}\n")
        for series in family.series:
            form = _form(family, series, targets[series.target], "\0")
            file.writelines(_rows(form, series, stamps))
            count += len(series.lines) * int(np.searchsorted(series.rows, last))
    file.write("# EOF\n")
    return Written(count, start_s, end_s)


def write_history(run: Records, place: Path, end_s: float | None = None, until_s: float | None = None) -> str:
    """The history of a scraped run as a file; returns what to tell of it. end_s: this hour's begin if None; until_s: as
    of `write_openmetrics`. Raises OutsideError, ValueError for a run that was not scraped."""
    from fleetsim.history.window import shown

    end = time.time() // _HOUR_S * _HOUR_S if end_s is None else end_s
    with whole(place) as beside, beside.open("w", encoding="utf-8") as file:
        written = write_openmetrics(run, file, end_s=end, until_s=until_s)
    return (
        f"{written.samples:,} samples, {shown(written.start_s)} to {shown(written.end_s)}; for Prometheus: "
        f"promtool tsdb create-blocks-from openmetrics {place} DATA"
    )


def _stamp(unix_s: float) -> str:
    """Seconds as the format has them, to the millisecond that Prometheus keeps."""
    milliseconds = round(unix_s * 1000)
    whole, rest = divmod(milliseconds, 1000)
    return str(whole) if rest == 0 else f"{whole}.{rest:03d}"


def _form(family: Family, series: Series, target: Mapping[str, str], end: str) -> str:
    """The lines of one scrape, with a place for each value; `end` stands behind it."""
    out = []
    for suffix, own in series.lines:
        labels = {**target, **series.labels, **own}
        inside = ",".join(f'{name}="{_escaped(labels[name])}"' for name in sorted(labels))
        braces = f"{{{inside}}}" if inside else ""
        whole = suffix in ("_bucket", "_count") or series.values.dtype.kind == "i"
        out.append(f"{family.name}{suffix}{braces}".replace("%", "%%") + f" {'%d' if whole else '%r'}{end}")
    return "".join(out)


def _escaped(value: str) -> str:
    return value.replace("\\", r"\\").replace("\n", r"\n").replace('"', r"\"")


def _rows(form: str, series: Series, stamps: list[str], at_once: int = 4096) -> Iterator[str]:
    """The text of a series, some thousand scrapes at a time."""
    end = int(np.searchsorted(series.rows, len(stamps)))
    for first in range(0, end, at_once):
        part = slice(first, min(end, first + at_once))
        values, at = series.values[part].tolist(), [stamps[k] for k in series.rows[part].tolist()]
        if len(series.lines) > 1:
            yield "".join([(form % tuple(v)).replace("\0", stamp) for v, stamp in zip(values, at, strict=True)])
        else:  # most of a file: the name is the same in every line
            name = form.replace("%%", "%").rpartition(" ")[0]
            yield "".join([f"{name} {v!r}{stamp}" for (v,), stamp in zip(values, at, strict=True)])
