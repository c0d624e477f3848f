"""The plan for a budget: branch and bound over all choices, limits tried on what is left, a front of few rows, and what
each thing would buy that the recipe forbids.

One run of each plan decides which are worth more; the rows that are shown have all replications. The recommended row is
the best by the objective; among rows within one percent of it the cheaper, then the fresher one.

Plans are looked at with the workers of tools and rewards and the engines of judges that their pace needs; those that
may be best have theirs counted before long runs decide (`search/plan_crews.py`).

No plan is told whose samples are older than the recipe permits, or --allow: the age is that of 99 % of the trained
samples in its own runs, in optimizer steps.
"""

from __future__ import annotations

import math
from collections.abc import Collection, Iterable, Iterator, Mapping, Sequence
from dataclasses import dataclass

from msgspec import Struct

from fleetsim import units
from fleetsim.config.load import with_changes
from fleetsim.config.scenario import Scenario
from fleetsim.config.tree import is_given
from fleetsim.errors import InputError, Interrupted, Problem
from fleetsim.faces import flag, text
from fleetsim.job.engine_source import engine_source
from fleetsim.job.result import Later
from fleetsim.job.trials import Measure, Tell, Trials, planned, remembered, simulated
from fleetsim.plan.choices import CHOSEN, LIMITS, ChoiceInputs
from fleetsim.plan.space import PlanRow, Space, bought
from fleetsim.records import replace
from fleetsim.search.arrangements import divided
from fleetsim.search.explore import Search, SearchTally
from fleetsim.search.front import CLOSE, MOST_GPUS, MOST_ROWS, SAME, Budget, Goal, front_of, thinned
from fleetsim.search.permissions import Allowed, stale
from fleetsim.search.plan_crews import PlanCrews
from fleetsim.search.ranges import expected_loss, known_of
from fleetsim.search.reasons import AnswerGrounds, as_run
from fleetsim.sim.judges import judges_gpus
from fleetsim.size.assumptions import plan_assumptions, plan_warnings

# --- Plans with all their runs, the rows that are shown, and what each forbidden thing would buy.

PLACEMENT = "fleet.placement"


class Reach(Struct, frozen=True):
    """within_s: seconds of a step at least, within the budget; beyond_s: on up to `MOST_GPUS` GPUs, whatever they cost.
    gpus: of the smallest plan beyond the budget that may make the step, usd_per_h: of the cheapest, by what the budget
    is said in; both None where none may."""

    within_s: float
    beyond_s: float
    gpus: int | None = None
    usd_per_h: float | None = None


class Bought(Struct, frozen=True):
    """What one thing would buy that the recipe forbids. row: the best plan with it, None where it is no better."""

    permission: str
    row: PlanRow | None


@dataclass(frozen=True, slots=True, kw_only=True)
class Plans(AnswerGrounds):
    """What was found for a job.

    rows: the recommended one, then the others of the front by their step. bought: a line for each thing that is
    forbidden and could be had. tally: what was looked at; stuck: how many of it cannot run. expected_loss: what staying
    with the recommended row costs on average, beside the others; None where no input is in doubt. reach: what the step
    would take that no plan makes; None where one does.
    """

    given: frozenset[str]
    budget: Budget
    allowed: Allowed
    rows: tuple[PlanRow, ...]
    bought: tuple[Bought, ...]
    tally: SearchTally
    stuck: int
    expected_loss: float | None = None
    reach: Reach | None = None

    @property
    def best(self) -> PlanRow:
        """The recommended row."""
        return self.rows[0]

    @property
    def better(self) -> list[tuple[str, PlanRow]]:
        """Permissions that nobody gave and that make the plan better, with the best plan of each."""
        return [(b.permission, b.row) for b in self.bought if b.row is not None]

    @property
    def feasible(self) -> bool:
        """Whether the step that was asked for is held."""
        return self.budget.holds(self.best.step_s)


# A limit must shorten the step by so much to be taken, or to what is asked for.
_WORTH = 0.01
# By so much one run may be longer than the mean of all.
_LUCK = 0.05
# Of a thousand GPUs, with which a step hardly becomes shorter, the shortest is looked for by so much.
_ROUGHLY = 0.1
# Runs by which several plans that are nearly the best are told apart.
_CONTENDERS = 6


