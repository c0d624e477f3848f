"""What commands ask about a job and about their output: fields that questions share, each worded once.

A command that needs other words for an option annotates the field again in a class of its own; the field keeps its
place.
"""

from __future__ import annotations

from dataclasses import fields
from typing import Annotated, Any

from fleetsim.dataclass import dataclass
from fleetsim.job.question import Option

JOB, ENGINE, TRAINER, RUN = "The job", "The engine", "Trainer and sync", "Run and output"
SIMULATED = "What is simulated"


class AnyJob:
    """What a question is about: a `Job`, or `JobFields` from which one is made. `job.ready` gives the job in either
    case."""

    __slots__ = ()


def scenario_or_preset(scenario: str | None, preset: str | None, called: str = "SCENARIO") -> str | None:
    """The scenario that a command starts from: a file, or that of a preset; None where neither was given.

    called: how the command calls its scenario. Raises InputError for both at once, or an unknown preset.
    """
    from fleetsim.config.data_files import find_preset
    from fleetsim.errors import InputError, Problem

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
        return {field.name.rstrip("_"): getattr(self, field.name) for field in fields(self)}


@dataclass(frozen=True, kw_only=True)
class PlannedJob(JobFields):
    """A job that `size` and `split` plan for."""

    batch: Annotated[int | None, Option("Samples per optimizer step (512).", JOB)] = None
    len_: Annotated[float | None, Option("Mean generated tokens per sample (1,536).", JOB)] = None
    max_len: Annotated[float | None, Option("Longest response, tokens: max_tokens (8,192).", JOB)] = None
    len_cv: Annotated[float | None, Option("Spread of the lengths: deviation / mean (1).", JOB)] = None
    group_size: Annotated[int | None, Option("Samples per prompt, G (8).", JOB)] = None
    prompt_len: Annotated[int | None, Option("Tokens per prompt (512).", JOB)] = None
    scenario: Annotated[
        str | None,
        Option("Start from a scenario file, or a shipped one.", JOB, metavar="SCENARIO", after="prompt_len"),
    ] = None
    preset: Annotated[
        str | None, Option("Start from a framework: verl-fully-async, areal...", JOB, after="scenario")
    ] = None
    set_: Annotated[
        list[str] | None, Option("Any key of a scenario. Repeatable.", JOB, metavar="KEY=VALUE", after="preset")
    ] = None
    gpu: Annotated[str | None, Option("Rollout GPU: H100, H200, A100... (H100).", ENGINE)] = None
    model: Annotated[str | None, Option("Hugging Face id, or a config.json (Qwen/Qwen2.5-7B).", ENGINE)] = None
    tp: Annotated[int | None, Option("GPUs per instance (the cheapest that fits).", ENGINE)] = None
    dtype: Annotated[str | None, Option("Weights: bfloat16, fp8, nvfp4, mxfp4, int4, auto (auto).", ENGINE)] = None
    kv_dtype: Annotated[str | None, Option("KV cache: bfloat16, fp8, auto (auto).", ENGINE)] = None
    profile: Annotated[str | None, Option("A measured engine: profile name or file.", ENGINE)] = None
    instance_tok_s: Annotated[
        float | None, Option("Output tok/s of one instance, as measured; prompts then take no time.", ENGINE)
    ] = None
    slowdown: Annotated[
        float | None, Option("Iteration time in the job / of the engine alone (by framework).", ENGINE)
    ] = None
    trainer_step_s: Annotated[float | None, Option("Trainer compute seconds per step (by model).", TRAINER)] = None
    trainer_gpus: Annotated[int | None, Option("GPUs of the trainer (the fewest that fit).", TRAINER)] = None
    max_staleness: Annotated[float | None, Option("Weight versions a sample may lag (4).", TRAINER)] = None
    sync_pause_s: Annotated[float | None, Option("Seconds engines pause per weight sync.", TRAINER)] = None
    instance_price: Annotated[float | None, Option("USD per rollout GPU-hour (by type).", "Targets and prices")] = None
    trainer_price: Annotated[float | None, Option("USD per trainer GPU-hour (by type).", "Targets and prices")] = None
    replications: Annotated[int | None, Option("Simulated runs behind each interval (5).", RUN)] = None
    seed: Annotated[int | None, Option("Random seed (0).", RUN)] = None


@dataclass(frozen=True, kw_only=True)
class Printed:
    """What a command does with its answer. Python has methods of the result for it."""

    json_: Annotated[bool, Option("One JSON document.", RUN)] = False
    html: Annotated[str | None, Option("Write a page with charts there; it opens offline.", RUN, metavar="FILE")] = None
    fail_if: Annotated[
        list[str] | None, Option('Exit 10 if true: "step_s>30". Repeatable.', RUN, metavar="CONDITION")
    ] = None


@dataclass(frozen=True, kw_only=True)
class Output(Printed):
    """What a command does with an answer that rests on an engine's speed."""

    strict: Annotated[bool, Option("Exit 12 outside the measured range.", RUN)] = False


@dataclass(frozen=True, kw_only=True)
class BriefOutput(Output):
    """What a command does with an answer that is told in brief."""

    explain: Annotated[bool, Option("Print the rest too: why, what else was tried, what was assumed.", RUN)] = False
