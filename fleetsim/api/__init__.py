"""fleetsim from Python: what the commands do, as functions whose results are numbers, tables and pages.

    >>> import fleetsim as fs
    >>> job = fs.load("async-one-step", steps=12, replications=2)
    >>> job.simulate().metrics["step_s"].mean == job.simulate().mean["step_s"]
    True

The same question gives the same digits here and on the command line: a result's `to_json()` is what `--json` prints.
"""

from __future__ import annotations

from fleetsim.api.catalogue import profile, profiles, scenarios
from fleetsim.api.job import Job
from fleetsim.compare.ask import CompareResult, compare
from fleetsim.errors import FleetsimError, InfeasibleError, InputError, Interrupted, OutsideError, StuckError
from fleetsim.estimates import Estimate
from fleetsim.job.base_job import load
from fleetsim.job.metrics import Metrics
from fleetsim.plan.ask import plan
from fleetsim.plan.result import PlanResult
from fleetsim.replay.ask import replay
from fleetsim.replay.result import ReplayResult
from fleetsim.simulate.result import SimulateResult
from fleetsim.size.ask import SizeResult
from fleetsim.split.ask import SplitResult
from fleetsim.sweep.ask import sweep
from fleetsim.sweep.result import SweepResult

__all__ = [
    "CompareResult",
    "Estimate",
    "FleetsimError",
    "InfeasibleError",
    "InputError",
    "Interrupted",
    "Job",
    "Metrics",
    "OutsideError",
    "PlanResult",
    "ReplayResult",
    "SimulateResult",
    "SizeResult",
    "SplitResult",
    "StuckError",
    "SweepResult",
    "compare",
    "load",
    "plan",
    "profile",
    "profiles",
    "replay",
    "scenarios",
    "sweep",
]
