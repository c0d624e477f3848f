"""Finds the virtual environment with a real vLLM, or skips, loudly: everything here runs an engine on the CPU.

    tests/real_vllm/install.sh && pytest --numprocesses=0 tests/real_vllm

FLEETSIM_VLLM_PYTHON names another environment's Python. With FLEETSIM_REQUIRE_VLLM=1 a missing one is a failure.
"""

from __future__ import annotations

import os
import subprocess
from pathlib import Path

import pytest

HERE = Path(__file__).parent
ROOT = HERE.parents[1]
INSTALL = "tests/real_vllm/install.sh"
# One thread of the model's and none bound: the machine of a test run has few cores, and other work on them.
ENVIRONMENT = {"VLLM_CPU_KVCACHE_SPACE": "1", "VLLM_CPU_OMP_THREADS_BIND": "nobind", "OMP_NUM_THREADS": "1"}


@pytest.fixture(scope="session")
def vllm_python() -> str:
    """The Python of an environment with a vLLM that runs here."""
    if os.environ.get("PYTEST_XDIST_WORKER_COUNT", "1") != "1":
        pytest.skip("REAL vLLM NOT TESTED: it is timed, so it runs alone: pytest --numprocesses=0 tests/real_vllm")
    python = os.environ.get("FLEETSIM_VLLM_PYTHON") or str(ROOT / ".venv-vllm" / "bin" / "python")
    reason = f"REAL vLLM NOT TESTED: {python} is not there; install it with {INSTALL} (Linux x86-64, Python 3.11)"
    if Path(python).exists():
        asked = subprocess.run(
            [python, "-c", "import importlib.util as u, sys; sys.exit(u.find_spec('vllm') is None)"], check=False
        )
        if asked.returncode == 0:
            return python
        reason = f"REAL vLLM NOT TESTED: {python} has no vllm; install it with {INSTALL}"
    if os.environ.get("FLEETSIM_REQUIRE_VLLM") == "1":
        pytest.fail(reason)
    pytest.skip(reason)


@pytest.fixture(scope="session")
def tiny_model() -> str:
    """A folder with the config of a Llama of two small layers; weights are made up by the engine."""
    return str(HERE / "tiny")


@pytest.fixture
def vllm_environment(monkeypatch: pytest.MonkeyPatch) -> dict[str, str]:
    """What a vLLM on the CPU of a test machine runs under; set in this process, so that children inherit it."""
    for name, value in ENVIRONMENT.items():
        monkeypatch.setenv(name, value)
    return {**os.environ, **ENVIRONMENT}
