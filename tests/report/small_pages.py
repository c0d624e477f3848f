"""The pages of small jobs, made once for a process: what both the data's tests and the browser's look at."""

from __future__ import annotations

from dataclasses import dataclass
from functools import cache

from fleetsim.config import Scenario, default_scenario, with_changes
from fleetsim.job.assumptions import run_assumptions
from fleetsim.job.engine_source import engine_source
from fleetsim.job.trials import Trial, Trials, flat, remembered, simulated, with_instances
from fleetsim.sim.records import Records
from fleetsim.sim.replications import Replicated, replicate
from fleetsim.sim.run import simulate
from fleetsim.simulate.run_view import RunView, trained_staleness, warmups_of
from fleetsim.size.size import Sizing
from fleetsim.size.size import size as plan_size
from fleetsim.size.spread import around
from fleetsim.split.split import Advice
from fleetsim.split.split import split as plan_split

NAME = "<b>job</b> & <script>alert(1)</script> 'one' \"two\" %{x}"


GIVEN = ("trainer.batch_samples", "trainer.fixed_s", "engine.kind", "fleet.instances", "workload.output_tokens")


def job(**changes: object) -> Scenario:
    """A job of a second's work: 64 short samples a step, on instances of a known rate."""
    small = {
        "name": NAME,
        "trainer.batch_samples": 64,
        "trainer.fixed_s": 4.0,
        "engine.kind": "constant",
        "engine.instance_tok_s": 800.0,
        "targets.trainer_idle_fraction": 0.1,
        "admission.max_staleness": 2,
        "workload.output_tokens": {"mean": 300, "cv": 1.0, "max": 1024},
        "run.steps": 10,
        "run.replications": 3,
    }
    return with_changes(default_scenario(), {**small, **changes})


@dataclass(frozen=True, slots=True)
class Sized:
    """What the page of `size` is made of."""

    result: Sizing
    around: tuple[Trial, ...]
    run: Records


@cache
def sized() -> Sized:
    """A plan, the fleets around it, and the recommended fleet's run."""
    measure = remembered(simulated)
    result = plan_size(job(), measure=measure)
    near = around(Trials(result.scenario, measure), result.instances, [c.instances for c in result.candidates])
    return Sized(result, near, simulate(with_instances(result.scenario, result.instances), activity=True))


@dataclass(frozen=True, slots=True)
class Simulated:
    """What the page of `simulate` is made of."""

    view: RunView
    result: Replicated
    run: Records


@cache
def simulated_run() -> Simulated:
    """A fleet that loses instances and drops old samples, so that every picture has something to show."""
    scenario = job(
        **{
            "fleet.instances": 3,
            "fleet.failures.mtbf_s": 60.0,
            "fleet.failures.restart_s": 5.0,
            "admission.age_action": "drop_on_dequeue",
            "admission.max_age": 1,
            "admission.max_staleness": 3,
            "workload.filter.zero_variance_share": 0.2,
            "sync.publish_s": 0.5,
            "buffer.capacity_samples": 96,
        }
    )
    result = replicate(scenario, activity=True)
    metrics = flat(result.metrics)
    binding = str(metrics.pop("binding"))
    run = result.runs[0]
    source = engine_source(scenario, scenario.fleet.instances, result.runs)
    view = RunView(
        scenario, metrics, binding, len(result.runs), run.steps, trained_staleness(run), source,
        warmups_of(result.runs), run_assumptions(scenario, GIVEN),
    )  # fmt: skip
    return Simulated(view, result, run)


@dataclass(frozen=True, slots=True)
class Split:
    """What the page of `split` is made of."""

    result: Advice
    runs: dict[str, Records]


@cache
def split() -> Split:
    """Six GPUs, shared or split."""
    result = plan_split(job(), 6)
    ways = [o.arrangement for o in (result.best_split, result.best_colocated) if o is not None]
    return Split(result, {way.label: simulate(way.scenario, activity=True) for way in ways})
