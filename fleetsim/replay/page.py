"""A replayed window as a page: the verdict and its grounds in words, what was asked, what the window shows."""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import dataclass

from fleetsim import units
from fleetsim.history.history import History
from fleetsim.replay import observed_view, what_if_view
from fleetsim.replay import words as replay_words
from fleetsim.replay.answers import Answers
from fleetsim.replay.backtest_view import by_slice, overall
from fleetsim.replay.diagnose.finding import Finding, Verdict
from fleetsim.replay.observe.over_time import OverTime, over_time
from fleetsim.replay.replay_charts import letter, time_charts, unseen
from fleetsim.replay.replay_model_charts import CANDIDATES, SWEPT, backtest_charts, curves, lengths_chart
from fleetsim.replay.run import Replayed
from fleetsim.tell.document import Table
from fleetsim.tell.next_lines import broken, is_command
from fleetsim.tell.page import render
from fleetsim.tell.rich_tables import as_sheet

OVER_TIME = ("trainer", "fleet", "instances", "queue", "pauses", "activity")
MODEL = ("lengths", "errors", "backtest")
_COMMAND = 88  # letters of a command's line
TOO_FEW = "Fewer parts than two: the window is too short to be compared part by part."


@dataclass(frozen=True, slots=True)
class Said:
    """A line of advice: words, or a command for a shell."""

    text: str
    command: bool


@dataclass(frozen=True, slots=True)
class Ground:
    """A finding as the page shows it."""

    state: str
    mark: str
    check: str
    title: str
    size: str | None
    evidence: tuple[str, ...]
    next: tuple[Said, ...]


@dataclass(frozen=True, slots=True)
class Section:
    """Something that was asked, answered: words, tables, names of charts."""

    title: str
    lines: tuple[Said, ...] = ()
    sheets: tuple[Table, ...] = ()
    charts: tuple[str, ...] = ()


def replay_page(history: History, result: Replayed, answers: Answers) -> str:
    """The page. Raises OutsideError where jinja2 or plotly is missing."""
    observed, verdict = result.observed, result.verdict
    shown = over_time(history, observed)
    lengths = lengths_chart(observed.lengths)
    charts = [
        *curves(answers),
        *time_charts(shown, observed),
        *(() if lengths is None else (lengths,)),
        *backtest_charts(result.backtest),
    ]
    return render(
        "replay.html.j2",
        charts,
        title=verdict.headline,
        lede=tuple(_lede(result)),
        change_title=replay_words.first_title(verdict),
        change=lines_of(replay_words.first_change(verdict)),
        verification=tuple(_verification(answers)),
        asked=tuple(_asked(answers)),
        findings_title=replay_words.FINDINGS.capitalize(),
        findings=tuple(_ground(f) for f in replay_words.ordered(verdict)),
        over_time=OVER_TIME,
        model=MODEL,
        unseen=unseen(shown, observed),
        events=tuple(_events(shown)),
        engines=shown.fleet is not None,
        simulated=tuple(_simulated(result)),
        sheets=tuple(sheet for sheet in _sheets(result) if sheet.rows),
    )


def lines_of(text: str | None) -> tuple[Said, ...]:
    """A `next` of the diagnosis, line by line."""
    return tuple(_command(line) if is_command(line) else Said(line, False) for line in (text or "").splitlines())


def _command(line: str) -> Said:
    """A command on lines that a shell puts together again."""
    return Said("\n  ".join(broken(line, _COMMAND)), True)


def _lede(result: Replayed) -> Iterator[str]:
    observed, verdict = result.observed, result.verdict
    few = replay_words.few_words(observed)
    if few is not None:
        yield few
    if result.backtest is not None and result.backtest.verdict == "wrong":
        yield "The back-test misses this window: read what-ifs as directions, not as numbers."
    total = replay_words.total_words(verdict)
    if total is not None:
        yield total
    yield from replay_words.differs_words(result.implied)
    yield f"{observed.source}: {replay_words.span_words(observed)}."
    yield f"{units.capital(replay_words.fleet_words(observed))}."
    yield f"Side that waits: {_starves(verdict)}."


def _starves(verdict: Verdict) -> str:
    return {
        "trainer": "the trainer, for samples",
        "rollout": "the rollout fleet, for the trainer",
        "neither": "neither",
        "unknown": "not known",
    }[verdict.starves]


