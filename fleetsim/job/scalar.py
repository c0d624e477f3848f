"""One scalar of a job, found where a simulated figure is the one that a run, or a publication, shows.

Where a figure is all there is, engines and trainer share the scalar: put on one of them, the same step makes other
fleets come out up to twice as far off (`fleetsim validate`).
"""

from __future__ import annotations

import math
from collections.abc import Callable, Collection, Mapping
from typing import Any

from fleetsim.config.scenario import Scenario
from fleetsim.config.tree import value_at
from fleetsim.engine.gpus import gpu_of
from fleetsim.engine.known_error import known_error_of
from fleetsim.engine.model.names import model_shape
from fleetsim.engine.slowdown import off_by, slowdown_of
from fleetsim.engine.transport import backend_for
from fleetsim.job.derived_values import SECONDS, SLOWDOWN, slower
from fleetsim.job.input_moves import in_doubt
from fleetsim.job.nameplate import mean_step_s
from fleetsim.job.uncertainty import Axis

# The simulated figure is a step function of the scalar (lengths are whole tokens): closer than this is luck.
_CLOSE = 0.002
# Values of a search at most, and the least part of the way to an end of its bracket that a step leaves.
_MOST, _MARGIN = 20, 0.01
# No figure is 0 as a logarithm.
_LEAST = 1e-9
# A fit says half as much, in logarithms, of a job where one of these is another: the fits of one publication on two
# models or GPUs (C07 and C07b, C09 and C09c, D09 to D09c, D10 and D10b) agree with a correlation of 0.4. What all of
# them lose, the client's part, stays; what the rooflines are off by does not. So does what a trainer takes over its
# model's seconds, blind on another GPU: carried over, that misses published steps by 0.28, left out by 0.20; nor
# with another backend (D09, D09b, S08, S09, S37: median 16 %, with half of it 7 %).
OF_TRAINER: Collection[str] = ("engine.gpu", "trainer.recipe.backend")
OF_ENGINES: Collection[str] = ("engine.gpu", "engine.model", "engine.enforce_eager")
_CARRIED = 0.5


def carries(*, alike: bool) -> float:
    """The power of a factor, seen in one job, that another takes. alike: at OF_ENGINES, or at OF_TRAINER."""
    return 1.0 if alike else _CARRIED


def are_alike(one: Scenario, other: Scenario, paths: Collection[str]) -> bool:
    """Whether two jobs have the same there, by whatever name."""
    return all(_held(one, path) == _held(other, path) for path in paths)


def _held(scenario: Scenario, path: str) -> object:
    if path == "engine.model" and scenario.engine.kind == "roofline":
        return model_shape(scenario.engine.model)
    if path == "trainer.recipe.backend":
        return scenario.trainer.recipe.backend or backend_for(model_shape(scenario.engine.model))
    return gpu_of(scenario.engine) if path == "engine.gpu" else value_at(scenario, path)


def slowdown_there(seen: float, here: Scenario, there: Scenario) -> float:
    """The slowdown of another job's engines, of which one was seen here: a framework's usual one, times the power of
    what was seen over it."""
    usual = slowdown_of(there.trainer.recipe.framework)
    power = carries(alike=are_alike(here, there, OF_ENGINES))
    return seen if power == 1.0 else float(f"{usual * (seen / usual) ** power:.4g}")


def powers(scenario: Scenario, step_s: float, wait_s: float) -> dict[Axis, float]:
    """The powers of a factor on the step that are the engines' and the trainer's: the likeliest of all ways to make it
    up, with lognormal inputs. Each moves in proportion to what it takes of the step and to the variance of its inputs'
    logarithms.

    scenario: with nothing fitted. step_s, wait_s: of its run; the trainer waits for samples. Seconds of another
    publication are as far in doubt as the trainer's model is.
    """
    taken: dict[Axis, float] = {"engine": wait_s / step_s, "trainer": mean_step_s(scenario) / step_s}
    moves = dict.fromkeys(taken, 0.0)
    for uncertain, (low, high) in in_doubt(scenario.model_copy(update={"assumed": (SLOWDOWN, *SECONDS)}), ()):
        if uncertain.axis in moves:
            moves[uncertain.axis] += taken[uncertain.axis] * math.log(high / low) ** 2
    whole = sum(taken[axis] * move for axis, move in moves.items())
    return {axis: move / whole if whole else 0.0 for axis, move in moves.items()}


