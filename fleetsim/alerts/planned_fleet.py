"""The plan that alerts and a dashboard are made for: a scenario, or a file: PLAN.json of a replay, or the document that
`size --json` printed."""

from __future__ import annotations

from collections.abc import Collection, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import TYPE_CHECKING, Annotated, Any

from fleetsim import units
from fleetsim.errors import InputError, Problem
from fleetsim.faces import flag, text
from fleetsim.job.settings import Argument, Option

if TYPE_CHECKING:
    from fleetsim.config.scenario import Scenario
    from fleetsim.engine.limits import EngineLimits
    from fleetsim.engine.step_time import StepTime
    from fleetsim.history.history import History
    from fleetsim.job.base_job import BaseJob

PLAN = "The plan"
REMEDY = "give what replay --recommend --plan-out or size --json has written"
# Of the documents that `size --json` prints and has printed.
SIZE_VERSIONS = (1, 2)


class AnyPlan:
    """What is watched over: `PlannedFleet`, or the `PlanFields` that it is made of."""

    __slots__ = ()


@dataclass(frozen=True, slots=True)
class PlannedFleet(AnyPlan):
    """The fleet after the change. engine: speed and limits of the replayed window, None = the scenario's own. held:
    the back-test of that window held. given: paths that somebody measured or gave, None = all. history: of a run of
    this fleet, where one was given."""

    scenario: Scenario
    engine: tuple[StepTime, EngineLimits] | None
    notes: tuple[str, ...] = ()
    held: bool = False
    given: frozenset[str] | None = None
    history: History | None = None

    @classmethod
    def of_job(cls, job: BaseJob) -> PlannedFleet:
        """The fleet of a job as it is, on the engine that its scenario names, with as many instances as its run had."""
        from fleetsim.config.load import with_changes
        from fleetsim.config.tree import is_given
        from fleetsim.replay.observe.observe import observe

        if job._heard is None:
            return cls(job.scenario, None, job.notes, given=job.given)
        history, scenario, given = job._heard.history, job.scenario, job.given
        seen = observe(history, scenario).fleet
        if seen is not None and seen.instances_now and not is_given("fleet.instances", given):
            scenario = with_changes(scenario, {"fleet.instances": seen.instances_now})
            given |= {"fleet.instances"}
        return cls(scenario, None, job.notes, given=given, history=history)


@dataclass(frozen=True, kw_only=True)
class PlanFields(AnyPlan):
    """A plan: a scenario with settings, or the file that `replay` or `size` has written."""

    scenario: Annotated[
        str | None, Argument("The plan: a scenario file, or the name of a shipped one.", "SCENARIO")
    ] = None
    preset: Annotated[str | None, Option("A framework instead: verl-fully-async...", PLAN)] = None
    plan: Annotated[
        str | None, Option("A plan of replay, or what size --json printed, instead.", PLAN, metavar="PLAN.json")
    ] = None
    run: Annotated[
        str | None, Option("What a run showed: its log, tracker, dump or Prometheus.", PLAN, metavar="PATH|URL")
    ] = None
    set_: Annotated[list[str] | None, Option("Any key of a scenario. Repeatable.", PLAN, metavar="KEY=VALUE")] = None
    profile: Annotated[str | None, Option("A measured engine instead.", PLAN)] = None

    def planned(self, what: str) -> PlannedFleet:
        """The plan. what: is made for it, in words. Raises InputError when nothing is given, or two things at once."""
        from fleetsim.job.base_job import made
        from fleetsim.job.fields import scenario_or_preset

        start = scenario_or_preset(self.scenario, self.preset)
        if self.plan is not None:
            also = next((each for each in (self.scenario, self.preset, self.run) if each is not None), None)
            if also is not None:
                raise InputError([Problem(flag("plan"), self.plan, f"{also} is given as well", "give one of the two")])
            if self.profile is not None:
                remedy = text("drop {}", flag("profile"))
                raise InputError([Problem(flag("plan"), self.plan, "a plan names its engine", remedy)])
            return planned_of(self.plan, self.set_ or ())
        if start is None and self.run is None:
            remedy = text("give a scenario file, {}, or {}", flag("preset", "NAME"), flag("plan", "PLAN.json"))
            raise InputError([Problem("SCENARIO", None, f"no plan to make {what} for", remedy)])
        return PlannedFleet.of_job(made(start, self.set_ or (), {"profile": self.profile, "run": self.run}))


