"""Healthy fleets that a plan may turn out to be: its inputs as far off as they are in doubt.

An alert is for what is no longer the plan, and not for what the plan did not know. The seconds of one run differ from
those of its repetition (`RERUN`), so that even measured ones are in some doubt. What nobody measured or gave at all has
no alert of its own.
"""

from __future__ import annotations

import math
from collections.abc import Collection, Iterator, Mapping
from dataclasses import dataclass, field
from typing import Any

from numpy.random import Generator

from fleetsim.config.load import with_changes
from fleetsim.config.scenario import Scenario
from fleetsim.config.tree import is_touched
from fleetsim.job.settings import LENGTHS
from fleetsim.job.uncertainty import RERUN, UNCERTAIN, Z80, Axis, Interval, observed_at

# Standard deviations of what is in doubt, to both sides.
FAR = 2.0
# What public measurements are off from a speed that nothing has confirmed: its ends.
GUESSED: Interval = (0.7, 2.0)
# Signal -> the input that its level is, by its path.
_IS = {"trainer_pace": "trainer.fixed_s", "sync_seconds": "sync.pause_s"}
_TIMES = {u.axis: u.times for u in reversed(UNCERTAIN)}


@dataclass(frozen=True, slots=True)
class Doubt:
    """fleets: healthy ones, each off in another way. inputs: what is in doubt but for the differences between two runs.
    unmeasured: signal -> why nothing says what its level is."""

    fleets: tuple[Scenario, ...] = ()
    inputs: tuple[str, ...] = ()
    unmeasured: Mapping[str, str] = field(default_factory=dict)


def doubt_of(scenario: Scenario, given: Collection[str] | None, known: bool | None) -> Doubt:
    """given: paths that somebody measured or gave, None = all. known: whether the speed that the engines are given is
    confirmed, None = it is the scenario's own."""
    laws = [] if given is None else [(u, law) for u in UNCERTAIN if (law := u.law(scenario, given)) is not None]
    laws = [(u, law) for u, law in laws if known is None or u.axis != "engine"]
    again = math.log1p(RERUN) / Z80 * FAR
    ends: dict[Axis, list[tuple[float, float]]] = {axis: [(-again, again)] for axis in ("engine", "trainer", "sync")}
    for uncertain, law in laws:
        low, high = (math.log(float(law.factors(z))) for z in (-FAR, FAR))
        ends.setdefault(uncertain.axis, []).append((low, high))
    inputs = [u.what for u, _ in laws]
    if known is False:
        ends["engine"].append((math.log(GUESSED[0]), math.log(GUESSED[1])))
        inputs.append("the engines' speed, which no back-test confirms")
    factors = {axis: _together(mine) for axis, mine in ends.items()}
    fleets = tuple(_with(scenario, corner) for corner in _corners(factors))
    return Doubt(fleets, tuple(inputs), {} if given is None else dict(_unmeasured(scenario, given)))


def drawn(scenario: Scenario, given: Collection[str] | None, random: Generator) -> Scenario:
    """A healthy fleet that the plan may turn out to be: a joint draw of all that is in doubt."""
    laws = [] if given is None else [(u, law) for u in UNCERTAIN if (law := u.law(scenario, given)) is not None]
    axes: tuple[Axis, ...] = ("engine", "trainer", "sync")
    factors = {axis: math.exp(math.log1p(RERUN) / Z80 * random.normal()) for axis in axes}
    for uncertain, law in laws:
        factors[uncertain.axis] = factors.get(uncertain.axis, 1.0) * float(law.factors(random.normal()))
    return _with(scenario, factors)


def _together(ends: list[tuple[float, float]]) -> Interval:
    """Of independent factors, by their logarithms."""
    return math.exp(-math.hypot(*(low for low, _ in ends))), math.exp(math.hypot(*(high for _, high in ends)))


def _corners(factors: Mapping[Axis, Interval]) -> Iterator[Mapping[Axis, float]]:
    """Each input alone at both of its ends, and the two pools apart."""
    for axis, ends in factors.items():
        yield from ({axis: end} for end in ends if end != 1.0)
    for this, that in ((0, 1), (1, 0)):
        yield {"engine": factors["engine"][this], "trainer": factors["trainer"][that]}


def _with(scenario: Scenario, corner: Mapping[Axis, float]) -> Scenario:
    changes: dict[str, Any] = {}
    for axis, factor in corner.items():
        changes |= _TIMES[axis](scenario, factor)
    return with_changes(scenario, changes)


def _unmeasured(scenario: Scenario, given: Collection[str]) -> Iterator[tuple[str, str]]:
    for signal, path in _IS.items():
        uncertain = next(u for u in UNCERTAIN if u.path == path)
        law = uncertain.law(scenario, given)
        if law is not None and observed_at(scenario, path) is None:
            remedy = f"settled by {uncertain.settled_by(scenario)}"
            yield signal, f"nobody measured or gave the {uncertain.what} ({law.source}); {remedy}"
    spread = f"{LENGTHS}.cv"
    if not is_touched(LENGTHS, [p for p in given if p != spread]) and observed_at(scenario, LENGTHS) is None:
        yield "output_length", "nobody measured or gave the output lengths; give --len, or --len-from FILE"
