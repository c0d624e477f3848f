"""What is asked of a window beyond its diagnosis, and what is known of its fleet beside its history."""

from __future__ import annotations

import os
from collections.abc import Iterable, Mapping
from dataclasses import dataclass
from typing import TYPE_CHECKING, Annotated, Any

from msgspec import Struct, field

from fleetsim.errors import InputError, Problem, Problems
from fleetsim.faces import SET, Text, flag, text
from fleetsim.job.fields import scenario_or_preset
from fleetsim.job.settings import Option
from fleetsim.records import replace
from fleetsim.replay.history_fields import pair

if TYPE_CHECKING:
    from fleetsim.job.base_job import Job
    from fleetsim.replay.change.patch import Deployment
    from fleetsim.replay.change.plan import SavedPlan

CHANGE = "Another fleet on the same history"
SAY_MORE = text("give what is missing with {}, or a {}", flag("given", "KEY=VALUE"), Text("--scenario", "job"))
"""What helps where a window does not say enough to simulate it."""


class Questions(Struct, frozen=True):
    """changes: dotted paths and values to try; a sweep and a recommendation start from them (the recommendation finds
    its own fleet.instances). swept: one key and its values. recommend: size the fleet. deployment: whom the
    recommendation is a patch for. plan: hold the window against it."""

    changes: Mapping[str, Any] = field(default_factory=dict)
    swept: tuple[str, tuple[Any, ...]] | None = None
    recommend: bool = False
    deployment: Deployment | None = None
    plan: SavedPlan | None = None

    @property
    def simulates(self) -> bool:
        """Whether an answer needs the window's scenario."""
        return bool(self.changes) or self.swept is not None or self.recommend

    def ready(self) -> Questions:
        """Itself."""
        return self


@dataclass(frozen=True, kw_only=True)
class ChangeFields:
    """What is asked beyond the diagnosis, as a command line says it."""

    set_: Annotated[
        list[str] | None, Option("What if: fleet.instances=10. Repeatable.", CHANGE, metavar="KEY=VALUE")
    ] = None
    sweep: Annotated[
        list[str] | None, Option("What if, for several values; or A,B,C.", CHANGE, metavar="KEY=LO:HI[:STEP]")
    ] = None
    recommend: Annotated[bool, Option("The smallest fleet that holds the targets.", CHANGE)] = False
    deployment: Annotated[str | None, Option("The deployment's name.", CHANGE, metavar="NAME")] = None
    verify: Annotated[str | None, Option("Did the change do what the plan said?", CHANGE, metavar="PLAN.json")] = None

    def ready(self) -> Questions:
        """Raises InputError, all problems at once."""
        from fleetsim.config.load import parse_overrides
        from fleetsim.replay.change.patch import parse_deployment
        from fleetsim.replay.change.plan import load_plan

        wrong = Problems()
        with wrong.check():
            changes = dict(parse_overrides(self.set_ or []))
        with wrong.check():
            swept = _swept(self.sweep or [])
        with wrong.check():
            deployment = None if self.deployment is None else parse_deployment(self.deployment)
        with wrong.check():
            plan = None if self.verify is None else load_plan(self.verify)
        wrong.stop()
        return Questions(changes, swept, self.recommend, deployment, plan)


def _swept(texts: list[str]) -> tuple[str, tuple[Any, ...]] | None:
    """One table has one key: raises InputError for a second sweep."""
    from fleetsim.sweep.grid import parse_sweep

    if len(texts) > 1:
        rule = "one sweep at a time"
        remedy = text("run it again for the other key, or hold that key with {}", SET)
        raise InputError([Problem(flag("sweep"), " and ".join(texts), rule, remedy)])
    return parse_sweep(texts[0]) if texts else None


FLEET = "What is known of the fleet"


@dataclass(frozen=True, kw_only=True)
class KnownFleet:
    """What is known of a fleet beside its history, checked.

    job: with everything that was given, defaults elsewhere. facts: dotted paths of what was set one by one, which wins
    over the window. from_file: whether the job started from a scenario of the user's, or a preset. words: those of a
    command that say the same.
    """

    job: Job
    facts: frozenset[str]
    from_file: bool
    words: tuple[str, ...] = ()

    def ready(self) -> KnownFleet:
        """Itself."""
        return self


@dataclass(frozen=True, kw_only=True)
class FleetFields:
    """What is known of a fleet, as a command line says it."""

    scenario: Annotated[str | None, Option("The job's own policies and prices.", FLEET, metavar="SCENARIO")] = None
    preset: Annotated[str | None, Option("Or those of a framework: verl-fully-async...", FLEET)] = None
    given: Annotated[
        list[str] | None, Option("A fact: engine.tp=4, cost... Repeatable.", FLEET, metavar="KEY=VALUE")
    ] = None
    profile: Annotated[str | None, Option("A measured engine: a file, or a name of profile ls.", FLEET)] = None

    def ready(self) -> KnownFleet:
        """Raises InputError, all problems at once."""
        from fleetsim.job.base_job import made

        start = scenario_or_preset(self.scenario, self.preset, "--scenario")
        try:
            job = made(start, self.given or (), {"profile": self.profile})
        except InputError as error:
            own = [(p, *(text.replace("--set", "--given") for text in (p.path, p.remedy))) for p in error.problems]
            raise InputError([replace(p, path=path, remedy=remedy) for p, path, remedy in own]) from None
        return KnownFleet(job=job, facts=self.facts(), from_file=start is not None, words=self.words())

    def facts(self) -> frozenset[str]:
        """The keys that are set one by one. Raises InputError."""
        measured = () if self.profile is None else ("engine.profile", "engine.kind")
        return facts_of(self.given or ()).union(measured)

    def words(self) -> tuple[str, ...]:
        """The words of a command that say the same."""
        return (
            *pair("--scenario", self.scenario),
            *pair("--preset", self.preset),
            *(word for fact in self.given or () for word in ("--given", fact)),
            *pair("--profile", self.profile),
        )


def facts_of(texts: Iterable[str]) -> frozenset[str]:
    """The keys that were given one by one: as KEY=VALUE, or in the environment. Raises InputError."""
    from fleetsim.config.load import env_overrides, parse_override

    return frozenset(parse_override(text)[0] for text in (*env_overrides(os.environ), *texts))
