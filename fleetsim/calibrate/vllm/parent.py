"""The parent of a measurement: starts the process that holds the engine, follows it, says how and why it ended.

The child's only output is the raw file (and the engine's log), appended line by line: whatever happens to it, what it
measured is there.
"""

from __future__ import annotations

import contextlib
import json
import os
import re
import signal
import subprocess
import sys
import tempfile
import time
from collections.abc import Callable, Mapping
from pathlib import Path
from typing import Any

from msgspec import Struct, field

from fleetsim import units
from fleetsim.calibrate.loads import key_of
from fleetsim.errors import OutsideError
from fleetsim.files import reason, unwritten
from fleetsim.records import as_dict, replace

MODULE = "fleetsim.calibrate.vllm.child"
POLL_S = 0.2
GRACE_S = 15.0  # past the budget before the child is stopped
STOP_S = 5.0  # between asking it to stop and killing it
NOT_STARTED = 3  # the child's exit code
LOG_BYTES = 1 << 16

Tell = Callable[[str], None]


class Spec(Struct, frozen=True):
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


class MeasurementOutcome(Struct, frozen=True):
    """How a measurement ended. wrong: why the engine did not come up, or died, with the remedy; empty where it did
    neither. said: what else a user should know.

    loads: that ended in this run. left_out, failed: loads that did not fit into the budget, or raised. start_s: what
    it took to come up, None where no engine did. crashed: the key of the load in which it was lost.
    """

    wrong: str = ""
    said: str = ""
    loads: int = 0
    left_out: int = 0
    failed: int = 0
    start_s: float | None = None
    crashed: tuple[str, ...] = ()

    @property
    def notes(self) -> tuple[str, ...]:
        """What a user should know though it went well."""
        found = []
        if self.left_out:
            found.append(
                f"{units.plural(self.left_out, 'load')} did not fit into the budget; a larger --budget-s, "
                "or --resume, runs the rest"
            )
        if self.failed:
            found.append(f"{units.plural(self.failed, 'load')} failed, left out; the raw measurements say why")
        return (*found, *([self.said] if self.said else []))


class Followed(Struct):
    """What the raw file said since the follower began, without its iterations."""

    path: Path
    offset: int
    records: list[dict[str, Any]] = field(default_factory=list)

    def news(self, tell: Tell) -> None:
        """Reads on; the last of what is new is told."""
        try:
            with self.path.open("rb") as file:
                file.seek(self.offset)
                text = file.read()
        except OSError:
            return
        self.offset += (whole := text.rfind(b"\n") + 1)
        new: list[dict[str, Any]] = []
        for line in text[:whole].splitlines():
            if not line.startswith(b'{"t":"it"'):
                with contextlib.suppress(ValueError):
                    new.append(json.loads(line))
        self.records += new
        if said := [words for record in new if (words := _words(record))]:
            tell(said[-1])

    def all_of(self, kind: str) -> list[dict[str, Any]]:
        """The records of a kind."""
        return [record for record in self.records if record.get("t") == kind]


def _words(record: Mapping[str, Any]) -> str | None:
    """What a record says of how far the measurement is."""
    kind, lost = record.get("t"), record.get("lost")
    if kind == "load":
        return str(record["said"])
    if kind == "error" and not lost and record.get("ph") != "start":
        return f"a load failed and is left out: {str(record.get('err', ''))[:200]}"
    return "measured" if kind == "end" and not lost else None


