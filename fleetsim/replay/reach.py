"""How far the engine speed of a window reaches: loads of another fleet beside those that it was fitted on."""

from __future__ import annotations

from dataclasses import dataclass

from fleetsim.analysis.metrics import window_of
from fleetsim.config.load import with_changes
from fleetsim.config.scenario import Scenario
from fleetsim.engine.limits import EngineLimits
from fleetsim.engine.step_time import StepTime
from fleetsim.replay.speed import Shape, Speed
from fleetsim.sim.run import simulate

Engine = tuple[StepTime, EngineLimits]

# A mean load beyond the 5th or 95th percentile seen, by more than this factor, is outside.
REACH = 1.5
# Steps of the run that shows the load, and how often it is looked at, in steps: no whole number of looks to a step, so
# that they fall on all parts of it.
_STEPS, _LOOK = 20, 0.137

_SHAPE: dict[Shape, str] = {
    "fitted": "follows the curve fitted to the window, beyond its ends",
    "roofline": "follows the roofline's shape, times the factor of the window",
    "assumed": "follows a shape that is assumed",
}
_CALIBRATE = "fleetsim calibrate measures it (then --profile)"
_NAME_ENGINE = "or --scenario with engine.gpu and engine.model gives it a roofline"


@dataclass(frozen=True, slots=True)
class Extrapolated:
    """A prediction at a load that the window never saw. running: requests per instance, as predicted; seen: the 5th and
    95th percentile in the window. speed: where the engine's speed there comes from, and what would make it sure."""

    running: float
    seen: tuple[float, float]
    speed: str

    @property
    def text(self) -> str:
        """The note in a line."""
        low, high = self.seen
        load = f"{self.running:,.0f} requests run per instance, the window saw {low:,.0f} to {high:,.0f}"
        return f"extrapolated: {load}; {self.speed}"


def running_per_instance(scenario: Scenario, engine: Engine | None, step_s: float) -> float:
    """Mean requests that run on an instance while there are any, as its gauge would show it; 0 where nothing ran.

    One short run, scraped. step_s: seconds of one of its steps.
    """
    if len(scenario.run.events) == 0 and scenario.run.warmup_steps is None:
        scenario = with_changes(scenario, {"run.steps": min(scenario.run.steps, _STEPS)})
    records = simulate(scenario, engine=engine, scrape_every_s=max(_LOOK * step_s, 1e-3))
    rows = records.scrapes
    seen = rows[(rows["time_s"] >= window_of(records).start_s) & ~rows["paused"] & (rows["running"] > 0)]
    return float(seen["running"].mean()) if len(seen) else 0.0


def extrapolated(speed: Speed | None, running: float) -> Extrapolated | None:
    """What has to be said of a prediction at so many requests running per instance; None where the window reaches.

    speed: None = the engine's speed is not the window's, and this has nothing to say about it.
    """
    if speed is None or running == 0:
        return None
    low, high = speed.loads
    if low / REACH <= running <= high * REACH:
        return None
    sure = _CALIBRATE if speed.shape == "roofline" else f"{_CALIBRATE}, {_NAME_ENGINE}"
    return Extrapolated(running, speed.loads, f"the engine's speed there {_SHAPE[speed.shape]}; {sure}")
