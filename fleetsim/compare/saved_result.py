"""JSON results that fleetsim wrote, as sides of a comparison: per run where the document has its runs, else by means.

`simulate` writes every run; `size` and `split` write estimates of what they recommend, and older `simulate` documents
write estimates alone.
"""

from __future__ import annotations

import json
import math
from collections.abc import Mapping
from typing import Any

from msgspec import Struct
from pydantic import ValidationError

import fleetsim
from fleetsim.compare.compare import PROFILE_HASH, WORDS, Side
from fleetsim.config.scenario import Scenario
from fleetsim.contrast import Mean
from fleetsim.errors import InputError, Problem
from fleetsim.estimates import t_quantile
from fleetsim.job.engine_source import accuracy_of
from fleetsim.job.metrics import CANDIDATE_METRICS
from fleetsim.quantities import METRICS, RUN_METRICS
from fleetsim.records import replace
from fleetsim.tell.data import SCHEMA_VERSION

COMMANDS = ("simulate", "size", "split")
MAX_BYTES = 256 * 2**20


class SavedResult(Struct, frozen=True):
    """A result as it was written. scenario: None where this version cannot read the one in it. notes: what to know."""

    side: Side
    scenario: Scenario | None
    notes: tuple[str, ...]


# Of 1, what is read here stands where it does in 2.
_READ = (1, SCHEMA_VERSION)


def is_result(document: object) -> bool:
    """Whether parsed JSON is what a fleetsim command wrote."""
    return isinstance(document, Mapping) and "command" in document and "fleetsim_version" in document


def result_of(document: Mapping[str, Any], label: str, where: str) -> SavedResult:
    """where: A or B. Raises InputError: of another command or schema, or without what a result has."""
    command, schema = document.get("command"), document.get("schema_version")
    if command not in COMMANDS:
        remedy = f"give a result of fleetsim {', '.join(COMMANDS)}"
        raise InputError([Problem(where, label, f"is a result of fleetsim {command}, which has no runs", remedy)])
    if schema not in _READ:
        rule = f"has schema_version {schema}; this fleetsim reads {' and '.join(map(str, _READ))}"
        raise InputError([Problem(where, label, rule, "write it again with this version")])
    try:
        side = _simulated(document, label) if command == "simulate" else _recommended(document, label)
    except (KeyError, TypeError, ValueError, AttributeError, StopIteration):
        remedy = f"write it again: fleetsim {command} ... --json"
        raise InputError([Problem(where, label, f"is no complete result of fleetsim {command}", remedy)]) from None
    scenario, notes = _scenario(document, label)
    if scenario is not None:
        side = replace(side, accuracy=accuracy_of(scenario))
    if side.means:
        notes = (*notes, f"{label} has estimates and no single runs: unpaired, from means and intervals")
    if schema != SCHEMA_VERSION:
        notes = (*notes, f"{label} is in an older layout (schema_version {schema}), which is read as it was")
    version = str(document["fleetsim_version"])
    if version != fleetsim.__version__:
        notes = (*notes, f"{label} was written by fleetsim {version}, this is {fleetsim.__version__}")
    return SavedResult(side, scenario, notes)


def _simulated(document: Mapping[str, Any], label: str) -> Side:
    runs = document.get("values")
    replications = int(document["replications"])
    side = Side(label, replications=replications, **_inputs(document))
    if runs is None:
        found = _leaves(document["metrics"])
        means = {m: _mean(e, replications) for m, e in found.items() if m in RUN_METRICS and isinstance(e, Mapping)}
        return replace(side, means=_some(means), binds=str(document["metrics"].get("binding", "")))
    keys = [(int(s["seed"]), int(s["replication"])) for s in document["seeds"]]
    # The list of seeds is of the scenario's own replications: as many runs, of the same seed, from 0.
    keys = keys if len(keys) == len(runs) else [(int(document["scenario"]["run"]["seed"]), r) for r in range(len(runs))]
    numbers = {
        k: {m: _number(v) for m, v in run.items() if m in RUN_METRICS} for k, run in zip(keys, runs, strict=True)
    }
    _some(next(iter(numbers.values())))
    binding = [str(run["binding"]) for run in runs if "binding" in run]
    return replace(side, runs=numbers, binds=max(dict.fromkeys(binding), key=binding.count, default=""))


def _recommended(document: Mapping[str, Any], label: str) -> Side:
    """What `size` or `split` recommends: eight metrics of it, and its own fleet among the inputs."""
    advised = document["recommendation"]
    parts, found = _inputs(document), advised
    inputs = parts["inputs"]
    inputs["fleet"] = {**inputs["fleet"], "instances": advised["instances"]}
    if document["command"] == "size":
        found = next(c for c in document["candidates"] if c["instances"] == advised["instances"])
    else:
        inputs["arrangement"] = advised["arrangement"]
    replications = int(found["replications"])
    means = {metric: _mean(found[f], replications) for f, metric in CANDIDATE_METRICS.items() if f in found}
    missing = {m: f"fleetsim {document['command']} --json does not write it" for m in METRICS if m not in means}
    binds = str(found["binding"])
    return Side(label, means=_some(means), replications=replications, missing=missing, binds=binds, **parts)


def _inputs(document: Mapping[str, Any]) -> dict[str, Any]:
    """The scenario as it was written, with its profile's hash, and what was assumed in it."""
    scenario = document["scenario"]
    inputs = {key: value for key, value in scenario.items() if key not in WORDS}
    digest = document.get("profile", {}).get("hash")
    if digest:
        inputs[PROFILE_HASH] = digest
    assumed = [*scenario.get("assumed", ()), *(a["path"] for a in document.get("assumptions", ()))]
    if not all(isinstance(path, str) for path in assumed):
        raise TypeError
    return {"inputs": inputs, "assumed": tuple(assumed)}


def _scenario(document: Mapping[str, Any], label: str) -> tuple[Scenario | None, tuple[str, ...]]:
    try:
        return Scenario.model_validate_json(json.dumps(document["scenario"])), ()
    except ValidationError as error:
        first = error.errors()[0]
        at = ".".join(map(str, first["loc"]))
        return None, (f"{label}: this version cannot read its scenario ({at}: {first['msg']}): inputs as written",)


def _leaves(metrics: Mapping[str, Any], prefix: str = "") -> dict[str, Any]:
    """Estimates by dotted name: a mapping with a mean is one."""
    found: dict[str, Any] = {}
    for name, value in metrics.items():
        if isinstance(value, Mapping) and "mean" in value and "ci_low" in value:
            found[f"{prefix}{name}"] = value
        elif isinstance(value, Mapping):
            found |= _leaves(value, f"{prefix}{name}.")
    return found


def _mean(estimate: Mapping[str, Any], replications: int) -> Mean:
    """The standard error that the interval was made from: half of it over Student's quantile."""
    half = (_number(estimate["ci_high"]) - _number(estimate["ci_low"])) / 2.0
    if replications < 2:
        return Mean(_number(estimate["mean"]), 0.0, 0.0)
    return Mean(_number(estimate["mean"]), half / t_quantile(replications - 1), replications - 1.0)


# The fourth power of an error must still be a number.
_MOST = 1e60


def _number(value: Any) -> float:
    """A JSON number; null stands for what is no number."""
    if value is None:
        return math.nan
    if isinstance(value, bool) or not isinstance(value, (int, float)):
        raise TypeError
    if abs(value) > _MOST:
        raise ValueError
    return float(value)


def _some(means: Any) -> Any:
    """Raises ValueError where nothing was found."""
    if not means:
        raise ValueError
    return means
