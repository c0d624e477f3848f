"""aiconfigurator's operator tables: through a stand-in for the package, and through the package where it is there."""

from __future__ import annotations

import importlib.util
import json
import logging
import sys
from pathlib import Path
from types import ModuleType
from typing import Any

import numpy as np
import pytest

from fleetsim.calibrate.ask import Calibrate
from fleetsim.calibrate.derivation import derive_profile, predicted_s
from fleetsim.calibrate.sources import read_source
from fleetsim.calibrate.sources.aiconfigurator import _config_of
from fleetsim.engine.model.hf_config import shape_from_config
from fleetsim.engine.model.names import MODELS
from fleetsim.errors import InputError, OutsideError
from tests.calibrate.bench import TRUTH

REAL = importlib.util.find_spec("aiconfigurator_core") is not None
QWEN = Calibrate(model="Qwen/Qwen2.5-7B")


class Engine:
    """EngineHandle with the interface of aiconfigurator-core 0.12.0 and the times of TRUTH, in milliseconds."""

    compiled: dict[str, Any]

    @classmethod
    def compile(cls, model_path: str, system: str, backend: str, **given: Any) -> Engine:
        if given["tp_size"] == 3:
            raise AssertionError("num_heads 28 should be divisible by tp_size 3")
        config = json.loads((Path(model_path) / "config.json").read_text())
        cls.compiled = {"system": system, "backend": backend, "config": config, **given}
        return cls()

    def predict_decode_latency(self, bs: int, isl: int, osl: int = 2) -> float:
        assert osl == 2
        return 1e3 * TRUTH.seconds(bs, kv_tokens=bs * isl)

    def predict_prefill_latency(self, bs: int, isl: int, prefix: int = 0) -> float:
        if isl > 8192:
            raise ValueError("outside the table")
        new = isl - prefix
        return 1e3 * TRUTH.seconds(0, bs * new, 0, bs * (new * prefix + new * (new + 1) / 2))


