"""Results of vLLM's own benchmarks: `vllm bench serve`, `sweep`, `throughput` and `latency`.

Fields as vLLM 0.32.0 writes them (vllm/benchmarks/serve.py, throughput.py, latency.py, sweep/serve.py); `serve` results
of older releases and of SGLang's bench_serving have the same names. A sweep's folder holds `run=N.json` files, each a
serve result with the swept parameters beside, and a summary.csv of all. Lengths of an offline batch are not in its
result: vLLM writes them to NAME.pytorch.json when SAVE_TO_PYTORCH_BENCHMARK_FORMAT is set; a user may also add them.
"""

from __future__ import annotations

import os
import re
from collections.abc import Sequence
from pathlib import Path

import numpy as np

from fleetsim.calibrate.engine_flags import GivenFlags
from fleetsim.calibrate.sources.benchmark_run import Run, measured_of, seen_decodes
from fleetsim.calibrate.sources.documents import (
    Document,
    DocumentFields,
    as_number,
    json_documents,
    refuse,
    text_of,
    unknown,
)
from fleetsim.calibrate.sources.source import Array, Duration, Source, observations_from
from fleetsim.calibrate.sources.token_times import TokenTimes, windows_of
from fleetsim.errors import InputError, Problem
from fleetsim.json_text import from_json

BUDGET = 8192  # max_num_batched_tokens where nobody says: vLLM's for most servers
LEAST_WINDOWS = 3
SWEPT = ("max_num_seqs", "max_num_batched_tokens", "block_size", "dtype")
DISTINCT = "prompts that a prefix cache did not know"
MOST_ITERATIONS = 200_000


def is_serve(document: Document) -> bool:
    """Whether this is a result of `vllm bench serve`."""
    return all(key in document for key in ("duration", "completed", "total_input_tokens", "total_output_tokens"))


def is_offline(document: Document) -> bool:
    """Whether this is a result of `vllm bench throughput` or `latency`."""
    return {"elapsed_time", "num_requests", "total_num_tokens"} <= document.keys() or {
        "avg_latency",
        "latencies",
    } <= document.keys()


def read_serve(documents: Sequence[Document], path: str, given: GivenFlags, what: str = "vllm bench serve") -> Source:
    """Serve results, a run each. Raises InputError with all problems of all runs."""
    facts = _facts(documents)
    budget = given.max_num_batched_tokens or int(facts.get("max_num_batched_tokens", BUDGET))
    measured: list[Duration] = []
    problems: list[Problem] = []
    notes = {DISTINCT}
    for number, document in enumerate(documents):
        where = path if len(documents) == 1 else f"{path}: result {number + 1}"
        fields = DocumentFields(document, where)
        times = _token_times(document)
        found = windows_of(times, budget, number) if times else []
        if len(found) < LEAST_WINDOWS:
            run = _run(fields, times)
            found = measured_of(run, budget, number) if run else []
            notes.add("one mean iteration per run, its prompts spread evenly")
        measured += found
        problems += fields.problems
    refuse(problems)
    observations, runs = observations_from(measured, path)
    return Source(path, what, observations, runs, facts=facts, assumed=tuple(sorted(notes)))


def read_offline(documents: Sequence[Document], path: str, given: GivenFlags) -> Source:
    """Results of offline batches, a run each: all requests at once, so the iterations follow from the lengths.

    Raises InputError where a result lacks its lengths, with where vLLM keeps them.
    """
    measured, problems = [], []
    args = _recorded_args(path)
    facts = _facts([{**args, **d} for d in documents])
    for number, document in enumerate(documents):
        fields = DocumentFields({**args, **document}, path)
        batch = fields.count("batch_size", "num_requests")
        prompt, output = fields.count("input_len", "random_input_len"), fields.count("output_len", "random_output_len")
        seconds = fields.number("avg_latency", "elapsed_time", above=True, needed=True)
        slots = given.max_num_seqs or fields.count("max_num_seqs") or (batch if "avg_latency" in document else None)
        budget = given.max_num_batched_tokens or fields.count("max_num_batched_tokens") or BUDGET
        problems += fields.problems
        lacking = [n for n, v in (("batch_size", batch), ("input_len", prompt), ("output_len", output)) if v is None]
        if lacking:
            rule = f"vLLM does not write {', '.join(lacking)} into this result"
            remedy = "add them to the JSON, or keep beside it the file of SAVE_TO_PYTORCH_BENCHMARK_FORMAT=1"
            problems.append(Problem(f"{path}: {lacking[0]}", None, rule, remedy))
        if slots is None:
            problems.append(Problem(f"{path}: max_num_seqs", None, "not in this result", "add --max-num-seqs"))
        if seconds and batch and prompt and output and slots:
            measured.append(Duration(seconds, batch_iterations(batch, prompt, output, slots, budget), run=number))
    refuse(problems)
    observations, runs = observations_from(measured, path)
    notes = (DISTINCT, "all requests of an offline batch have the same lengths and fit into the KV cache")
    return Source(path, "vllm bench throughput or latency", observations, runs, facts=facts, assumed=notes)


