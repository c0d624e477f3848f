"""`plan`: what can be asked of a budget, and what was found: a front of plans, and what permissions would buy."""

from __future__ import annotations

import math
from collections.abc import Iterator, Sequence
from dataclasses import dataclass
from typing import TYPE_CHECKING, Annotated, Any, Self, Unpack, cast

from fleetsim.errors import InputError, Interrupted, Problem, Problems
from fleetsim.faces import Text, flag, keywords, text
from fleetsim.job.fields import ready
from fleetsim.job.result import SILENT, Recommendation, SoFar, Watch, told, unchanging
from fleetsim.job.settings import AnyJob, Lends, Option
from fleetsim.records import field_names, replace
from fleetsim.split.ask import SplitJob

if TYPE_CHECKING:
    from collections.abc import Mapping

    from fleetsim.config.scenario import Scenario
    from fleetsim.estimates import Estimate
    from fleetsim.job.assumptions import Assumption
    from fleetsim.job.base_job import Job, Start, Tell
    from fleetsim.job.options import Options
    from fleetsim.plan.plan import Plans
    from fleetsim.search.front import Objective
    from fleetsim.tell.document import Document


# What a condition can name beside the metrics.
COUNTS = ("gpus", "instances", "rollout_gpus", "trainer_gpus", "usd_per_hour")


@unchanging
@dataclass(frozen=True, slots=True, eq=False, repr=False)
class PlanResult(Recommendation):
    """The plans of a budget.

    found: everything (fleetsim/plan/plan.py): rows with their scenarios, estimates and ranges, what permissions would
    buy, what was assumed and looked at. metrics: of the recommended plan. call: the words of a command line that asks
    the same again.
    """

    asked: Job
    found: Plans
    call: tuple[str, ...]

    def __repr__(self) -> str:
        return f"<PlanResult: {self.headline}>"

    @property
    def headline(self) -> str:
        """The answer in one sentence."""
        from fleetsim.plan.words import headline

        return headline(self.found)

    @property
    def feasible(self) -> bool:
        """Whether the recommended step is as short as was asked for."""
        return self.found.feasible

    @property
    def scenario(self) -> Scenario:
        """The recommended plan, as --save writes it."""
        from fleetsim.job.lengths import as_asked

        return as_asked(self.found.best.scenario, self.asked.scenario)

    @property
    def assumptions(self) -> tuple[Assumption, ...]:
        """What nobody said."""
        return self.found.assumptions

    @property
    def _answer(self) -> Plans:
        return self.found

    @property
    def _estimates(self) -> Mapping[str, Estimate]:
        return self.found.best.estimates

    def numbers(self) -> dict[str, float]:
        """What --fail-if can ask: the means, GPUs of both pools and of judges, instances, and dollars per hour."""
        from fleetsim.plan.space import gpus_of, usd_per_h

        best = self.found.best
        share = best.choice.share
        counts = (gpus_of(best), share.instances, share.rollout_gpus, share.trainer_gpus, usd_per_h(best))
        return {**self.mean, **{name: float(n) for name, n in zip(COUNTS, counts, strict=True)}}

    def rows(self) -> list[dict[str, Any]]:
        """The plans, as under -o csv."""
        from fleetsim.job.metrics import with_intervals
        from fleetsim.job.trials import PER_STEP
        from fleetsim.plan.space import gpus_of, usd_per_h, usd_per_token
        from fleetsim.plan.words import plan_words

        return [
            {
                "plan": plan_words(row, several_types=True),
                "kind": row.choice.share.kind,
                "gpu": row.scenario.engine.gpu,
                "gpus": gpus_of(row),
                "instances": row.choice.share.instances,
                "rollout_gpus": row.choice.share.rollout_gpus,
                "trainer_gpus": row.choice.share.trainer_gpus,
                "usd_per_hour": usd_per_h(row),
                "usd_per_trained_token": usd_per_token(row),
                **{
                    f"{n}.range_{end}": x
                    for n in PER_STEP
                    for end, x in zip(("low", "high"), row.range_of(n), strict=True)
                },
                **with_intervals(row.estimates),
            }
            for row in self.found.rows
        ]

    def saved(self) -> str:
        """What the command writes under --save: the recommended plan."""
        from fleetsim.config.load import dump_short
        from fleetsim.search.makes import count_path
        from fleetsim.search.workers import path_of, workers_of

        chosen = {"engine.gpu", "engine.tp", "fleet.instances", "fleet.placement", "trainer.gpus"}
        counted = [*map(path_of, workers_of(self.scenario)), *map(count_path, self.scenario.fleet.pools)]
        return dump_short(self.scenario, {*self.found.given, *chosen, *counted})

    def missed(self) -> str:
        """The step that no plan makes."""
        if self.feasible:
            return ""
        return f"no plan makes a step of {self.found.budget.step_s:g} s; the shortest is printed above"

    @property
    def advice(self) -> list[dict[str, Any]]:
        """The plans, the recommended one first, and what permissions would buy: what, the command that simulates it,
        its promise, permission."""
        from fleetsim.plan.words import plan_words
        from fleetsim.search.reasons import Advised, advice_data

        if self.found.contradicted:
            return []
        plans = [Advised(plan_words(row, several_types=True), row.scenario, row.estimates) for row in self.found.rows]
        bought = [
            Advised(plan_words(b.row, several_types=True), b.row.scenario, b.row.estimates, b.permission)
            for b in self.found.bought
            if b.row is not None
        ]
        return advice_data(self.asked, [*plans, *bought])

    def told(self) -> Document:
        """What there is to say of it."""
        from fleetsim.plan.facts import document

        return document(self.found, self.call, self.advice)

    def in_brief(self) -> Document:
        """The same without the commands of all plans, which take a tenth of a second."""
        from fleetsim.plan.facts import document

        return document(self.found, self.call)

    def document(self) -> dict[str, Any]:
        """What the command prints under --json."""
        from fleetsim.plan.facts import plan_document

        return plan_document(self.found, self.advice)


