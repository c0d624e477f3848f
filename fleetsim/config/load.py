"""From a file, a mapping or nothing to a Scenario, with every problem reported at once; and back to text."""

from __future__ import annotations

import os
from collections.abc import Collection, Iterable, Iterator, Mapping, Sequence
from copy import deepcopy
from pathlib import Path
from typing import Any

from pydantic import ValidationError

from fleetsim import faces
from fleetsim.config.base import ConfigSection, unsaid
from fleetsim.config.data_files import find_scenario, read_text
from fleetsim.config.makes import without_the_absent
from fleetsim.config.problems import of_another_kind, problems_of, wrong_places
from fleetsim.config.rules import broken_rules
from fleetsim.config.scenario import Scenario, whole_engines
from fleetsim.config.sections import FollowConfig, followed
from fleetsim.config.tree import Node, Place, field_at, is_touched, long_path, tree_of, unknown_path, written_out
from fleetsim.config.workload import Empirical
from fleetsim.config.yaml_text import MAX_BYTES, from_yaml, to_yaml
from fleetsim.errors import InputError, Problem

# --- `--set key.path=value` and FLEETSIM_<SECTION>__<FIELD>: single values on top of a scenario, later ones win.

ENV_PREFIX = "FLEETSIM_"

# Setting one key of a pair takes the law's other pair back: the last word wins, as between two --set.
_PAIRS = {"mean": ("median", "p99"), "cv": ("median", "p99"), "median": ("mean", "cv"), "p99": ("mean", "cv")}

# What is accepted of drafts is said in one way, so that a last word takes the others back as well.
_ACCEPTANCE = ("acceptance", "acceptance_length", "curve")

# Keys of values that are files, in laws of lengths and for spot machines.
_FILES = ("file", "trace")


def parse_override(text: str) -> tuple[str, Any]:
    """`fleet.instances=12` -> ("fleet.instances", 12); the value is a YAML scalar or flow value.

    Raises InputError for text without `=`, an unknown path (with "did you mean") or a value that is no YAML.
    """
    path, equals, value_text = text.partition("=")
    path = long_path(path.strip())
    if not equals or not path:
        remedy = faces.text("for example {}", faces.setting("fleet.instances", 12))
        raise InputError([Problem(faces.SET, text, "must read key.path=value", remedy)])
    problem = unknown_path(tree_of(Scenario), path)
    if problem is not None:
        raise InputError([problem])
    if not value_text.strip():
        return path, None
    return path, from_yaml(value_text, faces.Text(f"--set {path}", path))


def parse_overrides(overrides: Sequence[str]) -> list[tuple[str, Any]]:
    """`parse_override` of each. Raises InputError with the problems of all."""
    changes, problems = parsed_overrides(overrides)
    if problems:
        raise InputError(problems)
    return changes


def parsed_overrides(overrides: Sequence[str]) -> tuple[list[tuple[str, Any]], list[Problem]]:
    """`parse_override` of each that can be parsed, and the problems of the others."""
    problems: list[Problem] = []
    changes: list[tuple[str, Any]] = []
    for text in overrides:
        try:
            changes.append(parse_override(text))
        except InputError as error:
            problems.extend(error.problems)
    return changes, problems


def with_overrides(raw: Mapping[str, Any], overrides: Sequence[str]) -> dict[str, Any]:
    """A copy of a raw scenario mapping with every `key.path=value` applied in order.

    Raises InputError with the problems of all overrides.
    """
    changes, problems = parsed_overrides(overrides)
    result: dict[str, Any] = dict(raw)
    for path, value in changes:
        problem = _put(result, path, _with_whole_paths(path, value))
        if problem is not None:
            problems.append(problem)
    if problems:
        raise InputError(problems)
    return result


