"""`Comparison`: what changed between A and B, metric by metric, and what differs in their inputs."""

from __future__ import annotations

from collections.abc import Collection, Iterator, Mapping
from typing import Any, Literal

from msgspec import Struct, field

from fleetsim.config.scenario import Scenario
from fleetsim.config.tree import is_given, is_touched
from fleetsim.estimates import Estimate
from fleetsim.quantities import quantity
from fleetsim.sim.contrast import Mean

Verdict = Literal["better", "worse", "changed", "no significant change", "not comparable"]
Kind = Literal["scenarios", "results", "windows"]
# Why a metric did not change although its own interval says so: it is one of many.
BY_ITSELF = "by itself only"
# How it begins, where there is nothing to test.
EQUAL = "equal"


class MetricChange(Struct, frozen=True):
    """One metric of A and of B.

    metric: dotted name, of `quantities.py`. a, b: each side's own mean and 95 % interval, None where that side
    has no such metric. ratio: b / a, paired where the draws are shared; None where the mean of a is not told from 0.
    difference: b - a, in the metric's unit. verdict: "changed" where neither way is good as such. why: what the verdict
    means, or of "not comparable" the reason. p_adjusted: p-value of no change beyond the smallest one of interest,
    Holm's correction for the number of metrics included; None where both sides are equal in every run, or cannot be
    compared. likely: between what the ratio, of a share the difference, lies as far as inputs are in doubt; None where
    nobody worked that out, or nothing is.
    """

    metric: str
    a: Estimate | None
    b: Estimate | None
    ratio: Estimate | None
    difference: Estimate | None
    verdict: Verdict
    why: str = ""
    p_adjusted: float | None = None
    likely: tuple[float, float] | None = None

    @property
    def significant(self) -> bool:
        """Whether the two sides differ by more than luck and more than the smallest change of interest."""
        return self.verdict in ("better", "worse", "changed")

    @property
    def of_share(self) -> bool:
        """Whether it is one of points."""
        return quantity(self.metric).unit == "share"

    @property
    def size(self) -> Estimate | None:
        """How large it is: of a share the difference, else the ratio; from nothing the difference."""
        return self.difference if self.of_share or self.ratio is None else self.ratio

    @property
    def equal(self) -> bool:
        """Whether both sides are the same, so that there is nothing to test, and nothing to draw."""
        return not self.significant and self.why.startswith(EQUAL)


class InputDifference(Struct, frozen=True):
    """A value that the two sides do not share: dotted path, both values with defaults resolved (None: not there).

    a_assumed, b_assumed: nobody gave that side's value.
    """

    path: str
    a: Any
    b: Any
    a_assumed: bool = False
    b_assumed: bool = False


class Side(Struct, frozen=True):
    """What is known of A, or of B.

    runs: (seed, replication) -> flat metrics of that run. means: where there are no single runs. replications: runs
    behind the means; of a window, its blocks. missing: metric -> why there is none. inputs: nested, as a scenario's
    JSON has them. assumed: dotted paths of inputs that nobody gave. binds: what limits the step, "" where nobody knows.
    accuracy: what is known of its engine's speed, "" where it was measured as it ran.
    """

    label: str
    runs: Mapping[tuple[int, int], Mapping[str, float]] = field(default_factory=dict)
    means: Mapping[str, Mean] = field(default_factory=dict)
    replications: int = 0
    missing: Mapping[str, str] = field(default_factory=dict)
    inputs: Mapping[str, Any] = field(default_factory=dict)
    assumed: Collection[str] = ()
    binds: str = ""
    accuracy: str = ""


class Comparison(Struct, frozen=True):
    """kind: what was compared. paired: both sides saw the same draws, replication by replication.

    replications: behind each side's estimates (the smaller number of the two); of windows, the blocks of the shorter
    one. changes: in the catalogue's order. headline: the answer in a sentence. min_change: relative change below which
    nothing is called one.
    """

    a_label: str
    b_label: str
    kind: Kind
    paired: bool
    replications: int
    changes: tuple[MetricChange, ...]
    inputs: tuple[InputDifference, ...]
    headline: str
    notes: tuple[str, ...]
    min_change: float

    @property
    def significant(self) -> tuple[MetricChange, ...]:
        """The metrics that changed."""
        return tuple(c for c in self.changes if c.significant)


# Keys of a scenario that nothing is simulated from.
WORDS = ("schema_version", "name", "description", "source", "published", "assumed", "follow")
PROFILE_HASH = "engine.profile (hash)"


def inputs_of(scenario: Scenario) -> dict[str, Any]:
    """The scenario as JSON has it, without its words."""
    return {key: value for key, value in scenario.model_dump(mode="json").items() if key not in WORDS}


def assumed_of(scenario: Scenario, given: Collection[str]) -> list[str]:
    """Every path of the scenario that nobody gave, or that it calls assumed. given: as `Job.given`."""
    paths = [path for path, _ in _leaves(inputs_of(scenario))]
    return [p for p in paths if is_given(p, scenario.assumed) or not is_touched(p, given)]


def input_differences(
    a: Mapping[str, Any], b: Mapping[str, Any], a_assumed: Collection[str] = (), b_assumed: Collection[str] = ()
) -> tuple[InputDifference, ...]:
    """Every value that differs, in the order of the scenario. A law of another kind, and a list, differ as a whole."""
    return tuple(
        InputDifference(path, left, right, is_touched(path, a_assumed), is_touched(path, b_assumed))
        for path, left, right in _differences(a, b, "")
    )


def _differences(a: Mapping[str, Any], b: Mapping[str, Any], prefix: str) -> Iterator[tuple[str, Any, Any]]:
    for key in dict.fromkeys((*a, *b)):
        path, left, right = f"{prefix}{key}", a.get(key), b.get(key)
        if isinstance(left, Mapping) and isinstance(right, Mapping) and _same_kind(path, left, right):
            yield from _differences(left, right, f"{path}.")
        elif left != right:
            yield path, left, right


def _same_kind(path: str, left: Mapping[str, Any], right: Mapping[str, Any]) -> bool:
    """Whether two mappings have their keys in common: sections do, laws of two kinds do not."""
    return "." not in path or left.get("kind") == right.get("kind")


def _leaves(values: Mapping[str, Any], prefix: str = "") -> Iterator[tuple[str, Any]]:
    for key, value in values.items():
        if isinstance(value, Mapping):
            yield from _leaves(value, f"{prefix}{key}.")
        else:
            yield f"{prefix}{key}", value
