"""What the comparison of a case comes to: errors, order, bottlenecks, and which gates hold."""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from itertools import combinations
from statistics import median

from msgspec import Struct

from fleetsim import units
from fleetsim.engine.slowdown import slowdown_of
from fleetsim.job.scalar import is_close, nearest, search, slope_of
from fleetsim.tell.document import Table, Words
from fleetsim.validate.arms import Figures, figures_of, scenario_of
from fleetsim.validate.case import REPLICATIONS, Arm, PublishedCase

# --- The one scalar of a case, found on its baseline arm and on nothing else.
#
# Where a source publishes its phases, those of the trainer, of syncs and of hand-overs are inputs, and the scalar is
# found on what is left, the waiting. Where it publishes a step alone, engines and trainer share the scalar (`both`):
# put on one of them, the same step makes other arms come out up to twice as far off.


class Fitted(Struct, frozen=True):
    """value: the scalar. figure: what the baseline comes to with it. met: within 0.2 % of the published one.

    tried: values that were simulated to find it.
    """

    value: float
    figure: float
    met: bool
    tried: int


def fit(case: PublishedCase) -> Fitted | None:
    """The scalar at which the simulated baseline shows the published figure; None where nothing is fitted.

    One replication is searched first; all together lie about its curve, so their search starts where it ended. Where no
    value between `fit.low` and `fit.high` meets the figure, the end that is nearer, and `met` is false.
    """
    if case.fit is None:
        return None
    task = case.fit

    def figure(value: float, most: int) -> float:
        def of(arm: str) -> float:
            own = case.arm(arm)
            return float(getattr(figures_of(case, own, scenario_of(case, own, value), most), task.figure))

        return of(task.arm) / (of(task.against) if task.against else 1.0)

    start = {
        "decode_slowdown": slowdown_of(case.framework),
        "mean_tokens": case.lengths.mean,
        "trainer_seconds": 1.0,
        "both": 1.0,
    }[task.scalar]
    first = search(lambda value: figure(value, 1), task.low, task.high, task.value, start)
    near = nearest(first, task.value)
    tried = search(lambda value: figure(value, REPLICATIONS), task.low, task.high, task.value, near, slope_of(first))
    best = nearest(tried, task.value)
    return Fitted(best, tried[best], is_close(tried[best], task.value), len({*first, *tried}))


# --- The verdict on an arm, on a case, and on all of them.

# Published figures closer than this to each other are called equal: they have no order.
SAME = 0.05
# Simulated figures closer than this are equal as well: such a pair is neither right nor wrong.
TIED = 0.01
RATIO_MEDIAN, BEYOND, ABSOLUTE = 0.07, 0.25, 0.10
# One arm of so many may be off by more than BEYOND; this share of pairs must be in the right order.
ONE_IN, IN_ORDER = 12, 0.97
# The share of arms that an 80 % range should hold; wider ranges would hold more, so their width is a gate, too.
HELD, WIDEST = (0.75, 0.85), 1.5

# What is wanted of all cases together: its name, what is wanted, what was reached, whether it holds.
Gate = tuple[str, str, str, bool]
# Where nothing of an arm but its configuration is known.
BLIND_MEDIAN = 0.11


class ArmResult(Struct, frozen=True):
    """One arm beside its publication.

    predicted: the simulated figure of the case's measure, over the reference arm's where the published one is
    relative. error: predicted / published - 1. ratio_error: the same with both taken relative to the baseline arm;
    None on the baseline and where nothing is published. fitted: the scalar was fitted on this arm. bottleneck: whether
    it is the published one, None where none is published.
    """

    arm: Arm
    figures: Figures
    predicted: float
    error: float | None
    ratio_error: float | None
    fitted: bool
    bottleneck: bool | None

    @property
    def gated_error(self) -> float | None:
        """The error that the ratio gates look at; the absolute one of a baseline; None where nothing is published."""
        return self.ratio_error if self.ratio_error is not None else self.error


