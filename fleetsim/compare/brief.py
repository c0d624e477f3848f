"""A comparison in about eight lines."""

from __future__ import annotations

from fleetsim import units
from fleetsim.compare.compare import Change, Comparison
from fleetsim.compare.words import change_of
from fleetsim.job.assumptions import short
from fleetsim.quantities import quantity
from fleetsim.tell.document import Brief, brief

# What a job is changed for; these are told before others.
_FIRST = ("step_s", "cost_per_step", "trainer_idle_fraction", "goodput", "staleness_steps.p99")
_MOST_CHANGES, _MOST_INPUTS = 4, 3


def brief_of(found: Comparison) -> Brief:
    """What one must know of a comparison; its headline is the answer."""
    changed = sorted(found.significant, key=lambda c: _FIRST.index(c.metric) if c.metric in _FIRST else len(_FIRST))
    worse = any(c.verdict == "worse" for c in found.significant)
    return brief(
        *((c.verdict, _change(c)) for c in changed[:_MOST_CHANGES]),
        ("inputs", _inputs(found)),
        ("runs", _runs(found)),
        tone="unsure" if worse else "good",
    )


def _change(change: Change) -> str:
    """ "optimizer step 29.8 s -> 27.6 s: 0.925 (0.888 to 0.964)"."""
    q = quantity(change.metric)
    a, b = (None if side is None else units.written(side.mean, q.unit) for side in (change.a, change.b))
    size, ends = change_of(change)
    return f"{q.title} {a} -> {b}: {size}{f' ({ends})' if ends else ''}"


def _inputs(found: Comparison) -> str:
    """The inputs that differ, some of many."""
    told = [f"{d.path} {_short(d.a)} -> {_short(d.b)}" for d in found.inputs[:_MOST_INPUTS]]
    more = len(found.inputs) - len(told)
    return ", ".join(told) + (f", and {more} more" if more else "")


def _short(value: object) -> str:
    return "-" if value is None else "..." if isinstance(value, dict | list) else short(value)


def _runs(found: Comparison) -> str:
    if found.kind == "windows":
        return f"unpaired, {units.plural(found.replications, 'block')} of the shorter window"
    how = "paired: the same draws on both sides" if found.paired else "unpaired"
    return f"{units.plural(found.replications, 'replication')}, {how}"
