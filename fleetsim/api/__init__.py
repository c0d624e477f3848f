"""fleetsim from Python: what the commands do, as functions whose results are numbers, tables and pages.

    >>> import fleetsim as fs
    >>> job = fs.load("async-one-step", steps=12, replications=2)
    >>> job.simulate().metrics["step_s"].mean == job.simulate().mean["step_s"]
    True

The same question gives the same digits here and on the command line: a result's `to_json()` is what `--json` prints.
"""

from __future__ import annotations

import os
from typing import TYPE_CHECKING

from fleetsim.api.job import Job
from fleetsim.compare.ask import CompareResult, compare
from fleetsim.config.data_files import shipped_scenarios
from fleetsim.config.profile_files import load_profile, shipped_profiles
from fleetsim.errors import FleetsimError, InfeasibleError, InputError, Interrupted, OutsideError, StuckError
from fleetsim.estimates import Estimate
from fleetsim.forecast.ask import ForecastResult
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

if TYPE_CHECKING:
    from fleetsim.config.engine_profile import Profile


# --- What comes with fleetsim, by name: scenarios, presets and measured engines.


def scenarios() -> tuple[str, ...]:
    """Names that `load` knows; those below `presets/` are of RL frameworks, and the last word is enough.

    >>> import fleetsim as fs
    >>> "presets/verl-fully-async" in fs.scenarios()
    True
    """
    return tuple(shipped_scenarios())


def profiles() -> tuple[str, ...]:
    """Names of the measured engines that come with fleetsim, for `load(profile=...)`."""
    return tuple(shipped_profiles())


def profile(path_or_name: str | os.PathLike[str]) -> Profile:
    """The profile of an engine: a file, or a shipped name. Raises InputError with all that is wrong."""
    return load_profile(path_or_name)


__all__ = [
    "CompareResult",
    "Estimate",
    "FleetsimError",
    "ForecastResult",
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
