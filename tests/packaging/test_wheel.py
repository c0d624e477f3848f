"""What is built from this tree: the wheel holds the code and the data, and works from anywhere."""

from __future__ import annotations

import os
import subprocess
import sys
import tarfile
import zipfile
from pathlib import Path

import pytest

from fleetsim.config import load_scenario, shipped_scenarios
from tests.packaging.built import built_once

ROOT = Path(__file__).resolve().parents[2]


@pytest.fixture(scope="module")
def built() -> Path:
    """A folder with the wheel and the sdist."""
    return built_once()


def test_the_wheel_holds_code_scenarios_and_calibration(built: Path) -> None:
    names = set(zipfile.ZipFile(next(built.glob("*.whl"))).namelist())
    scenarios = {p.relative_to(ROOT) for p in (ROOT / "scenarios").rglob("*.yaml")}
    assert scenarios
    assert {f"fleetsim/_data/{p.as_posix()}" for p in scenarios} <= names
    assert "fleetsim/_data/calibration/engine_curves.json" in names
    assert "fleetsim/_data/calibration/engine_errors.json" in names
    assert "fleetsim/py.typed" in names
    assert {
        f"fleetsim/tell/templates/{name}" for name in ("page.html.j2", "style.css", "chart.css", "chart.js")
    } <= names
    assert not [n for n in names if n.startswith(("tests/", "docs/", "scenarios/")) or "/raw/" in n]
    assert any(n.endswith("licenses/LICENSE") for n in names)
    assert any(n.startswith("fleetsim/engine/built/kernel-") for n in names)


def test_the_sdist_can_be_tested(built: Path) -> None:
    with tarfile.open(next(built.glob("*.tar.gz"))) as sdist:
        names = {n.partition("/")[2] for n in sdist.getnames()}
    assert {"pyproject.toml", "README.md", "LICENSE", "CHANGELOG.md", "tests/conftest.py", "docs/accuracy.md"} <= names
    if (ROOT / ".git").exists():  # nothing that tests have fetched
        listed = ["git", "ls-files", "-co", "--exclude-standard"]
        ours = subprocess.run(listed, cwd=ROOT, capture_output=True, text=True, check=True).stdout
        assert names - {"PKG-INFO"} <= set(ours.splitlines())


def test_a_wheel_finds_its_data_outside_the_tree(built: Path, tmp_path: Path) -> None:
    site = tmp_path / "site"
    zipfile.ZipFile(next(built.glob("*.whl"))).extractall(site)
    code = (
        "import fleetsim; from fleetsim.config import load_scenario, shipped_scenarios;"
        "from fleetsim.engine.operators.curves import shipped_curves; shipped_curves();"
        "from fleetsim.engine.known_error import known_errors; known_errors();"
        "print(fleetsim.__file__, *[load_scenario(name).name for name in shipped_scenarios()], sep='\\n')"
    )
    done = subprocess.run(
        [sys.executable, "-c", code],
        cwd=tmp_path,
        env={**os.environ, "PYTHONPATH": str(site)},
        capture_output=True,
        text=True,
        check=True,
    )
    where, *loaded = done.stdout.splitlines()
    assert Path(where).is_relative_to(site)
    assert sorted(loaded) == sorted(load_scenario(path).name for path in shipped_scenarios().values())
