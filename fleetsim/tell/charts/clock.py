"""Times on an axis: of a calendar in UTC, or counted from a beginning where there is no clock."""

from __future__ import annotations

from collections.abc import Iterable
from typing import Any

import numpy as np
from numpy.typing import NDArray

from fleetsim.dataclass import dataclass
from fleetsim.history.window import has_clock
from fleetsim.tell.charts.chart import axis

Floats = NDArray[np.float64]
_UNITS = ((3 * 86_400.0, 86_400.0, "days"), (3 * 3600.0, 3600.0, "hours"), (180.0, 60.0, "minutes"))


@dataclass(frozen=True, slots=True)
class Clock:
    """The time axis of a window, in seconds on the way in. zero_s, unit_s: what stands at 0 and what 1 is."""

    start_s: float
    end_s: float
    zero_s: float
    unit_s: float
    title: str

    @classmethod
    def of(cls, start_s: float, end_s: float) -> Clock:
        """A calendar's, in milliseconds as plotly has them, or hours, minutes or seconds since the beginning."""
        if has_clock(end_s):
            return cls(start_s, end_s, 0.0, 1e-3, "UTC")
        span = end_s - start_s
        unit, name = next(((unit, name) for least, unit, name in _UNITS if span >= least), (1.0, "seconds"))
        return cls(start_s, end_s, start_s, unit, f"{name} since the beginning")

    @property
    def is_date(self) -> bool:
        """Whether the axis is a calendar's."""
        return self.title == "UTC"

    def at(self, time_s: float) -> float:
        """Where a time stands."""
        x = (time_s - self.zero_s) / self.unit_s
        return round(x) if self.is_date else round(x, 4)

    def places(self, times_s: Iterable[float]) -> list[float]:
        """Where times stand."""
        return [self.at(t) for t in times_s]

    def length(self, seconds: float) -> float:
        """How long a span is on the axis."""
        return round(seconds / self.unit_s, 0 if self.is_date else 4)

    def axis(self, **more: Any) -> dict[str, Any]:
        """The axis over the window."""
        dated: dict[str, Any] = {"type": "date"} if self.is_date else {}
        return axis(
            self.title, range=[self.at(self.start_s), self.at(self.end_s)], nticks=6, tickangle=0, **dated, **more
        )


def known(values: Iterable[float]) -> list[float | None]:
    """Numbers for a chart, to five significant digits; what is not known is left out, not drawn as zero."""
    return [float(f"{v:.5g}") if np.isfinite(v) else None for v in values]


def stepped(clock: Clock, start_s: Floats, end_s: Floats, values: Floats) -> tuple[list[float], list[float | None]]:
    """A line that holds each value from its start to its end (line shape "hv"), broken where rows do not adjoin."""
    shown, x, y = known(values), [], []
    gap = 0.5 * float(np.median(end_s - start_s)) if len(start_s) else 0.0
    for k, value in enumerate(shown):
        x.append(clock.at(float(start_s[k])))
        y.append(value)
        if k + 1 == len(shown) or start_s[k + 1] > end_s[k] + gap or (shown[k + 1] is None) != (value is None):
            x.append(clock.at(float(end_s[k])))
            y.append(value)
            if k + 1 < len(shown):
                x.append(x[-1])
                y.append(None)
    return x, y
