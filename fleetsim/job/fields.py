"""What commands ask about a job: fields that questions share, each worded once.

A command that needs other words for an option annotates the field again in a class of its own; the field keeps its
place.
"""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import dataclass
from typing import TYPE_CHECKING, Annotated, Any, cast

from fleetsim.errors import InputError, Problem, Problems
from fleetsim.faces import flag, text
from fleetsim.job.settings import JOB, SIMULATED, AnyJob, Argument, Option, flag_words, said
from fleetsim.records import field_names

if TYPE_CHECKING:
    from fleetsim.job.base_job import Job


# Flags that say how a job is run, not which one it is.
OF_A_RUN = ("steps", "replications", "seed")


def scenario_or_preset(scenario: str | None, preset: str | None, called: str = "SCENARIO") -> str | None:
    """The scenario that a command starts from: a file, or that of a preset; None where neither was given.

    called: how the command calls its scenario. Raises InputError for both at once, or an unknown preset.
    """
    from fleetsim.config.data_files import find_preset

    if preset is None:
        return scenario
    if scenario is not None:
        rule = f"{called} {scenario} is given as well"
        raise InputError([Problem("--preset", preset, rule, "give one; --set changes its values")])
    return str(find_preset(preset))


@dataclass(frozen=True, kw_only=True)
class JobFields(AnyJob):
    """A job as a command line says it: what it starts from, and what is changed."""

    scenario: Annotated[
        str | None, Option("Start from a scenario file, or a shipped one.", JOB, metavar="SCENARIO")
    ] = None
    preset: Annotated[str | None, Option("Start from a framework: verl-fully-async, areal...", JOB)] = None
    set_: Annotated[list[str] | None, Option("Any key of a scenario. Repeatable.", JOB, metavar="KEY=VALUE")] = None
    run: Annotated[
        str | None,
        Option("What a run showed: its log, tracker, dump or Prometheus.", JOB, metavar="PATH|URL", after="set_"),
    ] = None

    # How the command calls its scenario.
    called = "--scenario"

    def start(self) -> str | None:
        """The scenario file that the job starts from; None where nothing was given. Raises InputError."""
        return scenario_or_preset(self.scenario, self.preset, self.called)

    def flags(self) -> dict[str, Any]:
        """All fields by the names of their flags, as `job_from_flags` takes them."""
        return _by_flag(self)

    def wrong(self) -> Iterator[Problem]:
        """What is wrong with a field by itself."""
        yield from ()


@dataclass(frozen=True, kw_only=True)
class JobFlags:
    """What flags say of a job, whatever it starts from: every command that takes a job has these."""

    batch: Annotated[int | None, said("batch")] = None
    len_: Annotated[float | None, said("len")] = None
    max_len: Annotated[float | None, said("max_len")] = None
    len_cv: Annotated[float | None, said("len_cv")] = None
    group_size: Annotated[int | None, said("group_size")] = None
    prompt_len: Annotated[int | None, said("prompt_len")] = None
    turns: Annotated[str | None, said("turns")] = None
    tool_s: Annotated[float | None, said("tool_s")] = None
    tool_tokens: Annotated[int | None, said("tool_tokens")] = None
    sandboxes: Annotated[int | None, said("sandboxes")] = None
    sandbox_start_s: Annotated[float | None, said("sandbox_start_s")] = None
    sandbox_price: Annotated[float | None, said("sandbox_price")] = None
    tool_timeout_s: Annotated[float | None, said("tool_timeout_s")] = None
    reward_s: Annotated[float | None, said("reward_s")] = None
    reward_workers: Annotated[int | None, said("reward_workers")] = None
    gpu: Annotated[str | None, said("gpu")] = None
    model: Annotated[str | None, said("model")] = None
    tp: Annotated[int | None, said("tp")] = None
    dtype: Annotated[str | None, said("dtype")] = None
    kv_dtype: Annotated[str | None, said("kv_dtype")] = None
    kv_offloading: Annotated[float | None, said("kv_offloading")] = None
    profile: Annotated[str | None, said("profile")] = None
    instance_tok_s: Annotated[float | None, said("instance_tok_s")] = None
    slowdown: Annotated[float | None, said("slowdown")] = None
    trainer_step_s: Annotated[float | None, said("trainer_step_s")] = None
    trainer_gpus: Annotated[int | None, said("trainer_gpus")] = None
    trainer_point: Annotated[list[str] | None, said("trainer_point")] = None
    parallel_share: Annotated[float | None, said("parallel_share")] = None
    switch_s: Annotated[float | None, said("switch_s")] = None
    max_staleness: Annotated[float | None, said("max_staleness")] = None
    sync_pause_s: Annotated[float | None, said("sync_pause_s")] = None
    instance_price: Annotated[float | None, said("instance_price")] = None
    trainer_price: Annotated[float | None, said("trainer_price")] = None
    spot: Annotated[float | None, said("spot")] = None
    spot_price: Annotated[float | None, said("spot_price")] = None
    worth: Annotated[float | None, said("worth")] = None

    def flags(self) -> dict[str, Any]:
        """As of `JobFields`, with a number of turns as one, and measured steps as [GPUs, seconds]; `wrong` has those
        that are none."""
        turns = int(self.turns) if self.turns is not None and self.turns.isdecimal() else self.turns
        return {
            **_by_flag(self),
            "turns": turns,
            "trainer_point": [p for p in map(_point, self.trainer_point or ()) if p] or None,
        }

    def wrong(self) -> Iterator[Problem]:
        """What is no measured step among those that were given."""
        for written in self.trainer_point or ():
            if _point(written) is None:
                rule = "must read GPUS:SECONDS, a whole count and a positive time"
                remedy = text("for example {}", flag("trainer_point", "16:23.5"))
                yield Problem(flag("trainer_point"), written, rule, remedy)


