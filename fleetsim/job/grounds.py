"""What an answer rests on, as documents tell it: the engine's speed, what a run showed, what was assumed; a job."""

from __future__ import annotations

import math
from collections.abc import Callable, Collection, Iterable, Iterator, Mapping, Sequence
from typing import Any, TypeVar

from msgspec import Struct

from fleetsim import units
from fleetsim.config.law_numbers import law_of
from fleetsim.config.scenario import Scenario, age_bound
from fleetsim.config.sections import ObservedConfig
from fleetsim.config.tree import value_at
from fleetsim.estimates import Estimate
from fleetsim.faces import in_python
from fleetsim.job.assumptions import Assumption, assumptions_of, short
from fleetsim.job.engine_source import EngineSource
from fleetsim.job.input_moves import InputPart, MetricRanges, Swing
from fleetsim.job.nameplate import mean_output_tokens
from fleetsim.job.settings import typed_for
from fleetsim.job.words import THEMES
from fleetsim.records import replace
from fleetsim.tell.document import Block, Document, Listed, Section, Table, Words, page_only, terminal_only
from fleetsim.tell.facts import explained, facts

# --- What kind of system a scenario describes, in a few plain words: where it runs, what may start, how old it may get.

PLACES: Mapping[str, str] = {"disaggregated": "split", "colocated": "colocated", "colocated_lending": "split, lends"}


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


# --- What the user should know before acting on a plan: each warning with its number, its reason and what to do.

# A buffer that grows by this share of a batch with every step is a backlog, where the trainer waits for less than this.
_GROWS, _WAITS = 0.02, 0.01
# What the remedies bound the queue to: weight versions, and batches.
_VERSIONS, _BATCHES = 4, 2
# Shares of trained tokens that are written and never come to the trainer.
_LOST = tuple(f"waste.{why}" for why in ("stale", "filtered", "aborted", "lost"))
_POOR = 0.15  # an error of the profile worth a warning of its own


class Backlog(Struct, frozen=True):
    """Finished samples that pile up. per_step, per_minute: by how many. until: samples that the buffer holds, which it
    comes to long after the run, and older: by how many steps the trained samples are then older; None and infinite
    where nothing bounds it. How many instances are better is the search's to say (`Alternatives.enough`)."""

    per_step: float
    per_minute: float
    until: int | None = None
    older: float = math.inf

    @property
    def rate(self) -> str:
        """ "183 samples a step (520 a minute)"."""
        each = (units.count(round(x)) for x in (self.per_step, self.per_minute))
        return "{} samples a step ({} a minute)".format(*each)


def backlog_of(scenario: Scenario, metrics: Mapping[str, Estimate]) -> Backlog | None:
    """What piles up where the fleet makes more than the trainer takes and nothing bounds what is finished, or only a
    buffer of many batches that the run has not filled; else None.

    metrics: of a long run, by dotted name. What binds is the trainer; that it does is no reason to let samples grow
    old.
    """
    growth, batch = _surplus(scenario, metrics), scenario.trainer.batch_samples
    # a law without a number of batches or versions bounds what is in flight at most, and not what is finished
    most = scenario.buffer.capacity_samples
    older = math.inf if most is None else (most - metrics["queue_depth"].mean) / batch
    bounded = law_of(scenario).ahead is not None or older <= _BATCHES
    if bounded or scenario.admission.max_age is not None or growth <= _GROWS * batch:
        return None
    if metrics["trainer_idle_fraction"].mean > _WAITS:  # a full engine's samples come at once: the queue swings
        return None
    return Backlog(growth, 60.0 * growth / metrics["step_s"].mean, most, older)


def _surplus(scenario: Scenario, metrics: Mapping[str, Estimate]) -> float:
    """Samples a step that the engines write beyond those that are trained or lost: what the queue grows by in the end.

    By tokens, for a buffer that full engines fill in bursts says little of it, nor does a run in which most long
    samples are still being written.
    """
    made, lost = metrics["tokens_per_trained_token"].mean, sum(metrics[name].mean for name in _LOST)
    if not made:  # a window between two bursts, in which nothing was written
        return 0.0
    written = metrics["generated_tok_s"].mean * metrics["step_s"].mean * (1.0 - lost / made)
    return written / mean_output_tokens(scenario) - scenario.trainer.batch_samples


def backlog_line(scenario: Scenario, metrics: Mapping[str, Estimate]) -> str | None:
    """The growing backlog and its remedy in a line; None where there is none."""
    found = backlog_of(scenario, metrics)
    if found is None:
        return None
    bound = (
        "without bound" if found.until is None else f"until it holds {found.until:,}, {round(found.older)} batches more"
    )
    return f"grows {bound}, by {found.rate}: {_remedy(scenario)}"


def backlog_warnings(scenario: Scenario, metrics: Mapping[str, Estimate]) -> tuple[str, ...]:
    """The same with how old samples are."""
    found = backlog_of(scenario, metrics)
    if found is None:
        return ()
    bound, then = "without bound", f"admission.law={scenario.admission.law} does not bound it"
    if found.until is not None:
        bound = f"until it holds {found.until:,} samples"
        then = f"When it is full, samples are {round(found.older)} steps older than told here"
    return (
        f"the backlog grows {bound}: {found.rate} more than the trainer takes, "
        f"{units.count(round(metrics['queue_depth'].mean))} in the buffer on average and the oldest trained sample "
        f"{units.count(round(metrics['staleness_steps.max'].mean))} steps old, and older with every step. "
        f"{then}: {_remedy(scenario)}",
    )


def _remedy(scenario: Scenario) -> str:
    capacity = f"--set buffer.capacity_samples={_BATCHES * scenario.trainer.batch_samples}"
    capacity += " --set buffer.on_full=block" if scenario.buffer.on_full != "block" else ""
    return f"bound the queue with --set admission.law=version_window --max-staleness {_VERSIONS}, or with {capacity}"


def range_warnings(profile: EngineSource) -> tuple[str, ...]:
    """Where an answer leaves what its profile measured, and what to do about it."""
    return tuple(
        f"outside the range that the profile measured: {text}; measure there before trusting the answer"
        for text in profile.extrapolations or ()
    )


def error_warnings(profile: EngineSource) -> tuple[str, ...]:
    """An engine speed whose own error is large."""
    if profile.error_worst is None or profile.error_worst <= _POOR:
        return ()
    return (
        f"the {profile.kind} engine speed is itself off by up to {units.share(profile.error_worst, 0)} "
        f"({profile.error_what}): measure it again on a quiet machine before acting on the answer",
    )
