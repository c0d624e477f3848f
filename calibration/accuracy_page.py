"""The first part of docs/accuracy.md, all tables, and engine_errors.json: every published run predicted again."""

from __future__ import annotations

import json
from collections.abc import Callable, Iterable, Iterator, Mapping, Sequence
from pathlib import Path

import disaggregated
import numpy as np
from beside_aiconfigurator import BESIDE, beside, error_cells
from first_tokens import CAUSES, HEAD, cells, paths_words
from first_tokens import INTRO as FIRST_INTRO
from points import ACCEPTED, Point, Prediction, Run
from published_latencies import GPU_MEMORY_UTILIZATION, Predicted, Stage, evaluate

from fleetsim import units
from fleetsim.engine.known_error import Domain, KnownError, domain_of, known_error
from fleetsim.engine.operators.curves import Curves, read_curves
from fleetsim.records import as_dict, field_names

HERE = Path(__file__).resolve().parent
CURVES, LEFT_OUT, KERNELS = HERE / "engine_curves.json", HERE / "engine_left_out.json", HERE / "kernel_curves.json"
BESIDE_US = HERE / "aiconfigurator_points.json"
# A domain of fewer runs is not told.
LEAST_RUNS = 6
# Clients gave up after five minutes: no latency above 300 s is in any file, p99 is 290 to 298 s in all four.
GIVE_UP_S = 300.0
# Of so many runs the worst are named.
WORST = 25

INTRO = """# How far off is an answer?

This page says how far seconds of engines and of a trainer are off that fleetsim works out itself. A
[profile](calibrate.md) of your engine is better than these estimates, and so is a step that you measured
(`--trainer-step-s`). [Published runs](validation.md) says how far whole jobs are off.

## Engines

The *roofline* sums up what an engine's operators take, from the GPU's data sheet, the model's shape and fitted curves
([the model](engine.md#roofline)), times a factor for each published model. Below are {runs} published runs of whole
engines, each simulated request by request.

An error is |predicted / measured - 1|, of the median response, the makespan, or the seconds per output token.

- *fitted*: the curves were fitted to this run, too.
- *model left out*: the fit saw no run of this model on this GPU. An answer shows this error, of the
  narrowest kind of engine that has 100 runs; of engines kept out whole, its ranges hold {points} of the points,
  {engines} where each engine counts once.
- *GPU left out*: the fit saw no run of this GPU. An answer shows this error for a GPU without public runs.

`python calibration/fit_engine.py` fits the curves and writes this part. `--check` holds it against the committed
curves. `--tables` prints everything behind it.

"""

BY = """## By {what}

"""

SPECULATIVE = """
{mtp} runs decoded with multi-token prediction. No label of theirs says so, but their images and numbers of clients
stand in InferenceX's configs with `spec-decoding: mtp` alone (DeepSeek-R1 under TensorRT-LLM 1.1.0rc2.post2 and
1.2.0rc6.post3 and under SGLang 0.5.9, Qwen3.5 in fp8 with four GPUs), and the same runs without it took up to twice as
long. TensorRT-LLM drafts three tokens, one with attention ranks, SGLang three. What was accepted is not published:
{share:.2f} of each token whose predecessors were accepted is one number for all, found by `calibration/drafts.py`;
*left out* is with the number that the other models and engines give. The curves were fitted when nobody knew, as if
they had none (30 % in the median); a fit without them predicts the others no better. All tables below, and the errors
that answers show, are of the {others} others.
"""

WORST_INTRO = """## The worst

The {count} of them that are furthest off.

"""

STAGES = """## H100 under a constant rate of requests

`calibration/vllm_h100_published.yaml`, from https://github.com/inference-sim/training at commit ed5c1d2 (vLLM 0.15.1,
H100 SXM, fp16, client inference-perf, constant request rate, fixed output lengths). Llama-2-7b and CodeLlama-34b are
fitted, Llama-2-70b and Mixtral-8x7B are not. `max_num_seqs` 128, `max_num_batched_tokens` 2048,
`gpu_memory_utilization` {utilization}. Async scheduling lets an arriving request miss the iteration that is already
planned: one iteration is added to both latencies here.

"""