def env_overrides(environ: Mapping[str, str]) -> tuple[str, ...]:
    """The overrides that FLEETSIM_<SECTION>__<FIELD> variables ask for, sorted by name, as `--set` would write them.

    FLEETSIM_FLEET__INSTANCES=12 is fleet.instances=12, whatever the case. Variables without a double underscore
    (FLEETSIM_DEBUG) are settings of the program and left alone. To let flags win, put these before the flags'.
    Raises InputError for a variable that names no field.
    """
    overrides, problems = [], []
    for name in sorted(environ):
        if not name.upper().startswith(ENV_PREFIX) or "__" not in name:
            continue
        path = long_path(".".join(name[len(ENV_PREFIX) :].lower().split("__")))
        problem = unknown_path(tree_of(Scenario), path)
        if problem is None:
            overrides.append(f"{path}={environ[name]}")
        else:
            problems.append(Problem(name, environ[name], f"names no field ({path}: {problem.rule})", problem.remedy))
    if problems:
        raise InputError(problems)
    return tuple(overrides)


def _with_whole_paths(path: str, value: Any) -> Any:
    """A value that somebody typed: a file in it lies in the working directory, not beside the scenario."""
    if isinstance(value, Mapping):
        return {key: _with_whole_paths(f"{path}.{key}", below) for key, below in value.items()}
    is_file = isinstance(value, str) and value and path.rpartition(".")[2] in _FILES
    return os.path.abspath(value) if is_file else value


def _put(target: dict[str, Any], path: str, value: Any) -> Problem | None:
    """Set one value in a nested mapping, copying every mapping on the way; the target itself is changed."""
    *above, last = path.split(".")
    node, here = tree_of(Scenario), target
    for depth, key in enumerate(above):
        node = node.below(key) or Node()
        below = here.get(key)
        if node.laws:
            below = _law_to_change(below, above[: depth + 1], node.laws)
        if below is None:
            below = {}
        if not isinstance(below, Mapping):
            return Problem(
                path, below, f"cannot be set: {'.'.join(above[: depth + 1])} is no mapping", "mend that value first"
            )
        here[key] = dict(below)
        here = here[key]
    if node.laws:
        for other in _PAIRS.get(last, ()):
            here.pop(other, None)
    if above == ["engine", "speculation"] and last in _ACCEPTANCE and value is not None:
        for other in _ACCEPTANCE:
            here.pop(other, None)
    here[last] = value
    return None


def _law_to_change(given: Any, path: Sequence[str], laws: Collection[str]) -> Any:
    """A law as a mapping: a bare number written out, where that is one of the laws; where none is given its default, so
    that its cap stays, if it has one."""
    law = field_at(Scenario(), ".".join(path)) if given is None else given
    if isinstance(law, (int, float)) and not isinstance(law, bool):
        return {"kind": "constant", "value": law} if "constant" in laws else None
    return law.model_dump(exclude_none=True) if isinstance(law, ConfigSection) else law


def load_scenario(path: str | os.PathLike[str], overrides: Sequence[str] = ()) -> Scenario:
    """The scenario in a YAML file (or of a shipped name), with `key.path=value` overrides applied before validation.

    Relative paths in the file are relative to its folder. Later overrides win; put `env_overrides(os.environ)` before
    the flags'. Counts of instances are rounded up to whole engines of `engine.dp` ranks. Raises
    InputError with all problems: of the file, its YAML, its keys and values, the rules that join fields, values that
    are not supported yet.
    """
    file = find_scenario(path)
    shown = os.fspath(file)
    raw = from_yaml(read_text(file, "SCENARIO", MAX_BYTES), shown)
    if other := of_another_kind(raw, tree_of(Scenario), ("SCENARIO", shown), "a scenario"):
        raise InputError(other)
    return _built(raw, overrides, shown, file.parent, rounded=True)


def scenario_from_mapping(
    mapping: Mapping[str, Any],
    where: str = "scenario",
    overrides: Sequence[str] = (),
    base: str | os.PathLike[str] | None = None,
) -> Scenario:
    """The scenario in a plain mapping (parsed JSON or YAML). `where` names it in errors.

    `base` is the folder that relative paths in it refer to, the working directory if None. Raises InputError as
    `load_scenario` does.
    """
    return _built(mapping, overrides, where, Path() if base is None else Path(base), rounded=True)


