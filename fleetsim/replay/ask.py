"""What a fleet did, which side starves, and what another fleet would have done: from its own metrics."""

from __future__ import annotations

import os
import time
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, replace
from typing import TYPE_CHECKING, Any

from fleetsim.config.override import env_overrides, parse_override, parse_overrides
from fleetsim.errors import InputError, Problem
from fleetsim.job.in_python import in_python
from fleetsim.job.job_face import Start, Tell, load
from fleetsim.job.metrics import Metrics
from fleetsim.job.options import change_texts
from fleetsim.job.result import Result
from fleetsim.job.unchanging import unchanging
from fleetsim.job.watch import SILENT, Watch

if TYPE_CHECKING:
    import pandas as pd
    from rich.console import Group

    from fleetsim.config.scenario import Scenario
    from fleetsim.history.access import Access
    from fleetsim.history.history import History
    from fleetsim.replay.answers import Answers
    from fleetsim.replay.backtest import Backtest
    from fleetsim.replay.change.recommend import Recommendation
    from fleetsim.replay.diagnose.finding import Verdict
    from fleetsim.replay.observe.observed import Observed
    from fleetsim.replay.run import Replayed

LAST_HOURS = "-6h"


@unchanging
@dataclass(frozen=True, slots=True, eq=False, repr=False)
class ReplayResult(Result):
    """A window of history, judged.

    replayed: everything that was found (fleetsim/replay/run.py); what it may lack is None there, and an error that says
    why as a property here. answers: what was asked beyond it: what_if, sweep,
    recommendation (or withheld: why there is none), plan, verification; None = not asked. warnings: as on stderr.
    """

    history: History
    replayed: Replayed
    answers: Answers
    warnings: tuple[str, ...]

    def __repr__(self) -> str:
        faults = [f.check for f in self.verdict.findings if f.state == "fault"]
        what = f"{self.verdict.starves} starves; faults: {', '.join(faults) or 'none'}"
        return f"<ReplayResult of {self.history.source}: {what}>"

    @property
    def observed(self) -> Observed:
        """What the fleet did, as numbers."""
        return self.replayed.observed

    @property
    def verdict(self) -> Verdict:
        """Which side starves (`starves`) and why (`findings`)."""
        return self.replayed.verdict

    @property
    def metrics(self) -> Metrics:
        """What was observed, name -> Estimate by batch means, as `fleetsim compare` reads a window; only what the
        window tells (WINDOW_METRICS of fleetsim/quantities.py has all)."""
        from fleetsim.replay.observe.window_metrics import window_means, window_of

        means, _ = window_means(window_of(self.history))
        return Metrics({name: found.estimate() for name, found in means.items()})

    @property
    def backtest(self) -> Backtest:
        """How well the simulation reproduces the window. Raises InputError where it was not asked for, or could not
        be."""
        if self.replayed.backtest is None:
            raise self._missing("backtest", "no back-test was asked for", "leave out backtest=False")
        return self.replayed.backtest

    @property
    def scenario(self) -> Scenario:
        """The scenario that the window implies. Raises InputError where it does not say enough."""
        if self.replayed.implied is None:
            raise self._missing("scenario", "nothing that needs it was asked for", "leave out backtest=False")
        return self.replayed.implied.scenario

    @property
    def recommendation(self) -> Recommendation:
        """The fleet that the window's job should have. Raises InputError where none was asked for, or where it is
        withheld: a fault is to be mended first, or the simulation does not predict the window (`answers.withheld`)."""
        held = self.answers.withheld
        if held is not None:
            then = self.answers.then
            after = "size it anew from a window after that" if then is None else f"then {then.instances} instances"
            remedy = after if held.first else "see result.verdict and result.backtest for where to look"
            raise InputError([Problem("recommendation", self.history.source, f"is withheld: {held.why}", remedy)])
        if self.answers.recommendation is None:
            raise self._missing("recommendation", "none was asked for", "give recommend=True to fleetsim.replay")
        return self.answers.recommendation

    def _missing(self, what: str, unasked: str, remedy: str) -> InputError:
        """Why there is none: the window cannot be simulated, or nobody asked."""
        if self.replayed.unsimulated is not None:
            unasked = f"the window cannot be simulated: {self.replayed.unsimulated}"
            remedy = "give what is missing: replay(..., job, given={...})"
        return InputError([Problem(what, self.history.source, unasked, remedy)])

    def to_pandas(self) -> pd.DataFrame:
        """A row a finding: check, state, title and what it costs. Needs pandas."""
        from dataclasses import asdict

        from fleetsim.job.frames import frame

        return frame([asdict(finding) for finding in self.verdict.findings])

    def view(self) -> Group:
        """What the command prints."""
        from fleetsim.replay.told import replay_report

        return replay_report(self.replayed, self.answers)

    def page(self, watch: Watch = SILENT) -> str:
        """What the command writes under --html."""
        from fleetsim.replay.page import replay_page

        return replay_page(self.history, self.replayed, self.answers)

    def document(self) -> dict[str, Any]:
        """What the command prints under --json."""
        from fleetsim.replay.data import replay_document

        return replay_document(self.replayed, self.answers)