OVERLOAD = """Four more runs offered more than the engine could serve. Clients gave up after {give_up_s:.0f} s and their
latencies are missing. What can be compared: whether the queue grows (it does in all four), and the pace of decoding.

"""

KERNEL_INTRO = """## Single kernels

Where the curves start: each fitted alone to operator tables that NVIDIA measured (`calibration/kernels.py`). The fit of
whole engines then moves them within a prior of 12 to 40 %. Ada and consumer Blackwell have no tables here: they are
their nearest relative on their own data sheet. Nobody's tables of AMD's kernels are here either: those start from a
guess, and six published runs of an MI300X move them.

"""

SHORT = """
{mtp} of these runs decode with multi-token prediction. What they accepted is not published: {share:.2f} of each
drafted token, one number for all, is fitted to them. All other rows are without them.

**Other tools.** On the {both} runs that aiconfigurator-core 0.12.0 predicts too, its median error is {theirs}, ours
{ours}, and {ours_out} with the model left out (`calibration/aiconfigurator_points.py`).

**First tokens.** Of {first} runs the mean seconds to the first token are published. The median error is
{first_error}, and 90 % are within {first_far}. A request takes a path to the server and back ({paths}), which is
fitted to these runs. First tokens of DeepSeek under TensorRT-LLM with short prompts, and of SGLang's oldest runs of
it, are predicted too early.

**Prompts on engines of their own.** {disaggregated} published runs can be predicted; nothing is fitted to them. Later
tokens are off by {later_low} to {later_high}. SGLang's first tokens come {least:.0f} to {most:.0f} times too early
where attention ranks compute the prompts.

**Constant rates on an H100** (inference-sim/training at ed5c1d2, vLLM 0.15.1): end-to-end seconds are off by {fit} in
the median for models that were fitted, by {held_out} for models that were not.

### What the worst runs have in common

- Runs with 4,000 + 1,000 tokens by aiconfigurator's makers are up to twice as fast as one engine can be, or four
  times
  as slow: several replicas, or prefill elsewhere, behind one row.
- SGLang on DeepSeek in NVFP4 waits 5 to 9 seconds for the first token of four clients.
- Qwen's page for the H20 implies 1.4 of 4.0 TB/s in 16 bits and agrees in fp8. Its 16-bit rows are not fitted.
- TensorRT-LLM's runs of GPUStack are half as fast as the same engine elsewhere.
- AMD's first tokens come up to 18 times too early: the prompts are in the cache.

"""

HOW = """### What is assumed

- A response's first token is the median one here, without the path to a server. It is 1 to 5 % of a response. Later
  tokens are at {later:.2f} of the measured time.
- Experts are picked evenly, and alike only by drafts; the busiest GPU takes {uneven:.2f} times the mean for its
  operations.
- Layers that look back up to 2,048 tokens cost every sequence the same. No public run is of a longer window.
- Ada and consumer Blackwell are their nearest relative on their own data sheet. AMD's kernels are a guess
  that six runs of an MI300X moved.
- fp16 and bf16 run alike; so does fp8 with scales of any kind.
- KV capacity comes from memory ({refused} published runs had more than it grants them, and cannot be predicted).
"""

Row = tuple[Run, Prediction, float | None, float | None]


def rows_of(runs: Sequence[Run]) -> list[Row]:
    """Each run with its prediction, and its ratio with its model and with its GPU left out, where they were."""
    curves = read_curves(CURVES)
    left = json.loads(LEFT_OUT.read_text(encoding="utf-8"))
    # What was left out for runs with drafts is not the curves but what they accepted.
    pairs = {**left["pairs"], **left["drafted"]}
    gpus = {name: ratio for name, ratio in left["gpus"].items() if name not in left["drafted"]}
    return [(r, r.predict(curves), pairs.get(r.point.id), gpus.get(r.point.id)) for r in runs]


