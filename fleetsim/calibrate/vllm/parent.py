"""The parent of a measurement: starts the process that holds the engine, follows it, stops it, says how it ended.

The child's only output is the raw file (and the engine's log), appended line by line: whatever happens to it, what it
measured is there.
"""

from __future__ import annotations

import contextlib
import json
import os
import signal
import subprocess
import sys
import tempfile
import time
from collections.abc import Callable
from dataclasses import asdict, dataclass, replace
from pathlib import Path
from typing import Any

from fleetsim.calibrate.loads import key_of
from fleetsim.calibrate.vllm.failures import End, diagnose, telling
from fleetsim.errors import OutsideError
from fleetsim.files import reason, unwritten

MODULE = "fleetsim.calibrate.vllm.child"
POLL_S = 0.2
GRACE_S = 15.0  # past the budget before the child is stopped
STOP_S = 5.0  # between asking it to stop and killing it
NOT_STARTED = 3  # the child's exit code
LOG_BYTES = 1 << 16

Tell = Callable[[str], None]


@dataclass(frozen=True, slots=True)
class Spec:
    """What the child is to do. raw: the file it appends to. budget_s: for everything, its start included.

    resume: leave out what the raw file says has ended. skip: keys of loads to leave out besides (loads.key_of).
    """

    raw: str
    log: str
    engine_args: dict[str, Any]
    budget_s: float
    quick: bool = False
    seed: int = 0
    resume: bool = False
    measure_sync: bool = False
    skip: tuple[str, ...] = ()
    python: str = sys.executable


@dataclass(frozen=True, slots=True)
class MeasurementOutcome:
    """How a measurement ended. said: in words, with the remedy, empty where all went well.

    loads: that ended in this run. left_out, failed: loads that did not fit into the budget, or raised. lines: the last
    telling lines of the engine's log. started: whether an engine came up.
    """

    end: End
    said: str = ""
    loads: int = 0
    left_out: int = 0
    failed: int = 0
    lines: tuple[str, ...] = ()
    started: bool = False

    @property
    def notes(self) -> tuple[str, ...]:
        """What a user should know though it went well."""
        found = []
        if self.left_out:
            found.append(
                f"{self.left_out} loads did not fit into the budget; a larger --budget-s, or --resume, runs them"
            )
        if self.failed:
            found.append(f"{self.failed} loads failed and are left out; the raw measurements say why")
        return (*found, *([self.said] if self.said else []))


class EngineFailedError(OutsideError):
    """No engine came up, or it died: says why and what to do. outcome: the same as data."""

    def __init__(self, outcome: MeasurementOutcome) -> None:
        self.outcome = outcome
        super().__init__("\n".join([outcome.said, *(f"  | {line}" for line in outcome.lines)]))


@dataclass(slots=True)
class Followed:
    """What the raw file said since the follower began."""

    path: Path
    offset: int
    loads: int = 0
    error: str = ""
    current: dict[str, Any] | None = None
    ended: dict[str, Any] | None = None
    started_s: float | None = None

    def news(self) -> str | None:
        """Reads on; returns what is new in words, None where nothing is."""
        try:
            with self.path.open("rb") as file:
                file.seek(self.offset)
                text = file.read()
        except OSError:
            return None
        whole = text.rfind(b"\n") + 1
        self.offset += whole
        said = None
        for line in text[:whole].splitlines():
            if not line.startswith(b'{"t":"it"'):
                said = self._take(line) or said
        return said

    def _take(self, line: bytes) -> str | None:
        try:
            record = json.loads(line)
        except ValueError:
            return None
        kind = record.get("t")
        if kind == "start":
            self.started_s = time.monotonic()
        elif kind == "load":
            self.current = record
            return str(record["said"])
        elif kind == "seg" and record.get("ph") != "warmup":
            self.current = None
            self.loads += not record.get("cut")
        elif kind == "error":
            self.error = str(record.get("err", ""))
            if not record.get("lost") and record.get("ph") != "start":
                self.current = None
                return f"a load failed and is left out: {self.error[:200]}"
        elif kind == "end":
            self.ended = record
            return "measured" if not record.get("lost") else None
        return None


def run_child(spec: Spec, *, tell: Tell = lambda text: None) -> MeasurementOutcome:
    """Measures in a process of its own, to the end of the budget at most. Whatever was measured is in spec.raw.

    After a crash in the middle a fresh engine does the rest once, without the load that it crashed in. Raises
    EngineFailedError where no engine came up or the last one died; a keyboard interrupt stops the child and goes up.
    """
    outcome = _with_restart(spec, tell)
    if outcome.end is not End.OK:
        raise EngineFailedError(outcome)
    return outcome


