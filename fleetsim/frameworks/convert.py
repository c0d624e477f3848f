"""A framework's settings as a scenario: the one function that the command line and Python callers use."""

from __future__ import annotations

import os
from collections.abc import Callable, Iterator, Mapping, Sequence
from importlib import import_module
from typing import Any

from msgspec import Struct

from fleetsim import units
from fleetsim.config.data_files import find_preset
from fleetsim.config.load import load_scenario, parsed_overrides, scenario_from_mapping, with_overrides
from fleetsim.config.scenario import Scenario
from fleetsim.config.tree import did_you_mean, put, value_at
from fleetsim.config.yaml_text import from_yaml
from fleetsim.errors import InputError, Problem
from fleetsim.frameworks.common import TrainerSpeed
from fleetsim.frameworks.detection import expect, hidden, other_job, unlike
from fleetsim.frameworks.draft import Assumed, Draft, NotModelled, Taken
from fleetsim.frameworks.equal_parts import divides, refusal
from fleetsim.frameworks.reading import one_line
from fleetsim.frameworks.roles import put_stations
from fleetsim.frameworks.scenario_text import SECTIONS, scenario_yaml
from fleetsim.frameworks.settings import RunSettings
from fleetsim.frameworks.tables import FRAMEWORKS, SEMANTICS
from fleetsim.frameworks.unread_keys import name_unread
from fleetsim.records import as_dict

_ASSUMED = "nobody measured these; take a path out when its value below is yours"

_BEHIND = "Behind each value stands the setting that it came from."
_DECIDES = "What is assumed decides the answer as much as what is known: put in what your own logs say."
# Name on the command line -> what fills a draft from its settings: `build` of the file that is called so.
READERS: Mapping[str, Callable[[Draft, TrainerSpeed | None], None]] = {
    name: import_module(f"fleetsim.frameworks.{name.replace('-', '_')}").build for name in FRAMEWORKS
}
# Names of those whose configurations another framework's reader reads: verifiers trains by prime-rl.
_ALIASES = {"verifiers": "prime-rl", "swift": "ms-swift", "tinker-cookbook": "tinker"}


class Imported(Struct, frozen=True):
    """A scenario from a framework's configuration, and everything that there is to say about it.

    text: the scenario as YAML with comments. raw: the same as a mapping. preset: the shipped one of like semantics;
    alike: in what it is not like it.
    """

    framework: str
    mode: str
    preset: str
    alike: str
    scenario: Scenario
    raw: dict[str, Any]
    text: str
    taken: tuple[Taken, ...]
    assumed: tuple[Assumed, ...]
    not_modelled: tuple[NotModelled, ...]
    not_understood: tuple[str, ...]
    not_followed: tuple[str, ...]
    not_looked_at: tuple[str, ...]


def framework_name(name: str) -> str:
    """The framework that a word means, in any spelling (`NeMo_RL` is nemo-rl). Raises InputError."""
    key = name.strip().lower().replace("_", "-").replace(" ", "-")
    plain = {known.replace("-", ""): known for known in FRAMEWORKS} | _ALIASES
    found = plain.get(key.replace("-", ""))
    if found is None:
        first = f"it comes before the file: fleetsim scenario from verl {name}, for example"
        remedy = first if os.path.isfile(name) else did_you_mean(key, FRAMEWORKS)
        raise InputError([Problem("FRAMEWORK", name, "is no framework that is known", remedy)])
    return found


def scenario_from(
    framework: str,
    settings: RunSettings,
    name: str = "configuration",
    sets: Sequence[str] = (),
    speed: TrainerSpeed | None = None,
) -> Imported:
    """The scenario that a framework's settings describe.

    name: what the configuration is called. sets: `key.path=value` on top, in scenario keys. speed: seconds per token
    of the trainer, for the estimate that stands in until they are measured. Raises InputError with all problems: of
    settings, of the overrides, of the scenario that comes of them.
    """
    framework = framework_name(framework)
    known = FRAMEWORKS[framework]
    expect(settings, framework)
    changes, problems = parsed_overrides(sets)
    given = dict(changes)
    draft = Draft(framework, settings, given)
    READERS[framework](draft, speed)
    draft.leave_out(known.left_out)
    settings.see(*known.seen)
    problems = [*draft.problems, *problems]
    # Some have a default for everything; a program that is named after its algorithm may hold the settings itself.
    foreign = unlike(settings, framework) if settings.programs and not settings.runs("grpo") else None
    if problems or foreign is not None:
        missing = not problems or any(p.rule.startswith("is missing") for p in draft.problems)
        another = (other_job(settings) or unlike(settings, framework) or hidden(settings)) if missing else None
        once = {(problem.path, problem.rule): problem for problem in reversed(problems)}
        raise InputError([*reversed(once.values())] if another is None else [another])
    put_stations(draft, speed)
    name_unread(draft)
    if settings.parents:
        above = one_line(", ".join(settings.parents))
        draft.note(f"defaults: {above}", f"not found beside the file: {framework}'s own values stand in")
    others = f"; {units.plural(draft.other_gpus, 'more GPU')} in no pool of it" if draft.other_gpus else ""
    head: dict[str, Any] = {
        "schema_version": 1,
        "name": one_line(f"{framework} {name}"),
        "description": "",
        "source": one_line(f"a configuration of {known.repository}"),
    }
    guesses = sorted(path for path in draft.guesses if not draft.is_given(path))
    if guesses:
        head["assumed"] = guesses
    raw = with_overrides({**head, **nested(draft.values)}, sets)
    try:
        alike = _alike(scenario_from_mapping(raw), draft.preset)
    except InputError as error:
        raise InputError([_told(problem, draft) for problem in error.problems]) from None
    of = f"{framework}, {draft.mode}: imported from {name}; {alike}{others}"
    raw["description"] = raw["description"] or one_line(of, 300)
    comments = {**draft.comments, **dict.fromkeys(given, "given with --set"), "assumed": _ASSUMED}
    made = f"Made by `fleetsim scenario from {framework} {name}`. {_BEHIND}"
    text = scenario_yaml(raw, comments, [made, _DECIDES])
    scenario = scenario_from_mapping(from_yaml(text, "scenario"))  # what is handed out is what was checked
    if not divides(scenario, scenario.trainer.gpus, framework):
        draft.note(f"trainer.gpus = {scenario.trainer.gpus}", refusal(scenario, scenario.trainer.gpus, framework))
    return Imported(
        framework,
        draft.mode,
        draft.preset,
        alike,
        scenario,
        raw,
        text,
        tuple(t for t in draft.taken if t.path not in given),
        tuple(a for a in draft.assumed if a.path not in given),
        tuple(draft.not_modelled),
        tuple(settings.not_understood),
        tuple(settings.remarks),
        tuple(settings.never_looked_at()),
    )