def plain(rows: Sequence[Row]) -> list[Row]:
    """Those that decode one token at a time."""
    return [row for row in rows if not row[0].point.mtp]


# -------------------------------------------------------------------------------------------------------- records


def records(rows: Sequence[Row]) -> list[KnownError]:
    """A record for every kind of engine that has runs enough, with the model left out, and with the GPU left out.

    Without runs of multi-token prediction: what they accepted is fitted.
    """
    found: dict[tuple[Domain, bool], list[tuple[float, str]]] = {}
    for run, _, pair, gpu in plain(rows):
        domain = domain_of(run.gpu, run.shape, run.point.dtype, run.point.engine)
        narrower = {domain.only(names) for names in _kinds()}
        for kind in narrower if pair is not None else ():
            found.setdefault((kind, True), []).append((pair - 1, run.point.source))
        for kind in narrower if gpu is not None else ():
            if kind.gpu is None:
                found.setdefault((kind, False), []).append((gpu - 1, run.point.source))
    out = [_record(kind, seen, errors) for (kind, seen), errors in found.items() if len(errors) >= LEAST_RUNS]
    return sorted(out, key=lambda r: (not r.gpu_seen, *(str(v) for v in as_dict(r.domain).values())))


def _kinds() -> Iterator[tuple[str, ...]]:
    names = field_names(Domain)
    for mask in range(2 ** len(names)):
        yield tuple(name for i, name in enumerate(names) if mask >> i & 1)


def _record(domain: Domain, seen: bool, errors: Sequence[tuple[float, str]]) -> KnownError:
    signed = np.array([e for e, _ in errors])
    middle, far = np.quantile(np.abs(signed), (0.5, 0.9))
    sources = tuple(sorted({source for _, source in errors}))
    bias = float(np.median(signed))
    return KnownError(domain, seen, round(float(middle), 3), round(float(far), 3), round(bias, 3), len(errors), sources)


def held(rows: Sequence[Row]) -> tuple[float, float]:
    """The share of runs that the ranges of answers hold where no record has their engine, and of engines, which count
    alike."""
    engines: dict[tuple[str, ...], list[tuple[Run, float]]] = {}
    for r, _, pair, _ in rows:
        if pair is not None:
            engines.setdefault(r.group, []).append((r, pair))
    each = []
    for group, own in engines.items():
        known = records([row for row in rows if row[0].group != group])
        first = own[0][0]  # all of a group are of one kind
        domain = domain_of(first.gpu, first.shape, first.point.dtype, first.point.engine)
        low, high = known_error(domain, known).around(1.0)
        each.append([low <= pair <= high for _, pair in own])
    return float(np.mean(np.concatenate(each))), float(np.mean([np.mean(inside) for inside in each]))


def errors_text(runs: Sequence[Run]) -> str:
    """engine_errors.json, a record a line."""
    found = records(rows_of(runs))
    lines = [json.dumps({**as_dict(r.domain), **{k: v for k, v in as_dict(r).items() if k != "domain"}}) for r in found]
    about = {
        "schema": 1,
        "what": "|predicted / measured - 1| of published runs that the fit did not see (calibration/fit_engine.py)",
    }
    head = json.dumps(about, indent=1).removesuffix("\n}")
    return f'{head},\n "errors": [\n  ' + ",\n  ".join(lines) + "\n ]\n}\n"


# ----------------------------------------------------------------------------------------------------------- page


def _table(head: Sequence[str], rows: Iterable[Sequence[str]], words: int = 1) -> str:
    align = ["---"] * words + ["---:"] * (len(head) - words)
    return "\n".join("| " + " | ".join(row) + " |" for row in (head, align, *rows)) + "\n"


def _grouped(rows: Sequence[Row], *ways: Callable[[Point, Run], str]) -> str:
    groups: dict[str, list[Row]] = {}
    for row in rows:
        for by in ways:
            groups.setdefault(by(row[0].point, row[0]), []).append(row)
    told = []
    for name, members in sorted(groups.items()):
        cells = [
            error_cells([ratio(m) for m in members]) for ratio in (lambda m: m[1].time, lambda m: m[2], lambda m: m[3])
        ]
        told.append([name, f"{len(members)}", *(cell for pair in cells for cell in pair)])
    far = "90 % within"
    head = ("", "runs", "fitted: median", far, "model left out: median", far, "GPU left out: median", far)
    return _table(head, told)


