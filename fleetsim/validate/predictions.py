"""Frozen predictions: told before anybody knew the results, sealed by a hash, opened against the results when there are
any.

`docs/predictions/DATE-NAME.yaml` holds the scenarios of a run that others will publish and what the model of that day
told. `DATE-NAME.results.yaml` beside it holds what came out. The file is never written again: a model that tells
another figure today says so beside the frozen one.
"""

from __future__ import annotations

import json
from collections.abc import Sequence
from functools import partial
from pathlib import Path
from typing import Annotated, Any, Literal

from msgspec import Struct
from pydantic import Field

from fleetsim import units
from fleetsim.config.base import ConfigSection, Name
from fleetsim.config.engine_profile import sealed
from fleetsim.config.scenario import Scenario
from fleetsim.config.yaml_text import to_yaml
from fleetsim.errors import InputError, Problem
from fleetsim.estimates import Ranged
from fleetsim.job.job import job_from_flags
from fleetsim.job.trials import simulated
from fleetsim.records import as_dict
from fleetsim.sim.threads import side_by_side
from fleetsim.tell.data import SCHEMA_VERSION
from fleetsim.tell.document import Document, Section, Table
from fleetsim.tell.facts import facts
from fleetsim.validate.ledger import Date, read_section
from fleetsim.validate.run import ranged

ENDING, RESULTS = ".yaml", ".results.yaml"
# Figures that are foretold: names of metrics.
METRICS = ("step_s", "trainer_idle_fraction", "generated_tok_s")
# A model that tells a figure within this of the frozen one tells the same: runs on another processor differ by less.
SAME = 0.01
Text = Annotated[str, Field(min_length=1, max_length=4000)]
Number = Annotated[float, Field(ge=0, le=1e15)]


class Foretold(ConfigSection):
    """A figure and its range: in eight of ten cases it lies within."""

    value: Number
    low: Number
    high: Number


class ForetoldArm(ConfigSection):
    """One configuration. set: dotted paths that it changes. predicted: by name of the metric."""

    name: Name
    set: dict[str, Any] = Field(default={}, description="dotted paths of the scenario and their values")
    predicted: dict[Literal["step_s", "trainer_idle_fraction", "generated_tok_s"], Foretold] = Field(
        default={}, description="by name of the metric; empty before it is told"
    )


class Prediction(ConfigSection):
    """A file of docs/predictions."""

    schema_version: Literal[1] = 1
    written: Date = Field(description="the day it was written; it has not changed since")
    fleetsim: Text = Field(description="version and commit that told it")
    title: Text
    unknown: Text = Field(description="why nobody knew the results on that day")
    sources: Annotated[tuple[Text, ...], Field(min_length=1, strict=False)]
    assumed: Annotated[tuple[Text, ...], Field(strict=False)] = ()
    scenario: dict[str, Any]
    arms: Annotated[tuple[ForetoldArm, ...], Field(min_length=1, strict=False)]
    seal: Annotated[str, Field(pattern="^sha256:[0-9a-f]{64}$")] | None = Field(
        default=None, description="hash of everything else"
    )


class PublishedOutcome(ConfigSection):
    """What came out, as it was published."""

    source: Text
    published: Date
    arms: dict[str, dict[Literal["step_s", "trainer_idle_fraction", "generated_tok_s"], Number]]


class Opened(Struct, frozen=True):
    """One figure of one arm. foretold: it is frozen. today: what today's model tells. published: None = not yet."""

    arm: str
    metric: str
    foretold: Foretold
    today: float
    published: float | None

    @property
    def moved(self) -> bool:
        """Whether today's model tells another figure."""
        return abs(self.today - self.foretold.value) > SAME * max(self.foretold.value, 1e-9)

    @property
    def held(self) -> bool | None:
        """Whether the range holds what was published; None before that."""
        return None if self.published is None else self.foretold.low <= self.published <= self.foretold.high


class OpenedFile(Struct, frozen=True):
    """A prediction with today's figures beside it, and the results where there are any. intact: the seal is right."""

    name: str
    prediction: Prediction
    intact: bool
    outcome: PublishedOutcome | None
    figures: tuple[Opened, ...]


def seal_of(prediction: Prediction) -> str:
    """sha256 over the canonical JSON of everything but the seal."""
    return sealed(prediction.model_dump(mode="json", exclude={"seal"}))


def foretell(prediction: Prediction) -> Prediction:
    """The same with what the model tells now for every arm, and its seal."""
    each = (_told(prediction, arm, ranges=True) for arm in prediction.arms)
    figures = ({metric: _foretold(found) for metric, found in one.items()} for one in each)
    arms = tuple(a.model_copy(update={"predicted": of}) for a, of in zip(prediction.arms, figures, strict=True))
    told = prediction.model_copy(update={"arms": arms})
    return told.model_copy(update={"seal": seal_of(told)})


