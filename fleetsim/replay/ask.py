"""`replay`: what a fleet did, which side starves, and what another fleet would have done: from its own metrics."""

from __future__ import annotations

import os
from collections.abc import Callable, Iterable, Mapping, Sequence
from dataclasses import dataclass, field, replace
from typing import TYPE_CHECKING, Annotated, Any, Self

from fleetsim.errors import InputError, Problem, Problems
from fleetsim.faces import SET, flag, text
from fleetsim.job.fields import scenario_or_preset
from fleetsim.job.result import SILENT, Watch, keywords, told
from fleetsim.job.settings import RUN, Lends, Option
from fleetsim.replay.history_fields import HistoryWindow, WindowFields, pair
from fleetsim.replay.result import ReplayResult

if TYPE_CHECKING:
    from fleetsim.history.access import Access
    from fleetsim.history.history import History
    from fleetsim.job.base_job import Job, Start, Tell
    from fleetsim.replay.change.patch import Deployment
    from fleetsim.replay.change.plan import SavedPlan

CHANGE = "Another fleet on the same history"


@dataclass(frozen=True, slots=True)
class Questions:
    """changes: dotted paths and values to try; a sweep and a recommendation start from them (the recommendation finds
    its own fleet.instances). swept: one key and its values. recommend: size the fleet. deployment: whom the
    recommendation is a patch for. plan: hold the window against it."""

    changes: Mapping[str, Any] = field(default_factory=dict)
    swept: tuple[str, tuple[Any, ...]] | None = None
    recommend: bool = False
    deployment: Deployment | None = None
    plan: SavedPlan | None = None

    @property
    def simulates(self) -> bool:
        """Whether an answer needs the window's scenario."""
        return bool(self.changes) or self.swept is not None or self.recommend

    def ready(self) -> Questions:
        """Itself."""
        return self


@dataclass(frozen=True, kw_only=True)
class ChangeFields:
    """What is asked beyond the diagnosis, as a command line says it."""

    set_: Annotated[
        list[str] | None, Option("What if: fleet.instances=10. Repeatable.", CHANGE, metavar="KEY=VALUE")
    ] = None
    sweep: Annotated[
        list[str] | None, Option("What if, for several values; or A,B,C.", CHANGE, metavar="KEY=LO:HI[:STEP]")
    ] = None
    recommend: Annotated[bool, Option("The smallest fleet that holds the targets.", CHANGE)] = False
    deployment: Annotated[str | None, Option("The deployment's name.", CHANGE, metavar="NAME")] = None
    verify: Annotated[str | None, Option("Did the change do what the plan said?", CHANGE, metavar="PLAN.json")] = None

    def ready(self) -> Questions:
        """Raises InputError, all problems at once."""
        from fleetsim.config.load import parse_overrides
        from fleetsim.replay.change.patch import parse_deployment
        from fleetsim.replay.change.plan import load_plan

        wrong = Problems()
        with wrong.check():
            changes = dict(parse_overrides(self.set_ or []))
        with wrong.check():
            swept = _swept(self.sweep or [])
        with wrong.check():
            deployment = None if self.deployment is None else parse_deployment(self.deployment)
        with wrong.check():
            plan = None if self.verify is None else load_plan(self.verify)
        wrong.stop()
        return Questions(changes, swept, self.recommend, deployment, plan)


def _swept(texts: list[str]) -> tuple[str, tuple[Any, ...]] | None:
    """One table has one key: raises InputError for a second sweep."""
    from fleetsim.sweep.grid import parse_sweep

    if len(texts) > 1:
        rule = "one sweep at a time"
        remedy = text("run it again for the other key, or hold that key with {}", SET)
        raise InputError([Problem(flag("sweep"), " and ".join(texts), rule, remedy)])
    return parse_sweep(texts[0]) if texts else None


FLEET = "What is known of the fleet"


@dataclass(frozen=True, kw_only=True)
class KnownFleet:
    """What is known of a fleet beside its history, checked.

    job: with everything that was given, defaults elsewhere. facts: dotted paths of what was set one by one, which wins
    over the window. from_file: whether the job started from a scenario of the user's, or a preset. words: those of a
    command that say the same.
    """

    job: Job
    facts: frozenset[str]
    from_file: bool
    words: tuple[str, ...] = ()

    def ready(self) -> KnownFleet:
        """Itself."""
        return self


@dataclass(frozen=True, kw_only=True)
class FleetFields:
    """What is known of a fleet, as a command line says it."""

    scenario: Annotated[str | None, Option("The job's own policies and prices.", FLEET, metavar="SCENARIO")] = None
    preset: Annotated[str | None, Option("Or those of a framework: verl-fully-async...", FLEET)] = None
    given: Annotated[
        list[str] | None, Option("A fact: engine.tp=4, cost... Repeatable.", FLEET, metavar="KEY=VALUE")
    ] = None
    profile: Annotated[str | None, Option("A measured engine: a file, or a name of profile ls.", FLEET)] = None

    def ready(self) -> KnownFleet:
        """Raises InputError, all problems at once."""
        from fleetsim.job.base_job import made

        start = scenario_or_preset(self.scenario, self.preset, "--scenario")
        try:
            job = made(start, self.given or (), {"profile": self.profile})
        except InputError as error:
            own = [(p, *(text.replace("--set", "--given") for text in (p.path, p.remedy))) for p in error.problems]
            raise InputError([replace(p, path=path, remedy=remedy) for p, path, remedy in own]) from None
        return KnownFleet(job=job, facts=self.facts(), from_file=start is not None, words=self.words())

    def facts(self) -> frozenset[str]:
        """The keys that are set one by one. Raises InputError."""
        measured = () if self.profile is None else ("engine.profile", "engine.kind")
        return facts_of(self.given or ()).union(measured)

    def words(self) -> tuple[str, ...]:
        """The words of a command that say the same."""
        return (
            *pair("--scenario", self.scenario),
            *pair("--preset", self.preset),
            *(word for fact in self.given or () for word in ("--given", fact)),
            *pair("--profile", self.profile),
        )


def facts_of(texts: Iterable[str]) -> frozenset[str]:
    """The keys that were given one by one: as KEY=VALUE, or in the environment. Raises InputError."""
    from fleetsim.config.load import env_overrides, parse_override

    return frozenset(parse_override(text)[0] for text in (*env_overrides(os.environ), *texts))


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
    found = replace(found, verdict=addressed(found.verdict, (*window.words(), *fleet.words)))
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
    questions = Questions(asked, None if sweep is None else _of_python(sweep), recommend)
    window = replace(
        _window(history, start, end),
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


def _window(source: str | os.PathLike[str] | History, start: str | None, end: str | None) -> HistoryWindow:
    """A window of whatever Python calls a history."""
    if isinstance(source, str) and source.startswith(("http://", "https://")):
        return HistoryWindow(prometheus=source, start=start, end=end)
    if isinstance(source, (str, os.PathLike)):
        return HistoryWindow(file=source, start=start, end=end)
    return HistoryWindow(history=source, start=start, end=end)


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


def _of_python(sweep: tuple[str, Sequence[Any]]) -> tuple[str, tuple[Any, ...]]:
    """The key and its values. Raises InputError."""
    from fleetsim.config.load import parse_override

    key, values = sweep
    path, _ = parse_override(f"{key}=null")
    if isinstance(values, str) or not len(values):
        raise InputError([Problem("sweep", values, "must be a list of values", '("fleet.instances", [8, 10, 12])')])
    return path, tuple(value.item() if hasattr(value, "item") else value for value in values)
