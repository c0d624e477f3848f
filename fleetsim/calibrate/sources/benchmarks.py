"""Results of benchmark tools: a row of FORMATS each, with how a file of it is known and what a run of it says.

vLLM's own, with the fields as vLLM 0.32.0 writes them (vllm/benchmarks/serve.py, throughput.py, latency.py,
sweep/serve.py); `serve` results of older releases and of SGLang's bench_serving have the same names. A sweep's folder
holds `run=N.json` files, each a serve result with the swept parameters beside, and a summary.csv of all. Lengths of an
offline batch are not in its result: vLLM writes them to NAME.pytorch.json when SAVE_TO_PYTORCH_BENCHMARK_FORMAT is set;
a user may also add them.

guidellm: a list `benchmarks` of items with `metrics` (guidellm/benchmark/benchmark.py of 0.2 and 0.3, then
guidellm/benchmark/schemas/): distributions by status, each with a mean, of the same names in all. Requests that
a time limit cut off count as load but not as results, so the concurrency is that of all.
"""

from __future__ import annotations

import os
import re
from collections.abc import Callable, Mapping, Sequence
from datetime import UTC, datetime
from pathlib import Path
from typing import Any

import numpy as np
from msgspec import Struct

from fleetsim.calibrate.sources.benchmark_run import (
    Run,
    TokenTimes,
    batch_iterations,
    measured_of,
    seen_decodes,
    windows_of,
)
from fleetsim.calibrate.sources.source import (
    MAX_PROBLEMS,
    Document,
    DocumentFields,
    Duration,
    Facts,
    FileReading,
    Source,
    as_number,
    observations_from,
    text_of,
)
from fleetsim.errors import InputError, Problem
from fleetsim.json_text import from_json

LEAST_WINDOWS = 3
DISTINCT = "prompts that a prefix cache did not know"
MEANS = "one mean iteration per run, its prompts spread evenly"
ALL_FIT = "all requests of an offline batch have the same lengths and fit into the KV cache"
SWEPT = ("max_num_seqs", "max_num_batched_tokens", "block_size")
# What vLLM's arguments, kept beside a result, say of it.
ARGUMENTS = (*SWEPT, "input_len", "output_len", "random_input_len", "random_output_len", "batch_size",
             "tensor_parallel_size", "dtype")  # fmt: skip


class FileFormat(Struct, frozen=True):
    """A kind of file. has: whether a document is one. durations: what a run measured. facts: what the runs say of the
    engine. runs: the runs in a document, itself if not said. where: the place of a run in the file, of its number and
    how many there are. notes: what is assumed of each. single: durations are those of single iterations."""

    what: str
    has: Callable[[Document], bool]
    durations: Callable[[DocumentFields, FileReading], list[Duration]]
    facts: Callable[[Sequence[Document]], Facts] = lambda runs: {}
    runs: Callable[[Document, str], list[Document]] = lambda document, path: [document]
    where: Callable[[int, int], str] = lambda i, n: ""
    notes: tuple[str, ...] = (DISTINCT,)
    single: bool = False


def read_benchmarks(
    form: FileFormat, documents: Sequence[Document], path: str, how: FileReading, what: str = ""
) -> Source:
    """The source that the runs in these documents make. what: the kind of file, if not the format's. Raises InputError
    with the first problems of all runs."""
    runs = [run for document in documents for run in form.runs(document, path)]
    facts = form.facts(runs)
    how.budget = how.given.max_num_batched_tokens or int(facts.get("max_num_batched_tokens", how.budget))
    how.notes += form.notes
    measured: list[Duration] = []
    problems: list[Problem] = []
    for how.number, run in enumerate(runs):
        fields = DocumentFields(run, path + form.where(how.number, len(runs)))
        measured += form.durations(fields, how)
        problems += fields.problems
    if problems:
        raise InputError(problems[:MAX_PROBLEMS])
    return Source(path, what or form.what, *observations_from(measured, path), form.single, facts, tuple(how.notes))


