"""Runs of trackers: written by the trackers' own libraries where they are installed, and by hand as these lay them out.

The writers by hand know nothing of fleetsim's readers: records as wandb 0.31 and LevelDB's log format lay them out,
lines as MLflow 3.17 writes them, tables as trackio 0.43 creates them.
"""

from __future__ import annotations

import json
import os
import sqlite3
import struct
import subprocess
import sys
import time
from collections.abc import Callable, Mapping
from pathlib import Path
from types import SimpleNamespace

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st

from fleetsim.errors import InputError
from fleetsim.history.files import read_file
from fleetsim.history.history import History
from fleetsim.history.run_log import wanted
from fleetsim.history.tensorboard import read_events

STEPS = 30


def _metrics(step: int) -> dict[str, float]:
    return {"timing_s/step": 60.0 + step % 3, "timing_s/gen": 30.0, "timing_s/update_actor": 20.0, "actor/loss": 0.5}


def _columns(history: History) -> Mapping[str, np.ndarray]:
    assert history.steps is not None
    return history.steps.columns


def _whole(history: History) -> None:
    """What every run of this file says, whoever kept it."""
    columns = _columns(history)
    assert columns["step"].tolist() == list(range(1, STEPS + 1))
    assert columns["step_s"].tolist() == [60.0 + k % 3 for k in range(1, STEPS + 1)]
    assert columns["wait_s"].tolist() == [30.0] * STEPS
    assert columns["train_s"].tolist() == [20.0] * STEPS


# ------------------------------------------------------------------------------------------- written by hand


def _varint(value: int) -> bytes:
    out = b""
    while value >= 0x80:
        out += bytes([value & 0x7F | 0x80])
        value >>= 7
    return out + bytes([value])


def _bytes_field(number: int, data: bytes) -> bytes:
    return _varint(number << 3 | 2) + _varint(len(data)) + data


def _wandb_file(path: Path, rows: list[dict[str, object]]) -> None:
    """Blocks of 32 KiB; a record that does not fit is cut into first, middle and last chunks."""
    out = bytearray(b":W&B" + b"\xe1\xbe\x00")
    room = 32 * 1024
    for k, row in enumerate(rows, 1):
        items = b"".join(
            _bytes_field(1, _bytes_field(2, n.encode()) + _bytes_field(16, json.dumps(v).encode()))
            for n, v in row.items()
        )
        step = _bytes_field(2, b"\x08" + _varint(k))
        data = _varint(1 << 3) + _varint(k) + _bytes_field(2, items + step)
        first = True
        while True:
            left = room - len(out) % room
            if left < 7:
                out += b"\0" * left
                continue
            piece, data = data[: left - 7], data[left - 7 :]
            kind = (1 if not data else 2) if first else (4 if not data else 3)
            out += struct.pack("<IHB", 0, len(piece), kind) + piece
            first = False
            if not data:
                break
    path.write_bytes(bytes(out))


def _by_hand_wandb(folder: Path) -> Path:
    path = folder / "run-abc.wandb"
    rows = [{**_metrics(k), "_timestamp": 1.7e9 + 60.0 * k, "media": "x" * 3000} for k in range(1, STEPS + 1)]
    _wandb_file(path, rows)
    return path


def _by_hand_mlflow(folder: Path) -> Path:
    run = folder / "mlruns" / "12" / "f00"
    (run / "metrics" / "timing_s").mkdir(parents=True)
    (run / "meta.yaml").write_text("run_id: f00\n")
    for name in ("timing_s/step", "timing_s/gen", "timing_s/update_actor"):
        lines = [f"{1_700_000_000_000 + 60_000 * k} {_metrics(k)[name]} {k}" for k in range(1, STEPS + 1)]
        (run / "metrics" / name).write_text("\n".join(lines) + "\n")
    return folder / "mlruns"


