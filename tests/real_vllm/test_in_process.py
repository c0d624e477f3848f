"""The recorder, the driver and the calibration of a real vLLM that runs in a process of its own."""

from __future__ import annotations

import json
import re
import subprocess
from pathlib import Path

import numpy as np
import pytest
from numpy.typing import NDArray

from fleetsim.calibrate.engine_facts import facts_of
from fleetsim.calibrate.raw import Raw, Segment, read_raw
from fleetsim.calibrate.vllm.parent import NOT_STARTED, diagnose
from fleetsim.config.engine_profile import Profile, load_profile
from fleetsim.engine import EngineLimits, LinearStepTime, run_requests
from tests.real_vllm.attempts import LIMIT, shown_bias
from tests.real_vllm.conftest import ROOT
from tests.real_vllm.scenes import BLOCK, CONTEXTS, ENGINE
from tests.real_vllm.serving import Serving, environment


@pytest.fixture(scope="module")
def played(vllm_python: str, tiny_model: str, serving: Serving, tmp_path_factory: pytest.TempPathFactory) -> Raw:
    """What tests/real_vllm/scenes.py recorded, in one engine. The server of later tests starts beside it."""
    raw = tmp_path_factory.mktemp("scenes") / "a.raw.jsonl"
    done = subprocess.run(
        [vllm_python, "-m", "tests.real_vllm.scenes", tiny_model, str(raw)],
        cwd=ROOT,
        env={"PATH": "/usr/bin:/bin", "HOME": str(raw.parent), **environment(vllm_python)},
        capture_output=True,
        text=True,
        timeout=900,
        check=False,
    )
    assert done.returncode == 0, done.stdout[-2000:] + done.stderr[-2000:]
    return read_raw(raw)


def of(raw: Raw, phase: str, number: int = 0) -> tuple[Segment, dict[str, NDArray[np.int64]]]:
    """One scene: its segment and the columns of its iterations, without the empty one in which vLLM cleans up."""
    segment = [s for s in raw.segments if s.phase == phase][number]
    here = (raw.segment == segment.id) & (raw.columns["nd"] + raw.columns["np"] > 0)
    return segment, {name: column[here] for name, column in raw.columns.items()}


def requests(segment: Segment) -> dict[str, NDArray[np.int64]]:
    assert segment.requests is not None
    return {name: np.array(values) for name, values in segment.requests.items()}


def test_the_engine_says_what_it_is(played: Raw) -> None:
    facts = facts_of(played)
    p, limits = facts.provenance, facts.limits
    assert (p.engine, p.engine_version, p.tp, p.model) == ("vllm", "0.32.0", 1, "tiny")
    assert (limits.max_num_seqs, limits.block_size) == (32, BLOCK)
    assert played.starts[-1]["model"]["max_model_len"] == 2048
    assert limits.kv_blocks == 2**30 // (BLOCK * 2 * 2 * 2 * 32 * 2) - 1  # layers, k and v, heads, size, bytes
    assert facts.prefix_caching
    assert p.model_shape["hidden_size"] == 64
    assert p.dtype == "bfloat16"
    text = str(played.starts[0])
    assert str(ROOT) not in text
    assert played.starts[0]["weights"]["params"] > 0


def test_an_argument_that_vllm_does_not_have_is_named(played: Raw) -> None:
    (error,) = [r for r in played.records if r["t"] == "error"]
    assert re.search("refused its arguments.*max_num_sequences", diagnose(error["err"], [], NOT_STARTED))


def test_siblings_share_their_prompt_even_within_one_iteration(played: Raw) -> None:
    _, rows = of(played, "siblings")
    shared = (300 - 1) // BLOCK * BLOCK
    assert rows["hit"].sum() == 7 * shared
    assert rows["np"].sum() == 300 + 7 * (300 - shared)
    assert rows["adm"][0] == 8
    _, rows = of(played, "not_read")
    assert rows["hit"].sum() == 0
    assert rows["np"].sum() == 8 * 300


def test_every_token_is_in_the_rows(played: Raw) -> None:
    for segment in played.segments:
        rows = {name: column[played.segment == segment.id] for name, column in played.columns.items()}
        assert rows["out"].sum() == segment.record["gen"]
        assert rows["np"].sum() == segment.record["prefill"]
        if segment.requests is not None and not segment.cut:
            r = requests(segment)
            assert r["n"].sum() == rows["out"].sum()
            assert r["n"].tolist() == r["want"].tolist()
            assert rows["fin"].sum() == len(r["n"])
            assert np.all((r["submit"] >= 0) & (r["submit"] <= r["first"]) & (r["first"] <= r["finish"]))
            assert r["finish"].max() <= 1e6 * segment.record["wall"]
    _, rows = of(played, "siblings")
    assert rows["nd"].tolist() == [0, *[8] * 39, 7, 6, 5, 4, 3, 2, 1]
    assert rows["K"].tolist() == [0, *(n * (300 + i) for i, n in enumerate(rows["nd"][1:]))]


def test_durations_add_up_to_the_wall_time(played: Raw) -> None:
    for phase in ("siblings", "preempted", "contexts"):
        segment, rows = of(played, phase)
        assert 0.9 * segment.record["wall"] < rows["dt"].sum() * 1e-6 <= 1.001 * segment.record["wall"]
        every = played.columns["dt"][played.segment == segment.id].sum() * 1e-6  # with that in which vLLM cleans up
        assert every == pytest.approx(segment.record["sum_dt"], abs=1e-3)


def test_recording_costs_little(played: Raw) -> None:
    own = sum(s.record["rec_s"] for s in played.segments)
    assert own < 0.02 * sum(s.record["wall"] for s in played.segments)  # of 5 ms iterations: an H200's are longer