def _ground(finding: Finding) -> Ground:
    return Ground(
        finding.state,
        replay_words.MARKS[finding.state],
        replay_words.CHECKS[finding.check],
        finding.title,
        replay_words.size_words(finding),
        finding.evidence,
        lines_of(finding.next),
    )


def _verification(answers: Answers) -> Iterator[Section]:
    if answers.verification is not None:
        sheet = as_sheet("the runbook's list", what_if_view.verification_view(answers.verification))
        yield Section("Verification, in the runbook's order", sheets=(sheet,))


def _asked(answers: Answers) -> Iterator[Section]:
    """Other fleets on the same history."""
    found = answers.what_if
    if found is not None:
        sheet = as_sheet(f"with {what_if_view.changes_words(found.changes)}", what_if_view.what_if_view(found))
        words = (Said("Before and after under the same draws; intervals are of 95 %.", False),)
        yield Section("What if", words, (sheet,))
    if answers.sweep is not None:
        others = {} if found is None else {p: v for p, v in found.changes.items() if p != answers.sweep.key}
        beside = f", with {what_if_view.changes_words(others)}" if others else ""
        sheet = as_sheet(f"values of {answers.sweep.key}{beside} (> now)", what_if_view.sweep_view(answers.sweep))
        yield Section(f"What if: {answers.sweep.key}", sheets=(sheet,), charts=SWEPT)
    if answers.recommendation is not None:
        yield _recommendation(answers)
    if answers.withheld is not None:
        yield Section("Recommendation", tuple(Said(line, False) for line in what_if_view.withheld_words(answers)))


def _recommendation(answers: Answers) -> Section:
    advised, patch = answers.recommendation, answers.patch
    assert advised is not None
    lines = [Said(what_if_view.recommendation_words(advised), False)]
    lines += [Said(sentence, False) for sentence in what_if_view.recommendation_notes(advised)]
    if patch is not None and advised.resized:
        lines += [Said(patch.yaml.rstrip(), True), Said("Apply:", False), _command(patch.command)]
    if answers.plan is not None and answers.plan.rollback.command:
        lines += [Said("Back:", False), _command(answers.plan.rollback.command)]
    sheet = as_sheet("now and recommended", what_if_view.promised(advised))
    return Section("Recommendation", tuple(lines), (sheet,), CANDIDATES)


def _events(shown: OverTime) -> Iterator[str]:
    for k, e in enumerate(shown.events):
        until = "" if e.until_s is None else f" to {replay_words.clock(e.until_s)}"
        yield f"{letter(k)}, {replay_words.clock(e.at_s)}{until}: {e.text}"


def _simulated(result: Replayed) -> Iterator[str]:
    if result.unsimulated is not None:
        yield f"Not simulated: {result.unsimulated}"
    elif result.backtest is None:
        yield "No back-test was asked for: nothing says how well the model predicts this window."
    else:
        if not result.backtest.overall:
            yield "Nothing was observed that a simulation could be held against."
        elif len(result.backtest.hours) < 2:
            yield TOO_FEW
        if result.backtest.where:
            yield "Where to look:"
            yield from (f"{units.capital(place)}." for place in result.backtest.where)


def _sheets(result: Replayed) -> Iterator[Table]:
    observed, back = result.observed, result.backtest
    if back is not None and back.overall:
        yield as_sheet("back-test: the window, simulated", overall(back.overall))
        if len(back.hours) > 1:
            yield as_sheet("error by part of the window", by_slice(back.hours))
    if observed.fleet is not None:
        yield as_sheet("observed: fleet", observed_view.fleet(observed))
    if observed.instances:
        yield as_sheet("instances, slowest first", observed_view.instances(observed.instances))
    yield as_sheet("trainer and queue", observed_view.trainer(observed))
    if observed.lengths is not None:
        yield as_sheet("response lengths of finished requests", observed_view.lengths(observed))
    gaps = (
        ""
        if not observed.gap_share
        else f"Of {units.share(observed.gap_share)} of the instances' time nothing was read."
    )
    notes = tuple((note.kind, replay_words.note_words(note)) for note in observed.notes)
    if not notes:
        notes = (("data", "nothing was found wrong with what was read"),)
    yield Table("notes on the data", ("", ""), notes, left=2, note=gaps)
    model = result.implied
    if model is not None:
        yield Table("taken from the window", ("",), tuple((text,) for text in model.taken))
    assumed = (*(model.assumed if model is not None else ()), *result.priced)
    note = "Change with --given KEY=VALUE, or --scenario FILE."
    yield Table("assumed", ("",), tuple((text,) for text in assumed), note=note)
