"""What trainers reach of a data sheet: a few physical parameters, fitted to published steps.

`calibration/fit_trainer.py` fits them to the rows of `calibration/public/trainer_points.yaml` and writes
`calibration/trainer_fit.json`; docs/accuracy.md says how far off they are on rows that the fit did not see.
"""

from __future__ import annotations

import json
import math
from collections.abc import Mapping
from dataclasses import fields
from functools import cache
from typing import Any

from fleetsim.dataclass import dataclass
from fleetsim.errors import InputError, Problem

_FILE = "trainer_fit.json"


@dataclass(frozen=True, slots=True)
class Efficiency:
    """product: share of the peak that products with dense weights reach; expert: with routed experts. attention: share
    that flash attention reaches. touches: how often each number of a forward pass goes through memory; head_touches:
    each logit. links: share of a link's bandwidth that collectives reach. exposed: share of what could be hidden behind
    arithmetic that is not. forward: a pass for log-probs over the forward part of an update: it computes them and their
    entropy in 32 bits, in turns with what it moves. step_s: seconds of an optimizer step,
    whatever it holds. micro_s: of a micro-batch.
    """

    product: float
    expert: float
    attention: float
    touches: float
    head_touches: float
    links: float
    exposed: float
    forward: float
    step_s: float
    micro_s: float


@dataclass(frozen=True, slots=True)
class KnownTrainerError:
    """|predicted / published - 1| of steps of one kind, predicted by a fit that did not see their framework, or, of a
    framework's own, their model.

    median, p90: half and 90 % of the steps are within. bias: median of the signed error. points, sources: how many.
    """

    median: float
    p90: float
    bias: float
    points: int
    sources: int


@dataclass(frozen=True, slots=True)
class TrainerFit:
    """The parameters; factors: seconds over the model's for a backend and kind of model ("fsdp dense"), and for a
    framework on top of it; errors: by both, and "" for all."""

    efficiency: Efficiency
    kinds: Mapping[str, float]
    frameworks: Mapping[str, float]
    errors: Mapping[str, KnownTrainerError]

    def factor(self, kind: str, family: str) -> float:
        """Of the model's seconds; 1 where nothing is known."""
        return self.kinds.get(kind, 1.0) * self.frameworks.get(family, 1.0)

    def error(self, kind: str, family: str) -> KnownTrainerError | None:
        """Of the framework and kind of model, else of the backend and kind of model, else of all."""
        return self.errors.get(family) or self.errors.get(kind) or self.errors.get("")


def fit_of(document: Mapping[str, Any]) -> TrainerFit:
    """From the JSON that calibration/fit_trainer.py writes. Raises InputError when a key is missing or no number."""
    try:
        return TrainerFit(
            Efficiency(**{f.name: _number(f.name, document["efficiency"][f.name]) for f in fields(Efficiency)}),
            {name: _number(name, value) for name, value in document["kinds"].items()},
            {name: _number(name, value) for name, value in document["frameworks"].items()},
            {name: KnownTrainerError(**row) for name, row in document["errors"].items()},
        )
    except (KeyError, TypeError, AttributeError) as error:
        raise _wrong(type(error).__name__, f"the keys that the fit writes ({error})") from error


@cache
def shipped_fit() -> TrainerFit:
    """The one that comes with the package, read once."""
    from fleetsim.config.data_files import data_path

    try:
        document = json.loads(data_path("calibration", _FILE).read_text(encoding="utf-8"))
    except (OSError, ValueError) as error:
        raise _wrong(_FILE, f"readable JSON ({error})") from error
    return fit_of(document)


def _number(where: str, value: Any) -> float:
    if isinstance(value, bool) or not isinstance(value, int | float) or not math.isfinite(value) or value <= 0:
        raise _wrong(value, f"{where}: a finite number above 0")
    return float(value)


def _wrong(value: Any, rule: str) -> InputError:
    return InputError([Problem(_FILE, value, rule, "run calibration/fit_trainer.py again")])
