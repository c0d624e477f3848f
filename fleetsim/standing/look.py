"""One evaluation against a Prometheus: read the window, observe, back-test, diagnose, and size where inputs moved."""

from __future__ import annotations

from collections.abc import Callable, Mapping
from dataclasses import dataclass, field, replace

import numpy as np

from fleetsim.config.scenario import Scenario
from fleetsim.errors import FleetsimError, InputError, Problem
from fleetsim.history.discover import bare
from fleetsim.history.history import History
from fleetsim.history.mapped import METRIC
from fleetsim.history.prometheus import Prometheus
from fleetsim.history.read import read_prometheus
from fleetsim.history.signals import BY_NAME
from fleetsim.replay.backtest import Backtest, backtest
from fleetsim.replay.diagnose import diagnose
from fleetsim.replay.finding import Verdict
from fleetsim.replay.implied import Implied, implied
from fleetsim.replay.observe import observe
from fleetsim.replay.observed import Observed
from fleetsim.standing.wanted import Wanted, inputs_of, moved, wanted
from fleetsim.standing.watch import Look

# Clocks apart by less than this are as good as equal; the server's answers are dated to the second.
SKEW_S = 5.0
RATE = "generation_tokens"


@dataclass(frozen=True, slots=True)
class LookOptions:
    """window_s: how far back each evaluation reads. selector, mapping, step_s: as `read_prometheus` takes them. base:
    the user's scenario, None = everything is taken from the window. given: dotted paths that the user set. from_file:
    whether `base` is a file's and not only `given`. resize_on: share by which an input must move to size anew."""

    window_s: float = 3600.0
    selector: str = ""
    mapping: Mapping[str, str] = field(default_factory=dict)
    step_s: float | None = None
    base: Scenario | None = None
    given: frozenset[str] = frozenset()
    from_file: bool = True
    resize_on: float = 0.05


def of_now(problem: Problem) -> Problem:
    """A watcher's window has a length, not a beginning: it always ends now."""
    if problem.path != "--start":
        return problem
    remedy = problem.remedy
    if "inside" in remedy:
        remedy = "look why nothing is scraped any longer, or give a longer --window"
    elif "--start" in remedy or "window" in remedy:
        remedy = "give a longer --window"
    return replace(problem, path="--window", remedy=remedy)


class Looker:
    """Callable with a unix time; remembers what it sized last. tell: hears of plans made anew, and of what is odd."""

    def __init__(self, prometheus: Prometheus, options: LookOptions, tell: Callable[[str], None]) -> None:
        self._prometheus, self._options, self._tell = prometheus, options, tell
        self._wanted: Wanted | None = None

    def __call__(self, now_s: float) -> Look:
        """Raises PrometheusError and InputError where the window cannot be read; a window that can be read but not
        planned is a Look that says so."""
        o, ahead = self._options, self._ahead_s(now_s)
        # Asked in the server's time, answered in ours: whose clock is wrong does not matter, only that ages are right.
        end = now_s + ahead
        try:
            history = read_prometheus(
                self._prometheus, end - o.window_s, end, o.step_s, o.selector, o.mapping, now_s=now_s
            )
        except InputError as error:
            raise InputError([of_now(problem) for problem in error.problems]) from None
        observed = observe(history, o.base)
        look = Look(
            data_s=self._newest_s(history, end) - ahead,
            current=0 if observed.fleet is None else observed.fleet.instances_now,
            wanted=None,
            observed_idle=None if observed.trainer.idle_fraction is None else observed.trainer.idle_fraction.value,
            notes=tuple(note.text for note in observed.notes),
        )
        try:
            return self._planned(look, observed, history)
        except FleetsimError as error:
            return replace(look, withheld="no_plan", why=str(error))

    def _ahead_s(self, now_s: float) -> float:
        if self._prometheus.clock_ahead_s is None:
            self._prometheus.query("vector(1)", now_s)
        ahead = self._prometheus.clock_ahead_s or 0.0
        return ahead if abs(ahead) > SKEW_S else 0.0

    def _newest_s(self, history: History, end_s: float) -> float:
        """When the newest sample was taken. Prometheus shows a value for five minutes after its last sample, so the
        grid of the window cannot say; only `timestamp` can."""
        mine = self._options.mapping.get(RATE)
        plain = dict.fromkeys(name.partition("{")[0] for name in BY_NAME[RATE].metrics)
        names = f'__name__=~"{"|".join(plain)}"'
        matchers = ",".join(part for part in (names, bare(self._options.selector)) if part)
        metric = mine if mine is not None else f"{{{matchers}}}"
        if mine is None or METRIC.fullmatch(mine):  # the timestamp of an expression is that of the question
            found = [float(s.values[-1]) for s in self._prometheus.query(f"max(timestamp({metric}))", end_s)]
            if found:
                return max(found)
        values = history.values.get(RATE)
        if values is None or not np.isfinite(values).any():
            return history.start_s
        return float(history.times[np.flatnonzero(np.isfinite(values).any(axis=0))[-1]])

    def _planned(self, look: Look, observed: Observed, history: History) -> Look:
        o = self._options
        found = implied(observed, history, o.base, given=o.given, from_file=o.from_file)
        tested = backtest(observed, found)
        verdict = diagnose(observed, found.scenario, tested, given=o.given)
        worst, idle = tested.worst, tested.row("trainer_idle")
        look = replace(
            look,
            predicted_idle=None if idle is None else idle.predicted,
            model_error=None if worst is None else abs(worst.error),
            faults={f.check: f.state == "fault" for f in verdict.findings if f.state != "unknown"},
            starves=verdict.starves,
            headline=verdict.headline,
        )
        return self._sized(look, observed, found, tested, verdict)

    def _sized(self, look: Look, observed: Observed, found: Implied, tested: Backtest, verdict: Verdict) -> Look:
        """The look with the count that it asks for, or why it asks for none."""
        o = self._options
        if any(f.check == "data" and f.state == "fault" for f in verdict.findings):
            title = next(f.title for f in verdict.findings if f.check == "data")
            return replace(look, withheld="data", why=title)
        if tested.verdict == "wrong":
            where = "; ".join(tested.where[:2])
            return replace(look, withheld="model", why=f"the back-test is off by more than {tested.limit:.0%}: {where}")
        if found.scenario.fleet.placement == "colocated":
            why = "colocated: the fleet has the trainer's GPUs, its size is theirs"
            return replace(look, withheld="no_plan", why=why)
        known = (o.base is not None and o.from_file) or any(path.startswith("trainer.") for path in o.given)
        if observed.trainer.step_s is None and not known:
            why = "nobody says how long the trainer takes: export rl_trainer_* or --map it, or give --scenario"
            return replace(look, withheld="no_plan", why=why)
        return replace(look, wanted=self._count(found))

    def _count(self, found: Implied) -> int:
        inputs = inputs_of(found)
        last = self._wanted
        changed = ("first plan",) if last is None else moved(last.inputs, inputs, self._options.resize_on)
        if last is None or changed:
            last = self._wanted = wanted(found, self._options.given)
            knee = ", where more stop paying: no count holds the targets" if last.at_knee else ""
            self._tell(f"sized anew ({', '.join(changed)}): {last.instances} instances{knee}")
        return last.instances
