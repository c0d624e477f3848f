"""What a plan is not sure of: for each input how far it may be off, why, and what measures it.

Each input is a record. `interval` gives two factors on its seconds: in eight of ten cases the truth lies between them.
`law` is the distribution of the factor that has this interval, with its name and its source: lognormal, as errors of
seconds are ratios; with ends that are not each other's inverse, each half is that of a lognormal law of its own.
What the user gave is not in doubt; what was assumed or modelled has the error that is recorded for it.
"""

from __future__ import annotations

import math
import shlex
from collections.abc import Callable, Collection
from typing import Any, Literal

from msgspec import Struct

from fleetsim import units
from fleetsim.config.scenario import Scenario, has_spot
from fleetsim.config.sections import ObservedConfig
from fleetsim.config.tree import is_given, is_touched
from fleetsim.config.workload import ConstantTokens, Lognormal
from fleetsim.engine.known_error import RESIDUAL, known_error_of, sigma_of
from fleetsim.engine.slowdown import off_by
from fleetsim.engine.transport import sync_times
from fleetsim.errors import InputError
from fleetsim.job.assumptions import is_estimated
from fleetsim.job.derived_values import SECONDS, SLOWDOWN, slower
from fleetsim.job.engine_source import engine_source
from fleetsim.job.settings import BY_NAME, CALIBRATE, LENGTHS, REPLAY, SAID_BY, typed_for
from fleetsim.trainer.estimate import estimate_of

CONFIDENCE = 0.8
# Standard deviations of a normal law that 80 % lie within.
Z80 = 1.2816
# What a run is off by that repeats a configuration, in eight of ten cases: published pairs of runs differ by 1.7 %
# (C11), 3.6, 5.7, 16 and 21 % (D09, D09b) in the seconds of a step, 5.7 % in the median. Two normal draws differ by so
# much in half of all cases if each has a deviation of 0.055 / (sqrt(2) x 0.6745); 80 % lie within 1.28 of these.
RERUN = 0.074

# Trainer seconds that nobody gave, of a model that is not known, are a guess.
_TRAINER = (0.5, 2.0)
# A weight sync that nobody gave.
_SYNC = (0.5, 4.0)
# One that is worked out from bytes and links: 8 in 10 published ones lie within (docs/transports.md counts them).
SYNC_DERIVED = (0.5, 2.5)
# Seconds of a checkpoint whose bytes and file system nobody measured: rates of shared ones differ so much.
_WRITING = (0.5, 3.0)
# The life of a spot machine, which nobody measured.
_LIFE = (1 / 3, 3.0)
# Coefficient of variation of lengths: 0.6 in verl's runs of D04, 1.15 in marin-community/marin issue 8936.
_SPREAD = (0.6, 1.15)
_CV = f"{LENGTHS}.cv"
# Share of the variance of lengths that siblings have in common: in public logs (`GROUP_CORRELATION` says which).
_SHARED = (0.1, 0.6)
_ALIKE = "workload.group_correlation"
_WRITE_RATE = "trainer.checkpoint.write_bytes_s"
_SYNC_PARTS = ("sync.pause_s", "sync.publish_s", "sync.trainer_block_s")

Interval = tuple[float, float]
Axis = Literal["engine", "trainer", "sync", "lengths", "siblings"]


class FactorLaw(Struct, frozen=True):
    """How a factor on an input is distributed. low, high: eight of ten cases lie between them, one below, one above;
    the factor 1 is the median. name: of the distribution; source: where it comes from."""

    name: str
    low: float
    high: float
    source: str

    def factors(self, z: Any) -> Any:
        """The factors at standard normal deviates (an array): each half is that of a lognormal law of its own."""
        import numpy as np

        return np.exp(np.where(z > 0, math.log(self.high), -math.log(self.low)) * z / Z80)


