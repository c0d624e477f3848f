"""`fleetsim size --html`: the answer and why in words, what depends on the count, what else would help, its own run."""

from __future__ import annotations

from fleetsim import units
from fleetsim.plan.around import Around
from fleetsim.plan.binding import binding_words
from fleetsim.plan.size import SizeResult
from fleetsim.plan.targets import RULE
from fleetsim.report import words
from fleetsim.report.plan_pictures import headroom_chart, levers, why
from fleetsim.report.run_sections import kind_of, over_time, rests_on
from fleetsim.sim.records import Records
from fleetsim.tell.charts.chart import Chart
from fleetsim.tell.charts.curve import Curve, curve_chart
from fleetsim.tell.charts.parts import Mark, interval_words, with_interval
from fleetsim.tell.document import Block, Document, Listed, Section, Table, Tile, pair, present
from fleetsim.tell.page import document_page
from fleetsim.units import number


def size_page(result: SizeResult, around: Around, run: Records) -> str:
    """The page. around: fleets around the answer; run: the recommended fleet's, with its activity recorded.

    Raises OutsideError where jinja2 or plotly is missing, ValueError for a run whose activity was not recorded.
    """
    return document_page(size_story(result, around, run))


def size_story(result: SizeResult, around: Around, run: Records) -> Document:
    """What the page tells, in order."""
    headroom = words.headroom(result)
    arithmetic = words.arithmetic(result)
    fleet = words.plural(result.instances, "instance")
    of = result.recommended.estimates
    return Document(
        kind=kind_of("size", result.scenario),
        title=words.headline(result),
        lede=tuple(t for t in (_sentence(words.verdict(result)), words.reach(result), words.way_out(result)) if t),
        tiles=_tiles(result),
        warnings=result.warnings,
        sections=(
            Section("Why", present(why(result.binding, result.alternatives, of), targets_words(result))),
            Section("More or fewer instances", present(*_curves(result, around), counts_sheet(result, around))),
            Section(
                "What else would help",
                present(*levers(result.alternatives)),
            ),
            Section(
                "Where the headroom goes",
                present(_sentence(headroom), headroom_chart(result), f"On paper: {arithmetic}."),
            ),
            Section("How long the queue may be", (_sentence(words.queue(result)),)),
            over_time(
                run,
                result.recommended.estimates,
                f"The recommended fleet at work: {fleet}",
                "One of its simulated runs, the first replication, without a cap on the queue beyond the scenario's.",
                result.queue_cap.samples,
            ),
            rests_on(
                result.profile,
                result.assumptions,
                "Nothing was assumed: every value that matters was given.",
            ),
            Section("Next", (Listed(words.next_commands(result), code=True),)),
        ),
    )


def targets_words(result: SizeResult) -> str:
    """Which targets hold and which do not, with the figure that decides."""
    held, missed = [], []
    for target in result.targets:
        found = result.recommended.estimates[target.metric]
        said = "" if target.given else " (assumed)"
        text = f"{words.target(target.name, target.limit)}{said}"
        if target in result.missed:
            missed.append(f"{text}: it is {words.target_value(target.name, found.mean)}")
        else:
            held.append(f"{text}")
    parts = [f"Missed: {'; '.join(missed)}." if missed else "", f"Held: {'; '.join(held)}." if held else ""]
    return " ".join(part for part in (*parts, f"{RULE[:1].upper()}{RULE[1:]}.") if part)


def _tiles(result: SizeResult) -> tuple[Tile, ...]:
    of = result.recommended.estimates
    idle, step, cost = of["trainer_idle_fraction"], of["step_s"], of["cost_per_step"]
    s = result.scenario
    return (
        Tile("rollout instances", f"{result.instances:,}", words.instance_words(s)),
        Tile("trainer idle", units.share(idle.mean), interval_words(idle, "share")),
        Tile("optimizer step", units.seconds(step.mean), interval_words(step, "seconds")),
        Tile("cost per step", units.money(cost.mean), interval_words(cost, "money")),
        Tile("staleness p99, steps", number(of["staleness_steps.p99"].mean)),
        Tile("queue cap, samples", f"{result.queue_cap.samples:,}", f"{_batches(result.queue_cap.steps)}"),
    )


def _batches(steps: float) -> str:
    return "one batch" if steps == 1 else f"{number(steps)} batches"


def _curves(result: SizeResult, around: Around) -> tuple[Block | None, ...]:
    """Idle over the whole width, step time and cost beside each other."""
    counts = [float(t.instances) for t in around.trials]
    runs = words.plural(result.scenario.run.replications, "replication")
    ends = (around.trials[0], around.trials[-1])
    limits = {t.metric: t for t in result.targets}

    def chart(id: str, metric: str, title: str, y_title: str, how: str, said: str) -> Chart:  # noqa: A002
        limit = limits.get(metric)
        targets = [] if limit is None else [Mark(limit.limit, f"target {words.target_value(limit.name, limit.limit)}")]
        curve = Curve(y_title, counts, [t.estimates[metric] for t in around.trials])
        return curve_chart(
            id, title, said, [curve], x_title="instances", y_title=y_title, how=how,
            recommended=float(result.instances), targets=targets,
        )  # fmt: skip

    def falls(metric: str, how: str) -> str:
        first, last = (t.estimates[metric] for t in ends)
        here = result.recommended.estimates[metric]
        return (
            f"{with_interval(first, how)} with {ends[0].instances:,}, {with_interval(here, how)} with the recommended "
            f"{result.instances:,}, {with_interval(last, how)} with {ends[1].instances:,} instances."
        )

    stuck = ""
    if around.stuck:
        stuck = f" {words.plural(len(around.stuck), 'count')} cannot run: {', '.join(map(str, around.stuck))}."
    idle = chart(
        "idle", "trainer_idle_fraction", "Trainer idle", "trainer idle", "share",
        f"{falls('trainer_idle_fraction', 'share')} Whiskers and bands are 95 % intervals over {runs}, all under the "
        f"same draws.{stuck}",
    )  # fmt: skip
    step = chart("step", "step_s", "Step time", "seconds per step", "seconds", falls("step_s", "seconds"))
    cost = chart("cost", "cost_per_step", "Cost", "US dollars per step", "money", falls("cost_per_step", "money"))
    return idle, pair(step, cost)


def counts_sheet(result: SizeResult, around: Around) -> Table:
    """The same in figures."""
    rows = tuple(
        (
            f"{t.instances:,}" + (" (recommended)" if t.instances == result.instances else ""),
            binding_words(t.binding).name,
            with_interval(t.estimates["trainer_idle_fraction"], "share"),
            units.share(t.mean("trainer_idle_with_sync_fraction")),
            units.share(t.mean("rollout_utilization")),
            with_interval(t.estimates["step_s"], "seconds"),
            with_interval(t.estimates["cost_per_step"], "money"),
            number(t.mean("staleness_steps.p99")),
            number(t.mean("goodput")),
        )
        for t in around.trials
    )
    headings = (
        "instances",
        "what binds",
        "trainer idle",
        "with weight sync",
        "rollout utilization",
        "step",
        "cost per step",
        "staleness p99",
        "goodput",
    )
    return Table("the same in figures", headings, rows, left=2)


def _sentence(text: str) -> str:
    """A line of the terminal as a sentence."""
    return f"{text[:1].upper()}{text[1:]}{'' if text.endswith('.') else '.'}"
