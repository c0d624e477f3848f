"""`fleetsim validate --html`: the gates first, then every arm, then each case with its misses and why."""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from dataclasses import dataclass

from fleetsim.report.as_sheet import as_sheet
from fleetsim.report.validation_charts import error_chart, figures_chart
from fleetsim.report.validation_view import arms, gates
from fleetsim.report.validation_words import fit_words, gate_rows
from fleetsim.report.words import plural
from fleetsim.tell.document import Table
from fleetsim.tell.page import render
from fleetsim.validate.assumptions import STATED
from fleetsim.validate.verdict import CaseResult, summary

TITLE = "Published runs, predicted"


@dataclass(frozen=True, slots=True)
class Told:
    """A case in words. missed: (arm, why). readings: of arms that hold."""

    heading: str
    fit: str
    wrong_order: str
    missed: tuple[tuple[str, str], ...]
    readings: tuple[tuple[str, str], ...]
    reading: str
    assumed: tuple[str, ...]
    sources: str
    arms: Table


def validation_html(results: Sequence[CaseResult], of: int) -> str:
    """The page. of: cases there are, some of which may not have been asked for. Raises OutsideError where jinja2 or
    plotly is missing."""
    charts = [chart for chart in (error_chart(results), figures_chart(results)) if chart is not None]
    return render(
        "validation.html.j2",
        charts,
        title=TITLE,
        lede=tuple(_lede(results, of)),
        gates=as_sheet("gates", gates(results)),
        missed=tuple(_missed(results)),
        cases=tuple(_told(result) for result in results),
        stated=STATED,
    )


def _lede(results: Sequence[CaseResult], of: int) -> Iterator[str]:
    total = summary(results)
    yield (
        f"Real RL post-training runs that others published, simulated: {plural(total.cases, 'case')}, "
        f"{plural(total.arms, 'arm')}. One scalar is fitted per case at most, on its baseline arm alone; everything "
        "else is predicted."
    )
    broken = [gate for gate, _, _, holds in gate_rows(total) if not holds]
    if broken or total.missed:
        what = f"{', '.join(broken)} not held" if broken else "single arms miss theirs"
        yield f"The gates do not all hold: {what}. {plural(len(total.missed), 'arm')} missed."
    else:
        yield "Every gate holds."
    if total.cases < of:
        yield f"Only {total.cases} of {of} cases were asked for: the gates are those of these cases."


def _missed(results: Sequence[CaseResult]) -> Iterator[tuple[str, str]]:
    """(case and arm, why) of every arm that misses a gate, and of every wrong order."""
    for result in results:
        for arm in result.misses:
            yield f"{result.case.id} {arm.arm.name}", _plain(arm.arm.reading) or "its case gives no reason"
        for a, b in result.wrong_order:
            yield f"{result.case.id} order of {a} and {b}", "the simulation has them the other way round"


def _told(result: CaseResult) -> Told:
    case, missed = result.case, result.misses
    why = [(arm.arm.name, _plain(arm.arm.reading)) for arm in result.arms if arm.arm.reading]
    misses = {arm.arm.name for arm in missed}
    note = f" The figure is {_plain(case.measure_note)}." if case.measure_note else ""
    unit = {"step_s": "seconds of a step", "tok_s": "trained tokens per second"}[case.measure]
    trust = "read in the source" if case.trust == "primary" else "excerpts of issues and pull requests"
    return Told(
        heading=f"{case.id}: {case.title}",
        fit=fit_words(result) + note,
        wrong_order="; ".join(f"{a} and {b}" for a, b in result.wrong_order),
        missed=tuple((name, text) for name, text in why if name in misses),
        readings=tuple((name, text) for name, text in why if name not in misses),
        reading=_plain(case.reading),
        assumed=tuple(_plain(text) for text in case.assumed),
        sources=f"Sources ({trust}): {'; '.join(_plain(s) for s in case.sources)}.",
        arms=as_sheet(f"{case.id}, {unit}", arms(result)),
    )


def _plain(text: str) -> str:
    return " ".join(text.split())
