"""The roofline's efficiency factors: a handful of global numbers, fitted once on published measurements.

They are in `calibration/roofline_factors.json`, written by `calibration/fit_roofline.py`; their priors stand
in `calibration/factor_priors.py`, their errors in docs/accuracy.md. Nothing here belongs to one model or one GPU.
"""

from __future__ import annotations

import json
import math
from dataclasses import dataclass, fields
from functools import cache
from pathlib import Path

from fleetsim.errors import InputError, Problem


@dataclass(frozen=True, slots=True)
class RooflineFactors:
    """How much of the data sheet an engine reaches, and what each iteration costs beside it.

    memory_efficiency, compute_efficiency: shares of the peaks. grouped_cache_efficiency: share of bandwidth at which
    decode attention reads a KV cache with grouped heads (GQA); a group's keys serve several queries, so fewer, busier
    thread blocks ask for memory. Ungrouped heads read at memory_efficiency. link_efficiency: share of the link that the
    small all-reduces of a decode reach. iteration_s: per iteration (scheduler, input preparation, sampling, output).
    layer_s: per layer (small kernels, launch gaps). sequence_s: per running sequence and iteration. allreduce_s:
    latency of one all-reduce over 2 GPUs.
    """

    memory_efficiency: float
    grouped_cache_efficiency: float
    compute_efficiency: float
    link_efficiency: float
    iteration_s: float
    layer_s: float
    sequence_s: float
    allreduce_s: float

    def __post_init__(self) -> None:
        problems = []
        for field in fields(self):
            value = getattr(self, field.name)
            share = field.name.endswith("_efficiency")
            good = isinstance(value, int | float) and math.isfinite(value)
            if not good or value < 0 or (share and not 0 < value <= 1):
                rule = "a share in (0, 1]" if share else "finite seconds >= 0"
                problems.append(Problem(f"roofline_factors.{field.name}", value, rule, "run the fit again"))
        if problems:
            raise InputError(problems)


def read_factors(path: Path) -> RooflineFactors:
    """Factors from the JSON that the fit writes. Raises InputError when it is not that file."""
    try:
        document = json.loads(path.read_text(encoding="utf-8"))
        values = document["factors"]
        return RooflineFactors(**{field.name: values[field.name] for field in fields(RooflineFactors)})
    except (OSError, ValueError, KeyError, TypeError) as error:
        rule = f"the JSON that calibration/fit_roofline.py writes ({type(error).__name__}: {error})"
        raise InputError([Problem("roofline_factors", str(path), rule, "run the fit again")]) from error


@cache
def shipped_factors() -> RooflineFactors:
    """The fitted factors that come with the package, read once."""
    from fleetsim.config.shipped import data_path

    return read_factors(data_path("calibration", "roofline_factors.json"))
