"""A look at a job: a run of few steps, which guides a search. No number of a look is ever printed."""

from __future__ import annotations

import math
from functools import lru_cache

from fleetsim.config.judges import judges_of
from fleetsim.config.law_numbers import law_of, sizes_of, steps_per_version
from fleetsim.config.load import with_changes
from fleetsim.config.scenario import Scenario, has_large_steps, has_spot, most_steps, reclaims_s, sent_samples, work
from fleetsim.errors import InputError, Problem, StuckError
from fleetsim.job.nameplate import mean_step_s
from fleetsim.policies.samples import AGE_ACTIONS
from fleetsim.sim.processes import measured
from fleetsim.units import plural

# Steps of a look, which only guides a search (`look_steps`): usual, at the least, samples of all; and pipelines.
_LOOK, _FEWEST, _LOOK_SAMPLES, _DEPTHS = 16, 8, 32_768, 3
_SMALL, _SMALL_MOST = 4_096, 64
# Where the fewest are more samples than this, it is fewer; where the usual are more work, they are fewer.
_MANY_SAMPLES, _MANY_WORK = 131_072, 1_500_000
# Where engines or workers of tools limit what is in flight, an empty fleet fills in waves: so many times as deep.
_FILLINGS = 2
# Of a look on spot machines: steps at the least and at the most, and turns of samples; and work at the least.
_SPOT_LOOK, _SPOT_MOST, _SPOT_TURNS, _SPOT_WORK = 64, 256, 65_536, 400_000
# Work of a look that a search has some forty of, at the most: some 4 s.
_MOST_WORK = 4_000_000
# Of so many turns it is they that are too many.
_MANY_TURNS = 10


def look_steps(scenario: Scenario) -> int:
    """Steps of a look: as many as the rule wants that wants most, no more than the job may have."""
    if scenario.run.events or scenario.run.warmup_steps is not None:
        return most_steps(scenario)
    return min(max(rule(scenario) for rule in _LOOK_RULES), most_steps(scenario))


def _for_the_mean(scenario: Scenario) -> int:
    """Fewer where a step has many samples, whose mean hardly varies; more where it has few: a fleet that only just
    keeps up settles slowly."""
    sent = sent_samples(scenario)
    most = int(_MANY_WORK / work(scenario))
    fewest = max(2, min(_FEWEST, int(_MANY_SAMPLES / sent)))
    usual = max(fewest, min(_LOOK, int(_LOOK_SAMPLES / sent)), min(_SMALL_MOST, int(_SMALL / sent)))
    return max(2, min(usual, most))


def _for_the_pipeline(scenario: Scenario) -> int:
    """Else its filling would be all that is seen."""
    from fleetsim.sim.window import held_samples, least_warmup_steps, pipeline_steps

    deep = max(least_warmup_steps(scenario) - 1, math.ceil(pipeline_steps(scenario)))
    # What only waits for a place in an engine fills nothing; beside tools more is under way than has places.
    if has_large_steps(scenario) and not scenario.workload.turns.several:
        deep = min(deep, math.ceil(held_samples(scenario) / scenario.trainer.batch_samples))
    admission, law = scenario.admission, law_of(scenario)
    # All that engines hold starts, and ends, together; and calls come to workers who are too few all at once.
    waits = scenario.workload.turns.several and scenario.stations.tools.workers is not None
    waits &= _FILLINGS * _DEPTHS * deep * work(scenario) <= _MANY_WORK
    if waits or law.in_flight(admission, sizes_of(scenario)) == math.inf:
        deep *= _FILLINGS
    if AGE_ACTIONS[admission.age_action].drops and law.ahead is None:  # what is dropped waits so long
        deep = max(deep, math.ceil((admission.max_age or 0.0) * steps_per_version(scenario)))
    if any(judge.has_engines for judge in judges_of(scenario).values()):  # their queue fills behind that of the engines
        deep *= _DEPTHS
    return _DEPTHS * deep


