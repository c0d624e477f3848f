"""Published runs of single engines, predicted: calibration/public/points.yaml.

The rule was fixed before any prediction was seen, and nothing in it is tuned to a run: the engine's own defaults, but
for what the source states; clients that send a request when an earlier one has ended; lengths even over [shortest, 1]
of the longest (seed 0); of attention ranks that share a mixture's experts one, with its share of the clients. Time is
the median response, the makespan, or the seconds per output token.

Seconds to the first token are predicted apart, as the mean over all requests: measured, they are means, as
docs/accuracy.md shows. Where the load generator is known to reach a server over HTTP, its path is in them.
"""

from __future__ import annotations

import math
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from functools import cache
from pathlib import Path
from typing import Any

import numpy as np
import yaml

from fleetsim.calibrate.clients import DIRECT, closed_load, request_path
from fleetsim.config.engine import EngineConfig
from fleetsim.engine import roofline, run_requests
from fleetsim.engine.gpus import GpuSpec, gpu_spec
from fleetsim.engine.layout import Layout
from fleetsim.engine.limits import EngineLimits
from fleetsim.engine.model.names import model_shape
from fleetsim.engine.operators.curves import Curves
from fleetsim.engine.roofline_step import roofline_step_time
from fleetsim.engine.step_time import StepTime
from fleetsim.errors import InputError
from fleetsim.records import replace
from fleetsim.sim.speculation import with_speculation

# Their launch scripts start a server and a client of their own (benchmarks/ and utils/bench_serving of InferenceX). How
# the others sent their requests is not told, and they fit without a path.
SERVED = {"InferenceX"}
# Of each drafted token whose predecessors were accepted: one number for all runs with multi-token prediction, found by
# drafts.py. With three drafts an iteration brings 2.18 tokens.
ACCEPTED = 0.6
POINTS = Path(__file__).resolve().parent / "public" / "points.yaml"


@dataclass(frozen=True, slots=True)
class Point:
    """One published run: a row of the file."""

    id: str
    source: str
    gpu: str
    engine: str
    version: str
    model: str
    dtype: str
    kv_dtype: str
    tp: int
    dp: int
    clients: int
    requests: int
    prompt: int
    output: int
    shortest: float
    args: Mapping[str, Any]
    held: float
    mtp: int
    measure: str
    values: Sequence[float]


@dataclass(frozen=True, slots=True)
class Prediction:
    """Predicted over measured time; that of later tokens, where they were measured."""

    time: float
    later: float | None = None


@cache
def read_points(path: Path = POINTS) -> tuple[Point, ...]:
    """The runs."""
    document = yaml.load(path.read_text(encoding="utf-8"), getattr(yaml, "CSafeLoader", yaml.SafeLoader))
    return tuple(Point(**dict(zip(document["columns"], row, strict=True))) for row in document["points"])


