"""`watch --log`: a log that grows, in virtual time; verl's lines from a generator of the tests."""

from __future__ import annotations

import re
import signal
import subprocess
import sys
import threading
import time
from collections.abc import Callable
from dataclasses import replace
from itertools import pairwise
from pathlib import Path

import pytest

from fleetsim.config.load import default_scenario
from fleetsim.errors import InputError
from fleetsim.history.run_log import read_run_log
from fleetsim.watch.ask import FleetWatch, log_watch
from fleetsim.watch.run_log import LogWatch, last_part
from fleetsim.watch.watch import WallClock
from tests.history.verl_log import VerlJob, console

STARVED = VerlJob(rate=0.6, window=640, train_s=60.0)
IDLE = VerlJob(rate=4.0, window=192, train_s=60.0)


class Clock:
    """Virtual time: each wait does the next thing to the log, and ends the watch when there is nothing left."""

    def __init__(self, *acts: Callable[[], None]) -> None:
        self._acts = list(acts)

    def now(self) -> float:
        return 0.0

    def wait(self, seconds: float) -> bool:
        if not self._acts:
            return True
        self._acts.pop(0)()
        return False


def _told(path: Path, *acts: Callable[[], None], window_s: float = 900.0) -> list[str]:
    told: list[str] = []
    LogWatch(str(path), window_s, 30.0, default_scenario(), Clock(*acts), told.append).run()
    return told


def _grow(path: Path, job: VerlJob, versions: int, first: int) -> Callable[[], None]:
    def act() -> None:
        with path.open("a") as file:
            file.write(console(job, versions, first=first))

    return act


def _write(path: Path, text: str) -> Callable[[], None]:
    def act() -> None:
        path.write_text(text)

    return act


def test_a_change_is_told_once_two_looks_agree(tmp_path: Path) -> None:
    path = tmp_path / "train.log"
    path.write_text(console(STARVED, 4))
    told = _told(
        path,
        _grow(path, STARVED, 20, 5),
        lambda: None,
        _grow(path, STARVED, 5, 25),
        _grow(path, IDLE, 30, 30),
        _grow(path, IDLE, 5, 60),
        _grow(path, IDLE, 5, 65),
    )
    heads = [line for line in told if not line.startswith("  ")]
    assert len(heads) == 3, told
    assert heads[0] == "4 steps so far: a verdict needs 10"
    assert heads[1].startswith("step 24: verdict: 107 s a step: 60 s update")
    assert heads[2].startswith("step 64: the verdict changed: 64 s a step: 60 s update")
    assert any(line.startswith("  next: ") for line in told)
    assert any("a batch is generated in" in line for line in told if line.startswith("  "))


def test_one_odd_look_changes_nothing(tmp_path: Path) -> None:
    path = tmp_path / "train.log"
    path.write_text(console(STARVED, 24))
    told = _told(path, _grow(path, IDLE, 12, 25), _grow(path, STARVED, 12, 37), _grow(path, STARVED, 12, 49))
    assert len([line for line in told if "verdict" in line]) == 1


@pytest.mark.parts
@pytest.mark.parametrize(
    ("job", "fault", "window_s", "says"),
    [
        (STARVED, replace(STARVED, sync_s=40.0), 900.0, "weight sync slow"),  # beside a cause that costs more
        (IDLE, replace(IDLE, odd_s=60.0), 900.0, "unexplained time"),
        (IDLE, replace(IDLE, train_s=120.0), 900.0, "trainer slow"),
        (IDLE, replace(IDLE, train_s=120.0, mean=1600.0), 3600.0, "% longer now"),
    ],
)
def test_a_fault_is_told_as_it_comes_and_when_it_is_over(
    tmp_path: Path, job: VerlJob, fault: VerlJob, window_s: float, says: str
) -> None:
    """It stays silent before, and while the fault goes on for far longer than the window."""
    path, few = tmp_path / "train.log", 4
    course = [job] * 10 + [fault] * 20 + [job] * 10
    path.write_text(console(job, 24))
    told = _told(path, *(_grow(path, one, few, 25 + few * i) for i, one in enumerate(course)), window_s=window_s)
    heads = [i for i, line in enumerate(told) if "verdict" in line]
    first, began, over = ("\n".join(told[a:b]) for a, b in pairwise([*heads, len(told)]))
    assert "since step" not in first
    assert says in began
    assert re.search(r"(since|until) step 6\d", began)
    assert "since step" not in over
    _, began_at, over_at = (int(told[i].split()[1].rstrip(":")) for i in heads)
    assert 65 <= began_at <= 65 + 3 * few
    assert 145 <= over_at <= 145 + 4 * few


def test_an_empty_log_is_waited_for(tmp_path: Path) -> None:
    path = tmp_path / "train.log"
    path.write_text("")
    assert _told(path, lambda: None)[0].endswith("is empty: waiting for its first step")


def test_what_cannot_be_read_is_told_once_and_mends(tmp_path: Path) -> None:
    path = tmp_path / "train.jsonl"
    path.write_text("not a log\n")
    good = console(STARVED, 24)
    told = _told(path, _write(path, "not a log yet\n"), _write(path, good))
    assert told[0].startswith("this look failed: ")
    assert any("waiting for samples: in-flight cap" in line for line in told)


def test_the_last_hour_of_steps_and_never_fewer_than_ten(tmp_path: Path) -> None:
    path = tmp_path / "train.log"
    path.write_text(console(STARVED, 40))
    steps = read_run_log(path).steps
    assert steps is not None
    each = float(steps.columns["step_s"][-1])
    assert len(last_part(steps, 20.5 * each)) == pytest.approx(20, abs=1)
    assert len(last_part(steps, 1.0)) == 10
    assert len(last_part(steps, 1e9)) == len(steps)


@pytest.mark.parametrize(
    ("asked", "says"),
    [
        ({"log": ".", "prometheus": "http://localhost:9090"}, "leave it out"),
        ({"log": ".", "every": "0"}, "at least a second"),
        ({"log": ".", "window": "long"}, "no span of time"),
    ],
)
def test_wrong_questions_are_sentences(asked: dict[str, str], says: str) -> None:
    with pytest.raises(InputError, match=says) as error:
        log_watch(FleetWatch(**asked), WallClock(), print)  # type: ignore[arg-type]
    assert all(p.remedy for p in error.value.problems)


def test_the_command_follows_until_it_is_ended(tmp_path: Path) -> None:
    path = tmp_path / "train.log"
    path.write_text(console(STARVED, 24))
    call = [sys.executable, "-m", "fleetsim", "watch", "--log", str(path), "--every", "1s"]
    with subprocess.Popen(call, stderr=subprocess.PIPE, text=True) as running:
        lines: list[str] = []
        reader = threading.Thread(target=lambda: lines.extend(running.stderr or ()))
        reader.start()
        until = time.monotonic() + 120
        while time.monotonic() < until and not any("verdict: " in line for line in lines):
            time.sleep(0.2)
        running.send_signal(signal.SIGTERM)
        assert running.wait(60) == 0
        reader.join(60)
    assert any("waiting for samples: in-flight cap" in line for line in lines), lines
    assert lines[-1].endswith("ended\n")


def test_one_look_is_a_replay(tmp_path: Path) -> None:
    path = tmp_path / "train.log"
    path.write_text(console(STARVED, 4))
    call = [sys.executable, "-m", "fleetsim", "watch", "--log", str(path), "--once"]
    done = subprocess.run(call, capture_output=True, text=True, check=False)
    assert done.returncode == 2
    assert f"fleetsim replay --from {path}" in " ".join(done.stderr.split())