def _serve(fields: DocumentFields, how: FileReading) -> list[Duration]:
    """Windows of single tokens' times where they were kept, else the run's means."""
    times = _token_times(fields.document)
    found = windows_of(times, how.budget, how.number) if times else []
    if len(found) >= LEAST_WINDOWS:
        return found
    if MEANS not in how.notes:
        how.notes.insert(0, MEANS)
    tokens = ("total_input_tokens", "total_output_tokens")
    said = fields.every("duration>", "completed", *tokens, "mean_itl_ms|mean_tpot_ms")
    first_s = fields.number("median_ttft_ms", "mean_ttft_ms", above=True)
    if said is None:
        return []
    duration, completed, prompt, output, between_s = said
    if completed < 1 or prompt < completed or output < completed:
        return fields.refused("completed", completed, "no request ended with tokens: nothing was measured")
    if between_s <= 0 and output > completed:
        return fields.refused("mean_itl_ms", between_s, "must be > 0 where requests have more than one token")
    waited_s, decoding_s = (first_s or 0.0) * completed, between_s * (output - completed)  # of all requests together
    cap = fields.number("max_concurrency", above=True)
    # the others wait for their prompt
    full = None if cap is None else cap * decoding_s / (waited_s + decoding_s or 1.0)
    run = Run(
        prompt / completed,
        output / completed,
        seen_decodes(decoding_s / duration, full),
        between_s,
        first_s,
        in_flight=(waited_s + decoding_s) / duration,
        **({} if times is None else times.moments()),
    )
    return measured_of(run, how.budget, how.number)


def _token_times(document: Document) -> TokenTimes | None:
    """Times of single tokens, as --save-detailed keeps them; None where they are not there or not whole."""
    columns = [document.get(k) for k in ("input_lens", "start_times", "ttfts", "itls")]
    if not all(isinstance(c, list) and c for c in columns) or len({len(c) for c in columns if c is not None}) != 1:
        return None
    prompts, starts, tokens = [], [], []
    for *numbers, gaps in zip(*columns, strict=True):
        prompt, start, first = (as_number(v) for v in numbers)
        if prompt is None or start is None or not first or not isinstance(gaps, list):
            continue  # a request that failed has no first token
        steps = np.array([as_number(g) or 0.0 for g in gaps], np.float64)
        if np.all(steps >= 0.0):
            prompts.append(prompt)
            starts.append(start)
            tokens.append(start + first + np.concatenate([[0.0], np.cumsum(steps)]))
    return TokenTimes(np.array(prompts), np.array(starts), tokens) if tokens else None


def _offline(fields: DocumentFields, how: FileReading) -> list[Duration]:
    """All requests at once, so the iterations follow from the lengths, where they are said."""
    batch = fields.count("batch_size", "num_requests")
    prompt, output = fields.count("input_len", "random_input_len"), fields.count("output_len", "random_output_len")
    seconds = fields.number("avg_latency", "elapsed_time", above=True, needed=True)
    alone = batch if "avg_latency" in fields.document else None
    slots = how.given.max_num_seqs or fields.count("max_num_seqs") or alone
    budget = how.given.max_num_batched_tokens or fields.count("max_num_batched_tokens") or how.budget
    lacking = [n for n, v in (("batch_size", batch), ("input_len", prompt), ("output_len", output)) if v is None]
    if lacking:
        rule = f"vLLM does not write {', '.join(lacking)} into this result"
        remedy = "add them to the JSON, or keep beside it the file of SAVE_TO_PYTORCH_BENCHMARK_FORMAT=1"
        fields.refused(lacking[0], None, rule, remedy)
    if slots is None:
        fields.refused("max_num_seqs", None, "not in this result", "add --max-num-seqs")
    if seconds and batch and prompt and output and slots:
        return [Duration(seconds, batch_iterations(batch, prompt, output, slots, budget), run=how.number)]
    return []


def _with_arguments(document: Document, path: str) -> list[Document]:
    """The result with the arguments that vLLM wrote beside it, where it did."""
    beside = Path(path).with_suffix(".pytorch.json")
    try:
        args = from_json(text_of(os.fspath(beside)))[0]["benchmark"]["extra_info"]["args"] if beside.is_file() else {}
    except (ValueError, KeyError, IndexError, TypeError, InputError):
        args = {}
    return [{**{k: v for k, v in _mapping(args).items() if k in ARGUMENTS}, **document}]


def _vllm_facts(documents: Sequence[Document]) -> Facts:
    """What the results agree on."""
    found: dict[str, set[str | int]] = {}
    for document in documents:
        f = DocumentFields({k.replace("-", "_").lstrip("_"): v for k, v in document.items()}, "")
        backend, date = f.text("backend", "endpoint_type"), re.match(r"(\d{4})-?(\d\d)-?(\d\d)", f.text("date") or "")
        said: dict[str, str | int | None] = {
            **{name: f.count(name) for name in SWEPT},
            "dtype": None if f.text("dtype") == "auto" else f.text("dtype"),
            "model": f.text("model_id", "model"),
            "tp": f.count("tensor_parallel_size"),
            "engine": backend if backend in ("sglang", "tensorrt-llm", "lmdeploy", "tgi") else "vllm",
            "date": "-".join(date.groups()) if date else None,  # 20261121-050000 as 2026-11-21
        }
        for name, value in said.items():
            if value is not None:
                found.setdefault(name, set()).add(value)
    agreed = {name: next(iter(values)) for name, values in found.items() if len(values) == 1}
    return {**agreed, **({"date": max(map(str, found["date"]))} if "date" in found else {})}


