"""Any file is told by what is in it, whatever its name; a mutated one is read or refused, never a crash."""

from __future__ import annotations

import gzip
import json
import tempfile
from pathlib import Path

import pyarrow
import pyarrow.parquet
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from fleetsim.errors import InputError
from fleetsim.history.files import form_of, read_file
from fleetsim.history.history import History
from fleetsim.history.saved_window import save_history
from fleetsim.history.wrapped import CUT_ROW

from .strategies import facts
from .test_saved_window import small

OPENMETRICS = "".join(f'vllm:num_requests_running{{pod="a"}} {k} {1.7e9 + 15 * k}\n' for k in range(4)) + "# EOF\n"
VERL = [{"step": k, "timing_s/step": 10.0, "timing_s/gen": 4.0} for k in (1, 2, 3)]
TEXTS = {
    "openmetrics": OPENMETRICS,
    "with types": "# TYPE vllm:num_requests_running gauge\n" + OPENMETRICS,
    "tsdb dump": "".join(
        f'{{__name__="vllm:num_requests_running", instance="a"}} {k} {1700000000000 + 15000 * k}\n' for k in range(4)
    ),
    "jsonl": "".join(json.dumps(row) + "\n" for row in VERL),
    "json": json.dumps(VERL, indent=1),
    "csv": "Step,timing_s/step,timing_s/gen\n1,10,4\n2,10,4\n",
    "console": "hello\n" + "".join(f"step:{k} - timing_s/step:10.0 - timing_s/gen:4\n" for k in (1, 2)),
    "table": "time,instance,signal,value\n" + "".join(f"{1.7e9 + 15 * k},a,running,{k}\n" for k in range(4)),
}  # fmt: skip
STEPS = {"jsonl", "json", "csv", "console"}


@pytest.mark.parametrize("form", TEXTS)
@pytest.mark.parametrize("packed", [False, True])
def test_the_form_is_told_by_the_content(tmp_path: Path, form: str, packed: bool) -> None:
    path = tmp_path / "history.dat"
    raw = TEXTS[form].encode()
    path.write_bytes(gzip.compress(raw) if packed else raw)
    got = read_file(path)
    if form in STEPS:
        assert got.steps is not None
        assert got.steps.columns["wait_s"][0] == 4
    else:
        assert "running" in got.values


@pytest.mark.parametrize("form", ["csv", "table"])
def test_a_table_that_ends_in_a_row_is_read_up_to_there(tmp_path: Path, form: str) -> None:
    path = tmp_path / "cut.csv"
    path.write_text(TEXTS[form][:-3])
    whole, got = _read(tmp_path, form), read_file(path)
    assert [note.text for note in got.notes if note.kind == "truncated"] == [CUT_ROW.text]
    if form == "csv":
        assert whole.steps is not None
        assert got.steps is not None
        assert got.steps.columns["step"].tolist() == whole.steps.columns["step"].tolist()[:-1]
    else:
        assert got.values["running"].tolist() == whole.values["running"][..., :-1].tolist()


def _read(folder: Path, form: str) -> History:
    (folder / form).write_text(TEXTS[form])
    return read_file(folder / form)


def test_a_step_log_in_parquet_is_one(tmp_path: Path) -> None:
    """As Weights & Biases keeps a run's history: a row a step, null where it says nothing, texts beside the numbers."""
    rows = [{"_step": k, "timing_s/step": 10.0, "timing_s/gen": 4.0 if k > 1 else None, "host": "a"} for k in (1, 2)]
    pyarrow.parquet.write_table(pyarrow.Table.from_pylist(rows), tmp_path / "history.parquet")
    got = read_file(tmp_path / "history.parquet").steps
    assert got is not None
    assert got.framework == "verl"
    assert got.columns["wait_s"].tolist() == pytest.approx([float("nan"), 4.0], nan_ok=True)


