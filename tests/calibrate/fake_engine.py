"""An engine with virtual time and known coefficients: vLLM's scheduler, iteration by iteration, as raw records.

It speaks the protocol of calibrate/session.py, so that calibration runs to the digit without a GPU. Its scheduler
is the reference of tests/engine; what it adds is what real durations have: noise, hiccups, results that arrive late.
"""

from __future__ import annotations

from dataclasses import dataclass, field
from pathlib import Path
from typing import Any

import numpy as np

from fleetsim.calibrate.loads import Limits, Load, Ran
from fleetsim.calibrate.raw import COLUMNS, Raw, RawWriter, read_raw
from fleetsim.calibrate.session import EngineLostError, measure
from fleetsim.engine import EngineLimits, StepTime
from tests.engine.reference import Engine, Prefix, Request

SMALL = Limits(max_num_seqs=96, max_num_batched_tokens=2048, max_model_len=4096, kv_blocks=8192, block_size=16)
TRUTH = StepTime((1.0, 32.0, 64.0, 2048.0), (0.006, 0.0065, 0.008, 0.07), 2e-5, 0.0, 3e-8, 4e-9)


@dataclass(frozen=True)
class Weather:
    """What spoils durations. noise: relative, per iteration; shared: per load. hiccup: share of iterations that take 3
    to 20 times as long. late: share of results that are noticed late, so that the next iteration looks short."""

    noise: float = 0.0
    shared: float = 0.0
    hiccup: float = 0.0
    late: float = 0.0


CALM = Weather()
ROUGH = Weather(noise=0.02, shared=0.005, hiccup=0.005, late=0.01)


