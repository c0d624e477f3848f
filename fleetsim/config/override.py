"""`--set key.path=value` and FLEETSIM_<SECTION>__<FIELD>: single values on top of a scenario, later ones win."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from typing import Any

from fleetsim import faces
from fleetsim.config.scenario import Scenario
from fleetsim.config.short_forms import long_path
from fleetsim.config.tree import tree_of, unknown_path
from fleetsim.config.yaml_text import from_yaml
from fleetsim.errors import InputError, Problem

ENV_PREFIX = "FLEETSIM_"

# Setting one key of a pair takes the law's other pair back: the last word wins, as between two --set.
_PAIRS = {"mean": ("median", "p99"), "cv": ("median", "p99"), "median": ("mean", "cv"), "p99": ("mean", "cv")}

# What is accepted of drafts is said in one way, so that a last word takes the others back as well.
_ACCEPTANCE = ("acceptance", "acceptance_length", "curve")


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
    changes, problems = _parsed(overrides)
    if problems:
        raise InputError(problems)
    return changes


def _parsed(overrides: Sequence[str]) -> tuple[list[tuple[str, Any]], list[Problem]]:
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
    changes, problems = _parsed(overrides)
    result: dict[str, Any] = dict(raw)
    for path, value in changes:
        problem = _put(result, path, value)
        if problem is not None:
            problems.append(problem)
    if problems:
        raise InputError(problems)
    return result


def env_overrides(environ: Mapping[str, str]) -> tuple[str, ...]:
    """The overrides that FLEETSIM_<SECTION>__<FIELD> variables ask for, sorted by name, as `--set` would write them.

    FLEETSIM_FLEET__INSTANCES=12 is fleet.instances=12, whatever the case. Variables without a double underscore
    (FLEETSIM_CACHE_DIR) are settings of the program and left alone. To let flags win, put these before the flags'.
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


def _put(target: dict[str, Any], path: str, value: Any) -> Problem | None:
    """Set one value in a nested mapping, copying every mapping on the way; the target itself is changed."""
    *above, last = path.split(".")
    node, here = tree_of(Scenario), target
    for depth, key in enumerate(above):
        node = node.children[key]
        below = here.get(key)
        if node.laws:
            below = _law_to_change(below, above[: depth + 1])
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


def _law_to_change(given: Any, path: Sequence[str]) -> Any:
    """A law as a mapping: a bare number written out; the default where none is given, so that its cap stays."""
    if isinstance(given, (int, float)) and not isinstance(given, bool):
        return {"kind": "constant", "value": given}
    if given is not None:
        return given
    default: Any = Scenario()
    for key in path:
        default = getattr(default, key)
    return default.model_dump(exclude_none=True)
