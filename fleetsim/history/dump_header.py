"""What a dump says of itself, checked as it is read: grid, instances, signals, histograms, step log, notes."""

from __future__ import annotations

import math
from collections.abc import Mapping, Sequence
from typing import Any, Literal

import numpy as np
from pydantic import BaseModel, ConfigDict, Field, ValidationError

from fleetsim.errors import InputError, Problem
from fleetsim.history.history import Floats, History, InstanceId, Note, StepLog
from fleetsim.json_text import from_json

KIND = "fleetsim-history"
VERSION = 1


class _Part(BaseModel):
    model_config = ConfigDict(extra="forbid", frozen=True)


class InstancePart(_Part):
    """One `InstanceId`."""

    name: str
    engine: str
    model: str
    labels: dict[str, str]


class HistogramPart(_Part):
    """Bounds (the last one inf) and times of one histogram; its counts and sums stand in the tables."""

    le: list[float] = Field(min_length=1)
    times: list[float]


class StepsPart(_Part):
    """The `StepLog`, all of it: it has one row per step and stays small."""

    framework: str
    columns: dict[str, list[float]]


class NotePart(_Part):
    """One `Note`."""

    kind: str
    text: str
    share: float | None


class Header(_Part):
    """All of a `History` but the values of its signals. Numbers that JSON lacks are "inf", "-inf" and "nan"."""

    kind: Literal["fleetsim-history"]
    schema_version: Literal[1]
    source: str
    step_s: float
    times: list[float] = Field(min_length=1)
    instances: list[InstancePart]
    configs: list[dict[str, str]]
    values: list[str]
    fleet: list[str]
    histograms: dict[str, HistogramPart]
    steps: StepsPart | None
    notes: list[NotePart]


def header_of(history: History) -> dict[str, Any]:
    """The header as a JSON document."""
    steps = history.steps
    return {
        "kind": KIND,
        "schema_version": VERSION,
        "source": history.source,
        "step_s": number(history.step_s),
        "times": numbers(history.times),
        "instances": [
            {"name": i.name, "engine": i.engine, "model": i.model, "labels": dict(i.labels)} for i in history.instances
        ],
        "configs": [dict(c) for c in history.configs],
        "values": list(history.values),
        "fleet": list(history.fleet),
        "histograms": {k: {"le": numbers(b.le), "times": numbers(b.times)} for k, b in history.histograms.items()},
        "steps": None
        if steps is None
        else {"framework": steps.framework, "columns": {k: numbers(v) for k, v in steps.columns.items()}},
        "notes": [{"kind": n.kind, "text": n.text, "share": n.share} for n in history.notes],
    }


def parse_header(text: str, where: str) -> Header:
    """Raises InputError: broken JSON, another kind of file, another version, fields that are missing or wrong."""
    try:
        document = from_json(text)
    except ValueError as error:
        raise damaged(where, f"its JSON does not parse ({error})") from None
    return check_header(document, where)


def check_header(document: object, where: str) -> Header:
    """A JSON document as a header. Raises InputError."""
    if not isinstance(document, dict) or document.get("kind") != KIND:
        shown = document.get("kind") if isinstance(document, dict) else type(document).__name__
        rule = "this is no history that fleetsim saved"
        raise InputError([Problem(where, shown, rule, "give what `fleetsim replay --save` wrote")])
    if document.get("schema_version") != VERSION:
        rule = f"this version reads schema_version {VERSION}"
        remedy = "use the fleetsim that wrote it, or save the window anew"
        raise InputError([Problem(f"{where}: schema_version", document.get("schema_version"), rule, remedy)])
    try:
        header = Header.model_validate(document)
    except ValidationError as error:
        raise InputError(
            [
                Problem(
                    f"{where}: {'.'.join(map(str, e['loc']))}",
                    e.get("input"),
                    e["msg"],
                    "the file is damaged or was edited by hand; save the window anew",
                )
                for e in error.errors()
            ]
        ) from None
    columns = header.steps.columns.values() if header.steps else ()
    if len(header.configs) != len(header.instances):
        raise damaged(where, f"{len(header.instances)} instances but {len(header.configs)} configs")
    if len({len(c) for c in columns}) > 1:
        raise damaged(where, "the columns of its step log have different lengths")
    return header


def damaged(where: str, what: str) -> InputError:
    """The error of a dump that cannot be what was saved."""
    return InputError([Problem(where, what, "the dump is damaged", "save the window anew, or copy the dump again")])


def instances_of(header: Header) -> tuple[InstanceId, ...]:
    """The instances, in their order."""
    return tuple(InstanceId(i.name, i.engine, i.model, dict(i.labels)) for i in header.instances)


def steps_of(header: Header) -> StepLog | None:
    """The step log."""
    if header.steps is None:
        return None
    return StepLog(header.steps.framework, {k: np.array(v, dtype=float) for k, v in header.steps.columns.items()})


def notes_of(header: Header) -> tuple[Note, ...]:
    """The notes."""
    return tuple(Note(n.kind, n.text, n.share) for n in header.notes)


def number(x: float) -> float | str:
    """A float for JSON, which has neither infinities nor NaN."""
    return float(x) if math.isfinite(x) else str(float(x))


def numbers(values: Floats | Sequence[float]) -> list[float | str]:
    """An array of one dimension for JSON."""
    return [number(x) for x in np.asarray(values, dtype=float).tolist()]


def arrays(document: Mapping[str, Any], where: str, shape: tuple[int, ...]) -> Floats:
    """A nested list of JSON back as an array. Raises InputError when it has another shape or holds no numbers."""
    try:
        out = np.array(document, dtype=float)
    except (ValueError, TypeError, OverflowError) as error:
        raise damaged(where, f"not an array of numbers ({error})") from None
    if out.shape != shape:
        if out.size == 0 and 0 in shape:
            return out.reshape(shape)
        raise damaged(where, f"has the shape {out.shape} where {shape} belongs")
    return out
