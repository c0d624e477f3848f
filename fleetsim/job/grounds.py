"""What an answer rests on, as documents tell it: the engine's speed, what a run showed, what was assumed; a job."""

from __future__ import annotations

from collections.abc import Callable, Collection, Iterable, Iterator, Mapping, Sequence
from typing import Any, TypeVar

from fleetsim import units
from fleetsim.config.law_numbers import law_of
from fleetsim.config.scenario import Scenario, age_bound
from fleetsim.config.sections import ObservedConfig
from fleetsim.config.tree import value_at
from fleetsim.faces import in_python
from fleetsim.job.assumptions import Assumption, assumptions_of, short
from fleetsim.job.engine_source import EngineSource
from fleetsim.job.input_moves import InputPart, MetricRanges, Swing
from fleetsim.job.settings import typed_for
from fleetsim.job.words import THEMES
from fleetsim.records import replace
from fleetsim.tell.document import Block, Document, Listed, Section, Table, Words, page_only, terminal_only
from fleetsim.tell.facts import explained, facts

# --- What kind of system a scenario describes, in a few plain words: where it runs, what may start, how old it may get.

PLACES: Mapping[str, str] = {
    "disaggregated": "split",
    "colocated": "colocated",
    "colocated_lending": "split, lends",
}


def place_words(scenario: Scenario) -> str:
    """ "split", "colocated", or "split, lends" where the trainer's GPUs help out."""
    return PLACES[scenario.fleet.placement]


def law_words(scenario: Scenario) -> str:
    """What may start: "2 versions ahead", "a batch, then the trainer"."""
    return law_of(scenario).says(scenario.admission)


def age_words(scenario: Scenario) -> str:
    """How old a trained group may be, in weight versions: "age <= 4", or "age unbounded"."""
    bound = age_bound(scenario)
    return "age unbounded" if bound is None else f"age <= {bound:g}"


def kind_words(scenario: Scenario) -> str:
    """All of it on one line: "split; 2 versions ahead; age unbounded"."""
    return "; ".join((place_words(scenario), law_words(scenario), age_words(scenario)))


def pool_words(scenario: Scenario) -> str:
    """What runs: "4 instances, 8 trainer GPUs"."""
    instances, gpus = scenario.fleet.instances, scenario.trainer.gpus
    return f"{units.plural(instances, 'instance')}, {units.plural(gpus, 'trainer GPU')}"


P = TypeVar("P", bound=InputPart[Any])
_OFF = ("in doubt", "times", "step, s")


def rests_on(source: EngineSource, assumed: Sequence[Assumption], nothing_assumed: str, *more: Block | None) -> Section:
    """Where the engine's speed comes from and how far off it may be; on a page also what was assumed, and `more`."""
    accuracy, outside = source.accuracy, source.extrapolations or ()
    told = [units.sentence(accuracy)]
    if outside:
        told.append(f"The answer leaves what was measured: {'; '.join(outside)}.")
    sheet = assumption_sheet(assumed) if assumed else nothing_assumed
    blocks = terminal_only(accuracy), page_only(" ".join(told), sheet, *more)
    return Section("What this rests on", blocks, short="accuracy", folded=True)


def assumed_section(assumed: Sequence[Assumption]) -> Section:
    """What was assumed, for a terminal, which has no room for the table of the page."""
    title = "assumed (and the flags that change it)"
    return Section(title, (assumption_list(assumed),) if assumed else (), on=("terminal",))


def how_sure(ranges: MetricRanges) -> Section:
    """What each input that may be off does to a run, alone."""
    rows = tuple((*_off(part), _name(part.measure), part.why) for part in ranges.parts)
    table = Table("", (*_OFF, "settled by", "why"), rows, left=1, words_last=2, note=_alone(ranges.confidence))
    return _sure(table.narrowing("why", "times", "step, s"))


def worth_knowing(parts: Sequence[P], confidence: float, heading: str, right: Callable[[P], str]) -> Section:
    """What each input that may be off does to an advice, alone, and what not knowing it costs, the dearest first.

    right: what would be right at both ends of a part, under its heading.
    """
    rows = tuple((*_off(part), right(part), units.money(part.usd_per_h), _name(part.measure)) for part in parts)
    headings = (*_OFF, heading, "worth, $/h", "settled by")
    table = Table("", headings, rows, left=1, words_last=1, note=_alone(confidence))
    return _sure(table.narrowing(*headings[1:-1]))


def _name(command: str) -> str:
    """A command without what is given to it, for which a table has no room; a flag as it is."""
    return command if command.startswith("--") else command.partition(" --")[0]


