"""A simulated run, told: what binds, its metrics, where each second of a step went, the queue, the waste.

A terminal has the run in characters, a page in pictures, with every metric and how it is computed.
"""

from __future__ import annotations

from collections.abc import Iterator

from fleetsim import units
from fleetsim.config.scenario import Scenario
from fleetsim.engine.transport import sync_times, sync_words
from fleetsim.job import words
from fleetsim.job.assumptions import assumed_values, short
from fleetsim.job.brief import (
    Spans,
    assumed_line,
    fate_of_samples,
    idle_words,
    losses_line,
    ranged,
    regime_line,
    surplus_line,
    swing_line,
)
from fleetsim.job.caveats import backlog_line
from fleetsim.job.engine_choices import BUSY, engine_words, side_words
from fleetsim.job.grounds import how_sure, observed_line, rests_on
from fleetsim.job.trainer_scaling import gpus_each
from fleetsim.job.words import Binding, binding_words
from fleetsim.quantities import quantity
from fleetsim.sim.engines import speculation_of
from fleetsim.sim.records import Records
from fleetsim.simulate.counted_steps import counted_words
from fleetsim.simulate.pictures import over_time
from fleetsim.simulate.run_view import RunView, every_metric, formulas, main_metrics, price_words, published
from fleetsim.simulate.text_pictures import queue, time_legend, time_split, waste
from fleetsim.tell.document import Brief, Document, Section, brief, figure, page_only, present, terminal_only

_MOST_DEFAULTS = 6
# Figures above the pictures of a page.
_TILES = (
    "step_s",
    "trainer_idle_fraction",
    "not_training_fraction",
    "rollout_utilization",
    "staleness_steps.p99",
    "goodput",
    "cost_per_step",
)


def document(view: RunView, warnings: tuple[str, ...] = (), run: Records | None = None) -> Document:
    """What `simulate` says. run: the first replication, for the pictures of a page; None without a page.

    Raises ValueError for a run whose activity was not recorded.
    """
    outcome = published(view)
    wasted = quantity("tokens_per_trained_token").title
    return Document(
        kind="fleetsim simulate",
        title=view.scenario.name,
        headline=headline(view),
        brief=brief_of(view),
        lede=(terminal_only(*_opening(view)), page_only(*_lede(view))),
        tiles=tuple(figure(name, view.metrics[name], _spans(view)) for name in _TILES if name in view.metrics),
        warnings=warnings,
        sections=(
            *(() if run is None else (over_time(run, view.metrics, "The run"),)),
            Section(
                "Every metric",
                (terminal_only(main_metrics(view)), page_only(every_metric(view), formulas(view), outcome)),
                short="metrics",
            ),
            Section("predicted and published", present(outcome), on=("terminal",)),
            Section(f"where the seconds go ({time_legend(view.steps)})", (time_split(view.steps),), on=("terminal",)),
            Section(
                "queue by step, staleness of the trained samples by age",
                (queue(view.steps, view.staleness_steps, view.metrics),),
                on=("terminal",),
            ),
            Section(wasted, waste(view.metrics), on=("terminal",)),
            *(() if view.ranges is None else (how_sure(view.ranges),)),
            rests_on(view.profile, view.assumed, "Every value that bears on the run was given."),
        ),
    )


def headline(view: RunView) -> str:
    """The answer in one sentence: how long a step takes, with its range."""
    step = ranged("step_s", view.metrics["step_s"].mean, _spans(view))
    wide = ", a wide range" if view.ranges is not None and view.ranges.wide else ""
    return f"{view.scenario.name}: a step takes {step}{wide}."


def brief_of(view: RunView) -> Brief:
    """What one must know of a run; its headline is the answer."""
    s, ranges, binding = view.scenario, view.ranges, _binding(view)
    return brief(
        ("fleet", _fleet_words(s)),
        ("idle", _idle(view)),
        ("cost", _cost(view)),
        ("age", regime_line(view.metrics)),
        ("lost", losses_line(view.metrics, s)),
        ("backlog", backlog_line(s, view.metrics)),
        ("binds", binding.name),
        ("supply", surplus_line(view.enough)),
        ("change", binding.lift if view.change is None else view.change.words_in(gpus_each(s))),
        ("observed", observed_line(s)),
        ("assumed", assumed_line(s, view.assumed, () if ranges is None else [part.path for part in ranges.parts])),
        ("measure", None if ranges is None else swing_line(ranges)),
        tone="unsure" if ranges is not None and ranges.wide else "good",
    )


