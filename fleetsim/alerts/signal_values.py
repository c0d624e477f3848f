"""The standing signals as numbers: what Prometheus would have scraped of a simulated run, and what rules make of it.

Every formula here has its twin in PromQL in `signals.py`; tests let a real Prometheus evaluate both.
"""

from __future__ import annotations

from collections.abc import Callable, Mapping
from itertools import pairwise

import numpy as np
from msgspec import Struct
from numpy.typing import NDArray

from fleetsim.alerts.rate import Floats, Windows, averages, counts, rates, total, windows
from fleetsim.engine.kernel.tables import DONE
from fleetsim.sim.records import Records
from fleetsim.sim.timeline import waits_for_samples

# An instance is compared with others only if this share of its samples is there: one that was lost or has just come
# back has a low rate for another reason than being slow.
PRESENT = 0.9


class Scraped(Struct, frozen=True):
    """Samples on one grid of scrapes.

    times: (T,) seconds since the start of the run. engines: signal -> (I, T), NaN while an instance is not up; counters
    since its process began; `output_tokens_sum` and `output_tokens_count` are the histogram's. trainer: signal -> (T,).
    """

    times: Floats
    engines: Mapping[str, Floats]
    trainer: Mapping[str, Floats]

    @property
    def hours(self) -> float:
        """Hours that it spans."""
        return float(self.times[-1] - self.times[0]) / 3600.0


def scraped_of(records: Records) -> Scraped:
    """What a monitoring system saw of a run that was simulated with `scrape_every_s`."""
    scrapes = records.scrapes
    instances = int(scrapes["instance"].max()) + 1
    table = scrapes.reshape(-1, instances)
    times = table["time_s"][:, 0]
    up = table["up"].T

    def gauge(values: NDArray[np.float64]) -> Floats:
        return np.where(up, values.T.astype(float), np.nan)

    engines = {
        "running": gauge(table["running"]),
        "kv_use": gauge(table["kv_use"]),
        "generation_tokens": gauge(table["generated"]),
        "decoding_s": gauge(table["decode_s"]),
        "prefix_hits": gauge(table["hit_tokens"]),
        "preemptions": gauge(table["preemptions"]),
    }
    engines["prompt_tokens"] = engines["prefix_hits"] + gauge(table["prefilled"])
    done = np.flatnonzero(records.samples["status"] == DONE)
    instance, finish = records.samples["instance"][done], records.samples["finish_s"][done]
    order = np.lexsort((finish, instance))
    instance, finish = instance[order], finish[order]
    made = records.samples["made"][done[order]].astype(float)
    born = table["born_s"].T
    for name, value in (("output_tokens_count", np.ones(len(made))), ("output_tokens_sum", made)):
        engines[name] = np.where(up, _counted(instance, finish, value, times, born), np.nan)
    engines["finished"] = engines["output_tokens_count"]
    return Scraped(times, engines, _trainer(records, times))


def _counted(instance: NDArray[np.int32], at: Floats, value: Floats, times: Floats, born: Floats) -> Floats:
    """Running totals (I, T) of what happened on each instance by each scrape, from its process's begin on.

    instance, at, value: one entry for each thing that happened, by instance and then by time.
    """
    out = np.zeros(born.shape)
    begins = np.searchsorted(instance, np.arange(len(born) + 1))
    for i, (first, last) in enumerate(pairwise(begins)):
        when = at[first:last]
        grown = np.concatenate([[0.0], np.cumsum(value[first:last])])
        out[i] = grown[np.searchsorted(when, times, "right")] - grown[np.searchsorted(when, born[i], "left")]
    return out


def _trainer(records: Records, times: Floats) -> dict[str, Floats]:
    """What the trainer exports: counters that grow when a phase ends, and the queue."""
    steps = records.steps

    def grown(at_s: Floats, value: Floats) -> Floats:
        totals = np.concatenate([[0.0], np.cumsum(value)])
        counted: Floats = totals[np.searchsorted(at_s, times)]
        return counted

    def counter(at: str, value: Floats) -> Floats:
        return grown(steps[at], value)

    queue = records.queue_scrapes
    return {
        "trainer.steps": counter("end_s", np.ones(len(steps))),
        "trainer.wait_s_total": grown(*waits_for_samples(records)),
        "trainer.train_s_total": counter("train_end_s", steps["train_s"]),
        "trainer.sync_s_total": counter("end_s", steps["sync_block_s"]),
        "trainer.trained_tokens": counter("end_s", steps["output_tokens"].astype(float)),
        "trainer.trained_samples": counter("end_s", steps["samples"].astype(float)),
        "queue.samples": queue["samples"].astype(float),
        "queue.oldest_age_steps": queue["oldest_age_steps"].astype(float),
    }


class Expected(Struct, frozen=True):
    """What the plan says: instances; the trainer's compute seconds per step and per trained token; mean prompt."""

    instances: int
    step_s: float
    token_s: float
    prompt_tokens: float


