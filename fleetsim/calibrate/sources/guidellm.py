"""Reports of guidellm (benchmarks.json): a run per benchmark in it.

Two layouts are read. guidellm 0.2 to 0.3: a list `benchmarks` whose items have `metrics`, `start_time`, `end_time`
(guidellm/benchmark/benchmark.py). guidellm 0.4 and later: the same with `metadata.version` 1 or 2 beside
(guidellm/benchmark/schemas/). The metrics that are used have the same names in all of them: distributions by status,
each with a mean. `inter_token_latency_ms` is weighted by tokens.
"""

from __future__ import annotations

from collections.abc import Mapping
from datetime import UTC, datetime
from typing import Any

from fleetsim.calibrate.engine_flags import GivenFlags
from fleetsim.calibrate.sources.benchmark_run import Run, measured_of, seen_decodes
from fleetsim.calibrate.sources.documents import Document, DocumentFields, as_number, refuse
from fleetsim.calibrate.sources.source import Duration, Source, observations_from
from fleetsim.calibrate.sources.vllm_bench import BUDGET, DISTINCT
from fleetsim.errors import InputError, Problem

TOKENS = ("prompt_token_count", "output_token_count")


def is_report(document: Document) -> bool:
    """Whether this is a guidellm report."""
    benchmarks = document.get("benchmarks")
    return isinstance(benchmarks, list) and all(isinstance(b, dict) and "metrics" in b for b in benchmarks)


def read_report(document: Document, path: str, given: GivenFlags) -> Source:
    """A report, a run per benchmark. Raises InputError with all problems.

    Requests that a time limit cut off count as load but not as results, so the concurrency is that of all requests.
    """
    benchmarks: list[Mapping[str, Any]] = document["benchmarks"]
    if not benchmarks:
        raise InputError([Problem(path, "benchmarks", "holds no benchmark", "run guidellm benchmark to its end")])
    budget = given.max_num_batched_tokens or BUDGET
    measured: list[Duration] = []
    problems: list[Problem] = []
    for number, benchmark in enumerate(benchmarks):
        metrics = benchmark["metrics"]
        fields = _means(metrics if isinstance(metrics, dict) else {}, f"{path}: benchmarks[{number}].metrics")
        fields.document = {**fields.document, "cap": _cap(benchmark)}
        run = _run(fields)
        measured += measured_of(run, budget, number) if run else []
        problems += fields.problems
    refuse(problems)
    observations, runs = observations_from(measured, path)
    notes = (DISTINCT, "one mean iteration per run, its prompts spread evenly")
    return Source(path, "guidellm", observations, runs, facts=_facts(document, benchmarks[0]), assumed=notes)


def _means(metrics: Mapping[str, Any], where: str) -> DocumentFields:
    """The mean of each distribution over the successful requests; of the concurrency over all."""
    flat = {}
    for name, by_status in metrics.items():
        if not isinstance(by_status, dict):
            continue
        chosen = by_status.get("total" if name == "request_concurrency" else "successful")
        chosen = chosen if isinstance(chosen, dict) else by_status.get("successful")
        if isinstance(chosen, dict):
            flat[name] = chosen.get("mean")
            flat[f"{name}.median"] = chosen.get("median")
    return DocumentFields(flat, where)


def _run(fields: DocumentFields) -> Run | None:
    concurrency = fields.number("request_concurrency", above=True, needed=True)
    latency = fields.number("request_latency", above=True, needed=True)
    prompt, output = (fields.number(name, above=True, needed=True) for name in TOKENS)
    between = fields.number("inter_token_latency_ms", needed=True)
    first = fields.number("time_to_first_token_ms", above=True, needed=True)
    if concurrency is None or latency is None or prompt is None or output is None or between is None or first is None:
        return None
    if between <= 0.0 and output > 1.0:
        rule = "must be > 0: without streaming there is no time between tokens"
        problem = Problem(f"{fields.where}.inter_token_latency_ms", between, rule, "run guidellm with streaming")
        fields.problems.append(problem)
        return None
    median = as_number(fields.document.get("time_to_first_token_ms.median")) or first
    share = min(1.0, between * 1e-3 * max(0.0, output - 1.0) / latency)
    cap = fields.number("cap", above=True)
    return Run(
        prompt_tokens=prompt,
        output_tokens=max(1.0, output),
        decodes=seen_decodes(concurrency * share, None if cap is None else cap * share),
        between_tokens_s=between * 1e-3,
        first_token_s=median * 1e-3,
        in_flight=concurrency,
    )


def _cap(benchmark: Mapping[str, Any]) -> float | None:
    """Requests that the client kept in flight, where its strategy is to keep them; None for a rate."""
    for place in (benchmark.get("config"), benchmark.get("args")):
        strategy = place.get("strategy") if isinstance(place, dict) else None
        if isinstance(strategy, dict) and strategy.get("type_") in ("concurrent", "synchronous"):
            return as_number(strategy.get("streams")) or 1.0
    return None


def _facts(document: Document, benchmark: Mapping[str, Any]) -> dict[str, str | int | float]:
    facts: dict[str, str | int | float] = {}
    places = [document.get("args"), document.get("config"), benchmark.get("config"), benchmark.get("worker")]
    places += [p.get("backend") for p in places if isinstance(p, dict)]
    places += [p.get("backend_kwargs") for p in places if isinstance(p, dict)]
    for place in places:
        for key in ("model", "backend_model"):
            value = place.get(key) if isinstance(place, dict) else None
            if isinstance(value, str) and value and "model" not in facts:
                facts["model"] = value
    start = as_number(benchmark.get("start_time"))
    if start is not None and 0 < start < 4e9:
        facts["date"] = datetime.fromtimestamp(start, UTC).date().isoformat()
    return facts