def _for_a_period(scenario: Scenario) -> int:
    """A part of one would have too many evaluations, or none."""
    from fleetsim.sim.window import least_warmup_steps

    return 0 if scenario.period_steps == 1 else least_warmup_steps(scenario) + scenario.period_steps


def _for_reclaims(scenario: Scenario) -> int:
    """On spot machines it must see what rarely happens."""
    turns = scenario.trainer.batch_samples * scenario.workload.turns.about
    least = max(_LOOK, min(_SPOT_LOOK, int(_SPOT_WORK / work(scenario))))  # what they do not see is hurried
    return max(least, min(_SPOT_MOST, _SPOT_TURNS // turns)) if has_spot(scenario) else 0


_LOOK_RULES = (_for_the_mean, _for_the_pipeline, _for_a_period, _for_reclaims)


def check_search(scenario: Scenario) -> None:
    """Raises InputError for a job of which no search would end in a few minutes."""
    needed = look_steps(scenario) * work(scenario)
    if needed <= _MOST_WORK:
        return
    turns, batch = scenario.workload.turns.about, scenario.trainer.batch_samples
    path, value = ("trainer.batch_samples", batch) if turns < _MANY_TURNS else ("workload.turns.count", turns)
    samples = f"{batch:,} samples of {plural(turns, 'turn')} in a step"
    rule = f"{needed / _MOST_WORK:.3g} times what a search has time for: {samples}"
    remedy = "use a smaller batch, or fewer turns of as many seconds in all; fleetsim simulate runs one fleet of it"
    raise InputError([Problem(path, value, rule, remedy)])


def looked(scenario: Scenario) -> Scenario:
    """The job for a look: few steps, unless something happens in them. No number of a look is ever printed."""
    steps = look_steps(scenario)
    settled = scenario.run.events or scenario.run.warmup_steps is not None or steps == scenario.run.steps
    return scenario if settled else _shortened(scenario, steps)


def long_enough(scenario: Scenario) -> Scenario:
    """The job for a search that few steps would mislead: as it is, but on spot machines, whose looks are long and see
    reclaims sooner than a run of a thousand steps."""
    return looked(scenario) if has_spot(scenario) else scenario


@lru_cache(maxsize=64)
def _shortened(scenario: Scenario, steps: int) -> Scenario:
    """The job with so many steps. A number of them breaks no rule: a search makes thousands of such jobs."""
    if hurried := _hurried(scenario, steps):
        return with_changes(scenario, {"run.steps": steps, **hurried})
    return scenario.model_copy(update={"run": scenario.run.model_copy(update={"steps": steps})})


def _hurried(scenario: Scenario, steps: int) -> dict[str, float]:
    """Spot machines that come and go so much faster that so few steps see as much of it as a long run: the part of the
    time in which they serve stays. No faster than that: each reclaim costs the responses that it breaks off. A trace
    stays as it is."""
    if not has_spot(scenario) or scenario.fleet.spot.trace is not None:
        return {}
    faster = max(1.0, reclaims_s(scenario) / (steps * _on_demand_step_s(scenario)))
    spot, names = scenario.fleet.spot, ("notice_s", "mean_absence_s", "start_s")
    times = {f"fleet.spot.{name}": getattr(spot, name) / faster for name in names}
    return {**times, "fleet.spot.mean_life_s": max(1.0, spot.mean_life_s / faster)}


@lru_cache(maxsize=256)
def _on_demand_step_s(scenario: Scenario) -> float:
    """Seconds of a step of the same fleet on demand, by a look."""
    pools = {f"fleet.pools.{name}.on_spot": False for name in scenario.fleet.pools}
    try:
        return float(measured(looked(with_changes(scenario, {"fleet.spot.share": 0.0} | pools)), 0)["step_s"])
    except StuckError:
        return mean_step_s(scenario)
