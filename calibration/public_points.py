"""How far the roofline is off on published runs that it was never fitted to: calibration/public_errors.json.

    python calibration/public_points.py            predict every run, write the errors and docs/accuracy.md
    python calibration/public_points.py --check    exit 1 if calibration/public_errors.json would change

The rule was fixed before any prediction was seen, and nothing in it is tuned to a run: the shipped factors; the
engine's own defaults, but for what the source states; clients that send a request when an earlier one has ended;
lengths even over [shortest, 1] of the longest (seed 0); of attention ranks that share a mixture's experts one, with its
share of the clients. The error is predicted / measured - 1, of the median response, of the makespan, or of the seconds
per output token.
"""

from __future__ import annotations

import argparse
import json
import math
import sys
from collections.abc import Callable, Iterable, Mapping, Sequence
from dataclasses import asdict, dataclass, fields, replace
from pathlib import Path
from statistics import median, quantiles
from typing import Any

import numpy as np
import yaml
from accuracy_page import ERRORS, FACTORS, PAGE, render

from fleetsim.engine import roofline, run_requests
from fleetsim.engine.checked import CHECKED, Domain, PublicError, domain_of
from fleetsim.engine.gpus import gpu_spec
from fleetsim.engine.model.hf_config import shape_from_config
from fleetsim.engine.model.names import model_shape
from fleetsim.engine.model.shape import ModelShape
from fleetsim.errors import InputError

HERE = Path(__file__).resolve().parent
POINTS = HERE / "public" / "points.yaml"
# A domain of fewer runs is not told.
LEAST_POINTS = 5
_ROUNDS = 12


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
    tp: int
    dp: int
    clients: int
    requests: int
    prompt: int
    output: int
    shortest: float
    args: Mapping[str, Any]
    measure: str
    values: Sequence[float]


def read_points(path: Path = POINTS) -> tuple[list[Point], dict[str, ModelShape]]:
    """The runs, and the shapes of the models that fleetsim does not know by name."""
    document = yaml.load(path.read_text(encoding="utf-8"), getattr(yaml, "CSafeLoader", yaml.SafeLoader))
    columns = document["columns"]
    points = [Point(**dict(zip(columns, row, strict=True))) for row in document["points"]]
    return points, {name: shape_from_config(config, name) for name, config in document["models"].items()}


def error_of(p: Point, shape: ModelShape) -> float:
    """Predicted / measured time - 1. Raises InputError for a run that the roofline cannot express."""
    args = dict(p.args)
    tokens = args.get("max_num_batched_tokens")
    if tokens and p.engine != "sglang":
        args["max_num_seqs"] = args.get("max_num_seqs", min(1024, tokens))
    step_time, limits = roofline(p.gpu, shape, p.tp, p.dtype, dp=p.dp, engine=p.engine, **args)
    count = max(1, math.ceil(p.requests / p.dp))
    rng = np.random.default_rng(0)
    prompt, output = (
        rng.integers(max(1, int(top * p.shortest)), top + 1, size=count) if p.shortest < 1 else np.full(count, top)
        for top in (p.prompt, p.output)
    )
    clients = max(1, math.ceil(p.clients / p.dp)) if p.clients else count
    if p.clients:
        limits = replace(limits, max_num_seqs=min(clients, limits.max_num_seqs))
    sent = np.zeros(count)
    result = run_requests(step_time, limits, prompt, output)
    for _ in range(_ROUNDS if p.clients else 0):
        # A preempted request waits inside the engine, so when the next one is sent settles only by and by.
        sent = np.zeros(count)
        sent[clients:] = np.sort(result.finish_s)[: count - clients]
        if np.all(result.first_token_s >= sent):
            break
        result = run_requests(step_time, limits, prompt, output, arrival_s=sent)
    makespan = float(result.finish_s.max())
    if p.measure == "makespan":
        return makespan / p.values[0] - 1
    if p.measure == "tokens":
        return makespan / (float(output.sum()) * p.dp) * p.values[0] - 1
    first, later = (v / 1e3 for v in p.values)
    predicted_first = float(np.median(np.maximum(result.first_token_s - sent, 0)))
    predicted_later = float(np.median((result.finish_s - result.first_token_s) / np.maximum(output - 1, 1)))
    more = float(output.mean()) - 1
    return (predicted_first + more * predicted_later) / (first + more * later) - 1


