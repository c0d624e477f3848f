"""A signal's value as people read it: with its unit, in Prometheus's templates and in our own words."""

from __future__ import annotations

from fleetsim import units
from fleetsim.alerts.signals import StandingSignal

# Format of a signal's values, as Go and Python both know it; the others are shares, shown in percent.
FORMATS = {
    "instances": ".0f",
    "sync_seconds": ".2f",
    "output_length": ".0f",
    "queue_depth": ".0f",
    "preemptions": ".3f",
    "oldest_age": ".1f",
    "generated_per_trained": ".2f",
}
# False alarms a month below this are not told apart: no simulation is that good.
FEWEST = 0.001


def template(signal: StandingSignal) -> str:
    """The alert's value with its unit, for an annotation."""
    spec = FORMATS.get(signal.name)
    value = "humanizePercentage" if spec is None else f'printf "%{spec}"'
    return f"{{{{ $value | {value} }}}} {signal.unit}"


def shown(signal: StandingSignal, value: float) -> str:
    """A value with its unit."""
    spec = FORMATS.get(signal.name)
    if spec is None:
        return f"{units.figures_share(value)} {signal.unit}"
    return f"{value:{spec}} {signal.unit}"


def short(signal: StandingSignal, value: float) -> str:
    """A value for a table: shares in percent, the rest with the digits of its kind."""
    spec = FORMATS.get(signal.name)
    if spec is None:
        return units.figures_share(value)
    return f"{value:,{spec}}"


def per_month(count: float) -> str:
    """A number of times a month, rounded to what is known of it."""
    if count < FEWEST:
        return f"fewer than {FEWEST:g}"
    return f"{count:.2g}" if count < 9.95 else f"{count:,.0f}"


def duration(seconds: float) -> str:
    """Seconds as Prometheus writes them: 600 -> 10m, 5400 -> 1h30m."""
    left, text = round(seconds), ""
    for unit, size in (("d", 86_400), ("h", 3600), ("m", 60), ("s", 1)):
        if left >= size:
            text += f"{left // size}{unit}"
            left %= size
    return text or "0s"
