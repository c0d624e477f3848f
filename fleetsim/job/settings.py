"""The table of settings: one record for everything of a job that has a flag and a keyword in Python.

A record points to the scenario: which type, limits and default its value has, and what it means, stands in
`fleetsim/config` at that path, and nowhere else. Read from here: the options of every command (`said`), what a flag
sets (`PATHS`, `ALSO`), keywords in Python and their examples (`options.py`), and what is typed for a path in
assumptions, advice, records of a run and errors (`SAID_BY`). What can be said of a value only beside its
scenario is kept under the same path: the words of a default in `assumptions.py`, how far it may be off in
`uncertainty.py`. This file is read whenever a command starts, so it imports nothing of the scenario.
"""

from __future__ import annotations

from collections.abc import Callable, Iterator, Mapping
from typing import Any, Protocol, Self

from msgspec import Struct

from fleetsim.faces import flag

# --- What a question's fields are on the command line. Plain data: a question imports neither typer nor the like.
# A question is a frozen dataclass. Each field that the command line offers is `Annotated` with an Option or an
# Argument; a field with Lends stands for a dataclass whose own fields become options; a field with neither is for
# Python alone. A field's name is the keyword in Python and, without a final underscore, the name of the flag.


class Option(Struct, frozen=True):
    """help: one line. panel: where `--help` lists it, None = among those without a name. flag: where it is not made of
    the field's name. short: a second flag, of one letter. variable: the environment variable that stands in for it.
    metavar: what stands for its value. after: the field that it follows in `--help`, where its class has it
    elsewhere."""

    help: str
    panel: str | None
    flag: str | None = None
    metavar: str | None = None
    after: str | None = None
    short: str | None = None
    variable: str | None = None


class Argument(Struct, frozen=True):
    """help: one line. metavar: what stands for its value."""

    help: str
    metavar: str


class Lends(Struct, frozen=True):
    """fields: the dataclass whose fields are options of this command as well."""

    fields: type


class AnyJob:
    """What a question is about: a `Job`, or `JobFields` from which one is made. `job.ready` gives the job in either
    case."""

    __slots__ = ()


# Who reads a run: one entry. `replay` does, which stands above a job, so the command line and Python's `Job` say it.
# What the run showed in a job's start, notes, and the history: of a start, `key.path=value` texts, options, where the
# run is, and its history if it was read before.
READERS: list[Callable[..., Any]] = []


class Question(Protocol):
    """What a feature can be asked."""

    def ready(self) -> Self:
        """The same question with its job made. Raises InputError with all that is wrong with its fields."""


# Panels of `--help`.
JOB, AGENTS, ENGINE, TRAINER, RUN = "The job", "Tools and rewards", "The engine", "Trainer and sync", "Run and output"
SIMULATED, PRICES, TARGETS = "What is simulated", "Prices", "Targets and prices"
# The law of lengths: its flags say it together, so none of them has a path of its own.
LENGTHS = "workload.output_tokens"
# Commands that measure a value.
CALIBRATE, REPLAY = "fleetsim calibrate", "fleetsim replay"


class JobSetting(Struct, frozen=True):
    """name: the keyword in Python; with dashes the flag. path: of the scenario. words: of `--help`, with the unit.
    default: as it is told there, "" = not at all; a value is the schema's, which tests compare. panel: of `--help`.
    example: a value that Python may give. also: what the flag sets beside its path. metavar: what stands for its value
    in `--help`. measure: the command that measures it, "" = somebody knows it and says it by the flag.
    """

    name: str
    path: str
    words: str
    default: str
    panel: str
    example: Any
    also: tuple[str, ...] = ()
    metavar: str | None = None
    measure: str = ""


