"""What pip needs to build this tree is what pyproject.toml asks for."""

from __future__ import annotations

import os
import subprocess
import sys
import tomllib
from pathlib import Path

ROOT = Path(__file__).resolve().parents[2]


def test_the_build_asks_for_all_that_it_imports() -> None:
    """pip builds where nothing is installed but what the build asks for; what is missing there, no wheel would have a
    kernel for."""
    build = tomllib.loads((ROOT / "pyproject.toml").read_text(encoding="utf-8"))
    asked = build["build-system"]["requires"]
    asked += build["tool"]["hatch"]["build"]["targets"]["wheel"]["hooks"]["custom"]["dependencies"]
    code = """
import importlib, pkgutil, sys
from importlib.metadata import packages_distributions, requires
from packaging.requirements import Requirement

have, more = set(), [Requirement(r) for r in sys.argv[1:]]
while more:
    wanted = more.pop()
    if wanted.name not in have and (wanted.marker is None or wanted.marker.evaluate({"extra": ""})):
        have.add(wanted.name)
        more += map(Requirement, requires(wanted.name) or ())
here = {module for module, names in packages_distributions().items() if not have & {n.lower() for n in names}}
sys.modules |= dict.fromkeys(here - {"fleetsim"})
import fleetsim.engine.build_hook
import fleetsim.engine.kernel
for module in pkgutil.iter_modules(fleetsim.engine.kernel.__path__, "fleetsim.engine.kernel."):
    importlib.import_module(module.name)
"""
    uncompiled = {**os.environ, "NUMBA_DISABLE_JIT": "1"}
    done = subprocess.run(
        [sys.executable, "-c", code, *asked], cwd=ROOT, env=uncompiled, capture_output=True, text=True, check=False
    )
    assert done.returncode == 0, done.stderr
