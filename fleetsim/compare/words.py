"""The answer of a comparison in a sentence, and one change in a few words."""

from __future__ import annotations

from collections.abc import Callable

from msgspec import Struct

from fleetsim import units
from fleetsim.compare.compare import BY_ITSELF, Comparison, MetricChange
from fleetsim.estimates import Estimate
from fleetsim.quantities import quantity


class _Said(Struct, frozen=True):
    """How a change of a metric is said, {} its size: when it grew, when it shrank."""

    more: str
    less: str


# In the order of the sentence.
_SENTENCES = {
    "step_s": _Said("B's step is {} longer", "B's step is {} shorter"),
    "cost_per_step": _Said("a step costs {} more", "a step costs {} less"),
    "instance_s_per_step": _Said("a step takes {} more instance-seconds", "a step takes {} fewer instance-seconds"),
    "trainer_idle_fraction": _Said("the trainer idles {} more", "the trainer idles {} less"),
}
_MOST_OTHERS = 2


def headline_of(found: Comparison) -> str:
    """What a reader must know: how the step changed, what it costs, how many metrics changed.

    An interval stands in it where it is all that is known of the doubt: of windows of history. Of simulated sides it is
    of seeds alone, and stands below, by that name.
    """
    own = found.kind == "windows"
    by_name = {c.metric: c for c in found.changes}
    comparable = [c for c in found.changes if c.verdict != "not comparable"]
    if not comparable:
        return "A and B have no metric that can be compared"
    said = [
        _sentence(by_name[name], words, own)
        for name, words in _SENTENCES.items()
        if name in by_name and by_name[name].significant
    ]
    if all(c.p_adjusted is None for c in comparable):
        return f"B equals A in {'its only metric' if len(comparable) == 1 else f'all {len(comparable)} metrics'}"
    step = by_name.get("step_s")
    if step is not None and not step.significant and step.verdict != "not comparable":
        tested = sum(c.p_adjusted is not None for c in comparable)
        alone = f"B's step may have changed: among {tested} metrics one may look so by luck"
        said.insert(
            0, (alone if step.why == BY_ITSELF else "B's step did not change significantly") + _step_range(step, own)
        )
    if not any(c.significant for c in found.changes if c.metric in _SENTENCES):
        others = sorted((c for c in found.significant), key=lambda c: -_weight(c))
        said += [change_words(c, own) for c in others[:_MOST_OTHERS]]
    return f"{', '.join(said) or 'Nothing changed significantly'}; {_count(found, len(comparable))}"


def change_words(change: MetricChange, ranged: bool = True) -> str:
    """ "generated tok/s 3.2 % lower (2.9 to 3.5 %)"; without the interval where it is not `ranged`."""
    return _sentence(change, _Said(f"{quantity(change.metric).title} {{}} higher", ""), ranged)


def luck_of(change: MetricChange) -> str:
    """What luck alone does to the change that `change_of` says: "±0.004 of seeds"."""
    if change.size is None:
        return ""
    half = units.half_width(change.size)
    write = units.percent if change.of_share else _ratio if change.ratio is not None else _plain(change)
    return units.of_seeds(f"±{write(half)}" if half > 0 else "")


def likely_of(change: MetricChange) -> str:
    """Between what a change lies as far as inputs are in doubt: "likely 0.912 to 0.941"."""
    if change.likely is None:
        return ""
    low, high = ((units.percent_change if change.of_share else _ratio)(x) for x in change.likely)
    return "" if low == high else f"likely {low} to {high}"


def size_of(change: MetricChange) -> tuple[Estimate, Callable[[float], str]] | None:
    """The size of a change and how to write it: points of a share, per cent of a ratio, or the metric's unit."""
    if change.size is None:
        return None
    if change.of_share:
        return change.size, units.percent
    if change.ratio is not None:
        r = change.ratio
        return Estimate(r.mean - 1.0, r.ci_low - 1.0, r.ci_high - 1.0), lambda x: _percent(100.0 * x)
    return change.size, units.seconds if quantity(change.metric).unit == "seconds" else lambda x: f"{x:.3g}"


def change_of(change: MetricChange) -> tuple[str, str]:
    """ "0.968" and "0.964 to 0.971"; of a share "-1.1 points" and "-1.2 to -1.0"; from nothing, the difference."""
    if change.size is None:
        return "", ""
    if change.of_share:
        return _interval(change.size, units.percent_change, " points")
    plain = _plain(change)
    write = _ratio if change.ratio is not None else lambda x: f"{'+' if x > 0 else ''}{plain(x)}"
    return _interval(change.size, write, "")


def _plain(change: MetricChange) -> Callable[[float], str]:
    """A number in the metric's unit."""
    return lambda x: units.written(x, quantity(change.metric).unit)


def _ratio(x: float) -> str:
    return f"{x:.3f}" if abs(x) < 99.5 else f"{x:,.0f}"


def _interval(value: Estimate, write: Callable[[float], str], unit: str) -> tuple[str, str]:
    low, high = write(value.ci_low), write(value.ci_high)
    return f"{write(value.mean)}{unit}", "" if value.ci_low == value.ci_high else f"{low} to {high}"


def band_of(min_change: float, of_shares: bool) -> str:
    """The smallest change of interest: "1 %"; of shares "1 point"."""
    return units.plural(100.0 * min_change, "point") if of_shares else units.limit(min_change)


def _percent(x: float) -> str:
    return f"{x:,.0f}" if abs(x) >= 99.5 else f"{x:.1f}"


def _sentence(change: MetricChange, words: _Said, ranged: bool) -> str:
    size = size_of(change)
    if size is None:
        return quantity(change.metric).title
    by, write = size
    unit = " points" if change.of_share else "" if change.ratio is None else " %"
    more = by.mean >= 0
    template = words.more if more else words.less or words.more.replace("higher", "lower")
    text = template.format(f"{write(abs(by.mean))}{unit}")
    if by.ci_low == by.ci_high or not ranged:
        return text
    near, far = (write(x) for x in ((by.ci_low, by.ci_high) if more else (-by.ci_high, -by.ci_low)))
    return text if near == far else f"{text} ({near} to {far}{unit})"


def _step_range(step: MetricChange, own: bool) -> str:
    size = size_of(step)
    if size is None:
        return ""
    by = size[0]
    if step.p_adjusted is None:
        return f" ({step.why})"
    if step.ratio is None:
        return ""
    low, high = (units.percent_change(x) for x in (by.ci_low, by.ci_high))
    of = "" if own else " by seeds alone"
    return f" ({units.change(by.ci_high)})" if low == high else f" ({low} to {units.change(by.ci_high)}{of})"


def _weight(change: MetricChange) -> float:
    size = size_of(change)
    return 0.0 if size is None else abs(size[0].mean)


def _count(found: Comparison, comparable: int) -> str:
    changed = len(found.significant)
    noun = "metric" if comparable == 1 else "metrics"
    if changed == 0:
        return f"none of {comparable} {noun} changed"
    return f"{changed} of {comparable} {noun} changed"
