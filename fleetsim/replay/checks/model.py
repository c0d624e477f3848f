"""Does the simulation of this window come out as the window did? If not, the model is wrong somewhere."""

from __future__ import annotations

from collections.abc import Mapping

from fleetsim.replay.checks.case import Case, Draft, Earlier

_SHOWN = 4
_WHERE: Mapping[str, str] = {
    "tok_s": "the engines' speed or load: re-measure it (fleetsim calibrate --url URL), then give --profile",
    "instance_tok_s": "the engines' speed: re-measure it (fleetsim calibrate --url URL), then give --profile",
    "step_s": "the trainer's seconds or the sync: give --given trainer.fixed_s=S and --given sync.pause_s=S as measured",
    "idle_fraction": "the admission law or the caps: give --scenario with the client's own settings",
    "queue": "the admission law or the queue's cap: give --scenario with the client's own settings",
}
_ELSEWHERE = "measure engine speed (fleetsim calibrate) and sync pauses again before adding instances"


def check(case: Case, earlier: Earlier) -> Draft:
    """fault: a predicted quantity is off by more than the back-test's limit. unknown: there was no back-test."""
    back = case.backtest
    if back is None:
        return Draft("model", "unknown", "not back-tested")
    rows = sorted((r for r in back.overall if r.error is not None), key=lambda r: -abs(r.error or 0.0))
    if not rows:
        return Draft("model", "unknown", "nothing of what was observed is predicted")
    evidence = tuple(
        f"{r.quantity}: observed {r.observed:,.4g}, predicted {r.predicted:,.4g} ({100 * (r.error or 0.0):+.1f} %)"
        for r in rows[:_SHOWN]
    )
    worst = rows[0]
    if back.verdict != "wrong":
        return Draft("model", "ok", f"predicts this window to {abs(worst.error or 0.0):.1%}", evidence)
    return Draft(
        "model", "fault", "wrong somewhere: what-ifs rest on it", evidence, _WHERE.get(worst.quantity, _ELSEWHERE),
        {}, "the model does not reproduce this window",
    )  # fmt: skip
