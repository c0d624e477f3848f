"""Raw measurements survive whatever ends a run: a crash, a full disk, an editor."""

from __future__ import annotations

import gzip
import json
from pathlib import Path
from typing import Any

import pytest
from hypothesis import given
from hypothesis import strategies as st

from fleetsim.calibrate.engine_facts import facts_of
from fleetsim.calibrate.fit.design import observations_of
from fleetsim.calibrate.raw import COLUMNS, Raw, RawWriter, compress, raw_of, read_raw, records_of
from fleetsim.errors import InputError, OutsideError

START: dict[str, Any] = {
    "t": "start",
    "kind": "inproc",
    "vllm": "0.26.0",
    "engine_args": {"model": "tiny", "max_num_seqs": 8},
    "cache": {"num_gpu_blocks": 101, "block_size": 16, "enable_prefix_caching": True},
    "sched": {"max_num_seqs": 8, "max_num_batched_tokens": 256},
    "comp": {"cudagraph_mode": "FULL", "sizes": [4, 1, 2]},
    "model": {"dtype": "torch.bfloat16", "max_model_len": 512, "hf": {"hidden_size": 64}},
    "gpu": {"name": "NVIDIA H200", "count": 8, "driver": "580.1"},
}


def rows(n: int, **columns: int) -> dict[str, list[int]]:
    return {name: [columns.get(name, 0)] * n for name in COLUMNS}


def records() -> list[dict[str, Any]]:
    return [
        {"t": "meta", "model": "tiny"},
        START,
        {"t": "it", "ph": "warmup", "seg": 1, "c": rows(2, dt=9000, nd=1, warm=1)},
        {"t": "it", "ph": "decode", "seg": 2, "lab": {"B": 4}, "c": rows(3, dt=5000, nd=4, K=400)},
        {"t": "seg", "ph": "decode", "seg": 2, "lab": {"B": 4}, "wall": 0.015, "cut": False},
        {"t": "it", "ph": "prefill", "seg": 3, "c": rows(1, dt=7000, np=128, A=8256, idle=1)},
        {"t": "it", "ph": "prefill", "seg": 3, "c": rows(1, dt=7000, nd=0, idle=1)},
        {"t": "it", "ph": "rl_on", "seg": 4, "c": rows(5, dt=6000, nd=4)},
        {"t": "seg", "ph": "rl_on", "seg": 4, "lab": {}, "wall": 0.03, "cut": False, "req": {"finish": [30000]}},
        {"t": "obs", "ph": "decode", "seg": 9, "dt": [4000, 8000], "ovh": [0, 1], "of": [0, 1, 1],
         "nd": [2, 2, 3], "K": [9, 11, 12], "np": [0, 0, 5], "A": [0, 0, 15]},
    ]  # fmt: skip


def loads_of(raw: Raw, phase: str) -> list[int]:
    """The load of each iteration of a phase."""
    return [s for s in raw.segment.tolist() if raw.phase_of[s] == phase]


def test_only_the_sweeps_reach_the_fit() -> None:
    raw = raw_of(records())
    o = observations_of(raw)
    assert (o.seconds * 1e3).round(9).tolist() == [5, 5, 5, 7, 4, 8]  # no warm-up, no batch, no empty iteration
    assert o.of.tolist() == [0, 1, 2, 3, 4, 5, 5]
    assert o.kv_tokens.tolist() == [400.0] * 3 + [0.0, 9.0, 11.0, 12.0]
    assert o.overheads.tolist() == [0, 0, 0, 0, 0, 1]
    assert len(set(o.segment.tolist())) == 3
    assert [s.kept_out for s in raw.segments] == [False, True]
    assert len(loads_of(raw, "rl_on")) == 5


def test_the_facts_are_the_last_engines() -> None:
    facts = facts_of(raw_of(records()))
    assert (facts.limits.kv_blocks, facts.limits.block_size, facts.graph_sizes) == (100, 16, (1, 2, 4))  # one is null
    p = facts.provenance
    assert (p.gpu, p.gpu_count, p.driver, p.dtype) == ("NVIDIA H200", 8, "580.1", "bfloat16")
    eager = {**START, "comp": {"cudagraph_mode": "NONE", "sizes": [1, 2]}}
    assert facts_of(raw_of([*records(), eager])).graph_sizes == ()
    with pytest.raises(InputError, match=r"cache\.num_gpu_blocks"):
        facts_of(raw_of([{**START, "cache": {"block_size": 16}}]))


