"""From an arm of a case and a value of its scalar to a scenario, and from a run to the figures that are compared."""

from __future__ import annotations

import math
from collections import defaultdict
from collections.abc import Collection, Mapping, Sequence
from copy import deepcopy
from statistics import fmean, mode, stdev
from threading import Lock
from typing import Any

import numpy as np
from msgspec import Struct
from numpy.typing import NDArray

from fleetsim.config.load import default_scenario, scenario_from_mapping, with_changes
from fleetsim.config.pools import PhaseConfig, TrainerConfig
from fleetsim.config.scenario import Scenario
from fleetsim.config.tree import put, value_at
from fleetsim.config.workload import Lognormal
from fleetsim.engine.slowdown import slowdown_of
from fleetsim.errors import InputError
from fleetsim.frameworks.tables import entry_point_of, most_in_flight, moves_states
from fleetsim.job.derived_values import FETCH, fetching, seconds_of, slower
from fleetsim.job.nameplate import mean_batch_tokens, mean_step_s
from fleetsim.job.scalar import OF_ENGINES, OF_TRAINER, are_alike, carries, powers
from fleetsim.job.uncertainty import Axis
from fleetsim.records import field_names, replace
from fleetsim.search.arrangements import SWITCH_S
from fleetsim.sim.binding import SMALL_WAIT
from fleetsim.sim.metrics import numbers_of
from fleetsim.sim.records import Records
from fleetsim.sim.run import simulate
from fleetsim.sim.stop import stopping
from fleetsim.sim.window import window_of
from fleetsim.trainer.estimate import estimate_of
from fleetsim.validate.case import PRECISE, REPLICATIONS, Arm, CaseFit, PublishedCase, length_law

_TRAINER = ("fixed_s", "per_token_s", "phases")
# What a run shows and no configuration says.
SECONDS = (
    *(f"trainer.{name}" for name in _TRAINER),
    *(f"sync.{name}" for name in ("publish_s", "pause_s", "trainer_block_s")),
    "fleet.switch_s",
)
_CALLED_WAITING = 0.1
# Scalars that are of the engines, or of the trainer, alone.
_ONE_SIDE: Mapping[str, Mapping[Axis, float]] = {
    "decode_slowdown": {"engine": 1.0, "trainer": 0.0},
    "trainer_seconds": {"engine": 0.0, "trainer": 1.0},
}
# What is no number: the replications vote.
_VOTED = ("capped",)


class Figures(Struct, frozen=True):
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
    staleness_steps: float
    queue_samples: float

    @property
    def side(self) -> str:
        """trainer | generation | in_flight_cap, as publications tell it apart: does the trainer wait for samples?

        Weight syncs are on neither side. capped: the client's cap was reached at most of the batches waited for. What
        verl calls waiting holds the fetching, too: its authors take it for waiting from a tenth of a step on.
        """
        if self.wait_share < SMALL_WAIT and self.wait_s < _CALLED_WAITING * self.step_s:
            return "trainer"
        return "in_flight_cap" if self.capped else "generation"


def scenario_of(case: PublishedCase, arm: Arm, scalar: float | None, modelled: bool = False) -> Scenario:
    """The scenario of an arm at a value of the case's scalar (None: nothing is fitted). modelled: the trainer's seconds
    are those of its model, whatever the case states.

    Raises InputError for an arm that makes no valid scenario.
    """
    slowdown, times = factors_of(case, arm, scalar)
    return _made(case, arm, arm.set, _lengths(case, arm, scalar), slowdown, times, modelled)


