"""What happens every N steps: checkpoints, and evaluations on the fleet, on the trainer's GPUs or on their own."""

from __future__ import annotations

from typing import Any

from fleetsim.config.scenario import Scenario
from fleetsim.engine.model.names import model_shape
from fleetsim.engine.requests import run_requests
from fleetsim.errors import InputError, Problem
from fleetsim.sim.records import CHECKPOINT, EVALUATION
from fleetsim.sim.run_state import Process, RunState
from fleetsim.workload.groups import Groups, GroupSource
from fleetsim.workload.streams import seed_sequence

# Bytes of a weight in a checkpoint that training can go on from: itself, its master copy, and Adam's two moments.
BYTES_PER_WEIGHT = 14.0


def checkpoint(job: RunState, step: int) -> Process:
    """Saves where this step ends with a checkpoint. Returns the seconds that the trainer stands still for it.

    In the background the bytes are written beside training; where the one before is not written yet, this one waits.
    """
    saving = job.scenario.trainer.checkpoint
    if not saving.every_steps or not saving.costs or (step + 1) % saving.every_steps:
        return 0.0
    began = job.now
    write_s = write_seconds(job.scenario)
    job.trainer_does(CHECKPOINT, step)
    if job.written_s > began:
        yield job.env.timeout(job.written_s - began)
    yield job.env.timeout(saving.stall_s + (0.0 if saving.background else write_s))
    job.written_s = job.now + (write_s if saving.background else 0.0)
    return job.now - began


def write_seconds(scenario: Scenario) -> float:
    """Seconds in which the bytes of a checkpoint are written. Raises InputError for a model that nobody knows."""
    saving, trainer = scenario.trainer.checkpoint, scenario.trainer
    if saving.write_bytes_s is None:
        return 0.0
    if saving.state_bytes is not None:
        return saving.state_bytes / saving.write_bytes_s
    try:
        shape = model_shape(trainer.recipe.model or scenario.engine.model)
    except InputError as error:
        rule = "the bytes of a checkpoint follow from the model, and it is not known"
        remedy = "give trainer.checkpoint.state_bytes, or a known trainer.recipe.model"
        raise InputError([*error.problems, Problem("trainer.checkpoint.state_bytes", None, rule, remedy)]) from None
    return BYTES_PER_WEIGHT * shape.params / saving.write_bytes_s


def evaluate(job: RunState, step: int) -> Process:
    """Begins the evaluation that falls to the end of this step, once the one before is over. Returns the seconds that
    the trainer is held: until that one's end, and until its own where it is waited for."""
    given = job.scenario.evaluation
    if given.every_steps is None or (step + 1) % given.every_steps:
        return 0.0
    began, waits = job.now, given.blocking or given.at == "trainer"
    earlier = None if job.evaluation is None or job.evaluation.processed else job.evaluation
    if waits or earlier is not None:
        job.trainer_does(EVALUATION, step)
    if earlier is not None:
        yield earlier
    job.evaluation = job.env.process(_evaluation(job, step))
    if waits:
        yield job.evaluation
    return job.now - began


def _evaluation(job: RunState, step: int) -> Process:
    """One evaluation, from its first request to its last answer."""
    began, given = job.now, job.scenario.evaluation
    if given.seconds is not None:
        yield job.env.timeout(given.seconds)
    elif given.on_fleet:
        job.evaluated = job.env.event()
        rows = job.fleet.draws.evaluate(_drawn(job))
        yield job.evaluated
        job.evaluated = None
        job.evaluated_tokens += int(job.fleet.world.samples["made"][rows].sum())
    else:
        yield job.env.timeout(_alone(job))
    job.evaluations.append((step, began, job.now))


def _drawn(job: RunState) -> Groups:
    """The requests of the next evaluation."""
    given, workload = job.scenario.evaluation, job.scenario.workload
    if job.questions is None:
        asked: dict[str, Any] = {
            "prompt_tokens": given.prompt_tokens or workload.prompt_tokens,
            "output_tokens": given.output_tokens or workload.output_tokens,
            "group_size": 1,
            "length_drift_per_step": 0.0,
        }
        if given.output_tokens is not None:
            asked["turns"] = workload.turns.model_copy(update={"output_tokens": None})
        seeds = seed_sequence(job.scenario.run.seed, job.replication, "evaluation")
        job.questions = GroupSource(workload.model_copy(update=asked), seeds)
    return job.questions.take(given.samples)


def _alone(job: RunState) -> float:
    """Seconds until engines that do nothing else have answered all; tools and rewards apart."""
    drawn, instances = _drawn(job), evaluation_instances(job.scenario)
    step_time, limits = job.fleet.engine
    done = run_requests(
        step_time, limits, drawn.prompt_tokens, drawn.output_tokens, instances=instances, routing="least_loaded"
    )
    return float(done.finish_s.max())


def evaluation_instances(scenario: Scenario) -> int:
    """Instances that only evaluate: its own, or those that the trainer's GPUs make."""
    given = scenario.evaluation
    if given.at == "trainer":
        return given.instances or scenario.trainer.gpus // scenario.engine.gpus
    return given.instances or 1
