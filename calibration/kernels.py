"""Curves of single kernels, fitted to measured operator tables: where the fit of whole engines starts.

    python calibration/kernels.py        fit every table, write kernel_curves.json (a minute)

The tables are those that NVIDIA measured (ai-dynamo/aiconfigurator, in PyPI's aiconfigurator-core 0.12.0), of A100,
H100, H200 and B200; `pip install -e '.[aiconfigurator]'` has them. They are not part of fleetsim, and nothing but this
script reads them. Of every engine the newest release counts. vLLM's table of block-wise fp8 products is left out: it is
3 to 25 times slower than anything measured end to end.

The tables of all engines are one. Curves of each engine's own are nearer to its kernels (experts 9 to 20 % instead of
13 to 23), and no nearer to whole engines whose model was left out: 9.3 % with one curve for all; with own curves of
experts that move together 9.4, that move apart 10.4 (10.1 with one, on the tables before), of every operator 11.3.
"""

from __future__ import annotations

import json
import sys
from collections.abc import Callable, Iterator, Mapping
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import numpy as np
import pandas as pd
from numpy.typing import NDArray
from scipy.optimize import least_squares

from fleetsim.engine.gpus import GpuSpec, gpu_spec
from fleetsim.engine.operators import device as operators
from fleetsim.engine.operators.attention import cached_token_s
from fleetsim.engine.operators.curves import AllReduceCurve, DecodeCurve, ExpertCurve, GemmCurve, GroupedCurve

HERE = Path(__file__).resolve().parent
CURVES = HERE / "kernel_curves.json"
SYSTEMS = {"a100_sxm": "A100", "h100_sxm": "H100", "h200_sxm": "H200", "b200_sxm": "B200"}
ROWS = 1500
LEAST = 25
Columns = dict[str, NDArray[np.float64]]

# How the tables call a precision; weight bytes; the arithmetic it is multiplied in.
GEMM_TYPES = {"bfloat16": "bfloat16", "fp8": "fp8", "fp8_block": "fp8", "nvfp4": "fp4"}
# Without fp8 of one scale a matrix: few mixtures have it, and vLLM's kernel for it reads at a fifth of the bandwidth.
EXPERT_TYPES = {
    "bfloat16": "bfloat16", "fp8_block": "fp8", "nvfp4": "fp4", "w4a8_mxfp4_mxfp8": "fp4",
    "w4a16_mxfp4": "weights", "int4_wo": "weights",
}  # fmt: skip
WEIGHT_BYTES = {"bfloat16": 2.0, "fp8": 1.0, "fp8_block": 1.0, "nvfp4": 0.5625, "w4a8_mxfp4_mxfp8": 0.53125,
                "w4a16_mxfp4": 0.53125, "int4_wo": 0.515625}  # fmt: skip
ACTIVATION_BYTES = {"bfloat16": 2.0, "fp8": 1.0, "fp4": 0.5625, "weights": 2.0}


@dataclass(frozen=True)
class Form:
    """One kernel's seconds as a function of its parameters, with where the fit starts and its bounds."""

    names: tuple[str, ...]
    start: tuple[float, ...]
    low: tuple[float, ...]
    high: tuple[float, ...]
    seconds: Callable[[GpuSpec, Columns, Mapping[str, float]], NDArray[np.float64]]


def gemm_s(gpu: GpuSpec, x: Columns, v: Mapping[str, float]) -> NDArray[np.float64]:
    """The operators' own formula, on a table's columns."""
    return operators.product_s(gpu, GemmCurve(**v), x["peak"], x["m"], x["k"], x["n"], (x["weight"], x["activation"]))


def experts_s(gpu: GpuSpec, x: Columns, v: Mapping[str, float]) -> NDArray[np.float64]:
    """Likewise; the tables' routers pick by a power law."""
    params = 3 * x["hidden"] * x["inter"]
    touched = x["experts"] * (1 - (1 - x["top"] / (x["experts"] * x["ep"])) ** x["tokens"])
    rows, expert = x["tokens"] * x["top"] / x["ep"], (params, x["hidden"] + x["inter"])
    return operators.experts_s(gpu, ExpertCurve(**v), x["peak"], touched * params * x["weight"], rows, expert)


def grouped_s(gpu: GpuSpec, x: Columns, v: Mapping[str, float]) -> NDArray[np.float64]:
    """The operators' own formula, and passes over all tokens, which only these tables' programs make."""
    curve = GroupedCurve(v["start_s"], v["bandwidth"], v["compute"])
    params, rows = 3 * x["hidden"] * x["inter"], x["tokens"] * x["top"] / x["ep"]
    touched = np.minimum(x["experts"], x["tokens"] * x["top"]) / x["ep"]
    expert = params, x["hidden"] + x["inter"]
    own_s = operators.experts_s(gpu, curve, x["peak"], touched * params * x["weight"], rows, expert)
    return np.asarray(own_s + v["passes"] * x["tokens"] * x["hidden"] * 2 / gpu.memory_bytes_s)


