"""Which steps of a run a trace shows: so many after warm-up, some that were named, or all."""

from __future__ import annotations

import re
from typing import Any

from numpy.typing import NDArray

from fleetsim.dataclass import dataclass
from fleetsim.errors import InputError, Problem
from fleetsim.faces import Text
from fleetsim.sim.records import Records
from fleetsim.sim.window import warmup_steps

STEPS = Text("--perfetto-steps", "steps")
DEFAULT_STEPS = 20


@dataclass(frozen=True, slots=True)
class StepChoice:
    """count: so many steps, from `first` on, or after warm-up where that is None; None: all there are.

    events: begin before an event of the warm-up, if there is one: what it does is what the trace is for.
    """

    first: int | None = None
    count: int | None = DEFAULT_STEPS
    events: bool = False

    def check(self, n: int) -> None:
        """Raises InputError where a run of n steps has none of them."""
        if self.first is not None and self.first >= n:
            rule = f"the run has {n} steps, 0 to {n - 1}"
            raise InputError([Problem(STEPS, self.first, rule, "name steps that it has")])

    def of(self, records: Records) -> tuple[int, int]:
        """First and last step of the run that are meant, counted from 0. Raises InputError where it has none such."""
        n = len(records.steps)
        self.check(n)
        first = self.first
        if first is None:
            lasts = records.steps["end_s"] - records.steps["start_s"]
            first = 0 if self.count is None else warmup_steps(records.scenario, lasts)
            if self.events:
                # The last of them that the warm-up hides; one at step 0 is how the run begins.
                early = [e.step for e in records.scenario.run.events if 0 < e.step < first]
                first = max(early) - 1 if early else first
        last = n - 1 if self.count is None else min(n - 1, first + self.count - 1)
        return first, last


def parse_steps(text: str | None) -> StepChoice:
    """What --perfetto-steps says: "20" (after warm-up), "0:9" (both included) or "all". Raises InputError."""
    if text is None:
        return StepChoice(events=True)
    if text == "all":
        return StepChoice(None, None)
    found = re.fullmatch(r"(\d{1,9})(?::(\d{1,9}))?", text)
    if found and found[2] is None and int(found[1]) > 0:
        return StepChoice(None, int(found[1]))
    if found and found[2] is not None and int(found[1]) <= int(found[2]):
        return StepChoice(int(found[1]), int(found[2]) - int(found[1]) + 1)
    rule = "must be a number of steps, FIRST:LAST or all"
    raise InputError([Problem(STEPS, text, rule, "for example 20, or 0:9 for the first ten")])


def looks_in(records: Records, window: tuple[float, float]) -> NDArray[Any]:
    """What the scrapes in the window saw, an instance a row (SCRAPE)."""
    rows = records.scrapes
    out: NDArray[Any] = rows[(rows["time_s"] >= window[0]) & (rows["time_s"] <= window[1])]
    return out
