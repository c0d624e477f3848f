"""docs/accuracy.md, rendered from the fitted factors by simulating every measured stage again."""

from __future__ import annotations

import json
from collections.abc import Iterable, Sequence
from pathlib import Path
from statistics import median
from typing import Any

from factor_priors import NAMES, PRIORS
from published_latencies import GPU_MEMORY_UTILIZATION, Predicted, Stage, evaluate, fitted_models

from fleetsim.engine.checked import public_errors
from fleetsim.engine.factors import RooflineFactors

HERE = Path(__file__).resolve().parent
FACTORS = HERE / "roofline_factors.json"
ERRORS = HERE / "public_errors.json"
PAGE = HERE.parent / "docs" / "accuracy.md"
TARGET_FIT, TARGET_LEFT_OUT = 0.08, 0.15
# Clients gave up after five minutes: no latency above 300 s is in any file, p99 is 290 to 298 s in all four.
GIVE_UP_S = 300.0

Pairs = Sequence[tuple[Stage, Predicted]]

INTRO = """# How accurate is the roofline?

Where nobody has measured an engine, fleetsim predicts its iteration time from the GPU's data sheet, the model's shape
and eight global efficiency factors (`fleetsim/engine/roofline_step.py`). This page says how far that is off on real
vLLM: latencies that others published for H100 SXM, predicted by simulating each run request by request. A measured
profile is better than this wherever you can get one.

This page and `calibration/roofline_factors.json` are written by

    python calibration/fit_roofline.py

and `python calibration/fit_roofline.py --check` fails when either has drifted. A test does the same.
"""

OVERLOAD = """## Overload

Four runs offered more than the engine could serve. Clients gave up after {give_up_s:.0f} s and their latencies are
missing, so the means are of survivors; the simulated clients wait for ever. What can be compared: whether the queue
grows (it should), and the pace of decoding at up to 128 running sequences, (e2e - ttft) per token.
"""

AFTER_OVERLOAD = """\
In all four the simulated queue grows as well. The pace is right for the model with one KV head per query head (where
memory binds and requests are preempted). For the three with grouped heads, which hold 230,000 tokens of context, real
decoding was slower than predicted (though CodeLlama's pace is in the fit), for Mixtral by far: treat a roofline plan
that holds so much context as optimistic, or measure.
"""

ELSEWHERE = """## Published runs elsewhere

The error above is one of dense models on one or two H100 under vLLM. Everywhere else an answer says that its engine
was not checked there, and what the roofline predicts of runs that others published: {points} runs in bf16 and fp8,
`calibration/public/points.yaml`. None of them was fitted. The error is predicted / measured time - 1, so below zero the
engine is taken too fast, and a fleet sized by it is too small. Half of the runs lie between the quartiles. An answer
shows the row of its own GPU, model, size and engine where there is one, else one for each way in which it leaves what
was checked. This table and `calibration/public_errors.json` are written by `python calibration/public_points.py`.
"""

FACTORS_INTRO = """## Factors

Bounded and held towards priors that come from elsewhere. *Narrowed to* is the posterior's standard deviation over the
prior's: 1 means that these measurements say nothing about the factor.
"""

