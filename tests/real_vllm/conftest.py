"""Finds the virtual environment with a real vLLM, or skips, loudly: everything here runs an engine on the CPU.

    tests/real_vllm/install.sh && pytest --numprocesses=0 tests/real_vllm

FLEETSIM_VLLM_PYTHON names another environment's Python. With FLEETSIM_REQUIRE_VLLM=1 a missing one is a failure.
"""

from __future__ import annotations

import json
import os
import subprocess
from collections.abc import Iterator
from pathlib import Path

import pytest

from tests.real_vllm.serving import NGRAM, Serving, environment, served

HERE = Path(__file__).parent
ROOT = HERE.parents[1]
INSTALL = "tests/real_vllm/install.sh"


def pytest_collection_modifyitems(items: list[pytest.Item]) -> None:
    """What looks at an engine that is timed runs with it: it would be started, and play its scenes, twice."""
    for item in items:
        if "played" in getattr(item, "fixturenames", ()):
            item.add_marker(pytest.mark.timed)


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


@pytest.fixture(scope="session")
def serving(vllm_python: str, tiny_model: str, tmp_path_factory: pytest.TempPathFactory) -> Iterator[Serving]:
    """A real server, perhaps still starting: that takes 20 s of one core, in which others can work."""
    with served(vllm_python, tiny_model, tmp_path_factory.mktemp("server")) as found:
        yield found


@pytest.fixture(scope="session")
def server(serving: Serving) -> str:
    """The address of a real server that answers."""
    return serving.ready()


@pytest.fixture(scope="session")
def drafting(vllm_python: str, tiny_model: str, tmp_path_factory: pytest.TempPathFactory) -> Iterator[Serving]:
    """A real server that drafts by n-grams, for what is counted and not timed; perhaps still starting."""
    home = tmp_path_factory.mktemp("drafting")
    with served(vllm_python, tiny_model, home, "--speculative-config", json.dumps(NGRAM)) as found:
        yield found


@pytest.fixture
def vllm_environment(vllm_python: str, monkeypatch: pytest.MonkeyPatch) -> dict[str, str]:
    """What a vLLM on the CPU of a test machine runs under; set in this process, so that children inherit it."""
    for name, value in environment(vllm_python).items():
        monkeypatch.setenv(name, value)
    return dict(os.environ)
