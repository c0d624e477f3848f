"""The process that holds the engine: `python -m fleetsim.calibrate.vllm.child SPEC.json`.

Everything that it learns goes into the raw measurements as it happens, its failures too; what vLLM prints goes wherever
the parent sends it. It ends by itself inside the budget, and with its parent.
"""

from __future__ import annotations

import ctypes
import json
import os
import signal
import sys
import traceback
from functools import partial
from pathlib import Path
from time import perf_counter
from typing import Any

from fleetsim.calibrate.order import loads_in_order
from fleetsim.calibrate.raw import RawWriter
from fleetsim.calibrate.session import ended, measure
from fleetsim.calibrate.vllm import engine as vllm_engine
from fleetsim.calibrate.vllm.sync import measure_sync

LEAVE_S = 2.0
NOT_STARTED, LOST, STOPPED = 3, 4, 143  # exit codes


def main(spec: dict[str, Any], began: float) -> int:
    """Starts the engine, measures, and returns the exit code. spec: the fields of `parent.Spec`."""
    writer = RawWriter(spec["raw"])
    done = (ended(Path(spec["raw"])) if spec.get("resume") else frozenset()) | set(spec.get("skip") or ())
    try:
        engine = vllm_engine.start(spec["engine_args"], writer)
    except Exception as error:  # noqa: BLE001 - the parent reads it and says what to do about it
        what = f"{type(error).__name__}: {error}"
        writer.put("error", ph="start", err=what[:2000], tb=traceback.format_exc()[-3000:])
        return NOT_STARTED
    left_s = spec["budget_s"] - (perf_counter() - began) - LEAVE_S
    loads = loads_in_order(engine.limits, quick=bool(spec.get("quick")), seed=int(spec.get("seed") or 0))
    sync = partial(measure_sync, engine) if spec.get("measure_sync") else None
    return LOST if measure(engine, loads, writer, budget_s=left_s, done=done, sync=sync).lost else 0


def _stop(number: int, frame: object) -> None:
    """Unwinds, so that rows not yet written are written."""
    raise SystemExit(STOPPED)


if __name__ == "__main__":
    started = perf_counter()
    signal.signal(signal.SIGTERM, _stop)
    if sys.platform == "linux":  # a signal when the parent is gone; elsewhere the parent's own clean-up has to do
        ctypes.CDLL(None).prctl(1, signal.SIGTERM)
    try:
        code = main(json.loads(Path(sys.argv[1]).read_text()), started)
    except SystemExit as stop:
        code = int(stop.code or 0)
    except BaseException:  # noqa: BLE001 - the log is the only place left for it
        traceback.print_exc()
        code = 1
    sys.stdout.flush()
    sys.stderr.flush()
    os._exit(code)  # an engine's own teardown takes seconds, or hangs where it is half dead
