"""The one change of a job that helps most: what to type, the fleet that is then right, and what it saves of a step."""

from __future__ import annotations

import re

from fleetsim import units
from fleetsim.dataclass import dataclass
from fleetsim.faces import flag, setting
from fleetsim.job.job import PATHS

_FLAGS = {path: name for name, path in PATHS.items()}
# Below this share of a step two steps take as long.
_ALIKE = 0.005


@dataclass(frozen=True, slots=True)
class Change:
    """text: the change in words. flag: what to type for it. instances: the count that it needs, instead_of: the
    recommended one. mends: with it a fleet holds the targets, and without it none does. saves_usd, saves_s: of a step,
    below 0 where it costs more. risk: what it asks of the algorithm.
    """

    text: str
    flag: str
    instances: int
    instead_of: int
    saves_usd: float
    saves_s: float
    step_s: float
    risk: str | None
    mends: bool = False

    @property
    def words(self) -> str:
        """ "--max-staleness 3 needs 5 instances instead of 53, saves $0.66 and 28.8 s a step"."""
        count = units.plural(self.instances, "instance")
        needs = f" needs {count} instead of {self.instead_of:,}," if self.instances != self.instead_of else ""
        if self.flag == setting("fleet.instances", self.instances):  # the change is the count itself
            needs = f" instead of {self.instead_of:,},"
        if self.mends:
            needs = f" holds that with {count},"
        asks = f" ({self.risk})" if self.risk else ""
        return f"{self.flag}{needs} {self._saves}{asks}"

    @property
    def _saves(self) -> str:
        money, time = (f(abs(x)) for f, x in ((units.money, self.saves_usd), (units.seconds, self.saves_s)))
        if abs(self.saves_s) <= _ALIKE * self.step_s:
            return f"saves {money} a step" if self.saves_usd > 0 else f"costs {money} more a step"
        if self.saves_usd > 0 and self.saves_s > 0:
            return f"saves {money} and {time} a step"
        if self.saves_s > 0:
            return f"saves {time} a step for {money} more"
        return f"saves {money} a step, which takes {time} longer"


def typed_as(flags: str) -> str:
    """The same with the flags that there are for some of the settings: `--set` beside its own flag is refused."""

    def typed(found: re.Match[str]) -> str:
        path, value = found.groups()
        return f"{flag(_FLAGS[path])} {value}" if path in _FLAGS else found.group()

    return re.sub(r"--set ([^ =]+)=(\S+)", typed, flags)
