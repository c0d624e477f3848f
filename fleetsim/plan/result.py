"""What was found for a budget: a front of plans, and what permissions would buy."""

from __future__ import annotations

from dataclasses import dataclass
from typing import TYPE_CHECKING, Any

from fleetsim.job.result import Recommendation, unchanging

if TYPE_CHECKING:
    from collections.abc import Mapping

    from fleetsim.config.scenario import Scenario
    from fleetsim.estimates import Estimate
    from fleetsim.job.assumptions import Assumption
    from fleetsim.job.base_job import Job
    from fleetsim.plan.plan import Plans
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
        from fleetsim.plan.plan import RANGED
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
                    for n in RANGED
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
        from fleetsim.search.advice import Advised, advice_data

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
