"""NVIDIA's measured operator tables (ai-dynamo/aiconfigurator), read through its own estimator core.

`aiconfigurator-core` 0.12.0 carries tables of single kernels (GEMM, attention, MoE, collectives) measured per GPU type
and engine version, and sums them up to iterations of a model: `EngineHandle.predict_decode_latency(batch, context)` and
`predict_prefill_latency(prompts, tokens, cached)`, in milliseconds (aiconfigurator_core/sdk/engine.py). They know
kernels, not the engine's host: scheduling, input preparation, sampling and gaps between kernels are not in them, so
iterations come out too short where they are short. It is called only where it is installed.
"""

from __future__ import annotations

import importlib
import json
import logging
import os
import tempfile
from collections.abc import Callable, Iterator
from contextlib import contextmanager, suppress
from importlib.metadata import PackageNotFoundError, version
from pathlib import Path
from typing import Any

from fleetsim.calibrate.ask import Calibrate
from fleetsim.calibrate.sources.source import Duration, Facts, Source, config_of, iteration, observations_from
from fleetsim.engine.gpus import gpu_spec
from fleetsim.engine.model.mixers import Attention
from fleetsim.engine.model.mlps import Mixture
from fleetsim.engine.model.names import model_shape
from fleetsim.engine.model.shape import ModelShape
from fleetsim.errors import InputError, OutsideError, Problem
from fleetsim.faces import flag
from fleetsim.records import replace

PACKAGE = "aiconfigurator_core"
INSTALL = "pip install 'fleetsim[aiconfigurator]' (Linux on x86-64, Python 3.11 to 3.13)"
BATCHES = (1, 2, 4, 8, 16, 32, 64, 96, 128, 192, 256, 384, 512, 768, 1024)
CONTEXTS = (128, 512, 2048, 8192, 32768)
PROMPTS = (
    *((1, p) for p in (64, 128, 256, 512, 1024, 2048, 4096, 8192, 16384)),
    *((8, 128), (64, 128), (4, 512), (16, 512), (4, 2048)),
)
CHUNKS = ((512, 4096), (2048, 8192), (2048, 16384))  # tokens after cached ones
QUANTIZED = {"fp8": {"gemm_quant_mode": "fp8", "moe_quant_mode": "fp8"}, "auto": {}}
SEQS, TOKENS, BLOCK_SIZE, UTILIZATION = 1024, 8192, 16, 0.92
ASSUMED = (
    "iteration times are sums of measured kernels, without the engine's host: short iterations are longer in truth",
    "kv_blocks as aiconfigurator estimates memory",
)


def read_operators(path: str, given: Calibrate) -> Source:
    """Iterations of a model from the operator tables. path: `aiconfigurator:SYSTEM[:VERSION]`, as h200_sxm:0.24.0.

    Without SYSTEM it follows from --gpu; VERSION is one of vLLM whose tables there are, else the current ones. Raises
    InputError for an unknown system or a missing --model, OutsideError where the package is missing or cannot do it.
    """
    parts = path.split(":")
    system, asked = [*parts, "", ""][1:3]
    if given.model is None:
        rule = "operator tables need the model's shape"
        raise InputError([Problem(flag("model"), None, rule, "add --model, a built-in name or a config.json")])
    given = replace(given, model=config_of(given.model))
    assert given.model is not None
    shape = model_shape(given.model)
    with _quiet():
        core = _core()
        if not system and given.gpu is None:
            rule, remedy = "operator tables are measured per system", "write aiconfigurator:h200_sxm, or add --gpu"
            raise InputError([Problem(flag("from"), "aiconfigurator", rule, remedy)])
        if not system:  # H200-SXM as h200_sxm
            system = gpu_spec(given.gpu or "").name.lower().replace("-", "_").removesuffix("_80gb")
        tables = Path(os.path.dirname(core.__file__)) / "systems"
        known = sorted(p.stem for p in tables.glob("*.yaml") if (tables / "data" / p.stem).is_dir())
        if system not in known:
            rule = f"must be one of {', '.join(known)}"
            raise InputError([Problem(flag("from"), f"aiconfigurator:{system}", rule, "name a system")])
        tp = given.tp or 1
        with tempfile.TemporaryDirectory() as folder:
            name = _config_folder(given.model, shape, Path(folder))
            return _read(core, path, name, shape, system, asked or None, tp, given)


def _read(
    core: Any, path: str, model: str, shape: ModelShape, system: str, asked: str | None, tp: int, given: Calibrate
) -> Source:
    quantized = QUANTIZED.get(given.dtype or shape.dtype, {})
    try:
        slots = core.sdk.perf_database.get_version_slots(system, "vllm")
        if not slots:
            known = "this system has no tables of vLLM"
            raise InputError([Problem(flag("from"), path, known, "take another system, or measure")])
        tables = core.sdk.perf_database.resolve_query_version(system, "vllm", asked or "current")
        parallel = {"tp_size": tp, **({"moe_tp_size": tp, "moe_ep_size": 1} if shape.mixture else {})}
        engine = core.sdk.engine.EngineHandle.compile(
            model, system, "vllm", backend_version=tables, **parallel, **quantized
        )
        blocks = core.sdk.memory.estimate_num_gpu_blocks(
            model,
            system,
            "vllm",
            tables,
            scheduler_block_size=given.block_size or BLOCK_SIZE,
            max_num_tokens=given.max_num_batched_tokens or TOKENS,
            max_batch_size=given.max_num_seqs or SEQS,
            memory_fraction_kind="of_total",
            memory_fraction_value=given.gpu_memory_utilization or UTILIZATION,
            **parallel,
            **quantized,
        )
    except InputError:
        raise
    except Exception as error:  # noqa: BLE001 - whatever its layers raise, it is theirs to say
        said = f"{type(error).__name__}: {str(error)[:300]}"
        raise OutsideError(f"aiconfigurator cannot do {shape.name} x{tp} on {system!r} {asked or ''}: {said}") from None
    if blocks < 1:
        raise InputError(
            [Problem(flag("model"), shape.name, f"leaves no memory for KV cache on {system} x{tp}", "raise --tp")]
        )
    measured = _iterations(engine, shape, blocks * (given.block_size or BLOCK_SIZE))
    observations, runs = observations_from(measured, path)
    facts: Facts = {"model": given.model or shape.name, "tp": tp, "engine": "vllm"}
    facts |= {"engine_version": str(tables), "kv_blocks": blocks}
    with suppress(InputError):  # of a GPU that fleetsim does not know
        facts["gpu"] = gpu_spec(system).name
    release = "of unknown release"
    with suppress(PackageNotFoundError):
        release = version("aiconfigurator-core")
    return Source(
        path, f"aiconfigurator {release}, {system}", observations, runs, single=True, facts=facts, assumed=ASSUMED
    )


