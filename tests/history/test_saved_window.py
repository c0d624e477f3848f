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
from fleetsim.history.files import read_file
from fleetsim.history.history import Buckets, History, InstanceId, Note, StepLog
from fleetsim.history.long_table import load_long
from fleetsim.history.saved_window import load_history, save_history
from fleetsim.records import replace

from .strategies import facts, histories


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


@settings(max_examples=60, deadline=None)
@given(history=histories())
def test_any_history_reads_back_to_the_bit(history: History) -> None:
    with tempfile.TemporaryDirectory() as room:
        path = Path(room) / "window"
        save_history(history, path)
        assert facts(load_history(path)) == facts(history)
        assert [p.name for p in Path(room).iterdir()] == ["window"]


def test_a_histogram_without_times_is_kept(tmp_path: Path) -> None:
    bare = Buckets(np.array([np.inf]), np.array([]), np.empty((2, 0, 1)), np.empty((2, 0)))
    history = replace(small(), histograms={"output_tokens": bare})
    save_history(history, tmp_path / "x.parquet")
    assert facts(load_history(tmp_path / "x.parquet")) == facts(history)


def test_others_can_read_it(tmp_path: Path) -> None:
    import pyarrow.parquet as pq

    save_history(small(), tmp_path / "x.parquet")
    rows = pq.read_table(tmp_path / "x.parquet").to_pylist()
    assert rows[4] == {
        "signal": "trainer.steps",
        "instance": "",
        "engine": "",
        "le": "",
        "values": [1.0, pytest.approx(np.nan, nan_ok=True), 2.0],
    }
    assert [r["le"] for r in rows if r["signal"] == "output_tokens" and r["instance"] == "b"] == ["1.0", "inf", "sum"]


def test_an_earlier_window_is_replaced_whole(tmp_path: Path) -> None:
    save_history(replace(small(), source="before"), tmp_path / "x.parquet")
    save_history(small(), tmp_path / "x.parquet")
    assert facts(load_history(tmp_path / "x.parquet")) == facts(small())


def test_a_failing_write_leaves_what_was_there(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    save_history(small(), tmp_path / "x.parquet")

    def fail(*_: object, **__: object) -> None:
        raise OSError("disk full")

    monkeypatch.setattr("pyarrow.parquet.write_table", fail)
    with pytest.raises(OutsideError, match="disk full"):
        save_history(replace(small(), source="other"), tmp_path / "x.parquet")
    monkeypatch.undo()
    assert facts(load_history(tmp_path / "x.parquet")) == facts(small())
    assert [p.name for p in tmp_path.iterdir()] == ["x.parquet"]


def test_parquet_without_pyarrow_names_the_extra(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.chdir(tmp_path)  # errors cut long values
    one = Path("one.parquet")
    save_history(small(), one)
    monkeypatch.setattr("importlib.util.find_spec", lambda name: None)
    rule = "Parquet needs pyarrow, which is not installed; pip install 'fleetsim[parquet]'"
    with pytest.raises(OutsideError) as written:
        save_history(small(), Path("two.parquet"))
    assert str(written.value) == f"save: 'two.parquet': {rule}"
    with pytest.raises(OutsideError) as asked:
        read_file(one)
    assert str(asked.value) == f"history: 'one.parquet': {rule}"


def changed(path: Path, **change: object) -> None:
    """The header of a saved window, edited."""
    import pyarrow.parquet as pq

    table = pq.read_table(path)
    header = {**json.loads(table.schema.metadata[b"fleetsim"]), **change}
    pq.write_table(table.replace_schema_metadata({b"fleetsim": json.dumps(header).encode()}), path)


@pytest.mark.parametrize(
    ("change", "says"),
    [
        ({"schema_version": 3}, "reads schema_version 2"),
        ({"kind": "other"}, "no history that fleetsim saved"),
        ({"times": "x"}, "valid list"),
        ({"configs": []}, "2 instances but 0 configs"),
        ({"more": 1}, "damaged"),
        ({"values": ["kv_use"]}, "the dump is damaged"),
        (
            {"histograms": {"output_tokens": {"le": [1], "times": [1]}, "ttft_s": {"le": [1], "times": [2]}}},
            "its histograms have different times",
        ),
    ],
)
def test_a_changed_header_is_refused(tmp_path: Path, change: dict[str, object], says: str) -> None:
    save_history(small(), tmp_path / "x.parquet")
    changed(tmp_path / "x.parquet", **change)
    with pytest.raises(InputError, match=says):
        read_file(tmp_path / "x.parquet")


def test_rows_that_were_sorted_are_noticed(tmp_path: Path) -> None:
    import pyarrow.parquet as pq

    save_history(small(), tmp_path / "x.parquet")
    pq.write_table(pq.read_table(tmp_path / "x.parquet").sort_by([("le", "descending")]), tmp_path / "x.parquet")
    with pytest.raises(InputError, match="sorted"):
        read_file(tmp_path / "x.parquet")


def test_a_cut_file_is_refused(tmp_path: Path) -> None:
    file = tmp_path / "new"
    save_history(small(), file)
    whole = file.read_bytes()
    for part in (0, 1, len(whole) // 2):
        file.write_bytes(whole[:part])
        with pytest.raises(InputError):
            read_file(file)


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
    got = read_file(path)
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
        ("time,instance,signal,value\n1,a,runing,2\n", 'did you mean "running"'),
        ("time,instance,signal,value\n,a,running,2\n", "every row needs a time"),
        ("time,instance,signal,value\n1,a,running\n2,a,running,3\n", "3 cells"),
    ],
)
def test_a_wrong_table_is_refused(tmp_path: Path, text: str, says: str) -> None:
    path = tmp_path / "mine.csv"
    path.write_text(text)
    with pytest.raises(InputError, match=says):
        load_long(path)


@settings(max_examples=150, deadline=None)
@given(data=st.data())
def test_a_mutated_window_is_read_or_refused(data: st.DataObject) -> None:
    with tempfile.TemporaryDirectory() as room:
        file = Path(room) / "new"
        save_history(small(), file)
        raw = bytearray(file.read_bytes())
        for _ in range(data.draw(st.integers(1, 3))):
            at = data.draw(st.integers(0, len(raw) - 1))
            raw[at : at + data.draw(st.integers(0, 4))] = data.draw(st.binary(max_size=4))
        file.write_bytes(bytes(raw))
        try:
            assert isinstance(read_file(file), History)
        except InputError as error:
            assert all(p.remedy for p in error.problems)
