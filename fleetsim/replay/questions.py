"""What is asked of a window beyond its diagnosis: another fleet on the same history."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass, field
from typing import TYPE_CHECKING, Annotated, Any

from fleetsim.errors import InputError, Problem, Problems
from fleetsim.faces import SET, flag, text
from fleetsim.job.settings import Option

if TYPE_CHECKING:
    from fleetsim.replay.change.patch import Deployment
    from fleetsim.replay.change.plan_fields import SavedPlan

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
        from fleetsim.replay.change.plan_fields import load_plan

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
