"""`Comparison`: what changed between A and B, metric by metric, and what differs in their inputs."""

from __future__ import annotations

from collections.abc import Callable, Collection, Iterator, Mapping
from typing import Any, Literal

from msgspec import Struct, field

from fleetsim import units
from fleetsim.config.scenario import Scenario
from fleetsim.config.tree import is_given, is_touched
from fleetsim.contrast import Mean
from fleetsim.estimates import Estimate
from fleetsim.quantities import quantity

Verdict = Literal["better", "worse", "changed", "no significant change", "not comparable"]
Kind = Literal["scenarios", "results", "windows"]
# Why a metric did not change although its own interval says so: it is one of many.
BY_ITSELF = "by itself only"
# How it begins, where there is nothing to test.
EQUAL = "equal"


class MetricChange(Struct, frozen=True):
    """One metric of A and of B.

    metric: dotted name, of `quantities.py`. a, b: each side's own mean and 95 % interval, None where that side
    has no such metric. ratio: b / a, paired where the draws are shared; None where the mean of a is not told from 0.
    difference: b - a, in the metric's unit. verdict: "changed" where neither way is good as such. why: what the verdict
    means, or of "not comparable" the reason. p_adjusted: p-value of no change beyond the smallest one of interest,
    Holm's correction for the number of metrics included; None where both sides are equal in every run, or cannot be
    compared. likely: between what the ratio, of a share the difference, lies as far as inputs are in doubt; None where
    nobody worked that out, or nothing is.
    """

    metric: str
    a: Estimate | None
    b: Estimate | None
    ratio: Estimate | None
    difference: Estimate | None
    verdict: Verdict
    why: str = ""
    p_adjusted: float | None = None
    likely: tuple[float, float] | None = None

    @property
    def significant(self) -> bool:
        """Whether the two sides differ by more than luck and more than the smallest change of interest."""
        return self.verdict in ("better", "worse", "changed")

    @property
    def of_share(self) -> bool:
        """Whether it is one of points."""
        return quantity(self.metric).unit == "share"

    @property
    def size(self) -> Estimate | None:
        """How large it is: of a share the difference, else the ratio; from nothing the difference."""
        return self.difference if self.of_share or self.ratio is None else self.ratio

    @property
    def equal(self) -> bool:
        """Whether both sides are the same, so that there is nothing to test, and nothing to draw."""
        return not self.significant and self.why.startswith(EQUAL)


class InputDifference(Struct, frozen=True):
    """A value that the two sides do not share: dotted path, both values with defaults resolved (None: not there).

    a_assumed, b_assumed: nobody gave that side's value.
    """

    path: str
    a: Any
    b: Any
    a_assumed: bool = False
    b_assumed: bool = False


class Side(Struct, frozen=True):
    """What is known of A, or of B.

    runs: (seed, replication) -> flat metrics of that run. means: where there are no single runs. replications: runs
    behind the means; of a window, its blocks. missing: metric -> why there is none. inputs: nested, as a scenario's
    JSON has them. assumed: dotted paths of inputs that nobody gave. binds: what limits the step, "" where nobody knows.
    accuracy: what is known of its engine's speed, "" where it was measured as it ran.
    """

    label: str
    runs: Mapping[tuple[int, int], Mapping[str, float]] = field(default_factory=dict)
    means: Mapping[str, Mean] = field(default_factory=dict)
    replications: int = 0
    missing: Mapping[str, str] = field(default_factory=dict)
    inputs: Mapping[str, Any] = field(default_factory=dict)
    assumed: Collection[str] = ()
    binds: str = ""
    accuracy: str = ""


class Comparison(Struct, frozen=True):
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
    changes: tuple[MetricChange, ...]
    inputs: tuple[InputDifference, ...]
    headline: str
    notes: tuple[str, ...]
    min_change: float

    @property
    def significant(self) -> tuple[MetricChange, ...]:
        """The metrics that changed."""
        return tuple(c for c in self.changes if c.significant)


# Keys of a scenario that nothing is simulated from.
WORDS = ("schema_version", "name", "description", "source", "published", "assumed", "follow")
PROFILE_HASH = "engine.profile (hash)"


def inputs_of(scenario: Scenario) -> dict[str, Any]:
    """The scenario as JSON has it, without its words."""
    return {key: value for key, value in scenario.model_dump(mode="json").items() if key not in WORDS}


def assumed_of(scenario: Scenario, given: Collection[str]) -> list[str]:
    """Every path of the scenario that nobody gave, or that it calls assumed. given: as `Job.given`."""
    paths = [path for path, _ in _leaves(inputs_of(scenario))]
    return [p for p in paths if is_given(p, scenario.assumed) or not is_touched(p, given)]


def input_differences(
    a: Mapping[str, Any], b: Mapping[str, Any], a_assumed: Collection[str] = (), b_assumed: Collection[str] = ()
) -> tuple[InputDifference, ...]:
    """Every value that differs, in the order of the scenario. A law of another kind, and a list, differ as a whole."""
    return tuple(
        InputDifference(path, left, right, is_touched(path, a_assumed), is_touched(path, b_assumed))
        for path, left, right in _differences(a, b, "")
    )


def _differences(a: Mapping[str, Any], b: Mapping[str, Any], prefix: str) -> Iterator[tuple[str, Any, Any]]:
    for key in dict.fromkeys((*a, *b)):
        path, left, right = f"{prefix}{key}", a.get(key), b.get(key)
        both = isinstance(left, Mapping) and isinstance(right, Mapping)
        # sections have their keys in common, laws of two kinds do not
        if both and ("." not in path or left.get("kind") == right.get("kind")):
            yield from _differences(left, right, f"{path}.")
        elif left != right:
            yield path, left, right