def _alike(scenario: Scenario, preset: str) -> str:
    """In words, what a preset has in common with a scenario."""
    usual = load_scenario(find_preset(preset))
    other = [path for path in SEMANTICS if value_at(scenario, path) != value_at(usual, path)]
    if not other:
        return f"the preset {preset} has the same semantics"
    return f"as the preset {preset}, but for {', '.join(other)}"


def _told(problem: Problem, draft: Draft) -> Problem:
    """A problem of the scenario, told under the setting that the value came from."""
    comment = draft.comments.get(problem.path)
    if comment is None or problem.path in draft.given:
        return problem
    return Problem(f"{one_line(comment)} -> {problem.path}", problem.value, problem.rule, problem.remedy)


def nested(values: Mapping[str, Any]) -> dict[str, Any]:
    """Dotted paths as nested mappings, sections in the order of a scenario file."""
    raw: dict[str, Any] = {}
    for path in sorted(values, key=lambda p: SECTIONS.index(p.partition(".")[0])):
        put(raw, path, values[path])
    if "output_tokens" in raw.get("workload", {}):
        raw["workload"]["output_tokens"] = {"kind": "lognormal", **raw["workload"]["output_tokens"]}
    return raw


_LIST_LIMIT = 40


def report_lines(result: Imported, verbose: bool = False) -> Iterator[str]:
    """What was taken, assumed and left out, for a terminal."""
    yield f"{result.framework}: {result.mode}; {result.alike}"
    facts = [t for t in result.taken if not _is_mode(t, result)]
    yield f"took {units.plural(len(facts), 'value')}:"
    for t in facts:
        yield f"  {' and '.join(t.settings)}  ->  {t.path} = {one_line(t.value)}" + (f"  ({t.why})" if t.why else "")
    yield "from the mode:"
    for t in result.taken:
        if _is_mode(t, result):
            yield f"  {t.path} = {one_line(t.value)}: {t.why}"
    own = any(a.remedy.startswith("-- ") for a in result.assumed)
    how = f" (what follows -- is a setting of {result.framework}, for the end of this command)" if own else ""
    yield f"assumed {units.plural(len(result.assumed), 'value')}{how}:"
    for a in result.assumed:
        yield f"  {a.path} = {one_line(a.value)}: {a.why}" + (f"; {a.remedy}" if a.remedy else "")
    if result.not_modelled:
        yield "does not model:"
        for n in result.not_modelled:
            yield f"  {n.setting}: {n.why}"
    yield from _listed("not understood", result.not_understood, verbose, always=True)
    yield from _listed("expressions that were not followed", result.not_followed, verbose)
    yield from _listed("keys without a bearing on the scenario", result.not_looked_at, verbose)


def _is_mode(taken: Taken, result: Imported) -> bool:
    return taken.settings == (result.mode,)


def _listed(what: str, items: Sequence[str], verbose: bool, always: bool = False) -> Iterator[str]:
    if not items:
        return
    if not (verbose or always):
        yield f"{what}: {len(items)} (--verbose lists them)"
        return
    shown = items if verbose else items[:_LIST_LIMIT]
    yield f"{what}:"
    for item in shown:
        yield f"  {one_line(item)}"
    if len(shown) < len(items):
        yield f"  and {len(items) - len(shown)} more (--verbose)"


def report_document(result: Imported) -> dict[str, Any]:
    """The same as one JSON document, the scenario in it."""
    return {
        "schema_version": 1,
        "command": "scenario from",
        **{key: getattr(result, key) for key in ("framework", "mode", "preset")},
        "scenario": result.raw,
        "took": [{**as_dict(taken), "settings": list(taken.settings)} for taken in result.taken],
        **{key: [as_dict(each) for each in getattr(result, key)] for key in ("assumed", "not_modelled")},
        **{key: list(getattr(result, key)) for key in ("not_understood", "not_followed", "not_looked_at")},
    }