@pytest.fixture
def package(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """A stand-in for aiconfigurator_core: tables of h200_sxm and b60, the latter without vLLM."""
    for system in ("h200_sxm", "b60"):
        (tmp_path / "systems" / "data" / system).mkdir(parents=True)
        (tmp_path / "systems" / f"{system}.yaml").touch()
    modules: dict[str, Any] = {
        name: ModuleType(f"aiconfigurator_core{name}") for name in ("", ".sdk", ".sdk.engine", ".sdk.memory")
    }
    modules[".sdk.perf_database"] = ModuleType("aiconfigurator_core.sdk.perf_database")
    core, sdk = modules[""], modules[".sdk"]
    core.__file__ = str(tmp_path / "__init__.py")
    core.__path__ = sdk.__path__ = []
    core.sdk = sdk
    sdk.engine, sdk.memory, sdk.perf_database = (modules[f".sdk.{n}"] for n in ("engine", "memory", "perf_database"))
    sdk.engine.EngineHandle = Engine
    sdk.memory.estimate_num_gpu_blocks = lambda *_, scheduler_block_size, **__: 2_000_000 // scheduler_block_size
    slots = {"h200_sxm": {"current": "0.24.0"}}
    sdk.perf_database.get_version_slots = lambda system, backend: slots.get(system)
    sdk.perf_database.resolve_query_version = lambda system, backend, asked: slots[system].get(asked, asked)
    for name, module in modules.items():
        monkeypatch.setitem(sys.modules, f"aiconfigurator_core{name}", module)


@pytest.mark.usefixtures("package")
def test_tables_become_iterations_of_the_model() -> None:
    source = read_source("aiconfigurator:h200_sxm", QWEN)
    o = source.observations
    assert source.single
    assert source.facts == {
        "model": "Qwen/Qwen2.5-7B",
        "tp": 1,
        "engine": "vllm",
        "engine_version": "0.24.0",
        "kv_blocks": 125_000,
        "gpu": "H200-SXM",
    }
    assert np.allclose(predicted_s(TRUTH, 0.0, o), o.seconds, rtol=1e-12)
    assert o.kv_tokens.max() <= 2_000_000
    assert o.prefill_tokens.max() == 8192
    assert Engine.compiled["config"]["num_key_value_heads"] == 4
    assert not logging.root.manager.disable


@pytest.mark.usefixtures("package")
def test_tables_alone_make_a_profile_without_a_prior() -> None:
    given = Calibrate(gpu="H200", model="Qwen/Qwen2.5-7B")
    profile = derive_profile([read_source("aiconfigurator", given)], given, name="tables")
    assert profile.kind == "derived"
    assert profile.provenance.engine_version == "0.24.0"
    assert not any("roofline" in note for note in profile.provenance.assumed)
    assert profile.error.worst is not None
    assert profile.error.worst < 0.1
    assert profile.ranges.decodes == (1.0, 1024.0)
    assert profile.limits.kv_blocks == 125_000


@pytest.mark.usefixtures("package")
def test_types_and_parallelism_are_passed_on() -> None:
    read_source("aiconfigurator:h200_sxm:0.25.0", Calibrate(model="Qwen/Qwen3-30B-A3B", tp=2, dtype="fp8"))
    made = Engine.compiled
    assert (made["tp_size"], made["moe_tp_size"], made["gemm_quant_mode"]) == (2, 2, "fp8")
    assert made["backend_version"] == "0.25.0"
    assert made["config"]["architectures"] == ["Qwen3MoeForCausalLM"]


@pytest.mark.usefixtures("package")
def test_what_the_tables_do_not_have() -> None:
    with pytest.raises(InputError, match="one of b60, h200_sxm"):
        read_source("aiconfigurator:h300", QWEN)
    with pytest.raises(InputError, match="no tables of vLLM"):
        read_source("aiconfigurator:b60", QWEN)
    with pytest.raises(InputError, match="--model"):
        read_source("aiconfigurator:h200_sxm")
    with pytest.raises(InputError, match="or add --gpu"):
        read_source("aiconfigurator", QWEN)
    with pytest.raises(OutsideError, match="divisible by tp_size 3"):
        read_source("aiconfigurator:h200_sxm", Calibrate(model="Qwen/Qwen2.5-7B", tp=3))


def test_it_is_never_called_unless_installed(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setitem(sys.modules, "aiconfigurator_core", None)
    with pytest.raises(OutsideError, match=r"not installed.*pip install 'fleetsim\[aiconfigurator\]'"):
        read_source("aiconfigurator:h200_sxm", QWEN)


SHARED = "tencent/Hunyuan-A13B-Instruct"  # its layers are alike, but have shared experts


@pytest.mark.parametrize("name", [n for n, shape in MODELS.items() if len(shape.blocks) == 1 and n != SHARED])
def test_built_in_shapes_are_written_as_configs_of_the_same_shape(name: str) -> None:
    shape = MODELS[name]
    back = shape_from_config(_config_of(shape), name=name)
    assert back.blocks == shape.blocks
    assert (back.hidden, back.vocab, back.tied_embeddings) == (shape.hidden, shape.vocab, shape.tied_embeddings)


@pytest.mark.parametrize("name", ["deepseek-ai/DeepSeek-V3", "Qwen/Qwen3.5-35B-A3B", SHARED])
def test_attention_that_a_built_in_shape_cannot_tell_is_refused(name: str) -> None:
    with pytest.raises(InputError, match=r"own config\.json only"):
        _config_of(MODELS[name])


@pytest.mark.skipif(not REAL, reason="aiconfigurator-core is not installed: pip install 'fleetsim[aiconfigurator]'")
def test_the_real_tables() -> None:
    source = read_source("aiconfigurator:h200_sxm", QWEN)
    o = source.observations
    assert len(o) > 50
    assert source.facts["gpu"] == "H200-SXM"
    alone = o.seconds[(o.decodes == 1) & (o.kv_tokens == 128)]
    assert 1e-3 < alone.item() < 2e-2  # weights of 15 GB at 4.8 TB/s take 3 ms
