"""A plan, told: the front of few rows, what each forbidden thing would buy, how to repeat a row."""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from typing import Any

from fleetsim import units
from fleetsim.estimates import Estimate
from fleetsim.job.facts import AHEAD_NOT_AGE, assumed_line, being_wrong, run_facts, run_line, swing_line
from fleetsim.job.grounds import assumed_section, how_sure, observed_line, rests_on
from fleetsim.job.metrics import CANDIDATE_METRICS
from fleetsim.job.trials import PER_STEP
from fleetsim.job.words import binding_line, idle_of_both, kind_of
from fleetsim.plan import words
from fleetsim.plan.plan import Plans
from fleetsim.plan.space import PlanRow, gpus_of, usd_per_h, usd_per_token
from fleetsim.records import as_dict
from fleetsim.search.workers import workers_of, workers_words
from fleetsim.tell.charts.chart import Chart
from fleetsim.tell.charts.kinds import Curve, curve_chart
from fleetsim.tell.data import estimate, head, told
from fleetsim.tell.document import Document, Listed, Section, Table, page_only, present, terminal_only
from fleetsim.tell.facts import Fact, Facts, Words, explained, facts

_HEADINGS = ("plan", "step, s", "$/step", "$/M tok", "$/h", "stale", "idle t/r")
# Columns of the front that there is room for under --explain alone.
_SPARED = ("$/M tok", "$/h", "idle t/r")
_SHOWN = tuple(heading for heading in _HEADINGS[1:] if heading not in _SPARED)
_SIGNS = (
    "rollout + trainer GPUs; ranges: in eight of ten cases; stale: optimizer steps that 99 % of the samples are at "
    f"most old when they are trained, as simulated ({AHEAD_NOT_AGE}); idle: the trainer's share / the instances'; "
    "EP8: eight GPUs share the experts of a mixture"
)


def document(result: Plans, call: Sequence[str], advice: Sequence[Mapping[str, Any]] = ()) -> Document:
    """What `plan` says. call: the words that ask the same again. advice: the commands that simulate each plan."""
    best = result.best
    front, table = present(_chart(result)), front_table(result)
    forbidden = [(f"--allow '{b.permission}'", words.bought_words(b, best)) for b in result.bought]
    return Document(
        kind_of("plan", result.scenario),
        plan_facts(result),
        (
            Section(
                "Plans worth a look",
                (page_only(*front, table, Words(tail=_SIGNS)), terminal_only(table.without(*_SPARED, note=""))),
                short="plans worth a look, the recommended one first",
                asked=True,
            ),
            Section("more of the same plans", (table.without(*_SHOWN), Words(tail=_SIGNS)), on=("terminal",)),
            Section(
                "What the recipe forbids, and what it would buy",
                (Listed(tuple(forbidden), code=True),) if forbidden else (),
                short="what each thing would buy that the recipe does not allow",
            ),
            Section(
                "To repeat a plan",
                (Listed(tuple(words.commands(call, advice)), code=True, pasted=True),),
                short="to repeat a plan",
            ),
            *(() if best.ranges is None else (how_sure(best.ranges),)),
            assumed_section(result.assumptions),
            rests_on(result.profile, result.assumptions, "Nothing was assumed: every value that matters was given."),
        ),
        result.warnings,
    )


def front_table(result: Plans) -> Table:
    """A row a plan, each with its ranges."""
    several = words.several_types(result)
    rows = tuple(
        (
            words.plan_words(row, several),
            Words(_figures(row.mean("step_s")), f" {_ends(row.range_of('step_s'), _figures)}"),
            Words(_usd(row.mean("cost_per_step")), f" {_ends(row.range_of('cost_per_step'), _figures)}"),
            _usd(1e6 * usd_per_token(row)),
            f"{usd_per_h(row):,.0f}",
            words.stale_words(row),
            idle_of_both(lambda name, of=row.estimates: of[name].mean),
        )
        for row in result.rows
    )
    table = Table("plans worth a look", _HEADINGS, rows, marked=frozenset({0}), wordy=True)
    return table.narrowing(*reversed(_SPARED))


def found_table(found: Sequence[PlanRow]) -> Table:
    """Plans that were simulated before there was an answer."""
    rows = tuple(
        (
            f"{f.scenario.engine.gpu} {words.share_words(f.choice.share)}: {words.engine_words(f.scenario)}",
            _figures(f.mean("step_s")),
            _usd(f.mean("cost_per_step")),
        )
        for f in found
    )
    return Table("", ("plan", "step, s", "$/step"), rows, wordy=True)


def _chart(result: Plans) -> Chart | None:
    """The front: seconds over dollars of a step."""
    rows = sorted(result.rows, key=lambda row: row.mean("cost_per_step"))
    at, steps = [row.mean("cost_per_step") for row in rows], [row.mean("step_s") for row in rows]
    ends = [row.range_of("step_s") for row in rows]
    if len(rows) < 2:
        return None
    return curve_chart(
        "front",
        "Step against its cost",
        "Each symbol is a plan that no other beats in both, with the range of its step. Less is better.",
        [Curve("plans", at, [Estimate(mean, *of) for mean, of in zip(steps, ends, strict=True)])],
        x_title="US dollars per step",
        y_title="optimizer step",
        how="seconds",
        recommended=result.best.mean("cost_per_step"),
        star=f"recommended: {words.share_words(result.best.choice.share)}",
    )


