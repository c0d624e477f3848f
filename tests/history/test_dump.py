"""Saved and read again: exact; damaged: an error that says what."""

from __future__ import annotations

import json
import tempfile
from pathlib import Path

import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from fleetsim.errors import InputError, OutsideError
from fleetsim.history import dump_tables
from fleetsim.history.dump import load_history, save_history
from fleetsim.history.history import Buckets, History, InstanceId, Note, StepLog

from .strategies import facts, histories

FORMS = ["dump", "one.json", "one.parquet", "one.csv"]


def small() -> History:
    """Two instances, three times, one gap."""
    times = np.array([1.7e9, 1.7e9 + 15, 1.7e9 + 30])
    return History(
        times=times,
        step_s=15.0,
        instances=(InstanceId("a", "0", "m", {"job": "rollout"}), InstanceId("b", "1", "m")),
        values={"generation_tokens": np.array([[1, 2, np.nan], [0.1, 0.2, 1 / 3]]), "running": np.full((2, 3), np.nan)},
        fleet={"trainer.steps": np.array([1.0, np.nan, 2.0])},
        histograms={
            "output_tokens": Buckets(
                np.array([1.0, np.inf]),
                times[[0, 2]],
                np.array([[[0.0, 1], [2, 3]], [[4, 5], [6, 7]]]),
                np.array([[1, 2], [3, np.nan]]),
            )
        },
        configs=({"block_size": "16"}, {}),
        steps=StepLog("verl", {"step": np.array([1.0, 2.0]), "wait_s": np.array([np.nan, 3.5])}),
        notes=(Note("gap", "a gap", 0.1),),
        source="a test",
    )


@pytest.mark.parametrize("form", FORMS)
def test_what_is_saved_is_read(tmp_path: Path, form: str) -> None:
    save_history(small(), tmp_path / form)
    assert facts(load_history(tmp_path / form)) == facts(small())


@settings(max_examples=60, deadline=None)
@given(history=histories(), form=st.sampled_from([*FORMS, "without pyarrow"]))
def test_any_history_reads_back_to_the_bit(history: History, form: str) -> None:
    with tempfile.TemporaryDirectory() as room, pytest.MonkeyPatch.context() as patch:
        if form == "without pyarrow":
            patch.setattr("fleetsim.history.dump.has_parquet", lambda: False)
        path = Path(room) / form
        save_history(history, path)
        assert facts(load_history(path)) == facts(history)
        assert [p.name for p in Path(room).iterdir()] == [form]


@pytest.mark.parametrize("form", FORMS)
def test_an_earlier_dump_is_replaced_whole(tmp_path: Path, form: str) -> None:
    save_history(small(), tmp_path / form)
    first = load_history(tmp_path / form)
    save_history(first, tmp_path / form)
    assert facts(load_history(tmp_path / form)) == facts(small())


