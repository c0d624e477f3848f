"""`fleetsim simulate --html`: what binds, the metrics with their intervals, and the run in pictures."""

from __future__ import annotations

from fleetsim import units
from fleetsim.engine.transport import sync_times, sync_words
from fleetsim.job import words
from fleetsim.quantities import CATALOGUE, Quantity
from fleetsim.sim.records import Records
from fleetsim.simulate.counted_steps import counted_words
from fleetsim.simulate.sections import over_time, rests_on
from fleetsim.simulate.told import RARE, RunView
from fleetsim.tell.document import Document, Section, Table, figure, present
from fleetsim.tell.page import document_page

# Figures above the pictures.
_TILES = (
    "step_s",
    "trainer_idle_fraction",
    "trainer_idle_with_sync_fraction",
    "rollout_utilization",
    "staleness_steps.p99",
    "goodput",
    "cost_per_step",
)


def run_page(view: RunView, run: Records, warnings: tuple[str, ...]) -> str:
    """The page. run: the first replication, with its activity recorded.

    Raises OutsideError where jinja2 or plotly is missing, ValueError for a run whose activity was not recorded.
    """
    return document_page(run_story(view, run, warnings))


def run_story(view: RunView, run: Records, warnings: tuple[str, ...]) -> Document:
    """What the page tells, in order."""
    s = view.scenario
    transport = sync_words(sync_times(s))
    lede = (
        f"{units.plural(s.fleet.instances, 'instance')} ({words.instance_words(s)}), "
        f"{units.plural(s.trainer.gpus, 'trainer GPU')}, {s.trainer.batch_samples:,} samples per step; "
        f"{units.plural(s.run.steps, 'step')}, {units.plural(view.replications, 'replication')}, seed {s.run.seed}; "
        f"{counted_words(s, view.warmups)}.",
        words.as_settings(words.binds(view.binding, s.admission.law, s.sync.scope, s.fleet.in_flight_unit)),
        units.sentence(transport) if transport else "",
    )
    return Document(
        kind="fleetsim simulate",
        title=s.name,
        lede=tuple(sentence for sentence in lede if sentence),
        tiles=tuple(figure(name, view.metrics[name]) for name in _TILES if name in view.metrics),
        warnings=warnings,
        sections=(
            over_time(run, view.metrics, "The run"),
            Section("Every metric", present(metrics_sheet(view), formulas_sheet(view), published_sheet(view))),
            rests_on(view.profile, view.assumed, "Every value that bears on the run was given."),
        ),
    )


def metrics_sheet(view: RunView) -> Table:
    """All metrics with their intervals."""
    once = view.replications == 1
    headings = ("metric", "value") if once else ("metric", "mean", "95 % interval")
    rows = tuple((units.capital(m.title), *units.mean_and_ends(view.metrics[m.name], m.unit)) for m in _shown(view))
    note = (
        "Of the steps after warm-up."
        if once
        else f"Means over {units.plural(view.replications, 'replication')}, of the steps after warm-up."
    )
    return Table("metrics", headings, tuple(row[: len(headings)] for row in rows), note=note)


def formulas_sheet(view: RunView) -> Table:
    """How each of them is computed."""
    rows = tuple((units.capital(m.title), m.formula) for m in _shown(view))
    return Table("how each metric is computed", ("metric", "computed as"), rows, left=2, open=False)


def _shown(view: RunView) -> list[Quantity]:
    """All metrics but those that are of use to some placements only, and nothing here."""
    known = view.metrics
    return [m for m in CATALOGUE if m.name in known and not (m.name in RARE and known[m.name].mean == 0.0)]


def published_sheet(view: RunView) -> Table | None:
    """The published outcome beside the prediction, where the scenario has one."""
    p, s = view.scenario.published, view.scenario
    if p is None:
        return None
    rows: list[tuple[str, ...]] = []
    if p.step_s is not None:
        predicted = view.metrics["step_s"].mean
        rows.append(("step", units.seconds(predicted), units.seconds(p.step_s), f"{predicted / p.step_s:.2f}"))
    if p.tok_s_per_gpu is not None:
        predicted = view.metrics["generated_tok_s"].mean / (s.fleet.instances * s.engine.tp)
        ratio = f"{predicted / p.tok_s_per_gpu:.2f}"
        rows.append(("tok/s per rollout GPU", units.number(predicted), units.number(p.tok_s_per_gpu), ratio))
    if p.bottleneck is not None:
        rows.append(("what binds", view.binding, p.bottleneck, ""))
    headings = ("", "predicted", "published", "ratio")
    return Table("predicted and published", headings, tuple(rows), note=p.note or "")
