"""The gates of the whole validation: what is wanted, what was reached."""

from __future__ import annotations

from collections.abc import Iterator

from fleetsim import units
from fleetsim.tell.document import Table, Words
from fleetsim.units import plural
from fleetsim.validate.verdict import ABSOLUTE, BLIND_MEDIAN, RATIO_MEDIAN, RATIO_WORST, SAME, Summary


def gates(total: Summary) -> Table:
    """The gates of the whole validation."""
    rows = gate_rows(total)
    marks = ("ok" if holds else "MISSED" for *_, holds in rows)
    return Table(
        "",
        ("", "gate", "wanted", "reached"),
        tuple((mark, *row[:3]) for mark, row in zip(marks, rows, strict=True)),
        left=4,
        marked=frozenset(i for i, row in enumerate(rows) if not row[3]),
    )


def gates_written(total: Summary) -> Table:
    """The same in the documentation, the name first."""
    rows = tuple((*row[:3], "holds" if row[3] else Words("missed", strong=True)) for row in gate_rows(total))
    return Table("", ("gate", "wanted", "reached", ""), rows, left=4)


def gate_rows(summary: Summary) -> list[tuple[str, str, str, bool]]:
    """(gate, wanted, reached, holds) of the whole validation."""
    rows = [
        (
            "order of the arms",
            f"right wherever publications differ by over {units.share(SAME, 0)}",
            f"{plural(summary.orders_wrong, 'pair')} wrong",
            summary.orders_wrong == 0,
        ),
        (
            "bottleneck",
            "right in every arm that has one",
            f"{summary.bottlenecks_right} of {summary.bottlenecks}",
            summary.bottlenecks_right == summary.bottlenecks,
        ),
    ]
    if summary.ratio_median is not None and summary.ratio_worst is not None:
        rows += [
            (
                "ratio error, median",
                f"at most {units.share(RATIO_MEDIAN, 0)}",
                units.share(summary.ratio_median),
                summary.ratio_median <= RATIO_MEDIAN,
            ),
            (
                "ratio error, worst",
                f"at most {units.share(RATIO_WORST, 0)}",
                units.share(summary.ratio_worst),
                summary.ratio_worst <= RATIO_WORST,
            ),
        ]
    if summary.absolute_worst is not None:
        worst = summary.absolute_worst
        wanted = f"at most {units.share(ABSOLUTE, 0)}"
        rows.append(("absolute error, worst", wanted, units.share(worst), worst <= ABSOLUTE))
    if summary.blind is not None:
        rows += _blind_rows(summary.blind)
    return rows


def _blind_rows(blind: Summary) -> Iterator[tuple[str, str, str, bool]]:
    """The same of predictions that know nothing of an arm but its configuration."""
    wrong = plural(blind.orders_wrong, "pair")
    yield "blind: order of the arms", "right, as above", f"{wrong} wrong", blind.orders_wrong == 0
    if blind.ratio_median is not None:
        wanted, reached = f"at most {units.share(BLIND_MEDIAN, 0)}", units.share(blind.ratio_median)
        yield "blind: ratio error, median", wanted, reached, blind.ratio_median <= BLIND_MEDIAN
