"""Series of exported metrics, the processes whose counters they show, and what engines export when a request ends."""

from __future__ import annotations

from collections.abc import Iterator, Mapping

import numpy as np
from msgspec import Struct
from numpy.typing import NDArray

from fleetsim.config.workload import longest_length
from fleetsim.records import replace
from fleetsim.sim.load import given_up_s
from fleetsim.sim.records import Records

Floats = NDArray[np.float64]
Ints = NDArray[np.int64]
Numbers = NDArray[np.float64 | np.int64]


class Series(Struct, frozen=True):
    """Samples of one target that belong together: a counter, a gauge, or all lines of one histogram.

    target: index of the instance, None = the trainer. labels: beside the target's. lines: what stands behind the
    family's name in each sample's name, and its own labels. rows: scrape indices. values: (rows, lines).
    """

    target: int | None
    labels: Mapping[str, str]
    lines: tuple[tuple[str, Mapping[str, str]], ...]
    rows: Ints
    values: Numbers


class Family(Struct, frozen=True):
    """One metric: name without `_total`, type, unit ("" = none said), help, and its series."""

    name: str
    kind: str
    unit: str
    help: str
    series: tuple[Series, ...]


class Incarnation(Struct, frozen=True):
    """One process of an instance: it began at born_s, the next one at end_s; rows: scrapes that found it up."""

    instance: int
    born_s: float
    end_s: float
    rows: Ints


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


def in_order(series: list[Series]) -> tuple[Series, ...]:
    """All processes of an instance one after the other, label by label: the format wants a series in one piece."""
    return tuple(sorted(series, key=lambda s: (s.target or 0, *s.labels.values())))


SECONDS = (0.3, 0.5, 0.8, 1.0, 1.5, 2.0, 2.5, 5.0, 10.0, 15.0, 20.0, 30.0, 40.0, 50.0, 60.0, 120.0, 240.0, 480.0, 960.0)
SECONDS_LE = (*SECONDS, 1920.0, 7680.0)
PARAMS_N_LE = (1.0, 2.0, 5.0, 10.0, 20.0)


class HistogramEvents(Struct, frozen=True):
    """Values of a histogram, one an event: the sample's row, on which instance, when, what.

    In the order of instance and time.
    """

    row: Ints
    instance: Ints
    time_s: Floats
    value: Floats

    def with_values(self, values: Numbers) -> HistogramEvents:
        """The same events; values: of every sample of the run."""
        return HistogramEvents(self.row, self.instance, self.time_s, values[self.row].astype(np.float64))

    def of(self, life: Incarnation) -> HistogramEvents:
        """Those of one process."""
        first, end = np.searchsorted(self.instance, [life.instance, life.instance + 1])
        a, b = first + np.searchsorted(self.time_s[first:end], [life.born_s, life.end_s], side="right")
        return HistogramEvents(self.row[a:b], self.instance[a:b], self.time_s[a:b], self.value[a:b])


def request_success(records: Records, lives: list[Incarnation]) -> Family:
    """Requests that ended: with their last token, at the length cap (where the scenario has one), or aborted."""
    samples = records.samples
    cap = getattr(records.scenario.workload.output_tokens, "max", None)
    ended = samples["finish_s"] >= 0
    cut = ended & (samples["target"] >= (np.inf if cap is None else round(cap)))
    gone_s = given_up_s(records)  # with their group, or when the group was complete without them
    reasons = {"stop": requests(records, ended & ~cut), "length": requests(records, cut)}
    reasons["abort"] = in_time(records, gone_s >= 0, gone_s)
    series = []
    times = scrape_times(records)
    for life in lives:
        for reason, seen in reasons.items():
            counts = running_counts(seen, life, times, np.array([np.inf]), life.rows)[0]
            series.append(Series(life.instance, {"finished_reason": reason}, (("_total", {}),), life.rows, counts))
    return Family("vllm:request_success", "counter", "", "Requests that ended.", in_order(series))


def requests(records: Records, which: NDArray[np.bool_]) -> HistogramEvents:
    """The requests of those samples that ended, one a turn; value: turns before it. One turn is taken to be as long as
    another."""
    samples = records.samples
    rows = np.flatnonzero(which & (samples["instance"] >= 0))
    turns = samples["turn"][rows] + 1
    before = np.arange(turns.sum()) - np.repeat(np.cumsum(turns) - turns, turns)
    rows, turns = np.repeat(rows, turns), np.repeat(turns, turns)
    begun, ended = samples["start_s"][rows], samples["finish_s"][rows]
    time_s = ended - (ended - begun) * (turns - 1 - before) / turns
    order = np.lexsort((time_s, samples["instance"][rows]))
    rows = rows[order]
    return HistogramEvents(rows, samples["instance"][rows], time_s[order], before[order].astype(np.float64))


