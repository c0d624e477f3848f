"""OpenMetrics and Prometheus text with timestamps, and what `promtool tsdb dump` prints, as a `History`.

Formats: the OpenMetrics 1.0 text format (seconds), Prometheus's text format 0.0.4 (milliseconds), `promtool tsdb dump`
(the name as label `__name__`, milliseconds). A stamp above 1e11 is milliseconds: in seconds it would be the year 5138.
"""

from __future__ import annotations

import re
from array import array
from collections.abc import Iterable, Mapping
from pathlib import Path

import numpy as np

from fleetsim.errors import InputError, Problem
from fleetsim.faces import Text, text
from fleetsim.history.catalogue import Catalogue, wanted
from fleetsim.history.grid import history_of
from fleetsim.history.history import History, Note, RawSeries
from fleetsim.history.text import reading
from fleetsim.history.wrapped import open_text

_NAME = re.compile(r"[a-zA-Z_:][a-zA-Z0-9_:]*")
_LABEL = re.compile(
    r'[ \t]*(?:([a-zA-Z_][a-zA-Z0-9_]*|"(?:[^"\\]|\\.)*")[ \t]*=[ \t]*)?"((?:[^"\\]|\\.)*)"[ \t]*(,|(?=\}))'
)
_REST = re.compile(r"[ \t]+([^ \t_]+)(?:[ \t]+([^ \t_]+))?[ \t]*(?:#[ \t]*\{.*)?$")
_ESCAPES = {r"\\": "\\", r"\"": '"', r"\n": "\n"}
_MOST_PROBLEMS = 5
_MILLISECONDS = 1e11
_LAST_TIME = 1e14  # in milliseconds, far from now; infinity and NaN are none either


class LineError(ValueError):
    """A line that is no sample; the text says why."""


def read_openmetrics(
    path: Path | str, step_s: float | None = None, mapping: Mapping[str, str] | None = None, selector: str = ""
) -> History:
    """The file as a History; step_s, selector and mapping as in `history_of` and `wanted`. May be compressed (gzip).

    Raises InputError for lines that are no samples, for a page without timestamps, and when nothing in it is known.
    """
    path = Path(path)
    catalogue = Catalogue(wanted(mapping))
    reader = _Reader(catalogue, path)
    with reading(path), open_text(path) as file:
        reader.read(file)
        reader.notes += file.notes
    series = reader.series()
    return history_of(series, catalogue, step_s=step_s, source=path.name, notes=reader.notes, selector=selector)


def parse_series(line: str) -> tuple[str, dict[str, str], int]:
    """Name, labels and where the value begins. Raises LineError."""
    named = _NAME.match(line)
    name, at = (named[0], named.end()) if named else ("", 0)
    labels: dict[str, str] = {}
    gap = len(line[at:]) - len(line[at:].lstrip(" \t"))
    if line[at + gap : at + gap + 1] == "{":
        at += gap + 1
        while not (rest := line[at:].lstrip(" \t")).startswith("}"):
            found = _LABEL.match(line, at)
            if not found:
                raise LineError('a label is name="value"')
            text = re.sub(r"\\[\\\"n]", lambda m: _ESCAPES[m[0]], found[2])
            if found[1] is None:  # a quoted metric name stands among the labels
                if name:
                    raise LineError("two names")
                name = text
            else:
                key = found[1].strip('"')
                if key in labels:
                    raise LineError(f"label {key} stands twice")
                labels[key] = text
            at = found.end()
        at = len(line) - len(rest) + 1
    name = labels.pop("__name__", name)
    if not name:
        raise LineError("no metric name")
    return name, labels, at