def blind_scenario_of(case: PublishedCase, arm: Arm, scalar: float | None) -> Scenario:
    """The same with nothing of the arm but its configuration, and the baseline's log.

    Configuration holds no seconds: those of the arm's trainer are its model's, times what the baseline's are of its
    own, part by part; its hand-overs are the baseline's where both share the GPUs alike, else those of its way of
    moving weights. Its lengths follow the baseline's law, cut at its own cap. The baseline is the one of `scenario_of`.
    """
    base = case.arm(case.baseline)
    if arm.name == base.name:
        return scenario_of(case, arm, scalar)
    own = _lengths(case, base, scalar)
    law = own.model_copy(update={"max": (arm.lengths or case.lengths).cap})
    log = {path: value for path, value in base.set.items() if path in SECONDS}
    changes = {path: value for path, value in arm.set.items() if value is None or path not in SECONDS}
    if _alike(case, arm, base, ("fleet.placement",)):
        changes = {**log, **changes}
    shown, slowdown = scenario_of(case, base, scalar), factors_of(case, arm, scalar)[0]
    try:
        plain, unseen = (_made(case, of, with_, of_law, slowdown, 1.0, True) for of, with_, of_law in (
            (base, base.set, own), (arm, changes, law)
        ))  # fmt: skip
    except InputError:  # a model or a GPU that the trainer's model does not know, or that does not fit
        unseen = _made(case, arm, changes | _seconds(shown), law, slowdown, 1.0, False)
        one, many = (mean_step_s(s) * s.trainer.gpus / mean_batch_tokens(s) for s in (unseen, shown))
        # a token is worth the same GPU-seconds
        return with_changes(unseen, slower(unseen.trainer, many / one if one else 1.0))
    if _seconds(unseen) == _seconds(plain):  # the baseline's own
        return with_changes(unseen, _seconds(shown))
    return with_changes(unseen, _carried(shown, plain, unseen, carries(alike=are_alike(plain, unseen, OF_TRAINER))))


def _seconds(scenario: Scenario) -> dict[str, Any]:
    """The seconds of a scenario's trainer, by path."""
    return {f"trainer.{name}": value for name, value in scenario.trainer.model_dump().items() if name in _TRAINER}


# Phases that are passes over the batch, by words in their names. What others hold (rewards, advantages, batches handed
# on) is the host's: it goes with samples, not with GPUs, and with whether both sides share the GPUs.
_PASSES = ("log-prob", "reference", "critic")


def _carried(shown: Scenario, plain: Scenario, unseen: Scenario, power: float) -> dict[str, Any]:
    """The seconds of an arm's trainer by its model, times what a log shows over the model, to a power.

    shown, plain: the trainer of the log, as it shows it and as its model has it. Updates and passes are compared apart
    where the log tells them apart: other arms have updates alone.
    """
    (update, passes, rest), (own, forward, _) = _parts(shown), _parts(plain)
    apart = passes > 0 and forward > 0
    of_update = (update / own if apart else (update + passes) / (own + forward)) ** power
    of_passes = (passes / forward) ** power if apart else of_update
    trainer = unseen.trainer
    phases = [p.model_dump() | _times(p, 1.0 if p.name == FETCH else of_passes) for p in trainer.phases]
    if rest and shown.fleet.placement == unseen.fleet.placement:
        of_host = rest * trainer.batch_samples / shown.trainer.batch_samples
        phases.append({"name": "rest of the step", "fixed_s": of_host})
    seconds = _times(trainer, of_update) | {"phases": phases}
    return {f"trainer.{name}": value for name, value in seconds.items()}


def _times(part: TrainerConfig | PhaseConfig, factor: float) -> dict[str, Any]:
    return {name: factor * getattr(part, name) for name in ("fixed_s", "per_token_s")}


def _parts(scenario: Scenario) -> tuple[float, float, float]:
    """Seconds of updates, of passes, and of what is neither; without the fetching of a batch."""
    trainer, tokens = scenario.trainer, mean_batch_tokens(scenario)
    parts = {"update": trainer.fixed_s + trainer.per_token_s * tokens, "pass": 0.0, "rest": 0.0}
    for phase in trainer.phases:
        if phase.name != FETCH:
            part = "pass" if any(word in phase.name for word in _PASSES) else "rest"
            parts[part] += phase.fixed_s + phase.per_token_s * tokens
    return parts["update"], parts["pass"], parts["rest"]


