"""The parent of a measurement, with a child that plays an engine's ways to end."""

from __future__ import annotations

import json
import os
import signal
import stat
import sys
import time
from pathlib import Path
from types import SimpleNamespace
from typing import Any

import pytest

from fleetsim.calibrate.session import ended
from fleetsim.calibrate.vllm import parent
from fleetsim.calibrate.vllm.parent import Spec, diagnose, run_child, telling
from fleetsim.errors import OutsideError

# A "Python" that runs this instead of the module it is told to. Its scenes are engine arguments, one per session.
CHILD = """#!{python}
import json, os, signal, subprocess, sys, time
spec = json.load(open(sys.argv[-1]))
folder = os.path.dirname(spec["raw"])
session = len([n for n in os.listdir(folder) if n.startswith("session")])
open(os.path.join(folder, "session%d" % session), "w").write(json.dumps(spec))
scene = spec["engine_args"]["scenes"][session]
raw = open(spec["raw"], "a", buffering=1)
put = lambda **r: raw.write(json.dumps(r, separators=(",", ":")) + "\\n")
print("INFO 11-21 05:00:00 [core.py:1] starting", flush=True)
if "grandchild" in scene:
    pid = subprocess.Popen([sys.executable, "-c", "import time; time.sleep(600)"]).pid
    open(os.path.join(folder, "grandchild"), "w").write(str(pid))
if "no_vllm" in scene:
    put(t="error", ph="start", err="ModuleNotFoundError: No module named 'vllm'")
    os._exit(3)
if "bad_flag" in scene:
    where = "ERROR 11-21 05:00:01 [arg.py:3] "
    print(where + "Traceback (most recent call last):")
    print(where + "TypeError: EngineArgs got an unexpected keyword argument 'max_num_sequences'", flush=True)
    os._exit(1)
if "killed_early" in scene:
    os.kill(os.getpid(), signal.SIGKILL)
put(t="start", kind="inproc")
for i in range(3):
    lab = dict(B=2 + i, C=256)
    put(t="load", ph="decode", lab=lab, i=i + 1, n=4, left_s=9.0, said=f"{{i + 1}} of 4")
    if "crash" in scene and i == 2:
        os.kill(os.getpid(), signal.SIGSEGV)
    if "oom" in scene and i == 2:
        put(t="error", ph="decode", lab=lab, err="EngineLostError('OutOfMemoryError: CUDA out of memory.')", lost=True)
        put(t="end", seconds=1.0, ran=i, failed=1, left_out=0, lost=True)
        os._exit(4)
    put(t="it", ph="decode", seg=i, lab=lab, c={{}})
    put(t="seg", ph="decode", seg=i, lab=lab, decode_s=0.004, cut=False)
if "hang" in scene:
    open(os.path.join(folder, "hangs"), "w").close()
while "hang" in scene:
    time.sleep(0.05)
put(t="end", seconds=1.0, ran=3, failed=0, left_out=int("left_out" in scene), lost=False)
os._exit(0)
"""


def spec_of(tmp_path: Path, *scenes: str, **options: Any) -> Spec:
    python = tmp_path / "python"
    python.write_text(CHILD.format(python=sys.executable))
    python.chmod(python.stat().st_mode | stat.S_IXUSR)
    return Spec(
        raw=str(tmp_path / "a.raw.jsonl"),
        log=str(tmp_path / "a.log"),
        engine_args={"scenes": list(scenes)},
        python=str(python),
        **{"budget_s": 60.0, **options},
    )


def sessions(tmp_path: Path) -> list[dict[str, Any]]:
    return [json.loads(p.read_text()) for p in sorted(tmp_path.glob("session*"))]


def gone(pid: int) -> bool:
    try:
        os.kill(pid, 0)
    except ProcessLookupError:
        return True
    return Path(f"/proc/{pid}/stat").read_text().split()[2] == "Z" if Path(f"/proc/{pid}").exists() else False


def wait_until_gone(pid: int) -> bool:
    deadline = time.monotonic() + 100
    while time.monotonic() < deadline:
        if gone(pid):
            return True
        time.sleep(0.05)
    return False


def test_progress_is_told_with_a_current_estimate(tmp_path: Path) -> None:
    said: list[str] = []
    outcome = run_child(spec_of(tmp_path, "ok"), tell=said.append)
    assert (outcome.wrong, outcome.loads, outcome.notes) == ("", 3, ())
    assert said[0].startswith("starting vLLM; its output goes to ")
    assert said[-1] == "measured"
    assert len(ended(tmp_path / "a.raw.jsonl")) == 3


def test_half_a_line_waits_for_its_other_half(tmp_path: Path) -> None:
    path = tmp_path / "a.raw.jsonl"
    path.write_bytes(b'{"t":"start"}\n{"t":"seg","ph":"de')
    followed = parent.Followed(path, 0)
    followed.news(print)
    assert followed.all_of("seg") == []
    with path.open("ab") as file:
        file.write(b'code","lab":{}}\n')
    followed.news(print)
    assert len(followed.all_of("seg")) == 1


def test_what_did_not_fit_is_a_note(tmp_path: Path) -> None:
    outcome = run_child(spec_of(tmp_path, "left_out"))
    assert outcome.notes == ("1 load did not fit into the budget; a larger --budget-s, or --resume, runs the rest",)


