"""What a sweep looks for: metrics of the catalogue, each with the way that is better."""

from __future__ import annotations

from collections.abc import Sequence

from fleetsim.config.tree import did_you_mean
from fleetsim.dataclass import dataclass
from fleetsim.errors import InputError, Problem
from fleetsim.faces import Text
from fleetsim.quantities import BY_NAME, METRICS

_FLAG = Text("--objective", "objectives")
# Money, time, and how far off policy. Of staleness the mean: its 99th percentile is a whole number of steps, so that
# cells which train on quite different data would be equal.
DEFAULT = ("cost_per_step", "step_s", "staleness_steps.mean")


@dataclass(frozen=True, slots=True)
class Objective:
    """A metric to make small, or with `most` large."""

    metric: str
    most: bool = False

    @property
    def column(self) -> int:
        """The metric's place in `METRICS`."""
        return METRICS.index(self.metric)

    @property
    def text(self) -> str:
        """The text that `--objective` takes: "step_s", "max:queue_depth"."""
        better = BY_NAME[self.metric].better
        plain = better is not None and self.most == (better == "more")
        return self.metric if plain else f"{'max' if self.most else 'min'}:{self.metric}"


def objectives_of(texts: Sequence[str] = ()) -> tuple[Objective, ...]:
    """ "step_s", "max:goodput" ...; `DEFAULT` if there are none.

    Raises InputError with all problems: unknown metrics, one twice, one of which neither way is better as such.
    """
    objectives: list[Objective] = []
    problems = []
    for text in texts or DEFAULT:
        way, colon, name = text.strip().rpartition(":")
        if name not in BY_NAME:
            problems.append(Problem(_FLAG, name, "unknown metric", did_you_mean(name, METRICS)))
            continue
        better = BY_NAME[name].better
        if colon and way not in ("min", "max"):
            problems.append(Problem(_FLAG, text, "must read METRIC, min:METRIC or max:METRIC", f"min:{name}"))
        elif not colon and better is None:
            rule = "neither way is better as such"
            problems.append(Problem(_FLAG, name, rule, f"say which: min:{name} or max:{name}"))
        elif any(o.metric == name for o in objectives):
            problems.append(Problem(_FLAG, name, "comes twice", "give it once"))
        else:
            objectives.append(Objective(name, way == "max" if colon else better == "more"))
    if problems:
        raise InputError(problems)
    return tuple(objectives)