def run_child(spec: Spec, *, tell: Tell = lambda text: None) -> MeasurementOutcome:
    """Measures in a process of its own, to the end of the budget at most. Whatever was measured is in spec.raw.

    After a crash in the middle a fresh engine does the rest once, without the load that it crashed in. Raises
    OutsideError where no engine came up or the last one died; a keyboard interrupt stops the child and goes up.
    """
    begin = time.monotonic()
    outcome = first = _once(spec, tell)
    left_s = spec.budget_s - (time.monotonic() - begin)
    if first.wrong and first.start_s is not None and left_s >= 2.0 * first.start_s + 10.0:
        why = first.wrong.partition("\n")[0]
        tell(f"the engine was lost ({why[:200]}); a fresh one goes on")
        second = _once(replace(spec, budget_s=left_s, resume=True, skip=spec.skip + first.crashed), tell)
        counts = {"loads": first.loads + second.loads, "failed": first.failed + second.failed}
        outcome = replace(second, **counts, said=f"one load was left out, the engine was lost in it: {why}")
    if outcome.wrong:
        raise OutsideError(outcome.wrong)
    return outcome


def _once(spec: Spec, tell: Tell) -> MeasurementOutcome:
    raw = Path(spec.raw)
    followed = Followed(raw, raw.stat().st_size if raw.exists() else 0)
    tell(f"starting vLLM; its output goes to {spec.log}")
    try:
        log = open(spec.log, "ab")  # noqa: SIM115 - closed below, after the child
    except OSError as error:
        raise unwritten(spec.log, error) from None
    log_from = log.tell()
    stopped = False
    with log, tempfile.TemporaryDirectory() as folder:
        path = Path(folder, "spec.json")
        path.write_text(json.dumps(as_dict(spec), default=str))
        child = _start([spec.python, "-u", "-m", MODULE, str(path)], log)
        end_at = time.monotonic() + spec.budget_s + GRACE_S
        try:
            while child.poll() is None:
                followed.news(tell)
                if time.monotonic() > end_at:
                    stopped = True
                    break
                time.sleep(POLL_S)
        finally:
            stop(child)
        followed.news(tell)
    return _outcome(spec, followed, child.returncode, stopped, log_from)


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
    log: list[str] = []
    with contextlib.suppress(OSError), open(spec.log, "rb") as file:
        file.seek(max(log_from, os.fstat(file.fileno()).st_size - LOG_BYTES))
        log = file.read().decode(errors="replace").splitlines()
    starts, ends, errors = (followed.all_of(kind) for kind in ("start", "end", "error"))
    end, error = ends[-1] if ends else {}, str(errors[-1].get("err", "")) if errors else ""
    # What was begun last is the load that it was lost in, unless it ended or failed by itself.
    done = (r for r in followed.records if (r.get("t") == "seg" and r.get("ph") != "warmup") or _words(r))
    last = next((r for r in reversed([*done]) if r["t"] != "end"), {})
    wrong = ""
    if code and stopped:
        over = f"{spec.budget_s:.0f} s and {GRACE_S:.0f} s of grace"
        wrong = f"vLLM was still busy after {over} and was stopped; a larger --budget-s gives it time"
    elif code:
        where = f"; its output is in {spec.log}" if any(line.strip() for line in log) else ""
        how = "died in the middle" if starts else "did not start"
        wrong = f"vLLM {how}: {diagnose(error, log, code)}{where}"
    return MeasurementOutcome(
        "\n".join([wrong, *(f"  | {line}" for line in telling(log))]) if wrong else "",
        loads=sum(r.get("ph") != "warmup" and not r.get("cut") for r in followed.all_of("seg")),
        left_out=int(end.get("left_out", 0)),
        failed=int(end.get("failed", 0)),
        start_s=sum(starts[0].get(name) or 0.0 for name in ("import_s", "init_s")) if starts else None,
        crashed=(key_of(last["ph"], last["lab"]),) if last.get("t") == "load" else (),
    )


# --- Why an engine did not come up, or died: from what it said last, in words, with what to do about it.

