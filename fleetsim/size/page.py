"""`fleetsim size --html`: the answer and why in words, what depends on the count, what else would help, its own run."""

from __future__ import annotations

from fleetsim import units
from fleetsim.job import words
from fleetsim.job.binding import binding_words
from fleetsim.job.rests_on import rests_on
from fleetsim.job.trials import Trial
from fleetsim.job.words import kind_of
from fleetsim.quantities import quantity
from fleetsim.sim.records import Records
from fleetsim.simulate.pictures import over_time
from fleetsim.size import words as told
from fleetsim.size.neighbours import Around
from fleetsim.size.pictures import headroom_chart, levers, why
from fleetsim.size.size import SizeResult
from fleetsim.size.targets import RULE
from fleetsim.tell.charts.chart import Chart
from fleetsim.tell.charts.curve import Curve, curve_chart
from fleetsim.tell.charts.parts import Mark
from fleetsim.tell.document import Block, Document, Listed, Section, Table, Tile, figure, pair, present
from fleetsim.tell.page import document_page


def size_page(result: SizeResult, around: Around, run: Records) -> str:
    """The page. around: fleets around the answer; run: the recommended fleet's, with its activity recorded.

    Raises OutsideError where jinja2 or plotly is missing, ValueError for a run whose activity was not recorded.
    """
    return document_page(size_story(result, around, run))


def size_story(result: SizeResult, around: Around, run: Records) -> Document:
    """What the page tells, in order."""
    headroom = told.headroom(result)
    arithmetic = told.arithmetic(result)
    fleet = units.plural(result.instances, "instance")
    of = result.recommended.estimates
    return Document(
        kind=kind_of("size", result.scenario),
        title=told.headline(result),
        lede=tuple(t for t in (units.sentence(told.verdict(result)), told.reach(result), told.way_out(result)) if t),
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
                present(units.sentence(headroom), headroom_chart(result), f"On paper: {arithmetic}."),
            ),
            Section("How long the queue may be", (units.sentence(told.queue(result)),)),
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
            Section("Next", (Listed(told.next_commands(result), code=True),)),
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
    return " ".join(part for part in (*parts, units.sentence(RULE)) if part)


_TILES = ("trainer_idle_fraction", "step_s", "cost_per_step", "staleness_steps.p99")


def _tiles(result: SizeResult) -> tuple[Tile, ...]:
    of = result.recommended.estimates
    s = result.scenario
    return (
        Tile("rollout instances", f"{result.instances:,}", words.instance_words(s)),
        *(figure(name, of[name]) for name in _TILES),
        Tile("queue cap, samples", f"{result.queue_cap.samples:,}", f"{_batches(result.queue_cap.steps)}"),
    )


def _batches(steps: float) -> str:
    return "one batch" if steps == 1 else f"{units.number(steps)} batches"


def _curves(result: SizeResult, around: Around) -> tuple[Block | None, ...]:
    """Idle over the whole width, step time and cost beside each other."""
    counts = [float(t.instances) for t in around.trials]
    runs = units.plural(result.scenario.run.replications, "replication")
    ends = (around.trials[0], around.trials[-1])
    limits = {t.metric: t for t in result.targets}

    def chart(id: str, metric: str, more: str = "") -> Chart:  # noqa: A002
        q, found = quantity(metric), limits.get(metric)
        targets = [] if found is None else [Mark(found.limit, f"target {words.target_value(found.name, found.limit)}")]
        curve = Curve(q.title, counts, [t.estimates[metric] for t in around.trials])
        return curve_chart(
            id, units.capital(q.title), f"{falls(metric, q.unit)}{more}", [curve], x_title="instances",
            y_title=q.title, how=q.unit, recommended=float(result.instances), targets=targets,
        )  # fmt: skip

    def falls(metric: str, how: units.Unit) -> str:
        first, last = (t.estimates[metric] for t in ends)
        here = result.recommended.estimates[metric]
        return (
            f"{units.with_ends(first, how)} with {ends[0].instances:,}, {units.with_ends(here, how)} with the "
            f"recommended {result.instances:,}, {units.with_ends(last, how)} with {ends[1].instances:,} instances."
        )

    stuck = ""
    if around.stuck:
        stuck = f" {units.plural(len(around.stuck), 'count')} cannot run: {', '.join(map(str, around.stuck))}."
    said = f" Whiskers and bands are 95 % intervals over {runs}, all under the same draws.{stuck}"
    idle = chart("idle", "trainer_idle_fraction", said)
    return idle, pair(chart("step", "step_s"), chart("cost", "cost_per_step"))


_COUNTED = (
    "trainer_idle_fraction",
    "trainer_idle_with_sync_fraction",
    "rollout_utilization",
    "step_s",
    "cost_per_step",
    "staleness_steps.p99",
    "goodput",
)
# Of these the figures have their intervals.
_WITH_INTERVAL = ("trainer_idle_fraction", "step_s", "cost_per_step")


def counts_sheet(result: SizeResult, around: Around) -> Table:
    """The same in figures."""

    def cell(trial: Trial, name: str) -> str:
        unit = quantity(name).unit
        if name in _WITH_INTERVAL:
            return units.with_ends(trial.estimates[name], unit)
        return units.written(trial.mean(name), unit)

    rows = tuple(
        (
            f"{t.instances:,}" + (" (recommended)" if t.instances == result.instances else ""),
            binding_words(t.binding).name,
            *(cell(t, name) for name in _COUNTED),
        )
        for t in around.trials
    )
    headings = ("instances", "what binds", *(quantity(name).title for name in _COUNTED))
    return Table("the same in figures", headings, rows, left=2)
