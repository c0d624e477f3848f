"""The fleet that the window's job should have: `plan.size` on the implied scenario, with the engine speed it showed.

How far that speed reaches: loads of another fleet beside those that it was fitted on.
"""

from __future__ import annotations

import os
import tempfile
from collections.abc import Callable, Collection, Mapping, Sequence
from typing import Any

from msgspec import Struct

from fleetsim.config.engine_profile import profile_text
from fleetsim.config.load import with_changes
from fleetsim.config.scenario import Scenario, most_steps
from fleetsim.estimates import Estimate
from fleetsim.job.derived_values import SLOWDOWN
from fleetsim.job.nameplate import mean_output_tokens, mean_prompt_tokens
from fleetsim.job.trials import Trial, trial_of, with_instances
from fleetsim.records import replace
from fleetsim.replay.implied.implied_scenario import Implied, measured_by
from fleetsim.replay.implied.speed import Shape, Speed
from fleetsim.sim.engines import Engine
from fleetsim.sim.metrics import metrics_of
from fleetsim.sim.run import simulate
from fleetsim.sim.threads import side_by_side
from fleetsim.sim.window import window_of
from fleetsim.size.size import Sizing, size

# A mean load beyond the 5th or 95th percentile seen, by more than this factor, is outside.
REACH = 1.5
# An iteration at f times the load lasts between once and f times as long, whatever is fixed in it. A shape that is
# assumed may be wrong by all of that; one that is known by the square root of it.
TRUST: dict[Shape, float] = {"assumed": 1.0, "roofline": 0.5, "fitted": 0.5}
# Steps of the run that shows the load, and how often it is looked at, in steps: no whole number of looks to a step, so
# that they fall on all parts of it.
_STEPS, _LOOK = 20, 0.137
# Replications at each end of the doubt about an extrapolated speed: it is far wider than chance.
END_RUNS = 2

_SHAPE: dict[Shape, str] = {
    "fitted": "follows the curve fitted to the window, beyond its ends",
    "roofline": "follows the roofline's shape, times the factor of the window",
    "assumed": "follows a shape that is assumed",
}
_CALIBRATE = "fleetsim calibrate measures it (then --profile)"
_NAME_ENGINE = "or --scenario with engine.gpu and engine.model gives it a roofline"


class Extrapolated(Struct, frozen=True):
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


def beyond_of(speed: Speed | None, scenario: Scenario, engine: Engine | None, step_s: float) -> Extrapolated | None:
    """Whether a fleet runs at a load that the window never saw: by one run of it."""
    if engine is None or speed is None:
        return None
    context = mean_prompt_tokens(scenario) + mean_output_tokens(scenario) / 2
    return extrapolated(speed, running_per_instance(scenario, engine, step_s), context)


def at_the_ends(
    doubt: tuple[float, float] | None, scenario: Scenario, engine: Engine | None, n: int = END_RUNS
) -> list[list[dict[str, Any]]]:
    """Runs at both ends of a doubt about the speed of an engine, or of that of the scenario; none without one."""
    own, runs = scenario.engine.slowdown, []
    for factor in doubt or ():
        slower = scenario if engine is not None else with_changes(scenario, {SLOWDOWN: own * factor})
        other = None if engine is None else (engine[0].slower(factor), engine[1])
        runs.append(runs_of(slower, other, min(n, END_RUNS)))
    return runs


def runs_of(scenario: Scenario, engine: Engine | None, n: int) -> list[dict[str, Any]]:
    """The metrics of n replications."""
    return side_by_side(lambda r: metrics_of(simulate(scenario, replication=r, engine=engine)), range(n))


def hull(estimate: Estimate, others: Sequence[Estimate]) -> Estimate:
    """The same mean, with an interval that holds the others' too."""
    every = (estimate, *others)
    return Estimate(estimate.mean, min(e.ci_low for e in every), max(e.ci_high for e in every))


def widened(trial: Trial, ends: Sequence[Sequence[Mapping[str, Any]]]) -> dict[str, Estimate]:
    """Every metric of a trial with the hull of its interval and those of other sets of runs."""
    others = [trial_of(trial.instances, runs).estimates for runs in ends]
    return {name: hull(e, [x[name] for x in others if name in x]) for name, e in trial.estimates.items()}


def _doubt(speed: Speed, running: float, context: float) -> tuple[float, float]:
    end = min(max(running, speed.loads[0]), speed.loads[1])
    seconds = [speed.step_time.seconds(max(1, round(r)), kv_tokens=r * context) for r in (running, max(end, 1.0))]
    model, load = seconds[0] / seconds[1], running / max(end, 1.0)
    fast, slow = min(1.0, load) / model, max(1.0, load) / model
    return min(1.0, fast) ** TRUST[speed.shape], max(1.0, slow) ** TRUST[speed.shape]


class AdvisedFleet(Struct, frozen=True):
    """What to deploy. instances: the fleet; was: now. queue_cap_samples: buffer capacity that costs next to no step
    time. changes: dotted paths to set, empty where the fleet is right as it is. predicted: metrics with that fleet;
    as_is: the fleet as it is, under the same draws. size: everything that sizing found.
    extrapolated: the recommended fleet's load, where the window never saw it.
    """

    instances: int
    was: int
    queue_cap_samples: int
    changes: Mapping[str, Any]
    predicted: Mapping[str, Estimate]
    as_is: Trial
    size: Sizing
    extrapolated: Extrapolated | None = None

    @property
    def now(self) -> Mapping[str, Estimate]:
        """Metrics with the fleet as it is."""
        return self.as_is.estimates

    @property
    def resized(self) -> bool:
        """Whether the fleet should change."""
        return self.instances != self.was


def recommend(
    implied: Implied, *, given: Collection[str] = (), tell: Callable[[str], None] | None = None
) -> AdvisedFleet:
    """Sizes the fleet of the window's job. given: dotted paths that the user wrote (targets among them bind).

    Slow instances keep their numbers: an added one has the normal pace. Raises InputError and StuckError as `size`.
    """
    with tempfile.TemporaryDirectory(prefix="fleetsim-") as folder:
        scenario = _with_profile(implied, folder)
        result = size(scenario, given=given, tell=tell)
        queue_cap = result.queue_cap.samples  # looked for now, while the profile is there
        # the fleet as it is, as many steps and replications as the recommendation had
        was = implied.scenario.fleet.instances
        now = next((c for c in result.candidates if c.instances == was), None)
        if now is None:
            scenario = with_changes(implied.scenario, {"run.steps": result.scenario.run.steps})
            now = trial_of(was, runs_of(scenario, implied.engine, scenario.run.replications))
    advised = with_instances(implied.scenario, result.instances)
    beyond = beyond_of(implied.speed, advised, implied.engine, result.recommended.mean("step_s"))
    advised = with_changes(advised, {"run.steps": result.scenario.run.steps})
    changes: dict[str, Any] = {} if result.instances == was else {"fleet.instances": result.instances}
    return AdvisedFleet(
        result.instances,
        was,
        queue_cap,
        changes,
        widened(result.recommended, at_the_ends(None if beyond is None else beyond.doubt, advised, implied.engine)),
        now,
        replace(result, scenario=implied.scenario),
        beyond,
    )


def _with_profile(implied: Implied, folder: str) -> Scenario:
    """The scenario with the window's engine as a profile file in `folder`: what `size` can read."""
    path = os.path.join(folder, "window.json")
    scenario, profile = measured_by(implied, path)
    if profile is not None:
        with open(path, "w", encoding="utf-8") as stream:
            stream.write(profile_text(profile))
    return scenario