def shared(scenario: Scenario, shares: Mapping[Axis, float], factor: float) -> dict[str, Any]:
    """The changes that put a factor on a scenario's iterations and its trainer's seconds, by their powers of it."""
    trainer = slower(scenario.trainer, factor ** shares["trainer"])
    return {SLOWDOWN: scenario.engine.slowdown * factor ** shares["engine"], **trainer}


def doubt_there(scenario: Scenario) -> tuple[float, float]:
    """The factors between which eight of ten such slowdowns lie: a framework's runs, and the model of the engines."""
    own, model = off_by(scenario.trainer.recipe.framework)[1], known_error_of(scenario.engine).around(1.0)[1]
    reach = math.exp(math.hypot(math.log(own), math.log(model)))
    return 1.0 / reach, reach


def slope_of(tried: Mapping[float, float]) -> float:
    """Of the last two values, both as logarithms; 1 where that is no slope."""
    (a, at_a), (b, at_b) = (*tried.items(),)[-2:] if len(tried) > 1 else ((1.0, 1.0), (1.0, 1.0))
    steep = math.log(b / a) and math.log(max(at_b, _LEAST) / max(at_a, _LEAST)) / math.log(b / a)
    return steep or 1.0


def search(
    at: Callable[[float], float], low: float, high: float, wanted: float, start: float, slope: float = 1.0
) -> Mapping[float, float]:
    """Values between `low` and `high` and a monotone figure at each, until one is the wanted one.

    Secants of logarithms, from `start` and a first `slope`, each at least twice as long as the last; once two values
    have the wanted figure between them, no step leaves these, and one that took less than half off is followed by their
    middle. Where no value meets the figure, the end that is nearer is among them.
    """
    tried: dict[float, float] = {}
    sides: dict[bool, tuple[float, float]] = {}  # of figures too small and too large: the least miss, and where
    ends = math.log(low), math.log(high)
    here, last, wide = min(ends[1], max(ends[0], math.log(start))), None, math.inf
    while len(tried) < _MOST:
        tried[math.exp(here)] = found = at(math.exp(here))
        if is_close(found, wanted):
            break
        miss = math.log(max(found, _LEAST) / wanted)
        if abs(miss) <= sides.get(miss > 0, (math.inf,))[0]:
            sides[miss > 0] = abs(miss), here
        if last is not None and miss != last[1]:
            slope = (miss - last[1]) / (here - last[0])
        step = -miss / slope
        if len(sides) == 1 and last is not None:  # along a flat figure a secant creeps
            step = math.copysign(max(abs(step), 2 * abs(here - last[0])), step)
        last = here, miss
        there = here + step
        if len(sides) == 2:
            one, other = sides[True][1], sides[False][1]
            ends = min(one, other), max(one, other)
            now = ends[1] - ends[0]
            inside = ends[0] + _MARGIN * now <= there <= ends[1] - _MARGIN * now
            # A secant that has just taken less than half off creeps along a flat figure.
            there = there if inside and now <= wide / 2 else sum(ends) / 2
            wide = now
        there = min(ends[1], max(ends[0], there))
        if math.exp(there) in tried:  # an end, and the figure lies beyond it, or the slope was of the wrong sign
            there = sum(ends) - there
        if math.exp(there) in tried:
            break
        here = there
    return tried


def nearest(tried: Mapping[float, float], wanted: float) -> float:
    """The value whose figure is nearest to the wanted one."""
    return min(tried, key=lambda value: abs(tried[value] - wanted))


def is_close(simulated: float, published: float) -> bool:
    """Whether a search may end here."""
    return abs(simulated / published - 1) <= _CLOSE
