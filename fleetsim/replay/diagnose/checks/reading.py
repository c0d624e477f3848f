"""Was enough read to judge, and does the simulation of the window come out as the window did?"""

from __future__ import annotations

from collections.abc import Iterator

from fleetsim import units
from fleetsim.history.window import shown
from fleetsim.replay.compared_quantities import ComparedRow, catalogued, error_words
from fleetsim.replay.diagnose.checks.case import Case, Reply
from fleetsim.replay.observe.observed import Observed

# Beyond this share of instance-time without values, rates are those of an unknown part of the window.
GAPS = 0.2
# Fewer optimizer steps than this say little about a share of a step; the runbook verifies over several hundred.
FEW_STEPS, MANY_STEPS = 10, 200
_NAMED = 3
_SCRAPES = "look at Prometheus's targets page: which scrapes fail; or choose a window without the gap"
_ENGINES = "the engines' own metrics"
_NAMES = (
    "read the engines' own metrics: --prometheus URL, with --selector 'job=\"rollout\"' where others are scraped too"
)


def data(case: Case) -> Reply:
    """fault: too many gaps. unknown: nothing of the engines or of the trainer was read, or too few steps."""
    o, steps = case.observed, case.observed.trainer.steps
    evidence = list(_read(o))
    if o.gap_share > GAPS:
        return Reply(
            "fault", "too many gaps to judge by", evidence, _SCRAPES, None, "too much of the window was not read"
        )
    if not o.instances and steps is None:
        return Reply("unknown", "nothing to judge by", evidence, _NAMES, missing=_ENGINES)
    if steps is not None and steps.value < FEW_STEPS:
        only = f"only {steps.value:.0f} optimizer steps"
        return Reply("unknown", only, evidence, _longer(o), missing="a longer window")
    if o.logged is not None and o.logged.idle_share is not None:
        return Reply("ok", "a run log that tells of both sides", evidence)
    if not o.instances:
        return Reply("unknown", "a run log alone: the trainer's side only", evidence, _NAMES, missing=_ENGINES)
    return Reply("ok", "enough was read to judge", evidence)


def _read(o: Observed) -> Iterator[str]:
    """What was read, and what was not."""
    span = units.seconds(o.span_s)
    if o.instances:
        yield f"{units.plural(len(o.instances), 'instance')} over {span}, a value every {units.seconds(o.step_s)}"
    else:
        known = (
            "what the instances do is unknown" if o.logged is None else "of the instances only what the run log says"
        )
        yield f"no engine metrics over {span}: {known}"
    if o.gap_share > 0:
        yield f"{units.share(o.gap_share)} of the instances' time has no values"
    for hole in o.holes[:_NAMED]:
        what = "nothing was read" if hole.of == "engines" else "no step of the trainer was read"
        when = f"{units.seconds(hole.seconds)} from {shown(hole.start_s)} on"
        yield f"{what} for {when}: left out of every elapsed time"
    if len(o.holes) > _NAMED:
        yield f"and {len(o.holes) - _NAMED} more such holes, left out as well"
    steps = o.trainer.steps
    if steps is None:
        yield "optimizer steps are neither exported nor to be inferred"
    else:
        inferred = " (inferred)" if steps.source == "inferred" else ""
        short = "" if steps.value >= MANY_STEPS else "; several hundred make a representative window"
        yield f"{units.count(round(steps.value))} optimizer steps{inferred}{short}"


def _longer(o: Observed) -> str:
    """A longer window: of a server there is one, of a file perhaps not."""
    if "://" in o.source:
        return "a longer window:\nfleetsim replay ... --start -24h"
    return "replay a longer window: these are too few steps to judge by"


# The queue is what the flows before and behind it leave: a few percent of the requests in flight, of which there are
# batches, move it by tenths of a batch while step and throughput are right. Off by more, it is a cap or a drop.
QUEUE = 0.5
# Where engines could come from.
_INSTEAD = (
    "where engines are scraped:\nfleetsim replay --prometheus URL --selector 'job=\"rollout\"'\n"
    "or this log with what is known of the job:\nfleetsim replay ... --scenario job.yaml"
)


def model(case: Case) -> Reply:
    """fault: a predicted quantity is off by more than the back-test's limit. unknown: there was no back-test, for the
    window cannot be simulated or nobody asked, or nothing that it could compare."""
    back = case.backtest
    if back is None and case.unsimulated is not None:
        engines = bool(case.observed.instances)
        title, then = (
            "cannot be back-tested" + ("" if engines else ": no engine metrics"),
            None if engines else _INSTEAD,
        )
        return Reply("unknown", title, (case.unsimulated,), then, missing="--scenario FILE")
    if back is None:
        then = "without --no-backtest:\nfleetsim replay ..."
        return Reply("unknown", "not back-tested", (), then, missing="leave out --no-backtest")
    worst = back.worst
    if back.verdict == "unknown" or worst is None:
        missing = "the trainer's step (--map trainer.step_s=METRIC)"
        return Reply("unknown", "nothing of what was observed is predicted", missing=missing)
    evidence = tuple(row_words(row) for row in sorted(back.overall, key=lambda row: -abs(row.error)))
    off_by = [row for row in back.overall if not row.within]
    if off_by and all(row.quantity == "queue" and abs(row.error) <= QUEUE for row in off_by):
        return Reply("ok", "predicts this window but for its queue", evidence)
    if back.verdict == "ok":
        return Reply("ok", f"predicts this window within {units.share(back.limit)}", evidence)
    missed = catalogued(worst.quantity).title
    off = tuple(row_words(row) for row in back.overall if not row.within)
    return Reply("fault", f"off by more than {units.share(back.limit)}: wrong somewhere", off,
        "\n".join(back.where) or "measure the engines' speed (fleetsim calibrate) and the sync pauses again",
        None, f"the simulation of this window misses its {missed}, so what-ifs are not to be trusted",
    )  # fmt: skip


def row_words(row: ComparedRow) -> str:
    """Observed, predicted and the error, with their units."""
    q = catalogued(row.quantity)

    def shown(x: float) -> str:
        return units.count(round(x)) if q.unit == "number" else units.written(x, q.unit)

    return f"{q.title}: observed {shown(row.observed)}, predicted {shown(row.predicted)} ({error_words(row)})"
