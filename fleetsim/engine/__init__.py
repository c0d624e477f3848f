"""Engines: how long an iteration takes, what an instance may hold, and requests through them.

>>> from fleetsim.engine import EngineLimits, LinearStepTime, run_requests
>>> result = run_requests(LinearStepTime(0.01), EngineLimits(8, 2048, 1000), 100, [10, 20])
>>> result.finish_s.round(6).tolist()
[0.1, 0.2]
"""

from __future__ import annotations

from typing import Any

from fleetsim.engine.limits import EngineLimits
from fleetsim.engine.step_time import LinearStepTime, StepTime, constant_rate

__all__ = [
    "EngineLimits",
    "LinearStepTime",
    "RequestResult",
    "StepTime",
    "closed_load",
    "constant_rate",
    "request_path",
    "roofline",
    "run_requests",
]


def __getattr__(name: str) -> Any:
    """Loads the kernel (numba) and the roofline only when they are asked for."""
    if name in ("run_requests", "RequestResult"):
        from fleetsim.engine import requests

        return getattr(requests, name)
    if name in ("closed_load", "request_path"):
        from fleetsim.engine import clients

        return getattr(clients, name)
    if name == "roofline":
        from fleetsim.engine.roofline_step import roofline

        return roofline
    raise AttributeError(f"module {__name__!r} has no attribute {name!r}")