BUDGET, CHOICES = "The budget", "What may be chosen"


@dataclass(frozen=True, kw_only=True)
class Plan:
    """Which fleet, engines and split for this budget?"""

    gpus: Annotated[int | None, Option("GPUs of both pools and of judges together, at most.", BUDGET)] = None
    max_price_per_hour: Annotated[
        float | None, Option("USD per hour of all of it, at most.", BUDGET, metavar="USD")
    ] = None
    step_s: Annotated[float | None, Option("Longest step, seconds: asks for the cheapest plan.", BUDGET)] = None
    objective: Annotated[
        str | None, Option("step, cost or token (step; with --step-s cost).", BUDGET, metavar="WHAT")
    ] = None
    gpu_types: Annotated[
        str | None, Option("GPU types at hand: H100,H200 (the job's own).", CHOICES, metavar="TYPES")
    ] = None
    allow: Annotated[
        str | None, Option("What may change training: fp8,staleness<=2,speculation (nothing).", CHOICES, metavar="LIST")
    ] = None
    job: Annotated[AnyJob, Lends(SplitJob)]

    def ready(self) -> Self:
        """The same question with the job itself. Raises InputError with all that is wrong."""
        from fleetsim.search.permissions import allowed

        wrong = Problems(self._wrong())
        wrong.made(allowed, self.allow)
        job = wrong.made(ready, self.job)
        wrong.stop()
        return replace(self, job=job)

    def types(self) -> tuple[str, ...]:
        """The GPU types at hand, each once; empty = the job's own."""
        return tuple(dict.fromkeys(name.strip() for name in (self.gpu_types or "").split(",") if name.strip()))

    def _wrong(self) -> Iterator[Problem]:
        from fleetsim.config.tree import did_you_mean
        from fleetsim.engine.gpus import gpu_spec
        from fleetsim.search.arrangements import MOST_GPUS
        from fleetsim.search.front import OBJECTIVES

        if self.gpus is None and self.max_price_per_hour is None and self.step_s is None:
            remedy = text("give {}, {} or {}", flag("gpus", 64), flag("max_price_per_hour", 200), flag("step_s", 60))
            yield Problem(flag("gpus"), None, "a plan needs a budget, or a step to make", remedy)
        whole = isinstance(self.gpus, int) and not isinstance(self.gpus, bool)
        if self.gpus is not None and not (whole and 1 <= self.gpus <= MOST_GPUS):
            limits = f"between 1 and {MOST_GPUS:,}"
            rule = Text(f"must be {limits}", f"must be a whole number {limits}")
            yield Problem(flag("gpus"), self.gpus, rule, text("for example {}", flag("gpus", 64)))
        for name, example in (("max_price_per_hour", 200), ("step_s", 60)):
            value: Any = getattr(self, name)
            number = isinstance(value, (int, float)) and not isinstance(value, bool)
            if value is not None and not (number and math.isfinite(value) and 0 < value <= 1e9):
                limits = "must be above 0, and a billion at most"
                yield Problem(flag(name), value, limits, text("for example {}", flag(name, example)))
        if self.objective is not None and self.objective not in OBJECTIVES:
            meant = did_you_mean(str(self.objective), OBJECTIVES)
            yield Problem(flag("objective"), self.objective, "is no objective", meant)
        for name in self.types():
            try:
                gpu_spec(name)
            except InputError as error:
                yield from (replace(p, path=flag("gpu_types")) for p in error.problems)


