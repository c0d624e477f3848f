"""Engines: how long an iteration takes, what an instance may hold, and requests through them.

- How long an iteration takes: `step_time` is the seam; `roofline_step` makes one from `gpus` (data sheets), the model's
  shape (`model`) and the curves of its `operators`; `known_error` and `slowdown` say how far off.
- What an instance holds: `limits`, `defaults` (what an engine takes where nobody says), `kv_memory`, `layout`.
- Who runs when: `kernel`, compiled by `native` and `compiled`; `requests` run it without a trainer.
- Drafts: `speculation`, `acceptance`. Weight syncs: `transport` (its three times) and `transfer`.
- What a GPU costs: `prices`.

>>> from fleetsim.engine import EngineLimits, LinearStepTime, run_requests
>>> result = run_requests(LinearStepTime(0.01), EngineLimits(8, 2048, 1000), 100, [10, 20])
>>> result.finish_s.round(6).tolist()
[0.1, 0.2]
"""

from __future__ import annotations

from typing import Any

from fleetsim.engine.limits import EngineLimits
from fleetsim.engine.step_time import LinearStepTime, StepTime, constant_rate

__all__ = ["EngineLimits", "LinearStepTime", "RequestResult", "StepTime", "constant_rate", "roofline", "run_requests"]


def __getattr__(name: str) -> Any:
    """Loads the kernel (numba) and the roofline only when they are asked for."""
    if name in ("run_requests", "RequestResult"):
        from fleetsim.engine import requests

        return getattr(requests, name)
    if name == "roofline":
        from fleetsim.engine.roofline_step import roofline

        return roofline
    raise AttributeError(f"module {__name__!r} has no attribute {name!r}")