def predicted() -> list[tuple[Domain, float, str]]:
    """Domain, error and source of every run that the roofline can express."""
    points, shapes = read_points()
    found = []
    for p in points:
        shape = shapes.get(p.model) or model_shape(p.model)
        try:
            error = error_of(p, shape)
        except InputError:  # five runs that had more memory than the roofline grants them
            continue
        found.append((domain_of(gpu_spec(p.gpu), shape, p.tp, p.dp, p.engine), error, p.source))
    return found


def errors_by_domain(found: list[tuple[Domain, float, str]]) -> list[PublicError]:
    """A record for every GPU, kind of model, size and engine, alone and all together, that has runs enough."""
    return [
        *(record for field in fields(Domain) for record in _alone(found, field.name)),
        *_records(found, lambda d: d),
    ]


def _alone(found: list[tuple[Domain, float, str]], name: str) -> list[PublicError]:
    """By one field, where it departs from what was checked. Of the size and of the engine only where the rest does not:
    most runs of SGLang, say, are of mixtures on another GPU."""
    if name in ("gpus", "engine"):
        found = [row for row in found if (row[0].gpu, row[0].model) == (CHECKED.gpu, CHECKED.model)]
    if name == "engine":
        found = [row for row in found if row[0].gpus == CHECKED.gpus]
    if name == "gpus":
        found = [row for row in found if row[0].engine == CHECKED.engine]
    departed = [row for row in found if getattr(row[0], name) != getattr(CHECKED, name)]
    return _records(departed, lambda d: Domain(**{name: getattr(d, name)}))


def _records(found: Iterable[tuple[Domain, float, str]], by: Callable[[Domain], Domain]) -> list[PublicError]:
    grouped: dict[Domain, list[tuple[float, str]]] = {}
    for domain, error, source in found:
        grouped.setdefault(by(domain), []).append((error, source))
    records = []
    for domain, rows in grouped.items():
        if len(rows) < LEAST_POINTS:
            continue
        errors = [error for error, _ in rows]
        low, _, high = quantiles(errors, n=4, method="inclusive")
        sources = tuple(sorted({source for _, source in rows}))
        records.append(PublicError(domain, round(median(errors), 3), round(low, 3), round(high, 3), len(rows), sources))
    return sorted(records, key=lambda r: tuple(str(v) for v in asdict(r.domain).values()))


def errors_text() -> str:
    """The file's text, a record a line, every run predicted anew."""
    found = predicted()
    records = errors_by_domain(found)
    rows = [json.dumps({**asdict(r.domain), **{k: v for k, v in asdict(r).items() if k != "domain"}}) for r in records]
    about = {
        "schema": 1,
        "runs": len(found),
        "what": "predicted / measured time - 1 of published runs, below 0 too fast; by calibration/public_points.py",
    }
    head = json.dumps(about, indent=2).removesuffix("\n}")
    return f'{head},\n  "errors": [\n    ' + ",\n    ".join(rows) + "\n  ]\n}\n"


def main(argv: Sequence[str] | None = None) -> int:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--check", action="store_true", help="write nothing: compare with what is there")
    arguments = parser.parse_args(argv)
    text = errors_text()
    if arguments.check:
        if not ERRORS.exists() or ERRORS.read_text(encoding="utf-8") != text:
            print(f"{ERRORS.name} is not what the roofline gives: run calibration/public_points.py")
            return 1
        return 0
    ERRORS.write_text(text, encoding="utf-8")
    PAGE.write_text(render(json.loads(FACTORS.read_text(encoding="utf-8"))), encoding="utf-8")
    return 0


if __name__ == "__main__":
    sys.exit(main())
