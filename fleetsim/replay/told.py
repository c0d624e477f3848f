"""What `fleetsim replay` says: the verdict, its grounds, what was asked, and what the window shows over time."""

from __future__ import annotations

from collections.abc import Iterator, Mapping, Sequence
from typing import Any

from fleetsim import units
from fleetsim.records import replace
from fleetsim.replay import words
from fleetsim.replay.answers import Answers
from fleetsim.replay.diagnose.finding import Finding, called
from fleetsim.replay.facts import window_facts
from fleetsim.replay.model_pictures import backtest_blocks, backtest_chart, lengths_chart, verdict_words
from fleetsim.replay.observe.observed import Observed
from fleetsim.replay.observe.over_time import OverTime
from fleetsim.replay.observed_tables import observed_sections
from fleetsim.replay.other_fleets import fleets_sections, simulated_again, verification_blocks
from fleetsim.replay.pictures import Scene, activity_chart, fleet_chart, instances_chart, queue_chart, trainer_chart
from fleetsim.replay.run import Replayed
from fleetsim.replay.words import clock
from fleetsim.tell.charts.axes import Clock
from fleetsim.tell.charts.chart import Chart
from fleetsim.tell.document import (
    Block,
    Bullets,
    Document,
    Judged,
    Judgement,
    NextLines,
    Section,
    Table,
    Words,
    page_only,
    present,
    terminal_only,
)

NOTHING = Answers()
_MOST_NOTES = 12
_MARKS = tuple(words.MARKS.values())


def document(
    result: Replayed,
    answers: Answers = NOTHING,
    over: OverTime | None = None,
    warnings: Sequence[str] = (),
    advice: Sequence[Mapping[str, Any]] = (),
) -> Document:
    """Everything that there is to say of a window. over: what its charts show; None without a page. advice: as in the
    JSON document."""
    verdict = result.verdict
    first = None if verdict.first is None else verdict.first.next
    title = "Where to look" if verdict.binding in ("data", "model") else "Change first"
    numbers = tuple(_numbers(result, answers))
    verified = () if answers.verification is None else verification_blocks(answers.verification)
    return Document(
        "fleetsim replay",
        window_facts(result, answers),
        (
            Section(title, () if first is None else (NextLines("", first, strong=True),), on=("page",)),
            replace(_section("Verification, in the runbook's order", *verified), asked=True),
            _section(units.capital(words.FINDINGS), Judged(tuple(map(_finding, words.ordered(verdict))), _MARKS)),
            *(replace(section, asked=True) for section in fleets_sections(answers, drawn=over is not None)),
            replace(simulated_again(answers, advice), asked=True),
            *(() if over is None else _drawn(over, result)),
            *(replace(section, on=("terminal",)) for section in numbers),
            Section("In numbers", tuple(block for one in numbers for block in one.shown("page")), on=("page",)),
        ),
        tuple(warnings),
    )


def _section(title: str, *blocks: Block) -> Section:
    return Section(title, blocks, short=title[:1].lower() + title[1:])


def _finding(found: Finding) -> Judgement:
    return Judgement(
        words.MARKS[found.state],
        called(found.check),
        found.title,
        words.size_words(found) or "",
        found.evidence,
        found.next or "",
        strong=found.state == "fault",
    )


def _drawn(over: OverTime, result: Replayed) -> Iterator[Section]:
    """The window over time, and the simulation beside it."""
    observed, back = result.observed, result.backtest
    until = ("" if e.until_s is None else f" to {clock(e.until_s)}" for e in over.events)
    each = enumerate(zip(over.events, until, strict=True))
    events = tuple(f"{_letter(k)}, {clock(e.at_s)}{to}: {e.text}" for k, (e, to) in each)
    named: tuple[Block, ...] = ()
    if events:
        named = (Words("Named events: the letters in the charts", strong=True), Bullets(events))
    elif over.fleet is not None:
        named = ("No instance went, came or restarted, and there is no hole in the data, as far as it shows.",)
    yield Section("The window", (*named, *time_charts(over, observed)), on=("page",))
    simulated = (*_simulated(result), lengths_chart(observed.lengths), backtest_chart(back))
    yield Section("The window, simulated", present(*simulated), on=("page",))