def plan(
    scenario: Scenario,
    budget: Budget,
    *,
    given: Collection[str] = (),
    gpu_types: Sequence[str] = (),
    allowed: Allowed = Allowed(),  # noqa: B008 - it never changes
    notes: Sequence[str] = (),
    measure: Measure = simulated,
    tell: Tell | None = None,
) -> Plans:
    """The best plans of a job within a budget.

    given: dotted paths that the user wrote; they are not chosen again. gpu_types: at hand, else the job's own. notes,
    measure, tell: as for `size`.

    Raises InputError where nothing fits the budget, StuckError where every plan gets stuck, and Interrupted on Ctrl-C:
    with the job and the plans so far, None before the first.
    """
    given = frozenset(given)
    job, measure = divided(scenario, given), remembered(measure)
    crewing = PlanCrews(job, measure, tell, budget)
    space = Space(ChoiceInputs(crewing.at_ease, given, tuple(gpu_types)), budget, crewing)
    search = Search(measure, tell, crewed=space.crewed)
    try:
        rows = tuple(_row(search, found) for found in worth_a_look(search, space, allowed))
        forbidden = tuple(_bought(search, space, allowed, rows[0]))
    except KeyboardInterrupt:
        t = search.tally
        missing = f"{t.simulated:,} of {t.plans:,} plans were simulated, not all others are ruled out"
        found = sorted(map(space.manned, search.found.values()), key=lambda f: budget.badness(f.step_s, f.usd))
        known = sorted(thinned(front_of(found), found[0]), key=lambda f: f.step_s) if found else []
        raise Interrupted((job, known) if known else None, missing) from None
    reach = None if budget.holds(rows[0].step_s) else reach_of(search, space, allowed)
    as_run_s = as_run(Trials(planned(scenario, given), measure), scenario, given)
    best, known = rows[0].scenario, [row.known for row in rows if row.known is not None]
    profile = engine_source(best, best.fleet.instances)
    return Plans(
        scenario=job,
        given=given,
        budget=budget,
        allowed=allowed,
        rows=rows,
        bought=forbidden,
        tally=search.tally,
        stuck=len(search.stuck),
        expected_loss=expected_loss(known, budget.metric_at(rows[0].step_s)) if rows[0].known else None,
        reach=reach,
        as_run_s=as_run_s,
        assumptions=plan_assumptions(job, best, given, CHOSEN),
        warnings=(*notes, *plan_warnings(rows, tuple(search.stuck.values()), profile)),
        profile=profile,
    )


def pareto(search: Search, space: Space, allowed: Allowed) -> tuple[list[PlanRow], list[PlanRow]]:
    """Simulates whatever may be told of the front of step and dollars, where only a step is asked for what may be best:
    all that was found, and what is told of it.

    Where no plan makes the step that is asked for, the shortest comes nearest: then it is as if only that were wanted.
    """
    budget, plans = space.budget, list(space.plans(allowed))
    only_best, oldest = budget.gpus is None and budget.price_per_h is None, allowed.oldest(space.own)
    goal = Goal(budget, only_best, oldest=oldest, nearer=_ROUGHLY if only_best else CLOSE)
    found = search.refining(plans, goal, space.near, "plans")
    if goal.missed and not only_best:  # the nearest is known; what else is worth a look
        goal = Goal(replace(budget, step_s=None, objective="step"), False, oldest=oldest)
        found = search.refining(plans, goal, space.near, "plans")
    if not found:
        raise _nothing(space, search, oldest)
    return found, goal.rows(found)


def _nothing(space: Space, search: Search, oldest: float | None) -> Exception:
    """Why there is no plan."""
    found = search.found.values()
    if found and not any(map(space.budget.affords, found)):
        least = min(3600.0 * f.usd / f.step_s for f in found)
        rule = f"pays no plan: the cheapest takes {units.price(least)} an hour, with what is paid by use"
        return InputError([Problem(flag("max_price_per_hour"), space.budget.price_per_h, rule, "raise it")])
    if search.found and oldest is not None:
        (freshest,) = search.aged([min(search.found.values(), key=lambda f: f.age)])  # a look does not say it
        least = max(math.ceil(freshest.age), int(oldest) + 1)
        rule = f"99 % of the trained samples would be {least} steps old at the freshest, {oldest:g} are permitted"
        return InputError([Problem(flag("allow"), None, rule, text("give {}", flag("allow", f"'{stale(least)}'")))])
    if search.stuck:
        return next(iter(search.stuck.values()))
    budget = space.budget
    if not space.engines:
        shape = space.asked.scenario.engine.model
        rule = "fits no engine of up to 4 servers of the GPUs at hand, with its longest sample"
        return InputError(
            [Problem("engine.model", shape, rule, text("name a larger GPU: {}", flag("gpu_types", "H200")))]
        )
    asked = space.asked
    if oldest == 0 and asked.scenario.fleet.placement == "disaggregated" and is_given(PLACEMENT, asked.given):
        rule = "on-policy plans are looked at on shared GPUs alone"
        remedy = text("leave it out, or give {}", flag("allow", f"'{stale(1)}'"))
        return InputError([Problem(PLACEMENT, "disaggregated", rule, remedy)])
    least, smallest = min(e.least for e in space.engines), min(e.each for e in space.engines)
    rule = f"holds no plan: the trainer takes at least {units.plural(least, 'GPU')}, an engine {smallest}"
    if space.crewing is not None and (judging := judges_gpus(space.crewing.fewest)):
        rule += f", judges {judging}"
    if budget.price_per_h is not None:
        rule += f", {units.price(min(max(e.prices) for e in space.engines))} for a GPU-hour"
        return InputError([Problem(flag("max_price_per_hour"), budget.price_per_h, rule, "raise it")])
    return InputError([Problem(flag("gpus"), budget.gpus, rule, "give more GPUs, or another type")])


