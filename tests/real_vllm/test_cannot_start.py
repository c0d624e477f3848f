"""A real vLLM that cannot start says why, in a process of its own. The server of later tests starts meanwhile."""

from __future__ import annotations

from pathlib import Path

import pytest

from fleetsim.calibrate.vllm.parent import Spec, run_child
from fleetsim.errors import OutsideError
from tests.real_vllm.serving import Serving


def test_an_engine_that_cannot_start_says_why(
    vllm_python: str,
    vllm_environment: dict[str, str],
    drafting: Serving,
    tmp_path: Path,
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    monkeypatch.setenv("HF_HUB_OFFLINE", "1")
    spec = Spec(
        raw=str(tmp_path / "a.raw.jsonl"),
        log=str(tmp_path / "a.log"),
        engine_args={"model": "no-such-folder/no-such-model"},
        budget_s=60.0,
        python=vllm_python,
    )
    with pytest.raises(OutsideError, match="the model was not found"):
        run_child(spec)
