"""Another fleet on the same history, told: one change, a sweep, the recommendation; and whether a change held."""

from __future__ import annotations

import shlex
from collections.abc import Iterable, Iterator, Mapping, Sequence
from typing import Any

from fleetsim import units
from fleetsim.estimates import Estimate
from fleetsim.job.words import target
from fleetsim.quantities import quantity
from fleetsim.replay.answers import Answers
from fleetsim.replay.change.recommendation import AdvisedFleet
from fleetsim.replay.change.verification import Verification
from fleetsim.replay.change.what_if import KeyPoint, KeySweep, WhatIf
from fleetsim.replay.diagnose.finding import Withheld
from fleetsim.replay.model_pictures import swept_charts
from fleetsim.replay.words import changes_words
from fleetsim.size.pictures import curves
from fleetsim.tell.charts.chart import Chart
from fleetsim.tell.document import (
    Block,
    Cell,
    Listed,
    NextLines,
    Section,
    Table,
    Verbatim,
    Words,
    estimated,
    followed,
    page_only,
    pair,
    present,
    terminal_only,
)

_COUNT = "fleet.instances"
_PROMISED = ("step_s", "trainer_idle_fraction", "rollout_idle_fraction", "staleness_steps.p99", "cost_per_step")
_SWEPT = (
    "step_s",
    "trainer_idle_fraction",
    "rollout_idle_fraction",
    "queue_depth",
    "staleness_steps.p99",
    "cost_per_step",
)
_LEAST = tuple(quantity(name).heading for name in ("queue_depth", "rollout_idle_fraction", "staleness_steps.p99"))


def fleets_sections(answers: Answers, drawn: bool) -> Iterator[Section]:
    """What was asked beyond the diagnosis. drawn: with charts, for a page."""
    advised = answers.recommendation
    if answers.what_if is not None:
        yield what_if_section(answers.what_if)
    if answers.sweep is not None:
        changes = {} if answers.what_if is None else answers.what_if.changes
        yield _sweep_section(answers.sweep, changes, swept_charts(answers.sweep, advised) if drawn else ())
    blocks: tuple[Block, ...] = ()
    if advised is not None:
        blocks = (*recommendation_blocks(advised, answers), *(_candidates(advised) if drawn else ()))
    elif answers.withheld is not None:
        blocks = tuple(withheld_blocks(answers.withheld, answers.then))
    yield Section("Recommendation", blocks, short="recommendation")


def simulated_again(answers: Answers, advice: Sequence[Mapping[str, Any]]) -> Section:
    """The commands that simulate what is advised, each with its promise; without the job's file, how to get it."""
    if advice:
        told = []
        for a in advice:
            step, usd = (a["promise"][name] for name in ("step_s", "cost_per_step"))
            took = f"a step of {units.seconds(step['low'])} to {units.seconds(step['high'])}"
            cost = f"{units.money(usd['low'])} to {units.money(usd['high'])}"
            told.append((shlex.join(a["command"]), f"{a['what']}: {took}, {cost}"))
        return Section("To simulate it", (Listed(tuple(told), code=True),), short="to simulate it")
    asked = answers.recommendation is not None or answers.what_if is not None
    needs = "--job-out FILE writes the job of this window; fleetsim simulate FILE then runs what is told above"
    return Section("to simulate it", (Words(tail=needs),) if asked else (), on=("terminal",))


def what_if_section(answer: WhatIf) -> Section:
    """Before and after, metric by metric; what does not differ by more than chance is said to be so."""
    changes = changes_words(answer.changes)
    rows: list[tuple[Cell, ...]] = []
    for effect in answer.effects:
        q, half = quantity(effect.metric), units.half_width(effect.ratio)
        ratio = f"{effect.ratio.mean:.3f}" + (f" ±{half:.3f}" if half > 0 else "")
        told = ratio if effect.changed else Words(tail="no significant change")
        rows.append((q.title, _estimate(effect.before, q.unit), _estimate(effect.after, q.unit), told))
    table = Table(f"with {changes}", ("", "now", "then", "ratio"), tuple(rows), words_last=1)
    before, after = (binds.replace("_", " ") for binds in answer.binding)
    beyond = () if answer.extrapolated is None else (answer.extrapolated.text,)
    lines = (
        *_next(answer),
        f"What binds: {before}, then {after if after != before else 'as before'}",
        *(f"note: {note}" for note in (*beyond, *answer.notes)),
    )
    draws = page_only("Before and after under the same draws; intervals are of 95 %.")
    blocks = (terminal_only(Words(changes, strong=True)), draws, *followed(table, *lines))
    return Section("What if", blocks, short="what if (same draws before and after)")


