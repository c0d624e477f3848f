"""Where `fleetsim replay` reads from: a Prometheus, or a file; one window of it, and its copy for `--save`."""

from __future__ import annotations

import sys
import time
from collections.abc import Callable, Sequence
from dataclasses import dataclass, replace
from pathlib import Path
from typing import TYPE_CHECKING

from fleetsim.cli.history_options import AccessFlags, connect, step_of
from fleetsim.errors import InputError, Problem
from fleetsim.files import reason

if TYPE_CHECKING:
    from fleetsim.history.history import History

Tell = Callable[[str], None]
LAST_HOURS = "-6h"


@dataclass(frozen=True, slots=True)
class Source:
    """What the command line says of the history. start, end: None = the last hours of a Prometheus, all of a file."""

    prometheus: str | None
    file: str | None
    start: str | None
    end: str | None
    step: str
    selector: str
    mapping: dict[str, str]
    framework: str | None
    access: AccessFlags

    def __post_init__(self) -> None:
        given = [name for name, value in (("--prometheus", self.prometheus), ("--from", self.file)) if value]
        if len(given) != 1:
            rule = "there is nothing to read" if not given else "one source at a time"
            what = " and ".join(given) or "neither --prometheus nor --from"
            raise InputError([Problem("replay", what, rule, "give --prometheus URL or --from PATH")])
        if self.framework and self.file is None:
            raise InputError([Problem("--framework", self.framework, "means something with --from only", "drop it")])


def read(source: Source, tell: Tell) -> History:
    """The window. Raises InputError (nothing there, wrong options), OutsideError (the server did not do its part)."""
    return _from_prometheus(source, tell) if source.prometheus is not None else _from_file(source, tell)


def _from_prometheus(source: Source, tell: Tell) -> History:
    assert source.prometheus is not None
    now = time.time()
    from fleetsim.history.window import parse_time

    start = parse_time(source.start or LAST_HOURS, now, "--start")
    end = parse_time(source.end or "now", now, "--end")
    step = step_of(source.step)
    prometheus = connect(source.prometheus, source.access)
    from fleetsim.history.read import read_prometheus

    tell(f"reading {prometheus.url}")
    on_terminal = sys.stderr.isatty()  # elsewhere a line per query would be too many

    def progress(done: int, of: int, what: str) -> None:
        if on_terminal:
            tell(f"reading {prometheus.url}: {done} of {of} queries ({what})")

    try:
        return read_prometheus(prometheus, start, end, step, source.selector, source.mapping, progress, now)
    finally:
        prometheus.close()


def _from_file(source: Source, tell: Tell) -> History:
    """A file's times are its own: "-2h" is two hours before its last value."""
    assert source.file is not None
    from fleetsim.history.files import read_file
    from fleetsim.history.window import parse_time, window

    tell(f"reading {source.file}")
    step = step_of(source.step)
    try:
        history = read_file(Path(source.file), source.framework, source.mapping, step, source.selector)
    except InputError as error:
        flagged = [replace(p, path="--from") if p.path == "history" else p for p in error.problems]
        raise InputError(flagged) from None
    if source.start is None and source.end is None:
        return history
    last = history.end_s
    start = history.start_s if source.start is None else parse_time(source.start, last, "--start")
    return window(history, start, last if source.end is None else parse_time(source.end, last, "--end"))


def mapping_of(texts: Sequence[str], file: str | None) -> dict[str, str]:
    """SIGNAL=METRIC of all `--map`; a run log's columns have names of their own, which its reader checks.

    Raises InputError, all problems at once.
    """
    from fleetsim.history.mapped import parse_map

    if file is None:
        return parse_map(texts)
    pairs = [tuple(part.strip() for part in text.partition("=")) for text in texts]
    wrong = [text for text, (name, _, metric) in zip(texts, pairs, strict=True) if not name or not metric]
    if wrong:
        raise InputError(
            [Problem("--map", text, "must read SIGNAL=METRIC", "e.g. train_s=my_column") for text in wrong]
        )
    return {name: metric for name, _, metric in pairs}


def new_dump(path: str | None) -> Path | None:
    """Where --save writes: something that does not exist yet. Raises InputError before anything is read."""
    if path is None:
        return None
    place = Path(path)
    if not path or path == "-" or "\0" in path:
        raise InputError([Problem("--save", path, "is no file name", "give one, for example window.parquet")])
    try:
        if place.exists():
            raise InputError([Problem("--save", path, "exists already", "choose another name, or remove it")])
    except OSError as error:
        raise InputError([Problem("--save", path, f"is no usable path: {reason(error)}", "give a file")]) from None
    if place.suffix == ".parquet":
        from fleetsim.history.dump_tables import need_pyarrow

        need_pyarrow(place, "--save")
    return place
