"""From what a user said to a scenario: every flag, and every keyword of the Python interface, is a path of the file.

Precedence: flag > FLEETSIM_* environment variable > scenario file > default. What nobody gave is assumed and listed as
such; two assumptions give way to what was given: groups shrink to a size that divides --batch (or the batch moves to a
multiple of --group-size), and the cap of the lengths grows with --len.
"""

from __future__ import annotations

import os
from collections.abc import Collection, Mapping, Sequence
from itertools import chain
from typing import TYPE_CHECKING, Any

from msgspec import Struct

from fleetsim.config.data_files import is_preset
from fleetsim.config.law_numbers import law_of
from fleetsim.config.load import (
    default_scenario,
    env_overrides,
    load_scenario,
    parse_override,
    scenario_from_mapping,
    with_changes,
)
from fleetsim.config.scenario import Scenario, rounded_note, unread_notes
from fleetsim.config.tree import given_paths, is_at, is_given, is_touched, value_at
from fleetsim.errors import InputError, Problem
from fleetsim.faces import flag, setting, text
from fleetsim.job.derived_values import SECONDS, TP, instance_gpus, model_notes, unlisted_price, with_derived
from fleetsim.job.lengths import growth_notes, law_from_flags
from fleetsim.job.settings import LENGTH_FLAGS, PATHS
from fleetsim.job.typed_words import contradictions, given_twice, overrides, unused_notes
from fleetsim.records import replace

if TYPE_CHECKING:
    from fleetsim.job.profile_facts import Profiled

# A scenario file or a shipped name, a mapping like a file's, or nothing but the defaults.
Start = str | os.PathLike[str] | Mapping[str, Any] | None

# Where the flags of tools and rewards lie.
_STATIONS = ("workload.turns.tool_", "stations.")
# What the seconds of a trainer's step stand for.
_MAKE_SECONDS = ("engine.model", "engine.gpu", "trainer.gpus")


class StatedJob(Struct, frozen=True):
    """A scenario as the user asked for it.

    given: dotted paths that were written somewhere, and not as `assumed`; what the user set is no longer assumed in the
    scenario. notes: for the warnings.
    """

    scenario: Scenario
    given: frozenset[str]
    notes: tuple[str, ...]


def job_from_flags(file: Start, sets: Sequence[str], flags: Mapping[str, Any]) -> StatedJob:
    """The job of a command line, or of its keywords in Python.

    file: a scenario file or the name of a shipped one; a mapping like such a file's; None = the defaults. sets:
    `key.path=value`. flags: by parameter name, None where not given; names without a path are ignored.

    Raises InputError with the problems of all sources; a problem of a flag's value is told under the flag's name.
    """
    flags = {name: v for name, v in flags.items() if v is not None and (name in PATHS or name in LENGTH_FLAGS)}
    outside, unreadable = _outside(sets)
    problems = [*contradictions(flags), *given_twice(sets, flags), *unreadable]
    from_flags = {name: overrides(name, flags[name]) for name in PATHS if name in flags}
    said = {line.partition("=")[0].strip() for line in chain(outside, *from_flags.values())}
    said |= {f"workload.output_tokens.{LENGTH_FLAGS[name]}" for name in flags if name in LENGTH_FLAGS}
    fitting = _fitting(file, outside, flags, said)
    scenario, wrong = _read(file, outside, from_flags, fitting)
    problems += wrong
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
        raise _by_flag(problems, flags)
    given |= {path for path in said if path.startswith("workload.output_tokens.")}
    known = frozenset(given | profiled.facts)
    changes |= _outdated(scenario, profiled.scenario, assumed, said)
    scenario = with_changes(profiled.scenario, changes) if changes else profiled.scenario
    try:
        scenario = with_derived(scenario, known)
    except InputError as error:
        raise _by_flag(error.problems, flags) from None
    # what an agent's flags need, one turn has not; a flag of another panel may be for a way that is yet to be tried
    agents = {PATHS[name]: flag(name) for name in flags if PATHS.get(name, "").startswith(_STATIONS)}
    notes = (
        *unused_notes(flags),
        *other.notes,
        *unread_notes(scenario, sets, agents),
        *_group_note(fitting, scenario),
        *profiled.notes,
        *model_notes(scenario, given),
        *unlisted_price(scenario),
        *growth_notes(scenario, given),
        *rounded_note(asked, scenario, given),
    )
    return StatedJob(scenario, known, notes)


