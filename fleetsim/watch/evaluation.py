"""One evaluation against a Prometheus: read the window, replay it, and size the fleet where inputs moved."""

from __future__ import annotations

from collections.abc import Callable, Collection, Mapping

import numpy as np
from msgspec import Struct, field

from fleetsim import units
from fleetsim.config.law_numbers import law_of
from fleetsim.config.scenario import Scenario
from fleetsim.errors import FleetsimError, InputError, Problem
from fleetsim.history.history import History
from fleetsim.history.prometheus import Prometheus
from fleetsim.history.read import read_prometheus
from fleetsim.history.selection import METRIC, bare
from fleetsim.history.signals import BY_NAME
from fleetsim.history.window import window
from fleetsim.job import nameplate
from fleetsim.records import replace
from fleetsim.replay.answers import on_top
from fleetsim.replay.change.recommendation import recommend
from fleetsim.replay.diagnose.mending import mended
from fleetsim.replay.implied.implied_scenario import Implied
from fleetsim.replay.observe.observe import observe
from fleetsim.replay.run import Replayed, replay
from fleetsim.watch.watch import Look

# Clocks apart by less than this are as good as equal; the server's answers are dated to the second.
SKEW_S = 5.0
RATE = "generation_tokens"
# Optimizer steps since a resize from which that part of the window is judged by itself.
ENOUGH_STEPS = 20


# Decodes at which an engine's speed is compared between two windows: a nearly empty instance, and a full one.
_LOADS = (1, 64)


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


class Looker(Struct):
    """Callable with a unix time; remembers what it sized last. tell: hears of plans made anew, and of what is odd.

    window_s: how far back each evaluation reads. selector, mapping, step_s: as `read_prometheus` takes them. base: the
    user's scenario, None = everything is taken from the window. given: dotted paths that the user set anywhere; facts:
    of them, one by one, which win over the window. How many instances there are is counted, whatever anybody says: it
    is what a resize changes. from_file: whether `base` is a file's and not only facts. resize_on: share by which an
    input must move to size anew.
    """

    prometheus: Prometheus
    tell: Callable[[str], None]
    window_s: float = 3600.0
    selector: str = ""
    mapping: Mapping[str, str] = field(default_factory=dict)
    step_s: float | None = None
    base: Scenario | None = None
    given: frozenset[str] = frozenset()
    facts: frozenset[str] = frozenset()
    from_file: bool = True
    resize_on: float = 0.05
    _wanted: tuple[tuple[str, ...], WantedCount] | None = None

    def __call__(self, now_s: float) -> Look:
        """Raises PrometheusError and InputError where the window cannot be read; a window that can be read but not
        planned is a Look that says so."""
        if self.prometheus.clock_ahead_s is None:
            self.prometheus.query("vector(1)", now_s)
        ahead = self.prometheus.clock_ahead_s or 0.0
        ahead = ahead if abs(ahead) > SKEW_S else 0.0
        # Asked in the server's time, answered in ours: whose clock is wrong does not matter, only that ages are right.
        end = now_s + ahead
        try:
            history = read_prometheus(
                self.prometheus, end - self.window_s, end, self.step_s, self.selector, self.mapping, now_s=now_s
            )
        except InputError as error:
            raise InputError([of_now(problem) for problem in error.problems]) from None
        result, notes = self._judged(history)
        observed, verdict = result.observed, result.verdict
        look = Look(
            data_s=self._newest_s(history, end) - ahead,
            current=0 if observed.fleet is None else observed.fleet.instances_now,
            wanted=None,
            observed_idle=None if observed.trainer.idle_fraction is None else observed.trainer.idle_fraction.value,
            faults={f.check: f.state == "fault" for f in verdict.findings if f.state != "unknown"},
            starves=verdict.starves,
            headline=verdict.headline,
            notes=notes,
        )
        if result.backtest is not None:
            worst, idle = result.backtest.worst, result.backtest.row("trainer_idle")
            look = replace(
                look,
                predicted_idle=None if idle is None else idle.predicted,
                model_error=None if worst is None else abs(worst.error),
            )
        return self._sized(look, result)

    def _judged(self, history: History) -> tuple[Replayed, tuple[str, ...]]:
        """The window as `fleetsim replay` judges it, and what has to be said of it. Where the simulation does not
        predict a window in which the fleet was resized, the part since then counts, as soon as it says enough: what was
        there before the resize must not hold up what comes after it."""
        result = self._replayed(history)
        notes = tuple(note.text for note in result.observed.notes)
        held = result.verdict.withheld
        resizes = () if result.implied is None else result.implied.resizes
        if held is None or held.reason != "model" or len(resizes) < 2:
            return result, (*notes, *_differs(result))
        since_s = resizes[-1][0]
        later = window(history, since_s, history.end_s)
        steps = observe(later, self.base).trainer.steps
        if steps is None or steps.value < ENOUGH_STEPS:
            return result, (*notes, *_differs(result))
        result = self._replayed(later)
        notes = tuple(note.text for note in result.observed.notes)
        began = f"the window begins with the last resize, {units.seconds(history.end_s - since_s)} ago"
        return result, (began, *notes, *_differs(result))

    def _replayed(self, history: History) -> Replayed:
        facts = self.facts - {"fleet.instances"}
        return replay(history, self.base, given=self.given, facts=facts, from_file=self.from_file)

    def _newest_s(self, history: History, end_s: float) -> float:
        """When the newest sample was taken. Prometheus shows a value for five minutes after its last sample, so the
        grid of the window cannot say; only `timestamp` can."""
        mine = self.mapping.get(RATE)
        plain = dict.fromkeys(name.partition("{")[0] for name in BY_NAME[RATE].metrics)
        names = f'__name__=~"{"|".join(plain)}"'
        matchers = ",".join(part for part in (names, bare(self.selector)) if part)
        metric = mine if mine is not None else f"{{{matchers}}}"
        if mine is None or METRIC.fullmatch(mine):  # the timestamp of an expression is that of the question
            found = [float(s.values[-1]) for s in self.prometheus.query(f"max(timestamp({metric}))", end_s)]
            if found:
                return max(found)
        values = history.values.get(RATE)
        if values is None or not np.isfinite(values).any():
            return history.start_s
        return float(history.times[np.flatnonzero(np.isfinite(values).any(axis=0))[-1]])

    def _sized(self, look: Look, result: Replayed) -> Look:
        """The look with the count that it asks for, or why it asks for none."""
        model, held = result.implied, result.verdict.withheld
        if model is None:
            return replace(look, withheld="no_plan", why=result.unsimulated or "the window cannot be simulated")
        if held is not None:
            look = replace(look, withheld=held.reason, why=held.why)
            changes = mended(held.first, model) if held.first and held.sizable else None
            return look if changes is None else replace(look, then=self._then(on_top(model, changes), held.first))
        try:
            return replace(look, wanted=self._count(model, ()))
        except FleetsimError as error:
            return replace(look, withheld="no_plan", why=str(error))

    def _then(self, model: Implied, first: tuple[str, ...]) -> int | None:
        """The count once these faults are mended; None where the job gets stuck or does not fit."""
        try:
            return self._count(model, first)
        except FleetsimError:
            return None

    def _count(self, model: Implied, first: tuple[str, ...]) -> int:
        """The count for the window's job, sized anew where its inputs, or what is to be mended first, have moved."""
        inputs = inputs_of(model)
        before, last = self._wanted if self._wanted is not None else (first, None)
        changed = ("first plan",) if last is None else moved(last.inputs, inputs, self.resize_on)
        if last is None or changed or before != first:
            last = wanted(model, self.given)
            self._wanted = (first, last)
            knee = ", where more stop paying: no count holds the targets" if last.at_knee else ""
            after = f", once {' and '.join(first)} is mended" if first else ""
            why = ", ".join(changed) or "another fault to be mended first"
            self.tell(f"sized anew ({why}): {units.plural(last.instances, 'instance')}{knee}{after}")
        return last.instances