def _by_hand_mlflow_database(folder: Path) -> Path:
    path = folder / "mlflow.db"
    with sqlite3.connect(path) as base:
        base.execute(
            "CREATE TABLE metrics (key VARCHAR(250) NOT NULL, value FLOAT NOT NULL, timestamp BIGINT NOT NULL, "
            "run_uuid VARCHAR(32) NOT NULL, step BIGINT NOT NULL, is_nan BOOLEAN NOT NULL)"
        )
        for k in range(1, STEPS + 1):
            for name, value in _metrics(k).items():
                base.execute("INSERT INTO metrics VALUES (?, ?, ?, 'f00', ?, 0)", (name, value, 1.7e12 + 60e3 * k, k))
    return path


def _by_hand_trackio(folder: Path) -> Path:
    path = folder / "project.db"
    with sqlite3.connect(path) as base:
        base.execute(
            "CREATE TABLE metrics (id INTEGER PRIMARY KEY AUTOINCREMENT, run_id TEXT NOT NULL, timestamp TEXT NOT NULL,"
            " run_name TEXT NOT NULL, step INTEGER NOT NULL, metrics TEXT NOT NULL)"
        )
        for k in range(1, STEPS + 1):
            at = f"2026-11-22T12:{k:02d}:00.000000+00:00"
            row = ("f00", at, "a", k, json.dumps(_metrics(k)).encode())
            base.execute("INSERT INTO metrics (run_id, timestamp, run_name, step, metrics) VALUES (?, ?, ?, ?, ?)", row)
    return path


@pytest.mark.parametrize(
    "write", [_by_hand_wandb, _by_hand_mlflow, _by_hand_mlflow_database, _by_hand_trackio], ids=lambda w: w.__name__[9:]
)
def test_a_run_is_read_as_its_tracker_lays_it_out(tmp_path: Path, write: Callable[[Path], Path]) -> None:
    history = read_file(write(tmp_path))
    _whole(history)
    assert _columns(history)["time_s"][0] > 1.6e9


# ------------------------------------------------------------------------------------ written by the libraries


def _tensorboard(folder: Path, tags: Mapping[str, float] | None = None) -> Path:
    board = pytest.importorskip("tensorboardX")
    with board.SummaryWriter(str(folder / "runs" / "a")) as writer:
        for k in range(1, STEPS + 1):
            for name, value in (tags or _metrics(k)).items():
                writer.add_scalar(name, value, k, walltime=1.7e9 + 60.0 * k)
            writer.add_histogram("weights", np.arange(10.0), k)
            writer.add_text("sample", "some text", k)
    return folder / "runs"


def test_tensorboard_files_of_their_own_writer(tmp_path: Path) -> None:
    history = read_file(_tensorboard(tmp_path))
    _whole(history)
    assert _columns(history)["time_s"].tolist() == [1.7e9 + 60.0 * k for k in range(1, STEPS + 1)]


def test_tensorboard_files_of_tensorboard_itself(tmp_path: Path) -> None:
    """Its own writer, as torch.utils.tensorboard uses it."""
    _library(
        tmp_path,
        "tensorboard",
        "from tensorboard.compat.proto.event_pb2 import Event\n"
        "from tensorboard.compat.proto.summary_pb2 import Summary\n"
        "from tensorboard.summary.writer.event_file_writer import EventFileWriter\n"
        "writer = EventFileWriter('runs')\n"
        "LOOP\n"
        "    for name, value in m.items():\n"
        "        one = Summary.Value(tag=name, simple_value=value)\n"
        "        writer.add_event(Event(wall_time=1.7e9 + k, step=k, summary=Summary(value=[one])))\n"
        "writer.close()\n",
    )
    _whole(read_file(tmp_path / "runs"))


def test_scalars_that_are_tensors_are_read(tmp_path: Path) -> None:
    """As TensorFlow 2 writes them: summary values with a tensor, by tensorboardX's messages."""
    pytest.importorskip("tensorboardX")
    from tensorboardX import FileWriter
    from tensorboardX.proto import event_pb2, summary_pb2, tensor_pb2

    writer = FileWriter(str(tmp_path))
    for k in range(1, STEPS + 1):
        for name, value in _metrics(k).items():
            tensor = tensor_pb2.TensorProto(dtype=1, float_val=[value])
            one = summary_pb2.Summary.Value(tag=name, tensor=tensor)
            event = event_pb2.Event(wall_time=1.7e9 + k, step=k, summary=summary_pb2.Summary(value=[one]))
            writer.event_writer.add_event(event)
    writer.close()
    _whole(read_file(tmp_path))