HOW = """## How

Measurements: `calibration/vllm_h100_published.yaml`, from https://github.com/inference-sim/training at commit
ed5c1d2 (vLLM 0.15.1, H100 SXM, fp16, client inference-perf, constant request rate, fixed output lengths). Llama-2-7b
(TP 1) and CodeLlama-34b (TP 2) are fitted. Mixtral-8x7B (TP 2) and Llama-2-70b (TP 4) of the same collection are held
out: they never entered a fit. Of the four overloaded runs one figure did, CodeLlama's pace of decoding. None of this is
blind: whoever wrote the model's form and its priors had seen these latencies, the held-out ones too.

Every stage runs through `fleetsim.engine.run_requests`: arrivals at the offered rate for the stage's full length,
`max_num_seqs` 128, `max_num_batched_tokens` 2048, KV capacity from memory. The factors minimise the squared logarithm
of predicted over measured mean end-to-end latency (sigma 3 %) and time to first token (sigma 50 %: it hardly counts),
the pace of decoding in CodeLlama's overloaded run (sigma 5 %; hardly anyone gave up there, and it alone tells how
grouped heads read 230,000 tokens of cache), plus each factor's distance from its prior. *Left out*: fitted again
without any run of that model, then predicted.

Assumptions, the same for every run:

- Prefix reuse: the generator cycles through 100 prompts (its resolved configuration), so after the first round only the
  last, partial block of a prompt is computed. The cache starts cold and keeps prefixes as vLLM does.
- Prompt length is the measured mean, output length the configured one (`ignore_eos` was on).
- Async scheduling, on by default in this vLLM, lets an arriving request miss the iteration that is already planned: one
  iteration is added to both latencies here. The simulator itself does not model it.
- `gpu_memory_utilization` {utilization} (that version's default; the files do not record it).
- Weight reads and matrix products overlap with a smooth knee, (weights^3 + products^3)^(1/3).
- Experts are picked evenly and independently; an iteration reads the weights of every expert that it touches.
- Attention reads an ungrouped KV cache at the same share of bandwidth as weights; no term for cascade attention.
- fp16 and bf16 run alike. Sliding windows are taken as full attention.

What this does not show: other GPUs (the factors are taken as shares of their data sheets) and fp8, of which
[published runs](#published-runs-elsewhere) tell; prompts that miss the prefix cache (compute efficiency rests largely
on its prior), more than {max_running} running sequences, contexts beyond 2,600 tokens, and tensor parallelism without
NVLink. The time to first token is predicted too low,
by {ttft_low} to {ttft_high} % (median {ttft_median} %; the largest is a run in which a few
requests waited most of a second): the client's own path and about half an iteration are not modelled. The median gap is
{ttft_ms} ms, less than half a percent of the end-to-end latency.
"""


def error(predicted: float, measured: float) -> float:
    return predicted / measured - 1


def e2e_errors(pairs: Pairs) -> list[float]:
    """Relative errors of the mean end-to-end latency over the stages that were not overloaded."""
    return [error(p.e2e_s, s.e2e_s) for s, p in pairs if not s.overloaded]


def left_out_error(document: dict[str, Any]) -> dict[str, Any]:
    """The error that a plan shows beside a roofline: of each fitted model, predicted without it in the fit."""
    sizes = [
        abs(e)
        for model, factors in document["leave_one_model_out"].items()
        for e in e2e_errors(evaluate(RooflineFactors(**factors), "fit", model))
    ]
    what = "mean latency of models left out of the fit, vLLM on H100, docs/accuracy.md"
    return {"median": round(median(sizes), 4), "worst": round(max(sizes), 4), "what": what}


def _table(head: Sequence[str], rows: Iterable[Sequence[str]]) -> str:
    align = ["---", *("---:" for _ in head[1:])]
    return "\n".join("| " + " | ".join(row) + " |" for row in (head, align, *rows)) + "\n"


def _percent(x: float) -> str:
    return f"{100 * x:+.1f} %"


def _coarse(x: float) -> str:
    """Two digits: a queue that grows for 20 minutes magnifies the last bit of every sum before it."""
    return f"{float(f'{x:.2g}'):,.0f}"


def _size(values: Sequence[float]) -> str:
    sizes = [abs(v) for v in values]
    return f"median {100 * median(sizes):.1f} %, largest {100 * max(sizes):.1f} %"


def _short(model: str) -> str:
    return model.rpartition("/")[2]


def _latency_rows(pairs: Pairs, left_out: Pairs | None) -> Iterable[list[str]]:
    for index, (stage, predicted) in enumerate(pairs):
        if stage.overloaded:
            continue
        row = [
            stage.name,
            f"{stage.e2e_s:.3f}",
            f"{predicted.e2e_s:.3f}",
            _percent(error(predicted.e2e_s, stage.e2e_s)),
        ]
        if left_out is not None:
            row.append(_percent(error(left_out[index][1].e2e_s, stage.e2e_s)))
        row += [f"{1e3 * stage.ttft_s:.1f}", f"{1e3 * predicted.ttft_s:.1f}"]
        yield [*row, _percent(error(predicted.ttft_s, stage.ttft_s))]


def _overload_rows(pairs: Pairs) -> Iterable[list[str]]:
    for stage, predicted in pairs:
        if not stage.overloaded:
            continue
        measured_s, predicted_s = stage.decode_s, predicted.decode_s(stage)
        yield [
            stage.name,
            f"{100 * stage.failed / (stage.duration_s * stage.offered_req_s):.1f} %",
            f"{_coarse(predicted.ttft_s)} s",
            f"{1e3 * measured_s:.1f}",
            f"{1e3 * predicted_s:.1f}",
            _percent(error(predicted_s, measured_s)),
            f"{predicted.kv_tokens:,}",
            _coarse(predicted.preemptions),
        ]


