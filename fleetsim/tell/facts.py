"""What a result says, as one table of facts: every face selects from it, so that no two say different things.

A terminal says the answer and its lines, and under --explain what is explained as well; a page draws the facts that
have a title as tiles, and says the same lines; JSON has all facts, with their values and ranges.
"""

from __future__ import annotations

from collections.abc import Iterable, Mapping
from typing import Any, Literal

from msgspec import Struct

from fleetsim import units
from fleetsim.estimates import Estimate
from fleetsim.quantities import quantity
from fleetsim.records import replace

Spans = Mapping[str, tuple[float, float]] | None
"""From, to of quantities by name, as far as inputs are in doubt; None where none is."""
Tone = Literal["good", "unsure", "bad"]
"""Of an answer: it holds what was asked for; it may well be another; it misses something that was asked for."""
Weight = Literal["brief", "explained"]


class Words(Struct, frozen=True):
    """Text in two weights. strong: the text is bold. tail: what follows it and matters less, dim in a terminal."""

    text: str = ""
    tail: str = ""
    strong: bool = False

    def __str__(self) -> str:
        return self.text + self.tail


Cell = str | Words


class NextLines(Struct, frozen=True):
    """What to do next: words for people, and commands for a shell, a line each (`next_lines.is_command`). lead: what
    stands before them. strong: they are what the reader came for."""

    lead: str
    text: str
    strong: bool = False

    def __str__(self) -> str:
        return self.text


class Fact(Struct, frozen=True):
    """One thing that a result says.

    name: a quantity's, or what the fact is about ("binds"). said: its words; none where its figure stands on a tile and
    in JSON alone. line: the label of the line that it is said in, beside others; its name if empty. value: for a
    machine, in the unit. low, high: what the value lies between; of: what makes it lie there: doubt about inputs, or
    the seeds alone. title: of its tile, none if empty; note: what belongs to a tile that has no range. apart: it begins
    a line, whatever the label of the line before.
    """

    name: str
    said: Cell | NextLines = ""
    line: str = ""
    value: Any = None
    unit: units.Unit | None = None
    low: float | None = None
    high: float | None = None
    of: Literal["inputs", "seeds", ""] = ""
    title: str = ""
    note: str = ""
    weight: Weight = "brief"
    apart: bool = False

    @property
    def figure(self) -> str:
        """The value as it is written."""
        if self.unit is not None:
            return units.written(self.value, self.unit)
        return f"{self.value:,}" if isinstance(self.value, int) else str(self.value)

    @property
    def beside(self) -> str:
        """What stands beside the figure on a tile: "likely 25.0 s to 44.4 s", "±0.3 of seeds", else its note."""
        if self.low is None or self.high is None or self.unit is None:
            return self.note
        if self.of == "seeds":
            return units.of_seeds(units.mean_and_half(Estimate(self.value, self.low, self.high), self.unit)[1])
        return f"likely {units.written(self.low, self.unit)} to {units.written(self.high, self.unit)}"


class Facts(Struct, frozen=True):
    """The table. answer: one sentence, with its range. rest: whether there is more to be shown than the lines."""

    answer: str
    rows: tuple[Fact, ...]
    tone: Tone = "good"
    rest: bool = True

    @property
    def lines(self) -> tuple[tuple[str, Cell | NextLines], ...]:
        """Label and words of each line of the answer in brief. Facts of one line that follow each other are joined; a
        fact that says nothing is left out."""
        found: list[tuple[str, Cell | NextLines]] = []
        line = ""
        for fact in (one for one in self.rows if one.said and one.weight == "brief"):
            if fact.line and fact.line == line and not fact.apart:
                found[-1] = (line, f"{found[-1][1]}, {fact.said}")
            else:
                found.append((fact.line or fact.name, fact.said))
            line = fact.line
        return tuple(found)

    @property
    def explained(self) -> tuple[Cell, ...]:
        """What is said beyond the lines, a paragraph each."""
        return tuple(
            one.said
            for one in self.rows
            if one.said and one.weight == "explained" and not isinstance(one.said, NextLines)
        )

    @property
    def tiles(self) -> tuple[Fact, ...]:
        """The facts that a page draws as tiles, with one kind of interval: where inputs are in doubt, what seeds alone
        do is left to the tables."""
        found = [one for one in self.rows if one.title]
        doubt = any(one.of == "inputs" for one in found)
        return tuple(replace(one, low=None, high=None) if doubt and one.of == "seeds" else one for one in found)

    def and_more(self, *rows: Fact) -> Facts:
        """The table with further facts."""
        return facts(self.answer, self.rows, rows, tone=self.tone, rest=self.rest)

    def data(self) -> list[dict[str, Any]]:
        """The table as JSON has it, by name; what is not known of a fact is left out."""
        found = []
        for fact in sorted(self.rows, key=lambda one: one.name):
            line = "" if fact.weight != "brief" or not fact.said else fact.line or fact.name
            said = {"name": fact.name, "said": str(fact.said), "line": line, "value": fact.value, "unit": fact.unit}
            said |= {"low": fact.low, "high": fact.high, "of": fact.of}
            found.append({key: value for key, value in said.items() if value is not None and value != ""})
        return found


def facts(answer: str, *rows: Fact | Iterable[Fact] | None, tone: Tone = "good", rest: bool = True) -> Facts:
    """A table of facts, one by one or several at a time; None for one that there is not. What says nothing and has no
    value is left out."""
    found: list[Fact] = []
    for row in rows:
        if row is not None:
            found += (row,) if isinstance(row, Fact) else row
    return Facts(answer, tuple(row for row in found if row.said or row.value is not None), tone, rest)


def explained(name: str, said: Cell | None) -> Fact:
    """A paragraph that is read when somebody asks for it."""
    return Fact(name, said or "", weight="explained")


def measured(
    name: str, of: Estimate, spans: Spans = None, say: str = "", line: str = "", tile: bool = True, said: Cell = ""
) -> Fact:
    """A quantity with its range: that of the inputs where it has one, else that of the seeds.

    say: words around the figure and its range, "{} a step"; said: other words.
    """
    q = quantity(name)
    ends = (spans or {}).get(name)
    low, high = (of.ci_low, of.ci_high) if ends is None else ends
    figure = units.written(of.mean, q.unit)
    alike = ends is None or all(units.written(x, q.unit) == figure for x in ends)
    if say:
        said = say.format(ranged(name, of.mean, spans))
    if alike:
        low, high = of.ci_low, of.ci_high
    return Fact(
        name, said, line, of.mean, q.unit, low, high, "seeds" if alike else "inputs", title=q.title if tile else ""
    )


def ranged(name: str, value: float, spans: Spans) -> str:
    """A metric with its range: "30.2 s (24.0 s to 47.8 s)", the value alone where both ends read as it does."""
    ends = (spans or {}).get(name, (value, value))
    said, low, high = (units.written(x, quantity(name).unit) for x in (value, *ends))
    return said if said == low == high else f"{said} ({low} to {high})"