def _library(folder: Path, module: str, code: str, **environment: str) -> None:
    """Writes a run in a process of its own: trackers leave threads and settings behind."""
    pytest.importorskip(module, reason=f"SKIPPED: {module} is not installed; pip install -e '.[test]' brings it")
    loop = "".join(
        f"\n    {line}" for line in ["m = {'timing_s/step': 60.0 + k % 3, 'timing_s/gen': 30.0,",
                                     "     'timing_s/update_actor': 20.0, 'actor/loss': float('nan')}"]
    )  # fmt: skip
    text = code.replace("LOOP", f"for k in range(1, {STEPS + 1}):{loop}")
    subprocess.run([sys.executable, "-c", text], check=True, cwd=folder, env={**os.environ, **environment}, timeout=300)


def test_a_local_run_of_wandb(tmp_path: Path) -> None:
    code = (
        "import wandb\nrun = wandb.init(project='p', settings=wandb.Settings(console='off'))\n"
        "LOOP\n    run.log(m, step=k)\nrun.finish()\n"
    )
    _library(tmp_path, "wandb", code, WANDB_MODE="offline", WANDB_DIR=str(tmp_path), WANDB_SILENT="true")
    _whole(read_file(tmp_path))


def test_a_run_of_mlflow(tmp_path: Path) -> None:
    code = (
        "import mlflow\nmlflow.set_tracking_uri('file:mlruns')\nmlflow.start_run()\n"
        "LOOP\n    mlflow.log_metrics(m, step=k)\nmlflow.end_run()\n"
    )
    _library(tmp_path, "mlflow", code, MLFLOW_ALLOW_FILE_STORE="true")
    _whole(read_file(tmp_path / "mlruns"))


def test_a_project_of_trackio(tmp_path: Path) -> None:
    code = "import trackio\ntrackio.init(project='p', name='a')\nLOOP\n    trackio.log(m, step=k)\ntrackio.finish()\n"
    _library(tmp_path, "trackio", code, TRACKIO_DIR=str(tmp_path))
    _whole(read_file(tmp_path / "p.db"))


def test_the_api_of_wandb(monkeypatch: pytest.MonkeyPatch) -> None:
    asked = []

    class Api:
        def __init__(self, overrides: dict[str, str], timeout: int) -> None:
            asked.append(overrides["base_url"])

        def run(self, path: str) -> SimpleNamespace:
            asked.append(path)
            if path != "me/p/abc":
                raise ValueError("run not found")
            rows = [{"_step": k, "_timestamp": 1.7e9 + k, **_metrics(k)} for k in range(1, STEPS + 1)]
            return SimpleNamespace(scan_history=lambda: iter(rows))

    monkeypatch.setitem(sys.modules, "wandb", SimpleNamespace(Api=Api))
    monkeypatch.setenv("NETRC", "/nowhere")
    monkeypatch.delenv("WANDB_API_KEY", raising=False)
    with pytest.raises(InputError, match=r"https:.*wandb.ai/me/p/runs/abc.*wants a key.*set WANDB_API_KEY"):
        read_file("https://wandb.ai/me/p/runs/abc?nw=nwuserme")
    assert not asked
    monkeypatch.setenv("WANDB_API_KEY", "k" * 40)
    for run in (
        "wandb:me/p/abc",
        "https://wandb.ai/me/p/runs/abc?nw=nwuserme",
        "https://wandb.ours.org/me/p/runs/abc/x",
    ):
        _whole(read_file(run))
    servers = ["https://api.wandb.ai", "https://api.wandb.ai", "https://wandb.ours.org"]
    assert [one for one in asked if "//" in one] == servers
    with pytest.raises(InputError, match=r"run not found.*someone who may read it"):
        read_file("wandb:me/p/other")
    monkeypatch.setitem(sys.modules, "wandb", None)
    with pytest.raises(InputError, match="needs wandb"):
        read_file("wandb:me/p/abc")