def _factor_rows(document: dict[str, Any]) -> Iterable[list[str]]:
    for name in NAMES:
        prior, unit = PRIORS[name], 1e6 if name.endswith("_s") else 1
        values = [document["factors"][name], *(f[name] for f in document["leave_one_model_out"].values())]
        shown = [
            f"{float(f'{v * unit:.3g}'):g}" + (" us" if unit > 1 else "")
            for v in (*values, prior.value, prior.low, prior.high)
        ]
        narrowed = document["posterior_over_prior_sigma"][name]
        fit, *left, at, low, high = shown
        yield [f"`{name}`", fit, *left, f"{at} ({low} to {high})", f"{narrowed:.2f}", prior.source]


def _public_rows() -> Iterable[list[str]]:
    for e in public_errors():
        quartiles = f"{_percent(e.low)} to {_percent(e.high)}"
        yield [e.domain.text, str(e.points), _percent(e.median), quartiles, ", ".join(e.sources)]


def render(document: dict[str, Any]) -> str:
    """The page as text. `document` is roofline_factors.json; every number is simulated anew from its factors."""
    factors = RooflineFactors(**document["factors"])
    fitted, held_out = evaluate(factors, "fit"), evaluate(factors, "held out")
    left = {m: RooflineFactors(**f) for m, f in document["leave_one_model_out"].items()}
    by_experiment = {
        (stage.experiment, stage.offered_req_s): pair
        for model in fitted_models()
        for pair in evaluate(left[model], "fit", model)
        for stage in (pair[0],)
    }
    left_out = [by_experiment[(stage.experiment, stage.offered_req_s)] for stage, _ in fitted]
    first_tokens = [pair for pair in (*fitted, *held_out) if not pair[0].overloaded]
    ttft_low = sorted(-100 * error(p.ttft_s, s.ttft_s) for s, p in first_tokens)
    summary = _table(
        ("mean end-to-end latency", "stages", "error", "target"),
        [
            ["fitted models", str(len(e2e_errors(fitted))), _size(e2e_errors(fitted)), f"median {TARGET_FIT:.0%}"],
            [
                "fitted models, each left out of its fit",
                str(len(e2e_errors(left_out))),
                _size(e2e_errors(left_out)),
                f"median {TARGET_LEFT_OUT:.0%}",
            ],
            *(
                [f"- without {_short(m)}", str(len(errors)), _size(errors), ""]
                for m in fitted_models()
                for errors in [e2e_errors([pair for pair in left_out if pair[0].model == m])]
            ),
            ["models never fitted", str(len(e2e_errors(held_out))), _size(e2e_errors(held_out)), ""],
        ],
    )
    latency = ("mean e2e s", "predicted", "error")
    first_token = ("mean ttft ms", "predicted", "error")
    parts = [
        INTRO,
        summary,
        "## Fitted models\n",
        _table(("stage", *latency, "error, left out", *first_token), _latency_rows(fitted, left_out)),
        "## Models that were never fitted\n",
        _table(("stage", *latency, *first_token), _latency_rows(held_out, None)),
        OVERLOAD.format(give_up_s=GIVE_UP_S),
        _table(
            (
                "stage", "clients that gave up", "predicted mean ttft", "ms per token", "predicted", "error",
                "predicted KV tokens", "predicted preemptions",
            ),
            _overload_rows([*fitted, *held_out]),
        ),
        AFTER_OVERLOAD,
        ELSEWHERE.format(points=json.loads(ERRORS.read_text(encoding="utf-8"))["runs"]),
        _table(("runs of", "number", "median error", "quartiles", "published by"), _public_rows()),
        FACTORS_INTRO,
        _table(
            ("factor", "fitted", *(f"without {_short(m)}" for m in left), "prior (bounds)", "narrowed to", "source"),
            _factor_rows(document),
        ),
        HOW.format(
            utilization=GPU_MEMORY_UTILIZATION,
            max_running=128,
            ttft_low=f"{ttft_low[0]:.0f}",
            ttft_high=f"{ttft_low[-1]:.0f}",
            ttft_median=f"{median(ttft_low):.0f}",
            ttft_ms=f"{median(1e3 * (s.ttft_s - p.ttft_s) for s, p in first_tokens):.0f}",
        ),
    ]  # fmt: skip
    return "\n".join(parts)
