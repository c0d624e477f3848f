"""From an arm of a case and a value of its scalar to a scenario, and from a run to the figures that are compared."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass, fields, replace
from statistics import fmean, mode
from typing import Any

import numpy as np
from numpy.typing import NDArray

from fleetsim.config.load import scenario_from_mapping
from fleetsim.config.scenario import Scenario
from fleetsim.engine.limits import EngineLimits
from fleetsim.engine.model.names import model_shape
from fleetsim.engine.slowdown import slowdown_of
from fleetsim.engine.step_time import StepTime
from fleetsim.job.derived import seconds_of
from fleetsim.sim.binding import SMALL_WAIT
from fleetsim.sim.engines import engine_of
from fleetsim.sim.metrics import metrics_of
from fleetsim.sim.records import Records
from fleetsim.sim.run import simulate
from fleetsim.sim.stop import stopping
from fleetsim.sim.window import window_of
from fleetsim.trainer.estimate import estimate_of
from fleetsim.validate.assumptions import (
    EAGER_S_PER_LAYER,
    GROUP_CORRELATION,
    REPLICATIONS,
    length_law,
)
from fleetsim.validate.case import Arm, Case

_SECONDS = ("fixed_s", "per_token_s", "phases")
# What is no number: the replications vote.
_VOTED = ("capped", "binding")


@dataclass(frozen=True, slots=True)
class Figures:
    """What a simulated arm comes to, per step or second.

    wait_s: the trainer waits for samples. gen_s: the same with the hand-over that a source counts as generation. tok_s:
    trained output tokens, prompts apart. capped: the client's cap was reached when waits ended. queue_samples: mean
    samples in the buffer.
    """

    step_s: float
    wait_s: float
    gen_s: float
    tok_s: float
    generated_tok_s: float
    wait_share: float
    capped: bool
    binding: str
    staleness_steps: float
    queue_samples: float

    @property
    def side(self) -> str:
        """trainer | generation | in_flight_cap, as publications tell it apart: does the trainer wait for samples?

        Weight syncs are on neither side. capped: the client's cap was reached at most of the batches waited for.
        """
        if self.wait_share < SMALL_WAIT:
            return "trainer"
        return "in_flight_cap" if self.capped else "generation"


def scenario_of(case: Case, arm: Arm, scalar: float | None, modelled: bool = False) -> Scenario:
    """The scenario of an arm at a value of the case's scalar (None: nothing is fitted). modelled: the trainer's seconds
    are those of its model, whatever the case states.

    Raises InputError for an arm that makes no valid scenario.
    """
    raw = _copy(case.scenario)
    for path, value in arm.set.items():
        _put(raw, path, value)  # null takes a value of the base away
    kind = case.fit.scalar if case.fit is not None and scalar is not None else None
    lengths = arm.lengths or case.lengths
    mean = scalar if kind == "mean_tokens" and scalar is not None else lengths.mean
    _put(raw, "workload.output_tokens", length_law(mean, lengths.cap, lengths.sigma).model_dump(exclude_none=True))
    raw.setdefault("workload", {}).setdefault("group_correlation", GROUP_CORRELATION)
    _put(raw, "name", f"{case.id} {arm.name}")
    raw.setdefault("run", {})
    raw["run"] = {"steps": case.steps, "replications": 1, **raw["run"]}
    slowdown = scalar if kind == "decode_slowdown" else slowdown_of(case.framework)
    _put(raw, "engine.slowdown", slowdown)
    trainer = raw.setdefault("trainer", {})
    if modelled:
        raw["trainer"] = trainer = {key: v for key, v in trainer.items() if key not in _SECONDS}
    if not {"fixed_s", "per_token_s"} & trainer.keys():
        trainer.update(_trainer_of(scenario_from_mapping(raw, where=f"{case.id} {arm.name}")))
    if kind == "trainer_seconds" and scalar is not None:
        for part in (trainer, *trainer.get("phases", ())):
            for key in ("fixed_s", "per_token_s"):
                if key in part:
                    part[key] = part[key] * scalar
    return scenario_from_mapping(raw, where=f"{case.id} {arm.name}")


def _trainer_of(scenario: Scenario) -> dict[str, Any]:
    """The trainer's seconds as its model has them, for an arm that publishes none and whose case states none."""
    found = seconds_of(estimate_of(scenario, scenario.trainer.gpus))
    phases = [phase.model_dump() for phase in found["trainer.phases"]]
    return {"fixed_s": found["trainer.fixed_s"], "per_token_s": found["trainer.per_token_s"], "phases": phases}


