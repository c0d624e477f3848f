"""The defaults behind a simulated run: those of a plan, but for what only a plan reads, and the fleet that it chose."""

from __future__ import annotations

from collections.abc import Collection
from dataclasses import replace

from fleetsim import units
from fleetsim.config.paths import is_touched
from fleetsim.config.scenario import Scenario
from fleetsim.job.assumptions import Assumption, assumptions_of

_FLEET = "fleet.instances"
# Flags that `simulate` has as well; for the rest it has --set.
_FLAGS = ("--set", "--profile")


def run_assumptions(scenario: Scenario, given: Collection[str]) -> tuple[Assumption, ...]:
    """Every default that bears on a run and that no path in `given` touches, and what the scenario calls assumed."""
    found = [a for a in assumptions_of(scenario, given) if not a.path.startswith("targets.")]
    if not is_touched(_FLEET, given):
        count = scenario.fleet.instances
        text = units.plural(count, "instance")
        found.append(Assumption(_FLEET, count, "", text))
    return tuple(_by_set(a) for a in sorted(found, key=lambda a: a.path.partition(".")[0] != "engine"))


def _by_set(assumption: Assumption) -> Assumption:
    """With the flag that `simulate` has for it."""
    own = assumption.flag.startswith(_FLAGS)
    text = assumption.text.removesuffix(f" ({assumption.flag})")
    flag = assumption.flag if own else f"--set {assumption.path}=VALUE"
    return replace(assumption, flag=flag, text=text)