def test_a_failing_write_leaves_what_was_there(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    save_history(small(), tmp_path / "dump")

    def fail(*_: object) -> None:
        raise OSError("disk full")

    monkeypatch.setattr("fleetsim.history.dump.write_table", fail)
    with pytest.raises(Exception, match="disk full"):
        save_history(small(), tmp_path / "dump")
    monkeypatch.undo()
    assert facts(load_history(tmp_path / "dump")) == facts(small())
    assert [p.name for p in tmp_path.iterdir()] == ["dump"]


def test_what_is_no_dump_is_not_overwritten(tmp_path: Path) -> None:
    (tmp_path / "photos").mkdir()
    (tmp_path / "photos" / "cat.jpg").write_text("cat")
    with pytest.raises(InputError, match="something else stands there"):
        save_history(small(), tmp_path / "photos")
    assert (tmp_path / "photos" / "cat.jpg").read_text() == "cat"


def test_parquet_without_pyarrow_names_the_extra(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.chdir(tmp_path)  # errors cut long values
    one = Path("one.parquet")
    save_history(small(), one)
    monkeypatch.setattr(dump_tables, "has_parquet", lambda: False)
    other = Path("two.parquet")
    with pytest.raises(OutsideError) as written:
        save_history(small(), other)
    rule = "Parquet needs pyarrow, which is not installed; pip install 'fleetsim[parquet]'"
    assert str(written.value) == f"save: {str(other)!r}: {rule}, or save as two.csv"
    with pytest.raises(OutsideError) as asked:  # the file is there: another ending would not make it readable
        load_history(one)
    assert str(asked.value).endswith(rule)


@pytest.mark.parametrize(
    ("change", "says"),
    [
        ({"schema_version": 2}, "reads schema_version 1"),
        ({"kind": "other"}, "no history that fleetsim saved"),
        ({"times": "x"}, "valid list"),
        ({"configs": []}, "2 instances but 0 configs"),
        ({"more": 1}, "damaged"),
        ({"values": ["kv_use"]}, "kv_use"),
    ],
)
@pytest.mark.parametrize("form", ["dump", "one.json"])
def test_a_changed_header_is_refused(tmp_path: Path, form: str, change: dict[str, object], says: str) -> None:
    save_history(small(), tmp_path / form)
    file = tmp_path / form / "history.json" if form == "dump" else tmp_path / form
    file.write_text(json.dumps({**json.loads(file.read_text()), **change}))
    with pytest.raises(InputError, match=says):
        load_history(tmp_path / form)


def test_rows_that_were_sorted_are_noticed(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr("fleetsim.history.dump.has_parquet", lambda: False)
    save_history(small(), tmp_path / "dump")
    table = tmp_path / "dump" / "values.csv"
    first, *rows = table.read_text().splitlines()
    table.write_text("\n".join([first, *reversed(rows)]) + "\n")
    with pytest.raises(InputError, match="sorted"):
        load_history(tmp_path / "dump")


@pytest.mark.parametrize("form", FORMS)
def test_a_cut_file_is_refused(tmp_path: Path, form: str) -> None:
    save_history(small(), tmp_path / form)
    files = sorted((tmp_path / form).iterdir()) if form == "dump" else [tmp_path / form]
    for file in files:
        whole = file.read_bytes()
        for part in (0, 1, len(whole) // 2):
            file.write_bytes(whole[:part])
            with pytest.raises(InputError):
                load_history(tmp_path / form)
        file.write_bytes(whole)


def test_a_table_from_elsewhere(tmp_path: Path) -> None:
    lines = ["time,instance,signal,value,le"]
    for k in range(5):
        at = f"2025-11-21T00:00:{15 * k:02d}Z" if k < 4 else "2025-11-21T00:01:00Z"
        lines += [
            f"{at},pod-1,generation_tokens,{100 * k},",
            f"{at},pod-1,vllm:num_requests_running,3,",
            f"{at},,trainer.step_s,20.5,",
            f"{at},pod-1,output_tokens,{k},100",
            f"{at},pod-1,output_tokens,{2 * k},+Inf",
            f"{at},pod-1,output_tokens,{150 * k},sum",
            f"{at},pod-1,colour,1,",
        ]
    path = tmp_path / "mine.csv"
    path.write_text("\n".join(lines) + "\n")
    got = load_history(path)
    assert got.step_s == 15
    assert got.times[0] == 1763683200
    assert [str(i) for i in got.instances] == ["pod-1"]
    assert got.values["generation_tokens"].tolist() == [[0, 100, 200, 300, 400]]
    assert got.values["running"].tolist() == [[3] * 5]
    assert got.fleet["trainer.step_s"].tolist() == [20.5] * 5
    assert got.histograms["output_tokens"].counts[0, -1].tolist() == [4, 8]
    assert got.histograms["output_tokens"].sums[0, -1] == 600
    assert any("colour" in n.text for n in got.notes)


@pytest.mark.parametrize(
    ("text", "says"),
    [
        ("time,signal,value\n1,running,2\n", "instance missing"),
        ("time,instance,signal,value\nsoon,a,running,2\n", "unix seconds or ISO 8601"),
        ("time,instance,signal,value\n1,a,running,two\n", "must be a number"),
        ("time,instance,signal,value\n1,a,runing,2\n", "did you mean running"),
        ("time,instance,signal,value\n,a,running,2\n", "every row needs a time"),
        ("time,instance,signal,value\n1,a,running\n", "3 cells"),
    ],
)
def test_a_wrong_table_is_refused(tmp_path: Path, text: str, says: str) -> None:
    path = tmp_path / "mine.csv"
    path.write_text(text)
    with pytest.raises(InputError, match=says):
        load_history(path)


@settings(max_examples=150, deadline=None)
@given(data=st.data(), form=st.sampled_from(["one.json", "one.csv", "one.parquet", "dump"]))
def test_a_mutated_dump_is_read_or_refused(data: st.DataObject, form: str) -> None:
    with tempfile.TemporaryDirectory() as room:
        path = Path(room) / form
        save_history(small(), path)
        file = data.draw(st.sampled_from(sorted(path.iterdir()))) if form == "dump" else path
        raw = bytearray(file.read_bytes())
        for _ in range(data.draw(st.integers(1, 3))):
            at = data.draw(st.integers(0, len(raw) - 1))
            raw[at : at + data.draw(st.integers(0, 4))] = data.draw(st.binary(max_size=4))
        file.write_bytes(bytes(raw))
        try:
            assert isinstance(load_history(path), History)
        except InputError as error:
            assert all(p.remedy for p in error.problems)
