"""`size`: what can be asked of a job's fleet, and what was found: a count, fleets about it, and why."""

from __future__ import annotations

from dataclasses import dataclass, field
from typing import TYPE_CHECKING, Annotated, Any, ClassVar, Self

from fleetsim import units
from fleetsim.errors import InputError, Interrupted, Problem
from fleetsim.faces import flag, text
from fleetsim.job.fields import PlannedJob, ready
from fleetsim.job.result import SILENT, Recommendation, SoFar, Watch, unchanging
from fleetsim.job.settings import TARGETS, AnyJob, Lends, Option, said
from fleetsim.records import replace

if TYPE_CHECKING:
    from collections.abc import Mapping

    from fleetsim.estimates import Estimate
    from fleetsim.job.base_job import Job
    from fleetsim.job.trials import Measure
    from fleetsim.size.size import Sizing
    from fleetsim.tell.document import Document

# Beyond it the errors' law is not known: nobody has that many published runs.
_MOST_CONFIDENCE = 0.99


@dataclass(frozen=True, kw_only=True)
class SizedJob(PlannedJob):
    """The job that `size` plans for."""

    target_idle: Annotated[float | None, said("target_idle", after="sync_pause_s")] = None
    headroom: Annotated[float | None, said("headroom", after="target_idle")] = None
    instance_price: Annotated[float | None, said("instance_price", TARGETS)] = None
    trainer_price: Annotated[float | None, said("trainer_price", TARGETS)] = None
    worth: Annotated[float | None, said("worth", TARGETS)] = None


@dataclass(frozen=True, kw_only=True)
class Size:
    """How many instances keep the trainer busy?

    for_page: the result keeps its runs, so that its page need not repeat them. in_brief: what only the whole answer
    shows is worked out when somebody asks for it.
    """

    job: Annotated[AnyJob, Lends(SizedJob)]
    confidence: Annotated[
        float | None,
        Option(
            "Size so that the fleet holds the targets in this share of the cases, e.g. 0.9; without a target, take the "
            "count of the least expected loss.",
            TARGETS,
        ),
    ] = None
    for_page: bool = False
    in_brief: bool = False

    def ready(self) -> Self:
        """The same question with the job itself. Raises InputError with all that is wrong with its fields."""
        if self.confidence is not None and not 0.5 < self.confidence <= _MOST_CONFIDENCE:
            rule = f"must be above 0.5 and at most {_MOST_CONFIDENCE:g}: a share of the cases"
            remedy = text("for example {}", flag("confidence", 0.9))
            raise InputError([Problem(flag("confidence"), self.confidence, rule, remedy)])
        return replace(self, job=ready(self.job))


