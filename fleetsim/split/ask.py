"""`split`: what can be asked of one set of GPUs, and what was found: every way to use them, ranked, and a verdict."""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import dataclass
from typing import TYPE_CHECKING, Annotated, Any, Literal, Self, cast

from fleetsim.errors import Interrupted, Problem, Problems
from fleetsim.faces import Text, flag, text
from fleetsim.job.fields import PlannedJob, ready
from fleetsim.job.result import SILENT, Recommendation, SoFar, Watch, unchanging
from fleetsim.job.settings import JOB, TRAINER, AnyJob, Lends, Option, said
from fleetsim.records import replace

if TYPE_CHECKING:
    from collections.abc import Mapping

    from fleetsim.estimates import Estimate
    from fleetsim.job.base_job import Job
    from fleetsim.split.split import Advice
    from fleetsim.split.ways import By
    from fleetsim.tell.document import Document

RULES = "Ranking and prices"


@dataclass(frozen=True, kw_only=True)
class SplitJob(PlannedJob):
    """The job that `split` shares GPUs out for."""

    gpu: Annotated[str | None, said("gpu", words="The GPU: H100, H200, A100...")] = None
    trainer_step_s: Annotated[float | None, Option("Trainer compute seconds per step (by model)...", TRAINER)] = None
    trainer_gpus: Annotated[int | None, Option("...on so many GPUs; they scale from there.", TRAINER)] = None
    instance_price: Annotated[float | None, said("instance_price", RULES)] = None
    trainer_price: Annotated[float | None, said("trainer_price", RULES)] = None
    worth: Annotated[float | None, said("worth", RULES)] = None


@dataclass(frozen=True, kw_only=True)
class Split:
    """Share these GPUs between rollout and trainer, or split them, and how?"""

    gpus: Annotated[int, Option("GPUs of both pools together, judges' beside.", JOB)]
    job: Annotated[AnyJob, Lends(SplitJob)]
    trainer_min_gpus: Annotated[
        int | None, Option("Fewest trainer GPUs; else what Adam's states need.", TRAINER, after="parallel_share")
    ] = None
    trainer_unit: Annotated[
        int | None,
        Option("Trainer GPUs in multiples of this; else whole servers, or 1, 2, 4.", TRAINER, after="trainer_min_gpus"),
    ] = None
    allow: Annotated[
        str | None, Option("What may change training: staleness<=2 (nothing).", RULES, metavar="LIST", after="by")
    ] = None
    by: Annotated[str, Option("step_s, goodput or cost_per_step.", RULES, metavar="MEASURE", after="sync_pause_s")] = (
        "step_s"
    )

    def ready(self) -> Self:
        """The same question with the job itself. Raises InputError with all that is wrong."""
        from fleetsim.search.permissions import allowed

        wrong = Problems(self._wrong())
        wrong.made(allowed, self.allow)
        job = wrong.made(ready, self.job)
        wrong.stop()
        return replace(self, job=job)

    def _wrong(self) -> Iterator[Problem]:
        from fleetsim.config.tree import did_you_mean
        from fleetsim.search.arrangements import MOST_GPUS
        from fleetsim.split.ways import MEASURES

        if self.by not in MEASURES:
            yield Problem(flag("by"), self.by, "is no measure to rank by", did_you_mean(str(self.by), MEASURES))
        for name in ("gpus", "trainer_min_gpus", "trainer_unit"):
            value: Any = getattr(self, name)
            if value is None and name != "gpus":
                continue
            if not isinstance(value, int) or isinstance(value, bool) or not 1 <= value <= MOST_GPUS:
                limits = f"between 1 and {MOST_GPUS:,}"
                rule = Text(f"must be {limits}", f"must be a whole number {limits}")
                yield Problem(flag(name), value, rule, text("for example {}", flag(name, 8)))


