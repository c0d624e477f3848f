"""`plan`: what can be asked of a budget, and what was found: a front of plans, and what permissions would buy."""

from __future__ import annotations

import math
from collections.abc import Iterator, Sequence
from dataclasses import dataclass
from typing import TYPE_CHECKING, Annotated, Any, Self, Unpack, cast

from fleetsim.errors import InputError, Interrupted, Problem, Problems
from fleetsim.faces import Text, flag, keywords, text
from fleetsim.job.fields import ready
from fleetsim.job.result import SILENT, SoFar, Watch, told
from fleetsim.job.settings import AnyJob, Lends, Option
from fleetsim.plan.result import PlanResult
from fleetsim.records import field_names, replace
from fleetsim.split.ask import SplitJob

if TYPE_CHECKING:
    from fleetsim.job.base_job import Start, Tell
    from fleetsim.job.options import Options
    from fleetsim.search.front import Objective

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
        str | None,
        Option("step, cost or token (step; with --step-s cost).", BUDGET, metavar="WHAT"),
    ] = None
    gpu_types: Annotated[
        str | None, Option("GPU types at hand: H100,H200 (the job's own).", CHOICES, metavar="TYPES")
    ] = None
    allow: Annotated[
        str | None,
        Option("What may change training: fp8,staleness<=2,speculation (nothing).", CHOICES, metavar="LIST"),
    ] = None
    job: Annotated[AnyJob, Lends(SplitJob)]

    def ready(self) -> Self:
        """The same question with the job itself. Raises InputError with all that is wrong."""
        from fleetsim.search.permissions import allowed

        wrong = Problems(self._wrong())
        with wrong.check():
            allowed(self.allow)
        job: AnyJob = self.job
        with wrong.check():
            job = ready(self.job)
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