def test_preemption_takes_the_last_admitted_and_the_simulator_agrees(played: Raw) -> None:
    segment, rows = of(played, "preempted")
    r = requests(segment)
    assert rows["blk"].max() <= 32
    assert rows["pre"].sum() == r["pre"].sum() == 4
    result = run_requests(LinearStepTime(1.0), EngineLimits(32, 4096, 32, BLOCK), [64] * 8, [192] * 8)
    assert result.preemptions.tolist() == r["pre"].tolist()
    simulated = [np.flatnonzero(result.finish_s == t).tolist() for t in np.unique(result.finish_s)]
    real = [np.flatnonzero(r["finish"] == t).tolist() for t in np.unique(r["finish"])]
    assert real == simulated == [[0, 1, 2, 3], [4], [5], [6, 7]]


def test_a_prompt_is_chunked_by_what_the_decodes_leave(played: Raw) -> None:
    _, rows = of(played, "chunks")
    chunked = rows["npf"] * (rows["nd"] == 4) == 1
    assert rows["np"][chunked].tolist() == [252, 252, 252, 1000 - 3 * 252]
    assert rows["Kp"][chunked].tolist() == [0, 252, 504, 756]
    assert rows["A"][chunked].sum() == 1000 * 1001 // 2
    assert np.flatnonzero(chunked)[0] == 5, "it arrives when it was told to"
    assert (rows["nd"] + rows["np"]).max() == 256


def test_contexts_need_not_be_computed(played: Raw) -> None:
    segment, rows = of(played, "contexts")
    assert segment.record["prefill"] == 16
    assert rows["hit"][0] == 16 * 512
    assert rows["nd"][1:].tolist() == [16] * 19
    assert rows["K"][1:].tolist() == [16 * (513 + i) for i in range(19)]


def test_contexts_are_computed_in_the_warm_up_where_they_must_be(played: Raw) -> None:
    segment, rows = of(played, "contexts", 1)
    assert segment.record["prefill"] == 16 * 513
    after = rows["warm"] == 0
    assert rows["np"][after].sum() == 0
    whole = after & (rows["nd"] == len(CONTEXTS.requests))
    assert whole.sum() >= 18, "as many iterations as where the contexts were found"
    assert rows["K"][whole].min() >= 16 * 513


def test_slots_bound_the_running_requests(played: Raw) -> None:
    segment, rows = of(played, "slots")
    assert rows["run"].max() == 4
    assert rows["nd"].max() <= 4
    assert requests(segment)["n"].tolist() == [10 + i for i in range(16)]


def test_time_skips_to_the_next_arrival_of_an_empty_engine(played: Raw) -> None:
    segment, rows = of(played, "later")
    assert rows["fin"].sum() == 3
    assert rows["idle"].tolist() == [1, 0, 1, 0, 1, 0]
    assert len(requests(segment)["n"]) == 3


def test_a_cut_load_leaves_an_engine_at_rest(played: Raw) -> None:
    segment, _ = of(played, "cut")
    assert segment.cut
    r = requests(segment)
    assert np.all(r["finish"] == -1)
    assert np.all((r["n"] >= 1) & (r["n"] < 1000))
    assert segment.record["wall"] < 5.0


def test_an_update_of_the_weights_is_measured_and_survived(played: Raw) -> None:
    (record,) = [r for r in played.records if r["t"] == "phase"]
    assert record["ph"] == "sync"
    found = record["res"]
    assert not [name for name in found if name.endswith("_error")], found
    assert 0 <= found["pause_keep_s"] < found["resume_to_next_result_s"] < 10
    shape = facts_of(played).provenance.model_shape
    layer = (2 * 4 * 32 + 2 * 2 * 32) * 64 + 3 * 64 * 128 + 2 * 64
    assert found["weights"]["bytes"] == 2 * (shape["num_hidden_layers"] * layer + 256 * 64 + 64)
    assert len(found["weights"]["load_from_device_s"]) == 3
    first, again = of(played, "siblings"), of(played, "siblings", 1)
    assert requests(again[0])["n"].tolist() == requests(first[0])["n"].tolist()
    (rate,) = [r["bytes_s"] for r in played.records if r["t"] == "broadcast"]
    assert rate > 1e6


@pytest.mark.timed
def test_a_calibration_predicts_the_batches_kept_out(
    vllm_python: str, tiny_model: str, vllm_environment: dict[str, str], tmp_path: Path
) -> None:
    """The command itself, in the environment that has vLLM: from nothing to a profile that says how wrong it is."""

    def calibrate(attempt: int) -> Profile:
        output = tmp_path / f"tiny-{attempt}.profile.json"
        command = [vllm_python, "-m", "fleetsim", "calibrate", "--model", tiny_model, "--quick", "--budget-s", "75"]
        command += [f"--{k.replace('_', '-')}={v}" for k, v in ENGINE.items() if k in ("max_num_seqs", "max_model_len")]
        command += [f"--engine-arg={k}={v}" for k, v in ENGINE.items() if f"--{k.replace('_', '-')}={v}" not in command]
        done = subprocess.run(
            [*command, "-o", str(output), "--json"], env=vllm_environment, capture_output=True, text=True, check=False
        )
        assert done.returncode == 0, done.stderr
        assert "tok/s at batch 32" in done.stderr
        profile = load_profile(output)
        assert json.loads(done.stdout)["profile"]["name"] == profile.name
        assert {check.name for check in profile.checks} == {"rl_on", "rl_off"}
        assert profile.prefix_cache is not None
        assert profile.prefix_cache.hit_tokens == profile.prefix_cache.expected_tokens > 0
        assert profile.raw == f"tiny-{attempt}.raw.jsonl.gz"
        return profile

    assert shown_bias(calibrate)[1] <= LIMIT
