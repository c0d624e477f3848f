"""A comparison, told: the answer, what changed and by how much, what did not, what differs in the inputs, notes."""

from __future__ import annotations

from collections.abc import Iterator, Mapping, Sequence
from typing import Any, Literal

from fleetsim import units
from fleetsim.compare.compare import Comparison, Kind, MetricChange, band_of, change_of, likely_of, luck_of
from fleetsim.estimates import Estimate
from fleetsim.job.assumptions import short
from fleetsim.quantities import quantity
from fleetsim.records import as_dict
from fleetsim.tell.charts.axes import ChartAxis, ratio_axis
from fleetsim.tell.charts.chart import Chart, ChartRow, MarkLook, RowMark, Rows
from fleetsim.tell.data import told, versions
from fleetsim.tell.document import Block, Bullets, Document, Section, Table, page_only, present, terminal_only
from fleetsim.tell.facts import Fact, Facts, Words, explained, facts

_RATIO = "B / A, of shares B - A"
_SAME = "no significant change"
_MOST_INPUTS = 60
# What a job is changed for; these are told before others.
_FIRST = ("step_s", "cost_per_step", "trainer_idle_fraction", "goodput", "staleness_steps.p99")
_MOST_CHANGES, _MOST_IN_BRIEF = 4, 3


def document(found: Comparison) -> Document:
    """What `compare` says."""
    equal = "; ".join(quantity(c.metric).title for c in found.changes if c.equal)
    changed = _changes("changed", found.significant, found.kind)
    none = page_only("Nothing changed beyond luck and the smallest change of interest.")
    same = _changes(_SAME, [c for c in found.changes if c.verdict == _SAME and not c.equal], found.kind)
    by_why: dict[str, list[str]] = {}
    for change in found.changes:
        if change.verdict == "not comparable":
            by_why.setdefault(change.why, []).append(quantity(change.metric).title)
    reasons = tuple(f"{why}: {'; '.join(titles)}" for why, titles in by_why.items())
    noted = terminal_only(*found.notes), page_only(Bullets(found.notes))
    return Document(
        "fleetsim compare",
        compare_facts(found),
        (
            Section(
                "What changed",
                present(changed or none, ratios_chart(found), shares_chart(found)),
                short=f"changed ({_RATIO})",
            ),
            Section(
                "What did not change",
                present(same, page_only(equal and f"Equal on both sides: {equal}.")),
                short=f"{_SAME} ({_RATIO})",
            ),
            Section("equal on both sides", present(equal), on=("terminal",)),
            Section("not comparable", reasons, on=("terminal",)),
            Section("Inputs that differ", tuple(_inputs(found)), short="inputs that differ"),
            Section("Both sides", (_values(found, "; ".join(reasons)),), on=("page",)),
            Section("Notes", noted if found.notes else (), short="notes"),
        ),
    )


def _changes(title: str, changes: Sequence[MetricChange], kind: Kind) -> Table | None:
    """Every metric with its verdict, both sides, the change and its interval; None where there is no metric."""
    headings = ("", "", "A", "B", "change", "95 % interval" if kind == "windows" else "95 % of seeds")
    rows = tuple(_row(change) for change in changes)
    return Table(f"{title} ({_RATIO})", headings, rows, left=2, wordy=True) if rows else None


def _row(change: MetricChange) -> tuple[str | Words, ...]:
    unit = quantity(change.metric).unit
    sides = ("" if side is None else units.written(side.mean, unit) for side in (change.a, change.b))
    verdict = Words(change.verdict, strong=True) if change.significant else Words(tail=change.why)
    return (quantity(change.metric).title, verdict, *sides, *change_of(change))


def _inputs(found: Comparison) -> Iterator[Block]:
    """Path, both values; what nobody gave is marked."""
    if not found.inputs:
        yield terminal_only("none")
        yield page_only("No input differs between the two sides, as far as is known of them.")
        return
    rows = tuple((d.path, _value(d.a, d.a_assumed), _value(d.b, d.b_assumed)) for d in found.inputs[:_MOST_INPUTS])
    more = len(found.inputs) - len(rows)
    note = f"and {more} more: see --json" if more else ""
    yield Table("values of both sides", ("", "A", "B"), rows, words_last=2, note=note, wordy=True)


