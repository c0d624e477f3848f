"""A forecast, told: hours, dollars and tokens to the last step, what changes on the way, what failures cost."""

from __future__ import annotations

import math
from collections.abc import Iterator
from typing import TYPE_CHECKING, Any

from fleetsim import units
from fleetsim.estimates import Estimate
from fleetsim.job.assumptions import run_assumptions
from fleetsim.job.facts import (
    assumed_line,
    beside_facts,
    checkpoint_line,
    evaluation_line,
    run_differs,
    run_line,
    swing_line,
)
from fleetsim.job.grounds import how_sure, observed_line, rests_on
from fleetsim.job.words import binding_words
from fleetsim.records import as_dict
from fleetsim.search.workers import workers_words
from fleetsim.tell.charts.kinds import Curve, curve_chart
from fleetsim.tell.data import estimate, head, told
from fleetsim.tell.document import Document, Section, Table, present
from fleetsim.tell.facts import Fact, Facts, explained, facts

if TYPE_CHECKING:
    from fleetsim.forecast.recovery import SaveInterval
    from fleetsim.forecast.resizing_plan import FleetTotal, ResizePlan
    from fleetsim.forecast.schedule import RunCourse
    from fleetsim.forecast.totals import WholeRun

_HOUR_S = 3600.0
_SHOWN = 0.005  # of the hours: what holds the trainer for less is not told
_LUCK = 0.005  # of what a run takes and costs: short runs do not know two counts better


def forecast_facts(result: WholeRun) -> Facts:
    """What one must know of a run, as a table."""
    t, course, s = result.totals, result.course, result.scenario
    middle, ranges = course.middle(), result.ranges
    wide = ranges is not None and ranges.wide
    as_run_s = course.points[0].metrics["step_s"].mean
    parts = () if ranges is None else [part.path for part in ranges.parts]
    runs = units.plural(s.run.replications, "replication")
    return facts(
        f"{s.name}: {units.plural(course.steps, 'step')} {'takes' if course.steps == 1 else 'take'} "
        f"{_span(t.hours, t.ranges['hours'])} and "
        f"{_dollars(t.usd, t.ranges['usd'])}{', a wide range' if wide and math.isfinite(t.hours) else ''}.",
        Fact("run", run_line(s, as_run_s)),
        _total(result, "hours", "hours", "number"),
        _total(result, "gpu_hours", "GPU-hours", "number", f"{units.number(t.gpu_hours)} GPU-hours", "gpus"),
        _total(result, "usd", "cost", "money"),
        Fact("gpus", _fleet_words(result), line="gpus"),
        Fact("step", _step_words(result)),
        Fact("trained_samples", f"{units.number(t.trained_samples)} samples", "trains", t.trained_samples, "number"),
        Fact("trained_tokens", f"{_tokens(t.trained_tokens)} output tokens", "trains", t.trained_tokens, "number",
             title="output tokens trained"),
        Fact("generated_tokens", f"{_tokens(t.generated_tokens)} generated", "trains", t.generated_tokens,
             "number"),
        Fact("changes", result.schedule.words(course.steps)),
        Fact("holds", _held_words(result)),
        Fact("evaluation", evaluation_line(middle.metrics, middle.scenario)),
        Fact("checkpoint", checkpoint_line(middle.metrics, middle.scenario)),
        beside_facts(middle.metrics, middle.scenario),
        *_failure_facts(result.interval),
        *_resize_facts(result.resizes),
        *_backtest_facts(result),
        Fact("binds", _binds(result)),
        Fact("observed", observed_line(s)),
        Fact("assumed", assumed_line(s, run_assumptions(s, result.job.given), parts)),
        Fact("measure", "" if ranges is None else swing_line(ranges) or ""),
        explained("course", f"{units.plural(len(course.points), 'long run')} of {runs} each, straight lines between "
                            f"them: off by {units.share(course.off)} of a step at most, as far as was looked"),
        explained("filling", "The first steps, in which the pipeline fills, count as any others"),
        tone="unsure" if wide or run_differs(s, as_run_s) else "good",
    )  # fmt: skip