def worth_a_look(search: Search, space: Space, allowed: Allowed) -> list[PlanRow]:
    """The front of all plans, with limits tried and all replications: the recommended one first.

    Raises InputError where nothing fits the budget, StuckError where every plan gets stuck.
    """
    before = replace(search.tally)
    (found, shown), budget, oldest = pareto(search, space, allowed), space.budget, allowed.oldest(space.own)
    ranked = sorted(found, key=lambda f: budget.badness(f.step_s, f.usd))
    # One run may miss a step that the mean of all runs makes, or that a limit makes.
    nearly = [f for f in ranked if not budget.holds(f.step_s) and budget.holds(f.step_s * (1 - _LUCK))]
    cheaper = sorted((f for f in nearly if f.usd < ranked[0].usd), key=lambda f: f.usd)[:_CONTENDERS]
    promising = [*shown, *(f for f in cheaper if f not in shown)]
    contenders = [f for f in ranked[:_CONTENDERS] if f not in promising]
    tuned = [space.counted(_with_limits(search, space, f, oldest), f in ranked[:_CONTENDERS]) for f in promising]
    runs = space.asked.scenario.run.replications
    left = [f for f in ranked if f not in promising and f not in contenders]
    next_ones = [*tuned, *map(space.counted, _still_close(search, tuned, contenders, budget))]
    while next_ones:  # one run may say of all of them that their samples are fresher than they are
        full = search.simulated([(f.choice, f.scenario) for f in next_ones], runs)
        rows = _rows(search, _permitted(full, oldest, budget), budget, oldest)
        old = [f for f in full if f.choice.place in search.too_old or not _permitted([f], oldest, budget)]
        lucky = {f.choice.place: f for f in full if not budget.holds(f.step_s) and f.choice.place not in search.known}
        looks = [f for f in ranked if budget.holds(f.step_s) and f.choice.place in lucky]
        if _beaten(rows, [*old, *looks], budget):  # it ruled out what was not looked at
            search.too_old |= {f.choice.place for f in old}
            search.known |= lucky
            search.tally = before  # plans that are looked at again are not others
            return worth_a_look(search, space, allowed)
        if rows:
            return rows
        next_ones, left = [space.counted(f) for f in left[:_CONTENDERS]], left[_CONTENDERS:]
    raise _nothing(space, search, oldest)


def _still_close(search: Search, shown: Sequence[PlanRow], others: Sequence[PlanRow], budget: Budget) -> list[PlanRow]:
    """Those of the others that one long run leaves nearly as good as the best that is shown."""
    both = search.simulated([(f.choice, f.scenario) for f in (*shown, *others)], 1)
    best = min((budget.badness(f.step_s, f.usd) for f in both), default=(True, math.inf))
    kept = {f.scenario for f in both if budget.badness(f.step_s, f.usd) <= (best[0], best[1] * (1 + _LUCK))}
    return [f for f in others if f.scenario in kept]


def _permitted(plans: Sequence[PlanRow], oldest: float | None, budget: Budget) -> list[PlanRow]:
    """Those whose samples are fresh enough, and an hour of which is paid."""
    return [f for f in plans if (oldest is None or f.age <= oldest) and budget.affords(f)]


def _rows(search: Search, full: Sequence[PlanRow], budget: Budget, oldest: float | None) -> list[PlanRow]:
    """The few of the front, the recommended one first, each still fresh enough in a long run."""
    left = list(full)
    while left:
        front = front_of(left)
        best = recommended(front, budget)
        rows = sorted(thinned(front, best, MOST_ROWS), key=lambda f: (f is not best, f.step_s))
        aged = search.aged(rows)
        if len(_permitted(aged, oldest, budget)) == len(rows):
            return aged
        old = [f for f, now in zip(rows, aged, strict=True) if not _permitted([now], oldest, budget)]
        search.too_old |= {f.choice.place for f in old}
        left = [f for f in left if f not in old]
    return []


