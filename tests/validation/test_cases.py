"""The shipped cases: their files, and that nothing of a predicted arm's outcome gets into its scenario."""

from __future__ import annotations

import math
from pathlib import Path
from shutil import copyfile

import pytest

from fleetsim.config import data_files, load_scenario
from fleetsim.errors import InputError
from fleetsim.search.arrangements import SWITCH_S
from fleetsim.validate.arms import scenario_of
from fleetsim.validate.case import LENGTH_SIGMA, PublishedCase, case_files, length_law, load_case, load_cases, shipped
from fleetsim.validate.ledger import hash_of
from fleetsim.workload.lengths import limited_mean

CASES = load_cases()
GATED = {
    "C01",
    "C02",
    "C03",
    "C04",
    "C06",
    "C07",
    "C08",
    "C09",
    "C11",
    "C12",
    "C13",
    "C15",
    "C18",
    "D01",
    "D03",
    "D04",
    "D09",
}
# Keys of a scenario that say how a run went, rather than how it was set up.
OUTCOMES = ("published", "targets")


def test_every_gated_case_ships() -> None:
    assert {case.id for case in CASES} >= GATED


@pytest.mark.parametrize("case", CASES, ids=lambda case: case.id)
def test_every_arm_is_a_valid_scenario(case: PublishedCase) -> None:
    scalar = None if case.fit is None else math.sqrt(case.fit.low * case.fit.high)
    for arm in case.arms:
        scenario = scenario_of(case, arm, scalar)
        assert scenario.name == f"{case.id} {arm.name}"


@pytest.mark.parametrize("case", CASES, ids=lambda case: case.id)
def test_no_arm_is_told_its_outcome(case: PublishedCase) -> None:
    """A published step, wait or throughput of a predicted arm is nowhere in what it is simulated with."""

    def numbers(value: object) -> list[float]:
        if isinstance(value, dict):
            return [x for below in value.values() for x in numbers(below)]
        if isinstance(value, list | tuple):
            return [x for below in value for x in numbers(below)]
        return [float(value)] if isinstance(value, int | float) and not isinstance(value, bool) else []

    for arm in case.arms:
        if arm.published is None or arm.published <= 2:  # ratios are too small to be told from counts
            continue
        if case.fit is not None and case.fit.arm == arm.name:
            continue
        assert arm.published not in numbers(arm.set), arm.name
        assert arm.published not in numbers(case.scenario), arm.name


@pytest.mark.parametrize("case", CASES, ids=lambda case: case.id)
def test_a_fit_sees_its_baseline_alone(case: PublishedCase) -> None:
    if case.fit is None:
        return
    published = {arm.name: arm.published for arm in case.arms}
    for name, value in published.items():
        if name not in (case.fit.arm, case.fit.against) and value is not None:
            assert case.fit.value != value, name


@pytest.mark.parametrize(("mean", "cap", "sigma"), [(1107, 3000, None), (3203, 3986, None), (795, 16384, 1.08)])
def test_the_length_law_has_the_mean_after_the_cap(mean: float, cap: float, sigma: float | None) -> None:
    law = length_law(mean, cap, sigma)
    assert limited_mean(law, cap) == pytest.approx(mean, rel=1e-6)
    assert law.cv is not None
    assert math.sqrt(math.log1p(law.cv**2)) == pytest.approx(sigma or LENGTH_SIGMA)


@pytest.mark.parametrize("mean", [0.0, 3900.0, 5000.0])
def test_a_mean_that_the_cap_forbids_is_refused(mean: float) -> None:
    with pytest.raises(InputError, match="of the cap of 4000 tokens"):
        length_law(mean, 4000)


@pytest.fixture
def folder(tmp_path: Path) -> Path:
    """Two sealed cases and their ledger."""
    for name in ("S05-verl-7b-h100.case.yaml", "S06-vime-npu.case.yaml"):
        copyfile(shipped() / name, tmp_path / name)
    entries = "".join(
        f"  - {{file: {path.name}, sealed: '2026-11-24', sha256: {hash_of(path)}}}\n" for path in tmp_path.iterdir()
    )
    (tmp_path / "sealed.yaml").write_text(f"cases:\n{entries}", encoding="utf-8")
    return tmp_path


