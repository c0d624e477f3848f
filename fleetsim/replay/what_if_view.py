"""The terminal view of another fleet on the same history: one change, a sweep, the recommendation."""

from __future__ import annotations

from collections.abc import Iterator, Mapping
from typing import Any

from rich.console import Group, RenderableType
from rich.padding import Padding
from rich.table import Table
from rich.text import Text

from fleetsim import units
from fleetsim.estimates import Estimate
from fleetsim.job.words import target
from fleetsim.quantities import quantity
from fleetsim.replay.answers import Answers
from fleetsim.replay.change.extrapolation import Extrapolated
from fleetsim.replay.change.recommend import Recommendation
from fleetsim.replay.change.verify import Verification
from fleetsim.replay.change.what_if import Sweep, WhatIf
from fleetsim.tell.terminal import grid, with_interval

_PROMISED = ("step_s", "trainer_idle_fraction", "rollout_idle_fraction", "staleness_steps.p99", "cost_per_step")
_SWEPT = (
    "step_s",
    "trainer_idle_fraction",
    "rollout_idle_fraction",
    "queue_depth",
    "staleness_steps.p99",
    "cost_per_step",
)


def what_if_view(answer: WhatIf) -> Group:
    """Before and after, metric by metric; what does not differ by more than chance is said to be so."""
    table = grid("", "now", "then", "ratio", align=("left", "right", "right", "left"))
    for effect in answer.effects:
        q = quantity(effect.metric)
        table.add_row(
            q.title,
            _estimate(effect.before, q.unit),
            _estimate(effect.after, q.unit),
            Text(_ratio(effect.ratio)) if effect.changed else Text("no significant change", style="dim"),
        )
    lines: list[RenderableType] = [Text(changes_words(answer.changes), style="bold"), table]
    before, after = (binds.replace("_", " ") for binds in answer.binding)
    lines.append(Text(f"What binds: {before}" + (f", then {after}" if after != before else ", then as before")))
    lines += _beyond(answer.extrapolated)
    lines += [Text(f"note: {note}") for note in answer.notes]
    return Group(*lines)


def _beyond(found: Extrapolated | None) -> list[RenderableType]:
    return [] if found is None else [Text(f"note: {found.text}")]


def changes_words(changes: Mapping[str, Any]) -> str:
    """ "fleet.instances = 10, sync.every_steps = 2"."""
    return ", ".join(f"{path} = {value}" for path, value in changes.items()) or "nothing to change"


def _estimate(estimate: Estimate, how: units.Unit = "share") -> Text:
    """With its interval, unless that is nothing beside it: rounding, not chance."""
    if estimate.ci_high - estimate.ci_low < 1e-6 * abs(estimate.mean):
        estimate = Estimate(estimate.mean, estimate.mean, estimate.mean)
    return with_interval(estimate, how)


def _ratio(ratio: Estimate) -> str:
    half = units.half_width(ratio)
    return f"{ratio.mean:.3f}" + (f" ±{half:.3f}" if half > 0 else "")


def sweep_view(answer: Sweep) -> Group:
    """A row a value, the present one marked, and with a star those at loads that the window never saw."""
    # The key is in the section's title; its last word as a heading would be cut where it is long.
    table = grid("", "value", *(quantity(name).heading for name in _SWEPT), "binds")
    stuck: list[RenderableType] = []
    for point in answer.points:
        mark = ">" if point.value == answer.now else ""
        if point.estimates is None:
            table.add_row(mark, str(point.value), *("-",) * len(_SWEPT), "stuck")
            stuck.append(Text(f"{answer.key} = {point.value}: {point.stuck}", style="dim"))
            continue
        cells = [_cell(name, point.estimates[name]) for name in _SWEPT]
        value = f"{point.value}{'*' if point.extrapolated is not None else ''}"
        table.add_row(mark, value, *cells, (point.binding or "").replace("_", " "), style="bold" if mark else "")
    lines: list[RenderableType] = [table, *stuck]
    lines += _said(answer)
    if all(point.value != answer.now for point in answer.points):
        lines.append(Text(f"now {answer.key} = {answer.now}", style="dim"))
    return Group(*lines)


def _said(answer: Sweep) -> list[RenderableType]:
    """The notes of the points: each once, with the values that it is of."""
    lines: list[RenderableType] = []
    beyond = [(p.value, p.extrapolated) for p in answer.points if p.extrapolated is not None]
    if beyond:
        (low, high), speed = beyond[0][1].seen, beyond[0][1].speed
        loads = ", ".join(f"{found.running:,.0f} at {value}" for value, found in beyond)
        text = f"* extrapolated: the window saw {low:,.0f} to {high:,.0f} requests running per instance, not {loads}"
        lines.append(Text(f"{text}; {speed}"))
    notes: dict[str, list[str]] = {}
    for point in answer.points:
        for note in point.notes:
            notes.setdefault(note, []).append(str(point.value))
    return [*lines, *(Text(f"note: at {', '.join(values)} {note}") for note, values in notes.items())]


