"""What a plan took for granted, and what one should know before acting on it."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any

from fleetsim import units
from fleetsim.config.scenario import Scenario
from fleetsim.config.tree import is_given
from fleetsim.errors import StuckError
from fleetsim.job.assumptions import Assumption, assumptions_of
from fleetsim.job.caveats import error_warnings, range_warnings
from fleetsim.job.derived_values import price_notes
from fleetsim.job.engine_source import EngineSource
from fleetsim.plan.choices import ENGINE, LIMITS
from fleetsim.search.found import Found

# What a plan chooses, and targets, which it does not aim at.
_CHOSEN = (
    "targets.",
    "fleet.instances",
    "fleet.second.instances",
    "fleet.placement",
    "fleet.switch_s",
    "trainer.gpus",
    "sync.every_steps",
    *(path for choice in (*ENGINE, *LIMITS) for path in choice.paths if path != "engine.gpu"),
)


def assumed(job: Scenario, best: Scenario, given: frozenset[str]) -> tuple[Assumption, ...]:
    """The defaults behind the recommended plan, without what was chosen; and how old samples may be by the recipe."""
    found = [a for a in assumptions_of(best, given) if not a.path.startswith((*_CHOSEN, "admission"))]
    found += [a for a in assumptions_of(job, given) if a.path.startswith("admission")]
    if not is_given("fleet.switch_s", given):
        text = f"colocated: {best.fleet.switch_s:g} s to hand the GPUs over, each way"
        found.append(Assumption("fleet.switch_s", best.fleet.switch_s, "--switch-s", text))
    return tuple(found)


def warnings_of(rows: Sequence[Found[Any]], stuck: Sequence[StuckError], profile: EngineSource) -> tuple[str, ...]:
    """In the order of their weight."""
    fleets = [(row.scenario.engine.gpu, row.scenario.cost) for row in rows]
    prices = price_notes(fleets, "give a table of prices, --set cost.prices=FILE.csv")
    left_out = f"{units.plural(len(stuck), 'plan')} cannot run and are left out, the first because " if stuck else ""
    return (*range_warnings(profile), *error_warnings(profile), *(left_out + one.what for one in stuck[:1]), *prices)