def _total(result: WholeRun, name: str, title: str, unit: units.Unit, said: str = "", line: str = "") -> Fact:
    value, (low, high) = float(getattr(result.totals, name)), result.totals.ranges[name]
    of = "seeds" if result.ranges is None else "inputs"
    return Fact(name, said, line, value, unit, low, high, of, title=title)


def _span(hours: float, ends: tuple[float, float]) -> str:
    if not math.isfinite(hours):
        return "for ever"
    low, high = (units.seconds(_HOUR_S * x) for x in ends)
    said = units.seconds(_HOUR_S * hours)
    return said if low == high == said else f"{said} ({low} to {high})"


def _dollars(usd: float, ends: tuple[float, float]) -> str:
    if not math.isfinite(usd):
        return "no sum is enough"
    low, high = map(units.money, ends)
    return units.money(usd) if low == high else f"{units.money(usd)} ({low} to {high})"


def _tokens(n: float) -> str:
    """ "1.57 billion"."""
    size, name = next(((s, w) for s, w in ((1e12, "trillion"), (1e9, "billion"), (1e6, "million")) if n >= s), (1, ""))
    return f"{n / size:.3g} {name}".strip() if name else units.number(n)


def _fleet_words(result: WholeRun) -> str:
    s = result.scenario
    per_h = result.totals.usd / result.totals.hours if result.totals.hours else 0.0
    paid = f" at {units.money(per_h)} an hour" if math.isfinite(per_h) else ""
    counts = sorted({p.scenario.fleet.instances for p in result.course.points})
    many = f"{counts[0]:,}" if len(counts) == 1 else f"{counts[0]:,} to {counts[-1]:,}"
    noun = "instance" if counts[-1] == 1 else "instances"
    each, trainer = units.plural(s.engine.gpus, "GPU"), units.plural(s.trainer.gpus, "trainer GPU")
    own = s.evaluation.own_instances
    evaluating = f", {own:,} more to evaluate" if own else ""
    workers = workers_words(s)
    return f"{many} {noun} of {each}{evaluating}, {trainer}{f', {workers}' if workers else ''}{paid}"


def _step_words(result: WholeRun) -> str:
    first, last = result.totals.step_s
    mean = float(result.course.metric("step_s").mean())
    if units.seconds(first) == units.seconds(last):
        return f"{units.seconds(mean)} on average"
    return f"{units.seconds(first)} at first, {units.seconds(last)} at the end, {units.seconds(mean)} on average"


def _held_words(result: WholeRun) -> str:
    total = result.totals.hours - result.totals.lost_h
    seen = {name: h for name, h in result.totals.held_h.items() if h > _SHOWN * total}
    parts = [f"{name} {units.seconds(_HOUR_S * h)} ({units.share(h / total, 0)})" for name, h in seen.items()]
    return f"the trainer waits for {units.listed(parts)}" if parts else ""


def _binds(result: WholeRun) -> str:
    idle = result.course.middle().metrics["trainer_idle_fraction"].mean
    found = ((step, binding_words(name, idle=idle).name) for step, name in result.course.bound_by())
    return ", ".join(f"{name}{f' from about step {step:,}' if step else ''}" for step, name in found)


