"""What a recipe allows beyond what it says itself: `--allow fp8,staleness<=2,speculation`.

Rollouts in fewer bits sample from a policy that is not quite the trained one, and older samples are further off-policy:
both change training, and only who owns the recipe can say yes. Speculative decoding keeps the law of the samples, but
it needs a drafter that somebody trains and serves, so it is asked for as well.
"""

from __future__ import annotations

import re
from collections.abc import Iterable, Mapping

from msgspec import Struct

from fleetsim.config.tree import did_you_mean
from fleetsim.errors import InputError, Problem
from fleetsim.faces import flag, text
from fleetsim.records import replace

# Name -> what it lets a plan do, in words.
NAMES: Mapping[str, str] = {
    "fp8": "rollout weights and KV cache in fp8",
    "nvfp4": "rollout weights in nvfp4",
    "speculation": "speculative decoding",
}
_STALENESS = re.compile(r"staleness\s*<=\s*(\d+)")
_MOST_STEPS = 1000
EXAMPLE = "fp8,staleness<=2,speculation"


class Allowed(Struct, frozen=True):
    """names: of NAMES. staleness: optimizer steps that 99 % of the trained samples may be old, where somebody said;
    else what the recipe has."""

    names: frozenset[str] = frozenset()
    staleness: int | None = None

    def covers(self, needed: Iterable[str]) -> bool:
        """Whether a choice may be taken that needs these names."""
        return self.names.issuperset(needed)

    def oldest(self, own: float | None) -> float | None:
        """Steps that 99 % of the trained samples may be old: what the recipe promises (`promised_steps`), or what was
        allowed where that is more. None where nobody said a number: nothing is held against it."""
        return own if self.staleness is None else max(own or 0.0, float(self.staleness))

    def also(self, permission: str) -> Allowed:
        """The same with one permission more, as it is written."""
        more = allowed(permission)
        return replace(self, names=self.names | more.names, staleness=more.staleness or self.staleness)

    @property
    def texts(self) -> tuple[str, ...]:
        """As they are written."""
        return (*sorted(self.names), *([] if self.staleness is None else [stale(self.staleness)]))


def stale(steps: int) -> str:
    """The permission for samples that are so many steps old."""
    return f"staleness<={steps}"


def says(permission: str) -> str:
    """What a permission lets a plan do, in words."""
    found = _STALENESS.fullmatch(permission)
    if found is None:
        return NAMES[permission]
    steps = int(found[1])
    return f"samples that are up to {steps} {'step' if steps == 1 else 'steps'} old"


def allowed(written: str | None) -> Allowed:
    """What a text of permissions, separated by commas, allows. Raises InputError with all that is none."""
    names: set[str] = set()
    steps: int | None = None
    problems = []
    for part in (written or "").split(","):
        name = part.strip().lower()
        found = _STALENESS.fullmatch(name)
        if found is not None and int(found[1]) <= _MOST_STEPS:
            steps = max(int(found[1]), steps or 0)
        elif name in NAMES:
            names.add(name)
        elif name:
            rule = f"is no permission: {', '.join(NAMES)} or staleness<=STEPS (at most {_MOST_STEPS:,})"
            remedy = text("{}; for example {}", did_you_mean(name, NAMES), flag("allow", EXAMPLE))
            problems.append(Problem(flag("allow"), part.strip(), rule, remedy))
    if problems:
        raise InputError(problems)
    return Allowed(frozenset(names), steps)
