"""A simulated run as it is told: its figures, its metrics in tables, and which of its steps count."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from typing import Any

from msgspec import Struct
from numpy.typing import NDArray

from fleetsim import units
from fleetsim.config.scenario import Scenario
from fleetsim.engine.kernel.tables import G_TRAINED
from fleetsim.engine.prices import prices_of
from fleetsim.estimates import Estimate
from fleetsim.job.assumptions import Assumption
from fleetsim.job.engine_source import EngineSource
from fleetsim.job.input_moves import MetricRanges
from fleetsim.quantities import CATALOGUE, RARE, RARE_METRICS, Quantity, quantity
from fleetsim.search.change import Change
from fleetsim.sim.records import Records
from fleetsim.sim.run import BEGINNING
from fleetsim.sim.window import least_warmup_steps, warmup_steps
from fleetsim.tell.document import Table, estimated

# What a terminal shows of the metrics, in reading order.
_MAIN = (
    "step_s",
    "trainer_idle_fraction",
    "sync_fraction",
    "switch_fraction",
    "not_training_fraction",
    "rollout_idle_fraction",
    "rollout_utilization",
    "prefill_busy_fraction",
    "lent_fraction",
    "generated_tok_s",
    "instance_tok_s",
    "completions_per_s",
    "iterations_per_day",
    "goodput",
    "cost_per_step",
    "kv_use",
    "preemptions",
)
# Of use to some placements only: shown when they are anything.
_RARE = ("switch_fraction", "lent_fraction", "prefill_busy_fraction")


class RunView(Struct, frozen=True):
    """What is told of a run.

    metrics: flat, dotted names. steps, staleness_steps: of the first replication. profile: what the engine's speed
    rests on. warmups: steps left out of the metrics, by replication. assumed: defaults and what the scenario calls
    assumed. ranges: how far it may be off, None where no input is in doubt. change: the one that saves most; allow:
    what would save more, if the recipe allowed it. enough: the fewer instances that do, where the fleet makes more than
    the trainer takes. on_demand: step and cost over those of the same fleet without its spot machines.
    """

    scenario: Scenario
    metrics: Mapping[str, Estimate]
    binding: str
    replications: int
    steps: NDArray[Any]
    staleness_steps: NDArray[Any]
    profile: EngineSource
    warmups: tuple[int, ...]
    assumed: tuple[Assumption, ...]
    ranges: MetricRanges | None = None
    change: Change | None = None
    allow: Change | None = None
    enough: int | None = None
    on_demand: tuple[float, float] | None = None


def trained_staleness(records: Records) -> NDArray[Any]:
    """Staleness in steps of every trained group of a run: the step that trained it - updates in its weights."""
    groups = records.groups[records.groups["status"] == G_TRAINED]
    age: NDArray[Any] = groups["trained_step"] - records.updates[groups["version"]]
    return age


def main_metrics(view: RunView) -> Table:
    """The main metrics, with intervals where the run was replicated."""
    names = (*_MAIN, *RARE_METRICS)
    shown = [quantity(name) for name in names if _says_something(view, name)]
    price = {"cost_per_step": f", {price_words(view.scenario)}"}
    rows = tuple((q.title + price.get(q.name, ""), estimated(view.metrics[q.name], q.unit)) for q in shown)
    return Table("", ("", ""), rows, left=2)


def _says_something(view: RunView, name: str) -> bool:
    """Whether a metric is known, and more than nothing where only some placements have it."""
    return name in view.metrics and not (name in _RARE and view.metrics[name].mean == 0.0)


def price_words(s: Scenario) -> str:
    """What a cost rests on: "at $3 a GPU-hour", or the prices of both pools."""
    prices = prices_of(s)
    if prices.rollout == prices.trainer:
        return f"at {units.price(prices.rollout)} a GPU-hour"
    return f"at {units.price(prices.rollout)} a rollout and {units.price(prices.trainer)} a trainer GPU-hour"


def every_metric(view: RunView) -> Table:
    """All metrics with their intervals."""
    once = view.replications == 1
    headings = ("metric", "value") if once else ("metric", "mean", "95 % of seeds")
    rows = tuple((units.capital(m.title), *units.mean_and_ends(view.metrics[m.name], m.unit)) for m in _shown(view))
    means = "" if once else f"Means over {units.plural(view.replications, 'replication')}, "
    note = units.capital(f"{means}of the steps after warm-up.")
    return Table("metrics", headings, tuple(row[: len(headings)] for row in rows), note=note)


def formulas(view: RunView) -> Table:
    """How each of them is computed."""
    rows = tuple((units.capital(m.title), m.formula) for m in _shown(view))
    return Table("how each metric is computed", ("metric", "computed as"), rows, left=2, open=False)


def _shown(view: RunView) -> list[Quantity]:
    return [m for m in (*CATALOGUE, *RARE) if _says_something(view, m.name)]


def published(view: RunView) -> Table | None:
    """The published outcome beside the prediction, where the scenario has one."""
    p, s = view.scenario.published, view.scenario
    if p is None:
        return None
    rows: list[tuple[str, ...]] = []
    if p.step_s is not None:
        predicted = view.metrics["step_s"].mean
        rows.append(("step", units.seconds(predicted), units.seconds(p.step_s), f"{predicted / p.step_s:.2f}"))
    if p.tok_s_per_gpu is not None:
        predicted = view.metrics["generated_tok_s"].mean / (s.fleet.instances * s.engine.gpus)
        ratio = f"{predicted / p.tok_s_per_gpu:.2f}"
        rows.append(("tok/s per rollout GPU", units.number(predicted), units.number(p.tok_s_per_gpu), ratio))
    if p.bottleneck is not None:
        rows.append(("what binds", view.binding, p.bottleneck, ""))
    headings = ("", "predicted", "published", "ratio")
    return Table("predicted and published", headings, tuple(rows), note=p.note or "")


def warmups_of(runs: Sequence[Records]) -> tuple[int, ...]:
    """Steps that are left out of the metrics of each run, from its first on."""
    return tuple(warmup_steps(run.scenario, run.steps["end_s"] - run.steps["start_s"]) for run in runs)


def counted_words(warmups: Sequence[int], steps: int) -> str:
    """ "counted: steps 15 to 29 (the rest is warm-up)"; where replications differ, from when on each counts. steps: of
    the first replication."""
    first, last = warmups[0], steps - 1
    if not any(warmups):
        return "counted: all steps (no warm-up)"
    low, high = min(warmups), max(warmups)
    others = "" if low == high else f", {low} to {high} steps by replication"
    return f"counted: steps {first} to {last} (the rest is warm-up{others})"


def unsettled(runs: Sequence[Records]) -> tuple[str, ...]:
    """A warning where a run was over before it had settled: it begins with a long swing that its metrics leave out, and
    that a run of its own length, or a shorter one, has."""
    for run, first in zip(runs, warmups_of(runs), strict=True):
        step_s, floor = run.steps["end_s"] - run.steps["start_s"], least_warmup_steps(run.scenario)
        if first - floor > BEGINNING * len(step_s):
            before, after = (units.seconds(float(part.mean())) for part in (step_s[floor:first], step_s[first:]))
            return (
                f"the run settles late: steps {floor} to {first - 1} of {len(step_s)} are left out, in which a step "
                f"takes {before} instead of {after}; a run of a few hundred steps may show either",
            )
    return ()


def early_events(scenario: Scenario, warmups: Sequence[int]) -> tuple[str, ...]:
    """A warning for each event of the warm-up: no counted step was there before it, so no metric shows what it did.

    An event at step 0 is how a run begins: there is no before.
    """
    found = []
    for event in scenario.run.events:
        hidden = sum(event.step < first for first in warmups)
        if not event.step or not hidden:
            continue
        what = ", ".join(f"{k} {v:g}" for k, v in event.model_dump(exclude_none=True).items() if k != "step")
        where = "the warm-up" if hidden == len(warmups) else f"the warm-up of {hidden} of {len(warmups)} replications"
        found.append(
            f"run.events: step {event.step} ({what}) is in {where}, so the metrics do not show what it did; let it "
            "happen later, or count from an earlier step with --set run.warmup_steps=N"
        )
    return tuple(found)