def in_time(records: Records, which: NDArray[np.bool_], time_s: Floats) -> HistogramEvents:
    """An observation of each of those samples at its time; its value is 1."""
    rows = np.flatnonzero(which & (records.samples["instance"] >= 0))
    rows = rows[np.lexsort((time_s[rows], records.samples["instance"][rows]))]
    return HistogramEvents(rows, records.samples["instance"][rows], time_s[rows], np.ones(len(rows)))


def histograms(records: Records, lives: list[Incarnation], every: int) -> Iterator[Family]:
    """Lengths and times of ended requests, at every `every`-th scrape."""
    samples, workload = records.samples, records.scenario.workload
    ended, turns = requests(records, samples["finish_s"] >= 0), samples["turn"] + 1
    prompts = ended.with_values(samples["target"] / turns + samples["extra"] / np.maximum(1, turns - 1)).value
    prompts = samples["prompt"][ended.row] + ended.value * prompts
    submitted = records.groups["submit_s"][samples["group"]]
    longest = [longest_length(law) for law in (workload.prompt_tokens, workload.output_tokens)]
    seen = int((samples["prompt"] + samples["target"]).max()) if len(samples) else 1
    tokens_le = one_two_five(seen if None in longest else int(sum(x or 0.0 for x in longest)))
    waited = np.maximum(0.0, samples["start_s"] - submitted)
    lasted = ended.with_values((samples["finish_s"] - submitted) / turns)
    all_of_them: tuple[tuple[str, str, str, tuple[float, ...], HistogramEvents], ...] = (
        ("request_generation_tokens", "", "Tokens generated.", tokens_le, ended.with_values(samples["target"] / turns)),
        ("request_prompt_tokens", "", "Prompt tokens.", tokens_le, replace(ended, value=prompts)),
        ("request_params_n", "", "Parameter n of requests.", PARAMS_N_LE, _parents(records, ended)),
        ("e2e_request_latency_seconds", "seconds", "From submission to the last token.", SECONDS_LE, lasted),
        ("request_queue_time_seconds", "seconds", "Waited for a place.", SECONDS_LE, ended.with_values(waited / turns)),
    )
    times = scrape_times(records)
    for name, unit, text, bounds, observed in all_of_them:
        le = np.array([*bounds, np.inf])
        buckets = (("_bucket", {"le": "+Inf" if np.isinf(x) else repr(float(x))}) for x in le)
        lines: tuple[tuple[str, Mapping[str, str]], ...] = (*buckets, ("_count", {}), ("_sum", {}))
        series = []
        for life in lives:
            rows = life.rows[life.rows % every == 0]
            counts, sums = running_counts(observed, life, times, le, rows)
            values = np.column_stack([counts, counts[:, -1], sums])
            series.append(Series(life.instance, {}, lines, rows, values))
        yield Family(f"vllm:{name}", "histogram", unit, text, tuple(series))


def _parents(records: Records, ended: HistogramEvents) -> HistogramEvents:
    """One request per group where its samples go to one instance (n = its size) and have one turn, else n = 1."""
    samples, groups = records.samples, records.groups
    if records.scenario.fleet.group_placement != "together" or records.scenario.workload.turns.several:
        return ended.with_values(np.ones(len(samples)))
    by_time = ended.row[np.argsort(ended.time_s, kind="stable")]
    of_group = samples["group"][by_time]
    last = np.full(len(groups), -1)
    last[of_group] = by_time  # the latest one stays
    count = np.bincount(of_group, minlength=len(groups))
    which = np.zeros(len(samples), bool)
    which[last[(count >= groups["need"]) & (count > 0)]] = True
    sizes = groups["size"][samples["group"]]
    return in_time(records, which, samples["finish_s"]).with_values(sizes)


def running_counts(
    seen: HistogramEvents, life: Incarnation, times: Floats, le: Floats, rows: Ints
) -> tuple[Ints, Floats]:
    """Observations up to each row's time, of this process: cumulative over le (rows, le), and their sum (rows,)."""
    here = seen.of(life)
    at = np.searchsorted(times[rows], here.time_s, side="left")
    bucket = np.searchsorted(le, here.value, side="left")
    cells = np.bincount(at * len(le) + bucket, minlength=(len(rows) + 1) * len(le))
    counts = cells.reshape(-1, len(le))[:-1].cumsum(axis=0).cumsum(axis=1)
    sums = np.bincount(at, weights=here.value, minlength=len(rows) + 1)[:-1].cumsum()
    return counts, sums


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
