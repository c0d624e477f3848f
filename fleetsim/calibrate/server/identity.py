"""Which server this is and what bounds it: as it says itself, else as the user says, else assumed, and said so.

Only named fields are read from a server's own description of itself: SGLang's holds its API key.
"""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any

from msgspec import Struct, field

from fleetsim.calibrate.ask import Calibrate
from fleetsim.calibrate.loads import Limits
from fleetsim.calibrate.server.client import Client
from fleetsim.calibrate.server.metrics import Gauges
from fleetsim.errors import InputError, OutsideError, Problem
from fleetsim.faces import flag
from fleetsim.json_text import from_json

# vLLM's for a server on a GPU of less than 70 GiB (vllm/engine/arg_utils.py); its block on CUDA is 16.
DEFAULTS = {"max_num_seqs": 256, "max_num_batched_tokens": 2048, "block_size": 16, "max_model_len": 4096}


class Identity(Struct):
    """A server: engine (vllm, sglang, openai), its limits as far as known (None: unknown), what it says else.

    kv_blocks: usable ones. together: whether prompt chunks share an iteration with decodes. cache, flags, said: what
    else its `start` record holds, in the fields of these names (flags: engine_args) and beside them. assumed: what
    nobody said, in words.
    """

    engine: str
    model: str
    max_num_seqs: int | None = None
    max_num_batched_tokens: int | None = None
    kv_blocks: int | None = None
    block_size: int | None = None
    max_model_len: int | None = None
    prefix_caching: bool | None = None
    together: bool = True
    tp: int | None = None
    dtype: str = ""
    cache: dict[str, Any] = field(default_factory=dict)
    flags: dict[str, Any] = field(default_factory=dict)
    said: dict[str, Any] = field(default_factory=dict)
    assumed: list[str] = field(default_factory=list)

    def settle(self, given: Calibrate) -> None:
        """Fills what the server and the probes did not say from the user's flags, then from defaults."""
        for name, default in DEFAULTS.items():
            if getattr(self, name) is None and getattr(given, name) is None:
                self.assumed.append(f"{name}={default}: the server does not say it")
            setattr(self, name, next(v for v in (getattr(self, name), getattr(given, name), default) if v is not None))
        # An iteration must hold one token of every running request; vLLM refuses less.
        self.max_num_batched_tokens = max(self.max_num_batched_tokens or 1, self.max_num_seqs or 1)
        self.kv_blocks = self.kv_blocks or given.kv_blocks
        if self.kv_blocks is None:
            self.kv_blocks = (self.max_num_seqs or 1) * -(-(self.max_model_len or 1) // (self.block_size or 1))
            self.assumed.append(
                f"kv_blocks={self.kv_blocks}: the server does not say it; enough for max_num_seqs sequences of "
                "max_model_len, so that nothing is ever preempted"
            )
        if self.prefix_caching is None:
            self.prefix_caching = True
            self.assumed.append("prefix caching on: the server does not say it")
        self.tp, self.dtype = self.tp or given.tp, self.dtype or given.dtype or ""
        if self.tp is None:
            self.assumed.append("tensor_parallel_size=1: the server does not say it")
        self.said["gpu"] = {**({"name": given.gpu} if given.gpu else {}), **self.said.get("gpu", {})}

    def limits(self) -> Limits:
        """The limits that loads keep to. Call `settle` first."""
        return Limits(**{name: getattr(self, name) or 1 for name in Limits.__struct_fields__})

    def start_record(self) -> dict[str, Any]:
        """The fields of a `start` record. kind server_tokens: num_gpu_blocks counts usable blocks."""
        sched = {"max_num_seqs": self.max_num_seqs, "max_num_batched_tokens": self.max_num_batched_tokens}
        blocks = {"num_gpu_blocks": self.kv_blocks, "block_size": self.block_size}
        return {
            "kind": "server_tokens",
            "engine": self.engine,
            "cache": {**self.cache, **blocks, "enable_prefix_caching": self.prefix_caching},
            "sched": {**sched, "mixed_chunks": self.together},
            "model": {"max_model_len": self.max_model_len, "dtype": self.dtype, "hf": {}},
            "engine_args": {"model": self.model, **self.flags},
            "tp": self.tp or 1,
            "assumed": self.assumed,
            **self.said,
        }


async def models_of(client: Client) -> list[dict[str, Any]]:
    """What /v1/models lists. Raises OutsideError where this is no OpenAI-compatible server."""
    shown = client.root
    status, kind, text = await client.get("v1/models")
    if status == 401 and client.key.use_spare():
        status, kind, text = await client.get("v1/models")
    if status == 0:
        raise OutsideError(f"{shown}: no answer to /v1/models in time; is the server alive?")
    try:
        found = from_json(text)["data"] if status == 200 else None
    except (ValueError, KeyError, TypeError):
        found = None
    if status == 404 or (status == 200 and not isinstance(found, list)):
        what = "has no /v1/models" if status == 404 else "lists none"
        what = "answers with a page of HTML" if "html" in kind else what
        raise OutsideError(
            f"{shown}: is no OpenAI-compatible server ({what}); give the server's root, such as http://localhost:8000 "
            "for vLLM, :30000 for SGLang"
        )
    if status != 200:
        raise client.failure(status, kind, text)
    return [m for m in found or [] if isinstance(m, dict) and isinstance(m.get("id"), str)]


def choose_model(models: list[dict[str, Any]], wanted: str | None, shown: str) -> dict[str, Any]:
    """The model to ask for. Raises InputError with the served names where the choice is not clear."""
    bases = [m for m in models if not m.get("parent")] or models  # adapters name the model they sit on
    listed = ", ".join([m["id"] for m in models][:10]) or "none"
    if wanted is not None:
        named = [m for m in models if m["id"] == wanted] + [m for m in bases if m.get("root") == wanted]
        if not named:
            raise InputError([Problem(flag("model"), wanted, f"not served at {shown}", f"it serves: {listed}")])
        return named[0]
    if not bases:
        raise OutsideError(f"{shown}: serves no model; wait until it has loaded one")
    if len(bases) > 1:
        raise InputError([Problem(flag("model"), None, f"{shown} serves several models", f"choose one: {listed}")])
    return bases[0]


async def identify(client: Client, model: dict[str, Any], gauges: Gauges | None) -> Identity:
    """What the server says of itself. Raises OutsideError for several engines behind one address."""
    owner = str(model.get("owned_by") or "")
    engine = gauges.family if gauges else owner if owner in ("vllm", "sglang") else "openai"
    version = _mapping(await client.get_json("version")).get("version")
    # The name under which it is served goes into requests; the model's own is what a profile should name.
    root = model.get("root")
    at_hub = isinstance(root, str) and root and not root.startswith(("/", ".", "~"))
    name = str(root) if at_hub else model["id"]
    known = Identity(engine, name.rstrip("/").rsplit("/", 1)[-1] if name.startswith("/") else name)
    known.max_model_len, known.said["version"] = _count(model.get("max_model_len")), str(version or "")
    if engine == "openai" and owner:
        known.flags["owned_by"] = owner
    if gauges is not None:
        _from_metrics(known, gauges)
    if engine == "vllm":
        _from_vllm(known, _mapping(await client.get_json("server_info?config_format=json")))
    elif engine == "sglang":
        info = await client.get_json("server_info")
        _from_sglang(known, _mapping(info or await client.get_json("get_server_info")))
    engines = max(gauges.engines if gauges else 1, int(known.flags.get("data_parallel_size") or 1))
    if engines > 1:
        raise OutsideError(
            f"{client.root}: {engines} data-parallel engines answer there; a profile is of one instance: "
            "start one with a data-parallel size of 1"
        )
    return known


def _counted(known: Identity, said: Mapping[str, Any], **keys: str) -> None:
    """Fields of the identity that are counts, by the keys under which they are said."""
    for name, key in keys.items():
        setattr(known, name, _count(said.get(key)))


def _from_metrics(known: Identity, gauges: Gauges) -> None:
    labels = gauges.cache
    _counted(known, labels, kv_blocks="num_gpu_blocks", block_size="block_size")
    known.kv_blocks = known.kv_blocks and max(1, known.kv_blocks - 1)  # vLLM keeps one for itself
    known.prefix_caching = {"True": True, "False": False}.get(labels.get("enable_prefix_caching", ""))
    told = ("cache_dtype", "gpu_memory_utilization", "kv_cache_size_tokens")
    known.cache = {k: labels[k] for k in told if labels.get(k)}
    if gauges.drafts is not None:
        known.said["speculation"] = {"num_speculative_tokens": len(gauges.drafts.accepted_at)}
    if gauges.family == "sglang" and gauges.total_kv_tokens:
        known.block_size, known.kv_blocks = 1, gauges.total_kv_tokens


def _from_vllm(known: Identity, info: Mapping[str, Any]) -> None:
    """GET /server_info?config_format=json, where VLLM_SERVER_DEV_MODE=1 (vllm/entrypoints/serve/dev/server_info)."""
    config = _mapping(info.get("vllm_config"))
    if not config:
        return
    sched, parallel, model, comp, drafts = (
        _mapping(config.get(f"{name}_config"))
        for name in ("scheduler", "parallel", "model", "compilation", "speculative")
    )
    _counted(known, sched, max_num_seqs="max_num_seqs", max_num_batched_tokens="max_num_batched_tokens")
    _counted(known, parallel, tp="tensor_parallel_size")
    known.flags["data_parallel_size"] = _count(parallel.get("data_parallel_size")) or 1
    known.flags |= {k: model[k] for k in ("enforce_eager", "quantization") if isinstance(model.get(k), bool | str)}
    known.dtype = str(model.get("dtype") or "").removeprefix("torch.")
    if "speculation" in known.said and isinstance(drafts.get("method"), str):
        known.said["speculation"]["method"] = drafts["method"]
    mode = comp.get("cudagraph_mode")
    known.said["comp"] = _graphs(mode in (0, "0", "NONE", None), str(mode), comp.get("cudagraph_capture_sizes"))
    system = _mapping(info.get("system_env"))
    names = str(system.get("nvidia_gpu_models") or "").splitlines()
    if names:
        driver = str(system.get("nvidia_driver_version") or "")
        known.said["gpu"] = {"name": names[0].partition(": ")[2] or names[0], "count": len(names), "driver": driver}
        known.said["cuda"] = str(system.get("cuda_compiled_version") or "")
    known.said["torch"] = str(system.get("torch_version") or "")


def _from_sglang(known: Identity, info: Mapping[str, Any]) -> None:
    """GET /server_info, formerly /get_server_info (python/sglang/srt/entrypoints/http_server.py)."""
    if not info:
        return
    states = info.get("internal_states")
    state = _mapping(states[0]) if isinstance(states, list) and states else {}
    known.said["version"] = known.said["version"] or str(info.get("version") or "")
    _counted(
        known, info, max_num_seqs="max_running_requests", max_num_batched_tokens="chunked_prefill_size", tp="tp_size"
    )
    known.max_num_seqs = known.max_num_seqs or _count(state.get("effective_max_running_requests_per_dp"))
    page = _count(info.get("page_size")) or known.block_size or 1
    total = _count(info.get("max_total_num_tokens")) or (known.kv_blocks or 0) * (known.block_size or 1)
    if total:
        known.block_size, known.kv_blocks = page, max(1, total // page)
    known.max_model_len = known.max_model_len or _count(info.get("context_length"))
    known.prefix_caching = not info.get("disable_radix_cache", False)
    known.together = bool(info.get("enable_mixed_chunk", False))
    known.dtype = str(info.get("dtype") or "")
    known.flags["data_parallel_size"] = _count(info.get("dp_size")) or 1
    told = ("quantization", "attention_backend", "schedule_policy", "mem_fraction_static")
    known.flags |= {k: info[k] for k in told if isinstance(info.get(k), int | float | str)}
    known.said["comp"] = _graphs(bool(info.get("disable_cuda_graph", False)), "FULL", info.get("cuda_graph_bs"))


def _graphs(off: bool, mode: str, sizes: Any) -> dict[str, Any]:
    """Whether graphs of decodes are captured, and for which batch sizes."""
    captured = [s for s in sizes if isinstance(s, int)] if isinstance(sizes, list) and not off else []
    return {"cudagraph_mode": "NONE" if off else mode, "sizes": captured}


def _count(value: Any) -> int | None:
    """A positive integer, also as a metric's label writes it."""
    if isinstance(value, str) and value.isdigit():
        value = int(value)
    return value if isinstance(value, int) and not isinstance(value, bool) and value > 0 else None


def _mapping(value: Any) -> dict[str, Any]:
    return value if isinstance(value, dict) else {}