def planned_of(file: str, sets: Sequence[str] = ()) -> PlannedFleet:
    """The plan in a file, with `--set` on top. Raises InputError, all problems at once."""
    from fleetsim.config.data_files import read_json
    from fleetsim.replay.change.plan import COMPLETE, MAX_BYTES

    document = read_json(file, "--plan", MAX_BYTES, COMPLETE)
    if isinstance(document, dict) and document.get("kind") == "fleetsim-plan":
        return _replayed(document, file, sets)
    if isinstance(document, dict) and document.get("command") == "size" and "recommendation" in document:
        scenario = _sized(document, file, sets)
        return PlannedFleet(_named(scenario, file), None, given=_given(scenario, scenario.assumed))
    what = document.get("command") if isinstance(document, dict) else type(document).__name__
    raise _refused(file, what, "is no plan of fleetsim")


def _named(scenario: Scenario, file: str) -> Scenario:
    """The scenario, named after its file where it has no name: names tell the rules of plans apart."""
    unnamed = type(scenario).model_fields["name"].default
    return scenario.model_copy(update={"name": Path(file).stem}) if scenario.name == unnamed else scenario


def _refused(file: str, what: object, rule: str) -> InputError:
    return InputError([Problem(file, what, rule, REMEDY)])


def _replayed(document: dict[str, Any], file: str, sets: Sequence[str]) -> PlannedFleet:
    """The scenario of the window with the recommended changes, and the engine's speed in that window."""
    from fleetsim.config.load import parse_overrides
    from fleetsim.replay.change.plan import implied_of, plan_from_mapping
    from fleetsim.replay.change.what_if import changed

    plan = plan_from_mapping(document, file)
    changes = {**plan.recommended.changes, "fleet.instances": plan.planned, **dict(parse_overrides(sets))}
    implied = implied_of(plan)
    scenario, engine, notes = changed(implied, changes)
    held = plan.back_test is not None and plan.back_test.verdict == "ok"
    given = _given(scenario, {line.partition(":")[0] for line in implied.assumed})
    return PlannedFleet(_named(scenario, file), engine, notes, held, given)


def _given(scenario: Scenario, assumed: Collection[str]) -> frozenset[str]:
    """What a scenario says, but for what was assumed."""
    from fleetsim.config.tree import given_paths, is_given

    return frozenset(path for path in given_paths(scenario) if not is_given(path, assumed))


def _sized(document: dict[str, Any], file: str, sets: Sequence[str]) -> Scenario:
    """The scenario that was sized, with the recommended count."""
    from fleetsim.config.load import scenario_from_mapping

    version = document.get("schema_version", SIZE_VERSIONS[-1])
    if version not in SIZE_VERSIONS:
        rule = f"this fleetsim reads documents of schema_version {units.listed(tuple(map(str, SIZE_VERSIONS)))}"
        raise InputError([Problem(f"{file}: schema_version", version, rule, "upgrade fleetsim")])
    scenario, recommendation = document.get("scenario"), document["recommendation"]
    instances = recommendation.get("instances") if isinstance(recommendation, dict) else None
    if not isinstance(scenario, dict) or not isinstance(instances, int) or isinstance(instances, bool):
        raise _refused(file, "size", "carries no scenario with a recommended count")
    fleet = scenario.get("fleet")
    sized = {**scenario, "fleet": {**(fleet if isinstance(fleet, dict) else {}), "instances": instances}}
    return scenario_from_mapping(_without_nulls(sized), file, sets)


def _without_nulls(value: Any) -> Any:
    if isinstance(value, dict):
        return {key: _without_nulls(v) for key, v in value.items() if v is not None}
    return [_without_nulls(v) for v in value] if isinstance(value, list) else value