@pytest.mark.parametrize("turns", [("2", "1.gz", ""), ("20260801", "20260802.gz", "")])
def test_a_folder_of_one_log_is_read_over_its_turns(tmp_path: Path, turns: tuple[str, ...]) -> None:
    """Of logrotate with numbers, which count backwards, or with days; the turn may fall into a line."""
    console = "".join(f"step:{k} - timing_s/step:10.0 - timing_s/gen:{k}\n" for k in range(1, 10))
    for turn, start in zip(turns, (0, 130, 260), strict=True):
        end = None if start == 260 else start + 130
        raw = console[start:end].encode()
        path = tmp_path / ".".join(filter(None, ("train.log", turn)))
        path.write_bytes(gzip.compress(raw) if turn.endswith("gz") else raw)
    (tmp_path / "train.err").touch()  # which says nothing
    got = read_file(tmp_path).steps
    assert got is not None
    assert got.columns["wait_s"].tolist() == list(range(1, 10))
    (tmp_path / "other").mkdir()
    (tmp_path / "other" / "metrics.jsonl").write_text(TEXTS["jsonl"])
    with pytest.raises(InputError, match=r"2 logs in it: other/metrics\.jsonl, train\.log; give one of them"):
        read_file(tmp_path)


def test_a_saved_window_is_found_under_any_name(tmp_path: Path) -> None:
    save_history(small(), tmp_path / "renamed")
    assert facts(read_file(tmp_path / "renamed")) == facts(small())


def test_a_wrong_path_gets_the_nearest_one(tmp_path: Path) -> None:
    (tmp_path / "run_log.jsonl").write_text(TEXTS["jsonl"])
    with pytest.raises(InputError, match=r"did you mean .*run_log.jsonl\?"):
        read_file(tmp_path / "runlog.jsonl")
    with pytest.raises(InputError, match="there is no directory"):
        read_file(tmp_path / "nowhere" / "x.jsonl")


@pytest.mark.parametrize("raw", [b"", b"\x00\x01\x02\xff" * 50, b"hello world\n", b"\x1f\x8bbroken"])
def test_what_is_no_history_is_refused(tmp_path: Path, raw: bytes) -> None:
    path = tmp_path / "x"
    path.write_bytes(raw)
    assert form_of(path) == "unknown"
    with pytest.raises(InputError, match=r"none of the forms|is empty"):
        read_file(path)


def test_an_empty_directory_says_what_it_lacks(tmp_path: Path) -> None:
    with pytest.raises(InputError, match=r"no run of a tracker and no logs in it: nothing"):
        read_file(tmp_path)


@settings(max_examples=300, deadline=None)
@given(form=st.sampled_from(sorted(TEXTS)), data=st.data())
def test_a_mutated_file_is_read_or_refused(form: str, data: st.DataObject) -> None:
    raw = bytearray(TEXTS[form].encode())
    for _ in range(data.draw(st.integers(1, 4))):
        at = data.draw(st.integers(0, max(0, len(raw) - 1)))
        piece = data.draw(st.binary(max_size=4) | st.sampled_from([b"", b"nan", b"1e999", b'"', b"{", b"\n", b","]))
        raw[at : at + data.draw(st.integers(0, 6))] = piece
    if data.draw(st.booleans()):
        del raw[data.draw(st.integers(0, len(raw))) :]
    with tempfile.TemporaryDirectory() as room:
        path = Path(room) / "history"
        path.write_bytes(bytes(raw))
        try:
            assert isinstance(read_file(path), History)
        except InputError as error:
            assert error.problems
            assert all(p.rule and p.remedy for p in error.problems)


@pytest.mark.parametrize(
    ("name", "text", "says"),
    [
        ("job.yaml", "schema_version: 1\nname: x\nfleet: {instances: 6}\n", "a scenario goes to --scenario"),
        ("README.md", "# A job\n\nIt trains.\nsteps: 4\nIt ends, and so on.\n", "none of the forms"),
        ("log.jsonl", "", "the file is empty"),
    ],
)
def test_what_is_no_history_is_not_taken_for_damaged_openmetrics(
    tmp_path: Path, name: str, text: str, says: str
) -> None:
    (tmp_path / name).write_text(text)
    with pytest.raises(InputError, match=says) as caught:
        read_file(tmp_path / name)
    assert len(caught.value.problems) == 1


def test_a_scenario_that_is_not_there_was_meant_for_another_flag(tmp_path: Path) -> None:
    (tmp_path / "jobs.om").write_text("")
    with pytest.raises(InputError, match="no such file or directory; a scenario goes to --scenario"):
        read_file(tmp_path / "job.yaml")