def _value(value: Any, assumed: bool) -> Words:
    if isinstance(value, dict) and "kind" in value and len(value) > 2:
        text = ", ".join(f"{k} {short(v)}" for k, v in value.items() if v is not None)
    else:
        text = "-" if value is None else short(value)
    return Words(text, " (assumed)" if assumed else "")


def _values(found: Comparison, note: str) -> Table:
    """Both sides' own values. note: what could not be compared, and why."""
    rows = []
    for change in found.changes:
        q = quantity(change.metric)
        sides = ("-" if side is None else units.with_ends(side, q.unit) for side in (change.a, change.b))
        rows.append((q.title, change.verdict, *sides))
    title = f"both sides, with their own 95 % intervals{'' if found.kind == 'windows' else ', of seeds alone'}"
    return Table(title, ("", "", "A", "B"), tuple(rows), left=2, note=note, wordy=True)


def compare_facts(found: Comparison) -> Facts:
    """What one must know of a comparison, as a table."""
    changed = sorted(found.significant, key=lambda c: _FIRST.index(c.metric) if c.metric in _FIRST else len(_FIRST))
    verdicts = [c.verdict for c in found.changes]
    groups = {**dict(GROUPS), "not comparable": "Not comparable"}
    counts = [f"{title.lower()} {verdicts.count(name)}" for name, title in groups.items() if name in verdicts]
    band, points = band_of(found.min_change, of_shares=False), band_of(found.min_change, of_shares=True)
    # whether what is in doubt about the inputs may undo a change
    undone = any(c.likely and c.likely[0] <= (0.0 if c.of_share else 1.0) <= c.likely[1] for c in changed)
    told = [f"{d.path} {_short(d.a)} -> {_short(d.b)}" for d in found.inputs]
    left = len(told) - _MOST_IN_BRIEF
    inputs = ", ".join(told[:_MOST_IN_BRIEF]) + (f", and {left} more" if left > 0 else "")
    return facts(
        found.headline,
        [_change(c, found.kind, brief=i < _MOST_CHANGES) for i, c in enumerate(changed)],
        Fact("inputs", inputs),
        Fact("runs", _runs(found)),
        explained("a", f"A: {found.a_label}"),
        explained("b", f"B: {found.b_label}"),
        explained("intervals", _intervals(found)),
        explained("smallest_change", f"The smallest change of interest is {band}, of shares {points}."),
        explained("verdicts", f"Of {units.plural(len(verdicts), 'metric')}: {', '.join(counts) or 'none compared'}."),
        tone="unsure" if "worse" in verdicts or undone else "good",
    )


def _change(change: MetricChange, kind: Kind, *, brief: bool) -> Fact:
    """ "optimizer step 29.8 s -> 27.6 s: 0.925 (±0.004 of seeds)"; of windows, with the ends of its interval."""
    q = quantity(change.metric)
    a, b = (None if side is None else units.written(side.mean, q.unit) for side in (change.a, change.b))
    size, ends = change_of(change)
    beside = ends if kind == "windows" else likely_of(change) or luck_of(change)
    said = f"{q.title} {a} -> {b}: {size}{f' ({beside})' if beside else ''}"
    by = change.size
    low, high = change.likely or ((None, None) if by is None else (by.ci_low, by.ci_high))
    of: Literal["inputs", "seeds"] = "seeds" if change.likely is None else "inputs"
    value = None if by is None else by.mean
    return Fact(change.metric, said if brief else "", change.verdict, value, low=low, high=high, of=of, apart=True)


def _short(value: object) -> str:
    return "-" if value is None else "..." if isinstance(value, (dict, list)) else short(value)


def _intervals(found: Comparison) -> str | None:
    """Of simulated sides: what their intervals leave out."""
    if found.kind == "windows":
        return None
    if any(c.likely is not None for c in found.changes):
        return '"Likely" is for eight in ten cases of what both sides assume; verdicts are by seeds alone.'
    return "Intervals are of seeds alone, the doubt about the inputs is not in them."


def _runs(found: Comparison) -> str:
    if found.kind == "windows":
        return f"unpaired, {units.plural(found.replications, 'block')} of the shorter window"
    how = "paired: the same draws on both sides" if found.paired else "unpaired"
    return f"{units.plural(found.replications, 'replication')}, {how}"