@dataclass
class FakeEngine:
    """writer: takes the records. fails_at: number of the load that breaks the engine."""

    writer: RawWriter
    step_time: StepTime = TRUTH
    limits: Limits = SMALL
    weather: Weather = CALM
    seed: int = 0
    graph_sizes: tuple[int, ...] = ()
    fails_at: int | None = None
    clock: float = 100.0
    loads: int = 0
    random: np.random.Generator = field(init=False)

    def __post_init__(self) -> None:
        self.random = np.random.default_rng(self.seed)

    def now(self) -> float:
        return self.clock

    @property
    def start(self) -> dict[str, Any]:
        return {
            "kind": "inproc",
            "engine": "vllm",
            "vllm": "0.0.fake",
            "torch": "2.0",
            "tp": 1,
            "engine_args": {"model": "fake/Fake-7B"},
            "cache": {
                "num_gpu_blocks": self.limits.kv_blocks + 1,
                "block_size": self.limits.block_size,
                "enable_prefix_caching": True,
            },
            "sched": {
                "max_num_seqs": self.limits.max_num_seqs,
                "max_num_batched_tokens": self.limits.max_num_batched_tokens,
            },
            "comp": {"cudagraph_mode": "FULL_AND_PIECEWISE", "sizes": list(self.graph_sizes)},
            "model": {"dtype": "torch.bfloat16", "max_model_len": self.limits.max_model_len, "hf": {"hidden_size": 64}},
            "gpu": {"name": "NVIDIA Fake 141GB HBM3e", "count": 1, "driver": "1.2.3"},
        }

    def run(self, load: Load, deadline_s: float) -> Ran:
        if self.loads == self.fails_at:
            raise EngineLostError("the device context is gone")
        self.loads += 1
        shared = 1.0 + self.weather.shared * self.random.standard_normal()
        began = self.clock
        engine, requests = self._submitted(load)
        todo = sorted(requests, key=lambda r: (load.requests[r.id].at, r.id))
        idle: list[int] = []
        k, cut = 0, False
        while todo or engine.running or engine.waiting:
            empty = not engine.running and not engine.waiting
            if empty:
                k = max(k, load.requests[todo[0].id].at)
            while todo and load.requests[todo[0].id].at <= k:
                engine.waiting.append(todo.pop(0))
            engine.slow = shared * self._factor()
            idle.append(int(empty))
            engine.iterate()
            k += 1
            if engine.now > deadline_s:
                cut = True
                break
        self.clock = engine.now
        assert engine.log is not None
        seconds = self._noticed(np.array([step.dt for step in engine.log]))
        rows = {name: [getattr(step, name, 0) for step in engine.log] for name in COLUMNS}
        rows["dt"] = [max(1, round(1e6 * t)) for t in seconds]
        rows["du"] = rows["dt"]
        rows["s"] = np.cumsum([0, *rows["dt"][:-1]]).tolist()
        rows["idle"] = idle
        rows["warm"] = [int(i < load.warm) for i in range(len(idle))]
        self.writer.put("it", ph=load.phase, seg=self.loads, lab=load.label, e=began, c=rows)
        wall = engine.now - began
        fields: dict[str, Any] = {"wall": wall, "submit": 0.0, "iters": len(idle), "gen": sum(rows["out"]), "cut": cut}
        if load.track:
            fields["req"] = _followed(requests, began)
        self.writer.put("seg", ph=load.phase, seg=self.loads, lab=load.label, **fields)
        decode = [s for s, n, w in zip(seconds, rows["np"], rows["warm"], strict=True) if n == 0 and not w]
        return Ran(wall, cut, float(np.median(decode)) if decode else None, sum(rows["np"]))

    def _submitted(self, load: Load) -> tuple[Engine, list[Request]]:
        """A fresh engine with the load's contexts in its prefix cache, and its requests."""
        limits = EngineLimits(
            load.slots or self.limits.max_num_seqs,
            max(load.max_num_batched_tokens or self.limits.max_num_batched_tokens, load.slots or 1),
            load.pool_blocks or self.limits.kv_blocks,
            self.limits.block_size,
        )
        requests = [
            Request(i, r.prompt_tokens, r.output_tokens, 0.0, r.prompt if r.read_cache else None)
            for i, r in enumerate(load.requests)
        ]
        sizes: dict[int, int] = {}
        for r in requests:
            if r.group is not None:
                sizes[r.group] = sizes.get(r.group, 0) + 1
        engine = Engine(self.step_time, limits, caching=True, now=self.clock, sizes=sizes, log=[])
        for r in load.requests:
            if r.cached_tokens:
                sizes[r.prompt] = 2
                blocks = r.cached_tokens // limits.block_size
                engine.prefixes[r.prompt] = Prefix(blocks, free_when_freed=limits.kv_blocks)
        return engine, requests

    def _factor(self) -> float:
        w = self.weather
        factor = 1.0 + w.noise * self.random.standard_normal() if w.noise else 1.0
        if w.hiccup and self.random.random() < w.hiccup:
            factor *= self.random.uniform(3.0, 20.0)
        return max(factor, 0.1)

    def _noticed(self, seconds: np.ndarray) -> np.ndarray:
        """Durations from result to result when some results are noticed late: the sum stays."""
        noticed = seconds.copy()
        for i in range(len(seconds) - 1):
            if self.weather.late and self.random.random() < self.weather.late:
                shift = self.random.uniform(0.3, 0.9) * noticed[i + 1]
                noticed[i] += shift
                noticed[i + 1] -= shift
        return noticed


def _followed(requests: list[Request], began: float) -> dict[str, list[int]]:
    def us(moment: float | None) -> int:
        return -1 if moment is None else round(1e6 * (moment - began))

    return {
        "submit": [0] * len(requests),
        "first": [us(r.first) for r in requests],
        "finish": [us(r.finish) for r in requests],
        "n": [r.generated for r in requests],
        "pre": [r.preemptions for r in requests],
        "P": [r.prompt for r in requests],
        "want": [r.output for r in requests],
    }


def measured(
    path: Path,
    loads: list[Load],
    *,
    step_time: StepTime = TRUTH,
    limits: Limits = SMALL,
    weather: Weather = CALM,
    seed: int = 0,
    graph_sizes: tuple[int, ...] = (),
) -> Raw:
    """The raw measurements of a fake engine that ran these loads, written to `path` and read again."""
    writer = RawWriter(path)
    writer.put("meta", date="2026-01-02T03:04:05Z", fleetsim="0", argv=[], source="vllm")
    engine = FakeEngine(writer, step_time, limits, weather, seed, graph_sizes)
    went = measure(engine, loads, writer, budget_s=1e9)
    writer.close()
    assert not went.failed
    assert not went.left_out
    return read_raw(path)