def default_scenario() -> Scenario:
    """The embedded default: a 7B model on H100, groups of 8, 512 samples per step, 20 s of trainer compute."""
    return Scenario()


def with_changes(scenario: Scenario, changes: Mapping[str, Any]) -> Scenario:
    """A copy with dotted paths set to new values: `with_changes(s, {"fleet.instances": 12})`.

    Validated like a file. Raises InputError.
    """
    raw = _taken_apart(scenario, changes)
    problems: list[Problem] = []
    for path, value in changes.items():
        *above, last = long_path(path).split(".")
        here: Any = raw
        for key in above:
            here = here.setdefault(key, {}) if isinstance(here, dict) else None
        if isinstance(here, dict):
            # A later path may go into a mapping, which is the caller's.
            here[last] = value.model_dump() if hasattr(value, "model_dump") else deepcopy(value)
        else:
            problems.append(Problem(path, value, "cannot be set: a value stands above it", "set the whole value"))
    if problems:
        raise InputError(problems)
    raw = written_out(raw, last_word=True)
    if scenario.follow != unsaid(FollowConfig):
        raw = followed(scenario.model_dump(exclude_none=True), raw, changes)
    return _built(raw, (), "scenario", Path())


def _taken_apart(scenario: Scenario, changes: Iterable[str]) -> dict[str, Any]:
    """The scenario as a raw one. What these paths leave alone stays as it was validated, where it counts as given."""
    touched = {long_path(path).partition(".")[0] for path in changes}
    if "workload" in touched:
        touched.add("stations")  # where a short form in it may stand for something
    whole = scenario.follow == unsaid(FollowConfig)
    kept = {n: v for n, v in scenario if whole and n not in touched and v is not None and _is_whole(v)}
    return {**scenario.model_dump(exclude_none=True, exclude=set(kept)), **kept}


# Most values are of these: a search asks some hundred thousand times.
_PLAIN = frozenset((bool, int, float, str, type(None)))


def _is_whole(section: Any) -> bool:
    """Whether each value that is there counts as given, and no other, as in a scenario that was dumped and read."""
    if isinstance(section, (tuple, Mapping)):
        return all(map(_is_whole, section.values() if isinstance(section, Mapping) else section))
    if not isinstance(section, ConfigSection):
        return True
    given, values = section.model_fields_set, vars(section)
    return given == {name for name, value in values.items() if value is not None} and all(
        type(value) in _PLAIN or _is_whole(value) for value in values.values()
    )


def dump_scenario(scenario: Scenario) -> str:
    """YAML of the resolved scenario, defaults written out, that loads back to an equal one. Nulls are left out."""
    return to_yaml(_short(scenario.model_dump(exclude_none=True)))


def dump_short(scenario: Scenario, keep: Collection[str] = ()) -> str:
    """YAML of what differs from the defaults, that loads back to an equal scenario. A law stands there whole.

    keep: dotted paths that are written whether they differ or not, or sections: what somebody said.
    """
    raw = scenario.model_dump(exclude_none=True)
    text = to_yaml(_short(_differing(raw, Scenario().model_dump(exclude_none=True), keep, "")))
    # A default that depends on what else is given does not survive being left out.
    again = scenario_from_mapping(from_yaml(text, "scenario"))
    return text if again == scenario else dump_scenario(scenario)


def _differing(raw: Mapping[str, Any], defaults: Mapping[str, Any], keep: Collection[str], path: str) -> dict[str, Any]:
    kept: dict[str, Any] = {}
    for key, value in raw.items():
        here, default = f"{path}{key}", defaults.get(key)
        law = isinstance(value, Mapping) and "kind" in value and here != "engine"
        if isinstance(value, Mapping) and isinstance(default, Mapping) and not law:
            below = _differing(value, default, keep, f"{here}.")
            if below:
                kept[key] = below
        elif value != default or here == "schema_version" or is_touched(here, keep):
            kept[key] = value
    return kept


