"""What is known of a fleet beside its history: a scenario, single facts, a profile."""

from __future__ import annotations

import os
from collections.abc import Iterable
from dataclasses import dataclass, replace
from typing import TYPE_CHECKING, Annotated

from fleetsim.errors import InputError, Problem
from fleetsim.job.fields import scenario_or_preset
from fleetsim.job.settings import Option
from fleetsim.replay.history_fields import pair

if TYPE_CHECKING:
    from fleetsim.job.base_job import Job

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
    profile: Annotated[str | None, Option("A measured engine: profile name or file.", FLEET)] = None

    def ready(self) -> KnownFleet:
        """Raises InputError, all problems at once."""
        from fleetsim.job.base_job import made

        start = scenario_or_preset(self.scenario, self.preset, "--scenario")
        try:
            job = made(start, self.given or (), {"profile": self.profile})
        except InputError as error:
            raise InputError([_of_given(p) for p in error.problems]) from None
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


def _of_given(problem: Problem) -> Problem:
    """The same under the flag's name here."""
    path, remedy = (text.replace("--set", "--given") for text in (problem.path, problem.remedy))
    return replace(problem, path=path, remedy=remedy)


def facts_of(texts: Iterable[str]) -> frozenset[str]:
    """The keys that were given one by one: as KEY=VALUE, or in the environment. Raises InputError."""
    from fleetsim.config.load import env_overrides, parse_override

    return frozenset(parse_override(text)[0] for text in (*env_overrides(os.environ), *texts))