def _benchmarks(document: Document, path: str) -> list[Document]:
    """A guidellm report's benchmarks, each with its means as `name` and its medians as `name.median`: of the successful
    requests, of the concurrency of all; `cap`: requests that the client kept in flight, where its strategy is that."""
    found: list[Document] = []
    for benchmark in document["benchmarks"]:
        flat: dict[str, Any] = {"benchmark": benchmark, "report": document}
        for name, by_status in _mapping(benchmark["metrics"]).items():
            status = _mapping(by_status)
            chosen = status.get("total" if name == "request_concurrency" else "successful")
            chosen = _mapping(chosen if isinstance(chosen, dict) else status.get("successful"))
            flat |= {name: chosen.get("mean"), f"{name}.median": chosen.get("median")}
        strategies = (_mapping(_mapping(benchmark.get(place)).get("strategy")) for place in ("config", "args"))
        kept = (
            as_number(s.get("streams")) or 1.0 for s in strategies if s.get("type_") in ("concurrent", "synchronous")
        )
        found.append({**flat, "cap": next(kept, None)})
    if not found:
        raise InputError([Problem(path, "benchmarks", "holds no benchmark", "run guidellm benchmark to its end")])
    return found


def _guidellm(fields: DocumentFields, how: FileReading) -> list[Duration]:
    said = fields.every(
        "request_concurrency>", "request_latency>", "prompt_token_count>", "output_token_count>",
        "inter_token_latency_ms", "time_to_first_token_ms>",
    )  # fmt: skip
    if said is None:
        return []
    concurrency, latency_s, prompt, output, between_s, first_s = said
    if between_s <= 0.0 and output > 1.0:
        rule = "must be > 0: without streaming there is no time between tokens"
        return fields.refused("inter_token_latency_ms", between_s, rule, "run guidellm with streaming")
    median = as_number(fields.document.get("time_to_first_token_ms.median"))
    share = min(1.0, between_s * max(0.0, output - 1.0) / latency_s)
    cap = fields.number("cap", above=True)
    decodes = seen_decodes(concurrency * share, None if cap is None else cap * share)
    run = Run(prompt, max(1.0, output), decodes, between_s, median * 1e-3 if median else first_s, concurrency)
    return measured_of(run, how.budget, how.number)


def _guidellm_facts(runs: Sequence[Document]) -> Facts:
    report, benchmark = runs[0]["report"], runs[0]["benchmark"]
    places = [report.get("args"), report.get("config"), benchmark.get("config"), benchmark.get("worker")]
    places += [_mapping(p).get("backend") for p in places]
    places += [_mapping(p).get("backend_kwargs") for p in places]
    named = (_mapping(place).get(key) for place in places for key in ("model", "backend_model"))
    model = next((value for value in named if isinstance(value, str) and value), None)
    start = as_number(benchmark.get("start_time"))
    known = start is not None and 0 < start < 4e9
    date = {"date": datetime.fromtimestamp(start or 0.0, UTC).date().isoformat()} if known else {}
    return {**({} if model is None else {"model": model}), **date}


def _mapping(value: Any) -> Mapping[str, Any]:
    return value if isinstance(value, dict) else {}


def _holds(*marks: str) -> Callable[[Document], bool]:
    """Whether a document has all keys of one of these marks."""
    return lambda document: any(set(mark.split()) <= document.keys() for mark in marks)


SERVE = FileFormat(
    "vllm bench serve",
    _holds("duration completed total_input_tokens total_output_tokens"),
    _serve,
    _vllm_facts,
    where=lambda i, n: "" if n == 1 else f": result {i + 1}",
)
OFFLINE = FileFormat(
    "vllm bench throughput or latency",
    _holds("elapsed_time num_requests total_num_tokens", "avg_latency latencies"),
    _offline,
    _vllm_facts,
    _with_arguments,
    notes=(DISTINCT, ALL_FIT),
)
GUIDELLM = FileFormat(
    "guidellm",
    lambda document: (
        isinstance(found := document.get("benchmarks"), list)
        and all(isinstance(b, dict) and "metrics" in b for b in found)
    ),
    _guidellm,
    _guidellm_facts,
    _benchmarks,
    where=lambda i, n: f": benchmarks[{i}].metrics",
    notes=(DISTINCT, MEANS),
)
FORMATS = (SERVE, OFFLINE, GUIDELLM)