class CaseResult(Struct, frozen=True):
    """A case, its scalar, its arms, and the pairs of arms (a, b) that the simulation puts in the wrong order.

    pairs: those that have an order. blind: the same with nothing of an arm but its configuration, and the baseline's
    log. put: where one figure is shared by engines and trainer, the same with all of it put on either, as far as that
    meets it.
    """

    case: PublishedCase
    fitted: Fitted | None
    arms: tuple[ArmResult, ...]
    wrong_order: tuple[tuple[str, str], ...]
    pairs: int = 0
    blind: CaseResult | None = None
    put: tuple[CaseResult, ...] = ()

    @property
    def misses(self) -> tuple[ArmResult, ...]:
        """Gated arms that miss a gate of their case by themselves: ratio, absolute, or bottleneck."""
        return tuple(a for a in self.arms if a.arm.gated and self._misses(a))

    @property
    def far(self) -> tuple[ArmResult, ...]:
        """Gated arms whose ratio is off by more than the worst that is allowed."""
        return tuple(a for a in self.arms if a.arm.gated and self._is_far(a))

    def _is_far(self, a: ArmResult) -> bool:
        return "ratio" in self.case.gates and a.ratio_error is not None and abs(a.ratio_error) > BEYOND

    def _misses(self, a: ArmResult) -> bool:
        absolute = "abs" in self.case.gates and a.error is not None and abs(a.error) > ABSOLUTE
        return self._is_far(a) or absolute or a.bottleneck is False


class Summary(Struct, frozen=True):
    """All cases together: the gates of the whole page. missed: arms that miss a gate by themselves. far: those whose
    ratio does. ratios: arms that have one. pairs: of arms whose order is known. blind: of all cases that were predicted
    blind. sealed: of the sealed cases alone, where there are others; of them, held: share of ranges that hold, every
    case alike, and width: the median of their ends' ratio."""

    cases: int
    arms: int
    ratios: int
    pairs: int
    ratio_median: float | None
    ratio_worst: float | None
    absolute_worst: float | None
    bottlenecks_right: int
    bottlenecks: int
    orders_wrong: int
    missed: tuple[str, ...]
    far: tuple[str, ...]
    blind: Summary | None
    sealed: Summary | None = None
    held: float | None = None
    width: float | None = None

    @property
    def holds(self) -> bool:
        """Whether every gate holds."""
        return all(holds for *_, holds in gate_rows(self))


def role(result: CaseResult, arm: ArmResult) -> str:
    """fitted on | predicted | its ratio to a fitted arm is known."""
    if arm.fitted:
        return "fitted"
    if result.case.fit is not None and arm.arm.name == result.case.fit.against:
        return "fitted"
    return "predicted"


def judge(case: PublishedCase, fitted: Fitted | None, figures: dict[str, Figures]) -> CaseResult:
    """The result of a case from the figures of its arms by name."""
    values = {name: float(getattr(f, case.measure)) for name, f in figures.items()}
    base = case.arm(case.baseline)
    if case.relative and base.published:
        values = {name: value * base.published / values[base.name] for name, value in values.items()}
    arms = []
    for arm in case.arms:
        shown = values[arm.name] / values[arm.reference] if arm.reference else values[arm.name]
        error = shown / arm.published - 1 if arm.published else None
        ratio_error = error if arm.reference else None
        if error is not None and not arm.reference and base.published and arm is not base:
            ratio_error = (1 + error) / (values[base.name] / base.published) - 1
        side = figures[arm.name].side
        arms.append(
            ArmResult(
                arm,
                figures[arm.name],
                shown,
                error,
                ratio_error,
                fitted is not None and case.fit is not None and case.fit.arm == arm.name,
                None if arm.bottleneck is None else _matches(arm.bottleneck, side),
            )
        )
    ordered = tuple(_ordered(arms))
    wrong = tuple((a, b) for a, b, right in ordered if not right)
    return CaseResult(case, fitted, tuple(arms), wrong, len(ordered))


def summary(results: Sequence[CaseResult]) -> Summary:
    """The gates over all cases."""
    gated = [(a, r.case.gates) for r in results for a in r.arms if a.arm.gated]
    ratios = [abs(a.ratio_error) for a, gates in gated if "ratio" in gates and a.ratio_error is not None]
    absolute = [abs(a.error) for a, gates in gated if "abs" in gates and a.error is not None]
    blind = [r.blind for r in results if r.blind is not None]
    sides = [a.bottleneck for a, _ in gated if a.bottleneck is not None]
    return Summary(
        cases=len(results),
        arms=sum(len(r.arms) for r in results),
        ratios=len(ratios),
        pairs=sum(r.pairs for r in results),
        ratio_median=median(ratios) if ratios else None,
        ratio_worst=max(ratios) if ratios else None,
        absolute_worst=max(absolute) if absolute else None,
        bottlenecks_right=sum(sides),
        bottlenecks=len(sides),
        orders_wrong=sum(len(r.wrong_order) for r in results),
        missed=tuple(f"{r.case.id} {a.arm.name}" for r in results for a in r.misses),
        far=tuple(f"{r.case.id} {a.arm.name}" for r in results for a in r.far),
        blind=summary(blind) if blind else None,
    )


