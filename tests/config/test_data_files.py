"""Finding what ships with fleetsim, in a checkout and in a wheel."""

from __future__ import annotations

import subprocess
import sys
from pathlib import Path

import pytest

from fleetsim.config import data_files, data_path, load_scenario
from fleetsim.errors import InputError


@pytest.fixture
def installed(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Path:
    """A package folder with data inside, as in a wheel."""
    folder = tmp_path / "fleetsim" / "_data"
    (folder / "scenarios" / "published").mkdir(parents=True)
    (folder / "calibration").mkdir()
    (folder / "scenarios" / "small.yaml").write_text("fleet: {instances: 2}")
    (folder / "scenarios" / "published" / "run-1.yaml").write_text("fleet: {instances: 3}")
    (folder / "calibration" / "factors.json").write_text("{}")
    monkeypatch.setattr(data_files, "_PACKAGE", tmp_path / "fleetsim")
    monkeypatch.chdir(tmp_path)
    return folder


def test_names_and_paths(installed: Path) -> None:
    assert list(data_files.shipped_scenarios()) == ["published/run-1", "small"]
    assert data_path("calibration", "factors.json") == installed / "calibration" / "factors.json"
    assert load_scenario("small").fleet.instances == 2
    assert load_scenario("published/run-1").fleet.instances == 3
    assert load_scenario("run-1").fleet.instances == 3


def test_a_path_wins_over_a_name(installed: Path, tmp_path: Path) -> None:
    (tmp_path / "small").write_text("fleet: {instances: 9}")
    assert load_scenario("small").fleet.instances == 9


@pytest.mark.parametrize("name", ["factor.json", "", "../scenarios/small.yaml", "/etc/hostname"])
def test_what_is_not_shipped(installed: Path, name: str) -> None:
    with pytest.raises(InputError, match="ships no such file"):
        data_path("calibration", name)


def test_near_misses_are_named(installed: Path) -> None:
    with pytest.raises(InputError, match=r'did you mean the shipped "small"'):
        load_scenario("smal")
    with pytest.raises(InputError, match=r'did you mean "factors\.json"'):
        data_path("calibration", "factor.json")


def test_a_checkout_is_found() -> None:
    root = Path(data_files.__file__).parents[2]
    if not (root / "scenarios").is_dir():
        pytest.skip("not a source checkout")
    assert data_files.data_folder("scenarios") == root / "scenarios"


def test_every_shipped_scenario_loads() -> None:
    for name in data_files.shipped_scenarios():
        assert load_scenario(name).schema_version == 1


def test_loading_imports_nothing_heavy() -> None:
    code = (
        "import sys, fleetsim.config.load, fleetsim.config.engine_profile;"
        "print([m for m in ('numpy', 'scipy', 'numba', 'pandas', 'pyarrow') if m in sys.modules])"
    )
    done = subprocess.run([sys.executable, "-c", code], capture_output=True, text=True, check=True)
    assert done.stdout.strip() == "[]"
