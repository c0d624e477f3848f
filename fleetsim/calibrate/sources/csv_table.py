"""A CSV of somebody's measurements: batch, context and what an iteration took or how many tokens came per second.

    batch,context,tok_s            decodes, tokens of context each, output tokens/s
    batch,context,step_ms          the same with the time of an iteration
    batch,context,prefill,step_ms  with prefill tokens in the iteration
    concurrency,input_len,output_len,tpot_ms[,ttft_ms]   the means of a whole run

Headers are matched without regard to case and punctuation ("Batch Size", "tokens/s").
"""

from __future__ import annotations

import re
from collections.abc import Mapping, Sequence

from fleetsim.calibrate.engine_flags import GivenFlags
from fleetsim.calibrate.sources.benchmark_run import Run, measured_of
from fleetsim.calibrate.sources.documents import DocumentFields, refuse
from fleetsim.calibrate.sources.source import Duration, Source, iteration, observations_from, of_a_prompt
from fleetsim.calibrate.sources.vllm_bench import BUDGET
from fleetsim.errors import InputError, Problem

NAMES: dict[str, tuple[str, ...]] = {
    "batch": ("batch", "batch_size", "bs", "concurrency", "max_concurrency", "decodes", "num_seqs", "running"),
    "context": ("context", "context_tokens", "context_len", "context_length", "ctx", "kv", "kv_len", "seq_len"),
    "kv_tokens": ("kv_tokens",),
    "prefill": ("prefill", "prefill_tokens", "chunk", "chunk_tokens"),
    "prompt": ("prompt", "prompt_tokens", "prompt_len", "prompt_length", "input_len", "input_length", "isl"),
    "output": ("output", "output_tokens", "output_len", "output_length", "osl"),
    "rate": (
        "tok_s",
        "toks_s",
        "tokens_s",
        "tps",
        "throughput",
        "tokens_per_s",
        "tokens_per_second",
        "output_tok_s",
        "output_tokens_s",
        "output_throughput",
    ),
}
TIMES = ("step", "iteration", "tpot", "itl", "latency", "seconds")
UNITS = {"s": 1.0, "ms": 1e-3, "us": 1e-6}
LOOKED_FOR = (
    "a batch column (batch, concurrency, decodes), a context column (context, kv, seq_len, or input_len), "
    "and one of tok_s, tokens_s, throughput, tpot_ms, step_ms"
)


def read_csv(rows: Sequence[Mapping[str, str]], path: str, given: GivenFlags) -> Source:
    """The rows of a CSV, each a run of its own. Raises InputError with all problems, by row."""
    columns, scale = _columns(list(rows[0]), path)
    budget = given.max_num_batched_tokens or BUDGET
    measured: list[Duration] = []
    problems: list[Problem] = []
    means = "output" in columns and "context" not in columns and "prefill" not in columns
    for number, row in enumerate(rows):
        fields = DocumentFields(
            {name: row.get(header) for name, header in columns.items()}, f"{path}: row {number + 2}"
        )
        found = _of_run(fields, scale, budget, number) if means else _of_iteration(fields, scale, number)
        problems += fields.problems
        measured += found
    refuse(problems)
    observations, runs = observations_from(measured, path)
    notes = ("one mean iteration per run, its prompts spread evenly",) if means else ()
    return Source(path, "CSV", observations, runs, single=not means, assumed=notes)


def _columns(headers: Sequence[str], path: str) -> tuple[dict[str, str], dict[str, float]]:
    """Which header says what, and seconds per unit of the times. Raises InputError where one is missing or doubled."""
    columns: dict[str, str] = {}
    scale: dict[str, float] = {}
    problems = []
    for header in headers:
        key = re.sub(r"[^a-z0-9]+", "_", header.lower()).strip("_")
        stem, _, unit = key.rpartition("_")
        name = next((n for n, aliases in NAMES.items() if key in aliases), None)
        if name is None and unit in UNITS and stem.split("_")[-1] in (*TIMES, "ttft"):
            name = "ttft" if stem.endswith("ttft") else "time"
            scale[name] = UNITS[unit]
        elif name is None and key == "seconds":
            name, scale["time"] = "time", 1.0
        if name in columns:
            rule = f"says the same as {columns[name]!r}"
            problems.append(Problem(f"{path}: header", header, rule, "leave one of the two out"))
        elif name is not None:
            columns[name] = header
    context = columns.keys() & {"context", "kv_tokens", "prompt"}
    if not problems and ("batch" not in columns or not context or not columns.keys() & {"rate", "time"}):
        rule = f"looked for {LOOKED_FOR}"
        problems.append(Problem(f"{path}: header", ",".join(headers), rule, "name the columns like that"))
    if problems:
        raise InputError(problems)
    return columns, scale


def _seconds(fields: DocumentFields, scale: Mapping[str, float], tokens: float) -> float | None:
    """The time of an iteration that made this many tokens."""
    if "time" in fields.document:
        time = fields.number("time", above=True, needed=True)
        return None if time is None else time * scale["time"]
    rate = fields.number("rate", above=True, needed=True)
    return None if rate is None else tokens / rate


def _of_iteration(fields: DocumentFields, scale: Mapping[str, float], number: int) -> list[Duration]:
    batch, prefill = fields.number("batch", needed=True), fields.number("prefill") or 0.0
    context = fields.number("context", "prompt") or 0.0
    total = fields.number("kv_tokens")
    if batch is None or fields.problems:
        return []
    if batch + prefill <= 0.0:
        problem = Problem(f"{fields.where}: batch", batch, "an iteration holds decodes or prefill", "leave the row out")
        fields.problems.append(problem)
        return []
    seconds = _seconds(fields, scale, batch or prefill)
    if seconds is None:
        return []
    row = iteration(batch, batch * context if total is None else total, prefill, prefill * (prefill + 1.0) / 2.0)
    return [Duration(seconds, row, run=number)]


def _of_run(fields: DocumentFields, scale: Mapping[str, float], budget: int, number: int) -> list[Duration]:
    batch = fields.number("batch", above=True, needed=True)
    prompt = fields.number("prompt", least=1.0, needed=True)
    output = fields.number("output", least=1.0, needed=True)
    first = fields.number("ttft", above=True)
    first_s = None if first is None else first * scale["ttft"]
    seconds = _seconds(fields, scale, batch or 1.0)
    if batch is None or prompt is None or output is None or seconds is None:
        return []
    found = []
    if output > 1.0:
        found = measured_of(Run(prompt, output, batch, seconds), budget, number)
    if first_s is not None and batch <= 1.0:
        found.append(Duration(first_s, of_a_prompt(prompt, budget), overheads=1.0, run=number))
    return found
