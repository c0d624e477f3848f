"""Runs in other processes: what comes back is what a run here gives, whatever becomes of the process."""

from __future__ import annotations

import os
import select
import signal
import subprocess
import sys
import time
from collections.abc import Iterator
from pathlib import Path

import pytest

import fleetsim as fs
from fleetsim.config.load import with_changes
from fleetsim.config.scenario import Scenario
from fleetsim.errors import StuckError
from fleetsim.job.looks import looked
from fleetsim.job.trials import Memo, simulated
from fleetsim.sim import processes
from fleetsim.sim.threads import side_by_side

linux = pytest.mark.skipif(sys.platform != "linux", reason="PROCESSES ARE FOUND IN /proc: only Linux has it")


def _until(true: object, what: str) -> None:
    """Waits until it is true. Machines are slow and shared: nothing is said about how long that takes."""
    assert callable(true)
    for _ in range(600):
        if true():
            return
        time.sleep(0.1)
    pytest.fail(f"after a minute: not {what}")


# Interpreters that are started, and forks.
_KINDS = [False, pytest.param(True, marks=linux)]


@pytest.fixture(params=_KINDS, ids=["started", "forked"])
def two(monkeypatch: pytest.MonkeyPatch, request: pytest.FixtureRequest) -> Iterator[None]:
    """Two processes beside this one, ready."""
    monkeypatch.setenv(processes.VARIABLE, "3")
    monkeypatch.setattr(processes, "forks", lambda: request.param)
    processes.begin()
    _until(lambda: processes._free.qsize() == 2, "ready")
    yield
    processes.end()
    processes._forgotten()


def _job(name: str = "presets/verl-fully-async") -> Scenario:
    return looked(fs.load(name).scenario)


def _children(of: int) -> list[int]:
    """Processes that are its children, by number."""
    found = []
    for stat in Path("/proc").glob("[0-9]*/stat"):
        try:
            fields = stat.read_text().rpartition(")")[2].split()
        except OSError:
            continue
        if int(fields[1]) == of and fields[0] != "Z":
            found.append(int(stat.parent.name))
    return found


@pytest.mark.usefixtures("two")
@pytest.mark.parametrize("name", ["presets/verl-fully-async", "presets/roll-agentic", "presets/slime-fully-async"])
def test_a_run_elsewhere_is_the_run_here(name: str) -> None:
    """Every metric to the last bit, and what binds."""
    for replication in (0, 3):
        found = processes.elsewhere(_job(name), replication)
        assert found is not None
        here = processes.measured(_job(name), replication)
        assert {k: v for k, v in found.items() if k != "binding"} == {k: v for k, v in here.items() if k != "binding"}
        assert str(found["binding"]) == str(here["binding"])


@pytest.mark.usefixtures("two")
def test_runs_side_by_side_are_made_elsewhere_and_in_order(monkeypatch: pytest.MonkeyPatch) -> None:
    """Results stand in the order of the jobs, and some were not made here."""
    here: list[int] = []

    def made(scenario: Scenario, replication: int) -> object:
        here.append(replication)
        return processes.measured(scenario, replication)

    monkeypatch.setattr("fleetsim.job.trials.measured", made)
    job = _job()
    found = side_by_side(lambda r: simulated(job, r)["step_s"], range(12))
    assert found == [processes.measured(job, r)["step_s"] for r in range(12)]
    assert len(here) < 12


@pytest.mark.usefixtures("two")
def test_a_run_ahead_is_made_elsewhere_and_counts_once_it_is_asked_for(monkeypatch: pytest.MonkeyPatch) -> None:
    """It is the run that would be made here; one that nobody asks for shows nowhere."""
    job, measure = _job(), Memo(simulated)
    expected = processes.measured(job, 0)["step_s"]
    monkeypatch.setattr("fleetsim.job.trials.measured", lambda scenario, replication: pytest.fail("it was made here"))
    measure.ahead(job, 0)
    measure.ahead(job, 1)
    assert measure.trials() == ()
    assert measure(job, 0)["step_s"] == expected
    assert [trial.replications for trial in measure.trials()] == [1]


@pytest.mark.usefixtures("two")
def test_a_run_ahead_whose_process_is_killed_is_made_here() -> None:
    """Nobody waits for it for ever."""
    job, measure = _job(), Memo(simulated)
    measure.ahead(job, 0)
    for process in list(processes._processes):
        process._child.kill()
    assert measure(job, 0)["step_s"] == processes.measured(job, 0)["step_s"]


def test_nothing_runs_ahead_where_there_is_no_process() -> None:
    """It would be made twice, or while something else waits."""
    measure = Memo(simulated)
    measure.ahead(_job(), 0)
    assert not measure._ahead


