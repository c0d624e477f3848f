"""The ways to share GPUs among jobs, and what each comes to.

- alone: a job has all GPUs; what every other way is held against.
- apart: each job has a part of the GPUs for itself, and uses it in the best way that `split` finds.
- by phase: one set of rollout GPUs and one of trainer GPUs for all: while one job trains, another one generates.
- one trainer: each job generates on GPUs of its own, as far ahead as alone, and all train on the others, in turn.
- in turn: every job has all GPUs for a whole step (generation, training, hand-over), one after the other.
- together: jobs whose adapters share one base have the same engines at the same time (`together.py`), and each has GPUs
  of its own to train.

By phase and in turn each job runs batch by batch, so it is on-policy. In every way a job has the workers of tools and
rewards and the engines of judges that are best for it there, as in `split`; together, it runs as far ahead of its
trainer as alone, and what makes its samples older than its recipe permits is left out. Where all jobs have one pool of
sandboxes (`sandboxes.py`), none has more than that, alone or in turn; apart all share it, together is left out.
"""

from __future__ import annotations

import contextlib
from collections import Counter
from collections.abc import Callable, Iterator, Mapping, Sequence
from dataclasses import dataclass, field
from functools import cached_property
from itertools import combinations, pairwise
from typing import TYPE_CHECKING, Literal

import numpy as np
from msgspec import Struct

from fleetsim import units
from fleetsim.config.law_numbers import budget_steps, promised_steps
from fleetsim.config.load import with_changes
from fleetsim.engine.gpus import gpu_of
from fleetsim.engine.prices import prices_of
from fleetsim.errors import InputError, Problem, StuckError
from fleetsim.faces import flag
from fleetsim.job.looks import looked
from fleetsim.job.trainer_scaling import FREED
from fleetsim.job.trials import Memo, Tell, flat, planned
from fleetsim.pack.sandboxes import calls_tools, own_pool_usd_per_h, pool_usd_per_h, shared_out, within
from fleetsim.pack.together import MeanLoad, PoolPhase, holding_all, rotate, shareable, side_by_side
from fleetsim.search.arrangements import SWITCH_S, Rules, colocated_sync, split_counts, split_in_turn
from fleetsim.search.front import age_of
from fleetsim.search.objective import beside_usd_per_h
from fleetsim.search.plan_crews import PlanCrews
from fleetsim.search.workers import workers_words
from fleetsim.sim.metrics import numbers_of
from fleetsim.sim.records import Records
from fleetsim.sim.run import simulate
from fleetsim.sim.window import window_of
from fleetsim.split.split import best_way
from fleetsim.split.ways import Outcome, like

if TYPE_CHECKING:
    from fleetsim.config.scenario import Scenario
    from fleetsim.job.base_job import Job

Kind = Literal["apart", "by_phase", "one_trainer", "in_turn", "together"]
ROLLOUT, TRAINER = "rollout", "trainer"
# Parts into which GPUs are divided, at most.
_PARTS = 8
# Of the ways together, and of those with one trainer, the best few by each rule have long runs.
_DECIDED = 2
# Neither pace nor training alone makes a step that is so many times as long.
_BOUND = 1.02


class JobShare(Struct, frozen=True):
    """What one job has of a way. gpus: it may use. step_s: seconds of a step; slower: that / the same alone on all
    GPUs. usd: dollars of a step. way: how it uses them."""

    gpus: int
    step_s: float
    slower: float
    usd: float
    way: str


class Way(Struct, frozen=True):
    """One way to share. duty: share of the GPUs' time in which they generate or train; switching: in which they change
    hands. shares: a job each. outcomes: apart, what `split` found for each job."""

    kind: Kind
    label: str
    shares: tuple[JobShare, ...]
    duty: float
    switching: float
    outcomes: tuple[Outcome, ...] = ()

    @property
    def worst(self) -> float:
        """The largest slow-down of a job."""
        return max(share.slower for share in self.shares)

    @property
    def mean(self) -> float:
        """The mean slow-down of the jobs."""
        return sum(share.slower for share in self.shares) / len(self.shares)

    @property
    def usd_per_round(self) -> float:
        """Dollars of one step of every job."""
        return sum(share.usd for share in self.shares)


