"""What is said of the roofline's error where it was checked, and where it was not."""

from __future__ import annotations

import importlib
import itertools
import json
import sys
from collections.abc import Iterator
from pathlib import Path
from types import ModuleType

import pytest

from fleetsim.engine import roofline
from fleetsim.engine.checked import (
    CHECKED,
    Domain,
    PublicError,
    departures,
    domain_of,
    errors_in,
    known_error,
    public_errors,
    read_public_errors,
)  # fmt: skip
from fleetsim.engine.gpus import GPUS, gpu_spec
from fleetsim.engine.limits import SCHEDULERS
from fleetsim.engine.model.names import MODELS, model_shape
from fleetsim.errors import InputError

CALIBRATION = Path(__file__).resolve().parents[2] / "calibration"


@pytest.fixture(scope="module")
def script() -> Iterator[ModuleType]:
    sys.path.insert(0, str(CALIBRATION))
    try:
        yield importlib.import_module("public_points")
    finally:
        sys.path.remove(str(CALIBRATION))


def test_the_records_are_what_the_roofline_predicts_of_the_committed_runs(script: ModuleType) -> None:
    assert script.ERRORS.read_text(encoding="utf-8") == script.errors_text()


def test_every_run_has_a_source_and_stands_once(script: ModuleType) -> None:
    points, _ = script.read_points()
    assert len({p.id for p in points}) == len(points) > 400
    sources = {s for record in public_errors() for s in record.sources}
    assert sources <= {p.source for p in points}


def domains() -> Iterator[Domain]:
    for gpu, shape, tp, dp, engine in itertools.product(GPUS.values(), MODELS.values(), (1, 2, 8), (1, 4), SCHEDULERS):
        yield domain_of(gpu, shape, tp, dp, engine)


def test_an_error_is_claimed_only_where_it_was_checked() -> None:
    """Dense models on one or two H100 under vLLM, and nowhere else; every way out of that is named."""
    outside = 0
    for domain in set(domains()):
        known = known_error(domain)
        inside = domain == Domain("H100-SXM", "dense", "1 or 2", "vllm")
        assert (known.median is None, known.worst is None, bool(known.unchecked)) == (not inside,) * 3
        for name in departures(domain):
            assert Domain(**{name: getattr(domain, name)}).text in known.unchecked
        for found in known.elsewhere:
            assert found.text in known.unchecked
        outside += not inside
    assert outside > 50


@pytest.mark.parametrize(
    ("gpu", "model", "tp", "low", "high"),
    [("B200", "Qwen/Qwen2.5-7B", 1, -0.20, -0.05), ("H20", "Qwen/Qwen3-8B", 1, -0.46, -0.37),
     ("MI300X", "Qwen/Qwen3-30B-A3B", 2, -0.72, -0.30), ("H100", "Qwen/Qwen3-235B-A22B", 8, -0.42, -0.30),
     ("H100", "deepseek-ai/DeepSeek-V3", 8, -0.36, -0.10), ("H100", "meta-llama/Llama-3.1-70B", 8, -0.20, -0.10)],
)  # fmt: skip
def test_published_runs_show_the_engine_taken_too_fast(gpu: str, model: str, tp: int, low: float, high: float) -> None:
    known = known_error(domain_of(gpu_spec(gpu), model_shape(model), tp, 1, "vllm"))
    assert known.elsewhere
    assert all(low <= e.median <= high for e in known.elsewhere)
    assert known.unchecked.endswith("So the engine is taken too fast")
    assert known.spread > 0.139


def test_a_gpu_of_which_nothing_was_published_is_said_to_be_that() -> None:
    known = known_error(domain_of(gpu_spec("GB200"), model_shape("Qwen/Qwen3-8B"), 1, 1, "vllm"))
    assert known.elsewhere == ()
    assert known.unchecked.endswith("No published run was looked at for GB200")
    assert known.spread == known_error(CHECKED).worst


def test_the_record_of_a_domain_itself_goes_before_those_of_its_parts() -> None:
    whole = Domain("B200-SXM", "mixture", "more", "vllm")
    records = [PublicError(d, -0.1, -0.2, 0.0, 9, ("a",)) for d in (Domain("B200-SXM"), Domain(model="mixture"), whole)]
    assert [r.domain for r in errors_in(whole, records)] == [whole]
    assert [r.domain for r in errors_in(Domain("B200-SXM", "mixture", "more", "sglang"), records)] == [
        Domain("B200-SXM"), Domain(model="mixture"),
    ]  # fmt: skip


def test_a_record_file_that_is_none_is_refused(tmp_path: Path) -> None:
    for text in ("", "[]", json.dumps({"errors": [{"gpu": "H100-SXM"}]})):
        (tmp_path / "e.json").write_text(text)
        with pytest.raises(InputError, match="public_points"):
            read_public_errors(tmp_path / "e.json")


def test_a_checkpoint_in_fp8_by_its_name_has_half_of_the_bytes() -> None:
    assert model_shape("Qwen/Qwen3-32B-FP8").dtype == "fp8"
    assert model_shape("unsloth/DeepSeek-V3-bf16").dtype == "bfloat16"
    plain, half = (roofline("H100", m, 1, "auto")[0] for m in ("Qwen/Qwen3-8B", "Qwen/Qwen3-8B-FP8"))
    assert half.seconds(1) < 0.75 * plain.seconds(1)
