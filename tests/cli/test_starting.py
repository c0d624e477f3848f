"""Ctrl-C while a command starts: one line, 130, no traceback, whatever is being imported just then."""

from __future__ import annotations

import os
import signal
import subprocess
import sys
from pathlib import Path

import pytest

from fleetsim.cli import interrupts as starting

ROOT = Path(__file__).parents[2]
# Interrupts itself in the import of a module, in a callback in which Python would print the exception and go on.
SCRIPT = """
import sys, weakref

class Typed:
    def find_spec(self, name, path=None, target=None):
        if name == {module!r}:
            class It: pass
            it = It()
            def callback(_):
                import os, signal
                os.kill(os.getpid(), signal.SIGINT)
                for _ in range(1000): pass
            ref = weakref.ref(it, callback)
            del it
        return None

sys.meta_path.insert(0, Typed())
sys.argv = ["fleetsim", "size", "--batch", "64", "--len", "300"]
from fleetsim.__main__ import main
main()
"""


@pytest.mark.parametrize("module", ["typer", "fleetsim.job.job", "fleetsim.size.size", "fleetsim.sim.run"])
def test_it_ends_at_once_and_says_one_line(module: str) -> None:
    ended = subprocess.run(
        [sys.executable, "-c", SCRIPT.format(module=module)], cwd=ROOT, capture_output=True, text=True, timeout=100,
        env={**os.environ, "PYTHONPATH": str(ROOT)},
    )  # fmt: skip
    assert ended.returncode == 130, ended.stderr[-2000:]
    assert ended.stderr == "interrupted\n"
    assert ended.stdout == ""


def test_work_takes_it_over_and_a_job_in_the_background_is_let_be() -> None:
    before = signal.getsignal(signal.SIGINT)
    try:
        signal.signal(signal.SIGINT, signal.SIG_IGN)
        starting.starting()
        starting.working()
        assert signal.getsignal(signal.SIGINT) is signal.SIG_IGN
        signal.signal(signal.SIGINT, signal.default_int_handler)
        starting.starting()
        assert signal.getsignal(signal.SIGINT) is not signal.default_int_handler
        starting.working()
        assert signal.getsignal(signal.SIGINT) is signal.default_int_handler
    finally:
        signal.signal(signal.SIGINT, before)


def test_the_console_script_minds_it_before_it_imports_the_commands() -> None:
    code = "import sys, fleetsim.__main__; print(sorted(m for m in sys.modules if m in ('typer', 'fleetsim.cli.main')))"
    ended = subprocess.run([sys.executable, "-c", code], cwd=ROOT, capture_output=True, text=True, check=True)
    assert ended.stdout == "[]\n"