def _with_restart(spec: Spec, tell: Tell) -> MeasurementOutcome:
    begin = time.monotonic()
    first, followed = _once(spec, tell)
    took_s = time.monotonic() - begin
    if first.end is End.OK or not first.started:
        return first
    start_s = (followed.started_s or begin) - begin
    left_s = spec.budget_s - took_s
    if left_s < 2.0 * start_s + 10.0:
        return first
    tell(f"the engine was lost ({first.said[:200]}); a fresh one goes on")
    crashed = (key_of(followed.current["ph"], followed.current["lab"]),) if followed.current else ()
    second, _ = _once(replace(spec, budget_s=left_s, resume=True, skip=spec.skip + crashed), tell)
    return replace(
        second,
        loads=first.loads + second.loads,
        failed=first.failed + second.failed,
        started=True,
        said=second.said or f"one load was left out, the engine was lost in it: {first.said}",
    )


def _once(spec: Spec, tell: Tell) -> tuple[MeasurementOutcome, Followed]:
    raw = Path(spec.raw)
    followed = Followed(raw, raw.stat().st_size if raw.exists() else 0)
    tell(f"starting vLLM; its output goes to {spec.log}")
    try:
        log = open(spec.log, "ab")  # noqa: SIM115 - closed below, after the child
    except OSError as error:
        raise unwritten(spec.log, error) from None
    log_from = log.tell()
    stopped = False

    def pass_on() -> None:
        if said := followed.news():
            tell(said)

    with log, tempfile.TemporaryDirectory() as folder:
        path = Path(folder, "spec.json")
        path.write_text(json.dumps(asdict(spec), default=str))
        child = _start([spec.python, "-u", "-m", MODULE, str(path)], log)
        end_at = time.monotonic() + spec.budget_s + GRACE_S
        try:
            while child.poll() is None:
                pass_on()
                if time.monotonic() > end_at:
                    stopped = True
                    break
                time.sleep(POLL_S)
        finally:
            stop(child)
        pass_on()
    return _outcome(spec, followed, child.returncode, stopped, log_from), followed


def _start(command: list[str], log: Any) -> subprocess.Popen[bytes]:
    package_root = str(Path(__file__).resolve().parents[3])  # fleetsim need not be installed beside vLLM
    paths = [package_root, *filter(None, [os.environ.get("PYTHONPATH")])]
    environment = {**os.environ, "PYTHONPATH": os.pathsep.join(paths), "PYTHONUNBUFFERED": "1"}
    streams = {"stdin": subprocess.DEVNULL, "stdout": log, "stderr": subprocess.STDOUT}
    try:
        # A session of its own: the engine's workers are in its process group and end with it; Ctrl-C reaches us only.
        return subprocess.Popen(command, env=environment, start_new_session=True, **streams)
    except OSError as error:
        raise OutsideError(f"{command[0]!r}: cannot be started: {reason(error)}") from None


def stop(child: subprocess.Popen[bytes]) -> None:
    """Ends the child and all that it started: asks first, so that it writes what it has, and kills after STOP_S."""
    if child.poll() is None:
        child.terminate()
        with contextlib.suppress(subprocess.TimeoutExpired):
            child.wait(STOP_S)
    with contextlib.suppress(ProcessLookupError, PermissionError):  # where the group is empty already
        os.killpg(child.pid, signal.SIGKILL)
    child.wait()


def _outcome(spec: Spec, followed: Followed, code: int, stopped: bool, log_from: int) -> MeasurementOutcome:
    log = _tail(Path(spec.log), log_from)
    end = followed.ended or {}
    common: dict[str, Any] = {
        "loads": followed.loads,
        "left_out": int(end.get("left_out", 0)),
        "failed": int(end.get("failed", 0)),
        "lines": tuple(telling(log)),
        "started": followed.started_s is not None,
    }
    if code == 0:
        return MeasurementOutcome(End.OK, **common)
    if stopped:
        over = f"{spec.budget_s:.0f} s and {GRACE_S:.0f} s of grace"
        said = f"vLLM was still busy after {over} and was stopped; a larger --budget-s gives it time"
        return MeasurementOutcome(End.DIED if common["started"] else End.NOT_STARTED, said, **common)
    kind, said = diagnose(followed.error, log, code)
    where = f"; its output is in {spec.log}" if any(line.strip() for line in log) else ""
    if not common["started"]:
        kind = End.NOT_STARTED if kind is End.DIED else kind
        said = f"vLLM did not start: {said}{where}"
    else:
        kind = End.DIED if kind is End.NOT_STARTED else kind
        said = f"vLLM died in the middle: {said}{where}"
    return MeasurementOutcome(kind, said, **common)


def _tail(path: Path, start: int) -> list[str]:
    try:
        with path.open("rb") as file:
            file.seek(max(start, path.stat().st_size - LOG_BYTES))
            return file.read().decode(errors="replace").splitlines()
    except OSError:
        return []