def _failure_facts(interval: SaveInterval | None) -> Iterator[Fact]:
    if interval is None:
        return
    now, best, r = interval.now, interval.best, interval.recovery
    if math.isfinite(now.seconds):
        lost = now.seconds - interval.calm_s
        said = (
            f"{units.number(now.failures)} of the trainer (every {units.seconds(r.mtbf_s)}) cost "
            f"{units.seconds(lost)} ({units.share(lost / now.seconds)}): {units.number(now.lost_steps)} steps made "
            "again, and restarts"
        )
    else:
        said = f"one every {units.seconds(r.mtbf_s)}, with {_saved(now.every)}: the run would never come to its end"
    yield Fact("failures", said, value=now.failures, unit="number")
    saves = now.seconds - best.seconds
    worth = f", {units.seconds(saves)} less" if math.isfinite(saves) and saves > 0.001 * now.seconds else ""
    best_said = "" if now.every == best.every else f"best: {_saved(best.every)}{worth}"
    yield Fact("checkpoint_every", best_said or f"{_saved(best.every)} is best", "interval", best.every, "count")
    yield Fact("checkpoint_every_theory", f"by Daly's formula every {_steps(interval.theory)}", "interval",
               interval.theory, "count")  # fmt: skip


def _saved(every: int | None) -> str:
    return "no checkpoint" if every is None else f"a checkpoint every {_steps(every)}"


def _steps(n: int) -> str:
    return "step" if n == 1 else f"{n:,} steps"


def _resize_facts(plan: ResizePlan | None) -> Iterator[Fact]:
    if plan is None:
        return
    fixed, moved = plan.fixed.counts[0][1], len(plan.plan.counts) > 1
    gain = 1.0 - plan.plan.worth(plan.usd_per_s) / plan.fixed.worth(plan.usd_per_s)
    if not moved or gain < _LUCK:
        more = f"; changes would save {units.share(gain)} of time and cost" if moved else ""
        yield Fact("resize", f"never: {units.plural(fixed, 'instance')} for all of it{_against(plan)}{more}", value=0.0)
        return
    seconds, usd = plan.saved
    moves = ", ".join(f"{n:,}{f' from step {step:,}' if step else ''}" for step, n in plan.plan.counts)
    yield Fact(
        "resize",
        f"instances {moves}: {_saves(seconds, usd)} against {fixed:,} for all of it, the best that never changes",
        value=usd,
        unit="money",
    )
    yield _rule_fact(plan)


def _rule_fact(plan: ResizePlan) -> Fact:
    """What a rule would do that does not know the run beforehand."""
    run, last = plan.by_rule, plan.by_rule.counts[-1][1]
    saved = plan.fixed.seconds - run.seconds, plan.fixed.usd - run.usd
    longest = plan.longest_start_s
    pays = ""
    if longest is not None:
        pays = f"; it pays where an instance starts within {units.seconds(longest)}" if longest else "; it never pays"
    return Fact(
        "rule",
        f"{units.plural(len(run.counts) - 1, 'resize')}, to {last:,} in the end: {_saves(*saved)} against the best "
        f"that never changes; hindsight is worth {units.money(plan.regret)} more{pays}",
        value=plan.regret,
        unit="money",
    )


def _against(plan: ResizePlan) -> str:
    own = plan.as_is.counts[0][1]
    if own == plan.fixed.counts[0][1]:
        return ""
    saved = plan.as_is.seconds - plan.fixed.seconds, plan.as_is.usd - plan.fixed.usd
    return f", {_saves(*saved)} against {own:,}"


def _saves(seconds: float, usd: float) -> str:
    """ "saves $120.00 and 2 h", "saves $120.00 and takes 5 min longer"."""
    money = f"{'saves' if usd >= 0 else 'costs'} {units.money(abs(usd))}{'' if usd >= 0 else ' more'}"
    if seconds < 0:
        return f"{money}, takes {units.seconds(-seconds)} longer"
    return f"{money}{' and' if usd >= 0 else ', saves'} {units.seconds(seconds)}"


def _backtest_facts(result: WholeRun) -> Iterator[Fact]:
    back = result.backtest
    if back is None:
        return
    trend = f" (the trend: {back.trend})" if back.trend else " (no trend in its lengths)"
    yield Fact(
        "backtest",
        f"from {back.seen:,} of {back.steps:,} steps of the log{trend}: the rest {units.seconds(back.forecast_s)}, "
        f"observed {units.seconds(back.observed_s)} ({units.change(back.error)}); the mean of the first steps says "
        f"{units.seconds(back.held_s)} ({units.change(back.held_error)})",
        value=back.error,
        unit="share",
    )