def _next(answer: WhatIf) -> Iterator[str]:
    """The step of the changed run, from the one that was logged."""
    step = answer.next
    if step is not None:
        ends = f"{units.seconds(step.low)} to {units.seconds(step.high)} in eight of ten cases"
        then, now = units.seconds(step.step_s), units.seconds(step.observed)
        yield f"The next run's step: {then} ({ends}), from the {now} observed"


def _estimate(estimate: Estimate, how: units.Unit) -> Words:
    """With its interval, unless that is nothing beside it: rounding, not chance."""
    if estimate.ci_high - estimate.ci_low < 1e-6 * abs(estimate.mean):
        estimate = Estimate(estimate.mean, estimate.mean, estimate.mean)
    return estimated(estimate, how)


def _sweep_section(answer: KeySweep, changes: Mapping[str, Any], charts: Iterable[Chart]) -> Section:
    """A row a value, the present one marked, and with a star those at loads that the window never saw."""
    others = {path: value for path, value in changes.items() if path != answer.key}
    beside = f" with {changes_words(others)}" if others else ""
    # The key is in the section's title; its last word as a heading would be cut where it is long.
    table = Table(
        f"values of {answer.key}{beside} (> now)",
        ("", "value", *(quantity(name).heading for name in _SWEPT), "binds"),
        tuple(_point(point, point.value == answer.now) for point in answer.points),
        left=0,
        marked=frozenset(i for i, point in enumerate(answer.points) if point.value == answer.now and not point.stuck),
    )
    title, short = f"What if: {answer.key}", f"what if, over {answer.key}{beside} (> now)"
    return Section(title, (*followed(table.narrowing(*_LEAST), *_below(answer)), *present(pair(*charts))), short=short)


def _point(point: KeyPoint, now: bool) -> tuple[Cell, ...]:
    mark = ">" if now else ""
    if point.estimates is None:
        return mark, str(point.value), *("-",) * len(_SWEPT), "stuck"
    cells: list[Cell] = []
    for name in _SWEPT:
        how, estimate = quantity(name).unit, point.estimates[name]
        plain = f"{estimate.mean:,.1f}" if how == "seconds" else units.number(estimate.mean)
        cells.append(_estimate(estimate, how) if how == "share" else plain)
    value = f"{point.value}{'*' if point.extrapolated is not None else ''}"
    return mark, value, *cells, (point.binding or "").replace("_", " ")


def _below(answer: KeySweep) -> Iterator[Cell]:
    """Why a value has no figures, and the notes of the points: each once, with the values that it is of."""
    for point in answer.points:
        if point.estimates is None:
            yield Words(tail=f"{answer.key} = {point.value}: {point.stuck}")
    beyond = [(p.value, p.extrapolated) for p in answer.points if p.extrapolated is not None]
    if beyond:
        (low, high), speed = beyond[0][1].seen, beyond[0][1].speed
        loads = ", ".join(f"{found.running:,.0f} at {value}" for value, found in beyond)
        seen = f"the window saw {low:,.0f} to {high:,.0f} requests running per instance"
        yield f"* extrapolated: {seen}, not {loads}; {speed}"
    notes: dict[str, list[str]] = {}
    for point in answer.points:
        for note in point.notes:
            notes.setdefault(note, []).append(str(point.value))
    yield from (f"note: at {', '.join(values)} {note}" for note, values in notes.items())
    if all(point.value != answer.now for point in answer.points):
        yield Words(tail=f"now {answer.key} = {answer.now}")


