"""Measurements of others as sources of a profile: benchmark results, tables, operator tables."""

from __future__ import annotations

import os
import re
from collections.abc import Mapping, Sequence
from pathlib import Path

from fleetsim.calibrate.ask import Calibrate
from fleetsim.calibrate.raw import first_record
from fleetsim.calibrate.sources.benchmark_run import Run, measured_of
from fleetsim.calibrate.sources.benchmarks import FORMATS, MEANS, SERVE, FileFormat, read_benchmarks
from fleetsim.calibrate.sources.source import (
    DocumentFields,
    Duration,
    FileReading,
    Source,
    csv_rows,
    iteration,
    json_documents,
    text_of,
    unknown,
)
from fleetsim.errors import Problem, Problems
from fleetsim.files import reason
from fleetsim.records import replace

OPERATORS, SWEEP = "aiconfigurator", "vllm bench sweep"
RECORDS = frozenset({"meta", "start", "it", "obs", "seg", "note", "phase", "end", "error"})


def is_raw(path: str) -> bool:
    """Whether a file holds raw measurements of `fleetsim calibrate` (fleetsim.calibrate.raw), by its first line."""
    return str(first_record(path).get("t")) in RECORDS


def read_source(path: str, given: Calibrate | None = None) -> Source:
    """The measurements at `path`, whatever wrote them; `aiconfigurator:SYSTEM[:VERSION]` names operator tables.

    A folder is what `vllm bench sweep` leaves: all its run=N.json, else all JSON files in it. given: what the user says
    of the engine. Raises InputError for what is none of the known files, with what was looked for, and for every number
    that is missing or impossible; OutsideError where aiconfigurator is not installed.
    """
    how = FileReading(given or Calibrate())
    if path == OPERATORS or path.startswith(f"{OPERATORS}:"):
        from fleetsim.calibrate.sources.aiconfigurator import read_operators

        return read_operators(path, how.given)
    if "\0" not in path and os.path.isdir(path):
        root = Path(path)
        try:
            names = sorted(root.rglob("run=*.json")) or sorted({*root.rglob("*.json")} - {*root.rglob("summary.json")})
        except OSError as error:
            raise unknown(path, f"cannot be listed: {reason(error)}") from None
        documents = [d for name in map(os.fspath, names) for d in json_documents(text_of(name), name) if SERVE.has(d)]
        if not documents:
            raise unknown(path, f"is a folder without a result of vllm bench serve in its {len(names)} JSON files")
        return read_benchmarks(SERVE, documents, path, how, SWEEP)
    if is_raw(path):
        raise unknown(path, "holds raw measurements, which are fitted alone, not beside other files")
    text = text_of(path)
    if text.lstrip()[0] not in "{[":
        rows = csv_rows(text, path)
        return read_benchmarks(SERVE, rows, path, how, SWEEP) if SERVE.has(rows[0]) else read_csv(rows, path, how)
    documents = json_documents(text, path)
    form = next((form for form in FORMATS if all(map(form.has, documents))), None)
    if form is None:
        raise unknown(path, f"is JSON with the keys {', '.join(sorted(map(str, documents[0]))[:8]) or '(none)'}")
    return read_benchmarks(form, documents, path, how)


# --- A CSV of somebody's measurements: batch, context and what an iteration took or how many tokens came per second.
#     batch,context,tok_s            decodes, tokens of context each, output tokens/s
#     batch,context,step_ms          the same with the time of an iteration
#     batch,context,prefill,step_ms  with prefill tokens in the iteration
#     concurrency,input_len,output_len,tpot_ms[,ttft_ms]   the means of a whole run
# Headers are matched without regard to case and punctuation ("Batch Size", "tokens/s").

