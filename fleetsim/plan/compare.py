"""`Comparison`: what changed between A and B, metric by metric, with what differs in their inputs."""

from __future__ import annotations

from dataclasses import dataclass
from typing import Any, Literal

from fleetsim.analysis.intervals import Estimate

Verdict = Literal["better", "worse", "changed", "no significant change", "not comparable"]
Kind = Literal["scenarios", "results", "windows"]


@dataclass(frozen=True, slots=True)
class Change:
    """One metric of A and of B.

    metric: dotted name, of `analysis/catalogue.py`. a, b: each side's own mean and 95 % interval, None where that side
    has no such metric. ratio: b / a, paired where the draws are shared; None where a is 0 or nearly so. difference:
    b - a, in the metric's unit. verdict: "changed" where neither way is good as such. why: of "not comparable", the
    reason; else what the verdict rests on where that is not the ratio.
    """

    metric: str
    a: Estimate | None
    b: Estimate | None
    ratio: Estimate | None
    difference: Estimate | None
    verdict: Verdict
    why: str = ""

    @property
    def significant(self) -> bool:
        """Whether the two sides differ by more than luck and more than the smallest change of interest."""
        return self.verdict in ("better", "worse", "changed")


@dataclass(frozen=True, slots=True)
class InputDifference:
    """A value that the two sides do not share: dotted path, both values with defaults resolved (None: not there).

    a_assumed, b_assumed: nobody gave that side's value.
    """

    path: str
    a: Any
    b: Any
    a_assumed: bool = False
    b_assumed: bool = False


@dataclass(frozen=True, slots=True)
class Comparison:
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
    changes: tuple[Change, ...]
    inputs: tuple[InputDifference, ...]
    headline: str
    notes: tuple[str, ...]
    min_change: float

    @property
    def significant(self) -> tuple[Change, ...]:
        """The metrics that changed."""
        return tuple(c for c in self.changes if c.significant)
