"""A plan in about eight lines."""

from __future__ import annotations

from fleetsim import units
from fleetsim.job.binding import binding_words
from fleetsim.job.brief import assumed_line, ranged, step_line, swing_line
from fleetsim.job.observed import observed_line
from fleetsim.plan.assumptions import assumed
from fleetsim.plan.plan import PlanResult
from fleetsim.tell.document import Brief, brief


def brief_of(result: PlanResult) -> Brief:
    """What one must know of a plan; its headline is the answer."""
    row = result.best
    s, ranges = row.scenario, row.ranges
    idle = row.estimates["trainer_idle_fraction"].mean
    return brief(
        ("step", step_line(row.step_s, idle, row.spans)),
        ("cost", f"{ranged('cost_per_step', row.usd, row.spans)} a step, {units.money(row.usd_per_h)} an hour"),
        ("binds", binding_words(row.binding, s.admission.law, s.sync.scope, s.fleet.in_flight_unit).name),
        ("allow", _allow(result)),
        ("observed", observed_line(s)),
        ("assumed", assumed_line(s, assumed(result), () if ranges is None else [part.path for part in ranges.parts])),
        ("measure", None if ranges is None else swing_line(ranges)),
        tone="bad" if not result.feasible else "unsure" if ranges is not None and ranges.wide else "good",
    )


def _allow(result: PlanResult) -> str:
    """What a step takes, or costs, with each forbidden thing that makes the plan better, the best first."""
    aim = result.budget.objective == "step" or not result.feasible
    better = sorted((row.step_s if aim else row.usd, what) for what, row in result.better)
    said = "; ".join(f"{what} {(units.seconds if aim else units.money)(value)}" for value, what in better)
    return f"{said} a step" if said else ""