class Uncertain(Struct, frozen=True):
    """One input. told: its interval where no run showed it, None where it is not in doubt; source: where that comes
    from. seen_at: values that a run may show. times: the changes that a factor makes. axis: what it multiplies; inputs
    of one axis multiply each other.

    what: its name. path: the value of a scenario that stands for it, "" = none.
    """

    what: str
    axis: Axis
    path: str
    source: Callable[[Scenario, Interval], str]
    told: Callable[[Scenario, Collection[str]], Interval | None]
    times: Callable[[Scenario, float], dict[str, Any]]
    seen_at: tuple[str, ...] = ()

    def interval(self, scenario: Scenario, given: Collection[str]) -> Interval | None:
        """The two factors, None where it is not in doubt."""
        seen = observed_at(scenario, *self.seen_at)
        return self.told(scenario, given) if seen is None else seen.factors

    def why(self, scenario: Scenario, interval: Interval) -> str:
        """Where the interval comes from."""
        seen = observed_at(scenario, *self.seen_at)
        if seen is None:
            return self.source(scenario, interval)
        steps = f", {units.plural(seen.steps, 'step')}" if seen.steps else ""
        return f"observed in {seen.source}{steps}"

    @property
    def measure(self) -> str:
        """The command or flag that settles it, by its name."""
        named = BY_NAME[SAID_BY[self.path]].measure if self.path in SAID_BY else ""
        return {"": CALIBRATE, _ALIKE: REPLAY}.get(self.path, named) or typed_for(self.path, "VALUE")

    def settled_by(self, scenario: Scenario) -> str:
        """The same as it is typed for this job, LOG for the log of a run; what a run showed, a longer one settles."""
        if observed_at(scenario, *self.seen_at):
            return "a longer log"
        model = shlex.quote(str(scenario.engine.model))
        more = {CALIBRATE: f" --model {model}", REPLAY: " --from LOG"}.get(self.measure)
        return self.measure if more is None else f"{self.measure}{more}"

    def law(self, scenario: Scenario, given: Collection[str]) -> FactorLaw | None:
        """The law that has the interval; None where the input is not in doubt."""
        ends = self.interval(scenario, given)
        return None if ends is None else FactorLaw(law_name(ends), *ends, self.why(scenario, ends))


def law_name(interval: Interval) -> str:
    """What the law with the median 1 and this interval is called."""
    if 1.0 in interval:
        return "lognormal to one side"
    return "lognormal" if math.isclose(math.prod(interval), 1.0, rel_tol=1e-6) else "two-piece lognormal"


def observed_at(scenario: Scenario, *paths: str) -> ObservedConfig | None:
    """What a run showed of one of these values, or of a part of it; None where none did."""
    return next((o for o in scenario.observed if any(is_touched(path, [o.path]) for path in paths)), None)


def step_off(scenario: Scenario) -> tuple[float, float]:
    """What the seconds of a step are off by below and above beside all inputs, as shares: what a repeated run is, and
    of a job that nobody measured what no input explains."""
    if SLOWDOWN not in scenario.assumed:
        return RERUN, RERUN
    up, down = RESIDUAL
    return math.hypot(RERUN, -math.expm1(-down)), math.hypot(RERUN, math.expm1(up))


def _engine(scenario: Scenario, given: Collection[str]) -> Interval | None:
    if observed_at(scenario, SLOWDOWN):  # of the engine as it ran, whatever its model says
        return None
    source = engine_source(scenario, scenario.fleet.instances)
    if source.kind == "constant" or source.error_median is None:
        return None
    if source.kind == "roofline":
        return known_error_of(scenario.engine).around(1.0)
    # where only their median is known: 2.4388 medians of a normal law hold 90 %
    return _within(source.error_p90 or (1 + source.error_median) ** 2.4388 - 1)


def _trainer(scenario: Scenario, given: Collection[str]) -> Interval | None:
    if any(is_touched(path, given) for path in SECONDS):
        return None
    try:
        known = estimate_of(scenario, scenario.trainer.gpus).error if is_estimated(scenario) else None
    except InputError:  # seconds of another model, or of more GPUs, that a file holds for estimated
        known = None
    return _TRAINER if known is None else _within(known.p90)


def _within(p90: float) -> Interval:
    """The interval of a normal law of the logarithm that has 90 % of all errors below `p90`."""
    high = math.exp(Z80 * sigma_of(p90))
    return 1 / high, high


def _sync(scenario: Scenario, given: Collection[str]) -> Interval | None:
    times = sync_times(scenario)
    if times.derived:
        return SYNC_DERIVED
    return None if any(is_given(part, given) for part in _SYNC_PARTS) else _SYNC


def _spread(scenario: Scenario, given: Collection[str]) -> Interval | None:
    law = scenario.workload.output_tokens
    if not isinstance(law, Lognormal) or is_given(_CV, given):
        return None
    assert law.cv is not None  # the schema works it out of quantiles
    return _about(law.cv, _SPREAD)


def _about(value: float, ends: Interval) -> Interval:
    """The factors that take a value to these ends, where it lies between them."""
    return min(ends[0] / value, 1.0), max(ends[1] / value, 1.0)


def _siblings(scenario: Scenario, given: Collection[str]) -> Interval | None:
    """None where lengths do not differ, or groups have one sample each."""
    work = scenario.workload
    law = work.output_tokens if work.turns.output_tokens is None else work.turns.output_tokens
    differ = work.group_size > 1 and not isinstance(law, ConstantTokens)
    if not differ or not work.group_correlation or is_given(_ALIKE, given):
        return None
    return _about(work.group_correlation, _SHARED)


