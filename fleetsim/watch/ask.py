"""`watch`: how many instances should this fleet have, asked once or again and again."""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass, field
from typing import TYPE_CHECKING, Annotated, Any

from msgspec import Struct

from fleetsim import units
from fleetsim.errors import InputError, Problem
from fleetsim.faces import flag
from fleetsim.job.settings import JOB, Lends, Option
from fleetsim.replay.history_fields import ACCESS, SOURCE, AccessFields, step_of

if TYPE_CHECKING:
    from fleetsim.config.scenario import Scenario
    from fleetsim.job.job import StatedJob
    from fleetsim.replay.change.plan import SavedPlan
    from fleetsim.tell.terminal import View
    from fleetsim.watch.run_log import LogWatch
    from fleetsim.watch.watch import Look, WatchClock, WatchLoop


RULE = "When it recommends"


@dataclass(frozen=True, kw_only=True)
class WatcherAccess(AccessFields):
    """How a watcher gets in; it waits for a shorter time, as it asks again anyhow."""

    timeout: Annotated[float, Option("Seconds for one answer.", ACCESS)] = 30.0


@dataclass(frozen=True, kw_only=True)
class FleetWatch:
    """How many instances should the fleet behind this Prometheus have? Or: what is wrong with the run of this log?"""

    prometheus: Annotated[
        str | None, Option("Prometheus, Thanos, Mimir or VictoriaMetrics.", SOURCE, metavar="URL")
    ] = None
    log: Annotated[
        str | None,
        Option("A run log or a tracker's folder that grows: says when its verdict changes.", SOURCE, metavar="PATH"),
    ] = None
    framework: Annotated[str | None, Option("Whose run log it is (else: found out).", SOURCE)] = None
    scenario: Annotated[
        str | None, Option("Start from a scenario file, or a shipped one.", JOB, metavar="SCENARIO")
    ] = None
    set_: Annotated[list[str] | None, Option("Any key of a scenario. Repeatable.", JOB, metavar="KEY=VALUE")] = None
    plan: Annotated[
        str | None, Option("Begin with this plan's count, targets and prices.", None, metavar="PLAN.json")
    ] = None
    every: Annotated[str, Option("Time between two evaluations.", RULE)] = "60s"
    window: Annotated[str, Option("How far back each one reads.", SOURCE)] = "1h"
    step: Annotated[str, Option("Grid, as 15s; auto = the scrape interval.", SOURCE, metavar="SPAN")] = "auto"
    selector: Annotated[str, Option("""Which engines: 'job="rollout"'.""", SOURCE, metavar="LABELS")] = ""
    map_: Annotated[list[str] | None, Option("A metric of yours. Repeatable.", SOURCE, metavar="SIGNAL=METRIC")] = None
    access: Annotated[AccessFields, Lends(WatcherAccess)] = field(default_factory=WatcherAccess)
    stale_after: Annotated[str, Option("Nothing is recommended if the newest sample is older.", RULE)] = "5m"
    up_after: Annotated[int, Option("Evaluations in a row that must want more, to go up.", RULE)] = 3
    down_after: Annotated[int, Option("And that must want fewer, to go down.", RULE)] = 15
    down_share: Annotated[float, Option("Smallest step down, as a share of the instances.", RULE)] = 0.05
    cool_down: Annotated[str, Option("No change for so long after a change.", RULE)] = "10m"
    resize_on: Annotated[float, Option("Size anew when an input moved by this share.", RULE)] = 0.05


class WatchResult(Struct, frozen=True):
    """What one evaluation found. now_s: unix seconds of it."""

    look: Look
    now_s: float

    def view(self) -> View:
        """What the command prints under --once."""
        from fleetsim.quantities import quantity
        from fleetsim.tell.document import Document
        from fleetsim.tell.facts import Fact, facts
        from fleetsim.tell.terminal import draw

        def share(value: float | None) -> str:
            return "unknown" if value is None else units.share(value)

        look, idle = self.look, quantity("trainer_idle_fraction").title
        kept = f"nothing recommended ({look.withheld}): {look.why}"
        rows = [("instances", f"{look.current} now, " + (kept if look.wanted is None else f"{look.wanted} wanted"))]
        if look.then is not None:
            then = units.plural(look.then, "instance")
            rows.append(("then", f"{then}, simulated as if that were mended; look again after the change"))
        rows += [
            (idle, f"{share(look.observed_idle)} observed, {share(look.predicted_idle)} predicted"),
            ("model error", share(look.model_error)),
            ("newest sample", f"{units.seconds(self.now_s - look.data_s)} ago"),
            ("faults", ", ".join(check for check, fault in look.faults.items() if fault) or "none"),
            *(("note", note) for note in look.notes),
        ]
        told = facts(look.headline, (Fact(*row, apart=True) for row in rows), rest=False)
        return draw(Document("fleetsim watch", told))

    def document(self) -> dict[str, Any]:
        """What the command prints under --once --json, in the exporter's words where it exports the same."""
        from fleetsim.tell.data import SCHEMA_VERSION

        look = self.look
        return {
            "schema_version": SCHEMA_VERSION,
            "command": "watch",
            "current_instances": look.current,
            "wanted_instances": look.wanted,
            "withheld": look.withheld,
            "why": look.why or None,
            "then_instances": look.then,
            "observed_trainer_idle_ratio": look.observed_idle,
            "predicted_trainer_idle_ratio": look.predicted_idle,
            "model_error_ratio": look.model_error,
            "data_age_seconds": self.now_s - look.data_s,
            "starves": look.starves,
            "headline": look.headline or None,
            "verdict": dict(look.faults),
            "notes": list(look.notes),
        }