class _Reader:
    """Collects samples by series; the text of a series (name and labels) is parsed once."""

    def __init__(self, catalogue: Catalogue, path: Path) -> None:
        self._catalogue, self._path = catalogue, path
        self._known: dict[str, tuple[array[float], array[float]] | None] = {}
        self._labels: dict[str, tuple[str, dict[str, str]]] = {}
        self._unstamped: dict[str, int] = {}
        self._problems: list[Problem] = []
        self._bad = 0
        self._other: set[str] = set()
        self.notes: list[Note] = []

    def read(self, lines: Iterable[str]) -> None:
        """All lines. A file that stops in the middle of a line loses that line, with a note."""
        for number, line in enumerate(lines, 1):
            if line[-1] != "\n":
                if line.strip() != "# EOF" and not line.isspace():
                    text = "The file ends in the middle of a line: it was cut short, and that line is left out."
                    self.notes.append(Note("truncated", text))
                return
            try:
                self._line(line)
            except LineError as error:
                self._bad_line(number, line, str(error))

    def _line(self, line: str) -> None:
        """Raises LineError."""
        parts = line.rsplit(" ", 2)  # the common case: seen before, and nothing after the stamp
        if len(parts) < 3 or parts[0] not in self._known:
            line = line.strip(" \t\r\n")
            if not line or line.startswith("#"):
                return
            name, labels, at = parse_series(line)
            rest = _REST.fullmatch(line, at)
            if not rest:
                raise LineError("after the labels come a value and a timestamp")
            key, parts = line[:at], [line[:at], *(text for text in rest.groups() if text is not None)]
            if name not in self._catalogue:
                self._other.add(name)
                self._known[key] = None
            elif len(parts) < 3:
                self._unstamped[key] = self._unstamped.get(key, 0) + 1
                return
            else:
                self._known.setdefault(key, (array("d"), array("d")))
                self._labels[key] = (name, labels)
        found = self._known[parts[0]]
        if found is None:
            return
        try:
            value, stamp = float(parts[1]), float(parts[2])
        except ValueError:
            raise LineError("value and timestamp are numbers") from None
        if not abs(stamp) < _LAST_TIME:
            raise LineError("the timestamp is no time")
        found[0].append(stamp)
        found[1].append(value)

    def _bad_line(self, number: int, line: str, rule: str) -> None:
        self._bad += 1
        if len(self._problems) < _MOST_PROBLEMS:
            remedy = "mend or delete the line; it must be OpenMetrics or Prometheus text"
            self._problems.append(Problem(f"{self._path}:{number}", line.strip(), rule, remedy))

    def series(self) -> list[RawSeries]:
        """What was read. Raises InputError for all that is wrong with the lines."""
        if self._problems:
            if self._bad > len(self._problems):
                more = self._bad - len(self._problems)
                rule = "more lines are no samples"
                self._problems.append(Problem(str(self._path), more, rule, "mend the first ones first"))
            raise InputError(self._problems)
        if self._unstamped:
            raise InputError([self._no_clock()])
        out = []
        for key, (name, labels) in self._labels.items():
            found = self._known[key]
            assert found is not None, "labels are kept for the series that are read"
            stamps = np.frombuffer(found[0]).copy()
            stamps[np.abs(stamps) > _MILLISECONDS] /= 1000
            if not labels.get("pod") and not labels.get("instance"):
                labels = {**labels, "instance": self._path.name.split(".")[0]}
            out.append(RawSeries(name, labels, stamps, np.frombuffer(found[1]).copy()))
        if not out and not self._other:
            rule = "the file holds no samples"
            raise InputError([Problem(str(self._path), self._path.name, rule, "give a file with OpenMetrics text")])
        return out or [RawSeries(name, {}, np.array([]), np.array([])) for name in sorted(self._other)]

    def _no_clock(self) -> Problem:
        """Pages as /metrics shows them: nobody can say from them when what was."""
        pages = max(self._unstamped.values())
        what = "a /metrics page" if pages == 1 else f"{pages} /metrics pages one after the other"
        if self._labels:
            what = "some samples have a timestamp and others have none"
        return Problem(
            str(self._path),
            next(iter(self._unstamped)),
            f"a sample without a timestamp ({what}): rates need to know when each was taken",
            text(
                "let Prometheus scrape the engines and use {}, or append the unix time in seconds to each line",
                Text("--prometheus", "its address"),
            ),
        )