def _outside(sets: Sequence[str]) -> tuple[list[str], list[Problem]]:
    """The overrides of the environment and of --set that can be read, and what is wrong with the others."""
    written: list[str] = []
    readable: list[str] = []
    problems: list[Problem] = []
    try:
        written += env_overrides(os.environ)
    except InputError as error:
        problems += error.problems
    for one in [*written, *sets]:
        try:
            path, _ = parse_override(one)
            readable.append(f"{path}={one.partition('=')[2]}")
        except InputError as error:
            problems += error.problems
    return readable, problems


def _read(
    file: Start, outside: Sequence[str], from_flags: Mapping[str, Sequence[str]], fitting: Sequence[str]
) -> tuple[Scenario, list[Problem]]:
    """The scenario of all sources, and what is wrong with them: then the scenario to check the other flags against."""
    try:
        return _load(file, [*outside, *chain(*from_flags.values()), *fitting]), []
    except InputError as error:
        wrong = [p.path for p in error.problems]
        good = [lines for name, lines in from_flags.items() if not any(is_at(path, PATHS[name]) for path in wrong)]
        return _without(file, outside, good), list(error.problems)


def _outdated(scenario: Scenario, profiled: Scenario, assumed: list[str], said: Collection[str]) -> dict[str, Any]:
    """The changes that drop what no longer holds: assumptions that were said since, records of a run of what is said
    anew. A profile knows its engine."""
    if profiled.engine.kind == "measured":
        assumed = [path for path in assumed if not path.startswith("engine.")]
    changes: dict[str, Any] = {"assumed": assumed} if len(assumed) < len(scenario.assumed) else {}
    shown = [record for record in scenario.observed if not is_touched(record.path, said)]
    if len(shown) < len(scenario.observed):
        changes["observed"] = [record.model_dump() for record in shown]
    return changes


def _by_flag(problems: Sequence[Problem], flags: Mapping[str, Any]) -> InputError:
    """The problems, each under the flag that gave its value."""
    return InputError([replace(p, path=_flag_at(p.path, flags)) for p in problems])


class _OfAnother(Struct, frozen=True):
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
    seconds = [path for path in SECONDS if is_given(path, _known(own, own.assumed)) and not told_now]
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
    for kept in ([*outside, *chain(*good)], list(outside)):
        try:
            return _load(file, kept)
        except InputError:
            continue
    return default_scenario()


def _engine(scenario: Scenario, given: set[str]) -> tuple[Profiled, list[Problem]]:
    """The scenario with its profile's facts, and what is wrong with its engine: an unknown GPU, a model too large..."""
    from fleetsim.engine.prices import prices_of
    from fleetsim.engine.transport import sync_times
    from fleetsim.job.profile_facts import Profiled, as_profiled
    from fleetsim.sim.engines import engine_of, in_engine

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


def _fitting(file: Start, outside: Sequence[str], flags: Mapping[str, Any], said: Collection[str]) -> list[str]:
    """An assumed group size that divides the batch, or an assumed batch of whole groups."""
    try:
        base = _load(file, outside)
    except InputError:
        return []  # the flags may mend it; if not, the full load tells everything
    given = _known(base, _assumed(base, said))
    batch, group = flags.get("batch"), flags.get("group_size")
    if batch is not None and group is None and not is_given("workload.group_size", given) and batch >= 1:
        most = base.workload.group_size
        fits = next(g for g in range(most, 0, -1) if batch % g == 0)
        return [] if fits == most else [f"workload.group_size={fits}"]
    if group is not None and batch is None and not is_given("trainer.batch_samples", given) and group >= 1:
        return [f"trainer.batch_samples={max(1, round(base.trainer.batch_samples / group)) * group}"]
    return []


def _group_note(fitting: Sequence[str], scenario: Scenario) -> tuple[str, ...]:
    if not any(line.startswith("workload.group_size=") for line in fitting):
        return ()
    batch, groups = scenario.trainer.batch_samples, scenario.workload.group_size
    return (
        text(
            "{} {} holds no whole groups of the usual size: groups of {} are assumed; {} says yours",
            flag("batch"),
            batch,
            groups,
            flag("group_size"),
        ),
    )


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
    elif budget == 0 and reads.budget != "versions":  # on-policy, whatever the law counts in
        changes |= {} if reads.waits_for_trainer else {"admission.law": "barrier"}
    elif budget is not None and reads.budget != "versions":
        rule = f"admission.law {law_name} has no such budget"
        remedy = text("add {}, or drop the flag", setting("admission.law", "version_window"))
        problems.append(Problem(flag("max_staleness"), budget, rule, remedy))
    return problems, changes