@in_python()
def replay(
    history: str | os.PathLike[str] | History,
    job: Start = None,
    *,
    start: str | None = None,
    end: str | None = None,
    step_s: float | None = None,
    selector: str = "",
    mapping: Mapping[str, str] | None = None,
    framework: str | None = None,
    access: Access | None = None,
    given: Mapping[str, Any] | None = None,
    profile: str | os.PathLike[str] | None = None,
    changes: Mapping[str, Any] | None = None,
    sweep: tuple[str, Sequence[Any]] | None = None,
    recommend: bool = False,
    backtest: bool = True,
    tell: Tell | None = None,
) -> ReplayResult:
    """Observes, simulates and judges what a fleet did: `fleetsim replay`.

    history: a file (a dump of --save, OpenMetrics text, a run log), the http(s) address of a Prometheus, or a History.
    job: the fleet's own policies and prices, as for `load`; None = unknown. start, end: "-6h", "-1d12h", an ISO time
    (UTC) or unix seconds, as text; a file is read whole, of a server the last six hours. step_s: the grid, None = the
    scrape interval. selector: which engines of a server (`job="rollout"`). mapping: signal -> metric. framework: whose
    run log a file is. access: how to get into a server, else FLEETSIM_PROMETHEUS_*. given: facts, which win over the
    window. changes: what if these were so. sweep: what if, for several values: ("fleet.instances", [8, 10, 12]).
    recommend: size the fleet. backtest: simulate the window.

    Raises InputError (nothing there, wrong options, a window that says too little for what was asked), OutsideError
    (the server did not do its part).
    """
    from fleetsim.replay.answers import Questions, answer
    from fleetsim.replay.diagnose.addressed import addressed
    from fleetsim.replay.run import replay as replayed

    tell = tell or (lambda text: None)
    facts, asked = change_texts(given or {}), change_texts(changes or {})
    tried = dict(parse_overrides(list(asked.values())))
    known = load(job, given, profile=profile) if profile is not None else load(job, given)
    one_by_one = {parse_override(text)[0] for text in (*env_overrides(os.environ), *facts.values())}
    if profile is not None:
        one_by_one |= {"engine.profile", "engine.kind"}
    questions = Questions(tried, None if sweep is None else _swept(sweep), recommend)
    window = _read(history, start, end, step_s, selector, mapping, framework, access, tell)
    result = replayed(
        window,
        known.scenario if known.given else None,
        given=known.given,
        facts=frozenset(one_by_one),
        from_file=job is not None,
        model=questions.simulates,
        back_test=backtest,
        progress=tell,
    )
    answers = answer(questions, result, known.given, tell)
    result = replace(result, verdict=addressed(result.verdict, _words(history, job, start, end, facts, profile)))
    return ReplayResult(window, result, answers, known.notes)


def read_history(source: str | os.PathLike[str] | History, start: str | None, end: str | None, tell: Tell) -> History:
    """A window of a file, a Prometheus or a history that was read. Raises as `replay`."""
    return _read(source, start, end, None, "", None, None, None, tell)


def _swept(sweep: tuple[str, Sequence[Any]]) -> tuple[str, tuple[Any, ...]]:
    """The key and its values. Raises InputError."""
    key, values = sweep
    path, _ = parse_override(f"{key}=null")
    if isinstance(values, str) or not len(values):
        raise InputError([Problem("sweep", values, "must be a list of values", '("fleet.instances", [8, 10, 12])')])
    return path, tuple(value.item() if hasattr(value, "item") else value for value in values)


def _read(
    source: str | os.PathLike[str] | History,
    start: str | None,
    end: str | None,
    step_s: float | None,
    selector: str,
    mapping: Mapping[str, str] | None,
    framework: str | None,
    access: Access | None,
    tell: Tell,
) -> History:
    """The window. A file's times are its own: "-2h" is two hours before its last value."""
    from fleetsim.history.files import read_file
    from fleetsim.history.window import parse_time, window

    if isinstance(source, str) and source.startswith(("http://", "https://")):
        return _from_prometheus(source, start, end, step_s, selector, mapping, access, tell)
    if access is not None or (selector and not isinstance(source, (str, os.PathLike))):
        what = "access" if access is not None else "selector"
        raise InputError([Problem(what, selector or "...", "means something with a Prometheus only", "leave it out")])
    if isinstance(source, (str, os.PathLike)):
        tell(f"reading {os.fspath(source)}")
        source = read_file(os.fspath(source), step_s=step_s, mapping=mapping, framework=framework, selector=selector)
    if start is None and end is None:
        return source
    last = source.end_s
    begin = source.start_s if start is None else parse_time(start, last, "start")
    return window(source, begin, last if end is None else parse_time(end, last, "end"))


def _from_prometheus(
    url: str,
    start: str | None,
    end: str | None,
    step_s: float | None,
    selector: str,
    mapping: Mapping[str, str] | None,
    access: Access | None,
    tell: Tell,
) -> History:
    from fleetsim.history.access import access_from
    from fleetsim.history.prometheus import Prometheus
    from fleetsim.history.read import read_prometheus
    from fleetsim.history.window import parse_time

    now = time.time()
    begin, until = parse_time(start or LAST_HOURS, now, "start"), parse_time(end or "now", now, "end")
    prometheus = Prometheus(url, access_from() if access is None else access)
    tell(f"reading {prometheus.url}")
    try:
        return read_prometheus(prometheus, begin, until, step_s, selector, mapping, None, now)
    finally:
        prometheus.close()


def _words(
    source: object,
    job: object,
    start: str | None,
    end: str | None,
    facts: Mapping[str, str],
    profile: str | os.PathLike[str] | None,
) -> list[str]:
    """The words of `fleetsim replay` that say the same, for the commands which the verdict recommends."""
    words: list[str] = []
    if isinstance(source, str) and source.startswith(("http://", "https://")):
        from fleetsim.history.access import address_of

        words += ["--prometheus", address_of(source)[0]]
    elif isinstance(source, (str, os.PathLike)):
        words += ["--from", os.fspath(source)]
    for flag, value in (("--start", start), ("--end", end)):
        words += [flag, value] if value else []
    if isinstance(job, (str, os.PathLike)):
        words += ["--scenario", os.fspath(job)]
    for text in facts.values():
        words += ["--given", text]
    return [*words, "--profile", os.fspath(profile)] if profile is not None else words