def recommendation_blocks(found: AdvisedFleet, answers: Answers) -> tuple[Block, ...]:
    """The count, what it is predicted to do, the queue's cap, the patch and the way back."""
    plan, patch = answers.plan, answers.patch if found.resized else None
    change: tuple[Block, ...] = ()
    if patch is not None:
        yaml = Verbatim(patch.yaml.rstrip())
        change = (terminal_only(Words(tail="patch:")), yaml, NextLines("apply: ", patch.command))
    back = None
    if plan is not None:
        way = plan.rollback.command or f"set the instances back to {plan.rollback.instances} (as recorded)"
        back = NextLines("rollback: ", way)
    unpatched = found.resized and patch is None
    return present(
        Words(_count_words(found), strong=True),
        _promised(found),
        *_notes(found),
        *change,
        back,
        terminal_only(Words(tail="--patch FILE --deployment NAME writes it as a patch")) if unpatched else None,
    )


def _candidates(found: AdvisedFleet) -> tuple[Block, ...]:
    """The fleets that the recommendation was chosen among, and the one that is there."""
    trials = {trial.instances: trial for trial in (found.as_is, *found.size.candidates)}
    each = [trials[count] for count in sorted(trials)]
    return present(*curves(found.size, each, 0, found.was)) if len(each) > 1 else ()


def _count_words(found: AdvisedFleet) -> str:
    """One sentence; the other changes that it is for come first."""
    others = _others(found)
    start = f"With {changes_words(others)}: " if others else ""
    if not found.resized:
        return f"{start}{units.plural(found.was, 'instance')}, as now."
    return f"{start}{units.plural(found.instances, 'instance')} instead of {found.was:,}."


def _others(found: AdvisedFleet) -> dict[str, Any]:
    return {path: value for path, value in found.changes.items() if path != _COUNT}


def _promised(found: AdvisedFleet) -> Table:
    """What the fleet as it is does, and what the recommended one is predicted to do."""
    there = (quantity(name) for name in _PROMISED if name in found.now and name in found.predicted)
    rows = tuple(
        (q.title, _estimate(found.now[q.name], q.unit), _estimate(found.predicted[q.name], q.unit)) for q in there
    )
    now = f"{found.was:,} instances" if _others(found) else "now"
    return Table("now and recommended", ("", now, "recommended"), rows)


def _notes(found: AdvisedFleet) -> Iterator[str]:
    """What is to be known beside the figures: the queue's cap, targets that no fleet holds, what binds, loads that the
    window never saw."""
    yield f"Queue: a cap of {units.count(found.queue_cap_samples)} samples costs next to no step time."
    if found.size.missed:
        missed = " and ".join(target(t.name, t.limit) for t in found.size.missed)
        yield f"No fleet holds {missed}; beyond this count, more instances cost more than they save."
    if found.size.explanation:
        yield found.size.explanation
    if found.extrapolated is not None:
        yield f"note: {found.extrapolated.text}"


def withheld_blocks(held: Withheld, then: AdvisedFleet | None) -> Iterator[Block]:
    """Why nothing is recommended, and what the fleet would be once that is mended."""
    yield Words(f"Nothing is recommended now: {held.why}.", strong=True)
    if then is not None:
        than = f" instead of {then.was:,}" if then.resized else ", as now"
        count, others = f"{units.plural(then.instances, 'instance')}{than}", changes_words(_others(then))
        yield f"Then {count}, simulated with {others}: size it anew from a window after the change."
    elif held.first:
        yield "Then size the fleet anew, from a window after the change."


def verification_blocks(found: Verification) -> tuple[Block, ...]:
    """The runbook's list, item by item, and what to do when one does not hold."""
    marks = {"ok": "ok", "failed": "FAILED", "unknown": "?"}
    table = Table(
        "the runbook's list",
        ("", "", ""),
        tuple((marks[check.state], check.name.replace("_", " "), check.text) for check in found.checks),
        left=3,
        marked=frozenset(i for i, check in enumerate(found.checks) if check.state == "failed"),
    )
    failed = f"{len(found.failed)} of {len(found.checks)} items do not hold."
    unknown = sum(check.state == "unknown" for check in found.checks)
    lines: list[Cell] = []
    if unknown:
        lines.append(Words(tail=f"{unknown} not known: what nobody exports cannot be verified"))
    lines += [f"the plan itself misses the target: {miss}" for miss in found.missed]
    lines += [f"but: {warning}" for warning in found.warnings]
    return present(
        Words("Everything that could be checked holds." if found.ok else failed, strong=True),
        table,
        *lines,
        None if found.next is None else NextLines("next: ", found.next, strong=True),
    )