def _load(p: Point) -> str:
    at_once = p.clients or p.requests
    return next(f"up to {top} at once" for top in (4, 16, 64, 256, 10**9) if at_once <= top).replace(
        f"up to {10**9}", "more"
    )


def _worst(rows: Sequence[Row]) -> Iterator[list[str]]:
    for run, prediction, pair, _ in sorted(rows, key=lambda row: -abs(np.log(row[1].time)))[:WORST]:
        p = run.point
        name = f"{p.model.rpartition('/')[2]} {p.dtype}, {p.gpu} x {p.tp * p.dp}, {p.engine} {p.version}".rstrip()
        at_once = f"{p.clients} clients" if p.clients else f"{p.requests} at once"
        ratios = [f"{100 * (r - 1):+.0f} %" if r is not None else "-" for r in (prediction.time, pair)]
        yield [p.id, p.source, name, f"{at_once}, {p.prompt} + {p.output}", *ratios]


def _stage_rows(pairs: Sequence[tuple[Stage, Predicted]]) -> Iterator[list[str]]:
    for s, p in pairs:
        if not s.overloaded:
            yield [s.name, "yes" if s.use == "fit" else "no", f"{s.e2e_s:.3f}", f"{p.e2e_s:.3f}",
                   f"{100 * (p.e2e_s / s.e2e_s - 1):+.1f} %", f"{1e3 * s.ttft_s:.1f}",
                   f"{1e3 * p.ttft_s:.1f}"]  # fmt: skip


def _overload_rows(pairs: Sequence[tuple[Stage, Predicted]]) -> Iterator[list[str]]:
    for s, p in pairs:
        if s.overloaded:
            pace = p.decode_s(s)
            yield [s.name, "yes" if s.use == "fit" else "no", f"{1e3 * s.decode_s:.1f}", f"{1e3 * pace:.1f}",
                   f"{100 * (pace / s.decode_s - 1):+.1f} %"]  # fmt: skip


def _kernel_rows(families: Mapping[str, Mapping[str, Mapping[str, Mapping[str, float]]]]) -> Iterator[list[str]]:
    for family, kernels in sorted(families.items()):
        for kernel, kinds in sorted(kernels.items()):
            for kind, row in sorted(kinds.items()):
                yield [f"{family}, {kernel}, {kind}", f"{row['rows']:,}", f"{100 * row['median']:.0f} %",
                       f"{100 * row['p90']:.0f} %"]  # fmt: skip


def render(runs: Sequence[Run], refused: Sequence[tuple[Point, str]]) -> str:
    """The part of the page as text."""
    every = rows_of(runs)
    rows = plain(every)
    curves: Curves = read_curves(CURVES)
    later = [q.later for _, q, _, _ in rows if q.later is not None]
    ways = (
        lambda p, r: f"GPU: {p.gpu}",
        lambda p, r: str(domain_of(r.gpu, r.shape, p.dtype, p.engine).model),
        lambda p, r: f"engine: {p.engine}",
    )
    both = (lambda p, r: "all", lambda p, r: "multi-token prediction" if p.mtp else "one token at a time")
    table = _grouped(every, *both) + "\n".join(_grouped(rows, *ways).splitlines()[2:]) + "\n"
    how = HOW.format(later=np.median(later), uneven=curves.uneven, refused=len(refused))
    points, engines = (units.share(share, 0) for share in held(rows))
    intro = INTRO.format(runs=len(every), points=points, engines=engines)
    return intro + table + SHORT.format(**_short(runs, every, rows, curves)) + how