def test_segments_of_a_resumed_run_are_others() -> None:
    again = [START, {"t": "it", "ph": "decode", "seg": 2, "lab": {"B": 8}, "c": rows(3, dt=6000, nd=8)}]
    raw = raw_of([*records(), *again])
    assert len(set(loads_of(raw, "decode"))) == 2


def test_a_writer_goes_on_after_half_a_line(tmp_path: Path) -> None:
    file = tmp_path / "a.raw.jsonl"
    for r in records():
        RawWriter(file).put(**r)
    whole = file.read_bytes()
    file.write_bytes(whole[:-20])
    writer = RawWriter(file)
    writer.put("note", after="the crash")
    writer.close()
    found, damaged = records_of(file)
    assert damaged == 1
    assert found[-1] == {"t": "note", "after": "the crash"}
    assert len(found) == len(records())


@given(st.data())
def test_a_file_cut_anywhere_gives_what_came_before(
    tmp_path_factory: pytest.TempPathFactory, data: st.DataObject
) -> None:
    file = tmp_path_factory.mktemp("raw") / "a.jsonl.gz"
    text = "".join(json.dumps(r) + "\n" for r in records()).encode()
    packed = data.draw(st.booleans())
    content = gzip.compress(text, mtime=0) if packed else text
    cut = data.draw(st.integers(0, len(content)))
    file.write_bytes(content[:cut])
    found, damaged = records_of(file)
    assert found == records()[: len(found)]
    assert damaged <= 1
    try:
        assert len(observations_of(read_raw(file))) <= 6
    except InputError as error:
        assert "holds no" in str(error)


@given(st.lists(st.sampled_from(["t", "it", "seg", "obs", "start", "c", "dt", "ph", "nd"]), max_size=6), st.data())
def test_ill_formed_records_are_damage_and_nothing_else(keys: list[str], data: st.DataObject) -> None:
    values = st.one_of(st.none(), st.integers(), st.text(max_size=3), st.lists(st.integers(), max_size=2))
    wrong = {"t": "it", "ph": "decode", "seg": 1, "c": {k: data.draw(values) for k in keys}}
    raw = raw_of([*records(), wrong])
    assert raw.damaged == 1
    assert len(raw.segment) == len(raw_of(records()).segment)


@pytest.mark.parametrize("kind", ["it", "seg", "obs"])
@pytest.mark.parametrize("segment", [[], {}, True, 1.5])
def test_a_segment_that_is_no_name_is_damage(kind: str, segment: object, tmp_path: Path) -> None:
    file = tmp_path / "x.raw.jsonl"
    lines = [*records(), {"t": kind, "ph": "decode", "seg": segment}]
    file.write_text("".join(json.dumps(r) + "\n" for r in lines))
    assert records_of(file) == (records(), 1)


@pytest.mark.parametrize("name", COLUMNS)
def test_a_column_that_is_no_list_is_damage(name: str) -> None:
    good = next(r for r in records() if r["t"] == "it")
    raw = raw_of([*records(), {**good, "c": {**good["c"], name: 8}}])
    assert raw.damaged == 1
    assert len(raw.segment) == len(raw_of(records()).segment)


def test_packing_keeps_every_record_and_the_same_bytes(tmp_path: Path) -> None:
    packed = []
    for name in ("a", "b"):
        file = tmp_path / name / "x.raw.jsonl"
        file.parent.mkdir()
        file.write_text("".join(json.dumps(r) + "\n" for r in records()))
        packed.append(compress(file))
        assert not file.exists()
    assert packed[0].read_bytes() == packed[1].read_bytes()
    assert records_of(packed[0]) == (records(), 0)


def test_files_that_cannot_be_read_or_written(tmp_path: Path) -> None:
    with pytest.raises(InputError, match="cannot be read"):
        read_raw(tmp_path / "none")
    with pytest.raises(InputError, match="cannot be read"):
        read_raw(tmp_path)
    (tmp_path / "empty").write_text("")
    with pytest.raises(InputError, match="no engine"):
        read_raw(tmp_path / "empty")
    with pytest.raises(OutsideError, match="cannot be written"):
        RawWriter(tmp_path / "no" / "such")