def watch(asked: FleetWatch, tell: Callable[[str], None]) -> WatchResult:
    """One evaluation, now. tell: as `watcher`. Raises InputError, OutsideError."""
    from fleetsim.watch.watch import WallClock

    watching = watcher(asked, WallClock(), tell)
    now_s = watching.clock.now()
    return WatchResult(watching.look(now_s), now_s)


def watcher(asked: FleetWatch, clock: WatchClock, tell: Callable[[str], None]) -> WatchLoop:
    """The loop of a question: its `run` evaluates until the clock says to stop; nothing is read yet.

    tell: hears what changes, and what is not used. Raises InputError, OutsideError.
    """
    from fleetsim.history.prometheus import Prometheus
    from fleetsim.history.selection import parse_map
    from fleetsim.policies.scaling import Damping
    from fleetsim.replay.change.plan import load_plan
    from fleetsim.watch.evaluation import Looker
    from fleetsim.watch.watch import WatchLoop

    if asked.prometheus is None or asked.log is not None:
        rule = "a watch follows a fleet or a log, one of the two"
        raise InputError([Problem(flag("prometheus"), asked.prometheus, rule, "give --prometheus URL or --log PATH")])
    held = None if asked.plan is None else load_plan(asked.plan)
    base, given, facts = _known(asked, held, tell)
    looker = Looker(
        Prometheus(asked.prometheus, asked.access.access()),
        tell,
        window_s=span(flag("window"), asked.window),
        selector=asked.selector,
        mapping=parse_map(asked.map_ or ()),
        step_s=step_of(asked.step),
        base=base,
        given=given,
        facts=facts,
        from_file=asked.scenario is not None,
        resize_on=asked.resize_on,
    )
    return WatchLoop(
        looker,
        clock,
        tell,
        every_s=span(flag("every"), asked.every),
        stale_s=span(flag("stale_after"), asked.stale_after),
        damping=Damping(asked.up_after, asked.down_after, asked.down_share, span(flag("cool_down"), asked.cool_down)),
        start=None if held is None else held.planned,
    )


def log_watch(asked: FleetWatch, clock: WatchClock, tell: Callable[[str], None]) -> LogWatch:
    """Checks a question about a log. Raises InputError."""
    from fleetsim.config.load import default_scenario
    from fleetsim.history.selection import parse_map
    from fleetsim.watch.run_log import LogWatch

    assert asked.log is not None
    if asked.prometheus is not None or asked.plan is not None or asked.selector:
        other = next(n for n in ("prometheus", "plan", "selector") if getattr(asked, n))
        rule = "says nothing of a log, which alone is followed"
        raise InputError([Problem(flag(other), getattr(asked, other), rule, "leave it out, or leave --log out")])
    base, given, _ = _known(asked, None, tell)
    return LogWatch(
        path=asked.log,
        window_s=span(flag("window"), asked.window),
        every_s=span(flag("every"), asked.every),
        base=default_scenario() if base is None else base,
        given=given,
        framework=asked.framework,
        mapping=parse_map(asked.map_ or ()),
        clock=clock,
        tell=tell,
    )


def _known(
    asked: FleetWatch, held: SavedPlan | None, tell: Callable[[str], None]
) -> tuple[Scenario | None, frozenset[str], frozenset[str]]:
    """The user's scenario, None where there is none, what was given of it, and what of that one by one."""
    from fleetsim.job.job import job_from_flags
    from fleetsim.replay.questions import facts_of

    job = job_from_flags(asked.scenario, asked.set_ or (), {})
    base = job.scenario if asked.scenario is not None or asked.set_ else None
    if held is not None and asked.scenario is None:
        base = decided(held, job)
    facts = facts_of(asked.set_ or ())
    if "fleet.instances" in facts:
        tell("fleet.instances as set is not used: a watcher counts them, they are what a resize changes")
    return base, job.given, facts


def decided(plan: SavedPlan, job: StatedJob) -> Scenario:
    """What was asked, with the plan's targets and prices where it says none: no window shows them."""
    from fleetsim.config.load import with_changes

    found = {
        f"{section}.{name}": value
        for section in ("targets", "cost")
        for name, value in getattr(plan.scenario, section).model_dump().items()
    }
    return with_changes(job.scenario, {path: value for path, value in found.items() if path not in job.given})


def span(name: str, written: str) -> float:
    """Seconds of "60s", "1h" or "90". name: of the option. Raises InputError."""
    from fleetsim.history.window import parse_span

    try:
        seconds = parse_span(written.strip()) if not written.strip().isdigit() else float(written)
    except ValueError:
        seconds = None
    if seconds is None:
        raise InputError([Problem(name, written, "is no span of time", "write 60s, 5m or 1h")])
    return seconds