def decode_s(gpu: GpuSpec, x: Columns, v: Mapping[str, float]) -> NDArray[np.float64]:
    """Likewise, but that a short context costs what `shortest` tokens do."""
    curve = DecodeCurve(v["start_s"], v["bandwidth"], v["bandwidth"], v.get("compute", 1.0))
    read_s, multiply_s = cached_token_s(gpu, curve, x["bytes"], x["flop"])
    tokens = np.maximum(x["context"], v["shortest"])
    return np.asarray(curve.start_s + x["batch"] * np.maximum(tokens * read_s, x["context"] * multiply_s))


def prefill_s(gpu: GpuSpec, x: Columns, v: Mapping[str, float]) -> NDArray[np.float64]:
    """Half of all pairs, at the share of the peak that operators take; start and bandwidth are a table's own."""
    pairs_s = x["batch"] * x["tokens"] ** 2 / 2 * x["flop"] / (gpu.bf16_flop_s * v["compute"])
    return np.asarray(
        v["start_s"] + pairs_s + x["batch"] * x["tokens"] * x["bytes"] / (gpu.memory_bytes_s * v["bandwidth"])
    )


def allreduce_s(gpu: GpuSpec, x: Columns, v: Mapping[str, float]) -> NDArray[np.float64]:
    """The operators' own formula, of GPUs of one server."""
    curve = AllReduceCurve(**v)
    start_s = operators.links_start_s(gpu, curve, x["gpus"])
    return np.asarray(start_s + operators.through_links_s(gpu, curve, x["gpus"], x["message"]))


_GEMM = Form(("start_s", "bandwidth", "compute", "wave", "knee"), (4e-6, 0.8, 0.7, 0.3, 2.0),
             (5e-7, 0.1, 0.05, 0.0, 1.0), (5e-5, 1.2, 1.2, 3.0, 8.0), gemm_s)  # fmt: skip
_EXPERTS = Form(("start_s", "bandwidth", "compute"), (3e-5, 0.8, 0.3), (1e-6, 0.05, 0.02), (3e-4, 1.2, 1.2), experts_s)
_GROUPED = Form(("start_s", "bandwidth", "compute", "passes"), (5e-5, 0.8, 0.5, 1.0), (1e-6, 0.05, 0.02, 0.0),
                (6e-4, 1.2, 0.7, 9.0), grouped_s)  # fmt: skip
_DECODE = Form(
    ("start_s", "bandwidth", "shortest"), (1e-5, 0.8, 150.0), (1e-6, 0.05, 1.0), (5e-5, 1.2, 1000.0), decode_s
)
_LATENT = Form(("start_s", "bandwidth", "compute", "shortest"), (1e-5, 0.8, 0.5, 150.0), (1e-6, 0.05, 0.02, 1.0),
               (5e-5, 1.2, 3.0, 1000.0), decode_s)  # fmt: skip
_PREFILL = Form(("start_s", "compute", "bandwidth"), (1e-5, 0.5, 0.5), (1e-6, 0.02, 0.02), (5e-5, 1.2, 3.0), prefill_s)
_ALLREDUCE = Form(
    ("start_s", "per_doubling", "link"), (6e-6, 0.2, 0.6), (1e-6, 0.0, 0.05), (5e-5, 2.0, 1.2), allreduce_s
)


def tables(root: Path, operator: str, table: str) -> Iterator[tuple[GpuSpec, str, pd.DataFrame]]:
    """GPU, engine and rows of the newest release of each engine that measured this table."""
    for gpu, engine, releases in measured(root, operator, table):
        yield gpu, engine, pd.read_parquet(releases[-1])


def measured(root: Path, operator: str, table: str) -> Iterator[tuple[GpuSpec, str, list[Path]]]:
    """GPU, engine and this table of each of its releases, the newest last."""
    for system, gpu in SYSTEMS.items():
        for engine in ("vllm", "sglang", "trtllm"):
            found = sorted((root / system / operator / engine).glob(f"*/{table}.parquet"), key=_release)
            if found:
                yield gpu_spec(gpu), engine, found


def _release(path: Path) -> list[int]:
    digits = "".join(c if c.isdigit() else " " for c in path.parent.name)
    return [int(part) for part in digits.split()]


def gemms(root: Path) -> Iterator[tuple[str, str, GpuSpec, Columns]]:
    for gpu, engine, rows in tables(root, "gemm", "gemm_perf"):
        for name, kind in GEMM_TYPES.items():
            if engine == "vllm" and name == "fp8_block":
                continue
            x = rows[
                (rows.gemm_dtype == name) & (rows.m <= 16384) & rows.n.between(256, 65536) & rows.k.between(256, 32768)
            ]
            columns = _columns(x, {"m": "m", "n": "n", "k": "k"})
            yield "gemm", kind, gpu, _typed(columns, gpu, kind, name)


