"""How far off the roofline is for one kind of engine, on published runs that its fit did not see; and a whole step.

`calibration/engine_errors.json` holds a record for each kind, by what its runs have in common, written by
`calibration/fit_engine.py`: the runs of one model on one GPU are predicted by a fit without them, and those of a GPU by
a fit without that GPU. docs/accuracy.md shows both.

What no input explains of a step is one residual for all jobs. Published runs were told as a plan tells them: by
configuration, mean length and the trainer's seconds. Their misses lie on the slow side. `calibration/residuals.py`
works it out, of all cases but the batch sealed last; of cases kept out whole its ranges hold 84 %, of that batch 100 %.
"""

from __future__ import annotations

import json
import math
from collections.abc import Iterable
from functools import cache
from pathlib import Path
from typing import Any

from msgspec import Struct

from fleetsim import units
from fleetsim.config.data_files import data_path, fitted
from fleetsim.config.engine import EngineConfig
from fleetsim.engine.gpus import GpuSpec, gpu_of
from fleetsim.engine.model.names import model_shape
from fleetsim.engine.model.precision import PRECISIONS
from fleetsim.engine.model.shape import ModelShape
from fleetsim.errors import InputError, Problem
from fleetsim.records import field_names

_WORDS = {
    "model": {
        "dense": "dense models",
        "mixture": "mixtures of experts",
        "latent mixture": "mixtures with latent attention (DeepSeek and the like)",
        "hybrid": "models with layers of linear attention",
    },
    "bits": {"16": "in 16 bits", "8": "in fp8", "4": "in 4 bits"},
    "engine": {"vllm": "under vLLM", "sglang": "under SGLang", "tensorrt-llm": "under TensorRT-LLM"},
}
# Records of fewer runs say too little of another engine: the next wider kind counts instead. And another engine is off
# by more than the runs of its kind, as these share their engines: so many times where the fit saw its GPU, and where it
# did not. Of engines that were kept out whole, ranges then hold 84 % of the points, and 77 % where each engine counts
# once (calibration/accuracy_page.py); of GPUs that were kept out 86 and 70 %.
LEAST_RUNS, ANOTHER_ENGINE = 100, {True: 1.3, False: 1.15}
# Which kinds are looked for, the most alike first. Only the first that has a record of runs enough counts.
_NARROWING = (
    ("gpu", "model", "bits", "engine"), ("gpu", "model", "bits"), ("gpu", "model"), ("gpu",), ("model", "bits"),
    ("model",), (),
)  # fmt: skip


class Domain(Struct, frozen=True):
    """A kind of engine; None = any. gpu: name of a data sheet. model: dense, mixture, latent mixture (of experts, with
    latent attention) or hybrid. bits: of most of the weights, 16, 8 or 4. engine: whose scheduler."""

    gpu: str | None = None
    model: str | None = None
    bits: str | None = None
    engine: str | None = None

    @property
    def text(self) -> str:
        """In words: "mixtures of experts in fp8 on B200-SXM under vLLM"."""
        given = {n: getattr(self, n) for n in field_names(Domain) if getattr(self, n) is not None}
        words = [_WORDS[name][given[name]] for name in ("model", "bits") if name in given]
        words += [f"on {given['gpu']}"] if "gpu" in given else []
        return " ".join([*words, *([_WORDS["engine"][given["engine"]]] if "engine" in given else [])])

    def only(self, names: Iterable[str]) -> Domain:
        """The wider domain that these fields leave."""
        return Domain(**{name: getattr(self, name) for name in names})


class KnownError(Struct, frozen=True):
    """|predicted / measured time - 1| of published runs of one kind that the fit did not see.

    gpu_seen: the fit saw other models on their GPU; else no run of that GPU at all. median, p90: half and 90 % of the
    runs are within. bias: median of the signed error, below 0 where the engine is taken too fast. runs, sources: how
    many, and who published them.
    """

    domain: Domain
    gpu_seen: bool
    median: float
    p90: float
    bias: float
    runs: int
    sources: tuple[str, ...]

    @property
    def what(self) -> str:
        """Of what it is the error."""
        kind = self.domain.text
        hidden = (
            "kept out of the fit"
            if self.gpu_seen
            else "on GPUs that were kept out of the fit, as none of this one is public"
        )
        return f"of {self.runs:,} published runs{f' of {kind}' if kind else ''} {hidden}"

    @property
    def sigma(self) -> float:
        """Standard deviation of the logarithm of another engine's error."""
        return ANOTHER_ENGINE[self.gpu_seen] * sigma_of(self.p90)

    def around(self, value: float) -> tuple[float, float]:
        """Between what a figure of another engine lies in eight of ten cases."""
        far = math.exp(1.2816 * self.sigma)
        return value / far, value * far


def sigma_of(p90: float) -> float:
    """Standard deviation of the logarithm of an error that 90 % of all cases have within `p90`."""
    return math.log1p(p90) / 1.6449


def domain_of(gpu: GpuSpec, shape: ModelShape, dtype: str, engine: str) -> Domain:
    """The kind of one engine. dtype: of the weights, auto = as the checkpoint has them."""
    if any(True for _ in shape.states):
        model = "hybrid"
    elif shape.mixture is None:
        model = "dense"
    else:
        model = "latent mixture" if shape.latent else "mixture"
    return Domain(gpu.name, model, str(PRECISIONS[shape.weights_type(dtype)].bits), engine)


def known_error(domain: Domain, records: Iterable[KnownError] | None = None) -> KnownError:
    """The error of the narrowest kind with a record of runs enough that holds `domain`; of a GPU that no run is public
    of, that of others while they were kept out of the fit."""
    found = {(r.domain, r.gpu_seen): r for r in (known_errors() if records is None else records)}
    seen = any(r.domain.gpu == domain.gpu for r in found.values())
    for names in _NARROWING:
        record = found.get((domain.only(names), seen or "gpu" in names))
        if record is not None and (record.runs >= LEAST_RUNS or not names):
            return record
    raise InputError([Problem("engine_errors", domain.text, "a record of all runs", "run calibration/fit_engine.py")])


def known_error_of(engine: EngineConfig) -> KnownError:
    """The error of a scenario's engine, taken as a roofline."""
    return known_error(domain_of(gpu_of(engine), model_shape(engine.model), engine.dtype, engine.name))


class _Errors(Struct):
    """The file: the fields of a record's domain stand beside its others."""

    errors: tuple[dict[str, Any], ...]


def read_known_errors(path: Path) -> tuple[KnownError, ...]:
    """The records that calibration/fit_engine.py wrote. Raises InputError when it is not that file."""
    whose = "engine_errors", "calibration/fit_engine.py"
    rows = [{"domain": row, **row} for row in fitted(_Errors, path, *whose).errors]
    return fitted(tuple[KnownError, ...], json.dumps(rows), *whose)


@cache
def known_errors() -> tuple[KnownError, ...]:
    """The records that come with the package, read once."""
    return read_known_errors(data_path("calibration", "engine_errors.json"))


def bias_words(error: KnownError) -> str:
    """What the median of the signed errors says, empty where it is small."""
    if abs(error.bias) < 0.05:
        return ""
    way = "fast" if error.bias < 0 else "slow"
    return f"; in the median the engine is taken {units.share(abs(error.bias), 0)} too {way}"


# Logarithms: how far a step may lie above and below beyond what its inputs explain.
RESIDUAL = (0.27, 0.0)