def _differs(result: Replayed) -> tuple[str, ...]:
    return () if result.implied is None else result.implied.differs


class WantedCount(Struct, frozen=True):
    """instances: the smallest count that holds the targets; at_knee: none does, and this is where more stop paying.
    inputs: what it was sized for."""

    instances: int
    at_knee: bool
    inputs: Mapping[str, float]


def inputs_of(implied: Implied) -> dict[str, float]:
    """What the count depends on and a window measures or implies: seconds, tokens, samples, limits."""
    s = implied.scenario
    a = s.admission
    context = nameplate.mean_prompt_tokens(s) + nameplate.mean_output_tokens(s) / 2.0
    found = {
        "output_tokens": nameplate.mean_output_tokens(s),
        "prompt_tokens": nameplate.mean_prompt_tokens(s),
        "batch_samples": float(s.trainer.batch_samples),
        "group_size": float(s.workload.group_size),
        "trainer_step_s": nameplate.trainer_step_s(s),
        "sync_pause_s": float(s.sync.pause_s or 0.0),
        "target_idle": s.targets.idle_limit,
        "prefix_caching": float(s.engine.prefix_caching),
        "slow_instances": float(sum(f != 1.0 for f in s.fleet.speed_factors)),
        "in_flight_cap": float(s.fleet.max_in_flight_samples or 0),
        "in_flight_cap_per_instance": float(s.fleet.max_in_flight_samples_per_instance or 0),
        f"admission.{a.law}": float(law_of(s).number(a) or 0.0),
    }
    if implied.engine is not None:
        t, limits = implied.engine
        found |= {"max_num_seqs": float(limits.max_num_seqs), "kv_tokens": float(limits.kv_tokens)}
        for b in _LOADS:
            found[f"iteration_s_at_{b}"] = t.seconds(b, kv_tokens=b * context)
    return found


def moved(before: Mapping[str, float], now: Mapping[str, float], share: float) -> tuple[str, ...]:
    """Inputs that changed by more than `share` of what they were, or came or went."""
    names = [*before, *(name for name in now if name not in before)]
    return tuple(n for n in names if not _near(before.get(n), now.get(n), share))


def _near(a: float | None, b: float | None, share: float) -> bool:
    return a is not None and b is not None and abs(a - b) <= share * max(abs(a), abs(b))


def wanted(implied: Implied, given: Collection[str] = ()) -> WantedCount:
    """What `fleetsim replay --recommend` says of the same window. Raises InputError and StuckError as `size` does."""
    found = recommend(implied, given=given)
    return WantedCount(found.instances, found.size.at_knee, inputs_of(implied))
