"""A scenario as a framework's settings: `scenario from`, run backwards.

The framework's reader is run on settings, and says of each scenario value what it comes to and which settings would
make it another one (`draft.links`). Those are set, and it is run again, until nothing changes. What then still differs
from the scenario cannot be said to this framework, and is listed: the list is what `scenario from` itself would read.
What a scenario wants of a configuration is told path by path; facts are what no configuration can hold.
"""

from __future__ import annotations

from collections.abc import Callable, Iterator, Mapping
from functools import cache, partial
from typing import Any

from msgspec import Struct

from fleetsim.config.base import unsaid
from fleetsim.config.load import scenario_from_mapping
from fleetsim.config.pools import RecipeConfig
from fleetsim.config.scenario import Scenario, reader_of
from fleetsim.config.tree import field_at, is_given
from fleetsim.config.workload import ConstantTokens, LengthSpec, longest_length
from fleetsim.errors import InputError, Problem
from fleetsim.frameworks.common import OUTPUT_CAP, PROMPT_OF_CAP, cap_of_prompts
from fleetsim.frameworks.convert import READERS, nested
from fleetsim.frameworks.draft import Draft
from fleetsim.frameworks.reading import Link, one_line
from fleetsim.frameworks.roles import TURN_CAP
from fleetsim.frameworks.scenario_text import POLICIES
from fleetsim.frameworks.settings import RunSettings, normal, settings_of
from fleetsim.frameworks.tables import FACTS, FRAMEWORKS, Mode

# Each pass sets everything that can be set; more than a few are needed where one setting decides what another means.
_PASSES = 12
_ENTRY_POINT = "engine.entry_point"
# What it means to run a mode that differs here: more than any number of lesser differences. To wait for each batch, or
# not to, is the largest of them after the GPUs.
_WEIGHTS = {
    "fleet.placement": 100_000, "admission.law": 1_000, "sync.in_flight": 100, "sync.trigger": 100,
    **dict.fromkeys(("trainer.batch_samples", "workload.group_size", "fleet.instances", "trainer.gpus"), 10),
}  # fmt: skip
_BARRIER, _REFUSED = 10_000, 1_000_000
_Reader = Callable[[Mapping[str, Any]], Draft]  # settings -> what the framework's reader makes of them
# Scenario -> engine limits that it leaves to the engine, by dotted path, as they come out there.
Limits = Callable[[Scenario], Mapping[str, Any]]
# Stands for: the scenario says nothing here.
NOTHING: Any = object()


class Wanted:
    """The values of a scenario by dotted path, with the engine's own limits where it gives none.

    whole: a framework's recipe that is all defaults is one, too: the configuration that it changes may have another.
    """

    def __init__(self, scenario: Scenario, limits: Limits, *, whole: bool = False) -> None:
        self.scenario, self.limits_of, self.limits = scenario, limits, limits(scenario)
        recipe = scenario.trainer.recipe
        self.recipe = (recipe if whole else recipe.model_copy(update={"framework": None})) != unsaid(RecipeConfig)

    def __call__(self, path: str) -> Any:
        """The value; None where it is null; NOTHING where the scenario says nothing of it."""
        if path == OUTPUT_CAP:
            return longest(self.scenario.workload.output_tokens) or NOTHING
        if path == "workload.prompt_tokens":
            return _prompt(self.scenario.workload.prompt_tokens)
        if path.startswith("trainer.recipe.") and path != "trainer.recipe.critic" and not self.recipe:
            return NOTHING
        value = field_at(self.scenario, path)
        if value is None and (path == TURN_CAP or path.startswith("trainer.recipe.")):
            return NOTHING  # the cap of a trajectory says it then; a layout that is left open
        return self.limits.get(path) if value is None else value

    def cuts(self, prompts: float) -> bool:
        """Whether the cap of which so many tokens are the assumed share cuts the scenario's prompts."""
        law = self.scenario.workload.prompt_tokens
        return (longest(law) or _prompt(law)) > cap_of_prompts(prompts)


@cache
def is_fact(path: str) -> bool:
    """Whether a value is a fact that no framework is told."""
    of_station = path.startswith("stations.") and not path.endswith(".workers")
    return of_station or (is_given(path, FACTS) and path != OUTPUT_CAP)


def policies_of(scenario: Scenario) -> Iterator[str]:
    """Dotted paths of everything that a configuration could decide."""
    for section in POLICIES:
        yield from (path for path in _below(section, getattr(scenario, section)) if not is_fact(path))


def longest(law: LengthSpec) -> int | None:
    """Tokens of the longest value of a law; None where it has no end."""
    most = longest_length(law)
    return None if most is None else round(most)


def _prompt(law: Any) -> int:
    """Tokens of a prompt, of which the cap is a multiple; for a law with an end, the share of it that is assumed."""
    if isinstance(law, ConstantTokens):
        return int(law.value)
    end = longest(law)
    if end is not None:
        return max(1, round(end * PROMPT_OF_CAP))
    return round(getattr(law, "mean", None) or getattr(law, "median", None) or 512)


