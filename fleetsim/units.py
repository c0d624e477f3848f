"""Numbers as people read them: formatting at the edge only, never inside a computation."""

from __future__ import annotations

import math
from datetime import UTC, datetime


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


def share(x: float) -> str:
    """A fraction as a percentage: 0.186 -> "18.6 %"."""
    return f"{x * 100:.1f} %"


def count(x: float) -> str:
    """A number with thousands separators: whole ones without decimals, others with one: "39,321.6"."""
    return f"{x:,.0f}" if not math.isfinite(x) or x == round(x) else f"{x:,.1f}"


def money(x: float) -> str:
    """US dollars: "$1,234.50"; below one cent with two significant figures."""
    sign, x = ("-", -x) if x < 0 else ("", x)
    return f"{sign}${x:.2g}" if 0 < x < 0.01 else f"{sign}${x:,.2f}"


def gib(x: float) -> str:
    """Bytes as binary gigabytes: "79.6 GiB"."""
    return f"{x / 2**30:,.1f} GiB"


def number(x: float) -> str:
    """A plain number for a table: whole above 1,000, else three significant figures without an exponent."""
    if abs(x) >= 999.5:
        return f"{x:,.0f}"
    return f"{x:.3g}" if abs(x) >= 0.01 or x == 0 else f"{x:.4f}"


def plural(n: int, noun: str) -> str:
    """ "1 instance", "13 instances", "1,200 samples"."""
    return f"{n:,} {noun}" if n == 1 else f"{n:,} {noun}s"