def _short(runs: Sequence[Run], every: Sequence[Row], rows: Sequence[Row], curves: Curves) -> Mapping[str, object]:
    """The figures of SHORT."""
    theirs = json.loads(BESIDE_US.read_text(encoding="utf-8"))["runs"]
    same = [(q.time, pair, theirs[run.point.id]) for run, q, pair, _ in rows if run.point.id in theirs]
    ours, ours_out, others = (error_cells(column)[0] for column in zip(*same, strict=True))
    first = [abs(run.first(curves) - 1) for run in runs if run.has_first]
    apart = disaggregated.errors()
    stages = {
        use: [abs(p.e2e_s / s.e2e_s - 1) for s, p in evaluate(curves, use) if not s.overloaded]
        for use in ("fit", "held out")
    }
    return {
        "mtp": len(every) - len(rows), "share": ACCEPTED, "both": len(same), "ours": ours,
        "ours_out": ours_out, "theirs": others, "first": len(first), "paths": paths_words(curves),
        "first_error": f"{100 * np.median(first):.0f} %", "first_far": f"{100 * np.quantile(first, 0.9):.0f} %",
        "disaggregated": len(apart), "later_low": f"{min(apart):+.0f} %", "later_high": f"{max(apart):+.0f} %",
        **dict(zip(("least", "most"), disaggregated.early(), strict=True)),
        "fit": f"{100 * np.median(stages['fit']):.1f} %", "held_out": f"{100 * np.median(stages['held out']):.1f} %",
    }  # fmt: skip


def tables(runs: Sequence[Run]) -> str:
    """Everything behind the page."""
    every = rows_of(runs)
    rows = plain(every)
    theirs = json.loads(BESIDE_US.read_text(encoding="utf-8"))
    curves: Curves = read_curves(CURVES)
    stages = [pair for use in ("fit", "held out") for pair in evaluate(curves, use)]
    kernels = json.loads(KERNELS.read_text(encoding="utf-8"))["families"]
    left = json.loads(LEFT_OUT.read_text(encoding="utf-8"))["first"]
    far = "90 % within"
    by = {
        "GPU": lambda p, r: p.gpu,
        "kind of model": lambda p, r: str(domain_of(r.gpu, r.shape, p.dtype, p.engine).model),
        "precision of the weights": lambda p, r: p.dtype,
        "engine": lambda p, r: p.engine,
        "GPUs of the engine": lambda p, r: f"{p.tp * p.dp}",
        "load": lambda p, r: _load(p),
        "model": lambda p, r: r.shape.name,
    }
    parts = [
        _grouped(every, lambda p, r: "all", lambda p, r: "multi-token prediction" if p.mtp else "one token at a time")
        + SPECULATIVE.format(mtp=len(every) - len(rows), others=len(rows), share=ACCEPTED),
        *(BY.format(what=what) + _grouped(rows, key) for what, key in by.items()),
        WORST_INTRO.format(count=WORST)
        + _table(("run", "source", "engine", "load", "fitted", "model left out"), _worst(rows), 4),
        BESIDE.format(what=theirs["what"].rpartition(" by ")[2])
        + _table(
            ("", "runs", "ours: median", far, "ours, left out", far, "aiconfigurator", far),
            beside([(run, (q.time, pair, theirs["runs"].get(run.point.id))) for run, q, pair, _ in rows]),
        ),
        FIRST_INTRO.format(runs=sum(r.has_first for r in runs), paths=paths_words(curves))
        + _table(HEAD, cells(runs, curves, left))
        + CAUSES,
        disaggregated.intro() + _table(disaggregated.HEAD, disaggregated.cells(), 5) + disaggregated.causes(),
        STAGES.format(utilization=GPU_MEMORY_UTILIZATION)
        + _table(
            ("stage", "fitted", "mean e2e s", "predicted", "error", "mean ttft ms", "predicted"), _stage_rows(stages), 2
        ),
        OVERLOAD.format(give_up_s=GIVE_UP_S)
        + _table(("stage", "fitted", "ms per token", "predicted", "error"), _overload_rows(stages), 2),
        KERNEL_INTRO + _table(("kernel", "rows", "median error", "90 % within"), _kernel_rows(kernels)),
    ]
    return "\n".join(parts)