class View(Struct, frozen=True):
    """Samples and the windows through which a rule sees them."""

    scraped: Scraped
    windows: Windows
    expected: Expected

    def each(self, signal: str) -> Floats:
        """Growth per second of a counter: (S, E)."""
        return rates(self._values(signal), self.windows)

    def rate(self, signal: str) -> Floats:
        """The same, summed over the fleet: (E,)."""
        return total(self.each(signal))

    def mean(self, signal: str) -> Floats:
        """The highest mean of a gauge over the windows: (E,)."""
        found = averages(self._values(signal), self.windows)
        highest: Floats = np.fmax.reduce(found, axis=0)
        return highest

    def _values(self, signal: str) -> Floats:
        if signal in self.scraped.trainer:
            return self.scraped.trainer[signal][None, :]
        return self.scraped.engines[signal]


Trace = Callable[[View], Floats]


def view(scraped: Scraped, at: Floats, window_s: float, expected: Expected, left_open: bool = True) -> View:
    """What windows of window_s that end at each of `at` show."""
    return View(scraped, windows(scraped.times, at, window_s, left_open), expected)


def _ratio(above: Floats, below: Floats) -> Floats:
    with np.errstate(divide="ignore", invalid="ignore"):
        ratio: Floats = above / below
    return ratio


def trainer_idle(v: View) -> Floats:
    """Share of the trainer's seconds in which it waited for samples."""
    wait = v.rate("trainer.wait_s_total")
    return _ratio(wait, wait + v.rate("trainer.train_s_total") + v.rate("trainer.sync_s_total"))


def queue_depth(v: View) -> Floats:
    """Finished samples that wait for the trainer, mean over the window."""
    return v.mean("queue.samples")


def oldest_age(v: View) -> Floats:
    """Age of the oldest of them in optimizer steps, mean over the window."""
    return v.mean("queue.oldest_age_steps")


def generated_per_trained(v: View) -> Floats:
    """Output tokens generated per output token trained."""
    return _ratio(v.rate("generation_tokens"), v.rate("trainer.trained_tokens"))


def sync_seconds(v: View) -> Floats:
    """Seconds per optimizer step in which weight sync held the trainer."""
    return _ratio(v.rate("trainer.sync_s_total"), v.rate("trainer.steps"))


def trainer_pace(v: View) -> Floats:
    """The trainer's compute seconds / those that the plan expects of the steps and tokens that it did."""
    want = v.expected.step_s * v.rate("trainer.steps")
    if v.expected.token_s > 0:
        tokens = v.rate("trainer.trained_tokens") + v.expected.prompt_tokens * v.rate("trainer.trained_samples")
        want = want + v.expected.token_s * tokens
    return _ratio(v.rate("trainer.train_s_total"), want)


def straggler_pace(v: View) -> Floats:
    """Tokens per second and decoding request of the slowest instance / those of the median one.

    Both are counters. A mean of `running` would be a mean of its scrapes: where a step lasts some whole number of
    scrape intervals, they see the same moments of every step, which are other ones on every instance. Such a mean stays
    off for as long as that lasts, and how wide it scatters depends on the length of a step, which the plan does not
    know so well: a fleet 10 % faster than the one that a threshold was made from scattered twice as wide.
    """
    held = counts(v.scraped.engines["running"], v.windows)
    pace = _ratio(v.each("generation_tokens"), v.each("decoding_s"))
    pace = np.where(held > PRESENT * held.max(axis=0), pace, np.nan)
    return _ratio(np.fmin.reduce(pace, axis=0), _median(pace))


def _median(values: Floats) -> Floats:
    """`quantile(0.5, ...)` of (I, E) over instances that are there."""
    known = np.sort(values, axis=0)  # NaN last
    n = (~np.isnan(values)).sum(axis=0)
    middle = 0.5 * (np.maximum(n, 1) - 1)
    low, high = np.floor(middle).astype(int), np.ceil(middle).astype(int)
    e = np.arange(values.shape[1])
    # an instance that made first tokens only has an infinite pace, here as in Prometheus
    with np.errstate(invalid="ignore"):
        median: Floats = known[low, e] * (1 - (middle - low)) + known[high, e] * (middle - low)
    return median


def preemptions_per_request(v: View) -> Floats:
    """Preemptions per finished request."""
    return _ratio(v.rate("preemptions"), v.rate("finished"))


def prefix_hit_share(v: View) -> Floats:
    """Share of the prompt tokens that came from the prefix cache."""
    return _ratio(v.rate("prefix_hits"), v.rate("prompt_tokens"))


def output_length(v: View) -> Floats:
    """Mean output tokens of the requests that finished."""
    return _ratio(v.rate("output_tokens_sum"), v.rate("output_tokens_count"))


def instances(v: View) -> Floats:
    """Instances that were scraped within the window."""
    found: Floats = (counts(v.scraped.engines["running"], v.windows) > 0).sum(axis=0).astype(float)
    return found
