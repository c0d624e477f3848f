"""Numbers and lists as people read them: the only place that decides how a value is written.

Formatting happens at the edge only, never inside a computation. A unit is data (`Unit`), so that a quantity of
`quantities.py` says in which one it is written and every table, chart and sentence writes it the same way.
"""

from __future__ import annotations

import math
from collections.abc import Callable, Mapping, Sequence
from datetime import UTC, datetime
from typing import Literal, Protocol

Unit = Literal["seconds", "share", "money", "number", "count"]


class Interval(Protocol):
    """A mean with the two ends of its 95 % interval; both are the mean where nothing was replicated."""

    @property
    def mean(self) -> float:
        """The mean."""

    @property
    def ci_low(self) -> float:
        """Its lower end."""

    @property
    def ci_high(self) -> float:
        """Its upper end."""


def seconds(x: float) -> str:
    """Seconds as "850 ms", "12.3 s", "2 min 05 s" or "3 h 07 min"."""
    if not math.isfinite(x):
        return f"{x} s"
    sign, x = ("-", -x) if x < 0 else ("", x)
    if x == 0:
        return "0 s"
    if x < 0.001:
        return f"{sign}{x * 1e6:.3g} us"
    if x < 0.9995:
        return f"{sign}{x * 1e3:.3g} ms"
    if x < 59.95:
        return f"{sign}{x:.1f} s"
    if x < 3599.5:
        minutes, rest = divmod(round(x), 60)
        return f"{sign}{minutes} min {rest:02d} s"
    hours, minutes = divmod(round(x / 60), 60)
    return f"{sign}{hours:,} h {minutes:02d} min"


def tokens(x: float) -> str:
    """A token count as "812", "39.3 k", "12.4 M" or "1.2 G"."""
    if not math.isfinite(x):
        return str(x)
    for limit, divisor, letter in ((999.5, 1.0, ""), (999_950.0, 1e3, " k"), (999_950_000.0, 1e6, " M")):
        if abs(x) < limit:
            return f"{x / divisor:.0f}" if divisor == 1.0 else f"{x / divisor:.1f}{letter}"
    return f"{x / 1e9:,.1f} G"


def clock(x: float) -> str:
    """Unix seconds as a date and minute in UTC: 2026-11-21 06:21 UTC."""
    return f"{datetime.fromtimestamp(x, tz=UTC):%Y-%m-%d %H:%M} UTC"


def percent(x: float, decimals: int = 1) -> str:
    """A fraction in percent without the sign, for where a heading or a mean beside it has it: 0.186 -> "18.6"."""
    return f"{100 * x:.{decimals}f}"


def share(x: float, decimals: int = 1) -> str:
    """A fraction as a percentage: 0.186 -> "18.6 %"."""
    return f"{percent(x, decimals)} %"


def limit(x: float) -> str:
    """A share that somebody chose, with the digits that it has: 0.05 -> "5 %", 0.005 -> "0.5 %"."""
    return f"{100 * x:g} %"


def figures_share(x: float) -> str:
    """A share with three significant figures, for one that may be tiny: 0.00123 -> "0.123 %"."""
    return f"{100 * x + 0.0:.3g} %"


def percent_change(x: float, decimals: int = 1) -> str:
    """A relative change in percent, without the unit: 0.031 -> "+3.1"; what rounds to nothing has no sign: "0.0"."""
    text = f"{100 * x:+.{decimals}f}"
    return text if float(text) else text[1:]


def change(x: float, decimals: int = 1) -> str:
    """A relative change with its sign: 0.031 -> "+3.1 %"."""
    return f"{percent_change(x, decimals)} %"


def points(x: float, short: bool = False) -> str:
    """A difference of two shares, with its sign: 0.012 -> "+1.2 points"; short: "+1.2 p"."""
    return f"{percent_change(x)} {'p' if short else 'points'}"