def _table() -> Iterator[JobSetting]:
    """All of them, in the order in which a command has them."""
    roofline, scaling = ("engine.kind=roofline",), "trainer.scaling"
    yield JobSetting("batch", "trainer.batch_samples", "Samples per optimizer step", "512", JOB, 512)
    yield JobSetting("len", f"{LENGTHS}.mean", "Mean generated tokens per sample", "1,513", JOB, 1536)
    yield JobSetting("max_len", f"{LENGTHS}.max", "Longest response, tokens: max_tokens", "8,192", JOB, 8192)
    yield JobSetting("len_cv", f"{LENGTHS}.cv", "Spread of the lengths: deviation / mean", "1", JOB, 1.0)
    yield JobSetting("group_size", "workload.group_size", "Samples per prompt, G", "8", JOB, 8)
    yield JobSetting("prompt_len", "workload.prompt_tokens", "Tokens per prompt", "512", JOB, 512)

    # Agents, and who serves them. Where size chooses workers, theirs is the count to beat.
    turns, tools = "workload.turns", "stations.tools"
    served, start = "Sandboxes, or workers of tools: calls at the same time", "Seconds until a fresh sandbox begins"
    agent = "Generations per sample, a tool call between two; or geometric:3, uniform:1:5"
    late = "A tool call is given up after so many seconds"
    yield JobSetting("turns", f"{turns}.count", agent, "1", AGENTS, 10, metavar="N|LAW")
    yield JobSetting("tool_s", f"{turns}.tool_latency_s", "Seconds of a tool call", "0", AGENTS, 20)
    yield JobSetting("tool_tokens", f"{turns}.tool_tokens", "Tokens of a tool's answer", "0", AGENTS, 500)
    yield JobSetting("sandboxes", f"{tools}.workers", served, "no limit", AGENTS, 64)
    yield JobSetting("sandbox_start_s", f"{tools}.start_s", start, "0", AGENTS, 4)
    yield JobSetting("sandbox_price", f"{tools}.worker_price_usd_per_h", "USD per sandbox-hour", "0", AGENTS, 0.05)
    yield JobSetting("tool_timeout_s", f"{tools}.timeout_s", late, "never", AGENTS, 60)
    yield JobSetting("reward_s", "workload.reward.latency_s", "Seconds to score a sample", "0", AGENTS, 5)
    yield JobSetting("reward_workers", "stations.reward.workers", "Samples scored at once", "no limit", AGENTS, 32)

    # The engine. A speed has one source, so a flag of one says which kind it is.
    model, tok_s = "Qwen/Qwen2.5-7B", "Output tok/s of one instance, as measured; prompts then take no time"
    host = "GiB of host memory for an instance's KV blocks"
    profile = "A measured engine: a file, or a name of profile ls"
    yield JobSetting("gpu", "engine.gpu", "Rollout GPU: H100, H200, A100...", "H100", ENGINE, "H100", roofline)
    yield JobSetting("model", "engine.model", "Hugging Face id, or a config.json", model, ENGINE, model, roofline)
    yield JobSetting("tp", "engine.tp", "GPUs per instance", "the cheapest that fits", ENGINE, 1)
    yield JobSetting("dtype", "engine.dtype", "Weights: bfloat16, fp8, nvfp4, mxfp4, int4, auto", "auto", ENGINE, "fp8")
    yield JobSetting("kv_dtype", "engine.kv_dtype", "KV cache: bfloat16, fp8, auto", "auto", ENGINE, "fp8")
    yield JobSetting("kv_offloading", "engine.kv_offloading_gib", host, "", ENGINE, 64)
    yield JobSetting("profile", "engine.profile", profile, "", ENGINE, "engine.profile.json", ("engine.kind=measured",))
    yield JobSetting("instance_tok_s", "engine.instance_tok_s", tok_s, "", ENGINE, 4000, ("engine.kind=constant",))
    slower = "Iteration time in the job / of the engine alone"
    yield JobSetting("slowdown", "engine.slowdown", slower, "by framework", ENGINE, 1.3, measure=REPLAY)

    # Trainer and weight sync. The seconds of a step are all its seconds.
    seconds, whole_step = "Trainer compute seconds per step", ("trainer.per_token_s=0.0", "trainer.phases=[]")
    point, points = "A measured step, instead of the law. Repeatable", [(8, 20.0), (16, 11.5)]
    share = "Share of those seconds that more GPUs divide"
    yield JobSetting("trainer_step_s", "trainer.fixed_s", seconds, "by model", TRAINER, 20, whole_step)
    yield JobSetting("trainer_gpus", "trainer.gpus", "GPUs of the trainer", "the fewest servers", TRAINER, 8)
    yield JobSetting("trainer_point", f"{scaling}.points", point, "", TRAINER, points, metavar="GPUS:SECONDS")
    yield JobSetting("parallel_share", f"{scaling}.parallel_share", share, "", TRAINER, 0.95)
    yield JobSetting("switch_s", "fleet.switch_s", "Colocated: seconds to switch, each way", "", TRAINER, 5)
    ahead = "Weight versions that generation may run ahead"
    yield JobSetting("max_staleness", "admission.max_staleness", ahead, "4", TRAINER, 1)
    yield JobSetting("sync_pause_s", "sync.pause_s", "Seconds engines pause per weight sync", "", TRAINER, 2)

    # Prices, targets, the run.
    idle, derate = "Trainer idle at most, as a share", "Share of an instance's rate that the arithmetic counts on"
    worth = "Per cent of cost that 1 % of step time is worth"
    rollout, trainer = "USD per rollout GPU-hour", "USD per trainer GPU-hour"
    yield JobSetting("instance_price", "cost.instance_price_usd_per_gpu_h", rollout, "by type", PRICES, 2.5)
    yield JobSetting("trainer_price", "cost.trainer_price_usd_per_gpu_h", trainer, "by type", PRICES, 2.5)
    spot, spot_price = "Share of rollout instances on spot machines", "USD per rollout GPU-hour on spot"
    yield JobSetting("spot", "fleet.spot.share", spot, "0", PRICES, 0.7)
    yield JobSetting("spot_price", "cost.spot_price_usd_per_gpu_h", spot_price, "0.4 of its price", PRICES, 1.0)
    yield JobSetting("worth", "targets.worth", worth, "1", PRICES, 2)
    yield JobSetting("target_idle", "targets.trainer_idle_fraction", idle, "0.05", TARGETS, 0.05)
    yield JobSetting("headroom", "targets.headroom", derate, "0.8", TARGETS, 0.8)
    yield JobSetting("replications", "run.replications", "Simulated runs behind each interval", "5", RUN, 4)
    yield JobSetting("seed", "run.seed", "Random seed", "0", RUN, 1)
    yield JobSetting("instances", "fleet.instances", "Rollout instances", "8", ENGINE, 8)
    yield JobSetting("steps", "run.steps", "Optimizer steps to simulate", "until steady", SIMULATED, 20)