def test_a_sealed_case_is_read_as_long_as_its_ledger_knows_it(folder: Path) -> None:
    assert [case.id for case in load_cases((), folder)] == ["S05", "S06"]
    changed = folder / "S06-vime-npu.case.yaml"
    text = changed.read_text(encoding="utf-8")
    changed.write_text(text.replace("mean: 1500", "mean: 1400"), encoding="utf-8")
    with pytest.raises(InputError, match="was changed since it was sealed"):
        load_cases((), folder)
    ledger = folder / "sealed.yaml"
    edit = f"edits: [{{date: '2026-11-25', sha256: {hash_of(changed)}, what: mean, why: misread}}]"
    lines = ledger.read_text(encoding="utf-8").splitlines()
    known = [line[:-1] + f", {edit}}}" if changed.name in line else line for line in lines]
    ledger.write_text("\n".join(known) + "\n", encoding="utf-8")
    assert len(load_cases((), folder)) == 2
    ledger.write_text("\n".join(line for line in known if changed.name not in line) + "\n", encoding="utf-8")
    with pytest.raises(InputError, match="has no entry for it"):
        load_cases((), folder)
    changed.unlink()
    ledger.write_text("\n".join(lines) + "\n", encoding="utf-8")
    with pytest.raises(InputError, match="is gone"):
        load_cases((), folder)


def test_a_folder_without_cases_is_refused(tmp_path: Path) -> None:
    with pytest.raises(InputError, match="a folder with cases"):
        load_cases((), tmp_path)
    with pytest.raises(InputError, match="is no folder"):
        load_cases((), tmp_path / "none")


def test_engines_are_started_as_their_framework_starts_them() -> None:
    """The recipes of C08's split arms say async_engine: true; its on-policy arm has an offline LLM. Releases to v0.7.0
    hold as many prompts in flight as the steps ahead take, of C09's arm eight steps."""
    cases = load_cases(("C08", "C09"))
    made = {arm.name: scenario_of(case, arm, None) for case in cases for arm in case.arms}
    points = {arm.name: made[arm.name].engine.entry_point for arm in cases[0].arms}
    assert points == {"on_policy": "llm", "one_off": "async_engine", "one_off_fp8": "async_engine"}
    held = {name: one.fleet.max_in_flight_samples for name, one in made.items() if name != "on_policy"}
    assert held == {"one_off": 2048, "one_off_fp8": 2048, "eight_off": 8 * 2048}
    assert made["on_policy"].fleet.max_in_flight_samples is None


def test_a_hand_over_that_a_framework_always_makes_takes_time() -> None:
    """NeMo-RL moves the trainer's states at every refit; of verl's recipe nothing is moved, D09's own seconds stand."""
    cases = {case.id: case for case in load_cases(("C04", "D09", "D10"))}
    first = {name: scenario_of(case, case.arms[0], None).fleet for name, case in cases.items()}
    assert {name: fleet.switch_s for name, fleet in first.items()} == {"C04": 0.0, "D09": 2.5, "D10": SWITCH_S}
    assert scenario_of(cases["D10"], cases["D10"].arm("one_off"), None).fleet.switch_s == 0.0


def test_cases_are_no_scenarios() -> None:
    assert not [name for name in data_files.shipped_scenarios() if "case" in name]
    assert load_scenario("trl-asyncgrpo-lora-run1").fleet.instances == 2


def test_an_unknown_case_is_named() -> None:
    with pytest.raises(InputError, match="one of C01"):
        load_cases(("C99",))
    assert [case.id for case in load_cases(("c01",))] == ["C01"]


def test_what_is_wrong_with_a_file_is_said(tmp_path) -> None:  # type: ignore[no-untyped-def]
    text = (
        case_files()[0]
        .read_text(encoding="utf-8")
        .replace("baseline: ", "baseline: not-", 1)
        .replace("trust: ", "trst: ")
    )
    path = tmp_path / "C01.case.yaml"
    path.write_text(text, encoding="utf-8")
    with pytest.raises(InputError) as refused:
        load_case(path)
    assert "trst" in str(refused.value)
    assert "trust" in str(refused.value)