@dataclass(frozen=True, kw_only=True)
class CountedFlags(JobFlags):
    """What flags say of a job that is run with the instances that it has."""

    instances: Annotated[int | None, said("instances", after="prompt_len")] = None


def _point(written: str) -> list[float] | None:
    """A measured step GPUS:SECONDS; None if it is none."""
    from fleetsim.config.base import MAX_COUNT, MAX_SECONDS

    before, colon, after = written.partition(":")
    try:
        gpus, seconds = int(before), float(after)
    except ValueError:
        return None
    return [gpus, seconds] if colon and 1 <= gpus <= MAX_COUNT and 0.0 < seconds <= MAX_SECONDS else None


def _by_flag(of: Any) -> dict[str, Any]:
    return {name.rstrip("_"): getattr(of, name) for name in field_names(of)}


@dataclass(frozen=True, kw_only=True)
class PlannedJob(JobFlags, JobFields):
    """A job that `size` and `split` plan for."""

    scenario: Annotated[
        str | None, Option("Start from a scenario file, or a shipped one.", JOB, metavar="SCENARIO", after="prompt_len")
    ] = None
    preset: Annotated[
        str | None, Option("Start from a framework: verl-fully-async, areal...", JOB, after="scenario")
    ] = None
    set_: Annotated[
        list[str] | None, Option("Any key of a scenario. Repeatable.", JOB, metavar="KEY=VALUE", after="preset")
    ] = None
    replications: Annotated[int | None, said("replications")] = None
    seed: Annotated[int | None, said("seed")] = None


@dataclass(frozen=True, kw_only=True)
class CountedJob(CountedFlags, PlannedJob):
    """A job that `simulate` and `sweep` run with the instances that it has."""

    scenario: Annotated[str | None, Argument("A scenario file, or the name of a shipped one.", "SCENARIO")] = None
    preset: Annotated[
        str | None, Option("A framework instead: verl-fully-async, areal, trl-grpo...", JOB, after="prompt_len")
    ] = None
    replications: Annotated[int | None, said("replications", SIMULATED, "Runs behind each interval")] = None
    seed: Annotated[int | None, said("seed", SIMULATED)] = None

    called, to_do = "SCENARIO", "simulate"

    def start(self) -> str | None:
        """As of any job; something must be said of it, or it is no job."""
        start = super().start()
        if start is None and not any(
            value not in (None, []) for name, value in self.flags().items() if name not in OF_A_RUN
        ):
            rule, remedy = f"nothing to {self.to_do}", "give a file, --preset NAME (fleetsim scenario ls), or --batch N"
            raise InputError([Problem("SCENARIO", None, rule, remedy)])
        return start

    def words(self) -> tuple[str, ...]:
        """The words that say the same job to `simulate`, its scenario first."""
        said = {
            name: value for name, value in self.flags().items() if name not in ("scenario", "steps", "replications")
        }
        first = () if self.scenario is None else (self.scenario,)
        return (*first, *(word for name, value in said.items() for word in flag_words(name, value)))


def ready(job: AnyJob, **more: Any) -> Job:
    """The job itself. more: flags of the question that change the job as well; a Job has heard of them before.

    Raises InputError with all that is wrong with the fields.
    """
    from fleetsim.job.base_job import BaseJob, made

    if isinstance(job, BaseJob):
        return cast("Job", job)
    assert isinstance(job, JobFields)
    wrong = Problems(job.wrong())
    found = wrong.made(lambda: made(job.start(), job.set_ or (), job.flags() | more))
    wrong.stop()
    return found