def compare_document(found: Comparison) -> dict[str, Any]:
    """Ratios are B / A, differences B - A in the metric's unit; null = there is none."""
    return {
        **versions("compare"),
        "headline": found.headline,
        **told(compare_facts(found)),
        "kind": found.kind,
        "a": found.a_label,
        "b": found.b_label,
        "paired": found.paired,
        "replications": found.replications,
        "min_change": found.min_change,
        "changed": [c.metric for c in found.significant],
        "worse": [c.metric for c in found.changes if c.verdict == "worse"],
        "changes": [
            {**as_dict(c), "title": q.title, "unit": q.unit, "better_is": q.better}
            for c, q in ((c, quantity(c.metric)) for c in found.changes)
        ],
        "inputs": [as_dict(d) for d in found.inputs],
        "notes": list(found.notes),
    }


_LOOKS = {
    "better": ("better", MarkLook("third")),
    "worse": ("worse", MarkLook("second", symbol="x")),
    "changed": ("changed", MarkLook("accent", symbol="square")),
    "no significant change": ("no significant change", MarkLook("quiet", symbol="circle-open")),
}
GROUPS = (("better", "Better"), ("worse", "Worse"), ("changed", "Changed"), ("no significant change", "No change"))
# Ratios beyond this factor would squeeze all others to a line: they are in the table.
_FURTHEST = 30.0


def ratios_chart(found: Comparison) -> Chart | None:
    """B / A of every metric that has a ratio, shares apart, on a logarithmic axis around 1."""
    band, ratios = found.min_change, {c.metric: c.ratio for c in found.changes if c.ratio and not c.of_share}
    near = {name: r for name, r in ratios.items() if r.ci_low > 1 / _FURTHEST and r.ci_high < _FURTHEST}
    words = "B / A with its 95 % interval, on a logarithmic axis; right of the line B has more."
    words += _band_words(band, of_shares=False)
    if left_out := [c for c in found.changes if c.metric in ratios.keys() - near.keys() and not c.equal]:
        words += f" Beyond a factor of {_FURTHEST:g}, and in the table only: {units.plural(len(left_out), 'metric')}."
    rows, ends = _rows(found, near, 1.0)
    if not ends:
        return None
    axis = ratio_axis("B / A", min(*ends, 1 / (1 + 2 * band)), max(*ends, 1 + 2 * band))
    drawn = Rows(axis, rows, _LOOKS, centre=1.0, bands=((1 / (1 + band), 1 + band),))
    return Chart("ratios", "Ratio of every metric, B / A", words, drawn)


def shares_chart(found: Comparison) -> Chart | None:
    """B - A of every share, in points."""
    shares = {c.metric: c.difference for c in found.changes if c.difference and c.of_share}
    rows, ends = _rows(found, shares, 100.0)
    if not ends:
        return None
    band = 100.0 * found.min_change
    low, high = min(*ends, -2 * band), max(*ends, 2 * band)
    room = 0.05 * (high - low)
    words = f"B - A with its 95 % interval, in points of a share.{_band_words(found.min_change, of_shares=True)}"
    drawn = Rows(ChartAxis("B - A, points", low - room, high + room), rows, _LOOKS, centre=0.0, bands=((-band, band),))
    return Chart("shares", "Difference of every share, B - A", words, drawn)


def _rows(found: Comparison, of: Mapping[str, Estimate], factor: float) -> tuple[tuple[ChartRow, ...], list[float]]:
    """The changes of some metrics, by verdict, and all that they reach; of those that are equal on both sides there is
    nothing to draw."""
    rows: list[ChartRow] = []
    for verdict, title in GROUPS:
        shown = [c for c in found.changes if c.verdict == verdict and not c.equal and c.metric in of]
        rows += [ChartRow(f"{title}: {len(shown)}"), *(_dot(c, of[c.metric], factor) for c in shown)] if shown else []
    marks = [mark for row in rows for mark in row.marks]
    return tuple(rows), [x for m in marks for x in (m.value, m.low, m.high) if x is not None]


def _dot(change: MetricChange, value: Estimate, factor: float) -> ChartRow:
    title, (said, interval) = quantity(change.metric).title, change_of(change)
    told = f"{title}: {said}{f' ({interval})' if interval else ''}: {change.verdict}"
    mean, low, high = (factor * end for end in (value.mean, value.ci_low, value.ci_high))
    return ChartRow(title, said, (RowMark(change.verdict, mean, low, high, said=told),))


def _band_words(min_change: float, of_shares: bool) -> str:
    smallest = band_of(min_change, of_shares)
    return f" The band is the smallest change of interest, {smallest} either way." if min_change > 0 else ""