def _made(
    case: PublishedCase,
    arm: Arm,
    changes: Mapping[str, Any],
    law: Lognormal,
    slowdown: float,
    times: float,
    modelled: bool,
) -> Scenario:
    """The scenario of these changes to the case's. slowdown, times: multiples of iterations and of all seconds of the
    trainer."""
    where = f"{case.id} {arm.name}"
    raw = deepcopy(case.scenario)
    for path, value in changes.items():
        put(raw, path, deepcopy(value))  # null takes a value of the base away
    put(raw, "workload.output_tokens", law.model_dump(exclude_none=True))
    put(raw, "name", where)
    raw.setdefault("run", {})
    raw["run"] = {"steps": case.steps, "replications": 1, **raw["run"]}
    put(raw, "engine.slowdown", slowdown)
    if case.eager:
        put(raw, "engine.enforce_eager", True)
    admission: dict[str, Any] = {"law": "barrier", "max_staleness": 1, **raw.get("admission", {})}
    point = entry_point_of(case.framework, asynchronous=admission["law"] != "barrier")
    if point != "api_server" and raw["engine"].get("name", "vllm") == "vllm":
        raw["engine"].setdefault("entry_point", point)
    trainer = raw.setdefault("trainer", {})
    ahead = admission["law"], trainer.get("batch_samples", 0), admission["max_staleness"]
    most = most_in_flight(case.framework, *ahead)
    if most is not None:
        raw["fleet"] = {"max_in_flight_samples": most, "in_flight_unit": "groups"} | raw["fleet"]
    if raw["fleet"].get("placement") == "colocated" and moves_states(case.framework):
        raw["fleet"] = {"switch_s": SWITCH_S} | raw["fleet"]
    if modelled:
        raw["trainer"] = trainer = {key: v for key, v in trainer.items() if key not in _TRAINER}
    if not {"fixed_s", "per_token_s"} & trainer.keys():
        trainer.update(_trainer_of(scenario_from_mapping(raw, where=where)))
    for part in (trainer, *trainer.get("phases", ())):
        for key in ("fixed_s", "per_token_s"):
            if key in part:
                part[key] = part[key] * times
    made = scenario_from_mapping(raw, where=where)
    phases = (*(p for p in made.trainer.phases if p.name != FETCH), *fetching(made))
    return with_changes(made, {"trainer.phases": phases}) if phases != made.trainer.phases else made


def _kind(case: PublishedCase) -> str | None:
    return None if case.fit is None else case.fit.scalar


def factors_of(case: PublishedCase, arm: Arm, scalar: float | None) -> tuple[float, float]:
    """Multiples of an arm's iterations and of its trainer's seconds at a value of the scalar."""
    slowdown, fit = slowdown_of(case.framework), case.fit
    if scalar is None or fit is None or fit.scalar == "mean_tokens":
        return slowdown, 1.0
    off = scalar / slowdown if fit.scalar == "decode_slowdown" else scalar
    off **= carries(alike=_alike(case, arm, case.arm(fit.arm), OF_ENGINES))
    own = _ONE_SIDE.get(fit.scalar) or _powers(case, fit)
    return slowdown * off ** own["engine"], off ** own["trainer"]


def _powers(case: PublishedCase, fit: CaseFit) -> dict[Axis, float]:
    """How engines and trainer share what the baseline's one figure is off by."""
    base = case.arm(fit.arm)
    told = _made(case, base, base.set, _lengths(case, base, None), slowdown_of(case.framework), 1.0, False)
    run = figures_at(case, base, told, 0)
    return powers(told, run.step_s, run.gen_s)


def _lengths(case: PublishedCase, arm: Arm, scalar: float | None) -> Lognormal:
    lengths = arm.lengths or case.lengths
    mean = scalar if _kind(case) == "mean_tokens" and scalar is not None else lengths.mean
    return length_law(mean, lengths.cap, lengths.sigma)


def _alike(case: PublishedCase, arm: Arm, other: Arm, paths: Collection[str]) -> bool:
    """Whether two arms have the same at these paths: what they say, else their case, else the schema."""

    def said(by: Arm, path: str) -> Any:
        section, key = path.split(".")
        known = case.scenario.get(section, {})
        return by.set.get(path, known[key] if key in known else value_at(default_scenario(), path))

    return all(said(arm, path) == said(other, path) for path in paths)


