"""`replay`: what a fleet did, which side starves, and what another fleet would have done: from its own metrics."""

from __future__ import annotations

import os
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass
from typing import TYPE_CHECKING, Annotated, Any, Self

from fleetsim.errors import InputError, Problem
from fleetsim.faces import keywords
from fleetsim.job.result import SILENT, Watch, told
from fleetsim.job.settings import RUN, Lends, Option
from fleetsim.records import replace
from fleetsim.replay.history_fields import HistoryWindow, WindowFields
from fleetsim.replay.questions import ChangeFields, FleetFields, KnownFleet, Questions
from fleetsim.replay.result import ReplayResult

if TYPE_CHECKING:
    from fleetsim.history.access import Access
    from fleetsim.history.history import History
    from fleetsim.job.base_job import Start, Tell


@dataclass(frozen=True, kw_only=True)
class Replay:
    """What did a fleet do, which side starves, and what would another fleet have done?

    Each part is as a command line says it, or checked. read: hears the History once it is read, before anything is
    simulated. as_job: the window's job is wanted, whatever else is asked.
    """

    history: Annotated[WindowFields | HistoryWindow, Lends(WindowFields)]
    fleet: Annotated[FleetFields | KnownFleet, Lends(FleetFields)]
    changes: Annotated[ChangeFields | Questions, Lends(ChangeFields)]
    no_backtest: Annotated[bool, Option("Observe and judge; simulate nothing.", RUN)] = False
    read: Callable[[Any], None] | None = None
    as_job: bool = False

    def ready(self) -> Self:
        """The same question, checked before anything is read. Raises InputError."""
        return replace(self, history=self.history.ready(), fleet=self.fleet.ready(), changes=self.changes.ready())


def ask(asked: Replay, watch: Watch = SILENT) -> ReplayResult:
    """Reads the window, simulates it and judges it.

    Raises InputError (nothing there, wrong options, a window that says too little for what was asked), OutsideError
    (the server did not do its part), StuckError.
    """
    window, fleet, questions = asked.history.ready(), asked.fleet.ready(), asked.changes.ready()
    history = window.read(watch)
    if asked.read is not None:
        asked.read(history)
    from fleetsim.replay.answers import answer
    from fleetsim.replay.diagnose.cures import for_call
    from fleetsim.replay.diagnose.finding import addressed
    from fleetsim.replay.run import replay as replayed
    from fleetsim.replay.shown import printed_job

    # the configuration that the framework printed into the log counts where nobody gave a scenario
    printed = None if fleet.from_file or window.file is None else printed_job(history, window.file)
    fleet = fleet if printed is None else replace(fleet, job=fleet.job.on(printed), from_file=True)
    known = fleet.job
    found = replayed(
        history,
        known.scenario if known.given else None,
        given=known.given,
        facts=fleet.facts,
        from_file=fleet.from_file,
        model=questions.simulates or asked.as_job,
        back_test=not asked.no_backtest,
        progress=watch,
    )
    answers = answer(questions, found, known.given, watch)
    call = (*window.words(), *fleet.words)
    found = replace(found, verdict=addressed(found.verdict, call), cures=for_call(found.cures, call))
    return ReplayResult(history, found, answers, known.notes)


@keywords()
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
    from fleetsim.config.load import parse_overrides
    from fleetsim.job.options import change_texts

    facts, tried = change_texts(given or {}), change_texts(changes or {})
    asked = dict(parse_overrides(list(tried.values())))
    fleet = _fleet(job, given, list(facts.values()), profile)
    questions = Questions(asked, None if sweep is None else _swept(sweep), recommend)
    window = replace(
        HistoryWindow.of(history),
        start=start,
        end=end,
        step_s=step_s,
        selector=selector,
        mapping=mapping or {},
        framework=framework,
        access=access,
    )
    if window.prometheus is None and (access is not None or (selector and window.file is None)):
        what = "access" if access is not None else "selector"
        raise InputError([Problem(what, selector or "...", "means something with a Prometheus only", "leave it out")])
    return ask(Replay(history=window, fleet=fleet, changes=questions, no_backtest=not backtest), told(tell))


def _fleet(
    job: Start, given: Mapping[str, Any] | None, facts: list[str], profile: str | os.PathLike[str] | None
) -> KnownFleet:
    """What Python says of the fleet. facts: what is given, as KEY=VALUE. Raises InputError."""
    from fleetsim.job.base_job import load

    known = load(job, given, profile=profile) if profile is not None else load(job, given)
    said = FleetFields(
        scenario=os.fspath(job) if isinstance(job, (str, os.PathLike)) else None,
        given=facts,
        profile=None if profile is None else os.fspath(profile),
    )
    return KnownFleet(job=known, facts=said.facts(), from_file=job is not None, words=said.words())


def _swept(sweep: tuple[str, Sequence[Any]]) -> tuple[str, tuple[Any, ...]]:
    """The key and its values. Raises InputError."""
    from fleetsim.config.load import parse_override

    key, values = sweep
    path, _ = parse_override(f"{key}=null")
    if isinstance(values, str) or not len(values):
        raise InputError([Problem("sweep", values, "must be a list of values", '("fleet.instances", [8, 10, 12])')])
    return path, tuple(value.item() if hasattr(value, "item") else value for value in values)