def _below(path: str, value: Any) -> Iterator[str]:
    if hasattr(type(value), "model_fields"):
        for name in type(value).model_fields:
            yield from _below(f"{path}.{name}", getattr(value, name))
    else:
        yield path


class LeftOut(Struct, frozen=True):
    """A value of the scenario that the framework cannot be told. has: what it does instead; why: its own rule."""

    path: str
    value: Any
    has: Any
    why: str


class Settled(Struct, frozen=True):
    """Settings of one mode that come as near to a scenario as they can.

    says: setting -> the scenario paths that it stands for. problems: why the framework refuses these settings.
    """

    mode: Mode
    settings: Mapping[str, Any]
    says: Mapping[str, tuple[str, ...]]
    left_out: tuple[LeftOut, ...]
    problems: tuple[Problem, ...]

    @property
    def off(self) -> set[str]:
        """The paths of what is left out."""
        return {left.path for left in self.left_out}

    @property
    def distance(self) -> int:
        """How far from the scenario: what is left out, what matters most counting most."""
        waits = any(o.path == "admission.law" and "barrier" in (o.value, o.has) for o in self.left_out)
        known = _REFUSED * bool(self.problems) + _BARRIER * waits
        return known + sum(_WEIGHTS.get(o.path, 1) for o in self.left_out)


def settled(framework: str, scenario: Scenario, limits: Limits, own: RunSettings | None = None) -> Settled:
    """The framework's settings that say most of the scenario, in the mode that can say most of it.

    limits: what an engine takes where a scenario gives no limits. own: a configuration to start from: only what must
    change of it is then set. Raises InputError where no mode can run it at all.
    """
    modes, wanted = FRAMEWORKS[framework].modes, Wanted(scenario, limits, whole=own is not None)
    if own is None:
        ways = [_in_mode(partial(_read, framework, _started(mode)), mode, wanted) for mode in modes]
    else:
        read = partial(_read, framework, own)
        ways = [_changed(read, mode, wanted) for mode in _modes_of(framework, read({}).mode)]
    best = min(ways, key=lambda found: (found.distance, len(found.settings) if own else 0))
    if best.problems:
        raise InputError(best.problems)
    return best


def _modes_of(framework: str, now: str) -> Iterator[Mode]:
    """The mode of a configuration, and those that settings alone select, without another program."""
    modes = FRAMEWORKS[framework].modes
    alike = {mode.start for mode in modes if _read(framework, _started(mode), mode.settings).mode == now}
    yield Mode(now, "")
    for mode in modes:
        selects = {k: v for k, v in mode.settings.items() if any(m.settings.get(k) != v for m in modes)}
        if mode.start in alike and selects:
            yield Mode(mode.name, "", selects)


def _changed(read: _Reader, mode: Mode, wanted: Wanted) -> Settled:
    """The fewest settings that bring a configuration as near to the scenario as a mode allows.

    Two values may share a setting, and ask for it in turn: of all that was tried, the nearest counts.
    """
    values, tried = dict(mode.settings), list[tuple[dict[str, Any], Draft, Settled]]()
    while len(tried) < _PASSES and values not in (before for before, _, _ in tried):
        draft = read(values)
        now = Settled(mode, values, {}, *_all_compared(draft, wanted))
        tried.append((values, draft, now))
        changes: dict[str, tuple[str, Any]] = {}
        for link in sorted(draft.links, key=lambda each: each.path not in now.off):
            # A configuration that is refused is mended by whatever can say what it must be.
            for key, value in _asked(link, wanted).items() if now.problems or link.path in now.off else ():
                changes.setdefault(normal(key), (key, value))
        values = {k: v for k, v in values.items() if normal(k) not in changes} | dict(changes.values())
    values, draft, best = min(tried, key=lambda each: each[2].distance)

    def enough(lean: Draft, draft: Draft) -> bool:
        left_out, problems = _all_compared(lean, wanted)
        return lean.mode == draft.mode and not problems and {o.path for o in left_out} <= best.off

    values, draft = _leaner(read, values, draft, list(values), enough)
    return Settled(mode, values, _said(draft, values, wanted), *_all_compared(draft, wanted))


def _all_compared(draft: Draft, wanted: Wanted) -> tuple[tuple[LeftOut, ...], tuple[Problem, ...]]:
    """`_compared`, with the length caps that are too short, and what the reader refuses."""
    left_out, problems = _compared(draft, wanted)
    cap, prompts = draft.values.get(OUTPUT_CAP), draft.values.get("workload.prompt_tokens", 0)
    if wanted(OUTPUT_CAP) not in (NOTHING, cap):
        left_out = (*left_out, LeftOut(OUTPUT_CAP, wanted(OUTPUT_CAP), cap, ""))
    if wanted.cuts(prompts):
        left_out = (*left_out, LeftOut("workload.prompt_tokens", wanted("workload.prompt_tokens"), prompts, ""))
    return left_out, (*draft.problems, *problems)


