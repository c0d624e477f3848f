"""The wheel and the sdist of this tree, built once for all tests: the kernel in the wheel takes long to compile."""

from __future__ import annotations

import subprocess
import sys
from pathlib import Path

from tests.once import SHARED, once

ROOT = Path(__file__).resolve().parents[2]


def built_once() -> Path:
    """The folder that they are in."""

    def build() -> Path:
        assert SHARED is not None, "tests/conftest.py makes it"
        folder = Path(SHARED) / "dist"
        command = [sys.executable, "-m", "hatchling", "build", "-d", str(folder)]
        subprocess.run(command, cwd=ROOT, check=True, capture_output=True)
        return folder

    return once("wheel and sdist", build)