def _matches(published: str, simulated: str) -> bool:
    """A client's cap is a way for generation to bind; authors who name the cap mean nothing else."""
    return published == simulated or (published == "generation" and simulated == "in_flight_cap")


def _apart(ratio: float, by: float) -> bool:
    return max(ratio, 1 / ratio) > 1 + by


def _ordered(arms: Sequence[ArmResult]) -> Iterator[tuple[str, str, bool]]:
    """Pairs of arms whose publications have an order, and whether the simulation has it."""
    known = [a for a in arms if a.arm.published and a.arm.gated and not a.arm.reference]
    for a, b in combinations(known, 2):
        assert a.arm.published is not None
        assert b.arm.published is not None
        published, predicted = a.arm.published / b.arm.published, a.predicted / b.predicted
        if _apart(published, SAME):
            yield a.arm.name, b.arm.name, not _apart(predicted, TIED) or (published > 1) == (predicted > 1)


# --- The gates of the whole validation: what is wanted, what was reached.


def gates(total: Summary) -> Table:
    """The gates of the whole validation; and how those of its sealed cases come out alone."""
    rows = tuple(_beside(total))
    return Table(
        "",
        ("", "gate", "wanted", "reached", "sealed alone"),
        tuple(("ok" if holds else "MISSED", *told) for *told, holds in rows),
        left=5,
        marked=frozenset(i for i, (*_, holds) in enumerate(rows) if not holds),
    )


def gates_written(total: Summary) -> Table:
    """The same in the documentation, the name first."""
    rows = tuple((*told, "holds" if holds else Words("missed", strong=True)) for *told, holds in _beside(total))
    return Table("", ("gate", "wanted", "reached", "sealed alone", ""), rows, left=5)


def _beside(total: Summary) -> Iterator[tuple[str, str, str, str, bool]]:
    """Each gate, with what sealed cases alone reach of it before whether it holds."""
    alone = {} if total.sealed is None else {row[0]: row for row in gate_rows(total.sealed)}
    for name, wanted, reached, holds in gate_rows(total):
        *_, there, held = alone.get(name, ("", "", "-", True))
        yield name, wanted, reached, there if held else f"{there}, missed", holds


def gate_rows(summary: Summary) -> list[Gate]:
    """(gate, wanted, reached, holds) of the whole validation."""
    rows = list(_common_rows(summary, RATIO_MEDIAN))
    rows.insert(
        1,
        (
            "bottleneck",
            f"right in {units.share(IN_ORDER, 0)} of the arms that have one",
            f"{summary.bottlenecks_right} of {summary.bottlenecks}",
            summary.bottlenecks_right >= IN_ORDER * summary.bottlenecks,
        ),
    )
    if summary.absolute_worst is not None:
        worst = summary.absolute_worst
        wanted = f"at most {units.share(ABSOLUTE, 0)}"
        rows.append(("absolute error, worst", wanted, units.share(worst), worst <= ABSOLUTE))
    if summary.blind is not None:
        unseen = _common_rows(summary.blind, BLIND_MEDIAN)
        rows += [(f"blind: {name}", wanted, reached, holds) for name, wanted, reached, holds in unseen]
    if summary.held is not None and summary.width is not None:
        held, wanted = summary.held, f"{units.share(HELD[0], 0)} to {units.share(HELD[1], 0)}"
        rows.append(("ranges of sealed arms that hold", wanted, units.share(held, 0), HELD[0] <= held <= HELD[1]))
        wide = f"at most {WIDEST:g} times apart"
        rows.append(("ends of their ranges, median", wide, f"{summary.width:.2f}", summary.width <= WIDEST))
    return rows


def _common_rows(summary: Summary, most: float) -> Iterator[Gate]:
    """Order and ratios: of predictions that know an arm's publication, and of those that know its configuration."""
    yield (
        "order of the arms",
        f"right in {units.share(IN_ORDER, 0)} of the pairs that publications have {units.share(SAME, 0)} apart",
        f"{summary.pairs - summary.orders_wrong} of {summary.pairs}",
        summary.orders_wrong <= (1 - IN_ORDER) * summary.pairs,
    )
    if summary.ratio_median is not None:
        wanted, reached = f"at most {units.share(most, 0)}", units.share(summary.ratio_median)
        yield "ratio error, median", wanted, reached, summary.ratio_median <= most
        far, of = len(summary.far), summary.ratios
        wanted = f"of at most one arm in {ONE_IN}"
        yield f"ratio error beyond {units.share(BEYOND, 0)}", wanted, f"{far} of {of}", far * ONE_IN <= of
