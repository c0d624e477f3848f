"""The error that is said of a roofline: of its own kind of engine, on runs that the fit did not see."""

from __future__ import annotations

import itertools
import json
from pathlib import Path

import pytest

from fleetsim.engine import roofline
from fleetsim.engine.gpus import GPUS, gpu_spec
from fleetsim.engine.known_error import (
    LEAST_RUNS,
    Domain,
    KnownError,
    bias_words,
    domain_of,
    known_error,
    known_errors,
    read_known_errors,
)  # fmt: skip
from fleetsim.engine.limits import SCHEDULERS
from fleetsim.engine.model.names import MODELS, model_shape
from fleetsim.errors import InputError


def test_every_engine_has_an_error_and_says_of_what() -> None:
    for gpu, shape, dtype, engine in itertools.product(GPUS.values(), MODELS.values(), ("auto", "fp8"), SCHEDULERS):
        domain = domain_of(gpu, shape, dtype, engine)
        known = known_error(domain)
        assert 0 < known.median < known.p90
        assert f"{known.runs:,} published runs" in known.what
        assert known.domain.text in known.what
        assert known.domain == domain.only(n for n in ("gpu", "model", "bits", "engine") if getattr(known.domain, n))
        public = any(r.domain.gpu == gpu.name for r in known_errors())
        assert known.gpu_seen == public, "of a GPU that no run is public of, the error of GPUs kept out of the fit"


def test_a_deepseek_on_a_b200_does_not_claim_what_a_dense_model_on_an_h100_has_shown() -> None:
    latent = known_error(domain_of(gpu_spec("B200"), model_shape("DeepSeek-V3"), "fp8", "sglang"))
    dense = known_error(domain_of(gpu_spec("H100"), model_shape("Qwen/Qwen3-8B"), "auto", "vllm"))
    assert latent.domain.model == "latent mixture"
    assert dense.domain.model == "dense"
    assert latent.p90 > dense.p90


def record(domain: Domain, seen: bool = True, bias: float = 0.0, runs: int = LEAST_RUNS) -> KnownError:
    return KnownError(domain, seen, 0.1, 0.2, bias, runs, ("a",))


def test_the_narrowest_record_counts() -> None:
    whole = Domain("B200-SXM", "mixture", "8", "vllm")
    records = [record(d) for d in (Domain(), Domain("B200-SXM"), Domain(model="mixture"), whole)]
    assert known_error(whole, records).domain == whole
    assert known_error(Domain("B200-SXM", "mixture", "4", "vllm"), records).domain == Domain("B200-SXM")
    other = Domain("L40S", "mixture", "8", "vllm")
    with pytest.raises(InputError, match="record of all runs"):
        known_error(other, records)
    assert not known_error(other, [*records, record(Domain(), seen=False)]).gpu_seen


def test_a_kind_of_few_runs_falls_back_to_a_wider_one() -> None:
    whole = Domain("B200-SXM", "mixture", "8", "vllm")
    records = [record(whole, runs=LEAST_RUNS - 1), record(Domain("B200-SXM", "mixture")), record(Domain(), runs=9)]
    assert known_error(whole, records).domain == Domain("B200-SXM", "mixture")
    assert known_error(whole, records[::2]).runs == 9, "of all runs, there is nothing wider"


def test_a_bias_is_told() -> None:
    assert bias_words(record(Domain(), bias=0.02)) == ""
    assert bias_words(record(Domain(), bias=-0.2)) == "; in the median the engine is taken 20 % too fast"


def test_a_record_file_that_is_none_is_refused(tmp_path: Path) -> None:
    for text in ("", "[]", json.dumps({"errors": [{"gpu": "H100-SXM"}]})):
        (tmp_path / "e.json").write_text(text)
        with pytest.raises(InputError, match="fit_engine"):
            read_known_errors(tmp_path / "e.json")


def test_a_checkpoint_in_fp8_by_its_name_has_half_of_the_bytes() -> None:
    assert model_shape("Qwen/Qwen3-32B-FP8").dtype == "fp8"
    assert model_shape("unsloth/DeepSeek-V3-bf16").dtype == "bfloat16"
    plain, half = (roofline("H100", m, 1, "auto")[0] for m in ("Qwen/Qwen3-8B", "Qwen/Qwen3-8B-FP8"))
    # Half of the bytes; launches and the LM head in 16 bits stay.
    assert half.seconds(1) < 0.8 * plain.seconds(1)
