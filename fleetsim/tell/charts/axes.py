"""Axes: where values stand between two ends, and ticks at round values, few enough for a phone."""

from __future__ import annotations

from collections.abc import Iterable, Sequence
from datetime import UTC, datetime
from math import ceil, floor, log10

from msgspec import Struct

from fleetsim import units

MOST_TICKS = 6
# A share of the width that the words of a tick take on a phone.
_TICK = 0.14
# How far a value may stand beyond the last tick.
_EDGE = 1.005
_DAY = 86_400.0
# Seconds between the ticks of a calendar.
_STEPS_S = (1, 2, 5, 10, 15, 30, 60, 120, 300, 600, 900, 1800, 3600, 7200, 10_800, 21_600, 43_200)
_SPANS = ((3 * _DAY, _DAY, "days"), (3 * 3600.0, 3600.0, "hours"), (180.0, 60.0, "minutes"))


class ChartAxis(Struct, frozen=True):
    """From low to high. ticks: values and what stands there; chosen where none are given. before, after: around the
    words of chosen ticks, as "$" and " %". dated: the values are unix seconds. grid: lines across the plot."""

    title: str
    low: float
    high: float
    log: bool = False
    ticks: tuple[tuple[float, str], ...] = ()
    before: str = ""
    after: str = ""
    dated: bool = False
    grid: bool = True

    def share(self, value: float) -> float:
        """Where a value stands: 0 at the low end, 1 at the high one, beyond them outside."""
        if self.log:
            return log10(value / self.low) / log10(self.high / self.low)
        return (value - self.low) / (self.high - self.low)

    def marks(self, most: int = MOST_TICKS) -> list[tuple[float, str]]:
        """Shares and words of the ticks; most: of chosen ones."""
        ticks = self.ticks or (_dates(self.low, self.high, most) if self.dated else self._round(most))
        return [(share, text) for value, text in ticks if -1e-6 <= (share := self.share(value)) <= 1 + 1e-6]

    def _round(self, most: int) -> list[tuple[float, str]]:
        step = round_step((self.high - self.low) / most)
        first, last = ceil(self.low / step - 1e-6), floor(self.high / step + 1e-6)
        return [(n * step, f"{self.before}{_number(n * step, step)}{self.after}") for n in range(first, last + 1)]


def round_step(least: float) -> float:
    """The smallest of 1, 2 and 5 times a power of ten that is not below so much."""
    power = 10.0 ** floor(log10(least))
    return next(m * power for m in (1.0, 2.0, 5.0, 10.0) if m * power >= least * (1 - 1e-9))


def _number(value: float, step: float) -> str:
    """A tick's number with the digits that tell it from the next."""
    for least, letter in ((1e9, " G"), (1e6, " M")):
        if step >= 0.1 * least:
            return f"{value / least:,.{max(0, -floor(log10(step / least) + 1e-9))}f}{letter}" if value else "0"
    return f"{value + 0.0:,.{max(0, -floor(log10(step) + 1e-9))}f}"


def _dates(low: float, high: float, most: int) -> list[tuple[float, str]]:
    """Round times of the day in UTC; the day itself at midnight, or where days are all that is told."""
    least = (high - low) / most
    step = next((s for s in _STEPS_S if s >= least), _DAY * round_step(max(1.0, least / _DAY)))
    form = "%H:%M:%S" if step < 60 else "%H:%M"
    found = []
    for n in range(ceil(low / step), floor(high / step) + 1):
        time = datetime.fromtimestamp(n * step, tz=UTC)
        found.append((n * step, time.strftime("%b %d" if n * step % _DAY == 0 else form)))
    return found


def unit_axis(title: str, unit: units.Unit, values: Iterable[float]) -> ChartAxis:
    """Of values that are drawn in their unit (shares in per cent), from 0, with some room above the highest."""
    before, after = {"money": ("$", ""), "share": ("", " %"), "seconds": ("", " s")}.get(unit, ("", ""))
    return from_zero(title, values, before=before, after=after)


def from_zero(
    title: str, values: Iterable[float], room: float = 0.06, *, before: str = "", after: str = "", grid: bool = True
) -> ChartAxis:
    """A linear axis that holds 0 and all values, with some room beyond them."""
    found = [0.0, *values]
    low, high = min(found), max(found)
    span = (high - low) or 1.0
    return ChartAxis(
        title, low - room * span if low < 0 else 0.0, high + room * span, before=before, after=after, grid=grid
    )