def json_schema() -> dict[str, Any]:
    """JSON schema (2020-12) of a scenario file, for editors."""
    schema = Scenario.model_json_schema()
    return {"$schema": "https://json-schema.org/draft/2020-12/schema", "title": "fleetsim scenario", **schema}


def _built(raw: object, overrides: Sequence[str], where: str, base: Path, rounded: bool = False) -> Scenario:
    """The scenario of a raw one. rounded: counts of instances are rounded up to whole engines, else refused."""
    if not isinstance(raw, Mapping):
        raise InputError(
            [Problem(where, raw, "must be a mapping of sections", "write sections such as `workload:` and `fleet:`")]
        )
    problems: list[Problem] = []
    changed: Mapping[str, Any] = raw
    try:
        changed = raw = written_out(raw)
        changed = written_out(with_overrides(raw, overrides), last_word=True)
        changed = followed(raw, changed, [parse_override(text)[0] for text in overrides])
    except InputError as error:
        problems += error.problems
    found, scenario = _validated(whole_engines(changed) if rounded else dict(changed), base)
    problems += found
    if problems or scenario is None:
        raise InputError(problems)
    return scenario


def _validated(raw: dict[str, Any], base: Path) -> tuple[list[Problem], Scenario | None]:
    """All problems of a raw mapping and, if none of its fields is wrong by itself, the scenario."""
    context = {"base": base, "rules_later": True}
    root = tree_of(Scenario)
    try:
        scenario = Scenario.model_validate(raw, context=context)
    except ValidationError as error:
        problems, wrong = problems_of(error, root), wrong_places(error, root)
        try:
            rest = Scenario.model_validate(_without(raw, wrong), context=context)
        except ValidationError:
            return problems, None
        paths = frozenset(place.path for place in wrong)
        return [*problems, *broken_rules(rest, paths), *_missing_files(rest)], None
    problems = [*broken_rules(scenario), *_missing_files(scenario)]
    there = None if problems else without_the_absent(scenario)
    return (problems, scenario) if there is None else _validated(there, base)


def _without(raw: dict[str, Any], wrong: Sequence[Place]) -> dict[str, Any]:
    """The mapping without the wrong values, so that what is left can be checked against the joint rules.

    A list or a law goes as a whole when something in it is wrong.
    """
    result = dict(raw)
    for place in wrong:
        here, node = result, tree_of(Scenario)
        for depth, key in enumerate(map(str, place.keys), start=1):
            node, below = node.below(key) or Node(), here.get(key)
            sections = (node.children or node.named) and not node.laws and isinstance(below, Mapping)
            if depth == len(place.keys) or not sections:
                here.pop(key, None)
                break
            here[key] = dict(below)
            here = here[key]
    return result


def _missing_files(scenario: Scenario) -> Iterator[Problem]:
    w = scenario.workload
    laws = {
        "workload.prompt_tokens": w.prompt_tokens,
        "workload.output_tokens": w.output_tokens,
        "workload.turns.count": w.turns.count,
        "workload.turns.output_tokens": w.turns.output_tokens,
        "workload.turns.tool_latency_s": w.turns.tool_latency_s,
        "workload.turns.tool_tokens": w.turns.tool_tokens,
        "workload.reward.latency_s": w.reward.latency_s,
    }
    for path, law in laws.items():
        if isinstance(law, Empirical) and ("\0" in law.file or not os.path.isfile(law.file)):
            beside = "a path in a scenario begins at its folder, one that is typed where you are"
            yield Problem(f"{path}.file", law.file, "no such file", beside)


def _short(value: Any) -> Any:
    """Constants as bare numbers, tuples as lists: what a person would write."""
    if isinstance(value, dict):
        if value.keys() == {"kind", "value"}:
            return value["value"]
        return {key: _short(below) for key, below in value.items()}
    return [_short(v) for v in value] if isinstance(value, (tuple, list)) else value