def _leaves(values: Mapping[str, Any], prefix: str = "") -> Iterator[tuple[str, Any]]:
    for key, value in values.items():
        if isinstance(value, Mapping):
            yield from _leaves(value, f"{prefix}{key}.")
        else:
            yield f"{prefix}{key}", value


# --- The answer of a comparison in a sentence, and one change in a few words.


# In the order of the sentence: how a change of a metric is said, {} its size, when it grew and when it shrank.
_SENTENCES = {
    "step_s": ("B's step is {} longer", "B's step is {} shorter"),
    "cost_per_step": ("a step costs {} more", "a step costs {} less"),
    "instance_s_per_step": ("a step takes {} more instance-seconds", "a step takes {} fewer instance-seconds"),
    "trainer_idle_fraction": ("the trainer idles {} more", "the trainer idles {} less"),
}
_MOST_OTHERS = 2


def headline_of(found: Comparison) -> str:
    """What a reader must know: how the step changed, what it costs, how many metrics changed.

    An interval stands in it where it is all that is known of the doubt: of windows of history. Of simulated sides it is
    of seeds alone, and stands below, by that name.
    """
    own = found.kind == "windows"
    comparable = {c.metric: c for c in found.changes if c.verdict != "not comparable"}
    if not comparable:
        return "A and B have no metric that can be compared"
    changed, many = found.significant, len(comparable)
    tested = sum(c.p_adjusted is not None for c in comparable.values())
    if not tested:
        return f"B equals A in {'its only metric' if many == 1 else f'all {many} metrics'}"
    told = [comparable[name] for name in _SENTENCES if name in comparable and comparable[name].significant]
    said = [_sentence(c, _SENTENCES[c.metric], own) for c in told]
    step = comparable.get("step_s")
    if step is not None and not step.significant:
        alone = f"B's step may have changed: among {tested} metrics one may look so by luck"
        known = alone if step.why == BY_ITSELF else "B's step did not change significantly"
        said.insert(0, known + _step_range(step, own))
    if not told:
        others = sorted(changed, key=lambda c: -abs(size_of(c)[0].mean))
        said += [change_words(c, own) for c in others[:_MOST_OTHERS]]
    count = f"{len(changed) or 'none'} of {units.plural(many, 'metric')} changed"
    return f"{', '.join(said) or 'Nothing changed significantly'}; {count}"


def change_words(change: MetricChange, ranged: bool = True) -> str:
    """ "generated tok/s 3.2 % lower (2.9 to 3.5 %)"; without the interval where it is not `ranged`."""
    title = quantity(change.metric).title
    return _sentence(change, (f"{title} {{}} higher", f"{title} {{}} lower"), ranged)


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


def size_of(change: MetricChange) -> tuple[Estimate, Callable[[float], str], str]:
    """The size of a change that was tested, how to write it, and its unit: points of a share, per cent of a ratio, or
    the metric's own."""
    assert change.size is not None
    if change.of_share:
        return change.size, units.percent, " points"
    if change.ratio is not None:
        r = change.ratio
        by = Estimate(r.mean - 1.0, r.ci_low - 1.0, r.ci_high - 1.0)
        return by, lambda x: f"{100.0 * x:,.0f}" if abs(100.0 * x) >= 99.5 else f"{100.0 * x:.1f}", " %"
    return change.size, units.seconds if quantity(change.metric).unit == "seconds" else lambda x: f"{x:.3g}", ""


def change_of(change: MetricChange) -> tuple[str, str]:
    """ "0.968" and "0.964 to 0.971"; of a share "-1.1 points" and "-1.2 to -1.0"; from nothing, the difference."""
    size, plain = change.size, _plain(change)
    if size is None:
        return "", ""
    write = _ratio if change.ratio is not None else lambda x: f"{'+' if x > 0 else ''}{plain(x)}"
    write = units.percent_change if change.of_share else write
    ends = "" if size.ci_low == size.ci_high else f"{write(size.ci_low)} to {write(size.ci_high)}"
    return f"{write(size.mean)}{' points' if change.of_share else ''}", ends


def _plain(change: MetricChange) -> Callable[[float], str]:
    """A number in the metric's unit."""
    return lambda x: units.written(x, quantity(change.metric).unit)


def _ratio(x: float) -> str:
    return f"{x:.3f}" if abs(x) < 99.5 else f"{x:,.0f}"


def band_of(min_change: float, of_shares: bool) -> str:
    """The smallest change of interest: "1 %"; of shares "1 point"."""
    return units.plural(100.0 * min_change, "point") if of_shares else units.limit(min_change)


def _sentence(change: MetricChange, templates: tuple[str, str], ranged: bool) -> str:
    """templates: as in `_SENTENCES`. ranged: with the interval."""
    by, write, unit = size_of(change)
    more = by.mean >= 0
    said = templates[not more].format(f"{write(abs(by.mean))}{unit}")
    near, far = (write(x) for x in ((by.ci_low, by.ci_high) if more else (-by.ci_high, -by.ci_low)))
    return said if near == far or not ranged else f"{said} ({near} to {far}{unit})"


def _step_range(step: MetricChange, own: bool) -> str:
    """By how much a step that did not change may have."""
    if step.p_adjusted is None:
        return f" ({step.why})"
    if step.ratio is None:
        return ""
    low, high = (units.percent_change(x - 1.0) for x in (step.ratio.ci_low, step.ratio.ci_high))
    most, of = units.change(step.ratio.ci_high - 1.0), "" if own else " by seeds alone"
    return f" ({most})" if low == high else f" ({low} to {most}{of})"