def _spans(view: RunView) -> Spans:
    return None if view.ranges is None else view.ranges.metrics


def _idle(view: RunView) -> str:
    rollout = view.metrics["rollout_idle_fraction"].mean
    trainer = idle_words(lambda name: view.metrics[name].mean, _spans(view))
    return f"the trainer {trainer}, instances {units.share(rollout)}"


def _cost(view: RunView) -> str:
    cost = ranged("cost_per_step", view.metrics["cost_per_step"].mean, _spans(view))
    return f"{cost} a step, {price_words(view.scenario)}"


def warm_up(view: RunView) -> Document:
    """What a terminal shows of a run that was cut off in its warm-up: the steps as they were, no metric."""
    return Document(
        kind="fleetsim simulate",
        title="",
        lede=(),
        tiles=(),
        warnings=(),
        sections=(
            Section(f"where the seconds went ({time_legend(view.steps)})", (time_split(view.steps),)),
            Section("accuracy", (words.profile(view.profile),)),
        ),
    )


def _fleet_words(s: Scenario) -> str:
    return (
        f"{units.plural(s.fleet.instances, 'instance')} ({words.instance_words(s)}), "
        f"{units.plural(s.trainer.gpus, 'trainer GPU')}, {s.trainer.batch_samples:,} samples per step"
    )


def _length_words(view: RunView) -> str:
    """ "40 steps, 5 replications, seed 0"."""
    s, runs = view.scenario, units.plural(view.replications, "replication")
    return f"{units.plural(len(view.steps), 'step')}, {runs}, seed {s.run.seed}"


def _binding(view: RunView) -> Binding:
    s, idle = view.scenario, view.metrics["trainer_idle_fraction"].mean
    return binding_words(view.binding, s.admission.law, s.sync.scope, s.fleet.in_flight_unit, idle)


def _binds(view: RunView) -> str:
    return words.binds(_binding(view))


def _opening(view: RunView) -> Iterator[str]:
    """For a terminal: what ran, what its transport made of a weight sync, what nobody measured, and what binds."""
    transport = sync_words(sync_times(view.scenario))
    assumed = ", ".join(f"{path} = {short(value)}" for path, value in assumed_values(view.scenario).items())
    yield _length_words(view)
    yield counted_words(view.warmups, len(view.steps))
    yield units.capital(transport) if transport else ""
    yield f"Assumed, not measured: {assumed}" if assumed else ""
    yield _binds(view)
    yield _drafts(view)
    yield _sides(view)
    yield defaults_words(view)


def _lede(view: RunView) -> Iterator[str]:
    """For a page: the same, where nothing else tells it."""
    transport = sync_words(sync_times(view.scenario))
    yield f"{_fleet_words(view.scenario)}; {_length_words(view)}; {counted_words(view.warmups, len(view.steps))}."
    yield _binds(view)
    yield from fate_of_samples(view.metrics, view.scenario)
    yield units.sentence(f"supply: {supply}") if (supply := surplus_line(view.enough)) else ""
    yield _drafts(view)
    yield _sides(view)
    yield units.sentence(transport) if transport else ""


def _drafts(view: RunView) -> str:
    """What speculative decoding brings an instance at this load."""
    return engine_words(view.scenario) if speculation_of(view.scenario) is not None else ""


def _sides(view: RunView) -> str:
    """What a disaggregated instance consists of, and how busy its prefill engines are."""
    return side_words(view.scenario, view.metrics[BUSY].mean) if view.scenario.engine.disaggregation else ""


def defaults_words(view: RunView) -> str:
    """ "9 values are defaults: engine.dtype, ... and 3 more"; without those that the scenario itself calls assumed."""
    called = assumed_values(view.scenario)
    paths = [a.path for a in view.assumed if a.path not in called]
    if not paths:
        return ""
    more = len(paths) - _MOST_DEFAULTS
    shown = ", ".join(paths[:_MOST_DEFAULTS]) + (f" and {more} more (--html names them)" if more > 0 else "")
    return f"{units.plural(len(paths), 'value')} {'is a default' if len(paths) == 1 else 'are defaults'}: {shown}"
