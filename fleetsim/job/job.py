"""From what a user said to a scenario: every flag, and every keyword of the Python interface, is a path of the file.

Precedence: flag > FLEETSIM_* environment variable > scenario file > default. What nobody gave is assumed and listed as
such; two assumptions give way to what was given: groups shrink to a size that divides --batch (or the batch moves to a
multiple of --group-size), and the cap of the lengths grows with --len.
"""

from __future__ import annotations

import os
from collections.abc import Collection, Mapping, Sequence
from dataclasses import replace
from itertools import chain
from typing import TYPE_CHECKING, Any

from fleetsim.config.counted import law_of
from fleetsim.config.load import default_scenario, load_scenario, scenario_from_mapping, with_changes
from fleetsim.config.override import env_overrides, parse_override
from fleetsim.config.paths import given_paths, is_at, is_given, is_touched, value_at
from fleetsim.config.scenario import Scenario
from fleetsim.config.shipped import is_preset
from fleetsim.config.unread import unread_notes
from fleetsim.config.whole_engines import rounded_note
from fleetsim.config.yaml_text import as_yaml
from fleetsim.dataclass import dataclass
from fleetsim.errors import InputError, Problem
from fleetsim.faces import SET, flag, setting, text
from fleetsim.job.derived import SECONDS, with_derived
from fleetsim.job.instance_gpus import TP, instance_gpus
from fleetsim.job.length_growth import growth_notes
from fleetsim.job.length_options import LENGTH_FLAGS, law_from_flags
from fleetsim.job.model_notes import model_notes
from fleetsim.job.prices import unlisted_price

if TYPE_CHECKING:
    from fleetsim.sim.profiled import Profiled

# A scenario file or a shipped name, a mapping like a file's, or nothing but the defaults.
Start = str | os.PathLike[str] | Mapping[str, Any] | None

# Flag (its parameter's name) -> scenario path.
PATHS: Mapping[str, str] = {
    "batch": "trainer.batch_samples",
    "group_size": "workload.group_size",
    "prompt_len": "workload.prompt_tokens",
    "trainer_step_s": "trainer.fixed_s",
    "trainer_gpus": "trainer.gpus",
    "trainer_point": "trainer.scaling.points",
    "parallel_share": "trainer.scaling.parallel_share",
    "switch_s": "fleet.switch_s",
    "gpu": "engine.gpu",
    "model": "engine.model",
    "tp": "engine.tp",
    "dtype": "engine.dtype",
    "kv_dtype": "engine.kv_dtype",
    "profile": "engine.profile",
    "instance_tok_s": "engine.instance_tok_s",
    "slowdown": "engine.slowdown",
    "headroom": "targets.headroom",
    "max_staleness": "admission.max_staleness",
    "sync_pause_s": "sync.pause_s",
    "target_idle": "targets.trainer_idle_fraction",
    "instance_price": "cost.instance_price_usd_per_gpu_h",
    "trainer_price": "cost.trainer_price_usd_per_gpu_h",
    "steps": "run.steps",
    "replications": "run.replications",
    "seed": "run.seed",
}
# What a flag sets beside its own path: a step's seconds are all its seconds, and a speed has one source.
_ALSO: Mapping[str, tuple[str, ...]] = {
    "trainer_step_s": ("trainer.per_token_s=0.0", "trainer.phases=[]"),
    "gpu": ("engine.kind=roofline",),
    "model": ("engine.kind=roofline",),
    "profile": ("engine.kind=measured",),
    "instance_tok_s": ("engine.kind=constant",),
}


# What the seconds of a trainer's step stand for.
_MAKE_SECONDS = ("engine.model", "engine.gpu", "trainer.gpus")


@dataclass(frozen=True, slots=True)
class Job:
    """A scenario as the user asked for it.

    given: dotted paths that were written somewhere, and not as `assumed`; what the user set is no longer assumed in the
    scenario. notes: for the warnings.
    """

    scenario: Scenario
    given: frozenset[str]
    notes: tuple[str, ...]


