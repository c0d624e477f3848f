"""Does the simulation of this window come out as the window did? If not, the model is wrong somewhere."""

from __future__ import annotations

from fleetsim import units
from fleetsim.replay.compared_quantities import ComparedRow, catalogued, error_words
from fleetsim.replay.diagnose.checks.case import Case, Earlier, Reply

# The queue is what the flows before and behind it leave: a few percent of the requests in flight, of which there are
# batches, move it by tenths of a batch while step and throughput are right. Off by more, it is a cap or a drop.
QUEUE = 0.5


def check(case: Case, earlier: Earlier) -> Reply:
    """fault: a predicted quantity is off by more than the back-test's limit. unknown: there was no back-test, for the
    window cannot be simulated or nobody asked, or nothing that it could compare."""
    back = case.backtest
    if back is None and case.unsimulated is not None:
        title, missing = "cannot be back-tested" + _why(case), "--scenario FILE"
        return Reply("model", "unknown", title, (case.unsimulated,), _instead(case), missing=missing)
    if back is None:
        then = "without --no-backtest:\nfleetsim replay ..."
        return Reply("model", "unknown", "not back-tested", (), then, missing="leave out --no-backtest")
    worst = back.worst
    if back.verdict == "unknown" or worst is None:
        missing = "the trainer's step (--map trainer.step_s=METRIC)"
        return Reply("model", "unknown", "nothing of what was observed is predicted", missing=missing)
    evidence = tuple(row_words(row) for row in sorted(back.overall, key=lambda row: -abs(row.error)))
    off_by = [row for row in back.overall if not row.within]
    if off_by and all(row.quantity == "queue" and abs(row.error) <= QUEUE for row in off_by):
        return Reply("model", "ok", "predicts this window but for its queue", evidence)
    if back.verdict == "ok":
        return Reply("model", "ok", f"predicts this window within {units.share(back.limit)}", evidence)
    missed = catalogued(worst.quantity).title
    off = tuple(row_words(row) for row in back.overall if not row.within)
    return Reply(
        "model", "fault", f"off by more than {units.share(back.limit)}: wrong somewhere", off,
        "\n".join(back.where) or "measure the engines' speed (fleetsim calibrate) and the sync pauses again",
        {}, f"the simulation of this window misses its {missed}, so what-ifs are not to be trusted",
    )  # fmt: skip


def _why(case: Case) -> str:
    return ": no engine metrics" if not case.observed.instances else ""


def _instead(case: Case) -> str | None:
    """Where engines could come from."""
    if case.observed.instances:
        return None
    return (
        "where engines are scraped:\n"
        "fleetsim replay --prometheus URL --selector 'job=\"rollout\"'\n"
        "or this log with what is known of the job:\n"
        "fleetsim replay ... --scenario job.yaml"
    )


def row_words(row: ComparedRow) -> str:
    """Observed, predicted and the error, with their units."""
    q = catalogued(row.quantity)

    def shown(x: float) -> str:
        return units.count(round(x)) if q.unit == "number" else units.written(x, q.unit)

    return f"{q.title}: observed {shown(row.observed)}, predicted {shown(row.predicted)} ({error_words(row)})"