# ------------------------------------------------------------------------------------------- what goes wrong


def test_prefixes_and_other_names_match_and_are_said(tmp_path: Path) -> None:
    tags = {"job7/timing_s/step": 60.0, "job7/timing_s/gen": 30.0, "mine": 20.0, "eval/timing_s/gen": 1.0}
    history = read_file(_tensorboard(tmp_path, tags), mapping={"train_s": "mine"})
    columns = _columns(history)
    assert (columns["step_s"][0], columns["wait_s"][0], columns["train_s"][0]) == (60.0, 30.0, 20.0)
    assert any("timing_s/step as job7/timing_s/step" in n.text for n in history.notes)


def test_a_cut_event_file_is_read_up_to_there(tmp_path: Path) -> None:
    folder = _tensorboard(tmp_path)
    path = next(folder.rglob("*tfevents*"))
    path.write_bytes(path.read_bytes()[: -path.stat().st_size // 2])
    history = read_file(folder)
    assert 3 < len(_columns(history)["step"]) < STEPS
    assert any(n.kind == "truncated" and "cut short at byte" in n.text for n in history.notes)


def test_a_cut_wandb_file_is_read_up_to_there(tmp_path: Path) -> None:
    path = _by_hand_wandb(tmp_path)
    path.write_bytes(path.read_bytes()[: path.stat().st_size // 2])
    history = read_file(path)
    assert 3 < len(_columns(history)["step"]) < STEPS
    assert any(n.kind == "truncated" for n in history.notes)


def test_two_runs_are_not_mixed(tmp_path: Path) -> None:
    path = _by_hand_trackio(tmp_path)
    with sqlite3.connect(path) as base:
        base.execute(
            "INSERT INTO metrics (run_id, timestamp, run_name, step, metrics) "
            "VALUES ('g', '2026-11-22T12:00:00+00:00', 'b', 1, '{}')"
        )
    with pytest.raises(InputError, match=r"holds 2 runs.*project\.db#RUN, of a, b"):
        read_file(path)
    _whole(read_file(f"{path}#a"))
    with pytest.raises(InputError, match="has no such run; its runs: a, b"):
        read_file(f"{path}#c")


def test_scalars_that_tensorboard_s_page_saved(tmp_path: Path) -> None:
    """A file a scalar, each with a thousand points at most; the browser has put "_" for "/" and ":"."""
    for name, value in _metrics(1).items():
        points = [f"{1.7e9 + 60 * k},{k},{_metrics(k).get(name, value)}" for k in range(1, STEPS + 1)]
        tag = name.replace("/", "_").replace(":", "_")
        (tmp_path / f"run-exp_1-tag-{tag}.csv").write_text("\n".join(["Wall time,Step,Value", *points, "1.7e9,6"]))
    _whole(read_file(tmp_path))
    alone = read_file(tmp_path / "run-exp_1-tag-timing_s_step.csv").steps
    assert alone is not None
    assert set(alone.columns) == {"step", "time_s", "step_s"}
    (tmp_path / "run-other-tag-timing_s_step.csv").write_text("Wall time,Step,Value\n1.7e9,1,3.0\n")
    with pytest.raises(InputError, match="holds 2 runs"):
        read_file(tmp_path)


@pytest.mark.parametrize("cut", [0, 3, 7, 40, 300])
def test_any_broken_file_is_a_sentence(tmp_path: Path, cut: int) -> None:
    random = np.random.default_rng(cut)
    writers = [_by_hand_wandb, _by_hand_mlflow_database, _by_hand_trackio, _tensorboard]
    for k, write in enumerate(writers):
        room = tmp_path / str(k)
        room.mkdir()
        path = write(room)
        if path.is_dir():
            path = next(path.rglob("*tfevents*"))
        data = bytearray(path.read_bytes()[:cut] if cut < 100 else path.read_bytes())
        if cut >= 100:
            for at in random.integers(100, len(data), cut):
                data[at] = int(random.integers(0, 256))
        path.write_bytes(bytes(data))
        try:
            history = read_file(path)
        except InputError as error:
            assert all(p.remedy for p in error.problems)
        else:
            assert history.steps is not None


def test_a_database_of_something_else_is_said(tmp_path: Path) -> None:
    path = tmp_path / "mail.db"
    with sqlite3.connect(path) as base:
        base.execute("CREATE TABLE letters (text TEXT)")
    with pytest.raises(InputError, match="neither MLflow nor trackio"):
        read_file(path)


def test_event_files_are_read_at_many_megabytes_a_second(tmp_path: Path) -> None:
    """Measured in processor time, against the file's size: a record as the library writes it, many times."""
    folder = _tensorboard(tmp_path)
    path = next(folder.rglob("*tfevents*"))
    head = path.read_bytes()
    path.write_bytes(head + _plain_event("timing_s/step", 3.0) * 600_000)
    began = time.process_time()
    table, notes = read_events([path], wanted({}))
    assert not notes
    assert len(table) == STEPS + 1
    assert path.stat().st_size / (time.process_time() - began) > 40e6  # of a machine that others use, too


@given(
    tags=st.lists(st.sampled_from(["timing_s/step", "timing_s/gen", "actor/loss", "other"]), min_size=1, max_size=6),
    blocks=st.lists(st.tuples(st.integers(1, 40), st.booleans(), st.booleans()), min_size=1, max_size=5),
    first=st.sampled_from([1, 120, 16_370]),
)
def test_steps_that_repeat_are_read_as_one_by_one(
    tmp_path_factory: pytest.TempPathFactory, tags: list[str], blocks: list[tuple[int, bool, bool]], first: int
) -> None:
    """Runs of equal steps, of numbers that grow by a byte, with evaluations, pictures and cut steps between them."""
    kept: dict[str, dict[int, float]] = {"timing_s/step": {}, "timing_s/gen": {}}
    data, step, value = _record(b"\x09" + struct.pack("<d", 1.7e9) + _bytes_field(3, b"brain.Event:2")), first, 0.0
    for steps, evaluated, cut in blocks:
        for _ in range(steps):
            for tag in tags:
                value += 1.0
                data += _plain_event(tag, value, step, 1.7e9 + step)
                if tag in kept:
                    kept[tag][step] = value
            step += 1
        data += _plain_event("eval/score", 0.5, step) if evaluated else b""
        data += (
            _record(b"\x09" + struct.pack("<d", 1.7e9) + _bytes_field(3, b"a picture")) if evaluated and cut else b""
        )
        if cut:
            value += 1.0
            data += _plain_event(tags[-1], value, step, 1.7e9 + step)
            kept.get(tags[-1], {})[step] = value
            step += 1
    path = tmp_path_factory.mktemp("events") / "events.out.tfevents.1"
    path.write_bytes(data)
    table, notes = read_events([path], lambda name: name in kept)
    assert not notes
    for tag, values in kept.items():
        read = dict(zip(table.column("step"), table.column(tag), strict=True))
        assert {s: v for s, v in read.items() if v == v} == values
    stamps = table.column("_timestamp")
    assert not len(table) or stamps.tolist() == [1.7e9 + s for s in table.column("step")]


def _record(event: bytes) -> bytes:
    return struct.pack("<Q", len(event)) + b"\0" * 4 + event + b"\0" * 4


def _plain_event(tag: str, value: float, step: int = 77, time_s: float = 1.7e9) -> bytes:
    one = _bytes_field(1, _bytes_field(1, tag.encode()) + b"\x15" + struct.pack("<f", value))
    return _record(b"\x09" + struct.pack("<d", time_s) + b"\x10" + _varint(step) + _bytes_field(5, one))