def job_from_flags(file: Start, sets: Sequence[str], flags: Mapping[str, Any]) -> Job:
    """The job of a command line, or of its keywords in Python.

    file: a scenario file or the name of a shipped one; a mapping like such a file's; None = the defaults. sets:
    `key.path=value`. flags: by parameter name, None where not given; names without a path are ignored.

    Raises InputError with the problems of all sources; a problem of a flag's value is told under the flag's name.
    """
    flags = {name: v for name, v in flags.items() if v is not None and (name in PATHS or name in LENGTH_FLAGS)}
    problems = [*_contradictions(flags), *_given_twice(sets, flags)]
    outside: list[str] = []
    try:
        outside += env_overrides(os.environ)
    except InputError as error:
        problems += error.problems
    outside += sets
    readable = []
    for written in outside:
        try:
            parse_override(written)
            readable.append(written)
        except InputError as error:
            problems += error.problems
    outside = readable
    from_flags = {name: _lines(name, flags[name]) for name in PATHS if name in flags}
    try:
        base = _load(file, outside)
    except InputError:
        base = None  # the flags may mend it; if not, the full load tells everything
    said = {line.partition("=")[0].strip() for line in chain(outside, *from_flags.values())}
    said |= {f"workload.output_tokens.{LENGTH_FLAGS[name]}" for name in flags if name in LENGTH_FLAGS}
    fitting = [] if base is None else _fitting(base, flags, said)
    try:
        scenario = _load(file, [*outside, *chain(*from_flags.values()), *fitting])
    except InputError as error:
        problems += error.problems
        # What is wrong is reported; the other flags are checked against the scenario without it.
        wrong = [p.path for p in error.problems]
        good = [lines for name, lines in from_flags.items() if not any(is_at(path, PATHS[name]) for path in wrong)]
        scenario = _without(file, outside, good)
    assumed = _assumed(scenario, said)
    given = _known(scenario, assumed) - {line.partition("=")[0] for line in fitting}
    other = _of_another(file, scenario, said)
    given = {path for path in given if not is_touched(path, other.derived)}
    asked = scenario
    if scenario.engine.dp > 1 and not problems:  # counts are those of whole engines; which were written, and as what?
        asked = _load(file, [*outside, *chain(*from_flags.values()), *fitting, "engine.dp=1"])
        given &= given_paths(asked)
    found, changes = _second_look(scenario, given, flags)
    tp = None if found else instance_gpus(with_changes(scenario, changes) if changes else scenario, given)
    if tp is not None and tp != scenario.engine.tp:
        scenario = with_changes(scenario, {TP: tp})
    if other.rollout_gpus and not is_touched("fleet.instances", said):
        engine = scenario.engine
        as_many = {"fleet.instances": max(1, other.rollout_gpus // (engine.gpus * engine.dp)) * engine.dp}
        scenario, asked = with_changes(scenario, as_many), with_changes(asked, as_many)
    profiled, wrong_engine = _engine(scenario, given)
    problems += [*found, *wrong_engine]
    if problems:
        raise InputError([replace(p, path=_flag_at(p.path, flags)) for p in problems])
    given |= {path for path in said if path.startswith("workload.output_tokens.")}
    if profiled.scenario.engine.kind == "measured":  # a profile knows its engine
        assumed = [path for path in assumed if not path.startswith("engine.")]
    if len(assumed) < len(scenario.assumed):
        changes["assumed"] = assumed
    shown = [record for record in scenario.observed if not is_touched(record.path, said)]
    if len(shown) < len(scenario.observed):  # what is said anew, no run showed
        changes["observed"] = [record.model_dump() for record in shown]
    scenario = with_changes(profiled.scenario, changes) if changes else profiled.scenario
    try:
        scenario = with_derived(scenario, given | profiled.facts)
    except InputError as error:
        raise InputError([replace(p, path=_flag_at(p.path, flags)) for p in error.problems]) from None
    return Job(
        scenario,
        frozenset(given | profiled.facts),
        (
            *_notes(flags),
            *other.notes,
            *unread_notes(scenario, sets),
            *profiled.notes,
            *model_notes(scenario, given),
            *unlisted_price(scenario),
            *growth_notes(scenario, given),
            *rounded_note(asked, scenario, given),
        ),
    )


@dataclass(frozen=True, slots=True)
class _OfAnother:
    """What a file says of another model, GPU or trainer than the flags. derived: paths that are worked out anew.
    rollout_gpus: that stay as many, 0 = nothing to keep."""

    derived: tuple[str, ...] = ()
    rollout_gpus: int = 0
    notes: tuple[str, ...] = ()


def _of_another(file: Start, scenario: Scenario, said: Collection[str]) -> _OfAnother:
    """What stands in a file for its own model and GPUs, where the flags name others.

    Of a preset it is worked out anew, for its job is an example: trainer and engines of another model, on as many
    rollout GPUs. What a user wrote stays, with a note.
    """
    moved = [path for path in _MAKE_SECONDS if path in said]
    if file is None or not moved:
        return _OfAnother()
    own = _load(file, [])
    moved = [path for path in moved if value_at(own, path) != value_at(scenario, path)]
    told_now = any(is_touched(path, said) for path in SECONDS)
    seconds = [path for path in SECONDS if is_given(path, given_paths(own)) and not told_now]
    if not moved:
        return _OfAnother()
    if is_preset(file):
        engine = moved != ["trainer.gpus"]
        follow = (*(() if told_now else SECONDS), *((TP, "trainer.gpus") if engine else ()))
        gpus = own.fleet.instances * own.engine.gpus if engine else 0
        return _OfAnother(tuple(path for path in follow if not is_touched(path, said)), gpus)
    if not seconds:
        return _OfAnother()
    told = ", ".join(f"{value_at(own, path)} ({path})" for path in moved)
    note = f"{' and '.join(seconds)}: the file says it for {told}; say it anew, or take it out to have it worked out"
    return _OfAnother(notes=(note,))


def _flag_at(path: str, flags: Mapping[str, Any]) -> str:
    """The flag that gave the value at a path, as the user wrote it; the path itself where no flag did."""
    return next((flag(name) for name in flags if name in PATHS and is_at(path, PATHS[name])), path)


def _without(file: Start, outside: Sequence[str], good: Sequence[Sequence[str]]) -> Scenario:
    """The scenario to check the other flags against: with the good flags, else the file alone, else the defaults."""
    for overrides in ([*outside, *chain(*good)], list(outside)):
        try:
            return _load(file, overrides)
        except InputError:
            continue
    return default_scenario()


def _engine(scenario: Scenario, given: set[str]) -> tuple[Profiled, list[Problem]]:
    """The scenario with its profile's facts, and what is wrong with its engine: an unknown GPU, a model too large..."""
    from fleetsim.engine.prices import prices_of
    from fleetsim.engine.transport import sync_times
    from fleetsim.sim.engines import engine_of, in_engine
    from fleetsim.sim.profiled import Profiled, as_profiled

    profiled = Profiled(scenario)
    problems: dict[str, Problem] = {}
    try:
        profiled = as_profiled(scenario, given)
    except InputError as error:
        return profiled, in_engine(scenario, error)
    for look in (engine_of, sync_times, prices_of):
        try:
            look(profiled.scenario)
        except InputError as error:
            for problem in in_engine(scenario, error):
                problems.setdefault(problem.path, problem)
    return profiled, list(problems.values())


def _assumed(scenario: Scenario, said: Collection[str]) -> list[str]:
    """What the scenario assumes and nobody said since."""
    return [path for path in scenario.assumed if not is_touched(path, said)]


def _known(scenario: Scenario, assumed: Collection[str]) -> set[str]:
    """The given paths but for the assumed ones."""
    return {path for path in given_paths(scenario) if not is_given(path, assumed)}


def _load(file: Start, overrides: Sequence[str]) -> Scenario:
    if file is None:
        return scenario_from_mapping({}, "flags", overrides)
    if isinstance(file, Mapping):
        return scenario_from_mapping(file, "scenario", overrides)
    return load_scenario(file, overrides)


def _lines(name: str, value: Any) -> list[str]:
    """The overrides that a flag stands for. JSON is YAML, so text keeps its quotes and numbers their digits."""
    return [*_ALSO.get(name, ()), override_text(PATHS[name], value)]


def override_text(path: str, value: Any) -> str:
    """The `key.path=value` of a value: text keeps its quotes and numbers their digits. Raises TypeError for an object
    that no file could hold."""
    return f"{path}={as_yaml(value)}"


def _contradictions(flags: Mapping[str, Any]) -> list[Problem]:
    """Flags that name different sources for the engine's speed."""
    found = []
    if "profile" in flags:
        for name in ("instance_tok_s", "gpu", "model"):
            if name in flags:
                rule = "a profile has its own engine speed, GPU and model"
                found.append(Problem(flag(name), flags[name], rule, "drop one of the two"))
    return found


def _given_twice(sets: Sequence[str], flags: Mapping[str, Any]) -> list[Problem]:
    """A path that a flag and --set both give: neither may lose in silence."""
    found = []
    by_path = {PATHS[name]: name for name in flags if name in PATHS}
    for written in sets:
        try:
            path, _ = parse_override(written)
        except InputError:
            continue  # told by the load
        name = by_path.get(path)
        if name is None and path.startswith("workload.output_tokens"):
            name = next((n for n in LENGTH_FLAGS if n in flags), None)
        if name is not None:
            rule, remedy = text("{} says the same thing", flag(name)), text("keep {} or {}", SET, flag(name))
            found.append(Problem(SET, written, rule, remedy))
    return found


def _fitting(base: Scenario, flags: Mapping[str, Any], said: Collection[str]) -> list[str]:
    """An assumed group size that divides the batch, or an assumed batch of whole groups."""
    given = _known(base, _assumed(base, said))
    batch, group = flags.get("batch"), flags.get("group_size")
    if batch is not None and group is None and not is_given("workload.group_size", given) and batch >= 1:
        most = base.workload.group_size
        return [f"workload.group_size={next(g for g in range(most, 0, -1) if batch % g == 0)}"]
    if group is not None and batch is None and not is_given("trainer.batch_samples", given) and group >= 1:
        return [f"trainer.batch_samples={max(1, round(base.trainer.batch_samples / group)) * group}"]
    return []


def _second_look(scenario: Scenario, given: set[str], flags: Mapping[str, Any]) -> tuple[list[Problem], dict[str, Any]]:
    """The flags whose meaning depends on the scenario: the lengths, and the staleness budget of its admission law."""
    problems: list[Problem] = []
    changes: dict[str, Any] = {}
    if any(name in flags for name in LENGTH_FLAGS):
        cap, kind = "workload.output_tokens.max", "workload.output_tokens.kind"
        found, law = law_from_flags(
            scenario.workload.output_tokens,
            is_given(cap, given) or (kind in given and not is_given(cap, scenario.assumed)),
            flags.get("len"),
            flags.get("len_cv"),
            flags.get("max_len"),
        )
        problems += found
        if law is not None:
            changes["workload.output_tokens"] = law
    budget, law_name = flags.get("max_staleness"), scenario.admission.law
    reads = law_of(scenario)
    if budget is not None and reads.budget == "batches" and budget >= 1 and budget == int(budget):
        changes[f"{reads.parameter}"] = int(budget)
    elif budget is not None and reads.budget != "versions":
        problems.append(
            Problem(
                flag("max_staleness"),
                budget,
                f"admission.law {law_name} has no such budget",
                text("add {}, or drop the flag", setting("admission.law", "version_window")),
            )
        )
    return problems, changes


def _notes(flags: Mapping[str, Any]) -> tuple[str, ...]:
    """Flags that name the hardware beside a speed that was given as a number."""
    if "instance_tok_s" not in flags:
        return ()
    idle = [f"--{name}" for name in ("gpu", "model") if name in flags]
    if not idle:
        return ()
    return (f"{' and '.join(idle)} only name the instance: its speed is --instance-tok-s",)
