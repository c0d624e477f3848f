"""The one change of a job that helps most: what to type, the fleet that is then right, and what it saves of a step."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any, ClassVar

from msgspec import Struct

from fleetsim import units
from fleetsim.faces import flag, setting
from fleetsim.job.settings import PATHS

_COUNTED = {path: name for name, path in PATHS.items()}
# Commands that choose the count of instances are not told it.
_FLAGS = {path: name for path, name in _COUNTED.items() if name != "instances"}
# Below this share of a step two steps take as long.
_ALIKE = 0.005


class Typed(str):
    """What to type for a change of a job, "--len 900 --set engine.tp=2"; it keeps what it says.

    changes: dotted path -> value. options: the keyword of an option that stands for no single path -> value.
    """

    __slots__ = ("changes", "options")
    changes: Mapping[str, Any]
    options: Mapping[str, Any]

    def __new__(cls, changes: Mapping[str, Any], options: Mapping[str, Any] | None = None) -> Typed:
        """Every change as `--set`."""
        made = super().__new__(cls, _words(changes, options or {}, {}))
        made.changes, made.options = changes, options or {}
        return made

    def __reduce__(self) -> tuple[type[Typed], tuple[Mapping[str, Any], Mapping[str, Any]]]:
        return Typed, (self.changes, self.options)

    @property
    def own(self) -> str:
        """The same with the flags that there are for some of the paths: `--set` beside its own flag is refused."""
        return _words(self.changes, self.options, _FLAGS)

    @property
    def counted(self) -> str:
        """As `own`, for a command that is told its count of instances."""
        return _words(self.changes, self.options, _COUNTED)


def _words(changes: Mapping[str, Any], options: Mapping[str, Any], flags: Mapping[str, str]) -> str:
    """The options, then the changes: by the flag of their path where `flags` has one."""
    said = [flag(name, value) for name, value in options.items()]
    for path, value in changes.items():
        said.append(flag(flags[path], _value(value)) if path in flags else setting(path, _value(value)))
    return " ".join(said)


def _value(value: Any) -> str:
    """A value as one would type it: 2, not 2.0."""
    return "null" if value is None else f"{value:.12g}" if isinstance(value, float) else str(value)


class Change(Struct, frozen=True):
    """text: the change in words. flag: what to type for it. instances: the count that it needs, instead_of: the
    recommended one. mends: with it a fleet holds the targets, and without it none does. saves_usd, saves_s: of a step,
    below 0 where it costs more. risk: what it asks of the algorithm; permission: that, where the recipe does not allow
    it by itself. in_words: what is set is no single flag, so it is told by its text.
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
    permission: str | None = None
    in_words: bool = False

    of: ClassVar[str] = "a step"

    @property
    def words(self) -> str:
        """ "--max-staleness 3 needs 5 instances instead of 53, saves $0.66 and 28.8 s a step"."""
        return self.words_in()

    def words_in(self, gpus: int | None = None) -> str:
        """The same. gpus: of an instance, where counts are told in GPUs."""
        count = units.plural(self.instances * (gpus or 1), "GPU" if gpus else "instance")
        instead_of = f"{self.instead_of * (gpus or 1):,}"
        needs = f" needs {count} instead of {instead_of}," if self.instances != self.instead_of else ""
        itself = (setting("fleet.instances", self.instances), flag("instances", self.instances))
        what = self.text if self.in_words or (gpus and self.text == count) else self.flag
        if what in (*itself, count):  # the change is the count itself
            needs = f" instead of {instead_of},"
        if self.mends:
            needs = f" meets the target with {count},"
        asks = f" (if the recipe may: {self.permission})" if self.permission else f" ({self.risk})" if self.risk else ""
        return f"{what}{needs} {self._saves}{asks}"

    @property
    def _saves(self) -> str:
        money, time = (f(abs(x)) for f, x in ((units.money, self.saves_usd), (units.seconds, self.saves_s)))
        step = self.of
        if abs(self.saves_s) <= _ALIKE * self.step_s:
            return f"saves {money} {step}" if self.saves_usd > 0 else f"costs {money} more {step}"
        if self.saves_usd > 0 and self.saves_s > 0:
            return f"saves {money} and {time} {step}"
        if self.saves_s > 0:
            return f"saves {time} {step} for {money} more"
        return f"saves {money} {step}, which takes {time} longer"


class OfWholeSamples(Change, frozen=True):
    """One with which other shares of the samples are lost: it is told by what a step trains whole."""

    of: ClassVar[str] = "a step's worth of whole samples"