def ask(asked: Plan, watch: Watch = SILENT) -> PlanResult:
    """The best plans within the budget.

    Raises InputError with all that is wrong, or where nothing fits the budget; StuckError where every plan gets stuck;
    Interrupted on Ctrl-C with the SoFar, None before the first plan.
    """
    from fleetsim.job.command import call_again
    from fleetsim.plan.plan import plan as search
    from fleetsim.search.front import Budget
    from fleetsim.search.permissions import allowed

    asked = asked.ready()
    job = ready(asked.job)
    watch.loaded()
    objective = asked.objective or ("step" if asked.step_s is None else "cost")
    budget = Budget(asked.gpus, asked.max_price_per_hour, asked.step_s, cast("Objective", objective))
    permitted = allowed(asked.allow)
    at_hand, notes = asked.types(), job.notes
    try:
        found = search(
            job.scenario, budget, given=job.given, gpu_types=at_hand, allowed=permitted, notes=notes, tell=watch
        )
    except Interrupted as cut:
        if cut.known is None:
            raise
        from fleetsim.plan.facts import found_data, found_table

        scenario, known = cut.known
        title = "the best plans that were simulated, one run each"
        told_so_far = SoFar(scenario, known, cut.missing, title, found_table, "plan", "plans", found_data)
        raise Interrupted(told_so_far, cut.missing) from None
    own = {name: getattr(asked, name) or None for name in field_names(asked) if name != "job"}
    return PlanResult(job, found, call_again("plan", job, **own))


@keywords()
def plan(
    job: Start = None,
    *,
    gpus: int | None = None,
    max_price_per_hour: float | None = None,
    step_s: float | None = None,
    objective: Objective | None = None,
    gpu_types: Sequence[str] = (),
    allow: str | Sequence[str] = (),
    tell: Tell | None = None,
    **options: Unpack[Options],
) -> PlanResult:
    """The best plans of a job within a budget: `fleetsim plan`.

    job: a Job, or what `load` takes. gpus, max_price_per_hour: of both pools and of judges, at most. step_s:
    seconds of a step, at most; then the cheapest plan is recommended. objective: step, cost or token. gpu_types: at
    hand, else the job's own. allow: what may change training ("fp8", "staleness<=2", "speculation"). options: as for
    `load`.

        >>> import fleetsim as fs
        >>> found = fs.plan(gpus=4, batch=64, len=200, model="Qwen/Qwen2.5-1.5B", replications=2)
        >>> found.feasible, len(found.found.rows) <= 7
        (True, True)

    Raises InputError with all that is wrong, or where nothing fits the budget; StuckError; Interrupted on Ctrl-C.
    """
    from fleetsim.job.base_job import load

    written = allow if isinstance(allow, str) else ",".join(allow)
    asked = Plan(
        job=load(job, **options),
        gpus=gpus,
        max_price_per_hour=max_price_per_hour,
        step_s=step_s,
        objective=objective,
        gpu_types=gpu_types if isinstance(gpu_types, str) else ",".join(gpu_types),
        allow=written,
    )
    return ask(asked, told(tell))