def figures_of(case: Case, arm: Arm, scalar: float | None, replications: int = REPLICATIONS) -> Figures:
    """An arm's figures, averaged over so many replications: one alone moves some arms by ten points.

    What binds is what binds in most of them. Raises StuckError and InputError as `simulate` does.
    """
    scenario = scenario_of(case, arm, scalar)
    runs = [figures_at(case, arm, scenario, i) for i in range(replications)]
    said: dict[str, Any] = {
        f.name: (mode if f.name in _VOTED else fmean)([getattr(run, f.name) for run in runs]) for f in fields(Figures)
    }
    return Figures(**said)


def figures_at(case: Case, arm: Arm, scenario: Scenario, replication: int) -> Figures:
    """Of one run. Where the source counts the hand-over of the GPUs as generation, that share of it is added to each
    step."""
    if stopping():
        raise KeyboardInterrupt  # Ctrl-C cuts runs short: of what is left of this case none is begun
    records = simulate(scenario, replication=replication, engine=_eager(scenario) if case.eager else None)
    metrics, window = metrics_of(records), window_of(records)
    wait_s = metrics["trainer_idle_fraction"] * metrics["step_s"]
    gen_s = wait_s / (1 - arm.handover_share)
    step_s = metrics["step_s"] + gen_s - wait_s
    return Figures(
        step_s=step_s,
        wait_s=wait_s,
        gen_s=gen_s,
        tok_s=float(window.steps["output_tokens"].sum()) / len(window.steps) / step_s,
        generated_tok_s=metrics["generated_tok_s"] * metrics["step_s"] / step_s,
        wait_share=wait_s / step_s,
        capped=_capped(records, window.steps),
        binding=metrics["binding"],
        staleness_steps=metrics["staleness_steps"]["mean"],
        queue_samples=metrics["queue_depth"],
    )


def _eager(scenario: Scenario) -> tuple[StepTime, EngineLimits]:
    """The scenario's engine without CUDA graphs."""
    step_time, limits = engine_of(scenario)
    launches_s = EAGER_S_PER_LAYER * model_shape(scenario.engine.model).layers
    return replace(step_time, knots_s=tuple(s + launches_s for s in step_time.knots_s)), limits


def _capped(records: Records, steps: NDArray[Any]) -> bool:
    """Whether the fleet held as many samples as the client's cap lets it when waits ended, by share of the waiting.

    Where the cap counts groups, an unfinished one holds group_size places.
    """
    scenario, groups = records.scenario, records.groups
    cap, size = scenario.fleet.max_in_flight_samples, scenario.workload.group_size
    waits = steps["wait_s"]
    if cap is None or not waits.sum() > 0:
        return False
    held = steps["in_flight"]
    if scenario.fleet.in_flight_unit == "groups":
        over = np.sort(np.where(groups["ready_s"] >= 0, groups["ready_s"], np.inf))
        sent, ended = (np.searchsorted(times, steps["ready_s"], side="right") for times in (groups["submit_s"], over))
        held = (sent - ended) * size
    full = held > cap - 2 * size
    return bool(np.average(full, weights=waits) > 0.5)


def _copy(value: Any) -> Any:
    if isinstance(value, Mapping):
        return {key: _copy(below) for key, below in value.items()}
    return [_copy(v) for v in value] if isinstance(value, list | tuple) else value


def _put(raw: dict[str, Any], path: str, value: Any) -> None:
    *above, last = path.split(".")
    here = raw
    for key in above:
        here = here.setdefault(key, {})
    here[last] = _copy(value)
