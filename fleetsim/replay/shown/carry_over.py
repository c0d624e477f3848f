"""From the run that was measured to another job: what its configuration changes in what was measured.

Lengths are those of the same prompts under the other cap. The trainer's seconds, and those of a weight sync, keep the
ratio to what their model says: it tells how they change with GPUs, tokens, passes and engines. Beyond these a job keeps
its own decisions.
"""

from __future__ import annotations

from typing import Any

from fleetsim.config.load import with_changes
from fleetsim.config.scenario import Scenario
from fleetsim.config.tree import is_touched
from fleetsim.engine.transport import sync_times
from fleetsim.errors import InputError
from fleetsim.job.assumptions import is_estimated
from fleetsim.job.derived_values import seconds_of, slower
from fleetsim.job.job import StatedJob
from fleetsim.job.nameplate import mean_step_s
from fleetsim.job.trainer_scaling import scaled
from fleetsim.replay.implied.workload import OUTPUT
from fleetsim.replay.shown.measured_values import COMMON, SECONDS, SYNC, Measured
from fleetsim.trainer.estimate import estimate_of


def carried(found: Measured, run: StatedJob, target: StatedJob) -> dict[str, Any]:
    """The values that another job takes from a run. run: the job of the run before anything was measured."""
    values = {path: found.values[path] for path in COMMON if path in found.values}
    if OUTPUT in values:
        values[OUTPUT] = _recut(values[OUTPUT], target)
    if any(path in values for path in SECONDS):
        values |= _trainer(found, run, target, {path: values[path] for path in values if path not in (*SECONDS, *SYNC)})
    if any(path in values for path in SYNC):
        values |= _sync(found.scenario, run.scenario, target.scenario)
    return values


def _recut(law: Any, target: StatedJob) -> Any:
    """The law under the job's own cap, where it has one."""
    cap = getattr(target.scenario.workload.output_tokens, "max", None)
    if cap is None or not is_touched(f"{OUTPUT}.max", target.given) or law.get("kind") != "lognormal":
        return law
    return {**law, "max": cap}


def _trainer(found: Measured, run: StatedJob, target: StatedJob, shared: dict[str, Any]) -> dict[str, Any]:
    """The measured seconds over the model's, times the model's for the other job."""
    batch = {
        path: found.values[path] for path in ("trainer.batch_samples", "workload.group_size") if path in found.values
    }
    before, after = _modelled(run, {**shared, **batch}), _modelled(target, shared)
    if before is None or after is None:
        seconds = {path: found.values[path] for path in SECONDS if path in found.values}
        here = with_changes(run.scenario, seconds)
        return {path: value for path, value in scaled(here, target.scenario.trainer.gpus).items() if path in SECONDS}
    factor = mean_step_s(found.scenario) / mean_step_s(before)
    return slower(after.trainer, factor)


def _modelled(job: StatedJob, changes: dict[str, Any]) -> Scenario | None:
    """The job with the run's lengths and the seconds that its trainer's model gives it; None where none is known."""
    kept = {path: value for path, value in changes.items() if not path.startswith("trainer.checkpoint")}
    scenario = with_changes(job.scenario, kept)
    if not is_estimated(job.scenario):
        return None
    try:
        return with_changes(scenario, seconds_of(estimate_of(scenario, scenario.trainer.gpus)))
    except InputError:  # a trainer too small for its model
        return None


def _sync(found: Scenario, run: Scenario, target: Scenario) -> dict[str, Any]:
    """The measured seconds of a sync over those of the run's transport, times those of the other job's."""
    seen, modelled, there = (sync_times(scenario) for scenario in (found, run, target))
    factor = seen.complete_s / modelled.complete_s if modelled.complete_s > 0 and modelled.derived else None
    times = seen if factor is None or not there.derived else there.slower(factor)
    return {
        "sync.transport": None,
        "sync.publish_s": times.publish_s,
        "sync.pause_s": times.pause_s,
        "sync.trainer_block_s": times.trainer_block_s,
    }