def _writing(scenario: Scenario, given: Collection[str]) -> Interval | None:
    saving = scenario.trainer.checkpoint
    derived = saving.costs and not saving.background and saving.write_bytes_s is not None
    sure = is_given(_WRITE_RATE, given) and saving.state_bytes is not None
    return _WRITING if derived and not sure else None


def _life(scenario: Scenario, given: Collection[str]) -> Interval | None:
    known = scenario.fleet.spot.trace is not None or is_given("fleet.spot.mean_life_s", given)
    return _LIFE if has_spot(scenario) and not known else None


def _slower_writing(scenario: Scenario, factor: float) -> dict[str, Any]:
    rate = scenario.trainer.checkpoint.write_bytes_s
    return {} if rate is None else {_WRITE_RATE: rate / factor}


def _slower_engines(scenario: Scenario, factor: float) -> dict[str, Any]:
    fleet = scenario.fleet
    known = [*fleet.speed_factors, *([1.0] * (fleet.instances - len(fleet.speed_factors)))]
    return {"fleet.speed_factors": [factor * x for x in known]}


def _why_in_a_job(s: Scenario, interval: Interval) -> str:
    low, high = (units.number(s.engine.slowdown * x) for x in interval)
    return f"published runs took {low} to {high} times as long as the engine alone"


def _slower_sync(scenario: Scenario, factor: float) -> dict[str, Any]:
    times = sync_times(scenario).slower(factor)
    return {path: getattr(times, path.removeprefix("sync.")) for path in _SYNC_PARTS}


def _wider_lengths(scenario: Scenario, factor: float) -> dict[str, Any]:
    law = scenario.workload.output_tokens
    assert isinstance(law, Lognormal)
    assert law.cv is not None
    return {LENGTHS: {**law.model_dump(exclude_none=True), "cv": law.cv * factor}}


def _percent(_: Scenario, interval: Interval) -> str:
    return f"its model is right within {units.share(interval[1] - 1, 0)} in eight of ten published runs"


UNCERTAIN: tuple[Uncertain, ...] = (
    Uncertain("engine speed", "engine", "", _percent, _engine, _slower_engines),
    Uncertain(
        "speed lost in a training job",
        "engine",
        SLOWDOWN,
        _why_in_a_job,
        lambda s, given: off_by(s.trainer.recipe.framework) if SLOWDOWN in s.assumed else None,
        lambda s, factor: {SLOWDOWN: factor * s.engine.slowdown},
        (SLOWDOWN,),
    ),
    Uncertain(
        "trainer seconds",
        "trainer",
        "trainer.fixed_s",
        lambda s, i: _percent(s, i) if i != _TRAINER else f"{units.seconds(s.trainer.fixed_s)} a step is assumed",
        _trainer,
        lambda s, factor: slower(s.trainer, factor),
        SECONDS,
    ),
    Uncertain(
        "weight sync seconds",
        "sync",
        "sync.pause_s",
        lambda s, i: "worked out from bytes and links" if sync_times(s).derived else "assumed",
        _sync,
        _slower_sync,
        _SYNC_PARTS,
    ),
    Uncertain(
        "spread of lengths",
        "lengths",
        _CV,
        lambda s, i: f"published runs have a cv of {_SPREAD[0]:g} to {_SPREAD[1]:g}",
        _spread,
        _wider_lengths,
        (_CV,),
    ),
    Uncertain(
        "likeness of siblings",
        "siblings",
        _ALIKE,
        lambda s, i: f"in public logs they share {_SHARED[0]:g} to {_SHARED[1]:g} of the variance of lengths",
        _siblings,
        lambda s, factor: {_ALIKE: min(1.0, s.workload.group_correlation * factor)},
    ),
)

# What a run is held by at times: it moves no count of a fleet, whose doubt is worked out over the axes alone.
AT_TIMES: tuple[Uncertain, ...] = (
    Uncertain(
        "checkpoint seconds",
        "trainer",
        _WRITE_RATE,
        lambda s, i: "worked out from bytes and a rate of writing",
        _writing,
        _slower_writing,
    ),
    Uncertain(
        "life of spot machines",
        "engine",
        "fleet.spot.mean_life_s",
        lambda s, i: "it differs by region, GPU and hour, and nobody measured it",
        _life,
        lambda s, factor: {"fleet.spot.mean_life_s": max(1.0, s.fleet.spot.mean_life_s / factor)},
    ),
)