def document(result: WholeRun) -> Document:
    """What `forecast` says."""
    return Document(
        "fleetsim forecast",
        forecast_facts(result),
        (
            Section("The course of the run", (*present(_chart(result.course)), _points(result)), short="course"),
            *(() if result.resizes is None else (Section("Counts", (_counts(result.resizes),)),)),
            *(() if result.ranges is None else (how_sure(result.ranges),)),
            rests_on(
                result.profile,
                run_assumptions(result.scenario, result.job.given),
                "Every value that bears on the run was given.",
            ),
        ),
        result.warnings,
    )


def _chart(course: RunCourse) -> Any:
    points = course.points
    if len({p.step for p in points}) < 2:
        return None
    return curve_chart(
        "course",
        "Seconds of an optimizer step over the run",
        "Each point is a long run; whiskers are 95 % of the seeds.",
        [Curve("step", [p.step for p in points], [p.metrics["step_s"] for p in points])],
        x_title="optimizer step",
        y_title="seconds",
        how="seconds",
    )


def _points(result: WholeRun) -> Table:
    names = list(result.schedule.columns)
    rows = tuple(
        (
            f"{p.step:,}",
            *(_value(p.values.get(name)) for name in names),
            units.seconds(p.metrics["step_s"].mean),
            units.share(p.metrics["trainer_idle_fraction"].mean),
            units.money(p.metrics["cost_per_step"].mean),
            units.number(p.metrics["staleness_steps.p99"].mean),
            p.binding,
        )
        for p in result.course.points
    )
    headings = ("step", *names, "a step", "idle", "cost", "stale p99", "binds")
    return Table("", headings, rows, words_last=1, numbered=True).narrowing("stale p99", "idle")


def _value(x: Any) -> str:
    return "" if x is None else f"{x:,.4g}" if isinstance(x, float) and x < 1 else f"{x:,.0f}"


def _counts(plan: ResizePlan) -> Table:
    def row(name: str, of: FleetTotal) -> tuple[str, ...]:
        moves = ", ".join(f"{n:,}" if not step else f"{n:,} from {step:,}" for step, n in of.counts)
        return name, units.seconds(of.seconds), units.money(of.usd), moves

    rows = (row("as it is", plan.as_is), row("best fixed", plan.fixed), row("resized", plan.plan),
            row("by the rule", plan.by_rule))  # fmt: skip
    note = (
        f"Short runs. A second is worth {units.money(plan.usd_per_s)} (targets.worth at the best fixed count); new "
        f"instances are paid for {units.seconds(plan.resize_s)} before they serve (fleet.failures.restart_s)."
    )
    return Table("", ("", "time", "cost", "instances"), rows, words_last=1, note=note)


def forecast_document(result: WholeRun) -> dict[str, Any]:
    """The document of `fleetsim forecast --json`."""
    points = [
        {
            "step": p.step,
            "values": dict(p.values),
            "binding": p.binding,
            "metrics": {name: estimate(value) for name, value in p.metrics.items() if isinstance(value, Estimate)},
        }
        for p in result.course.points
    ]
    schedule = {name: {"points": [list(point) for point in points_], "source": result.schedule.source[name]}
                for name, points_ in result.schedule.columns.items()}  # fmt: skip
    return {
        **head("forecast", result.scenario),
        **told(forecast_facts(result)),
        "steps": result.course.steps,
        "totals": as_dict(result.totals),
        "schedule": schedule,
        "course": points,
        "interpolation_off": result.course.off,
        "ranges": result.ranges and as_dict(result.ranges),
        "failures": result.interval and as_dict(result.interval),
        "resize": result.resizes and as_dict(result.resizes),
        "backtest": result.backtest and as_dict(result.backtest),
        "profile": as_dict(result.profile),
        "warnings": list(result.warnings),
    }