def _off(part: InputPart[Any] | Swing) -> tuple[str, str, str]:
    """An input, between what it lies, and between what a step then takes."""
    return part.what, " to ".join(map(units.number, part.factors)), " to ".join(f"{x:,.1f}" for x in part.step_s)


def _alone(confidence: float) -> str:
    return f"Each alone, within {units.limit(confidence)} of cases; what all do together is drawn from their laws."


def _sure(table: Table) -> Section:
    return Section("How sure", (table,), short="how sure", folded=True)


def assumption_list(assumed: Iterable[Assumption]) -> Listed:
    """What was assumed, an item for each part of the system, with the flags that change it."""
    parts: dict[str, list[Assumption]] = {}
    for a in assumed:
        section = a.path.partition(".")[0]
        parts.setdefault(THEMES.get(section, section), []).append(a)
    return Listed(tuple((theme, _with_flags(found)) for theme, found in parts.items()))


def _with_flags(assumed: Sequence[Assumption]) -> Words:
    flags = [a.flag for a in assumed if not a.flag.startswith("--set")]
    return Words(", ".join(a.text for a in assumed), f"  {' '.join(flags)}" if flags else "")


def assumption_sheet(assumed: Sequence[Assumption]) -> Table:
    """What nobody said, with the flag that says otherwise."""
    headings = ("", "assumed", "say otherwise with")
    return Table("assumed, because nobody said otherwise", headings, tuple(_rows(assumed)), left=3)


def _rows(assumed: Sequence[Assumption]) -> Iterator[tuple[str, str, str]]:
    last = ""
    for a in assumed:
        part = a.path.partition(".")[0]
        theme = THEMES.get(part, part)
        yield "" if theme == last else theme, a.text.removesuffix(f" ({a.flag})"), a.flag
        last = theme


def record_words(record: ObservedConfig) -> str:
    """A value with its interval: "trainer seconds of 124 s (121 to 128)"."""
    unit = f" {record.unit}" if record.unit else ""
    within = f" ({_few(record.low)} to {_few(record.high)})" if record.low < record.high else ""
    return f"{record.what} of {_few(record.value)}{unit}{within}"


def observed_line(scenario: Scenario) -> str:
    """What a run showed, in a line: the names alone; "" where none did."""
    if not scenario.observed:
        return ""
    where = dict.fromkeys(record.source.partition(":")[0] for record in scenario.observed)
    return f"{units.listed([record.what for record in scenario.observed])}, in {units.listed(list(where))}"


def observed_section(scenario: Scenario) -> Section:
    """The records of a job; empty where no run showed anything."""
    return Section("Observed in a run", (_table(scenario.observed),) if scenario.observed else (), short="observed")


def _table(records: Sequence[ObservedConfig]) -> Table:
    headings = ("", "observed", "eight of ten", "steps", "in", "say otherwise with")
    rows = tuple(
        (
            record.what,
            f"{_few(record.value)}{f' {record.unit}' if record.unit else ''}",
            f"{_few(record.low)} to {_few(record.high)}",
            f"{record.steps:,}" if record.steps else "",
            record.source,
            str(typed_for(record.path, "VALUE")),
        )
        for record in records
    )
    return Table("observed in a run", headings, rows, left=1)


def _few(value: float) -> str:
    return f"{value:,.4g}" if value < 1000 else f"{value:,.0f}"


_TITLE = ("schema_version", "name", "description", "assumed", "observed")


def document(scenario: Scenario, given: Collection[str], notes: Sequence[str]) -> Document:
    """given: dotted paths. notes: what is odd about them."""
    s = scenario
    assumed = [
        replace(a, text=in_python(a.text), flag=a.flag if a.flag.startswith("--set") else in_python(a.flag))
        for a in assumptions_of(s, given)
    ]
    said = tuple(_said(s, given))
    sections = (
        Section("given", (Listed(said),) if said else ()),
        observed_section(s),
        Section("assumed (and the keywords that change it)", (assumption_list(assumed),) if assumed else ()),
        Section("notes", tuple(notes)),
    )
    described = explained("description", s.description.strip())
    return Document("fleetsim", facts(f"{s.name}: {pool_words(s)}", described), sections)


def _said(scenario: Scenario, given: Collection[str]) -> Iterator[tuple[str, str]]:
    """Paths and values, without those of a section that another choice has taken away."""
    for path in sorted(path for path in given if path.partition(".")[0] not in _TITLE):
        try:
            yield path, short(value_at(scenario, path))
        except AttributeError:
            continue
