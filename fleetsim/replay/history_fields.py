"""Where history comes from: a Prometheus, a file or what Python has read; which part of it, and how to get in."""

from __future__ import annotations

import os
from collections.abc import Callable, Mapping
from dataclasses import dataclass, field
from pathlib import Path
from typing import TYPE_CHECKING, Annotated

from fleetsim.errors import InputError, Problem, Problems
from fleetsim.faces import flag
from fleetsim.history.option_names import HISTORY, STEP
from fleetsim.job.settings import Option
from fleetsim.records import replace

if TYPE_CHECKING:
    from fleetsim.history.access import Access
    from fleetsim.history.history import History

SOURCE, ACCESS = "The history", "Getting in"
LAST_HOURS = "-6h"
PATIENCE_S = 60.0
_SAID = ("token_file", "basic_auth_file", "org_id", "ca_file", "client_cert", "client_key")


@dataclass(frozen=True)
class AccessFields:
    """How a command authenticates at a Prometheus."""

    token_file: Annotated[Path | None, Option("Holds the bearer token (or FLEETSIM_PROMETHEUS_TOKEN).", ACCESS)] = None
    basic_auth_file: Annotated[
        Path | None, Option("Holds user:password (or FLEETSIM_PROMETHEUS_USER, _PASSWORD).", ACCESS)
    ] = None
    org_id: Annotated[str | None, Option("X-Scope-OrgID, for Mimir.", ACCESS)] = None
    ca_file: Annotated[Path | None, Option("CA of the server's certificate.", ACCESS)] = None
    client_cert: Annotated[Path | None, Option("The certificate that fleetsim shows.", ACCESS)] = None
    client_key: Annotated[Path | None, Option("Its key.", ACCESS)] = None
    insecure_skip_verify: Annotated[bool, Option("Accept any certificate.", ACCESS)] = False
    timeout: Annotated[float, Option("Seconds for one answer.", ACCESS)] = PATIENCE_S

    def access(self) -> Access:
        """What they say, with what the environment says. Raises InputError, all problems at once."""
        from fleetsim.history.access import access_from

        said = {name: getattr(self, name) for name in _SAID}
        return access_from(**said, skip_verify=self.insecure_skip_verify, timeout_s=self.timeout)

    def words(self) -> tuple[str, ...]:
        """The words of a command that say the same: names of files, never what is in them."""
        words = tuple(word for name in _SAID for word in pair(flag(name), getattr(self, name)))
        late = () if self.timeout == PATIENCE_S else ("--timeout", f"{self.timeout:g}")
        return (*words, *(("--insecure-skip-verify",) if self.insecure_skip_verify else ()), *late)


@dataclass(frozen=True, kw_only=True)
class HistoryWindow:
    """One window of a history, checked and not read yet.

    One of prometheus (an address), file and history (read before). start, end: as written; None = the last hours of a
    Prometheus, all of anything else. step_s: the grid, None = the scrape interval; step: as it was written. mapping:
    signal -> metric. framework: whose run log a file is. access: None = as the environment says. way_in: the words of a
    command for it. counts: whether every query is told.
    """

    prometheus: str | None = None
    file: str | os.PathLike[str] | None = None
    history: History | None = None
    start: str | None = None
    end: str | None = None
    step_s: float | None = None
    step: str = ""
    selector: str = ""
    mapping: Mapping[str, str] = field(default_factory=dict)
    framework: str | None = None
    access: Access | None = None
    way_in: tuple[str, ...] = ()
    counts: bool = False

    @classmethod
    def of(cls, source: str | os.PathLike[str] | History) -> HistoryWindow:
        """All of whatever Python calls a history: the address of a Prometheus, a file, or what was read before."""
        if isinstance(source, str) and source.startswith(("http://", "https://")):
            return cls(prometheus=source)
        return cls(file=source) if isinstance(source, (str, os.PathLike)) else cls(history=source)

    def ready(self) -> HistoryWindow:
        """Itself."""
        return self

    def through(self, fields: AccessFields) -> HistoryWindow:
        """The same window, with a command's way in. Raises InputError."""
        access = None if self.prometheus is None else fields.access()
        return replace(self, access=access, way_in=fields.words())

    def read(self, tell: Callable[[str], None]) -> History:
        """Raises InputError (nothing there, wrong options), OutsideError (the server did not do its part)."""
        return self._of_server(self.prometheus, tell) if self.prometheus is not None else self._of_file(tell)

    def _of_server(self, url: str, tell: Callable[[str], None]) -> History:
        import time

        from fleetsim.history.access import access_from
        from fleetsim.history.prometheus import Prometheus
        from fleetsim.history.read import read_prometheus
        from fleetsim.history.window import parse_time

        now = time.time()
        start = parse_time(self.start or LAST_HOURS, now, flag("start"))
        end = parse_time(self.end or "now", now, flag("end"))
        server = Prometheus(url, access_from() if self.access is None else self.access)
        tell(f"reading {server.url}")

        def told(done: int, of: int, what: str) -> None:
            tell(f"reading {server.url}: {done} of {of} queries ({what})")

        try:
            progress = told if self.counts else None
            return read_prometheus(server, start, end, self.step_s, self.selector, self.mapping, progress, now)
        finally:
            server.close()

    def _of_file(self, tell: Callable[[str], None]) -> History:
        """The times are the file's own: "-2h" is two hours before its last value."""
        from fleetsim.history.files import read_file
        from fleetsim.history.window import parse_time, window

        history = self.history
        if history is None:
            assert self.file is not None
            tell(f"reading {os.fspath(self.file)}")
            try:
                path = os.fspath(self.file)
                history = read_file(path, self.framework, self.mapping, self.step_s, self.selector)
            except InputError as error:
                named = [replace(p, path=HISTORY) if p.path == "history" else p for p in error.problems]
                raise InputError(named) from None
        if self.start is None and self.end is None:
            return history
        last = history.end_s
        start = history.start_s if self.start is None else parse_time(self.start, last, flag("start"))
        return window(history, start, last if self.end is None else parse_time(self.end, last, flag("end")))

    def words(self) -> tuple[str, ...]:
        """The words of a command that reads the same; never a credential of the address."""
        step = self.step if self.step_s is not None else ""
        return (
            *self._address(),
            *pair("--selector", self.selector),
            *pair("--start", self.start),
            *pair("--end", self.end),
            *pair("--step", step or (f"{self.step_s:g}s" if self.step_s is not None else "")),
            *(word for name, metric in self.mapping.items() for word in ("--map", f"{name}={metric}")),
            *pair("--framework", self.framework),
            *self.way_in,
        )

    def server_words(self) -> tuple[str, ...] | None:
        """Those that find the same instances at another time; None for a file, which says nothing of later."""
        if self.prometheus is None:
            return None
        return (*self._address(), *pair("--selector", self.selector), *self.way_in)

    def _address(self) -> tuple[str, ...]:
        if self.prometheus is None:
            return () if self.file is None else ("--from", os.fspath(self.file))
        from fleetsim.history.access import address_of

        return ("--prometheus", address_of(self.prometheus)[0])


