"""Histories with a known truth: what a scraper would have read of engines whose rates and pauses are given."""

from __future__ import annotations

from dataclasses import dataclass, field

import numpy as np
from numpy.typing import NDArray

from fleetsim.history.history import Buckets, History, InstanceId, StepLog

START = 1_790_000_000.0
Floats = NDArray[np.float64]


@dataclass(frozen=True)
class Fleet:
    """instances of `rate` tok/s with `running` requests each, over `span_s`, scraped every `step_s`.

    pauses: (start, end) in seconds of the window, when nobody generates. empty: running is 0 meanwhile. slow: index ->
    rate factor. noise: relative scatter of the rate from one 15 s to the next. phases: seconds by which the grid shows
    an instance late. drain_s: before an empty pause running falls to 1 within that time.
    """

    instances: int = 8
    rate: float = 4000.0
    running: float = 64.0
    span_s: float = 3600.0
    step_s: float = 15.0
    pauses: tuple[tuple[float, float], ...] = ()
    empty: bool = False
    drain_s: float = 0.0
    slow: dict[int, float] = field(default_factory=dict)
    loads: dict[int, float] = field(default_factory=dict)
    noise: float = 0.0
    phases: tuple[float, ...] = ()
    seed: int = 0

    def history(self, **more: object) -> History:
        rng = np.random.default_rng(self.seed)
        times = np.arange(0.0, self.span_s + self.step_s / 2, self.step_s)
        knots = np.unique([*np.arange(-60.0, self.span_s + 5, 5.0), *np.ravel(np.array(self.pauses or [(0.0, 0.0)]))])
        middle = (knots[1:] + knots[:-1]) / 2
        on = self._load(middle)
        tokens, running = [], []
        for i in range(self.instances):
            load = self.loads.get(i, 1.0)
            wobble = 1 + self.noise * rng.standard_normal(int(self.span_s // 15) + 8)
            rate = self.rate * speed(load * on) * self.slow.get(i, 1.0) * wobble[((middle + 60) // 15).astype(int)]
            made = np.concatenate(
                [[0.0], np.cumsum(np.maximum(rate, 0) * (np.abs(self._active(middle))) * np.diff(knots))]
            )
            seen = times - (self.phases[i] if self.phases else 0.0)
            tokens.append(np.interp(seen, knots, made) + 1e6 * (i + 1))
            shown = self._load(seen) if self.empty else np.ones(len(seen))
            running.append(np.round(self.running * load * shown))
        values = {"generation_tokens": np.array(tokens), "running": np.array(running)}
        values["waiting"] = np.zeros_like(values["running"])
        return history_of(times + START, self.step_s, values, **more)

    def _active(self, at: Floats) -> Floats:
        on = np.ones(len(at))
        for a, b in self.pauses:
            on[(at >= a) & (at < b)] = 0.0
        return on

    def _load(self, at: Floats) -> Floats:
        load = self._active(at)
        if self.drain_s:
            for a, _ in self.pauses:
                tail = (at >= a - self.drain_s) & (at < a)
                load[tail] = np.maximum((a - at[tail]) / self.drain_s, 1 / self.running)
        return load


def speed(load: Floats) -> Floats:
    """Rate at a share of the usual load: iterations get quicker by a half as the batch empties."""
    return load / (0.5 + 0.5 * load)


def history_of(times: Floats, step_s: float, values: dict[str, Floats], **more: object) -> History:
    size = len(values.get("generation_tokens", ()))
    fields: dict[str, object] = {
        "instances": tuple(InstanceId(f"rollout-{i}", "0", "m") for i in range(size)),
        "fleet": {},
        "histograms": {},
        "configs": ({},) * size,
        "steps": None,
        "notes": (),
        "source": "synthetic",
    }
    return History(times=times, step_s=step_s, values=values, **{**fields, **more})  # type: ignore[arg-type]


def buckets_of(le: list[float], times: Floats, lengths: list[list[Floats]]) -> Buckets:
    """lengths[i][h]: what ended on instance i before times[h] and after the time before."""
    bounds = np.array([*le, np.inf])
    counts = np.zeros((len(lengths), len(times), len(bounds)))
    sums = np.zeros((len(lengths), len(times)))
    for i, parts in enumerate(lengths):
        for h in range(len(times)):
            seen = np.concatenate(parts[: h + 1])
            counts[i, h] = (seen[:, None] <= bounds).sum(axis=0)
            sums[i, h] = seen.sum()
    return Buckets(bounds, times, counts, sums)


def log_of(**columns: list[float]) -> History:
    log = StepLog("verl", {name: np.array(values, dtype=float) for name, values in columns.items()})
    return history_of(np.array([START]), 60.0, {}, steps=log)
