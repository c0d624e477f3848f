"""A roofline that one measured load calibrates, and what is told of a load."""

from __future__ import annotations

import json
import re
from pathlib import Path

import pytest
from typer.testing import CliRunner

from fleetsim.calibrate.one_load import (
    FOLLOWED,
    ClosedLoad,
    MeasuredLoad,
    calibrated,
    estimated,
    read_engine,
    read_point,
    seen_of,
)
from fleetsim.cli.main import app
from fleetsim.config.engine_profile import Profile, load_profile
from fleetsim.errors import InputError

MODEL = "Qwen/Qwen2.5-1.5B"


def test_a_point_is_read() -> None:
    assert read_point("concurrency=64 isl=1000 osl=900 tok_s=4100.5") == MeasuredLoad(ClosedLoad(64, 1000, 900), 4100.5)


@pytest.mark.parametrize(
    ("text", "said"),
    [
        ("concurrency=64", "each of concurrency=NUMBER"),
        ("concurrency=64 isl=1000 osl=900 tok_s=many", "each of concurrency=NUMBER"),
        ("concurrency=64 concurrency=64 isl=9 osl=9 tok_s=1", "once"),
        ("concurrency=0 isl=1000 osl=900 tok_s=4100", "a whole number from 1"),
        ("concurrency=4 isl=1000 osl=900 tok_s=-1", "must be above 0"),
    ],
)
def test_a_point_that_is_none_is_refused(text: str, said: str) -> None:
    with pytest.raises(InputError, match=re.escape(said)):
        read_point(text)


def test_one_load_moves_the_engine_by_most_of_what_it_shows_and_two_by_all() -> None:
    """An engine that is measured at half the speed of its roofline at every load."""
    loads = ClosedLoad(4, 100, 20), ClosedLoad(8, 200, 20)
    points = [MeasuredLoad(load, seen_of(load, "H100", MODEL).tok_s.value / 2) for load in loads]
    plain, one, both = (
        calibrated(some, "H100", MODEL) for some in ([MeasuredLoad(loads[0], 2 * points[0].tok_s)], points[:1], points)
    )
    first = [p.coefficients.knots_s[0].value for p in (plain, one, both)]
    assert first[1] / first[0] == pytest.approx(2**FOLLOWED)
    assert first[2] / first[0] == pytest.approx(2.0)
    assert "calibrated at 4 clients" in one.provenance.source


def test_what_is_said_of_the_engine_is_read(tmp_path: Path) -> None:
    """Another engine, its memory and its running requests: each was left aside, and the answer was the same."""
    flags = ["--gpu", "H100", "--model", MODEL, "--point", "concurrency=8 isl=100 osl=20 tok_s=900", "--json"]

    def made(*more: str) -> Profile:
        place = tmp_path / f"{len(more)}{''.join(more)}.profile.json"
        answer = CliRunner().invoke(app, ["calibrate", *flags, *more, "-o", str(place)])
        assert answer.exit_code == 0, answer.output
        return load_profile(place)

    plain, other, few = made(), made("--engine", "sglang"), made("--max-num-seqs", "2", "--kv-blocks", "900")
    assert (other.provenance.engine, other.limits.block_size) == ("sglang", 1)
    assert (few.limits.max_num_seqs, few.limits.kv_blocks) == (2, 900)
    first = {p.coefficients.knots_s[0].value for p in (plain, other, few)}
    assert len(first) == 3
    for wrong in (["--engine", "foo"], ["--quantization", "fp8"], ["--max-model-len", "99"]):
        assert CliRunner().invoke(app, ["calibrate", *flags, *wrong]).exit_code == 2


def test_loads_that_contradict_each_other_widen_the_error() -> None:
    """No engine makes a quarter of its roofline at one load and four times as much at another."""
    loads = ClosedLoad(4, 100, 20), ClosedLoad(8, 200, 20)
    seen = [seen_of(load, "H100", MODEL).tok_s.value for load in loads]
    points = [MeasuredLoad(loads[0], seen[0] / 4), MeasuredLoad(loads[1], seen[1] * 4)]
    found = calibrated(points, "H100", MODEL)
    assert found.error.p90 == pytest.approx(3.0)
    assert "(this profile +300.0 %)" in found.provenance.source
    assert "(this profile -75.0 %)" in found.provenance.source


def test_an_estimate_of_a_load_has_a_range() -> None:
    flags = ["--gpu", "H100", "--model", MODEL, "--concurrency", "4", "--isl", "100", "--osl", "20"]
    answer = CliRunner().invoke(app, ["profile", "estimate", *flags, "--json"])
    assert answer.exit_code == 0, answer.output
    document = json.loads(answer.stdout)
    for name in ("tok_s", "ttft_s", "tpot_s"):
        figure = document[name]
        assert 0 < figure["low"] < figure["value"] < figure["high"], name
    assert (document["concurrency"], document["isl"], document["osl"]) == (4, 100, 20)


def test_ranks_that_share_experts_fit_where_one_alone_does_not() -> None:
    """671 billion weights in fp8 on one B200 of eight: the command refused it, as it asked for the engine alone."""
    asked = ["--gpu", "B200", "--model", "deepseek-ai/DeepSeek-R1", "--dtype", "fp8", "--osl", "64", "--json"]
    alone, ranks = (CliRunner().invoke(app, ["profile", "estimate", *asked, *more]) for more in ([], ["--dp", "8"]))
    assert (alone.exit_code, ranks.exit_code) == (2, 0)
    assert "one of 8 ranks that share the experts" in json.loads(ranks.stdout)["profile"]["provenance"]["assumed"]


def test_an_engine_is_told_with_its_drafts_and_its_limits() -> None:
    """Two drafts of which all are accepted: three tokens an iteration, less what drafting and checking them takes."""
    load = ClosedLoad(4, 256, 240)
    drafts = ["engine.speculation.method=mtp", "engine.speculation.num_speculative_tokens=2"]
    told = read_engine([*drafts, "engine.speculation.acceptance=1.0"])
    plain = seen_of(load, "H200", "Qwen/Qwen3.6-27B").tpot_s.value
    assert plain / 3 < seen_of(load, "H200", "Qwen/Qwen3.6-27B", **told).tpot_s.value < plain / 2
    few = seen_of(load, "H200", "Qwen/Qwen3.6-27B", **read_engine(["engine.max_num_seqs=2"]))
    assert few.ttft_s.value > 240 / 2 * plain
    with pytest.raises(InputError, match="must be of the engine"):
        read_engine(["fleet.instances=3"])
    named = {"name": "vllm", "tp": 1, "dtype": "auto", "kv_dtype": "auto", "dp": 1}
    profile, seen = estimated(load, "H100", MODEL, named, ["engine.gpu=H200"])
    assert profile.provenance.gpu == "H200-SXM"
    assert seen == seen_of(load, "H200", MODEL)
