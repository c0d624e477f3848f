"""What an engine's own counters say of its drafts: how many were made, how long, and how far they were accepted.

vLLM counts (`v1/spec_decode/metrics.py`, 0.32.0) drafts, drafted and accepted tokens, and accepted tokens by position.
Its n-gram drafter often finds nothing: such an iteration is no draft, and still brings its one token. Fleetsim's shares
are therefore of all iterations of a sequence, those without a draft among them.
"""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any

from fleetsim import units
from fleetsim.calibrate.raw import Raw
from fleetsim.config.engine_profile import MeasuredDrafts
from fleetsim.config.speculation import METHODS
from fleetsim.dataclass import dataclass

# Traffic of the engine's own users counts where it drafted so often: shares of a few hundredths are then well known.
LEAST_ITERATIONS = 2_000
OF_USERS = "requests of its users"


@dataclass(frozen=True, slots=True)
class DraftCounts:
    """Counters, or what they grew by. iterations: of each sequence, with a draft or without. drafted: tokens.

    accepted_at: drafts whose first token, whose first two tokens, ... were accepted.
    """

    iterations: int
    drafted: int
    accepted_at: tuple[int, ...]

    @classmethod
    def counted(
        cls, drafts: float, drafted: float, accepted_at: tuple[float, ...], generated: float, first_tokens: float
    ) -> DraftCounts:
        """Counts from vLLM's counters. generated: tokens made; first_tokens: those that a prompt's iteration made.

        An iteration of a sequence brings one token and what was accepted. Where a request ends within a draft, accepted
        tokens are counted that it never got; iterations are then at least the drafts.
        """
        iterations = max(drafts, generated - first_tokens - sum(accepted_at))
        return cls(round(iterations), round(drafted), tuple(round(n) for n in accepted_at))

    def since(self, before: DraftCounts) -> DraftCounts:
        """The growth of each count since an earlier reading."""
        at = tuple(new - old for new, old in zip(self.accepted_at, before.accepted_at, strict=True))
        return DraftCounts(self.iterations - before.iterations, self.drafted - before.drafted, at)

    @property
    def tokens(self) -> float:
        """Tokens of a sequence that an iteration brings."""
        return 1.0 + sum(self.accepted_at) / self.iterations if self.iterations > 0 else 1.0

    @property
    def each(self) -> float:
        """Tokens drafted for a sequence in an iteration."""
        return self.drafted / self.iterations if self.iterations > 0 else 0.0

    @property
    def shares(self) -> tuple[float, ...]:
        """Shares of the iterations in which the first token, the first two tokens, ... were accepted."""
        return tuple(min(1.0, n / self.iterations) if self.iterations > 0 else 0.0 for n in self.accepted_at)

    def record(self) -> dict[str, Any]:
        """The fields that raw measurements have of it."""
        return {"iterations": self.iterations, "drafted": self.drafted, "accepted_at": list(self.accepted_at)}


def counts_in(record: Mapping[str, Any]) -> DraftCounts | None:
    """The counts of a record that has some."""
    found = record.get("drafts")
    if not isinstance(found, Mapping) or not found.get("iterations"):
        return None
    return DraftCounts(found["iterations"], found.get("drafted") or 0, tuple(found.get("accepted_at") or ()))


def summed(counts: list[DraftCounts]) -> DraftCounts | None:
    """Adds counts up; None where there are none."""
    if not counts:
        return None
    at = tuple(sum(column) for column in zip(*(c.accepted_at for c in counts), strict=True))
    return DraftCounts(sum(c.iterations for c in counts), sum(c.drafted for c in counts), at)


def measured_drafts(raw: Raw) -> MeasuredDrafts | None:
    """The drafts of an engine that was measured; None where it made none.

    What its users' requests had accepted goes before what the calibration's own had: those are of random tokens.
    """
    said = raw.starts[-1].get("speculation")
    own = summed([c for s in raw.segments if (c := counts_in(s.record)) is not None])
    if not isinstance(said, Mapping) or own is None or not own.accepted_at:
        return None
    traffic = counts_in(raw.starts[0])
    by_users = traffic is not None and traffic.iterations >= LEAST_ITERATIONS
    counts = traffic if by_users and traffic is not None else own
    method = said.get("method")
    return MeasuredDrafts(
        method=method if method in METHODS else None,
        num_speculative_tokens=len(counts.accepted_at),
        acceptance=tuple(units.short(share) for share in counts.shares),
        drafted_tokens=units.short(counts.each),
        iterations=counts.iterations,
        measured_on=OF_USERS if by_users else "random prompts of the calibration",
        swept_tokens=units.short(own.each),
    )