def read_folder(path: str, given: GivenFlags) -> Source:
    """A folder of serve results, as `vllm bench sweep` leaves one: all run=N.json, else all JSON files in it."""
    root = Path(path)
    try:
        names = sorted(root.rglob("run=*.json")) or sorted(p for p in root.rglob("*.json") if p.name != "summary.json")
    except OSError as error:
        raise unknown(path, f"cannot be listed: {error.strerror or error}") from None
    documents = []
    for name in names:
        documents += [d for d in json_documents(text_of(os.fspath(name)), os.fspath(name)) if is_serve(d)]
    if not documents:
        raise unknown(path, f"is a folder without a result of vllm bench serve in its {len(names)} JSON files")
    return read_serve(documents, path, given, "vllm bench sweep")


def _run(fields: DocumentFields, times: TokenTimes | None) -> Run | None:
    """The means of a serve result; None where it lacks something, which `fields` then says."""
    duration = fields.number("duration", above=True, needed=True)
    completed = fields.number("completed", needed=True)
    prompt, output = fields.number("total_input_tokens", needed=True), fields.number("total_output_tokens", needed=True)
    between = fields.number("mean_itl_ms", "mean_tpot_ms", needed=True)
    first = fields.number("median_ttft_ms", "mean_ttft_ms", above=True)
    if duration is None or completed is None or prompt is None or output is None or between is None:
        return None
    if completed < 1 or prompt < completed or output < completed:
        rule = "no request ended with tokens: nothing was measured"
        fields.problems.append(Problem(f"{fields.where}: completed", completed, rule, "run the benchmark again"))
        return None
    if between <= 0 and output > completed:
        rule = "must be > 0 where requests have more than one token"
        fields.problems.append(Problem(f"{fields.where}: mean_itl_ms", between, rule, "run the benchmark again"))
        return None
    waited = (first or 0.0) * 1e-3 * completed
    decoding = between * 1e-3 * (output - completed)
    return Run(
        prompt_tokens=prompt / completed,
        output_tokens=output / completed,
        decodes=seen_decodes(decoding / duration, _held(fields, waited, decoding)),
        between_tokens_s=between * 1e-3,
        first_token_s=None if first is None else first * 1e-3,
        in_flight=(waited + decoding) / duration,
        **({} if times is None else _moments(times)),
    )


def _held(fields: DocumentFields, waited: float, decoding: float) -> float | None:
    """Decodes while the run was full: the client's cap less those whose prompt was waiting; None where it had none."""
    cap = fields.number("max_concurrency", above=True)
    return None if cap is None else cap * decoding / (waited + decoding)


def _moments(t: TokenTimes) -> dict[str, float | None]:
    """Mean context of a decode and mean pairs of a prompt, from single requests."""
    later = np.array([len(s) - 1.0 for s in t.tokens_s])
    context = later * (t.prompt_tokens + (later - 1.0) / 2.0)
    pairs = t.prompt_tokens * (t.prompt_tokens + 1.0) / 2.0
    return {
        "context_tokens": float(context.sum() / later.sum()) if later.sum() else None,
        "pairs": float(pairs.mean()),
    }


