"""What commands ask about a job and about their output: fields that questions share, each worded once.

A command that needs other words for an option annotates the field again in a class of its own; the field keeps its
place.
"""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import fields
from typing import Annotated, Any

from fleetsim.dataclass import dataclass
from fleetsim.errors import InputError, Problem
from fleetsim.faces import flag, text
from fleetsim.job.question import Argument, Option

JOB, ENGINE, TRAINER, RUN = "The job", "The engine", "Trainer and sync", "Run and output"
SIMULATED, PRICES = "What is simulated", "Prices"
# Of the flag that says how much faster a step must be to cost more.
WORTH = "Per cent of cost that 1 % of step time is worth (1)."
# Flags that say how a job is run, not which one it is.
OF_A_RUN = ("steps", "replications", "seed")


class AnyJob:
    """What a question is about: a `Job`, or `JobFields` from which one is made. `job.ready` gives the job in either
    case."""

    __slots__ = ()


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

    batch: Annotated[int | None, Option("Samples per optimizer step (512).", JOB)] = None
    len_: Annotated[float | None, Option("Mean generated tokens per sample (1,513).", JOB)] = None
    max_len: Annotated[float | None, Option("Longest response, tokens: max_tokens (8,192).", JOB)] = None
    len_cv: Annotated[float | None, Option("Spread of the lengths: deviation / mean (1).", JOB)] = None
    group_size: Annotated[int | None, Option("Samples per prompt, G (8).", JOB)] = None
    prompt_len: Annotated[int | None, Option("Tokens per prompt (512).", JOB)] = None
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
    trainer_point: Annotated[
        list[str] | None,
        Option("A measured step, instead of the law. Repeatable.", TRAINER, metavar="GPUS:SECONDS"),
    ] = None
    parallel_share: Annotated[float | None, Option("Share of those seconds that more GPUs divide.", TRAINER)] = None
    switch_s: Annotated[float | None, Option("Colocated: seconds to switch, each way.", TRAINER)] = None
    max_staleness: Annotated[float | None, Option("Weight versions that generation may run ahead (4).", TRAINER)] = None
    sync_pause_s: Annotated[float | None, Option("Seconds engines pause per weight sync.", TRAINER)] = None
    instance_price: Annotated[float | None, Option("USD per rollout GPU-hour (by type).", PRICES)] = None
    trainer_price: Annotated[float | None, Option("USD per trainer GPU-hour (by type).", PRICES)] = None
    worth: Annotated[float | None, Option(WORTH, PRICES)] = None

    def flags(self) -> dict[str, Any]:
        """As of `JobFields`, with the measured steps as [GPUs, seconds]; `wrong` has those that are none."""
        return {**_by_flag(self), "trainer_point": [p for p in map(_point, self.trainer_point or ()) if p] or None}

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

    instances: Annotated[int | None, Option("Rollout instances (8).", ENGINE, after="prompt_len")] = None


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
    return {field.name.rstrip("_"): getattr(of, field.name) for field in fields(of)}


@dataclass(frozen=True, kw_only=True)
class PlannedJob(JobFlags, JobFields):
    """A job that `size` and `split` plan for."""

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
    replications: Annotated[int | None, Option("Simulated runs behind each interval (5).", RUN)] = None
    seed: Annotated[int | None, Option("Random seed (0).", RUN)] = None


@dataclass(frozen=True, kw_only=True)
class CountedJob(CountedFlags, PlannedJob):
    """A job that `simulate` and `sweep` run with the instances that it has."""

    scenario: Annotated[str | None, Argument("A scenario file, or the name of a shipped one.", "SCENARIO")] = None
    preset: Annotated[
        str | None, Option("A framework instead: verl-fully-async, areal, trl-grpo...", JOB, after="prompt_len")
    ] = None
    replications: Annotated[int | None, Option("Runs behind each interval (5).", SIMULATED)] = None
    seed: Annotated[int | None, Option("Random seed (0).", SIMULATED)] = None

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


def flag_words(name: str, value: Any) -> Iterator[str]:
    """An option and its value as two words, once for each value of a list; nothing for None."""
    several = isinstance(value, (list, tuple))
    for one in value if several else () if value is None else (value,):
        yield str(flag(name))
        yield ":".join(map(typed, one)) if isinstance(one, (list, tuple)) else typed(one)


def typed(value: Any) -> str:
    """A value as one would type it: 2, not 2.0, and with all its digits."""
    return str(int(value)) if isinstance(value, float) and value.is_integer() else str(value)


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