@dataclass(frozen=True, kw_only=True)
class WindowFields:
    """A window as a command line says it."""

    prometheus: Annotated[
        str | None, Option("Prometheus, Thanos, Mimir or VictoriaMetrics.", SOURCE, metavar="URL")
    ] = None
    from_: Annotated[
        str | None, Option("Or: what --save wrote, OpenMetrics text, a run log.", SOURCE, metavar="PATH")
    ] = None
    start: Annotated[str | None, Option("-6h, -1d12h, an ISO time (UTC), unix.", SOURCE, metavar="TIME")] = None
    end: Annotated[str | None, Option("As --start; or now.", SOURCE, metavar="TIME")] = None
    step: Annotated[str, Option("Grid, as 15s; auto = the scrape interval.", SOURCE, metavar="SPAN")] = "auto"
    selector: Annotated[str, Option("""Which engines: 'job="rollout"'.""", SOURCE, metavar="LABELS")] = ""
    map_: Annotated[list[str] | None, Option("A metric of yours. Repeatable.", SOURCE, metavar="SIGNAL=METRIC")] = None
    framework: Annotated[
        str | None, Option("Whose run log it is: verl, trl, nemo-rl... (else: found out).", SOURCE)
    ] = None

    def ready(self) -> HistoryWindow:
        """The window, with a way in as the environment says. Raises InputError, all problems at once."""
        from fleetsim.history.selection import parse_map
        from fleetsim.history.window import parse_time

        wrong = Problems()
        with wrong.check():
            mapping = parse_map(self.map_ or (), known=self.from_ is None)
        with wrong.check():
            self._check_source()
        with wrong.check():
            step_s = step_of(self.step)
        for name, time in (("start", self.start), ("end", self.end)):
            with wrong.check():
                if time is not None:
                    parse_time(time, 0.0, flag(name))
        wrong.stop()
        same = {name: getattr(self, name) for name in ("prometheus", "start", "end", "step", "selector", "framework")}
        return HistoryWindow(file=self.from_, step_s=step_s, mapping=mapping, **same)

    def _check_source(self) -> None:
        given = [name for name, value in (("--prometheus", self.prometheus), ("--from", self.from_)) if value]
        if len(given) != 1:
            rule = "there is nothing to read" if not given else "one source at a time"
            what = " and ".join(given) or "neither --prometheus nor --from"
            raise InputError([Problem("replay", what, rule, "give --prometheus URL or --from PATH")])
        if self.framework and self.from_ is None:
            raise InputError([Problem("--framework", self.framework, "means something with --from only", "drop it")])


def step_of(text: str) -> float | None:
    """Seconds between values; None for auto, the scrape interval. Raises InputError."""
    from fleetsim.history.window import parse_span

    if text == "auto":
        return None
    seconds = parse_span(text)
    if seconds is None or seconds <= 0:
        raise InputError([Problem(STEP, text, "must be auto or a span of time", "for example 15s, 1m")])
    return seconds


def pair(name: str, value: object) -> tuple[str, ...]:
    """An option and its value as words of a command; none for a value that is not given."""
    return (name, str(value)) if value else ()
