"""A fifteenth of the instances of a check, another each day: together all of them; long tests, and what is simulated
once."""

from __future__ import annotations

import os
import shutil
import subprocess
import sys
from pathlib import Path

import pytest

import fleetsim.export.perfetto as user
from fleetsim.config.load import load_scenario, with_changes
from fleetsim.errors import StuckError
from fleetsim.job.trials import simulated
from fleetsim.sim import run
from tests.once import forget, simulated_once
from tests.parts import ALL, LONG_PARTS, LONGEST, NEW_PARTS, PARTS, VARIABLE, longest, part_of_the_day, takes, words


@pytest.mark.parametrize("check", ["examples", "tests/a.py::test_b", ""])
def test_as_many_days_as_parts_take_every_instance_once(check: str) -> None:
    for number in range(2 * PARTS + 1):
        assert sum(takes(part, check, number) for part in range(1, PARTS + 1)) == 1
        assert takes(ALL, check, number)
    assert any(takes(2, check, number) for number in range(PARTS))


def test_the_first_instances_are_of_all_parts() -> None:
    assert {
        part for part in range(1, PARTS + 1) for check in map(str, range(20 * PARTS)) if takes(part, check, 0)
    } == set(range(1, PARTS + 1))


@pytest.mark.parametrize("first", range(1, PARTS + 1))
def test_any_three_days_see_new_examples_of_every_property(first: int) -> None:
    days = [1 + (first - 1 + day) % PARTS for day in range(NEW_PARTS)]
    for check in map(str, range(20)):
        assert sum(takes(part, check, parts=NEW_PARTS) for part in days) == 1
        assert takes(ALL, check, parts=NEW_PARTS)


def test_the_longest_are_those_that_take_most_of_the_time() -> None:
    told = "7.00s call     tests/a.py::test_x[1]\n 2.00s setup    tests/a.py::test_x[2]\n"
    told += "1.00s call     tests/a.py::test_y\n"
    assert longest(told) == ["a.py::test_x"]
    assert longest(told + "9.50s call     tests/b.py::test_z\n") == ["a.py::test_x", "b.py::test_z"]


def test_each_long_test_exists_and_any_few_days_run_it() -> None:
    assert PARTS % LONG_PARTS == 0
    for name in LONGEST.read_text().split():
        place, _, test = name.partition("::")
        assert f"def {test}(" in (LONGEST.parent / place).read_text(), f"{name}: run python -m tests.parts --longest"


def test_the_environment_goes_before_the_day(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv(VARIABLE, "2")
    assert part_of_the_day() == 2
    assert f"part 2 of {PARTS}" in words(2)
    monkeypatch.setenv(VARIABLE, str(ALL))
    assert part_of_the_day() == ALL
    monkeypatch.delenv(VARIABLE)
    assert 1 <= part_of_the_day() <= PARTS


def test_a_scenario_is_simulated_once_and_afterwards_as_ever(monkeypatch: pytest.MonkeyPatch) -> None:
    scenario = with_changes(load_scenario("sync-colocated"), {"run.steps": 2, "trainer.batch_samples": 32})
    plain, real = simulated(scenario, 0), run.simulate
    with simulated_once():
        assert user.simulate is run.simulate is not real
        first = run.simulate(scenario)
        assert run.simulate(scenario, on_step=lambda *_: None) is first
        assert run.simulate(scenario, replication=1) is not first
        assert run.simulate(scenario, scrape_every_s=15.0) is not first
        assert simulated(scenario, 0)["step_s"] == plain["step_s"]
        forget()
        assert run.simulate(scenario) is not first
    assert user.simulate is run.simulate is real
    assert run.simulate(scenario) is not first


def test_what_fails_fails_again() -> None:
    scenario = with_changes(load_scenario("sync-colocated"), {"run.steps": 2})
    broken = scenario.model_copy(update={"fleet": scenario.fleet.model_copy(update={"instances": 0})})
    with simulated_once():
        for _ in range(2):
            with pytest.raises(StuckError):
                run.simulate(broken)


def test_workers_run_the_part_of_the_day(tmp_path: Path) -> None:
    shutil.copy(Path(__file__).parent / "conftest.py", tmp_path)
    text = (
        f"import pytest\n@pytest.mark.parts\n@pytest.mark.parametrize('n', range({2 * PARTS}))\ndef test_it(n): pass\n"
    )
    (tmp_path / "test_it.py").write_text(text)
    call = [sys.executable, "-m", "pytest", "-q", "-n", "2", "-p", "no:cacheprovider", "-c", os.devnull]
    call.append(f"--rootdir={tmp_path}")
    done = subprocess.run(
        call,
        cwd=tmp_path,
        env={**os.environ, VARIABLE: "3", "PYTHONPATH": str(Path(__file__).parents[1])},
        capture_output=True,
        text=True,
    )
    assert "2 passed" in done.stdout, done.stdout + done.stderr