@unchanging
@dataclass(frozen=True, slots=True, eq=False, repr=False)
class SplitResult(Recommendation):
    """The advised way to use the GPUs.

    advice: everything that was found (fleetsim/split/split.py): all ways with their runs, the ratio of the best split
    to the best colocated way, alternatives, assumptions. metrics: of the advised way, name -> Estimate.
    """

    asked: Job
    advice: Advice

    def __repr__(self) -> str:
        return f"<SplitResult: {self.verdict}; {self.way}>"

    @property
    def verdict(self) -> Literal["split", "do_not_split", "no_difference"]:
        """Whether the best split beats the better colocated way by more than chance."""
        return self.advice.verdict

    @property
    def way(self) -> str:
        """The advised way, in words."""
        return self.advice.chosen.arrangement.label

    @property
    def _answer(self) -> Advice:
        return self.advice

    @property
    def _estimates(self) -> Mapping[str, Estimate]:
        return self.advice.chosen.estimates

    def numbers(self) -> dict[str, float]:
        """What --fail-if can ask: the means, and the GPUs of both pools."""
        way = self.advice.chosen.arrangement
        counts = {"rollout_gpus": float(way.rollout_gpus), "trainer_gpus": float(way.trainer_gpus)}
        return {**self.mean, **counts}

    def rows(self) -> list[dict[str, Any]]:
        """The ways, as under -o csv."""
        from fleetsim.job.metrics import with_intervals

        return [
            {
                "way": o.arrangement.label,
                "kind": o.arrangement.kind,
                "instances": o.arrangement.instances,
                "rollout_gpus": o.arrangement.rollout_gpus,
                "trainer_gpus": o.arrangement.trainer_gpus,
                "replications": o.replications,
                "binding": o.binding,
                "ties_with_first": o.ties,
                **with_intervals(o.estimates),
            }
            for o in self.advice.outcomes
        ]

    def saved(self) -> str:
        """What the command writes under --save: the advised way."""
        from fleetsim.config.load import dump_short
        from fleetsim.job.lengths import as_asked
        from fleetsim.search.workers import path_of, workers_of

        way = as_asked(self.advice.chosen.arrangement.scenario, self.asked.scenario)
        said = {*self.asked.given, "fleet.instances", "fleet.placement", "trainer.gpus", "engine.tp"}
        return dump_short(way, said | set(map(path_of, workers_of(way))))

    @property
    def advised(self) -> list[dict[str, Any]]:
        """The advised way and the moves beside it: what, the command that simulates it, its promise, permission."""
        from fleetsim.search.reasons import Advised, advice_data, moves_advised

        if self.advice.contradicted:
            return []
        chosen = self.advice.chosen
        way = Advised(self.way, chosen.arrangement.scenario, chosen.estimates)
        return advice_data(self.asked, [way, *moves_advised(self.advice.alternatives)])

    def told(self) -> Document:
        """What there is to say of it."""
        from fleetsim.split.facts import document

        return document(self.advice)

    def page(self, watch: Watch = SILENT) -> str:
        """What the command writes under --html."""
        from fleetsim.sim.run import simulate
        from fleetsim.split.facts import document
        from fleetsim.tell.page import document_page

        watch("for the page: the best ways step by step")
        ways = [o.arrangement for o in (self.advice.best_split, self.advice.best_colocated) if o is not None]
        runs = {way.label: simulate(way.scenario, activity=True) for way in ways}
        return document_page(document(self.advice, runs))

    def document(self) -> dict[str, Any]:
        """What the command prints under --json."""
        from fleetsim.split.facts import split_document

        return split_document(self.advice, self.advised)


def split(asked: Split, watch: Watch = SILENT) -> SplitResult:
    """Every way to use the GPUs that the recipe permits, simulated and ranked.

    Raises InputError for GPUs that cannot be split, StuckError when no way runs, and Interrupted on Ctrl-C, with the
    SoFar, None before the first way.
    """
    from fleetsim.search.arrangements import Rules
    from fleetsim.search.permissions import allowed
    from fleetsim.size.assumptions import unused_names
    from fleetsim.split.split import split as advise

    asked = asked.ready()
    job, by = ready(asked.job), cast("By", asked.by)
    watch.loaded()
    rules, permitted = Rules(asked.trainer_min_gpus, asked.trainer_unit), allowed(asked.allow)
    notes = (*job.notes, *unused_names(permitted))
    try:
        advice = advise(
            job.scenario, asked.gpus, by=by, rules=rules, allowed=permitted, given=job.given, notes=notes, tell=watch
        )
    except Interrupted as cut:
        if cut.known is None:
            raise
        from fleetsim.split.facts import outcome_data
        from fleetsim.split.pictures import ways_table

        scenario, outcomes = cut.known
        title = "ways that were simulated (rollout + trainer GPUs), best first so far"
        so_far = SoFar(scenario, outcomes, cut.missing, title, ways_table, "split", "arrangements", outcome_data)
        raise Interrupted(so_far, cut.missing) from None
    return SplitResult(job, advice)