def _ends(ends: tuple[float, float], say: Callable[[float], str]) -> str:
    return f"[{say(ends[0])}, {say(ends[1])}]"


def _figures(x: float) -> str:
    return f"{x:,.3g}" if x < 1000 else f"{x:,.0f}"


def _usd(x: float) -> str:
    return units.money(x).removeprefix("$")


def plan_facts(result: Plans) -> Facts:
    """What one must know of a plan, as a table."""
    row, of = result.best, result.best.estimates
    s, ranges, usd = row.scenario, row.ranges, 1e6 * usd_per_token(row)
    doubt = () if ranges is None else [part.path for part in ranges.parts]
    token = "cost of a million trained tokens"
    run, observed = Fact("run", run_line(result.scenario, result.as_run_s)), Fact("observed", observed_line(s))
    if result.contradicted:
        return facts(words.headline(result), run, observed, tone="unsure")
    return facts(
        words.headline(result),
        run,
        Fact("gpus", value=gpus_of(row), title="GPUs", note=words.pools_words(row)),
        Fact("workers", workers_words(s, of), value=sum(workers_of(s).values()) or None),
        run_facts(of, s, None if ranges is None else ranges.metrics, row.age),
        Fact("cost_per_million_tokens", "", "", usd, "money", title=token),
        Fact("needs", words.needs(result)),
        Fact("binds", binding_line(row.binding, s, of)),
        Fact("allow", _allow(result)),
        observed,
        Fact("assumed", assumed_line(s, result.assumptions, doubt)),
        Fact("measure", _measure(result)),
        explained("searched", f"Asked for: {words.asked_for(result.budget)}. {words.searched(result)}"),
        tone="bad" if not result.feasible else "unsure" if ranges is not None and ranges.wide else "good",
    )


def _measure(result: Plans) -> str:
    """The input that moves a step most, and what being wrong costs."""
    ranges, loss = result.best.ranges, result.expected_loss
    if ranges is None or loss is None:
        return ""
    of = "a step" if result.budget.metric_at(result.best.step_s) == "step_s" else "the cost of a step"
    return "; ".join(filter(None, (swing_line(ranges), being_wrong(loss, of))))


def _allow(result: Plans) -> str:
    """What a step takes, or costs, with each forbidden thing that makes the plan better, the best first."""
    aim = result.budget.objective == "step" or not result.feasible
    better = sorted((row.step_s if aim else row.usd, what) for what, row in result.better)
    said = "; ".join(f"{what} {(units.seconds if aim else units.money)(value)}" for value, what in better)
    return f"{said} a step" if said else ""


def plan_document(result: Plans, advice: Sequence[Mapping[str, Any]]) -> dict[str, Any]:
    """The document of `fleetsim plan --json`. The scenario of its head is the job as it was asked."""
    tally = result.tally
    return {
        **head("plan", result.scenario),
        "budget": as_dict(result.budget),
        "allow": list(result.allowed.texts),
        "feasible": result.feasible,
        "reach": None if result.reach is None else as_dict(result.reach),
        "headline": words.headline(result),
        "advice": advice,
        **told(plan_facts(result)),
        "recommendation": _row(result.best),
        "expected_loss": result.expected_loss,
        "plans": [_row(row) for row in result.rows],
        "forbidden": [
            {
                "allow": b.permission,
                "plan": None if b.row is None else _row(b.row),
                "step_ratio": None if b.row is None else b.row.step_s / result.best.step_s,
                "cost_ratio": None if b.row is None or not result.best.usd else b.row.usd / result.best.usd,
            }
            for b in result.bought
        ],
        "searched": {
            "plans": tally.plans,
            "impossible": tally.impossible,
            "ruled_out": {"by_rate_and_trainer": tally.rough, "by_bound": tally.bound, "by_plans_alike": tally.alike},
            "simulated": tally.simulated,
            "runs": tally.runs,
            "stuck": result.stuck,
        },
        "assumptions": [as_dict(a) for a in result.assumptions],
        "warnings": list(result.warnings),
        "profile": as_dict(result.profile),
    }


def found_data(found: PlanRow) -> dict[str, Any]:
    """One plan that was simulated before there was an answer, as it stands in a JSON document."""
    means = {name: found.mean(name) for name in PER_STEP}
    return {"scenario": found.scenario.model_dump(mode="json"), **means}


def _row(row: PlanRow) -> dict[str, Any]:
    share = row.choice.share
    return {
        "plan": words.plan_words(row, several_types=True),
        "kind": share.kind,
        "gpu": row.scenario.engine.gpu,
        "gpus": gpus_of(row),
        "instances": share.instances,
        "rollout_gpus": share.rollout_gpus,
        "trainer_gpus": share.trainer_gpus,
        "stations": workers_of(row.scenario),
        "staleness_steps_at_most": row.age,
        "needs": list(row.choice.needs),
        "replications": row.replications,
        "binding": row.binding,
        "usd_per_hour": usd_per_h(row),
        "usd_per_trained_token": usd_per_token(row),
        "ranges": {name: list(row.range_of(name)) for name in PER_STEP},
        "scenario": row.scenario.model_dump(mode="json"),
        **{field: estimate(row.estimates[metric]) for field, metric in CANDIDATE_METRICS.items()},
    }