def _beaten(rows: Sequence[PlanRow], old: Sequence[PlanRow], budget: Budget) -> bool:
    """Whether one of those whose samples are too old, or whose step is too long after all, was better than all that are
    told."""
    told = min((budget.badness(f.step_s, f.usd) for f in rows), default=(True, math.inf))
    return any(budget.badness(f.step_s, f.usd) < told for f in old)


def recommended(found: Sequence[PlanRow], budget: Budget) -> PlanRow:
    """See the module's docstring."""
    best = min(budget.badness(f.step_s, f.usd) for f in found)
    near = [f for f in found if budget.badness(f.step_s, f.usd) <= (best[0], best[1] * (1 + SAME))]
    return min(near, key=lambda f: (f.usd if budget.objective == "step" else f.step_s, f.age))


def _with_limits(search: Search, space: Space, found: PlanRow, oldest: float | None) -> PlanRow:
    """The same plan with those limits that shorten its step, each tried alone after the one before."""
    best = found
    for choice in LIMITS:
        if not choice.open_to(space.asked.given):
            continue
        values = [v.changes for v in choice.values(best.scenario, space.asked) if v.changes]
        looks = search.simulated([(best.choice, s) for s in _changed(best.scenario, values)])
        tried = _permitted(looks, oldest, space.budget)
        shortest = min(tried, key=lambda f: f.step_s, default=best)
        makes_it = space.budget.holds(shortest.step_s) and not space.budget.holds(best.step_s)
        if makes_it or shortest.step_s < best.step_s * (1 - _WORTH):
            best = shortest
    return best


def _changed(scenario: Scenario, changes: Iterable[Mapping[str, object]]) -> Iterator[Scenario]:
    for change in changes:
        try:
            yield with_changes(scenario, change)
        except InputError:  # limits that do not go together
            continue


def reach_of(search: Search, space: Space, allowed: Allowed) -> Reach:
    """What the step takes at least that no plan of the budget makes."""
    budget = space.budget
    within = min(least_s for _, least_s in search.bounded(space.plans(allowed)))
    if budget.gpus is None and budget.price_per_h is None:
        return Reach(within, within)
    wide = Space(space.asked, Budget(MOST_GPUS), space.crewing)
    beyond = [(bought(c, wide.fewest(c.engines)), s) for c, s in search.bounded(wide.plans(allowed))]
    shortest = min((s for _, s in beyond), default=math.inf)
    may = [paid for paid, s in beyond if budget.holds(s) and not budget.allows(*paid)]
    gpus, usd_per_h = min(may, key=lambda paid: paid[budget.gpus is None], default=(None, None))
    return Reach(within, min(shortest, within), *(gpus, None) if budget.gpus is not None else (None, usd_per_h))


def _row(search: Search, found: PlanRow) -> PlanRow:
    """A plan with how far it may be off."""
    given = found.choice.engines.given
    return replace(found, known_later=Later(lambda: known_of(found.scenario, given, found.estimates, search.measure)))


def _bought(search: Search, space: Space, allowed: Allowed, best: PlanRow) -> Iterator[Bought]:
    """The best plan with each thing that is forbidden, alone, where it beats the recommended one: looks by a look, for
    these may be longer than all runs, and the best of them by all runs."""
    (look,) = search.simulated([(best.choice, best.scenario)]) or (best,)
    in_looks, beyond = space.budget, space.budget.gpus is None and space.budget.price_per_h is None
    if in_looks.step_s is not None:
        in_looks = replace(in_looks, step_s=in_looks.step_s * look.step_s / best.step_s)

    def beats(found: PlanRow, other: PlanRow, budget: Budget, by: float) -> bool:
        missed, least = budget.badness(other.step_s, other.usd)
        return budget.badness(found.step_s, found.usd) < (missed, least * (1 - by))

    for permission in space.forbidden(allowed):
        more = allowed.also(permission)
        oldest = more.oldest(space.own)
        wanted = Goal(in_looks, True, oldest=oldest, nearer=_ROUGHLY if beyond else CLOSE)
        wanted.add(look.step_s, look.usd)
        found = search.refining(space.plans(more, but=allowed), wanted, space.near, f"with {permission}")
        better = [f for f in found if beats(f, look, in_looks, CLOSE)]
        if not better:
            yield Bought(permission, None)
            continue
        top = space.counted(min(better, key=lambda f: in_looks.badness(f.step_s, f.usd)))
        full = search.simulated([(top.choice, top.scenario)], space.asked.scenario.run.replications)
        fresh = _permitted(search.aged(_permitted(full, oldest, space.budget)), oldest, space.budget)
        row = _row(search, fresh[0]) if fresh else None
        # A search stops early where one run looks well; all of them decide.
        yield Bought(permission, row if row is not None and beats(row, best, space.budget, SAME) else None)