def _iterations(engine: Any, shape: ModelShape, kv_tokens: int) -> list[Duration]:
    """Decodes over batch and context, prompts alone and together, chunks after cached tokens, each a run."""
    longest = shape.max_position or CONTEXTS[-1]
    found: list[Duration] = []
    refused: list[str] = []

    def add(call: Callable[..., float], arguments: tuple[int, ...], *held: float) -> None:
        try:
            seconds = float(call(*arguments)) * 1e-3
        except (ValueError, RuntimeError) as error:  # outside its tables
            refused.append(str(error)[:200])
            return
        if seconds > 0.0:
            found.append(Duration(seconds, iteration(*held), run=len(found)))

    for c in (c for c in CONTEXTS if c < longest or c == CONTEXTS[0]):
        for b in (b for b in BATCHES if b * c <= kv_tokens):
            add(engine.predict_decode_latency, (b, c), b, b * c)
    for n, p in (q for q in PROMPTS if q[1] <= longest and q[0] * q[1] <= kv_tokens):
        add(engine.predict_prefill_latency, (n, p), 0, 0, n * p, n * p * (p + 1) / 2)
    for q, c in (k for k in CHUNKS if sum(k) <= longest):
        add(engine.predict_prefill_latency, (1, c + q, c), 0, 0, q, q * c + q * (q + 1) / 2)
    if not found:
        raise OutsideError(
            f"aiconfigurator has no iteration time of {shape.name}: {refused[0] if refused else 'all 0'}"
        )
    return found


def _core() -> Any:
    """The package. Raises OutsideError with the command that installs it."""
    try:
        core = importlib.import_module(PACKAGE)
        for name in ("engine", "memory", "perf_database"):
            importlib.import_module(f"{PACKAGE}.sdk.{name}")
    except ImportError as error:
        raise OutsideError(f"aiconfigurator is not installed ({error}): {INSTALL}") from None
    return core


def _config_folder(model: str, shape: ModelShape, folder: Path) -> str:
    """A folder with the model's config.json: the user's own, else one written from the built-in shape."""
    path = Path(model)
    if path.name == "config.json" and path.is_file():
        return str(path.parent)
    text = path.read_text(encoding="utf-8") if path.is_file() else json.dumps(_config_of(shape))
    (folder / "config.json").write_text(text, encoding="utf-8")
    return str(folder)


def _config_of(shape: ModelShape) -> dict[str, Any]:
    """The fields of a Hugging Face config that the tables are looked up by.

    Raises InputError for attention that only the model's own config.json describes to aiconfigurator.
    """
    block = shape.blocks[0]
    attention, mlp = block.mixer, block.mlp
    mixture = mlp if isinstance(mlp, Mixture) else None
    plain = isinstance(attention, Attention) and not (attention.gate or attention.indexer or attention.window)
    if len(shape.blocks) > 1 or not plain or (mixture and mixture.shared_width):
        rule = "aiconfigurator knows its layers by the model's own config.json only"
        raise InputError([Problem(flag("model"), shape.name, rule, "download that file and give its path")])
    assert isinstance(attention, Attention)
    family = "Qwen3" if attention.qk_norm else "Qwen2" if attention.bias else "Llama"
    mixtral = mixture and not attention.qk_norm and not mixture.shared_width
    family = "Mixtral" if mixtral else f"{family}Moe" if mixture else family
    config: dict[str, Any] = {
        "architectures": [f"{family}ForCausalLM"],
        "model_type": {"Qwen2Moe": "qwen2_moe", "Qwen3Moe": "qwen3_moe"}.get(family, family.lower()),
        "hidden_size": shape.hidden,
        "intermediate_size": mlp.peak_width if mlp else 0,
        "num_hidden_layers": shape.layers,
        "num_attention_heads": attention.heads,
        "num_key_value_heads": attention.kv_heads,
        "head_dim": attention.head_dim,
        "vocab_size": shape.vocab,
        "tie_word_embeddings": shape.tied_embeddings,
        "max_position_embeddings": shape.max_position or CONTEXTS[-1],
        "torch_dtype": "float16" if shape.dtype == "float16" else "bfloat16",
    }
    if mixture:
        config |= {
            ("num_local_experts" if mixtral else "num_experts"): mixture.experts,
            "num_experts_per_tok": mixture.per_token,
            "moe_intermediate_size": mixture.width,
        }
    return config


@contextmanager
def _quiet() -> Iterator[None]:
    """Keeps the package's notes on its tables off the terminal; its errors are raised, not logged."""
    before = logging.root.manager.disable
    logging.disable(logging.ERROR)
    try:
        yield
    finally:
        logging.disable(before)