SETTINGS = tuple(_table())
BY_NAME: Mapping[str, JobSetting] = {setting.name: setting for setting in SETTINGS}
# Flag (its parameter's name) -> the part of the law of lengths that it says, and all other flags -> path.
LENGTH_FLAGS: Mapping[str, str] = {
    s.name: s.path.rpartition(".")[2] for s in SETTINGS if s.path.startswith(f"{LENGTHS}.")
}
PATHS: Mapping[str, str] = {s.name: s.path for s in SETTINGS if s.name not in LENGTH_FLAGS}
ALSO: Mapping[str, tuple[str, ...]] = {s.name: s.also for s in SETTINGS if s.also}
# What `simulate` takes: no target, for nothing is held against it there.
SIMULATE_FLAGS = tuple(s.name for s in SETTINGS if s.panel != TARGETS)
# Path -> the flag that says it: each one's own, and for the other seconds of a step that of all its seconds.
SAID_BY: Mapping[str, str] = {
    **{place.partition("=")[0]: "trainer_step_s" for place in ALSO["trainer_step_s"]},
    **{s.path: s.name for s in SETTINGS},
}


def said(name: str, panel: str | None = None, words: str | None = None, after: str | None = None) -> Option:
    """A setting as an option of a command. panel, words: where the command has others."""
    setting = BY_NAME[name]
    default = f" ({setting.default})" if setting.default else ""
    return Option(f"{words or setting.words}{default}.", panel or setting.panel, metavar=setting.metavar, after=after)


def place_of(name: str) -> str | None:
    """The path of the scenario that an option says; None for one that says none."""
    return BY_NAME[name].path if name in BY_NAME else None


def typed_for(path: str, example: object) -> str:
    """What one types to say a path's value: its flag, else `--set` with an example."""
    return flag(SAID_BY[path]) if path in SAID_BY else f"--set {path}={example}"


def flag_words(name: str, value: Any) -> Iterator[str]:
    """An option and its value as two words, once for each value of a list; nothing for None."""
    several = isinstance(value, (list, tuple))
    for one in value if several else () if value is None else (value,):
        yield str(flag(name))
        yield ":".join(map(typed, one)) if isinstance(one, (list, tuple)) else typed(one)


def typed(value: Any) -> str:
    """A value as one would type it: 2, not 2.0, and with all its digits."""
    return str(int(value)) if isinstance(value, float) and value.is_integer() else str(value)