def experts(root: Path) -> Iterator[tuple[str, str, GpuSpec, Columns]]:
    """Of each type the newest release that has it counts (TensorRT-LLM's last one has two), and of several kernels for
    one case the fastest.

    Left out: experts of two matrices, which the formula does not know, activations that stand in for others, and
    SGLang's own kernel with weights in 4 bits, which holds them in 16 (Mxfp4MoEMethod of 0.5.14).
    """
    for gpu, _, releases in measured(root, "moe", "moe_perf"):
        rows = pd.concat(pd.read_parquet(path).assign(release=i) for i, path in enumerate(releases))
        kernels = rows.kernel_source.astype(str)
        wide = (rows.moe_dtype == "w4a16_mxfp4") & (kernels == "sglang_fused_moe_triton")
        rows = rows[~kernels.str.contains("nongated|situ_as_silu") & ~wide]
        rows = rows[rows.release == rows.groupby("moe_dtype").release.transform("max")]
        case = [name for name in rows if name not in {"latency", "kernel_source", "version", "release"}]
        rows = rows.sort_values("latency").drop_duplicates(case)
        for name, kind in EXPERT_TYPES.items():
            x = rows[
                (rows.moe_dtype == name) & (rows.distribution == "power_law_1.01") & (rows.num_tokens <= 16384)
                & (rows.moe_ep_size <= 16) & (rows.moe_tp_size <= 8) & (rows.hidden_size >= 2048)
                & (rows.num_experts >= 32)
            ]  # fmt: skip
            columns = _columns(x, {
                "tokens": "num_tokens", "hidden": "hidden_size", "inter": "inter_size", "top": "topk",
                "experts": "num_experts", "tp": "moe_tp_size", "ep": "moe_ep_size",
            })  # fmt: skip
            columns["experts"], columns["inter"] = columns["experts"] / columns["ep"], columns["inter"] / columns["tp"]
            yield "experts", kind, gpu, _typed(columns, gpu, kind, name)


def sent_experts(root: Path) -> Iterator[tuple[str, str, GpuSpec, Columns]]:
    """Experts in 8 bits behind DeepEP, evenly visited. Of many tokens those that visit each expert: with fewer the
    table packs them into as few experts as can be."""
    for kind, table in (("few", "wideep_generation_moe_perf"), ("many", "wideep_context_moe_perf")):
        for gpu, _, rows in tables(root, "moe", table):
            enough = (kind == "few") | (rows.num_tokens >= 1024 * rows.moe_ep_size)
            x = rows[(rows.distribution == "uniform") & enough]
            columns = _columns(x, {
                "tokens": "num_tokens", "hidden": "hidden_size", "inter": "inter_size", "top": "topk",
                "experts": "num_experts", "ep": "moe_ep_size",
            })  # fmt: skip
            yield "grouped", kind, gpu, _typed(columns, gpu, "fp8", "fp8_block")


def decodes(root: Path) -> Iterator[tuple[str, str, GpuSpec, Columns]]:
    for gpu, _, rows in tables(root, "attention", "generation_attention_perf"):
        for kind, size in (("bfloat16", 2), ("fp8", 1)):
            x = rows[(rows.kv_cache_dtype == kind) & (rows.head_dim == 128) & _whole(rows)]
            columns = _columns(x, {"batch": "batch_size", "context": "step", "heads": "num_key_value_heads"})
            columns["bytes"], columns["flop"] = 2 * 128 * size * columns["heads"], 0 * columns["heads"]
            yield "decode", kind, gpu, columns
    for gpu, _, rows in tables(root, "mla", "generation_mla_perf"):
        # On Hopper an 8-bit latent is unpacked first, at a tenth of the bandwidth, in one engine's kernel only.
        for kind, size in (("bfloat16", 2), ("fp8", 1)):
            x = rows[rows.kv_cache_dtype == kind]
            columns = _columns(x, {"batch": "batch_size", "context": "step", "heads": "num_heads"})
            columns["bytes"], columns["flop"] = 576 * size + 0 * columns["heads"], 2 * columns["heads"] * (576 + 512)
            yield "latent", kind, gpu, columns


def prefills(root: Path) -> Iterator[tuple[str, str, GpuSpec, Columns]]:
    for gpu, _, rows in tables(root, "attention", "context_attention_perf"):
        x = rows[
            (rows.attn_dtype == "bfloat16")
            & (rows.kv_cache_dtype == "bfloat16")
            & (rows.head_dim == 128)
            & _whole(rows)
        ]
        columns = _columns(
            x, {"batch": "batch_size", "tokens": "isl", "heads": "num_heads", "kv": "num_key_value_heads"}
        )
        columns["flop"] = 4 * 128 * columns["heads"]
        columns["bytes"] = 2 * 128 * 2 * (columns["heads"] + columns["kv"])
        yield "prefill", "bfloat16", gpu, columns


