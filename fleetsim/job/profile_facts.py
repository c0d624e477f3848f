"""What a scenario takes over from its profile: every fact that it does not state itself.

GPUs per instance, block size and prefix caching are facts of the engine that was measured. A scenario that states
another value for the first two contradicts its profile and is refused. Prefix caching may be switched on or off,
because the iteration times do not depend on it.
"""

from __future__ import annotations

import re
from collections.abc import Collection
from typing import Any

from msgspec import Struct

from fleetsim.config.load import with_changes
from fleetsim.config.scenario import Scenario
from fleetsim.engine.limits import SCHEDULERS
from fleetsim.errors import InputError, Problem
from fleetsim.records import replace
from fleetsim.sim.engines import other_tp, profile_of

# What was measured: fields of `engine` and of the profile's provenance.
_NAMES = ("gpu", "model", "dtype")
_LONGEST_NAME = 1000


class Profiled(Struct, frozen=True):
    """The scenario with its profile's facts. facts: their dotted paths. notes: what of the scenario the profile
    overrules."""

    scenario: Scenario
    facts: frozenset[str] = frozenset()
    notes: tuple[str, ...] = ()


def as_profiled(scenario: Scenario, given: Collection[str]) -> Profiled:
    """The scenario as its profile's engine runs it; unchanged where it has no profile.

    given: dotted paths that somebody wrote. Raises InputError with all contradictions, and as `load_profile` does.
    """
    profile = profile_of(scenario)
    if profile is None:
        return Profiled(scenario)
    e = scenario.engine
    problems = []
    changes: dict[str, Any] = {}
    facts = set()
    tp, size = profile.provenance.tp, profile.limits.block_size
    if "engine.tp" in given:
        problem = other_tp(profile, e.tp)
        problems += [replace(problem, path="engine.tp")] if problem else []
    elif tp is not None:
        changes["engine.tp"] = tp
        facts.add("engine.tp")
    if "engine.block_size" not in given or e.block_size is None:
        changes["engine.block_size"] = size
    elif e.block_size != size:
        rule = f"profile {profile.name} was measured with blocks of {size} tokens, and its kv_blocks are such blocks"
        problems.append(Problem("engine.block_size", e.block_size, rule, "leave it out"))
    if problems:
        raise InputError(problems)
    if profile.prefix_cache is not None and "engine.prefix_caching" not in given:
        changes["engine.prefix_caching"] = profile.prefix_cache.enabled
    notes = []
    measured = profile.provenance.engine
    if "engine.name" not in given and measured in SCHEDULERS:
        changes["engine.name"] = measured
    elif measured and measured != e.name:
        notes.append(f"engine.name {e.name} schedules with the iteration times of {measured}")
    for field in _NAMES:
        fact = getattr(profile.provenance, field)
        if not fact or len(fact) > _LONGEST_NAME:
            continue
        if f"engine.{field}" not in given:
            changes[f"engine.{field}"] = fact
        elif field == "gpu" and not _same_gpu(e.gpu, fact):
            notes.append(f"engine.gpu {e.gpu} is not used: profile {profile.name} was measured on {fact}")
        elif field == "model" and not _same_model(e.model, fact):
            notes.append(f"engine.model {e.model} is not used: profile {profile.name} is one of {fact}")
    changes = {path: v for path, v in changes.items() if getattr(e, path.removeprefix("engine.")) != v}
    return Profiled(with_changes(scenario, changes) if changes else scenario, frozenset(facts), tuple(notes))


def _same_gpu(a: str, b: str) -> bool:
    """Whether two names mean one chip: "H100-SXM" and "NVIDIA H100 80GB HBM3" do."""
    chips = [re.findall(r"[a-z]+[0-9]+[a-z]*", name.lower())[:1] or [name.lower()] for name in (a, b)]
    return chips[0] == chips[1]


def _same_model(a: str, b: str) -> bool:
    """Whether two ids or folders name one model: by their last part, as vLLM's served name does."""
    return a.rstrip("/").rpartition("/")[2].lower() == b.rstrip("/").rpartition("/")[2].lower()