def _cell(metric: str, estimate: Estimate) -> Text:
    how = quantity(metric).unit
    if how == "share":
        return _estimate(estimate)
    return Text(f"{estimate.mean:,.1f}" if how == "seconds" else units.number(estimate.mean))


def recommendation_view(answers: Answers) -> Group:
    """The count, what it is predicted to do, the queue's cap, the patch and the way back."""
    found, plan = answers.recommendation, answers.plan
    assert found is not None
    lines: list[RenderableType] = [Text(recommendation_words(found), style="bold"), promised(found)]
    lines += [Text(sentence) for sentence in recommendation_notes(found)]
    if answers.patch is not None and found.resized:
        lines.append(Text("patch:", style="dim"))
        lines.append(Padding(Text(answers.patch.yaml.rstrip()), (0, 0, 0, 2)))
        lines.append(Text(f"apply:    {answers.patch.command}"))
    if plan is not None:
        back = plan.rollback.command or f"set the instances back to {plan.rollback.instances} (as recorded)"
        lines.append(Text(f"rollback: {back}"))
    if answers.patch is None and found.resized:
        lines.append(Text("--patch FILE --deployment NAME writes it as a patch", style="dim"))
    return Group(*lines)


def withheld_words(answers: Answers) -> Iterator[str]:
    """Why nothing is recommended, and what the fleet would be once that is mended."""
    held, then = answers.withheld, answers.then
    assert held is not None
    yield f"Nothing is recommended now: {held.why}."
    if then is not None:
        others = {path: value for path, value in then.changes.items() if path != "fleet.instances"}
        than = f" instead of {then.was:,}" if then.resized else ", as now"
        count = f"{units.plural(then.instances, 'instance')}{than}"
        yield f"Then {count}, simulated with {changes_words(others)}: size it anew from a window after the change."
    elif held.first:
        yield "Then size the fleet anew, from a window after the change."


def withheld_view(answers: Answers) -> Group:
    """The same in the terminal."""
    first, *more = withheld_words(answers)
    return Group(Text(first, style="bold"), *(Text(line) for line in more))


def recommendation_notes(found: Recommendation) -> Iterator[str]:
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


def promised(found: Recommendation) -> Table:
    """What the fleet as it is does, and what the recommended one is predicted to do."""
    others = any(path != "fleet.instances" for path in found.changes)
    table: Table = grid(
        "", f"{found.was:,} instances" if others else "now", "recommended", align=("left", "right", "right")
    )
    for metric in _PROMISED:
        if metric in found.now and metric in found.predicted:
            q = quantity(metric)
            table.add_row(q.title, _estimate(found.now[metric], q.unit), _estimate(found.predicted[metric], q.unit))
    return table


def recommendation_words(found: Recommendation) -> str:
    """One sentence; the other changes that it is for come first."""
    others = {path: value for path, value in found.changes.items() if path != "fleet.instances"}
    start = f"With {changes_words(others)}: " if others else ""
    if not found.resized:
        return f"{start}{units.plural(found.was, 'instance')}, as now."
    return f"{start}{units.plural(found.instances, 'instance')} instead of {found.was:,}."


def verification_view(found: Verification) -> Group:
    """The runbook's list, item by item, and what to do when one does not hold."""
    table = grid("", "", "", align=("left", "left", "left"))
    for check in found.checks:
        mark = {"ok": "ok", "failed": "FAILED", "unknown": "?"}[check.state]
        table.add_row(mark, check.name.replace("_", " "), check.text, style="bold" if check.state == "failed" else "")
    unknown = sum(check.state == "unknown" for check in found.checks)
    failed = f"{len(found.failed)} of {len(found.checks)} items do not hold."
    held = "Everything that could be checked holds." if found.ok else failed
    lines: list[RenderableType] = [Text(held, style="bold"), table]
    if unknown:
        lines.append(Text(f"{unknown} not known: what nobody exports cannot be verified", style="dim"))
    lines += [Text(f"the plan itself misses the target: {miss}") for miss in found.missed]
    lines += [Text(f"but: {warning}") for warning in found.warnings]
    if found.next is not None:
        lines.append(Text.assemble("next: ", (found.next, "bold")))
    return Group(*lines)