def log_axis(title: str, low: float, high: float) -> ChartAxis:
    """A logarithmic axis over low..high (> 0) with ticks at 1, 2 and 5; more below a decade, fewer above four."""
    first, last, decades = floor(log10(low)), ceil(log10(high)), log10(high / low)
    steps = (1, 2, 3, 4, 5, 6, 8) if decades < 0.8 else (1, 2, 5) if decades <= 2 else (1, 3) if decades <= 3 else (1,)
    span = 10 ** (0.06 * max(decades, 0.1))
    ends = low / span, high * span
    ticks = [m * 10.0**e for e in range(first, last + 1) for m in steps]
    shown = [t for t in ticks if ends[0] <= t <= ends[1]] or [low]
    return ChartAxis(title, *ends, log=True, ticks=tuple((t, f"{t:,.0f}" if t >= 1 else f"{t:g}") for t in shown))


def ratio_axis(title: str, low: float, high: float) -> ChartAxis:
    """A logarithmic axis of ratios with ticks in per cent of 1: "-20 %", "same", "+25 %"."""
    low, high = min(low, 0.95), max(high, 1.05)
    wide = log10(high / low)
    if wide < 0.12:
        ticks = [0.75, 0.8, 0.85, 0.9, 0.95, 0.98, 1.0, 1.02, 1.05, 1.1, 1.15, 1.2, 1.25, 1.35]
    elif wide < 0.45:
        ticks = [0.3, 0.4, 0.5, 0.6, 0.7, 0.8, 0.9, 1.0, 1.1, 1.25, 1.5, 1.75, 2.0, 2.5, 3.0]
    elif wide < 1.5:
        ticks = [0.02, 0.05, 0.1, 0.2, 0.35, 0.5, 0.7, 1.0, 1.4, 2.0, 3.0, 5.0, 10.0, 20.0, 50.0]
    else:
        ticks = [10.0**e for e in range(floor(log10(low)), ceil(log10(high)) + 1)]
    # The first and the last tick hold all values between them.
    far = [t for t in ticks if t < 1.0 and -log10(t) >= _TICK * log10(high / t)]
    low = min(low, max((t for t in far if t <= low * _EDGE), default=low))
    far = [t for t in ticks if t > 1.0 and log10(t) >= _TICK * log10(t / low)]
    high = max(high, min((t for t in far if t >= high / _EDGE), default=high))
    wide = log10(high / low)
    shown = _apart([t for t in ticks if low / _EDGE <= t <= high * _EDGE], _TICK * wide)
    room = 10 ** (0.04 * wide)
    words = ("same" if t == 1.0 else units.change(t - 1, 0) if t < 2 else f"x {t:g}" for t in shown)
    return ChartAxis(title, low / room, high * room, log=True, ticks=tuple(zip(shown, words, strict=True)))


def _apart(ticks: Sequence[float], least: float) -> list[float]:
    """Keeps ticks that stand far enough apart on a logarithmic axis, from 1 outwards, and both ends."""
    kept = [1.0]
    for side in ([t for t in ticks if t > 1.0], [t for t in reversed(ticks) if t < 1.0]):
        last = [1.0]
        for tick in side:
            if abs(log10(tick / last[-1])) >= least:
                last.append(tick)
        if side and last[-1] != side[-1]:
            last = [*(last[:-1] if len(last) > 1 else last), side[-1]]
        kept += last[1:]
    return sorted(kept)


class Clock(Struct, frozen=True):
    """The time of a window, in seconds on the way in. zero_s, unit_s: what stands at 0 and what 1 is on the axis."""

    start_s: float
    end_s: float
    zero_s: float
    unit_s: float
    title: str

    @classmethod
    def of(cls, start_s: float, end_s: float) -> Clock:
        """A calendar's, or hours, minutes or seconds since the beginning."""
        from fleetsim.history.window import has_clock  # brings numpy, which other axes do without

        if has_clock(end_s):
            day = datetime.fromtimestamp(start_s, tz=UTC)
            return cls(start_s, end_s, 0.0, 1.0, f"UTC, from {day:%Y-%m-%d}")
        span = end_s - start_s
        unit, name = next(((unit, name) for least, unit, name in _SPANS if span >= least), (1.0, "seconds"))
        return cls(start_s, end_s, start_s, unit, f"{name} since the beginning")

    def at(self, time_s: float) -> float:
        """Where a time stands."""
        return (time_s - self.zero_s) / self.unit_s

    def places(self, times_s: Iterable[float]) -> list[float]:
        """Where times stand."""
        return [self.at(t) for t in times_s]

    def axis(self) -> ChartAxis:
        """The axis over the window."""
        ends = self.at(self.start_s), self.at(self.end_s)
        return ChartAxis(self.title, *ends, dated=self.title.startswith("UTC"), grid=False)