@pytest.mark.parametrize(
    ("scene", "says"),
    [
        ("no_vllm", r"vLLM is not installed.*pip install 'fleetsim\[gpu\]'.*--url"),
        ("bad_flag", r"refused its arguments.*'max_num_sequences'"),
        ("killed_early", r"killed, most likely because the host ran out of memory"),
    ],
)
def test_an_engine_that_does_not_start_says_why(tmp_path: Path, scene: str, says: str) -> None:
    with pytest.raises(OutsideError, match=says) as caught:
        run_child(spec_of(tmp_path, scene))
    assert caught.value.exit_code == 3
    assert str(tmp_path / "a.log") in str(caught.value)
    assert len(sessions(tmp_path)) == 1, "no second try"


@pytest.mark.parametrize("scene", ["crash", "oom"])
def test_after_a_crash_a_fresh_engine_does_the_rest_once(tmp_path: Path, scene: str) -> None:
    said: list[str] = []
    outcome = run_child(spec_of(tmp_path, scene, "ok"), tell=said.append)
    assert (outcome.wrong, outcome.loads) == ("", 5)
    assert any("a fresh one goes on" in text for text in said)
    assert "one load was left out" in outcome.notes[-1]
    _, second = sessions(tmp_path)
    assert second["resume"]
    assert second["skip"] == ['decode {"B":4,"C":256}'], "not the load that it crashed in"
    assert second["budget_s"] < 60.0


def test_an_engine_that_dies_twice_is_given_up(tmp_path: Path) -> None:
    with pytest.raises(OutsideError, match="died in the middle: out of memory"):
        run_child(spec_of(tmp_path, "crash", "oom", "ok"))
    assert len(sessions(tmp_path)) == 2
    assert len(ended(tmp_path / "a.raw.jsonl")) == 2


def test_a_crash_near_the_end_of_the_budget_ends_it(tmp_path: Path) -> None:
    with pytest.raises(OutsideError, match="SIGSEGV"):
        run_child(spec_of(tmp_path, "crash", "ok", budget_s=5.0))
    assert len(sessions(tmp_path)) == 1


def test_a_child_past_its_time_is_stopped_with_all_that_it_started(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    def later() -> float:
        """The clock of the parent: the budget and its grace are over as soon as the child hangs."""
        return time.monotonic() + (1000.0 if (tmp_path / "hangs").exists() else 0.0)

    monkeypatch.setattr(parent, "time", SimpleNamespace(monotonic=later, sleep=time.sleep))
    with pytest.raises(OutsideError, match="a larger --budget-s"):
        run_child(spec_of(tmp_path, "hang grandchild"))
    assert len(ended(tmp_path / "a.raw.jsonl")) == 3
    assert wait_until_gone(int((tmp_path / "grandchild").read_text()))


def test_an_interrupt_stops_the_child_and_goes_up(tmp_path: Path) -> None:
    def tell(text: str) -> None:
        if text.startswith("3 of") or "measured" in text:
            raise KeyboardInterrupt

    with pytest.raises(KeyboardInterrupt):
        run_child(spec_of(tmp_path, "hang grandchild"), tell=tell)
    assert wait_until_gone(int((tmp_path / "grandchild").read_text()))


def test_a_python_that_is_not_there(tmp_path: Path) -> None:
    spec = Spec(str(tmp_path / "a"), str(tmp_path / "b"), {}, 9.0, python=str(tmp_path / "nothing"))
    with pytest.raises(OutsideError, match="cannot be started"):
        run_child(spec)


@pytest.mark.parametrize(
    ("error", "means"),
    [
        ("ImportError: No module named 'vllm'", "not installed"),
        ("RuntimeError: Failed to infer device type, please set ...", "no GPU was found"),
        ("RuntimeError: No CUDA GPUs are available", "no GPU was found"),
        ("RuntimeError: The NVIDIA driver on your system is too old (found version 11040)", "too old"),
        ("OSError: nosuch/model is not a local folder and is not a valid model identifier listed on 'https://h'",
         "model was not found"),
        ("ValueError: Invalid repository ID or local directory specified: '/none'", "model was not"),
        ("OSError: You are trying to access a gated repo.", "with permission only"),
        ("torch.OutOfMemoryError: CUDA out of memory. Tried to allocate 2 GiB", "out of memory"),
        ("ValueError: Free memory on device cuda:0 (3/139 GiB) on startup is less than desired GPU memory utilization",
         "do not fit"),
        ("ValueError: No available memory for the cache blocks.", "do not fit"),
        ("ValueError: To serve at least one request with the models's max seq len (32768), 8 GiB KV cache is needed, "
         "which is larger than the available KV cache memory", "lower --max-model-len"),
        ("ValidationError: 1 validation error for ModelConfig", "refused its arguments"),
        ("something new", "exit code 7: something new"),
    ],
)  # fmt: skip
def test_every_cause_has_its_remedy(error: str, means: str) -> None:
    assert means in diagnose(error, [], 7)


def test_warnings_in_a_log_are_no_cause() -> None:
    log = ["(Main pid=7) WARNING 11-21 05:00:00 [base.py:380] ValueError: Tokenizer not available when it was skipped"]
    assert diagnose("", log, -signal.SIGKILL).startswith("it was killed")
    assert "refused its arguments" in diagnose("", ["ValueError: block_size must be a multiple of 32"], 1)


def test_the_log_speaks_where_there_was_no_exception() -> None:
    log = [
        "(EngineCore pid=7) INFO 11-21 05:00:00 [core.py:1] fine",
        "Traceback (most recent call last):",
        '  File "a.py", line 3, in <module>',
        "(EngineCore pid=7) ERROR 11-21 05:00:00 [core.py:9] CUDA error: an illegal memory access was encountered",
        "Loading: 100%|####|",
    ]
    assert telling(log) == ["CUDA error: an illegal memory access was encountered"]
    said = diagnose("", log, -signal.SIGABRT)
    assert said == "it ended with SIGABRT: CUDA error: an illegal memory access was encountered"