def number(x: float) -> str:
    """A plain number for a table: whole above 1,000, else three significant figures without an exponent."""
    if abs(x) >= 999.5:
        return f"{x:,.0f}"
    return f"{x:.3g}" if abs(x) >= 0.01 or x == 0 else f"{x:.4f}"


def count(x: float) -> str:
    """A number with thousands separators: whole ones without decimals, others with one: "39,321.6"."""
    return f"{x:,.0f}" if not math.isfinite(x) or x == round(x) else f"{x:,.1f}"


def money(x: float) -> str:
    """US dollars: "$1,234.50"; below a dollar with up to three significant figures, or cents would hide what sets two
    sums apart: "$0.252", "$0.50", "$0.0038"."""
    sign, x = ("-", -x) if x < 0 else ("", x)
    text = f"{x:.3g}" if x >= 0.01 else f"{x:.2g}"
    return f"{sign}${text}" if 0 < x < 1 and len(text) > len("0.25") else f"{sign}${x:,.2f}"


def price(x: float) -> str:
    """A price that somebody gave, without cents where it has none: "$3", "$2.50"."""
    return f"${x:,.0f}" if x == round(x) else money(x)


def gib(x: float) -> str:
    """Bytes as binary gigabytes: "79.6 GiB"."""
    return f"{x / 2**30:,.1f} GiB"


_WRITERS: Mapping[Unit, Callable[[float], str]] = {
    "seconds": seconds,
    "share": share,
    "money": money,
    "number": number,
    "count": count,
}


def written(x: float, unit: Unit) -> str:
    """A value in its unit."""
    return _WRITERS[unit](x)


# Runs that differ by less than this share of their mean are alike: the rest is rounding.
_ROUNDING = 1e-9


def half_width(e: Interval) -> float:
    """Of its interval, to the farther end: one that holds a doubt about the model need not be even. 0 where all runs
    are alike."""
    half = max(e.ci_high - e.mean, e.mean - e.ci_low)
    return half if half > _ROUNDING * abs(e.mean) else 0.0


def mean_and_half(e: Interval, unit: Unit) -> tuple[str, str]:
    """A mean and the half-width of its interval: ("38.5 %", "±0.2"); the second is "" where runs are one, or alike."""
    half = half_width(e)
    text = percent(half) if unit == "share" else money(half)[1:] if unit == "money" else number(half)
    return written(e.mean, unit), f"±{text}" if half > 0 else ""


def ends(e: Interval, unit: Unit) -> tuple[str, str] | None:
    """The two ends of an interval, without the unit where the mean beside it says it; None where there is none."""
    if e.ci_low == e.ci_high:
        return None
    long = " s" if unit == "seconds" and abs(e.mean) >= 59.95 else ""
    return _end(e.ci_low, unit, long), _end(e.ci_high, unit, long)


def _end(x: float, unit: Unit, seconds_unit: str) -> str:
    """One end of an interval, never rounded to the minute."""
    if unit == "share":
        return percent(max(x, 0.0))  # runs about 0 scatter to both sides, a share does not
    if unit == "seconds" and 1 <= abs(x) < 3600:
        return f"{x:.1f}{seconds_unit}"
    return written(x, unit).removeprefix("$")


def bracket(e: Interval, unit: Unit) -> str:
    """An interval behind its mean: " [39.1, 39.9]"; "" where nothing was replicated."""
    found = ends(e, unit)
    return "" if found is None else f" [{found[0]}, {found[1]}]"


def with_ends(e: Interval, unit: Unit) -> str:
    """A mean with its interval: "39.5 s [39.1, 39.9]"; the mean alone where nothing was replicated."""
    return f"{written(e.mean, unit)}{bracket(e, unit)}"


def of_seeds(half: str) -> str:
    """What luck alone does to a mean, by name: "±0.2 of seeds"; what is in doubt about the inputs does more. half: of
    its 95 % interval, "±0.2"; nothing where there is none."""
    return f"{half} of seeds" if half else ""