SERVER = "or measure a running server with --url"
# How it shows in an exception or a log, what it means, and the remedy. The first that shows counts.
CAUSES = (
    (r"No module named '(vllm|torch)",
     "vLLM is not installed in this Python", f"pip install 'fleetsim[gpu]', {SERVER}"),
    (r"fleetsim needs to record iterations",
     "this release of vLLM is built differently", f"install a tested one, {SERVER}"),
    (r"driver on your system is too old|CUDA driver version is insufficient|forward compatibility was attempted",
     "the NVIDIA driver is too old for this build of PyTorch",
     f"update the driver, or install builds for its CUDA version, {SERVER}"),
    (r"Failed to infer device type|No CUDA GPUs are available|no NVIDIA driver on your system|"
     r"No platform detected|Unexpected platform|Device string must not be empty",
     "no GPU was found", f"run on a GPU box (nvidia-smi must list one), {SERVER}"),
    (r"[Oo]ut ?[Oo]f ?[Mm]emory|Cannot allocate memory|\bMemoryError|std::bad_alloc",
     "out of memory",
     "more GPUs per instance (--tp), a smaller --max-num-batched-tokens, or a lower --gpu-memory-utilization"),
    (r"less than desired GPU memory utilization|[Nn]o available memory for the cache blocks|"
     r"larger than the available KV cache memory|KV cache is needed, which is larger|at least one request with",
     "the model and its KV cache do not fit",
     "end what else runs on the GPU (nvidia-smi), or give a lower --max-model-len, --tp 2 or another "
     "--gpu-memory-utilization"),
    (r"gated repo|GatedRepo|401 Client Error|403 Client Error",
     "the model may be read with permission only",
     "log in (huggingface-cli login), or give a folder with its config.json: dummy weights need no more"),
    (r"RepositoryNotFound|Repository Not Found|not a valid model identifier|Invalid repository ID|HFValidationError|"
     r"Can't load the configuration|does not appear to have a file named config|OfflineModeIsEnabled|"
     r"LocalEntryNotFound|couldn't connect to|Cannot find any model weights|Unrecognized model|"
     r"Repo id must|No such file or directory: '[^']*config\.json|offline mode|does not exist on the Hub",
     "the model was not found", "give a Hugging Face id that this machine can reach, or a folder with a config.json"),
    (r"unexpected keyword argument|validation errors? for|world size|(Value|Type|Key|NotImplemented)Error",
     "vLLM refused its arguments",
     "change the flag that it names (--engine-arg K=V and the engine's own flags are passed on as they are)"),
)  # fmt: skip


def diagnose(error: str, log: list[str], code: int) -> str:
    """Why it ended, and what to do. error: the exception, if any; log: the last lines; code: exit code."""
    first, *_ = error.strip().splitlines() or [""]
    last = first[:300] or "".join(telling(log, most=1))[-300:]
    for text in (error, "\n".join(telling(log, most=20))):
        for shows, means, remedy in CAUSES:
            if re.search(shows, text):
                return f"{means}: {last}; {remedy}" if last else f"{means}; {remedy}"
    if code in (-signal.SIGKILL, 128 + signal.SIGKILL):
        remedy = "look at the kernel's log (dmesg); a smaller model or fewer workers need less of the host's memory"
        return f"it was killed, most likely because the host ran out of memory; {remedy}"
    how = f"it ended with {signal.Signals(-code).name}" if code < 0 else f"it ended with exit code {code}"
    return f"{how}: {last}" if last else how


def telling(log: list[str], most: int = 5) -> list[str]:
    """The lines of a log that tell of an error: no frames of a traceback, no progress bars, no plain information."""
    found = []
    for line in log:
        text = re.sub(r"^\(.*? pid=\d+\)\s*", "", line.rstrip()).strip()
        if re.match(r"(?:[\w.]+(?:Error|Exception|Interrupt|Exit)\b|ERROR\b|Fatal|Segmentation|Killed|Aborted)", text):
            text = re.sub(r"^ERROR [\d-]+ [\d:]+ \[[^\]]*\]\s*", "", text)
            if text and not text.startswith(("File ", "Traceback", "^", "~")):
                found.append(text)
    return list(dict.fromkeys(found))[-most:]