def _token_times(document: Document) -> TokenTimes | None:
    """Times of single tokens, as --save-detailed keeps them; None where they are not there or not whole."""
    columns = [document.get(k) for k in ("input_lens", "start_times", "ttfts", "itls")]
    if not all(isinstance(c, list) and c for c in columns) or len({len(c) for c in columns if c is not None}) != 1:
        return None
    prompts, starts, tokens = [], [], []
    for prompt, start, first, gaps in zip(*columns, strict=True):
        numbers = [as_number(v) for v in (prompt, start, first)]
        if None in numbers or not isinstance(gaps, list) or not numbers[2]:
            continue  # a request that failed has no first token
        steps = np.array([as_number(g) or 0.0 for g in gaps], np.float64)
        if np.any(steps < 0.0) or numbers[0] is None or numbers[1] is None:
            continue
        prompts.append(numbers[0])
        starts.append(numbers[1])
        tokens.append(numbers[1] + numbers[2] + np.concatenate([[0.0], np.cumsum(steps)]))
    return TokenTimes(np.array(prompts), np.array(starts), tokens) if tokens else None


def _facts(documents: Sequence[Document]) -> dict[str, str | int | float]:
    """What the results agree on."""
    found: dict[str, set[str | int]] = {}
    for document in documents:
        f = DocumentFields({k.replace("-", "_").lstrip("_"): v for k, v in document.items()}, "")
        said: dict[str, str | int | None] = {name: f.count(name) for name in SWEPT[:3]}
        said |= {
            "dtype": None if f.text("dtype") == "auto" else f.text("dtype"),
            "model": f.text("model_id", "model"),
            "tp": f.count("tensor_parallel_size"),
        }
        said |= {"engine": _engine(f.text("backend", "endpoint_type")), "date": _date(f.text("date"))}
        for name, value in said.items():
            if value is not None:
                found.setdefault(name, set()).add(value)
    agreed = {name: next(iter(values)) for name, values in found.items() if len(values) == 1}
    return {**agreed, **({"date": max(map(str, found["date"]))} if "date" in found else {})}


def _engine(backend: str | None) -> str:
    return backend if backend in ("sglang", "tensorrt-llm", "lmdeploy", "tgi") else "vllm"


def _date(text: str | None) -> str | None:
    """20261121-050000 as 2026-11-21."""
    found = re.match(r"(\d{4})-?(\d\d)-?(\d\d)", text or "")
    return "-".join(found.groups()) if found else None


def _recorded_args(path: str) -> dict[str, object]:
    """The arguments that vLLM wrote beside an offline result, {} where it did not."""
    beside = Path(path).with_suffix(".pytorch.json")
    if not beside.is_file():
        return {}
    try:
        records = from_json(text_of(os.fspath(beside)))
        args = records[0]["benchmark"]["extra_info"]["args"]
    except (ValueError, KeyError, IndexError, TypeError, InputError):
        return {}
    names = ("batch_size", "input_len", "output_len", "random_input_len", "random_output_len", "tensor_parallel_size")
    return {k: v for k, v in args.items() if k in (*names, *SWEPT, "dtype")} if isinstance(args, dict) else {}


def batch_iterations(requests: int, prompt_tokens: int, output_tokens: int, slots: int, budget: int) -> Array:
    """The iterations of equal requests that are all there from the start, shape (iterations, 4).

    At most MOST_ITERATIONS of them. slots: running at once. budget: max_num_batched_tokens. Running requests first,
    then new ones while slots and budget last; a prompt's last token also yields the first output token. KV blocks are
    taken as enough.
    """
    left_prompt = np.full(requests, prompt_tokens, np.int64)
    made = np.zeros(requests, np.int64)
    running: list[int] = []
    arrived = 0
    rows: list[list[float]] = []
    while (running or arrived < requests) and len(rows) < MOST_ITERATIONS:
        while len(running) < slots and arrived < requests:
            running.append(arrived)
            arrived += 1
        who = np.array(running)
        decoding = who[left_prompt[who] == 0]
        room = budget - len(decoding)
        b, kv = len(decoding), float((prompt_tokens + made[decoding] - 1).sum())
        tokens, pairs = 0, 0.0
        made[decoding] += 1
        for i in who[left_prompt[who] > 0]:
            chunk = min(room, int(left_prompt[i]))
            if chunk <= 0:
                break
            pairs += chunk * (prompt_tokens - int(left_prompt[i])) + chunk * (chunk + 1) / 2
            tokens, room = tokens + chunk, room - chunk
            left_prompt[i] -= chunk
            made[i] += left_prompt[i] == 0
        rows.append([b, kv, tokens, pairs])
        running = [i for i in running if made[i] < output_tokens]
    return np.array(rows, np.float64)