def _simulated(result: Replayed) -> Iterator[str]:
    """What the charts of the simulation cannot show."""
    if result.unsimulated is not None:
        yield f"Not simulated: {result.unsimulated}"
    elif result.backtest is None:
        yield "No back-test was asked for: nothing says how well the model predicts this window."
    else:
        if not result.backtest.overall:
            yield "Nothing was observed that a simulation could be held against."
        elif len(result.backtest.hours) < 2:
            yield f"{verdict_words(result.backtest)} The window is too short to be compared part by part."
        if result.backtest.where:
            yield "Where to look:"
            yield from (f"{units.capital(place)}." for place in result.backtest.where)


def _numbers(result: Replayed, answers: Answers) -> Iterator[Section]:
    """The window in tables: sections of a terminal, one section of a page."""
    yield from observed_sections(result.observed)
    if result.backtest is not None:
        yield Section("back-test: the window, simulated", tuple(backtest_blocks(result.backtest)))
    if result.unsimulated is not None:
        yield Section("not simulated", (terminal_only(result.unsimulated),))
    model = result.implied
    if model is not None:
        taken = _lines("taken from the window", model.taken)
        simulated = result.backtest is not None or answers != NOTHING
        yield Section(taken.title, (taken if simulated else page_only(taken),))
    assumed = (*(model.assumed if model is not None else ()), *result.priced)
    if assumed:
        table = _lines("assumed", assumed)
        how = "change with --given KEY=VALUE, or --scenario FILE"
        blocks = terminal_only(table), page_only(replace(table, note=f"{units.capital(how)}."))
        yield Section("assumed", blocks, short=f"assumed ({how})")
    yield Section("notes on the data", _notes(result.observed))


def _lines(title: str, texts: Sequence[str]) -> Table:
    return Table(title, ("",), tuple((text,) for text in texts))


def _notes(observed: Observed) -> tuple[Block, ...]:
    """What the reader must know of the data."""
    rows = tuple(
        (Words(tail=note.kind), note.text + ("" if note.share is None else f" ({units.share(note.share)})"))
        for note in observed.notes
    )
    few = rows[:_MOST_NOTES]
    if len(rows) > _MOST_NOTES:
        few = (*few, (Words(), f"and {len(rows) - _MOST_NOTES} more (--json has all)"))
    gaps = f"Of {units.share(observed.gap_share)} of the instances' time nothing was read."
    every = rows or ((Words("data"), "nothing was found wrong with what was read"),)
    table = Table("notes on the data", ("", ""), every, left=2, note=gaps if observed.gap_share else "")
    return present(terminal_only(replace(table, rows=few, note="")) if rows else None, page_only(table))


def time_charts(shown: OverTime, observed: Observed) -> Iterator[Chart]:
    """The charts that the window has data for, in the order in which they are read."""
    pauses = observed.pauses
    shades = [] if pauses is None else [(p.start_s, p.end_s) for p in pauses.each]
    letters = [(event.at_s, _letter(k)) for k, event in enumerate(shown.events)]
    scene = Scene(Clock.of(observed.start_s, observed.end_s), observed.step_s, shades, letters)
    if shown.trainer is not None:
        yield trainer_chart(shown.trainer, observed, scene)
    if shown.fleet is not None:
        yield fleet_chart(shown.fleet, observed, scene)
        if len(shown.names) > 1:
            yield instances_chart(shown.fleet, shown.names, observed, scene)
    if shown.queue is not None:
        yield queue_chart(shown.queue, observed, scene)
    if shown.activity is not None:
        yield activity_chart(shown.activity, whole_s=observed.span_s)


def _letter(k: int) -> str:
    """The name of the k-th event: A to Z, then A1, B1 ..."""
    return chr(ord("A") + k % 26) + (str(k // 26) if k >= 26 else "")