class Run:
    """A published run, made ready: all that does not depend on the curves is worked out once.

    Raises InputError for one that cannot be expressed.
    """

    def __init__(self, point: Point) -> None:
        p = self.point = point
        self.gpu: GpuSpec = gpu_spec(p.gpu)
        self.shape = model_shape(p.model)
        self._dtype, self._kv_dtype = self.shape.weights_type(p.dtype), self.shape.cache_type(p.kv_dtype)
        args = dict(p.args)
        tokens = args.get("max_num_batched_tokens")
        if tokens and p.engine != "sglang":
            args["max_num_seqs"] = args.get("max_num_seqs", min(1024, tokens))
        args = {"entry_point": "llm", "kv_dtype": p.kv_dtype, **args}  # the limits that the curves were fitted with
        _, limits = roofline(p.gpu, self.shape, p.tp, p.dtype, dp=p.dp, engine=p.engine, **args)
        self._most = max(limits.max_num_batched_tokens, limits.max_num_seqs)
        count = max(1, math.ceil(p.requests / p.dp))
        rng = np.random.default_rng(0)
        self._prompt, self._output = (
            rng.integers(max(1, int(top * p.shortest)), top + 1, size=count) if p.shortest < 1 else np.full(count, top)
            for top in (p.prompt, p.output)
        )
        self._clients = max(1, math.ceil(p.clients / p.dp)) if p.clients else 0
        self._limits: EngineLimits = limits
        self._known: dict[StepTime, Prediction] = {}

    @property
    def group(self) -> tuple[str, ...]:
        """What runs of one measurement have in common: they count together."""
        p = self.point
        return p.source, p.gpu, p.engine, p.model, p.dtype

    def predict(self, curves: Curves) -> Prediction:
        """With these curves; the same step time is simulated once."""
        step_time = self._step_time(curves)
        if step_time not in self._known:
            if len(self._known) > 8:
                self._known.clear()
            self._known[step_time] = self.with_drafts(curves) if self.point.mtp else self.simulated(step_time)
        return self._known[step_time]

    def with_drafts(self, curves: Curves, accepted: float = ACCEPTED) -> Prediction:
        """With the tokens that its run drafted. accepted: share of them, of those whose predecessors were accepted."""
        p = self.point
        speculation = {"method": "mtp", "num_speculative_tokens": p.mtp, "acceptance": accepted}
        engine = EngineConfig.model_validate({
            "kind": "roofline", "gpu": p.gpu, "model": p.model, "tp": p.tp, "dp": p.dp, "name": p.engine,
            "dtype": p.dtype, "kv_dtype": p.kv_dtype, "speculation": speculation,
        })  # fmt: skip
        assert engine.speculation is not None
        return self.simulated(*with_speculation(engine, engine.speculation, self._step_time(curves), self._limits))

    def _step_time(self, curves: Curves) -> StepTime:
        p = self.point
        return roofline_step_time.__wrapped__(
            self.gpu, self.shape, Layout(p.tp, dp=p.dp), self._dtype, curves, self._most, p.engine, self._kv_dtype
        )

    def simulated(self, step_time: StepTime, limits: EngineLimits | None = None) -> Prediction:
        """With a step time of this engine, and limits. Raises InputError when a request does not fit its cache."""
        p, limits = self.point, limits or self._limits
        if not p.clients:
            makespan = float(run_requests(step_time, limits, self._prompt, self._output).finish_s.max())
        else:
            answers = closed_load(step_time, limits, self._prompt, self._output, self._clients)
            makespan = float(answers.finish_s.max())
        if p.measure == "makespan":
            return Prediction(makespan / p.values[0])
        if p.measure == "tokens":
            return Prediction(makespan / (float(self._output.sum()) * p.dp) * p.values[0])
        first, later = (v / 1e3 for v in p.values)
        predicted_first, predicted_later = float(np.median(answers.first_s)), float(np.median(answers.later_s))
        more = float(self._output.mean()) - 1
        time = (predicted_first + more * predicted_later) / (first + more * later)
        return Prediction(time, predicted_later / later)

    @property
    def has_first(self) -> bool:
        """Whether seconds to the first token were measured."""
        return self.point.measure == "response"

    @property
    def served(self) -> bool:
        """Whether a server is known to stand between clients and engine."""
        return self.point.source in SERVED

    def first(self, curves: Curves, request_s: float | None = None) -> float:
        """Predicted over measured mean seconds to the first token. request_s: of the path, else as the curves say."""
        p, path = self.point, DIRECT
        if self.served:
            path = request_path(p.engine, p.held, curves)
            path = path if request_s is None else replace(path, request_s=request_s)
        answers = closed_load(self._step_time(curves), self._limits, self._prompt, self._output, self._clients, path)
        return float(answers.first_s.mean()) / (p.values[0] / 1e3)


def ready(points: Sequence[Point]) -> tuple[list[Run], list[tuple[Point, str]]]:
    """The runs that can be expressed, and the others with why not."""
    runs, refused = [], []
    for point in points:
        try:
            run = Run(point)
            run.simulated(StepTime((1.0,), (1e-3,)))  # what does not fit its cache is found here
            runs.append(run)
        except InputError as error:
            refused.append((point, error.problems[0].rule))
    return runs, refused
