"""A fleet whose truth is known in closed form, as OpenMetrics text for a backfill and as a live /metrics page.

Every instance generates at its rate, but for the pauses, in which the whole fleet stands still with its requests
running. Requests end in a fixed cycle of lengths. Times are seconds since the start of the window unless they end in
`_unix`.
"""

from __future__ import annotations

import math
from collections.abc import Iterator
from dataclasses import dataclass

CYCLE = (60.0, 180.0, 180.0, 700.0)  # output tokens of the requests that end, in turn
MEAN = sum(CYCLE) / len(CYCLE)
LE = (1.0, 2.0, 5.0, 10.0, 20.0, 50.0, 100.0, 200.0, 500.0, 1000.0, math.inf)
RUNNING = 24
PROMPT = 50.0
UPGRADE_S = 60.0  # an instance is away so long when it restarts


@dataclass(frozen=True, slots=True)
class Sample:
    """One exposed value. family: the TYPE line's name; kind: counter, gauge or histogram."""

    family: str
    kind: str
    name: str
    labels: str
    value: float


@dataclass(frozen=True, slots=True)
class Fleet:
    """rates: tokens/s of each instance while it generates. pauses: (start, seconds). restarts: (instance, at), its
    counters begin again after a minute away. renamed: (instance, at), then its pod has another name, and new counters.
    upgraded_s: from then on, engines export the metric names of a newer release. trainer_step_s: seconds of an
    optimizer step, 0 = no trainer is exported; a fifth of a step is waiting for samples."""

    start_unix: float
    span_s: float
    rates: tuple[float, ...] = (900.0, 1000.0, 1100.0)
    pauses: tuple[tuple[float, float], ...] = ()
    restarts: tuple[tuple[int, float], ...] = ()
    renamed: tuple[tuple[int, float], ...] = ()
    upgraded_s: float | None = None
    trainer_step_s: float = 0.0
    scrape_s: float = 15.0
    job: str = "rollout"

    @property
    def end_unix(self) -> float:
        """Unix seconds of the last scrape."""
        return self.start_unix + self.span_s

    def active_s(self, t0: float, t1: float) -> float:
        """Seconds of [t0, t1] outside the pauses."""
        paused = sum(max(0.0, min(t1, a + s) - max(t0, a)) for a, s in self.pauses)
        return max(0.0, t1 - t0) - paused

    def begun(self, i: int, t: float) -> float | None:
        """When the process of instance i that lives at t began; None while it is away."""
        at = [a for k, a in (*self.restarts, *self.renamed) if k == i]
        if self.upgraded_s is not None:
            at.append(self.upgraded_s)
        last = max((a for a in at if a <= t), default=None)
        if last is None:
            return 0.0
        return None if t < last + UPGRADE_S else last + UPGRADE_S

    def tokens(self, i: int, t: float) -> float:
        """The counter of instance i at t; all that it generated since its process began."""
        begun = self.begun(i, t)
        return 0.0 if begun is None else self.rates[i] * self.active_s(begun, t)

    def present_s(self, i: int) -> float:
        """Seconds in which instance i was there."""
        away = sum(1 for k, _ in (*self.restarts, *self.renamed) if k == i) + (self.upgraded_s is not None)
        return self.span_s - UPGRADE_S * away

    def pod(self, i: int, t: float) -> str:
        """The name of instance i's pod at t."""
        return f"rollout-{i}" + "".join("-new" for k, a in self.renamed if k == i and a <= t)

    def samples(self, i: int, t: float) -> Iterator[Sample]:
        """Everything that instance i exports at t; nothing while it is away."""
        if self.begun(i, t) is None:
            return
        pod = self.pod(i, t)
        labels = f'model_name="m",engine="0",instance="{pod}:8000",pod="{pod}",job="{self.job}"'
        tokens = math.floor(self.tokens(i, t))
        ended = math.floor(tokens / MEAN)
        kv, prefix = ("kv_cache_usage_perc", "prefix_cache")
        if self.upgraded_s is not None and t < self.upgraded_s:
            kv, prefix = "gpu_cache_usage_perc", "gpu_prefix_cache"

        def one(kind: str, name: str, value: float, more: str = "") -> Sample:
            suffix = "_total" if kind == "counter" else ""
            return Sample(f"vllm:{name}", kind, f"vllm:{name}{suffix}", labels + more, value)

        yield one("counter", "generation_tokens", tokens)
        yield one("counter", "prompt_tokens", ended * PROMPT)
        yield one("gauge", "num_requests_running", RUNNING)
        yield one("gauge", "num_requests_waiting", 0)
        yield one("gauge", kv, 0.4)
        yield one("counter", "num_preemptions", 0)
        yield one("counter", f"{prefix}_queries", ended * PROMPT)
        yield one("counter", f"{prefix}_hits", ended * PROMPT * 0.75)
        yield one("counter", "request_success", ended, ',finished_reason="stop"')
        turns, rest = divmod(ended, len(CYCLE))
        lengths = [turns + (k < rest) for k in range(len(CYCLE))]
        family = "vllm:request_generation_tokens"
        for le in LE:
            count = sum(n for n, length in zip(lengths, CYCLE, strict=True) if length <= le)
            bound = "+Inf" if math.isinf(le) else f"{le:.1f}"
            yield Sample(family, "histogram", f"{family}_bucket", f'{labels},le="{bound}"', count)
        total = sum(n * length for n, length in zip(lengths, CYCLE, strict=True))
        yield Sample(family, "histogram", f"{family}_sum", labels, total)
        yield Sample(family, "histogram", f"{family}_count", labels, ended)

    def trainer(self, t: float) -> Iterator[Sample]:
        """What the trainer exports, at the end of each step."""
        if not self.trainer_step_s:
            return
        steps = math.floor(t / self.trainer_step_s)
        labels = 'job="trainer",instance="trainer:9000"'
        per_step = {"steps": 1.0, "train_seconds": 0.8 * self.trainer_step_s}
        per_step["sample_wait_seconds"] = 0.2 * self.trainer_step_s
        for name, value in per_step.items():
            yield Sample(f"rl_trainer_{name}", "counter", f"rl_trainer_{name}_total", labels, steps * value)

    def all_at(self, t: float) -> Iterator[Sample]:
        """Everything exported at t."""
        for i in range(len(self.rates)):
            yield from self.samples(i, t)
        yield from self.trainer(t)

    def openmetrics(self) -> str:
        """The whole window as OpenMetrics text, one family after another, as a backfill wants it."""
        families: dict[tuple[str, str], list[str]] = {}
        for k in range(math.floor(self.span_s / self.scrape_s) + 1):
            t = k * self.scrape_s
            for s in self.all_at(t):
                line = f"{s.name}{{{s.labels}}} {s.value} {self.start_unix + t:.3f}"
                families.setdefault((s.family, s.kind), []).append(line)
        text = ["\n".join([f"# TYPE {family} {kind}", *lines]) for (family, kind), lines in sorted(families.items())]
        return "\n".join([*text, "# EOF", ""])

    def page(self, t: float) -> str:
        """What one exporter would show at t: all instances on one page, in the older text form that engines speak."""
        shown: dict[str, list[str]] = {}
        for s in self.all_at(t):
            typed = s.name if s.kind == "counter" else s.family
            lines = shown.setdefault(typed, [f"# TYPE {typed} {s.kind}"])
            lines.append(f"{s.name}{{{s.labels}}} {s.value}")
        return "\n".join(line for lines in shown.values() for line in lines) + "\n"