NAMES = {
    "batch": "batch batch_size bs concurrency max_concurrency decodes num_seqs running",
    "context": "context context_tokens context_len context_length ctx kv kv_len seq_len",
    "kv_tokens": "kv_tokens",
    "prefill": "prefill prefill_tokens chunk chunk_tokens",
    "prompt": "prompt prompt_tokens prompt_len prompt_length input_len input_length isl",
    "output": "output output_tokens output_len output_length osl",
    "rate": "tok_s toks_s tokens_s tps throughput tokens_per_s tokens_per_second output_tok_s output_tokens_s "
    "output_throughput",
}
TIME = ("time_s", "time_ms", "time_us")
TIMES = ("step", "iteration", "tpot", "itl", "latency", "seconds", "ttft")
LOOKED_FOR = (
    "a batch column (batch, concurrency, decodes), a context column (context, kv, seq_len, or input_len), "
    "and one of tok_s, tokens_s, throughput, tpot_ms, step_ms"
)


def read_csv(rows: Sequence[Mapping[str, str]], path: str, how: FileReading) -> Source:
    """The rows of a CSV, each a run of its own. Raises InputError with all problems, by row."""
    columns = _columns(list(rows[0]), path)
    means = "output" in columns and not columns.keys() & {"context", "prefill"}
    named = [{name: row.get(header) for name, header in columns.items()} for row in rows]
    return read_benchmarks(CSV_OF_RUNS if means else CSV_OF_ITERATIONS, named, path, how)


def _columns(headers: Sequence[str], path: str) -> dict[str, str]:
    """Which header says what, times by their units. Raises InputError where one is missing or doubled."""
    columns: dict[str, str] = {}
    said: dict[str, str] = {}
    problems = Problems()
    for header in headers:
        key = re.sub(r"[^a-z0-9]+", "_", header.lower()).strip("_")
        stem, _, unit = key.rpartition("_")
        name = next((n for n, aliases in NAMES.items() if key in aliases.split()), None)
        if name is None and unit in ("s", "ms", "us") and stem.split("_")[-1] in TIMES:
            name = f"{'ttft' if stem.endswith('ttft') else 'time'}_{unit}"
        elif name is None and key == "seconds":
            name = "time_s"
        if name is None:
            continue
        what = name.partition("_")[0]
        if what in said:
            rule = f"says the same as {said[what]!r}"
            problems.append(Problem(f"{path}: header", header, rule, "leave one of the two out"))
        columns[name] = said[what] = header
    context = columns.keys() & {"context", "kv_tokens", "prompt"}
    if not problems and ("batch" not in columns or not context or not columns.keys() & {"rate", *TIME}):
        rule = f"looked for {LOOKED_FOR}"
        problems.append(Problem(f"{path}: header", ",".join(headers), rule, "name the columns like that"))
    problems.stop()
    return columns


def _seconds(fields: DocumentFields, tokens: float) -> float | None:
    """The time of an iteration that made this many tokens."""
    time = next((name for name in TIME if name in fields.document), None)
    found = fields.number(time or "rate", above=True, needed=True)
    return tokens / found if found is not None and time is None else found


def _of_iteration(fields: DocumentFields, how: FileReading) -> list[Duration]:
    batch, prefill = fields.number("batch", needed=True), fields.number("prefill") or 0.0
    context, total = fields.number("context", "prompt") or 0.0, fields.number("kv_tokens")
    if batch is None or fields.problems:
        return []
    if batch + prefill <= 0.0:
        return fields.refused("batch", batch, "an iteration holds decodes or prefill", "leave the row out")
    seconds = _seconds(fields, batch or prefill)
    row = iteration(batch, batch * context if total is None else total, prefill, prefill * (prefill + 1.0) / 2.0)
    return [] if seconds is None else [Duration(seconds, row, run=how.number)]


def _of_run(fields: DocumentFields, how: FileReading) -> list[Duration]:
    batch = fields.number("batch", above=True, needed=True)
    prompt, output = (fields.number(name, least=1.0, needed=True) for name in ("prompt", "output"))
    first_s = fields.number("ttft_s", "ttft_ms", "ttft_us", above=True)
    seconds = _seconds(fields, batch or 1.0)
    if batch is None or prompt is None or output is None or seconds is None:
        return []
    return measured_of(Run(prompt, output, batch, seconds, first_s, batch), how.budget, how.number)


CSV_OF_RUNS = FileFormat("CSV", lambda row: True, _of_run, where=lambda i, n: f": row {i + 2}", notes=(MEANS,))
CSV_OF_ITERATIONS = replace(CSV_OF_RUNS, durations=_of_iteration, notes=(), single=True)
