"""Lines of a Brief that every planned answer has: a figure with its range, what was assumed, what to measure first."""

from __future__ import annotations

from collections.abc import Callable, Iterable, Mapping, Sequence
from typing import Any

from fleetsim import units
from fleetsim.config.scenario import Scenario
from fleetsim.engine.transport import sync_times
from fleetsim.job.assumptions import Assumption
from fleetsim.job.input_moves import InputPart, MetricRanges
from fleetsim.job.nameplate import trainer_step_s
from fleetsim.quantities import quantity

# From, to of some metrics; None where no input is in doubt.
Spans = Mapping[str, tuple[float, float]] | None

# What the job is: where one of these is assumed, the plan may be for another job than the reader's.
_JOB = ("engine.model", "engine.instance_tok_s", "trainer.batch_samples", "workload.output_tokens.mean")
# What moves an answer most; inputs in doubt come between the two, the dearest first.
_POLICY = ("admission.max_staleness",)
_REST = ("trainer.fixed_s", "workload.output_tokens.cv", "engine.gpu")
_MOST_ASSUMED = 3
# Values that a scenario does not hold as a reader would type them.
_TYPED: Mapping[str, Callable[[Scenario], float]] = {
    "trainer.fixed_s": trainer_step_s,
    "sync.pause_s": lambda s: sync_times(s).pause_s,
}


def ranged(name: str, value: float, spans: Spans) -> str:
    """A metric with its range: "30.2 s (24.0 s to 47.8 s)", the value alone where both ends read as it does."""
    low, high = (value, value) if spans is None else spans[name]
    said, from_, to = (units.written(x, quantity(name).unit) for x in (value, low, high))
    return said if said == from_ == to else f"{said} ({from_} to {to})"


def likely(low: str, high: str, wide: bool) -> str:
    """The range around an answer: " (likely 3 to 8: wide)"; empty where both ends are one."""
    return "" if low == high else f" (likely {low} to {high}{': wide' if wide else ''})"


def step_line(step_s: float, idle: float, spans: Spans) -> str:
    """A step and the trainer's idle share, with their ranges."""
    return f"{ranged('step_s', step_s, spans)}, trainer idle {ranged('trainer_idle_fraction', idle, spans)}"


def assumed_line(scenario: Scenario, assumed: Iterable[Assumption], in_doubt: Sequence[str]) -> str:
    """The assumptions that move the answer most, as one would type them; empty without one.

    in_doubt: paths of inputs whose values are not certain, the dearest first.
    """
    found = {a.path: a for a in assumed}
    order = dict.fromkeys((*_JOB, *_POLICY, *in_doubt, *_REST))
    shown = [found[path] for path in order if path in found][:_MOST_ASSUMED]
    return ", ".join(_typed(scenario, a) for a in shown)


def _typed(scenario: Scenario, assumption: Assumption) -> str:
    path, flag = assumption.path, assumption.flag.split(" --")[0]
    value: Any = _TYPED[path](scenario) if path in _TYPED else assumption.value
    written = units.number(value).replace(",", "") if isinstance(value, float) else str(value)
    return f"--set {path}={written}" if flag.startswith("--set") else f"{flag} {written}"


def swing_line(ranges: MetricRanges, measured: Callable[[str], str] = str) -> str | None:
    """The input that moves a simulated step most, where one does. measured: writes what settles it."""
    first = ranges.parts[0]
    low, high = map(units.seconds, first.step_s)
    return None if low == high else f"{first.what} ({measured(first.measure)}): a step may take {low} to {high}"


def measure_line(part: InputPart[Any]) -> str:
    """What to measure first, with what, and what that is worth."""
    worth = f", worth {units.money(part.usd_per_h)} an hour" if part.usd_per_h > 0 else ""
    return f"{part.what} ({part.measure}){worth}"