@pytest.mark.usefixtures("two")
def test_files_are_where_this_process_is_now(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """A scenario names its lengths in a file, from a folder that this process went to later."""
    (tmp_path / "lengths.csv").write_text("tokens\n100\n200\n300\n")
    monkeypatch.chdir(tmp_path)
    law = {"kind": "empirical", "file": "lengths.csv", "column": "tokens"}
    job = with_changes(_job(), {"workload.output_tokens": law}).model_copy()
    here, there = processes.measured(job, 0), processes.elsewhere(job, 0)
    assert there is not None
    assert there["step_s"] == here["step_s"]
    (tmp_path / "lengths.csv").unlink()
    other = with_changes(_job(), {"run.seed": 5}).model_copy(update={"workload": job.workload})
    assert processes.elsewhere(other, 0) is None


@pytest.mark.usefixtures("two")
def test_what_is_raised_there_is_raised_here() -> None:
    """A fleet that gets stuck says so in the same words."""
    spot = {"mean_life_s": 5.0, "mean_absence_s": 5.0, "notice_s": 0.0, "start_s": 0.0}
    stuck = with_changes(_job(), {"engine.instance_tok_s": 60.0, "run.steps": 30, "fleet.spot": {"share": 1.0, **spot}})
    with pytest.raises(StuckError) as here:
        processes.measured(stuck, 0)
    with pytest.raises(StuckError) as there:
        processes.elsewhere(stuck, 0)
    assert str(here.value) == str(there.value)


@pytest.mark.usefixtures("two")
def test_a_process_that_is_killed_costs_no_answer() -> None:
    """Its runs are made by another, and without any here."""
    job = _job()
    expected = [processes.measured(job, r)["step_s"] for r in range(6)]
    processes._processes[0]._child.kill()
    assert side_by_side(lambda r: simulated(job, r)["step_s"], range(6)) == expected
    processes._processes[1]._child.kill()
    assert side_by_side(lambda r: simulated(job, r)["step_s"], range(6)) == expected
    assert processes.elsewhere(job, 0) is None


@pytest.mark.usefixtures("two")
def test_a_child_of_this_process_leaves_them_alone() -> None:
    """Two that write into one pipe would get each other's answers."""
    if not hasattr(os, "fork"):
        pytest.skip("THIS SYSTEM HAS NO fork")
    child = os.fork()
    if child == 0:
        os._exit(0 if not processes.some_free() and not processes._processes else 1)
    assert os.waitpid(child, 0)[1] == 0
    assert processes.elsewhere(_job(), 0) is not None


def test_without_leave_there_are_none(monkeypatch: pytest.MonkeyPatch) -> None:
    """FLEETSIM_PROCESSES=1 is none beside this one; a kernel that is not built would take longer than the runs."""
    monkeypatch.setenv(processes.VARIABLE, "1")
    processes.begin()
    monkeypatch.setenv(processes.VARIABLE, "3")
    monkeypatch.setenv("FLEETSIM_KERNEL", "fresh")
    processes.begin()
    assert not processes._processes
    assert processes.elsewhere(_job(), 0) is None
    Memo(simulated)(_job(), 0)


_BEGUN = """
import threading
from fleetsim.sim import processes
if {beside}:
    threading.Thread(target=threading.Event().wait, daemon=True).start()
processes.begin()
print(*(type(process._child).__name__ for process in processes._processes))
"""


@linux
@pytest.mark.parametrize(("beside", "kind"), [(False, "_Forked"), (True, "Popen")])
def test_only_one_thread_forks(beside: bool, kind: str) -> None:
    """Another may hold a lock that nobody gives back in the child."""
    env = os.environ | {processes.VARIABLE: "3", "OPENBLAS_NUM_THREADS": "1"}
    program = [sys.executable, "-c", _BEGUN.format(beside=beside)]
    assert subprocess.run(program, env=env, capture_output=True, text=True, check=True).stdout.split() == [kind] * 2


@linux
def test_where_there_is_no_room_for_another_runs_are_made_here(monkeypatch: pytest.MonkeyPatch) -> None:
    """And nothing stays open."""

    def refused() -> int:
        raise BlockingIOError(11, "Resource temporarily unavailable")

    monkeypatch.setenv(processes.VARIABLE, "3")
    monkeypatch.setattr(processes, "forks", lambda: True)
    monkeypatch.setattr(os, "fork", refused)
    before = len(os.listdir("/proc/self/fd"))
    processes.begin()
    assert not processes._processes
    assert len(os.listdir("/proc/self/fd")) == before


@linux
def test_what_is_read_of_a_pipe_stays_with_who_asked() -> None:
    """Of a fork, standard input is its jobs, and standard output its answers; the parent's are not touched."""
    script = (
        "import sys; from fleetsim.sim import processes; first = sys.stdin.readline(); processes.begin()\n"
        "import time\nwhile not processes.some_free(): time.sleep(0.01)\n"
        "print(first + sys.stdin.read(), end='')"
    )
    env = os.environ | {processes.VARIABLE: "3", "OPENBLAS_NUM_THREADS": "1"}
    ran = subprocess.run([sys.executable, "-c", script], input="a\nb\n", env=env, capture_output=True, text=True)
    assert (ran.stdout, ran.stderr, ran.returncode) == ("a\nb\n", "", 0)


@pytest.mark.usefixtures("two")
def test_whoever_reads_a_pipe_of_ours_hears_its_end() -> None:
    read, write = os.pipe()
    os.set_inheritable(write, True)
    processes.end()
    processes.begin()
    _until(lambda: processes._free.qsize() >= 2, "ready")
    os.close(write)
    heard, _, _ = select.select([read], [], [], 20)
    assert heard
    assert os.read(read, 1) == b""
    os.close(read)


@pytest.mark.parametrize(("said", "cores"), [("200000 100000", 2), ("50000 100000", 1), ("max 100000", 64), ("", 64)])
def test_a_container_has_the_cores_that_it_is_given(
    monkeypatch: pytest.MonkeyPatch, tmp_path: Path, said: str, cores: int
) -> None:
    """A host of 64 cores gives it two: more processes would take turns."""
    (tmp_path / "cpu.max").write_text(said)
    monkeypatch.setattr(processes, "_QUOTA", tmp_path / "cpu.max")
    monkeypatch.setattr(os, "sched_getaffinity", lambda _: set(range(64)), raising=False)
    assert processes._cores() == cores


def test_one_without_work_ends() -> None:
    """It would keep its memory for nothing."""
    program = "from fleetsim.sim.processes import serve; serve(0.2)"
    ran = subprocess.run(
        [sys.executable, "-c", program], stdin=subprocess.PIPE, stdout=subprocess.PIPE, timeout=60, check=True
    )
    assert ran.stdout in (b"\n", b"")
    with subprocess.Popen([sys.executable, "-c", program], stdin=subprocess.PIPE, stdout=subprocess.PIPE) as idle:
        assert idle.wait(60) == 0
        assert idle.stdout is not None
        assert idle.stdout.read() == b"\n"


# A script as people write them: nothing guards it against being imported again.
_SCRIPT = """
import time
import fleetsim as fs
from fleetsim.sim import processes
print("begun", flush=True)
result = fs.load("presets/verl-one-step-off").size()
while not processes.some_free():
    time.sleep(0.05)
print(result.instances, flush=True)
"""


@linux
@pytest.mark.slow
@pytest.mark.parametrize("end", [None, signal.SIGKILL, signal.SIGTERM])
def test_no_process_outlives_who_began_it(end: signal.Signals | None) -> None:
    """Neither at its end nor when it is killed; and a script runs once."""
    env = os.environ | {processes.VARIABLE: "3"}
    wait = _SCRIPT if end is None else _SCRIPT + "\ntime.sleep(600)"
    with subprocess.Popen([sys.executable, "-c", wait], stdout=subprocess.PIPE, text=True, env=env) as script:
        assert script.stdout is not None
        assert script.stdout.readline() == "begun\n"
        _until(lambda: len(_children(script.pid)) == 2 or script.poll() is not None, "begun")
        children = _children(script.pid)
        if end is None:
            assert int(script.stdout.read()) > 0
        else:
            assert int(script.stdout.readline()) > 0
            script.send_signal(end)
        script.wait(60)
    _until(lambda: not any(Path(f"/proc/{child}").exists() for child in children), "ended")


@linux
@pytest.mark.slow
def test_ctrl_c_ends_a_search_and_its_processes() -> None:
    """The exit code is that of an interrupt, whatever the processes do."""
    env = os.environ | {processes.VARIABLE: "3"}
    command = [sys.executable, "-m", "fleetsim", "plan", "--gpus", "64"]
    with subprocess.Popen(command, stdout=subprocess.PIPE, stderr=subprocess.PIPE, text=True, env=env) as plan:
        _until(lambda: len(_children(plan.pid)) == 2, "begun")
        children = _children(plan.pid)
        time.sleep(5)
        plan.send_signal(signal.SIGINT)
        _, said = plan.communicate(timeout=120)
    assert plan.returncode == 130, said
    assert "Traceback" not in said
    _until(lambda: not any(Path(f"/proc/{child}").exists() for child in children), "ended")