def mean_and_ends(e: Interval, unit: Unit) -> tuple[str, str]:
    """Two cells of a table: ("39.5 s", "39.1 to 39.9"); the second is "" where nothing was replicated."""
    found = ends(e, unit)
    return written(e.mean, unit), "" if found is None else f"{found[0]} to {found[1]}"


def ratio_change(ratio: Interval) -> str:
    """A ratio as a change with its interval: "-40.9 % [-41.2, -40.6]"."""
    low, high = (percent_change(x - 1.0) for x in (ratio.ci_low, ratio.ci_high))
    around = f" [{low}, {high}]" if ratio.ci_low != ratio.ci_high else ""
    return f"{percent_change(ratio.mean - 1.0)} %{around}"


def changed_by(ratio: Interval, replications: int) -> tuple[str, str]:
    """A paired ratio that differs from 1, as a change, and what of it is luck: ("2.7 %", "±0.2 of seeds"); the first is
    positive whichever way it goes, the second empty where it would be written as nothing, and for a single run."""
    luck = percent(half_width(ratio))
    return share(abs(1.0 - ratio.mean)), of_seeds(f"±{luck}") if replications > 1 and float(luck) else ""


def coefficient(value: float, low: float | None, high: float | None) -> tuple[str, str]:
    """Seconds of any size and their 95 % interval in one unit: ("13.5 ns", "13.1 to 13.9")."""
    factor, unit = _fine(value or high or 0.0)
    text = f"{_three(factor * value)} {unit}" if value else "0"
    if low is None or high is None:
        return text, ""
    end = f" {unit}" if not value and high > 0 else ""
    return text, f"{_three(factor * low)} to {_three(factor * high)}{end}"


def _fine(x: float) -> tuple[float, str]:
    """How many of a unit are a second, and the unit, for so many seconds."""
    for least, factor, unit in ((1.0, 1.0, "s"), (1e-3, 1e3, "ms"), (1e-6, 1e6, "us"), (1e-9, 1e9, "ns")):
        if x >= least:
            return factor, unit
    return (1e12, "ps") if x > 0 else (1.0, "s")


def _three(x: float) -> str:
    if x == 0:
        return "0"
    return f"{x:,.0f}" if x >= 999.5 else f"{x:.3g}"


def plural(n: float, noun: str) -> str:
    """ "1 instance", "1,200 samples", "2.4 steps", "3 batches"; a fraction has three significant figures."""
    text = f"{n:,}" if isinstance(n, int) else number(n)
    return f"{text} {noun}" if text == "1" else f"{text} {plural_of(noun)}"


def plural_of(noun: str) -> str:
    """More than one of a thing: "instances", "batches", "values"."""
    return f"{noun}es" if noun.endswith(("ch", "sh", "s", "x")) else f"{noun}s"


def listed(parts: Sequence[str], last: str = "and") -> str:
    """ "a", "a and b", "a, b and c"; last: the word before the last one."""
    return f" {last} ".join(filter(None, (", ".join(parts[:-1]), *parts[-1:])))


def few(parts: Sequence[str], most: int, joint: str = ", ") -> str:
    """The first parts, and how many more there are: "a, b and 3 more"."""
    left = len(parts) - most
    return joint.join(parts[:most]) + (f" and {left} more" if left > 0 else "")


def capital(text: str) -> str:
    """The same with a capital first letter; the others stay as they are (unlike `str.capitalize`)."""
    return text[:1].upper() + text[1:]


def sentence(text: str) -> str:
    """A line as a sentence: a capital first letter, and a full stop unless it ends as a sentence does."""
    return f"{capital(text)}{'' if not text or text.endswith(('.', '?', '!')) else '.'}"


def short(value: float) -> float:
    """The number with seven digits: order is kept, and a file does not show noise of the last bits."""
    return float(f"{value:.7g}")