def _in_mode(read: _Reader, mode: Mode, wanted: Wanted) -> Settled:
    """All settings that say something of the scenario, in a mode of which nothing else is set."""
    values: dict[str, Any] = dict(mode.settings)
    draft = read(values)
    for _ in range(_PASSES):
        changes: dict[str, Any] = {}
        # What is wrong goes first: where two values share a setting, the one that is right is kept so by its own way.
        for link in sorted(draft.links, key=lambda each: each.value == wanted(each.path)):
            for key, value in _asked(link, wanted).items():
                changes.setdefault(key, value)
        if all(key in values and values[key] == value for key, value in changes.items()):
            break
        values |= changes
        draft = read(values)
    says = _said(draft, values, wanted)
    # What an earlier pass set, and nothing asks for in the end: of another backend, of a mode that is off.
    idle = [key for key in values if key not in says and key not in mode.settings]
    alike = lambda lean, draft: (lean.values, lean.problems) == (draft.values, draft.problems)  # noqa: E731
    values, draft = _leaner(read, values, draft, idle, alike)
    left_out, problems = _compared(draft, wanted)
    return Settled(mode, values, says, left_out, (*draft.problems, *problems))


def _leaner(
    read: _Reader, values: dict[str, Any], draft: Draft, keys: list[str], enough: Callable[[Draft, Draft], bool]
) -> tuple[dict[str, Any], Draft]:
    """The settings without those of these keys without which the reading is good enough, too: one that another needed
    may go once that is gone."""
    left = 0
    while left != len(values):
        left = len(values)
        for key in [key for key in keys if key in values]:
            fewer = {k: v for k, v in values.items() if k != key}
            lean = read(fewer)
            if enough(lean, draft):
                draft, values = lean, fewer
    return values, draft


def _said(draft: Draft, values: Mapping[str, Any], wanted: Wanted) -> dict[str, tuple[str, ...]]:
    """Setting -> the scenario paths that it stands for."""
    says: dict[str, tuple[str, ...]] = {}
    for link in draft.links:
        want = wanted(link.path)
        for key, value in ({} if want is NOTHING else link.back(want) or {}).items():
            if key in values and values[key] == value:
                says[key] = tuple(dict.fromkeys((*says.get(key, ()), link.path)))
    return says


def _started(mode: Mode) -> RunSettings:
    """A configuration that says nothing but how it is started."""
    return RunSettings(programs=mode.start.split())


def _read(framework: str, base: RunSettings, values: Mapping[str, Any]) -> Draft:
    draft = Draft(framework, settings_of(values.items()).over(base))
    READERS[framework](draft, lambda model, gpu, gpus: (0.0, 0.0))
    return draft


def _asked(link: Link, wanted: Wanted) -> Mapping[str, Any]:
    """The settings that give the wanted value; none where nothing is wanted, or needs to be said."""
    want = wanted(link.path)
    return {} if want is NOTHING or (want == link.unless and link.value == want) else link.back(want) or {}


def _compared(draft: Draft, wanted: Wanted) -> tuple[tuple[LeftOut, ...], tuple[Problem, ...]]:
    """What differs between the scenario and what the settings come to; or why these make no scenario."""
    target = wanted.scenario
    raw = {k: v for k, v in target.model_dump(exclude_none=True).items() if k in POLICIES}
    facts = {p: v for p, v in _leaves(raw) if is_fact(p) and p != _ENTRY_POINT}
    values = {p: v for p, v in draft.values.items() if p == _ENTRY_POINT or not (is_fact(p) or p == OUTPUT_CAP)}
    for section, key in (("engine.speculation.", "method"), ("engine.disaggregation.", "prefill")):
        if section + key not in values:
            facts = {p: v for p, v in facts.items() if not p.startswith(section)}
    laws = {f"workload.{key}": raw["workload"][key] for key in ("prompt_tokens", "output_tokens")}
    try:
        result = scenario_from_mapping(nested({**values, **facts, **laws}))
    except InputError as error:
        return (), error.problems
    paths = dict.fromkeys((*policies_of(target), *policies_of(result)))
    own = wanted.limits_of(result)
    found = []
    for path in paths:
        want, has = wanted(path), field_at(result, path)
        has = own.get(path) if has is None else has
        if want is not NOTHING and not _same(path, want, has) and not reader_of(target, path):
            found.append(LeftOut(path, want, has, one_line(draft.comments.get(path, ""), 120)))
    return tuple(sorted(found, key=lambda left: -_WEIGHTS.get(left.path, 1))), ()


def _same(path: str, want: Any, has: Any) -> bool:
    """Whether two values are one: a model is its name, wherever its folder lies."""
    if path != "engine.model" or not (isinstance(want, str) and isinstance(has, str)):
        return bool(want == has)
    return len({m.removesuffix("/config.json").rpartition("/")[2].lower() for m in (want, has)}) == 1


def _leaves(value: Any, path: str = "") -> list[tuple[str, Any]]:
    if isinstance(value, dict) and not ("kind" in value and path != "engine"):
        return [leaf for key, below in value.items() for leaf in _leaves(below, f"{path}.{key}" if path else key)]
    return [(path, value)]