@unchanging
@dataclass(frozen=True, slots=True, eq=False, repr=False)
class SizeResult(Recommendation):
    """The recommended fleet.

    plan: everything that was found (fleetsim/size/size.py): candidates, targets, rate matching, headroom, queue cap,
    alternatives, assumptions. metrics: of the recommended fleet, name -> Estimate.
    """

    _index: ClassVar[str | None] = "instances"
    asked: Job
    plan: Sizing
    _measure: Measure | None = field(default=None, repr=False)

    def __repr__(self) -> str:
        what = "" if self.feasible else ", targets missed"
        return f"<SizeResult: {units.plural(self.instances, 'instance')}, bound by {self.binding}{what}>"

    @property
    def instances(self) -> int:
        """The recommendation."""
        return self.plan.instances

    @property
    def job(self) -> Job:
        """The job with the recommended fleet."""
        from fleetsim.job.assumptions import is_estimated
        from fleetsim.job.derived_values import SECONDS

        # seconds that follow from the trainer's GPUs are not said: they follow again
        follow = ("assumed", *(SECONDS if is_estimated(self.plan.scenario) else ()))
        return self.asked.with_({path: value for path, value in self._fleet.items() if path not in follow})

    @property
    def _fleet(self) -> dict[str, Any]:
        """The changes that make the asked job one with the recommended fleet."""
        from fleetsim.job.trainer_scaling import counted, on_all_gpus, takes_turns

        if takes_turns(self.plan.scenario):
            gpus = {"trainer.gpus": self.plan.scenario.trainer.gpus}
            return {**gpus, **on_all_gpus(self.plan.scenario, self.instances), **self._beside}
        return {**counted(self.asked.scenario, self.instances, self.asked.scenario.trainer.gpus), **self._beside}

    @property
    def _beside(self) -> dict[str, Any]:
        """What was counted beside the instances, by path: workers of stations that the job limits, other pools."""
        from fleetsim.search.makes import counts_of, open_pools
        from fleetsim.search.workers import path_of

        found = {path_of(crew.station): crew.workers for crew in self.plan.crews if crew.given is not None}
        pools = open_pools(self.asked.scenario, self.asked.given)
        return found | counts_of(self.plan.scenario, pools, self.instances)

    @property
    def _answer(self) -> Sizing:
        return self.plan

    @property
    def _estimates(self) -> Mapping[str, Estimate]:
        return self.plan.recommended.estimates

    def numbers(self) -> dict[str, float]:
        """What --fail-if can ask: the means, and the count of instances."""
        return {**self.mean, "instances": float(self.instances)}

    @property
    def binding(self) -> str:
        """What binds at the recommendation."""
        return self.plan.binding

    @property
    def feasible(self) -> bool:
        """Whether every target that somebody gave is held; assumed ones may be missed."""
        return self.plan.feasible

    @property
    def queue_cap(self) -> int:
        """Samples that the queue before the trainer should hold at most."""
        return self.plan.queue_cap.samples

    @property
    def explanation(self) -> str:
        """What binds and what else would help, in words."""
        return self.plan.explanation

    def rows(self) -> list[dict[str, Any]]:
        """The candidates, as under -o csv."""
        from fleetsim.job.metrics import with_intervals

        return [
            {
                "instances": trial.instances,
                "recommended": trial.instances == self.instances,
                "replications": trial.replications,
                "binding": trial.binding,
                **with_intervals(trial.estimates),
            }
            for trial in self.plan.candidates
        ]

    def saved(self) -> str:
        """What the command writes under --save: the job with the recommended fleet."""
        from fleetsim.config.load import dump_short, with_changes
        from fleetsim.job.trainer_scaling import takes_turns
        from fleetsim.job.trials import with_instances

        said = {*self.asked.given, "fleet.instances", "engine.tp", *self._beside}
        if takes_turns(self.plan.scenario):
            return dump_short(with_changes(self.asked.scenario, self._fleet), {*said, "trainer.gpus"})
        manned = with_changes(self.asked.scenario, self._beside) if self._beside else self.asked.scenario
        return dump_short(with_instances(manned, self.instances), said)

    def missed(self) -> str:
        """The targets that the user gave and no fleet holds."""
        from fleetsim.size.words import why_infeasible

        return "" if self.feasible else f"{why_infeasible(self.plan)}; the best that was found is printed above"

    @property
    def advice(self) -> list[dict[str, Any]]:
        """The recommendation and the moves beside it: what, the command that simulates it, its promise, permission."""
        from fleetsim.job.facts import run_differs
        from fleetsim.job.trainer_scaling import count_words
        from fleetsim.job.trials import with_instances
        from fleetsim.search.reasons import Advised, advice_data, moves_advised
        from fleetsim.search.workers import counted

        plan, trial = self.plan, self.plan.recommended
        if run_differs(plan.scenario, plan.as_run_s):
            return []
        here = with_instances(plan.scenario, plan.instances)
        answer = Advised(count_words(plan.scenario, plan.instances), here, trial.estimates)
        as_given = ("", ", as given")
        given = (
            Advised(counted(crew.station, crew.given) + as_given[crew.said], own.scenario, own.trial.estimates)
            for crew in plan.crews
            if crew.given is not None and (own := plan.as_given[crew.station]()) is not None
        )
        return advice_data(self.asked, [answer, *given, *moves_advised(plan.alternatives)])

    def told(self) -> Document:
        """What there is to say of it."""
        from fleetsim.size.facts import document

        return document(self.plan, call=self._call())

    def _call(self) -> tuple[str, ...]:
        """The words that ask the same again."""
        from fleetsim.job.command import call_again

        return call_again("size", self.asked, confidence=self.plan.confidence)

    def in_brief(self) -> Document:
        """The same without what a terminal shows under --explain, which takes a tenth of the whole command."""
        from fleetsim.job.words import kind_of
        from fleetsim.size.facts import brief_facts
        from fleetsim.tell.document import Document as Answer

        return Answer(kind_of("size", self.plan.scenario), brief_facts(self.plan), warnings=self.plan.warnings)

    def page(self, watch: Watch = SILENT) -> str:
        """What the command writes under --html."""
        from fleetsim.job.trials import Trials, remembered, simulated, with_instances
        from fleetsim.sim.run import simulate
        from fleetsim.size.facts import Pictured, document
        from fleetsim.size.spread import around
        from fleetsim.tell.page import document_page

        plan = self.plan
        also = [c.instances for c in plan.candidates]
        measure = self._measure or remembered(simulated)
        near = around(Trials(plan.scenario, measure, watch), plan.instances, also)
        watch("for the page: the recommended fleet step by step")
        run = simulate(with_instances(plan.scenario, plan.instances), activity=True)
        return document_page(document(plan, Pictured(near, run), self._call()))

    def document(self) -> dict[str, Any]:
        """What the command prints under --json."""
        from fleetsim.size.facts import size_document

        return size_document(self.plan, self.advice)


def size(asked: Size, watch: Watch = SILENT) -> SizeResult:
    """The smallest rollout fleet that keeps the trainer busy.

    Raises InputError for a job that cannot be sized, StuckError where its limits block each other in every fleet, and
    Interrupted on Ctrl-C, with the SoFar.
    """
    from fleetsim.job.trials import remembered, simulated
    from fleetsim.size.size import size as plan_of

    asked = asked.ready()
    job = ready(asked.job)
    watch.loaded()
    measure = remembered(simulated)
    try:
        plan = plan_of(
            job.scenario,
            given=job.given,
            tell=watch,
            notes=job.notes,
            confidence=asked.confidence,
            brief=asked.in_brief,
            measure=measure,
        )
        if not asked.in_brief:
            plan.headroom, plan.candidates  # noqa: B018 - they are worked out now
    except KeyboardInterrupt:
        from fleetsim.size.facts import candidate_data
        from fleetsim.size.pictures import trials_table

        missing = "these fleets were tried, none is recommended yet"
        title = "fleets that were tried (mean ± half of the 95 % interval)"
        known = SoFar(
            job.scenario, measure.trials(), missing, title, trials_table, "size", "candidates", candidate_data
        )
        raise Interrupted(known, missing) from None
    return SizeResult(job, plan, measure if asked.for_page else None)
