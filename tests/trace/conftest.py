"""Finds what reads traces, or skips, loudly: Perfetto's trace processor, and the viewers in a real browser.

tests/trace/install.sh fetches the processor and the viewers, tests/browser/install.sh a Chromium. With
FLEETSIM_REQUIRE_TRACE=1 and FLEETSIM_REQUIRE_CHROMIUM=1 a missing one is a failure.
"""

from __future__ import annotations

import gzip
import os
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import pytest

from fleetsim.config import default_scenario, with_changes
from fleetsim.export.perfetto import Trace, record, trace_of
from fleetsim.export.perfetto.tracks import StepChoice
from fleetsim.sim.records import Records
from fleetsim.sim.run import simulate
from tests.browser.conftest import browser, chromium, screenshots  # noqa: F401 - fixtures
from tests.trace.processor import ENGINE, has_wasm, program

# Failures, a resize, a rolling sync whose publications overlap, lent GPUs: what could upset a viewer.
RUNS: dict[str, dict[str, Any]] = {
    "default": {"run.steps": 12},
    "faults": {
        "run.steps": 10,
        "fleet.failures": {"mtbf_s": 300.0, "restart_s": 20.0},
        "run.events": [{"step": 3, "instances": 10}, {"step": 6, "instances": 6}],
    },
    "rolling": {"run.steps": 8, "sync.scope": "rolling", "sync.publish_s": 60.0, "sync.pause_s": 4.0},
    "lending": {
        "run.steps": 6,
        "fleet.placement": "colocated_lending",
        "fleet.switch_s": 2.0,
        "fleet.lending.instances": 2,
    },
}


@dataclass(frozen=True, slots=True)
class Drawn:
    """A run, its trace, and the file, compressed."""

    records: Records
    trace: Trace
    file: Path


def draw(name: str, folder: Path) -> Drawn:
    """One of RUNS as a file."""
    scenario, steps = with_changes(default_scenario(), {"fleet.instances": 6} | RUNS[name]), StepChoice(None, None)
    records = record(scenario, simulate(scenario), steps)
    trace, file = trace_of(records, steps), folder / f"{name}.json.gz"
    file.write_bytes(gzip.compress("".join(trace.text()).encode(), mtime=0))
    return Drawn(records, trace, file)


def missing(what: str, why: str, flag: str) -> None:
    """Skips, or fails where the flag asks for it."""
    reason = f"{what}: {why}"
    if os.environ.get(flag) == "1":
        pytest.fail(reason)
    pytest.skip(reason)


@pytest.fixture(params=["wasm", "program"])
def processor(request: pytest.FixtureRequest) -> str:
    """Which trace processor: the WebAssembly one must be there, Google's program is tested where it is at hand."""
    kind = str(request.param)
    if kind == "wasm" and not has_wasm():
        missing("TRACES NOT READ BY PERFETTO", "tests/trace/install.sh fetches its engine", "FLEETSIM_REQUIRE_TRACE")
    if kind == "program" and program() is None:
        pytest.skip(
            "no trace_processor_shell in FLEETSIM_TRACE_PROCESSOR or perfetto's own cache; the wasm one is used"
        )
    return kind


@pytest.fixture
def viewers() -> Path:
    """The folder with both viewers."""
    if not (ENGINE / "trace_viewer_full.html").is_file():
        missing("TRACES NOT OPENED IN A VIEWER", "tests/trace/install.sh fetches both", "FLEETSIM_REQUIRE_TRACE")
    return ENGINE
