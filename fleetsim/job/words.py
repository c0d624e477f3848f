"""Sentences: what a result means, as a colleague would say it."""

from __future__ import annotations

from collections.abc import Mapping

from fleetsim import units
from fleetsim.config.scenario import Scenario
from fleetsim.estimates import Estimate
from fleetsim.job.binding import Binding
from fleetsim.job.engine_source import EngineSource
from fleetsim.quantities import quantity
from fleetsim.sim.engines import profile_of

# Section of a scenario -> the part of the system that a reader looks for.
THEMES: Mapping[str, str] = {
    "engine": "engine",
    "workload": "workload",
    "fleet": "fleet",
    "trainer": "trainer",
    "sync": "weight sync",
    "admission": "staleness",
    "targets": "targets",
    "cost": "prices",
}
_TARGETS: Mapping[str, str] = {
    "trainer_idle_fraction": f"{quantity('trainer_idle_fraction').title} at most",
    "step_s": "a step of at most",
    "staleness_p99_steps": "a staleness p99 of at most",
    "cost_per_step": f"a {quantity('cost_per_step').title} of at most",
}


def kind_of(command: str, scenario: Scenario) -> str:
    """What stands above the title of a page: the command, and the scenario's name where it has one of its own."""
    named = scenario.name != Scenario.model_fields["name"].default
    return f"fleetsim {command}" + (f" · {scenario.name}" if named else "")


def target(name: str, limit: float) -> str:
    """ "trainer idle at most 5.0 %"; name: a field of a scenario's targets."""
    return f"{_TARGETS[name]} {target_value(name, limit)}"


def target_value(name: str, value: float) -> str:
    """A target's limit, or what is held against it, with its unit."""
    return units.plural(value, "step") if name == "staleness_p99_steps" else units.written(value, quantity(name).unit)


def instance_words(scenario: Scenario) -> str:
    """What one instance is: "H100-SXM x 1", or its rate where that is all that is known."""
    e = scenario.engine
    if e.kind == "constant":
        return f"{e.instance_tok_s or 0.0:,.0f} tok/s each"
    profile = profile_of(scenario)
    if profile is not None:
        return f"{profile.provenance.device} x {e.gpus}, profile {profile.name}"
    return f"{e.gpu} x {e.gpus}"


def binds(words: Binding) -> str:
    """What binds, why one sees it, and what would lift it."""
    if not words.meaning:
        return f"What binds: {words.name}."
    return f"What binds: {words.name}. {units.capital(words.meaning)}. What would lift it: {words.lift}."


def profile(p: EngineSource) -> str:
    """Where the engine's speed comes from and how far off it may be."""
    return p.accuracy


def lost_words(lost: Estimate, longest_lost: Estimate) -> str:
    """How many samples are thrown away, and whether that favours short ones; empty where none is."""
    if lost.mean <= 0.0 and longest_lost.mean <= 0.0:
        return ""
    bias = (
        ": training leans toward short responses"
        if longest_lost.mean > lost.mean and max(longest_lost.ci_low, longest_lost.mean / 2.0) > lost.mean
        else ""
    )
    return (
        f"Of the longest tenth of the samples {units.share(longest_lost.mean)} are dropped or aborted, of all samples "
        f"{units.share(lost.mean)}{bias}."
    )