def _trainer_of(scenario: Scenario) -> dict[str, Any]:
    """The trainer's seconds as its model has them, for an arm that publishes none and whose case states none."""
    found = seconds_of(estimate_of(scenario, scenario.trainer.gpus), scenario)
    phases = [phase.model_dump() for phase in found["trainer.phases"]]
    return {"fixed_s": found["trainer.fixed_s"], "per_token_s": found["trainer.per_token_s"], "phases": phases}


def figures_of(case: PublishedCase, arm: Arm, scenario: Scenario, most: int = REPLICATIONS) -> Figures:
    """An arm's figures, averaged over replications of its scenario: one alone moves some arms by ten points.

    So many that the seconds of a step are known to `PRECISE`, at most `most`. What binds is what binds in most
    of them. Raises StuckError and InputError as `simulate` does.
    """
    runs = [figures_at(case, arm, scenario, 0)]
    while len(runs) < most and _error(runs) > PRECISE:
        runs.append(figures_at(case, arm, scenario, len(runs)))
    said: dict[str, Any] = {
        n: (mode if n in _VOTED else fmean)([getattr(run, n) for run in runs]) for n in field_names(Figures)
    }
    return Figures(**said)


def _error(runs: Sequence[Figures]) -> float:
    """Standard error of the mean step, as a share of it; of one run nobody knows."""
    if len(runs) == 1:
        return math.inf
    steps = [run.step_s for run in runs]
    return stdev(steps) / math.sqrt(len(steps)) / fmean(steps)


def figures_at(case: PublishedCase, arm: Arm, scenario: Scenario, replication: int) -> Figures:
    """Of one run. Where the source counts the hand-over of the GPUs as generation, that share of it is added to each
    step. What verl calls waiting holds the fetching of the batch."""
    run = _RUNS.of(scenario.model_copy(update={"name": "", "assumed": ()}), replication)
    generated_s = run.wait_s / (1 - arm.handover_share)
    step_s = run.step_s + generated_s - run.wait_s
    fetch_s = sum(phase.fixed_s for phase in scenario.trainer.phases if phase.name == FETCH)
    return replace(
        run,
        step_s=step_s,
        wait_s=run.wait_s + fetch_s,
        gen_s=generated_s + fetch_s,
        tok_s=run.tok_s * run.step_s / step_s,
        generated_tok_s=run.generated_tok_s * run.step_s / step_s,
        wait_share=run.wait_s / step_s,
    )


def _run(scenario: Scenario, replication: int) -> Figures:
    """Of one run, without hand-overs."""
    records = simulate(scenario, replication=replication)
    window = window_of(records)
    numbers = numbers_of(records, window)
    step_s = numbers["step_s"]
    wait_s = numbers["trainer_idle_fraction"] * step_s
    return Figures(
        step_s=step_s,
        wait_s=wait_s,
        gen_s=wait_s,
        tok_s=float(window.steps["output_tokens"].sum()) / len(window.steps) / step_s,
        generated_tok_s=numbers["generated_tok_s"],
        wait_share=wait_s / step_s,
        capped=_capped(records, window.steps),
        staleness_steps=numbers["staleness_steps"]["mean"],
        queue_samples=numbers["queue_depth"],
    )


class _Runs:
    """Runs that were simulated: equal scenarios of any arms, cases and fits are simulated once."""

    def __init__(self) -> None:
        self._done: dict[tuple[Scenario, int], Figures] = {}
        self._locks: defaultdict[tuple[Scenario, int], Lock] = defaultdict(Lock)
        self._lock = Lock()

    def of(self, scenario: Scenario, replication: int) -> Figures:
        """Raises KeyboardInterrupt once the user has asked to stop: of what is left none is begun."""
        key = (scenario, replication)
        with self._lock:
            mine = self._locks[key]
        with mine:  # another thread may be at it
            if key not in self._done:
                if stopping():
                    raise KeyboardInterrupt
                self._done[key] = _run(*key)
            return self._done[key]


_RUNS = _Runs()


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
