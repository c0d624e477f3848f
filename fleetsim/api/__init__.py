"""fleetsim from Python: what the commands do, as functions whose results are numbers, tables and pages.

    >>> import fleetsim as fs
    >>> job = fs.load("async-one-step", steps=12, replications=2)
    >>> job.simulate().metrics["step_s"].mean == job.simulate().mean["step_s"]
    True

The same question gives the same digits here and on the command line: a result's `to_json()` is what `--json` prints.
"""

from __future__ import annotations

import os
from collections.abc import Callable, Mapping, Sequence
from typing import TYPE_CHECKING, Any

from fleetsim.api.job import Job
from fleetsim.compare.ask import CompareResult, compare
from fleetsim.config.data_files import shipped_scenarios
from fleetsim.config.engine_profile import load_profile, shipped_profiles
from fleetsim.errors import FleetsimError, InfeasibleError, InputError, Interrupted, OutsideError, StuckError
from fleetsim.estimates import Estimate
from fleetsim.faces import keywords
from fleetsim.forecast.ask import ForecastResult
from fleetsim.job.base_job import load
from fleetsim.job.metrics import Metrics
from fleetsim.job.result import told
from fleetsim.pack.ask import Pack, PackResult
from fleetsim.pack.ask import pack as packed
from fleetsim.plan.ask import PlanResult, plan
from fleetsim.replay.ask import replay
from fleetsim.replay.result import ReplayResult
from fleetsim.simulate.ask import SimulateResult
from fleetsim.size.ask import SizeResult
from fleetsim.split.ask import SplitResult
from fleetsim.sweep.ask import SweepResult, sweep

if TYPE_CHECKING:
    from fleetsim.calibrate.dry_run import DryRun
    from fleetsim.calibrate.run import Calibrated
    from fleetsim.config.engine_profile import Profile
    from fleetsim.frameworks.convert import Imported
    from fleetsim.validate.ask import ValidateResult
    from fleetsim.watch.ask import WatchResult


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


@keywords()
def pack(
    jobs: Sequence[Job | str | os.PathLike[str]],
    *,
    gpus: int,
    switch_s: float | None = None,
    sandboxes: int | None = None,
    fair: bool = False,
    protect: Mapping[str, float] | None = None,
    priority: Mapping[str, int] | None = None,
    tell: Callable[[str], None] | None = None,
) -> PackResult:
    """Several jobs on one set of GPUs: `fleetsim pack`.

    jobs: of `load`, or what it takes. switch_s: seconds until GPUs that another job had serve the next. sandboxes: of
    all jobs together. fair: the least worst slow-down. protect: name of a job -> per cent by which its step may be
    longer than alone. priority: name of a job -> its class; the higher one goes first on shared GPUs, and rollouts of
    a lower one give way. Raises InputError.
    """
    made = tuple(job if isinstance(job, Job) else load(job) for job in jobs)
    kept = [f"{name}:{percent:g}" for name, percent in (protect or {}).items()]
    first = [f"{name}:{rank}" for name, rank in (priority or {}).items()]
    asked = Pack(made=made, gpus=gpus, switch_s=switch_s, sandboxes=sandboxes, fair=fair, protect=kept, priority=first)
    return packed(asked, told(tell))


@keywords()
def estimate_profile(gpu: str, model: str, *, tp: int = 1, dtype: str = "auto") -> Profile:
    """An engine that nobody measured, from its GPU's data sheet and its model's shape: `fleetsim profile estimate`.

    gpu, model: as for `load`. tp: GPUs of an instance. dtype: of the weights. Raises InputError for what is not known.
    """
    from fleetsim.calibrate.derivation import estimate_profile as estimated

    return estimated(gpu, model, tp=tp, dtype=dtype)


@keywords()
def calibrate(
    *files: str | os.PathLike[str], tell: Callable[[str], None] | None = None, **options: Any
) -> Calibrated | DryRun:
    """An engine, measured or fitted from what others measured: `fleetsim calibrate`.

    files: what is fitted, as --from. options: the command's own, by their names. Writes the profile, as the command
    does, and holds it; with `dry_run` the plan alone. Raises InputError, OutsideError.
    """
    from fleetsim.calibrate.ask import Calibrate
    from fleetsim.calibrate.run import calibrate as calibrated

    return calibrated(Calibrate(more=[os.fspath(file) for file in files] or None, **options).ready(), told(tell))


@keywords()
def validate(
    *case: str, cases: str | None = None, ranges: bool = False, tell: Callable[[str], None] | None = None
) -> ValidateResult:
    """Published runs, predicted: `fleetsim validate`.

    case: ids of those that are wanted, else all. cases: a folder of other ones. ranges: of every arm, too.

        >>> import fleetsim as fs
        >>> fs.validate("C01").summary.cases
        1

    Raises InputError.
    """
    from fleetsim.validate.ask import validate as validated

    return validated(case, cases, ranges=ranges, watch=told(tell))


@keywords()
def watch(*, tell: Callable[[str], None] | None = None, **options: Any) -> WatchResult:
    """How many instances the fleet behind a Prometheus should have now: `fleetsim watch --once`.

    options: the command's own, by their names, of which `prometheus` is needed. Raises InputError, OutsideError.
    """
    from fleetsim.watch.ask import FleetWatch
    from fleetsim.watch.ask import watch as watched

    return watched(FleetWatch(**options), told(tell))


@keywords()
def read_config(framework: str, *config: str, changes: Mapping[str, Any] | None = None) -> Imported:
    """A framework's own configuration as a scenario: `fleetsim scenario from`.

    config: its file or launch script, then its own flags; or those alone. changes: dotted paths of the scenario and
    their values. `load(read_config(...).raw)` is the job; what was taken, assumed and left out stands beside it.

        >>> import fleetsim as fs
        >>> words = "data.train_batch_size=64 actor_rollout_ref.rollout.n=16 actor_rollout_ref.model.path=Qwen/Qwen3-8B"
        >>> fs.load(fs.read_config("verl", *words.split()).raw)["trainer.batch_samples"]
        1024

    Raises InputError with all that is wrong.
    """
    from fleetsim.job.in_frameworks import imported
    from fleetsim.job.options import change_texts

    return imported(framework, config, list(change_texts(changes or {}).values()))
