"""Where the roofline was held against measurements, and how far off it was: there, and as published elsewhere.

Its factors were fitted and checked for dense models on one or two H100 under vLLM. `calibration/public_errors.json`
holds how far off it is on other people's runs (`calibration/public_points.py`): a record for each domain, by what its
runs have in common. docs/accuracy.md shows both.
"""

from __future__ import annotations

import json
from collections.abc import Iterable
from dataclasses import dataclass, fields
from functools import cache
from pathlib import Path

from fleetsim import units
from fleetsim.engine.gpus import GpuSpec
from fleetsim.engine.model.shape import ModelShape
from fleetsim.errors import InputError, Problem

_WORDS = {
    "model": {
        "dense": "dense models",
        "mixture": "mixtures of experts",
        "latent mixture": "mixtures with latent attention (DeepSeek and the like)",
    },
    "gpus": {"1 or 2": "engines of 1 or 2 GPUs", "more": "engines of more than 2 GPUs"},
    "engine": {"vllm": "vLLM", "sglang": "SGLang", "tensorrt-llm": "TensorRT-LLM"},
}


@dataclass(frozen=True, slots=True)
class Domain:
    """What an error of the roofline holds for; None = any. gpu: name of a data sheet. model: dense, mixture or latent
    mixture (of experts, with latent attention). gpus: of one engine, "1 or 2" or "more". engine: whose scheduler."""

    gpu: str | None = None
    model: str | None = None
    gpus: str | None = None
    engine: str | None = None

    @property
    def text(self) -> str:
        """In words: "B200-SXM, mixtures of experts"."""
        given = ((f.name, getattr(self, f.name)) for f in fields(Domain))
        return ", ".join(_WORDS.get(name, {}).get(value, value) for name, value in given if value is not None)


CHECKED = Domain("H100-SXM", "dense", "1 or 2", "vllm")


@dataclass(frozen=True, slots=True)
class PublicError:
    """Predicted over measured time - 1 of published runs: below 0 the engine is taken too fast.

    domain: what they have in common. median, low, high: of the errors, and their quartiles. points, sources: how many
    runs, and who published them.
    """

    domain: Domain
    median: float
    low: float
    high: float
    points: int
    sources: tuple[str, ...]

    @property
    def text(self) -> str:
        """ "mixtures of experts: predicted times 37 % too short in the median of 112 runs, half of them within ..."."""
        way = "short" if self.median < 0 else "long"
        return (
            f"{self.domain.text}: predicted times are {units.share(abs(self.median))} too {way} in the median of "
            f"{self.points:,} runs (half of them {units.percent_change(self.low, 0)} to {units.change(self.high, 0)}; "
            f"{', '.join(self.sources)})"
        )


@dataclass(frozen=True, slots=True)
class KnownError:
    """What is known of the roofline's error for one engine.

    median, worst: absolute relative errors on models kept out of the fit, of `what`; None outside of what was checked.
    elsewhere: then, what published runs show. unchecked: then, that and how in words; empty inside.
    """

    median: float | None
    worst: float | None
    what: str
    elsewhere: tuple[PublicError, ...] = ()
    unchecked: str = ""

    @property
    def spread(self) -> float:
        """A relative error to count on: the worst one that was found, or beyond it a quarter of the published runs."""
        outer = [max(-e.low, e.high) for e in self.elsewhere]
        return max([self.worst or 0.0, *outer] if self.worst or outer else [_fitted()[1]])


def domain_of(gpu: GpuSpec, shape: ModelShape, tp: int, dp: int, engine: str) -> Domain:
    """The domain that one engine is in."""
    model = "dense" if shape.mixture is None else "latent mixture" if shape.latent else "mixture"
    return Domain(gpu.name, model, "1 or 2" if tp * dp <= 2 else "more", engine)


def known_error(domain: Domain) -> KnownError:
    """The error of the roofline in a domain, or that it was not checked there and what published runs show."""
    median, worst, what = _fitted()
    if domain == CHECKED:
        return KnownError(median, worst, what)
    found = errors_in(domain, public_errors())
    told = "; ".join(e.text for e in found)
    covered = {f.name for e in found for f in fields(Domain) if getattr(e.domain, f.name) is not None}
    missing = [Domain(**{name: getattr(domain, name)}).text for name in departures(domain) if name not in covered]
    unchecked = f"it was checked for {_checked_words()} only, not for {_departed(domain)}"
    if found:
        slow = all(e.median < 0 for e in found)
        unchecked += f". Published runs there: {told}" + (". So the engine is taken too fast" if slow else "")
    if missing:
        unchecked += f". No published run was looked at for {' or '.join(missing)}"
    return KnownError(None, None, "", found, unchecked)


def departures(domain: Domain) -> tuple[str, ...]:
    """In which fields a domain leaves the one that was checked."""
    return tuple(f.name for f in fields(Domain) if getattr(domain, f.name) != getattr(CHECKED, f.name))


def errors_in(domain: Domain, records: Iterable[PublicError]) -> tuple[PublicError, ...]:
    """The records that tell of a domain: its own where there is one, else one for each way in which it departs."""
    records = tuple(records)
    own = tuple(r for r in records if r.domain == domain)
    alone = [Domain(**{name: getattr(domain, name)}) for name in departures(domain)]
    return own or tuple(r for wanted in alone for r in records if r.domain == wanted)


def read_public_errors(path: Path) -> tuple[PublicError, ...]:
    """The records that calibration/public_points.py wrote. Raises InputError when it is not that file."""
    try:
        rows = json.loads(path.read_text(encoding="utf-8"))["errors"]
        names = [f.name for f in fields(Domain)]
        return tuple(
            PublicError(
                Domain(**{name: row[name] for name in names}),
                float(row["median"]),
                float(row["low"]),
                float(row["high"]),
                int(row["points"]),
                tuple(row["sources"]),
            )
            for row in rows
        )
    except (OSError, ValueError, KeyError, TypeError) as error:
        rule = f"the JSON that calibration/public_points.py writes ({type(error).__name__}: {error})"
        raise InputError([Problem("public_errors", str(path), rule, "run it again")]) from error


@cache
def public_errors() -> tuple[PublicError, ...]:
    """The records that come with the package, read once."""
    from fleetsim.config.shipped import data_path

    return read_public_errors(data_path("calibration", "public_errors.json"))


@cache
def _fitted() -> tuple[float, float, str]:
    """Median and worst error of the roofline on models left out of its fit, and of what it is."""
    from fleetsim.config.shipped import data_path

    document = json.loads(data_path("calibration", "roofline_factors.json").read_text(encoding="utf-8"))
    error = document["error"]
    return float(error["median"]), float(error["worst"]), str(error["what"])


def _checked_words() -> str:
    return "dense models on 1 or 2 H100 with vLLM"


def _departed(domain: Domain) -> str:
    return ", ".join(Domain(**{name: getattr(domain, name)}).text for name in departures(domain))
