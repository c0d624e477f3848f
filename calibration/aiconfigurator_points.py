"""The published runs as aiconfigurator predicts them: calibration/aiconfigurator_points.json, beside ours on the page.

    python calibration/aiconfigurator_points.py      where aiconfigurator-core 0.12.0 is installed (one minute)

Its own aggregate mode (`run_agg` of the engine's backend) is asked with what the run says: system, engine with the
newest tables of that system, types, TP, attention ranks with the experts on all GPUs, mean lengths, the clients of one
rank as batch size, and one prompt at a time (it is a point worse with the engine's own limit). Where it has no tables
of a type, the next one that it has counts: attention in 16 bits, and what the GPU makes of 4-bit experts. Runs of
clients only. Both see the same runs, and TTFT + (mean output - 1) x TPOT over what was measured counts.
"""

from __future__ import annotations

import json
import logging
import sys
import warnings
from collections import Counter
from functools import cache
from importlib.metadata import version
from itertools import product
from pathlib import Path
from typing import Any

HERE = Path(__file__).resolve().parent
sys.path.insert(0, str(HERE))
from points import Point, read_points  # noqa: E402

FOUND = HERE / "aiconfigurator_points.json"
SYSTEMS = {"A100": "a100_sxm", "H100": "h100_sxm", "B200": "b200_sxm"}
BACKENDS = {"vllm": "vllm", "sglang": "sglang", "tensorrt-llm": "trtllm"}
# Makers of 8-bit checkpoints that scale by blocks; the others scale by tensor.
BLOCKS = ("deepseek-ai/", "Qwen/", "zai-org/", "MiniMaxAI/")
# What its tables call a precision: of matrices, of experts.
TYPES = {
    "bfloat16": ("bfloat16", "bfloat16"), "fp8": ("fp8", "fp8"), "block": ("fp8_block", "fp8_block"),
    "nvfp4": ("nvfp4", "nvfp4"), "int4": ("bfloat16", "int4_wo"), "mxfp4": ("bfloat16", "w4a16_mxfp4"),
}  # fmt: skip
FOUR_BITS = ("w4a16_mxfp4", "w4a8_mxfp4_mxfp8", "w4a8_mxfp4_mxfp8_trtllm", "w4a16_mxfp4_cutlass")
NAMES = {
    "meta-llama/Llama-3.1-70B": "meta-llama/Meta-Llama-3.1-70B",
    "meta-llama/Llama-3.1-405B": "meta-llama/Meta-Llama-3.1-405B",
    "Qwen/Qwen3-235B-A22B-Instruct-2507": "Qwen/Qwen3-235B-A22B",
    "zai-org/GLM-5-FP8": "zai-org/GLM-5",
}


class CannotError(Exception):
    """aiconfigurator has no answer for a run; the text says why."""


def predict(p: Point) -> float:
    """Predicted over measured time. Raises CannotError."""
    from aiconfigurator_core.sdk.config import RuntimeConfig

    if p.measure != "response":
        raise CannotError("no run of clients")
    if p.gpu not in SYSTEMS:
        raise CannotError("no tables of the GPU")
    clients = max(1, -(-p.clients // p.dp))
    share = (1 + p.shortest) / 2
    prompt, output = round(share * p.prompt), round(share * p.output)
    why = ""
    for attention, experts in product((None, "bfloat16"), _expert_types(p)):
        try:
            database = _database(SYSTEMS[p.gpu], BACKENDS[p.engine])
            runtime = RuntimeConfig(batch_size=clients, isl=prompt, osl=output)
            model = _model(p, attention, experts)
            summary = _backend(BACKENDS[p.engine]).run_agg(model, database, runtime, ctx_tokens=prompt)
            row = summary.get_summary_df().iloc[0]
            first, later = float(row["ttft"]), float(row["tpot"])
            return (first + (output - 1) * later) / (p.values[0] + (output - 1) * p.values[1])
        except Exception as error:  # noqa: BLE001 - whatever its layers raise, it is theirs to say
            why = why or type(error).__name__
    raise CannotError(why)


def _expert_types(p: Point) -> tuple[str, ...]:
    if "gpt-oss" in p.model:
        return FOUR_BITS
    return (TYPES[_kind(p)][1],)


def _kind(p: Point) -> str:
    return "block" if p.dtype == "fp8" and p.model.startswith(BLOCKS) else p.dtype


@cache
def _database(system: str, backend: str) -> Any:
    from aiconfigurator_core.sdk import perf_database

    tables = perf_database.resolve_query_version(system, backend, "current")
    return perf_database.get_database(system, backend, tables, database_mode="HYBRID")


def _backend(name: str) -> Any:
    """A new one for each question: what one has answered it keeps by lengths and batch, whatever the model."""
    from aiconfigurator_core.sdk.backends.factory import get_backend

    return get_backend(name)


def _model(p: Point, attention: str | None, experts: str) -> Any:
    from aiconfigurator_core.sdk.config_builders import build_model_config
    from aiconfigurator_core.sdk.models import check_is_moe, get_model

    # gpt-oss keeps all but the experts in 16 bits, whatever a label says.
    gemm = "bfloat16" if "gpt-oss" in p.model else TYPES[_kind(p)][0]
    name = NAMES.get(p.model, p.model)
    mixture = check_is_moe(name)
    gpus = p.tp * p.dp
    config = build_model_config(
        p.tp, 1, p.dp,
        1 if p.dp > 1 or not mixture else gpus, gpus if p.dp > 1 and mixture else 1,
        gemm_quant_mode=gemm,
        fmha_quant_mode=attention,
        moe_quant_mode=experts if mixture else None,
        kvcache_quant_mode="fp8" if p.kv_dtype == "fp8" else "bfloat16",
        comm_quant_mode="half",
    )  # fmt: skip
    return get_model(name, config, BACKENDS[p.engine])


def main() -> int:
    warnings.simplefilter("ignore")
    logging.disable(logging.CRITICAL)
    points = read_points()
    found, cannot = {}, Counter[str]()
    for point in points:
        try:
            found[point.id] = round(predict(point), 4)
        except CannotError as why:
            cannot[str(why)] += 1
    about = {
        "schema": 1,
        "what": f"predicted over measured time by aiconfigurator-core {version('aiconfigurator-core')}",
        "cannot": dict(sorted(cannot.items())),
        "runs": found,
    }
    FOUND.write_text(json.dumps(about, indent=0) + "\n", encoding="utf-8")
    print(f"{len(found)} runs predicted; {dict(cannot)}")
    return 0


if __name__ == "__main__":
    sys.exit(main())
