"""Lines in what container runtimes, journals and log stores keep of them, and packed files."""

from __future__ import annotations

import bz2
import gzip
import json
import lzma
from collections.abc import Callable
from pathlib import Path

import numpy as np
import pytest

from fleetsim.errors import InputError
from fleetsim.history.files import read_file
from fleetsim.history.wrapped import open_text

_LINE = "step:{} - timing_s/step:60.0 - timing_s/gen:30.0 - timing_s/update_actor:{} - x:" + 300 * "1"
LINES = ["\x1b[36m(A pid=3)\x1b[0m begins", *(_LINE.format(k, 20.0 + k) for k in range(1, 6)), "{'a': 1}", "done"]


def _objects(name: str, **beside: object) -> Callable[[list[str]], str]:
    return lambda lines: "".join(json.dumps({**beside, name: line}) + "\n" for line in lines)


def _docker(lines: list[str]) -> str:
    """json-file: an entry has at most 16 KiB; here 100 characters."""
    parts = [f"{line}\n"[k : k + 100] for line in lines for k in range(0, len(line) + 1, 100)]
    return "".join(json.dumps({"log": p, "stream": "stderr", "time": "2026-11-30T09:00:00Z"}) + "\n" for p in parts)


def _cri(lines: list[str]) -> str:
    out = []
    for line in lines:
        parts = [line[k : k + 100] for k in range(0, len(line), 100)]
        out += [f"2026-11-30T09:00:00.1Z stdout P {p}\n" for p in parts[:-1]]
        out.append(f"2026-11-30T09:00:00.1Z stdout F {parts[-1]}\n")
    return "".join(out)


def _journal(lines: list[str]) -> str:
    """journalctl -o json: every value is a text; a message that is no plain text is a list of its bytes."""
    told = [line if line.isprintable() else list(line.encode()) for line in lines]
    return "".join(json.dumps({"_PID": "3", "PRIORITY": "6", "MESSAGE": message}) + "\n" for message in told)


def _events(lines: list[str]) -> str:
    """aws logs get-log-events."""
    events = [{"timestamp": 1, "ingestionTime": 2, "message": line} for line in lines]
    return json.dumps({"events": events, "nextForwardToken": "f/1"}, indent=4)


CARRIERS: dict[str, Callable[[list[str]], str]] = {
    "Docker": _docker,
    "CRI": _cri,
    "journald": _journal,
    "Loki": _objects("line", labels={"pod": "a"}, timestamp="2026-11-30T09:00:00Z"),
    "CloudWatch": _events,
    "Google Cloud": lambda lines: json.dumps([{"insertId": "a", "textPayload": line} for line in lines], indent=2),
    "Grafana": lambda lines: json.dumps([{"line": line, "fields": {}} for line in lines]),
}


@pytest.mark.parametrize("carrier", CARRIERS)
def test_lines_are_what_they_were(tmp_path: Path, carrier: str) -> None:
    path = tmp_path / "log"
    path.write_text(CARRIERS[carrier](LINES))
    with open_text(path) as file:
        assert list(file) == [f"{line}\n" for line in LINES]
    with open_text(path) as file:
        assert file.read() == "".join(f"{line}\n" for line in LINES)
    steps = read_file(path).steps
    assert steps is not None
    assert steps.columns["train_s"].tolist() == [21, 22, 23, 24, 25]


def test_returns_inside_part_lines(tmp_path: Path) -> None:
    path = tmp_path / "log"
    path.write_text(_objects("log")(["a\r50%|b\r100%|c\n", "d\r\n"]))
    with open_text(path) as file:
        assert list(file) == ["a\n", "50%|b\n", "100%|c\n", "d\n"]


def test_metrics_beside_a_message_are_no_carried_line(tmp_path: Path) -> None:
    path = tmp_path / "log.jsonl"
    row = {
        "message": "step",
        "timing_s/step": 60.0,
        "timing_s/gen": 30.0,
        "timing_s/update_actor": 20.0,
        "a": 1,
        "b": 2,
    }
    path.write_text("".join(json.dumps({"step": k, **row}) + "\n" for k in (1, 2)))
    steps = read_file(path).steps
    assert steps is not None
    assert steps.columns["wait_s"].tolist() == [30, 30]


@pytest.mark.parametrize("pack", [gzip.compress, lzma.compress, bz2.compress])
def test_packed_text_is_unpacked(tmp_path: Path, pack: Callable[[bytes], bytes]) -> None:
    path = tmp_path / "log"
    path.write_bytes(pack(_docker(LINES).encode()))
    with open_text(path) as file:
        assert list(file) == [f"{line}\n" for line in LINES]


@pytest.mark.parametrize("form", ["console", "jsonl", "csv"])
@pytest.mark.parametrize("pack", [gzip.compress, lzma.compress])
def test_a_packed_log_that_was_cut_off_is_read_up_to_there(
    tmp_path: Path, form: str, pack: Callable[[bytes], bytes]
) -> None:
    path, seconds = tmp_path / "train.log.gz", np.random.default_rng(1).uniform(20.0, 40.0, 2000)
    rows = [{"step": k + 1, "timing_s/step": s + 20.0, "timing_s/gen": s} for k, s in enumerate(seconds.tolist())]
    parts = {
        "console": [
            "step:{step} - timing_s/step:{timing_s/step} - timing_s/gen:{timing_s/gen}".format_map(r) for r in rows
        ],
        "jsonl": [json.dumps(row) for row in rows],
        "csv": [",".join(rows[0]), *(",".join(map(str, row.values())) for row in rows)],
    }
    packed = pack(("\n".join(parts[form]) + "\n").encode())
    path.write_bytes(packed[: len(packed) // 2])
    history = read_file(path)
    assert history.steps is not None
    read = history.steps.columns["wait_s"]
    assert 900 < len(read) < 1100
    assert read.tolist() == seconds[: len(read)].tolist()
    assert ["was cut short" in note.text for note in history.notes if note.kind == "truncated"] == [True]
    path.write_bytes(packed[:-8] + bytes(8))  # whole, but not what was packed
    with pytest.raises(InputError):
        read_file(path)


def test_zstd_by_pyarrow(tmp_path: Path) -> None:
    pyarrow = pytest.importorskip("pyarrow")
    path = tmp_path / "log.zst"
    with pyarrow.output_stream(str(path), compression="zstd") as file:
        file.write("\n".join(LINES).encode())
    steps = read_file(path).steps
    assert steps is not None
    assert steps.columns["step"].tolist() == [1, 2, 3, 4, 5]


def test_a_log_without_its_beginning(tmp_path: Path) -> None:
    path = tmp_path / "log.jsonl"
    row = {"timing_s/step": 60.0, "timing_s/gen": 30.0}
    text = "".join(json.dumps({"step": k, **row}) + "\n" for k in range(1, 6))
    path.write_text(text[20:])
    history = read_file(path)
    assert history.steps is not None
    assert history.steps.columns["step"].tolist() == [2, 3, 4, 5]
    assert any("begins in the middle of a line" in note.text for note in history.notes)
