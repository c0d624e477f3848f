"""What a command says when the kernel cannot be had as asked, and when memory ends in the middle of a run."""

from __future__ import annotations

import os
import subprocess
import sys
from pathlib import Path

import pytest
from typer.testing import CliRunner

from fleetsim.cli.main import app
from fleetsim.engine import state

SIZE = ("size", "--batch", "16", "--len", "64")


@pytest.mark.parametrize("word", ["Checked", "debug", "0"])
def test_a_build_that_there_is_not_is_an_error(word: str) -> None:
    """A process of its own: the build is chosen where the kernel's modules are imported."""
    environment = {**os.environ, "FLEETSIM_KERNEL": word, "PYTHONPATH": str(Path(__file__).parents[2])}
    done = subprocess.run(
        [sys.executable, "-m", "fleetsim", *SIZE], env=environment, capture_output=True, text=True, check=False
    )
    assert done.stderr == (
        f"error: FLEETSIM_KERNEL: '{word}': checked and fresh are the only other builds there are; "
        "set it to one of them, or unset it\n"
    )
    assert (done.returncode, done.stdout) == (2, "")


def test_memory_that_ends_in_a_run_is_said_in_a_line(monkeypatch: pytest.MonkeyPatch) -> None:
    """Nor does the run go on: a trainer that asked the fleet once more would once have read freed memory."""

    def full(*_: object) -> None:
        raise MemoryError("Unable to allocate 687. MiB for an array with shape (4500000,) and data type {'names': []}")

    monkeypatch.setattr(state, "_longer", full)
    result = CliRunner().invoke(app, list(SIZE))
    assert result.exit_code == 3
    assert result.stderr.splitlines()[-2:] == [
        "error: out of memory: Unable to allocate 687. MiB",
        "simulate fewer steps, samples or replications, or on a larger machine",
    ]
