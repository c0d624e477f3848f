"""`calibrate --dry-run`: what would be measured, in how many minutes, in how much GPU memory. Nothing is started.

The measuring loop itself runs, on an engine that only its roofline and a clock of its own are of: the same loads, the
same budget, the same loads left out as on a GPU that is as fast as its model says.
"""

from __future__ import annotations

import os
from collections import Counter, defaultdict
from collections.abc import Iterator
from contextlib import closing
from typing import Any

import numpy as np
from msgspec import Struct

from fleetsim import units
from fleetsim.calibrate.ask import Calibrate
from fleetsim.calibrate.loads import Limits, Load, Ran
from fleetsim.calibrate.order import loads_in_order
from fleetsim.calibrate.raw import RawWriter
from fleetsim.calibrate.session import LoopOutcome, computed_tokens, decoding, measure
from fleetsim.engine.gpus import gpu_spec
from fleetsim.engine.kv_memory import block_bytes_per_token, stage_bytes
from fleetsim.engine.layout import Layout
from fleetsim.engine.limits import EngineLimits
from fleetsim.engine.model.names import model_shape
from fleetsim.engine.roofline_step import roofline
from fleetsim.engine.step_time import StepTime

# Until vLLM of a model of some billions has loaded, compiled and captured its graphs; minutes for the largest.
START_S = 90.0
GPU = "H100"
_PHASES = {"decode": "decodes", "prefill": "prompts", "mixed": "decodes beside prompts"}


class DryRun(Struct, frozen=True):
    """The plan. seconds, loads: by phase, those that fit into the budget. weights_gib, cache_gib: on each GPU.

    assumed: whether nobody named the GPU.
    """

    gpu: str
    gpus: int
    assumed: bool
    budget_s: float
    seconds: dict[str, float]
    loads: dict[str, int]
    outcome: LoopOutcome
    memory_gib: float
    weights_gib: float
    cache_gib: float

    @property
    def total_s(self) -> float:
        """Seconds of everything."""
        return START_S + sum(self.seconds.values())

    def document(self) -> dict[str, Any]:
        """As JSON has it."""
        phases = [{"phase": p, "loads": n, "seconds": round(self.seconds[p], 1)} for p, n in self.loads.items()]
        return {
            "schema_version": 1,
            "command": "calibrate",
            "gpu": self.gpu,
            "gpus": self.gpus,
            "budget_s": self.budget_s,
            "start_s": START_S,
            "seconds": round(self.total_s, 1),
            "phases": phases,
            "left_out": self.outcome.left_out,
            "memory_gib": {name: getattr(self, f"{name}_gib") for name in ("memory", "weights", "cache")},
        }

    def lines(self) -> Iterator[str]:
        """As a terminal has it."""
        where = f"{units.plural(self.gpus, 'GPU')} of {self.gpu}{' (assumed: --gpu names yours)' * self.assumed}"
        ran = units.plural(self.outcome.ran, "load")
        yield f"{ran} in about {units.seconds(self.total_s)}, on {where}; nothing was started"
        yield f"  {'vLLM loads and compiles':<40} about {units.seconds(START_S)}"
        for phase, count in self.loads.items():
            words = _PHASES.get(phase, f"batch {phase}, kept out of the fit")
            yield f"  {f'{count} x {words}':<40} {units.seconds(self.seconds[phase])}"
        if self.outcome.left_out:
            rest = units.plural(self.outcome.left_out, "load")
            yield f"  {rest} would not fit into {units.seconds(self.budget_s)}: a larger --budget-s measures all"
        yield (
            f"GPU memory, of {self.memory_gib:.1f} GiB: {self.weights_gib:.1f} GiB of weights, "
            f"{self.cache_gib:.1f} GiB of KV cache"
        )


class _PlannedEngine:
    """An engine as its roofline has it, on a clock that loads alone move."""

    def __init__(self, step_time: StepTime, limits: EngineLimits, longest: int) -> None:
        most = limits.kv_blocks * limits.block_size
        self.limits = Limits(
            limits.max_num_seqs, limits.max_num_batched_tokens, min(longest, most), limits.kv_blocks, limits.block_size
        )
        self.start: dict[str, Any] = {}
        self.seconds: defaultdict[str, float] = defaultdict(float)
        self.loads: Counter[str] = Counter()
        self._step_time, self._now = step_time, 0.0

    def now(self) -> float:
        return self._now

    def run(self, load: Load, deadline_s: float) -> Ran:
        counts, held = decoding(load, self.limits)
        each = np.where(counts > 0, self._step_time.each_s(counts, 0.0, held), 0.0)
        prompts = computed_tokens(load)
        # Prompts in whole iterations of their budget; each token sees half of its prompt in the mean.
        budget = float(min(load.max_num_batched_tokens or prompts, self.limits.max_num_batched_tokens, max(prompts, 1)))
        sees = float(np.mean([r.prompt_tokens for r in load.requests])) / 2.0
        computing = prompts / budget * self._step_time.seconds(0.0, budget, 0.0, budget * sees) if prompts else 0.0
        whole = float(each.sum()) + computing
        took = min(whole, deadline_s - self._now)
        self._now += took
        self.seconds[load.phase] += took
        self.loads[load.phase] += 1
        decodes = each[counts == counts.max()]
        return Ran(took, took < whole, float(np.median(decodes)) if load.phase == "decode" else None, prompts)


def dry_run(asked: Calibrate) -> DryRun:
    """The plan of a calibration in process. Raises InputError as `roofline` does, for a GPU, a model or limits."""
    gpu, shape = gpu_spec(asked.gpu or GPU), model_shape(str(asked.model))
    tp, dtype = asked.tp or 1, asked.dtype or "auto"
    said = {name: getattr(asked, name) for name in ("max_num_seqs", "max_num_batched_tokens", "max_model_len")}
    step_time, limits = roofline(gpu, shape, tp, dtype, asked.gpu_memory_utilization, **said)
    engine = _PlannedEngine(step_time, limits, asked.max_model_len or shape.max_position or 32_768)
    loads = loads_in_order(engine.limits, quick=asked.quick, seed=asked.seed)
    with closing(RawWriter(os.devnull)) as nowhere:
        outcome = measure(engine, loads, nowhere, budget_s=max(asked.seconds - START_S, 1.0))
    layout, gib = Layout(tp), 2.0**30
    cache = limits.kv_blocks * limits.block_size * block_bytes_per_token(shape, layout, "vllm")
    return DryRun(
        gpu.name, tp, asked.gpu is None, asked.seconds, dict(engine.seconds), dict(engine.loads), outcome,
        gpu.memory_bytes / gib, max(stage_bytes(shape, layout, "vllm", dtype)) / gib, cache / gib,
    )  # fmt: skip
