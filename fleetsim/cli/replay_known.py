"""What the user knows of a fleet beside its history: a scenario, single facts, a profile."""

from __future__ import annotations

import os
from collections.abc import Sequence
from dataclasses import dataclass, replace

from fleetsim.config.override import env_overrides, parse_override
from fleetsim.config.scenario import Scenario
from fleetsim.errors import InputError
from fleetsim.job.fields import scenario_or_preset
from fleetsim.job.job import job_from_flags


@dataclass(frozen=True, slots=True)
class Known:
    """scenario: with everything that was given, defaults elsewhere. given: dotted paths that were given anywhere.
    facts: of them, those that were set one by one and win over the window. from_file: whether there is a scenario of
    the user's, or a preset. warnings: for stderr."""

    scenario: Scenario
    given: frozenset[str]
    facts: frozenset[str]
    from_file: bool
    warnings: tuple[str, ...]


def known_of(scenario: str | None, preset: str | None, facts: Sequence[str], profile: str | None) -> Known:
    """What is known before anything is read. Raises InputError, all problems at once."""
    start = scenario_or_preset(scenario, preset, "--scenario")
    try:
        job = job_from_flags(start, facts, {"profile": profile})
    except InputError as error:
        raise InputError([replace(p, path=p.path.replace("--set", "--given")) for p in error.problems]) from None
    one_by_one = set(facts_of(facts))
    if profile is not None:
        one_by_one |= {"engine.profile", "engine.kind"}
    return Known(job.scenario, job.given, frozenset(one_by_one), start is not None, job.notes)


def facts_of(texts: Sequence[str]) -> frozenset[str]:
    """The keys that were given one by one: as KEY=VALUE, or in the environment. Raises InputError."""
    return frozenset(parse_override(text)[0] for text in (*env_overrides(os.environ), *texts))