def text_of(prediction: Prediction) -> str:
    """The prediction as the text of its file."""
    return to_yaml(prediction.model_dump(mode="json", exclude_none=True))


def read_prediction(path: Path) -> Prediction:
    """The prediction in a file. Raises InputError with what is wrong."""
    return read_section(path, Prediction, "PREDICTION", "correct the file")


def opened(folder: Path) -> list[OpenedFile]:
    """All predictions of a folder, the oldest first, simulated anew. Raises InputError."""
    files = [path for path in sorted(folder.glob(f"*{ENDING}")) if not path.name.endswith(RESULTS)]
    if not files:
        rule = f"holds no prediction (*{ENDING})"
        raise InputError(
            [Problem("--predictions", str(folder), rule, "give the folder docs/predictions of a checkout")]
        )
    return side_by_side(_opened, files)


def _opened(path: Path) -> OpenedFile:
    prediction = read_prediction(path)
    beside = path.with_name(path.name.removesuffix(ENDING) + RESULTS)
    outcome = read_section(beside, PublishedOutcome, "PREDICTION", "correct the file") if beside.exists() else None
    figures = []
    for arm in prediction.arms:
        now = _told(prediction, arm, ranges=False)
        published = {} if outcome is None else outcome.arms.get(arm.name, {})
        figures += [
            Opened(arm.name, metric, frozen, now[metric].value, published.get(metric))
            for metric, frozen in arm.predicted.items()
        ]
    intact = prediction.seal == seal_of(prediction)
    return OpenedFile(path.name.removesuffix(ENDING), prediction, intact, outcome, tuple(figures))


def _told(prediction: Prediction, arm: ForetoldArm, *, ranges: bool) -> dict[str, Ranged]:
    """Every figure of an arm. ranges: with its range, else its value alone."""
    sets = [f"{path}={json.dumps(value)}" for path, value in arm.set.items()]
    job = job_from_flags(prediction.scenario, sets, {})
    figures = {metric: partial(_simulated, metric) for metric in METRICS}
    if ranges:
        return {m: ranged(job.scenario, job.given, figure, m == "step_s") for m, figure in figures.items()}
    return {m: Ranged(*[figure(job.scenario)] * 3) for m, figure in figures.items()}


def _simulated(metric: str, scenario: Scenario) -> float:
    return float(simulated(scenario, 0)[metric])


def _foretold(found: Ranged) -> Foretold:
    value, low, high = (float(f"{x:.4g}") for x in (found.value, max(0.0, found.low), found.high))
    return Foretold(value=value, low=low, high=high)


def document(files: Sequence[OpenedFile]) -> Document:
    """What `validate --predictions` says."""
    known = [f for file in files for f in file.figures if f.held is not None]
    held = f"{sum(bool(f.held) for f in known)} of {len(known)} published figures lie within their ranges"
    return Document(
        "fleetsim validate --predictions",
        facts(f"{units.plural(len(files), 'prediction')}; {held if known else 'no result is known yet'}"),
        tuple(_section(file) for file in files),
    )


def _section(file: OpenedFile) -> Section:
    p = file.prediction
    seal = "its seal is right" if file.intact else "CHANGED since it was sealed"
    result = f" Results: {file.outcome.source}, {file.outcome.published}." if file.outcome else ""
    return Section(
        f"{file.name}: {p.title}", (f"Written on {p.written} by fleetsim {p.fleetsim}; {seal}.{result}", _table(file))
    )


def _table(file: OpenedFile) -> Table:
    rows = tuple(
        (
            f"{f.arm}, {f.metric}",
            units.number(f.foretold.value),
            f"{units.number(f.foretold.low)} to {units.number(f.foretold.high)}",
            units.number(f.today) if f.moved else "the same",
            "-" if f.published is None else units.number(f.published),
            {None: "-", True: "held", False: "not held"}[f.held],
        )
        for f in file.figures
    )
    return Table("", ("figure", "foretold", "in 80 % of cases", "today", "published", ""), rows, words_last=1)


def data(files: Sequence[OpenedFile]) -> dict[str, Any]:
    """What `validate --predictions --json` writes."""
    return {
        "schema_version": SCHEMA_VERSION,
        "command": "validate",
        "predictions": [
            {
                "name": file.name,
                "title": file.prediction.title,
                "written": file.prediction.written,
                "intact": file.intact,
                "figures": [
                    {**as_dict(f), "foretold": f.foretold.model_dump(), "moved": f.moved, "held": f.held}
                    for f in file.figures
                ],
            }
            for file in files
        ],
    }