def allreduces(root: Path) -> Iterator[tuple[str, str, GpuSpec, Columns]]:
    for gpu, _, rows in tables(root, "comm", "custom_allreduce_perf"):
        x = rows[~rows.kernel_source.astype(str).str.contains("eager")]
        columns = _columns(x, {"gpus": "num_gpus", "message": "message_size"})
        columns["message"] *= 2  # the tables count 16-bit numbers
        yield "allreduce", "bfloat16", gpu, columns


FORMS = {"gemm": _GEMM, "experts": _EXPERTS, "grouped": _GROUPED, "decode": _DECODE, "latent": _LATENT,
         "prefill": _PREFILL, "allreduce": _ALLREDUCE}  # fmt: skip


def fit(form: Form, rows: list[tuple[GpuSpec, Columns]]) -> dict[str, float]:
    """The parameters of least robust squared logarithms over all rows."""

    def logs(v: NDArray[np.float64]) -> NDArray[np.float64]:
        values = dict(zip(form.names, v * scale, strict=True))
        return np.concatenate([np.log(form.seconds(gpu, x, values) / x["seconds"]) for gpu, x in rows])

    scale = np.array(form.start)
    bounds = np.array(form.low) / scale, np.array(form.high) / scale
    found = least_squares(logs, np.ones(len(scale)), bounds=bounds, loss="soft_l1", f_scale=0.1)
    return {name: float(f"{value:.4g}") for name, value in zip(form.names, found.x * scale, strict=True)}


def errors(form: Form, values: Mapping[str, float], rows: list[tuple[GpuSpec, Columns]]) -> tuple[float, float]:
    """Median and 90th percentile of |predicted / measured - 1|."""
    sizes = np.concatenate([np.abs(form.seconds(gpu, x, values) / x["seconds"] - 1) for gpu, x in rows])
    return round(float(np.median(sizes)), 3), round(float(np.quantile(sizes, 0.9)), 3)


def fit_all(root: Path) -> dict[str, Any]:
    """Family -> kernel -> type -> parameters, number of rows and errors."""
    grouped: dict[tuple[str, str, str], list[tuple[GpuSpec, Columns]]] = {}
    for source in (gemms, experts, sent_experts, decodes, prefills, allreduces):
        for kernel, kind, gpu, columns in source(root):
            if len(columns["seconds"]) >= LEAST:
                grouped.setdefault((gpu.family, kernel, kind), []).append((gpu, columns))
    document: dict[str, Any] = {}
    for (family, kernel, kind), rows in sorted(grouped.items()):
        values = fit(FORMS[kernel], rows)
        middle, far = errors(FORMS[kernel], values, rows)
        count = sum(len(x["seconds"]) for _, x in rows)
        entry = {**values, "rows": count, "median": middle, "p90": far, "gpus": sorted({g.name for g, _ in rows})}
        document.setdefault(family, {}).setdefault(kernel, {})[kind] = entry
        print(f"{family:10} {kernel:10} {kind:9} {count:6,} rows: median {middle:.1%}, 90 % within {far:.1%}")
    return document


def _columns(rows: pd.DataFrame, names: Mapping[str, str]) -> Columns:
    """A sample of a table's rows as columns, the same in every run; seconds beside them."""
    rows = rows.sample(min(ROWS, len(rows)), random_state=0)
    found = {short: rows[name].to_numpy(dtype=np.float64) for short, name in names.items()}
    return {**found, "seconds": rows["latency"].to_numpy(dtype=np.float64) * 1e-3}


def _typed(columns: Columns, gpu: GpuSpec, kind: str, name: str) -> Columns:
    every = np.ones_like(columns["seconds"])
    peak = gpu.flop_s("bfloat16" if kind == "weights" else kind)
    return {
        **columns,
        "peak": peak * every,
        "weight": WEIGHT_BYTES[name] * every,
        "activation": ACTIVATION_BYTES[kind] * every,
    }


def _whole(rows: pd.DataFrame) -> Any:
    """Rows of attention that sees everything."""
    return rows.window_size == 0 if "window_size" in rows else True


def main() -> int:
    import aiconfigurator_core

    root = Path(aiconfigurator_core.__file__).parent / "systems" / "data"
    about = "curves of single kernels, fitted by calibration/kernels.py to the tables of aiconfigurator-core 0.12.0"
    CURVES.write_text(
        json.dumps({"schema": 1, "what": about, "families": fit_all(root)}, indent=1) + "\n", encoding="utf-8"
    )
    return 0


if __name__ == "__main__":
    sys.exit(main())
