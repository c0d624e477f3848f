"""How far the engine speed of a window reaches: loads of another fleet beside those that it was fitted on."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass

from fleetsim.config.load import with_changes
from fleetsim.config.scenario import Scenario, most_steps
from fleetsim.engine.limits import EngineLimits
from fleetsim.engine.step_time import StepTime
from fleetsim.estimates import Estimate
from fleetsim.job.nameplate import mean_output_tokens, mean_prompt_tokens
from fleetsim.replay.implied.speed import Shape, Speed
from fleetsim.sim.run import simulate
from fleetsim.sim.window import window_of

Engine = tuple[StepTime, EngineLimits]

# A mean load beyond the 5th or 95th percentile seen, by more than this factor, is outside.
REACH = 1.5
# An iteration at f times the load lasts between once and f times as long, whatever is fixed in it. A shape that is
# assumed may be wrong by all of that; one that is known by the square root of it.
TRUST: dict[Shape, float] = {"assumed": 1.0, "roofline": 0.5, "fitted": 0.5}
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
    95th percentile in the window. speed: where the engine's speed there comes from, and what would make it sure. doubt:
    between which multiples of the seconds that the prediction counts on an iteration may last there."""

    running: float
    seen: tuple[float, float]
    speed: str
    doubt: tuple[float, float] = (1.0, 1.0)

    @property
    def text(self) -> str:
        """The note in a line."""
        low, high = self.seen
        load = f"{self.running:,.0f} requests run per instance, the window saw {low:,.0f} to {high:,.0f}"
        fast, slow = self.doubt
        doubt = f"an iteration there may last {fast:.2f} to {slow:.2f} times as long, and the intervals hold that"
        return f"extrapolated: {load}; {self.speed}; {doubt}"

    def engines(self, engine: Engine) -> tuple[Engine, ...]:
        """The engine at both ends of the doubt."""
        return tuple((engine[0].slower(factor), engine[1]) for factor in self.doubt)


def running_per_instance(scenario: Scenario, engine: Engine | None, step_s: float) -> float:
    """Mean requests that run on an instance while there are any, as its gauge would show it; 0 where nothing ran.

    One short run, scraped. step_s: seconds of one of its steps.
    """
    if len(scenario.run.events) == 0 and scenario.run.warmup_steps is None:
        scenario = with_changes(scenario, {"run.steps": min(most_steps(scenario), _STEPS)})
    records = simulate(scenario, engine=engine, scrape_every_s=max(_LOOK * step_s, 1e-3))
    rows = records.scrapes
    seen = rows[(rows["time_s"] >= window_of(records).start_s) & ~rows["paused"] & (rows["running"] > 0)]
    return float(seen["running"].mean()) if len(seen) else 0.0


def extrapolated(speed: Speed | None, running: float, context: float = 0.0) -> Extrapolated | None:
    """What has to be said of a prediction at so many requests running per instance; None where the window reaches.

    speed: None = the engine's speed is not the window's, and this has nothing to say about it. context: mean tokens of
    a request in the KV cache.
    """
    if speed is None or running == 0:
        return None
    low, high = speed.loads
    if low / REACH <= running <= high * REACH:
        return None
    sure = _CALIBRATE if speed.shape == "roofline" else f"{_CALIBRATE}, {_NAME_ENGINE}"
    doubt = _doubt(speed, running, context)
    return Extrapolated(running, speed.loads, f"the engine's speed there {_SHAPE[speed.shape]}; {sure}", doubt)


def context_of(scenario: Scenario) -> float:
    """Mean tokens of a request in the KV cache: its prompt and half of its output."""
    return mean_prompt_tokens(scenario) + mean_output_tokens(scenario) / 2


def hull(estimate: Estimate, others: Sequence[Estimate]) -> Estimate:
    """The same mean, with an interval that holds the others' too."""
    every = (estimate, *others)
    return Estimate(estimate.mean, min(e.ci_low for e in every), max(e.ci_high for e in every))


def widened(estimates: Mapping[str, Estimate], others: Sequence[Mapping[str, Estimate]]) -> dict[str, Estimate]:
    """Every metric with the hull of its intervals."""
    return {name: hull(e, [other[name] for other in others if name in other]) for name, e in estimates.items()}


def _doubt(speed: Speed, running: float, context: float) -> tuple[float, float]:
    end = min(max(running, speed.loads[0]), speed.loads[1])
    seconds = [speed.step_time.seconds(max(1, round(r)), kv_tokens=r * context) for r in (running, max(end, 1.0))]
    model, load = seconds[0] / seconds[1], running / max(end, 1.0)
    fast, slow = min(1.0, load) / model, max(1.0, load) / model
    return min(1.0, fast) ** TRUST[speed.shape], max(1.0, slow) ** TRUST[speed.shape]