@dataclass(eq=False)
class Pool:
    """The jobs on so many GPUs of one type."""

    jobs: tuple[Job, ...]
    gpus: int
    switch_s: float | None
    classes: Mapping[int, int]
    measure: Memo
    tell: Tell
    sandboxes: int | None = None
    _alone: dict[tuple[int, int], Outcome | InputError | StuckError] = field(default_factory=dict)

    @cached_property
    def scenarios(self) -> tuple[Scenario, ...]:
        """As they are planned: no resize on the way."""
        return tuple(planned(job.scenario, job.given) for job in self.jobs)

    @cached_property
    def crews(self) -> tuple[PlanCrews, ...]:
        """What counts the workers of each job."""
        return tuple(PlanCrews(scenario, self.measure, None) for scenario in self.scenarios)

    def best(self, job: int, gpus: int) -> Outcome | InputError | StuckError:
        """The best way of one job on so many GPUs for itself; where they are too few for it, the error that says so."""
        key = (job, gpus)
        if key not in self._alone:
            self.tell(f"{self.jobs[job].scenario.name}: the best way to use {gpus:,} GPUs")
            try:
                self._alone[key] = best_way(self.jobs[job].scenario, gpus, self.jobs[job].given, self.measure)
            except (InputError, StuckError) as error:
                self._alone[key] = error
        return self._alone[key]

    def alone_s(self, job: int) -> float:
        """Seconds of its step with all GPUs to itself. Raises InputError and StuckError where they are too few."""
        found = self._whole(job)
        own = self._within(there := found.arrangement.scenario)
        return found.mean("step_s") if own is there else float(self.measure(own, 0)["step_s"])

    def _within(self, there: Scenario) -> Scenario:
        """A job with the sandboxes that it may have where no other one calls them."""
        return there if self.sandboxes is None else within(there, self.sandboxes)

    def _whole(self, job: int) -> Outcome:
        found = self.best(job, self.gpus)
        if not isinstance(found, Outcome):
            raise found
        return found

    def ways(self) -> tuple[Way, ...]:
        """All that can run."""
        return (*self._apart(), *self._by_phase(), *self._one_trainer(), *self._in_turn(), *self._together())

    # --- Apart

    def _apart(self) -> Iterator[Way]:
        for counts in self._divided(len(self.jobs)):
            tried = [self.best(job, n) for job, n in enumerate(counts)]
            found = [way for way in tried if isinstance(way, Outcome)]
            if len(found) == len(tried):
                yield self._apart_way(counts, found)

    @cached_property
    def unit(self) -> int:
        """GPUs that are given to a job together: the least part, or number, of servers that makes few enough."""
        server = gpu_of(self.scenarios[0].engine).node_gpus
        whole = [n for n in range(1, self.gpus + 1) if self.gpus % n == 0 and (server % n == 0 or n % server == 0)]
        return next(n for n in (*whole, self.gpus) if self.gpus // n <= _PARTS)

    def _divided(self, parts: int) -> Iterator[tuple[int, ...]]:
        """All GPUs in so many parts, in every way that gives each whole units."""
        whole = self.gpus // self.unit
        for cuts in combinations(range(1, whole), parts - 1):
            yield tuple(self.unit * (b - a) for a, b in pairwise((0, *cuts, whole)))

    def _apart_way(self, counts: Sequence[int], found: Sequence[Outcome]) -> Way:
        shares = []
        for job, (n, o) in enumerate(zip(counts, found, strict=True)):
            step_s, way = o.mean("step_s"), _told(o.arrangement.label, o.arrangement.scenario)
            shares.append(JobShare(n, step_s, step_s / self.alone_s(job), o.mean("cost_per_step"), way))
        if self.sandboxes is not None:
            shares = self._from_one_pool(counts, found, self.sandboxes)
        duty = sum(n * _duty(o) for n, o in zip(counts, found, strict=True)) / self.gpus
        return Way("apart", " + ".join(f"{n:,}" for n in counts), tuple(shares), duty, 0.0, tuple(found))

    def _from_one_pool(self, counts: Sequence[int], found: Sequence[Outcome], sandboxes: int) -> list[JobShare]:
        """What it is for each where the calls of all wait in one queue."""
        run = lambda there: flat(self.measure(there, 0))  # noqa: E731
        shares = []
        theirs = shared_out([o.arrangement.scenario for o in found], sandboxes, run)
        for job, (n, o, there) in enumerate(zip(counts, found, theirs, strict=True)):
            step_s = float(run(there)["step_s"])
            usd_per_h = o.mean("cost_per_step") / o.mean("step_s") * 3600.0
            usd_per_h -= beside_usd_per_h(o.arrangement.scenario)
            shares.append(self._share(job, there, n, step_s, usd_per_h, o.arrangement.label))
        return shares

    # --- On shared GPUs

    def _by_phase(self) -> Iterator[Way]:
        for rollout in range(self.unit, self.gpus, self.unit):
            try:
                jobs, cycles = zip(*(self._cycle(job, rollout) for job in range(len(self.jobs))), strict=True)
                sizes = {ROLLOUT: rollout, TRAINER: self.gpus - rollout}
                yield self._rotation("by_phase", f"{rollout:,} + {self.gpus - rollout:,}", jobs, cycles, sizes)
            except (InputError, StuckError):
                continue

    def _cycle(self, job: int, rollout: int) -> tuple[Scenario, tuple[PoolPhase, ...]]:
        """Generation and training of one job on shared pools, as its own run on them has it."""
        scenario = self.scenarios[job]
        instances = _instances(scenario, rollout, self.gpus, Rules(1))
        there = self._within(self.crews[job].counted(split_in_turn(scenario, instances, self.gpus).scenario))
        steps, switch = _steps(there), self.switch_s_of(scenario)
        generated = steps["wait_s"]
        trained = steps["end_s"] - steps["start_s"] - generated
        return there, (PoolPhase(ROLLOUT, generated, switch, gives_way=True), PoolPhase(TRAINER, trained, switch))

    def _one_trainer(self) -> Iterator[Way]:
        """Of all counts of trainer and rollout GPUs, by looks, those with the least mean and the least worst slow-down;
        each by long runs. On-policy jobs need no rollout GPUs of their own for it: `_by_phase`."""
        if self.sandboxes is not None or all(self._whole(job).arrangement.on_policy for job in range(len(self.jobs))):
            return
        self.tell("trainers of all jobs in turn")
        found = {}
        for counts in self._divided(1 + len(self.jobs)):
            with contextlib.suppress(InputError, StuckError):
                found[counts] = self._trained_in_turn(counts, looked)
        for counts in {
            n for by in ("mean", "worst") for n in sorted(found, key=lambda n: getattr(found[n], by))[:_DECIDED]
        }:
            with contextlib.suppress(InputError, StuckError):
                yield self._trained_in_turn(counts, lambda there: there)

    def _trained_in_turn(self, counts: Sequence[int], short: Callable[[Scenario], Scenario]) -> Way:
        """short: what makes a scenario one of few steps, or leaves it."""
        trainer, *rollouts = counts
        theirs, cycles, ahead = [], [], []
        for job, rollout in enumerate(rollouts):
            scenario, whole = self.scenarios[job], self._whole(job)
            instances = _instances(scenario, rollout, rollout + trainer, Rules())
            there = like(scenario, whole.arrangement, rollout + trainer)(instances).scenario
            there = short(self.crews[job].counted(there) if short is not looked else there)
            oldest = budget_steps(there)
            ahead.append(0.0 if whole.arrangement.on_policy else whole.age if oldest is None else oldest)
            cycles.append(ahead_of_trainer(there, f"{ROLLOUT} {job}", TRAINER, ahead[-1], self.switch_s_of(scenario)))
            theirs.append(there)
        sizes = {TRAINER: trainer} | {f"{ROLLOUT} {job}": n for job, n in enumerate(rollouts)}
        label = f"{' + '.join(f'{n:,}' for n in rollouts)} + {trainer:,}"
        return self._rotation("one_trainer", label, theirs, cycles, sizes, ahead)

    def _in_turn(self) -> Iterator[Way]:
        jobs, cycles = [], []
        try:
            for job, scenario in enumerate(self.scenarios):
                there = self._within(self.crews[job].counted(colocated_sync(scenario, self.gpus).scenario))
                steps = _steps(there)
                jobs.append(there)
                cycles.append((PoolPhase("all", steps["end_s"] - steps["start_s"], self.switch_s_of(scenario)),))
            yield self._rotation("in_turn", "all GPUs, a step each", jobs, cycles, {"all": self.gpus})
        except (InputError, StuckError):
            return

    # --- On the same engines at the same time

    def _together(self) -> Iterator[Way]:
        """Of all counts of rollout and trainer GPUs, by looks, those with the least mean and the least worst slow-down;
        each by long runs."""
        if self.sandboxes is not None or not shareable(self.scenarios):
            return
        self.tell("adapters of all jobs on the same engines")
        held, found = holding_all([crew.at_ease for crew in self.crews]), {}
        for counts in self._divided(1 + len(self.jobs)):
            try:
                jobs = self._side_by_side(held, counts)
                runs = side_by_side(jobs, look=True)
            except (InputError, StuckError):
                continue
            if self._fresh(runs):
                found[counts] = jobs, [window_of(run).step_s / self.alone_s(i) for i, (run, _) in enumerate(runs)]
        best = {n for rule in (sum, max) for n in sorted(found, key=lambda n: rule(found[n][1]))[:_DECIDED]}
        for counts in best:
            with contextlib.suppress(StuckError):
                jobs = [crew.counted(job) for crew, job in zip(self.crews, found[counts][0], strict=True)]
                if self._fresh(runs := side_by_side(jobs)):
                    yield self._shared_way(counts, runs)

    def _side_by_side(self, held: Sequence[Scenario], counts: Sequence[int]) -> list[Scenario]:
        """The jobs on so many rollout GPUs for all, and so many trainer GPUs for each, as far ahead of the trainer as
        alone. Raises InputError where a job cannot have so many."""
        rollout, *trainers = counts
        made = []
        for job, (scenario, trainer) in enumerate(zip(held, trainers, strict=True)):
            gpus = rollout + trainer
            instances = _instances(scenario, rollout, gpus, Rules())
            made.append(like(scenario, self._whole(job).arrangement, gpus)(instances).scenario)
        return made

    def _fresh(self, runs: Sequence[tuple[Records, MeanLoad]]) -> bool:
        """Whether no job has older samples than its recipe permits, or than alone where these are too old already."""
        for job, (run, _) in enumerate(runs):
            oldest = promised_steps(self.scenarios[job], self.jobs[job].given)
            if oldest is not None and age_of([flat(numbers_of(run))]) > max(oldest, self._whole(job).age):
                return False
        return True

    def _shared_way(self, counts: Sequence[int], runs: Sequence[tuple[Records, MeanLoad]]) -> Way:
        """Each pays for its trainer, and for the engines by the requests that it has there."""
        rollout, *trainers = counts
        price, whole = prices_of(self.scenarios[0]), sum(load.decodes for _, load in runs) or 1.0
        shares, trained, free = [], 0.0, 1.0
        for job, ((run, load), trainer) in enumerate(zip(runs, trainers, strict=True)):
            window = window_of(run)
            usd_per_h = rollout * price.rollout * load.decodes / whole + trainer * price.trainer
            trains = f"trains on {units.plural(trainer, 'GPU')} of its own"
            shares.append(self._share(job, run.scenario, rollout + trainer, window.step_s, usd_per_h, trains))
            trained += trainer * float(window.steps["train_s"].sum()) / window.span_s
            free *= 1.0 - window.total("busy_s") / (run.scenario.fleet.instances * window.span_s)
        duty = (rollout * (1.0 - free) + trained) / self.gpus
        return Way("together", " + ".join(f"{n:,}" for n in counts), tuple(shares), duty, 0.0)

    def _share(self, job: int, there: Scenario, gpus: int, step_s: float, usd_per_h: float, way: str) -> JobShare:
        """there: as it runs. usd_per_h: of the GPUs that it pays for; its workers and judges it pays always."""
        usd_per_h += beside_usd_per_h(there)
        if self.sandboxes is not None and calls_tools(there):
            users = sum(map(calls_tools, self.scenarios))
            usd_per_h += pool_usd_per_h(self.scenarios, self.sandboxes) / users - own_pool_usd_per_h(there)
        usd = usd_per_h * step_s / 3600.0
        told = _told(way, there)
        if self.sandboxes is not None and calls_tools(there):
            told = f"{way}, up to {there.stations.tools.workers or 0:,} of {self.sandboxes:,} sandboxes"
        return JobShare(gpus, step_s, step_s / self.alone_s(job), usd, told)

    def switch_s_of(self, scenario: Scenario) -> float:
        """Seconds until GPUs that another job had serve this one."""
        if self.switch_s is not None:
            return self.switch_s
        return scenario.fleet.switch_s or SWITCH_S

    def _rotation(
        self, kind: Kind, label: str, jobs: Sequence[Scenario], cycles: Sequence[Sequence[PoolPhase]],
        sizes: Mapping[str, int], ahead: Sequence[float] = (),
    ) -> Way:  # fmt: skip
        """GPUs cost what the first job's do, and a job pays for what it holds, for its workers and judges always."""
        table, price = rotate(cycles, classes=self.classes, ahead=ahead), prices_of(self.scenarios[0])
        each = {TRAINER: price.trainer}
        paid = {pool: n * each.get(pool, price.rollout) for pool, n in sizes.items()}
        users = Counter(phase.pool for phases in cycles for phase in phases)
        held = [  # what is a job's own it has always
            sum(paid[p.pool] * (table.whole_s if users[p.pool] == 1 else table.seconds(p.pool, job)) for p in phases)
            for job, phases in enumerate(cycles)
        ]
        whole = sum(held) or 1.0  # free GPUs
        shares = []
        for job, part in enumerate(held):
            usd_per_h = sum(paid.values()) * part / whole
            own = [sizes[phase.pool] for phase in cycles[job]]
            how = f"generates on {units.plural(own[0], 'GPU')} of its own" if ahead else "batch by batch"
            gpus = sum(own) if ahead else self.gpus
            shares.append(self._share(job, jobs[job], gpus, table.step_s(job), usd_per_h, how))
        duty, switching = (
            sum(n * table.seconds(pool, switches=switches) for pool, n in sizes.items()) / (self.gpus * table.whole_s)
            for switches in (False, True)
        )
        return Way(kind, label, tuple(shares), duty, switching)


def _instances(scenario: Scenario, rollout: int, gpus: int, rules: Rules) -> int:
    """Instances that so many rollout GPUs of all make. Raises InputError where that is no split of the job."""
    instances, more = divmod(rollout, scenario.engine.gpus)
    if more or instances not in split_counts(scenario, gpus, rules):
        raise InputError([Problem(flag("gpus"), rollout, "makes no whole instances", "another split")])
    return instances


def _told(way: str, there: Scenario) -> str:
    """A job's way in words, with the workers that it has there, if it limits any."""
    return ", ".join(filter(None, (way, workers_words(there))))


def _steps(scenario: Scenario) -> np.ndarray:
    """The steps of one long run that count."""
    return window_of(simulate(scenario)).steps


def ahead_of_trainer(
    there: Scenario, rollout: str, trainer: str, ahead: float, switch_s: float
) -> tuple[PoolPhase, PoolPhase]:
    """Generation that may be so many batches ahead, and training, on these pools, by two runs of the job by itself.

    A batch is made at the pace that a trainer of no seconds sees. Of ahead + 1 batches that are made or trained at once
    each takes as many steps, so what is longer than its training and its pace is the tail of its responses.
    """
    fast, own = _steps(with_changes(there, FREED)), _steps(there)
    made, took = fast["end_s"] - fast["start_s"], own["end_s"] - own["start_s"]
    trained = took - own["wait_s"]
    pace, step, training = (float(each.mean()) for each in (made, took, trained))
    bound = step > _BOUND * max(pace, training)
    tail = max(0.0, (ahead + 1.0) * step - training - pace) if ahead and bound else 0.0
    return PoolPhase(rollout, made, 0.0, tail_s=tail), PoolPhase(trainer, trained, switch_s)


def _duty(found: Outcome) -> float:
    """The share of its GPUs' time in which a job generates or trains."""
    way = found.arrangement
    computing = 1.0 - found.mean("not_training_fraction")
    generating = 1.0 - found.mean("rollout_idle_fraction")
    if not way.apart:  # the same GPUs in turn: what is neither handed over nor waited for
        return 1.0 - found.mean("switch_fraction")
    return (way.rollout_gpus * generating + way.trainer_gpus * computing) / (way.rollout_gpus + way.trainer_gpus)


def chosen(ways: Sequence[Way], protect: Mapping[int, float], by: Callable[[Way], tuple[float, float]]) -> Way | None:
    """The best way that keeps every protected job's slow-down; None where none does. protect: job -> largest."""
    kept = [way for way in ways if all(way.shares[job].slower <= most for job, most in protect.items())]
    return min(kept, key=by, default=None)


@dataclass(frozen=True, slots=True, eq=False, repr=False)
class Packing:
    """How several jobs share GPUs.

    jobs: with their names. ways: all that run, the best first. best: the first that keeps what is protected; None where
    none does. alone_s: of each job, seconds of a step with all GPUs to itself. fair: whether the worst slow-down was
    made least, else the mean one. protected: number of a job -> the largest slow-down that it may have. switch_s: of
    each job, seconds until GPUs that another one had serve it. classes: number of a job -> its class. sandboxes: of all
    jobs together; None = each has those best for it.
    """

    jobs: tuple[Job, ...]
    gpus: int
    ways: tuple[Way, ...]
    best: Way | None
    alone_s: tuple[float, ...]
    fair: bool
    protected: Mapping[int, float]
    switch_s: tuple[float, ...]
    classes: Mapping[int, int]
    warnings: tuple[str, ...]
    sandboxes: int | None = None
