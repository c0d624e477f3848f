"""What the account of a run log says to each question that its levers answer: no threshold of one check decides it."""

from __future__ import annotations

from collections.abc import Mapping

from fleetsim.replay.diagnose.checks.case import Case, Reply, idle_words
from fleetsim.replay.diagnose.checks.fleet import changed
from fleetsim.replay.diagnose.cost import Claims
from fleetsim.replay.diagnose.cures import cure_of
from fleetsim.replay.diagnose.finding import Check
from fleetsim.replay.diagnose.levers import StepLever, levers_of
from fleetsim.replay.observe.phases import plain

ANSWERS: Mapping[Check, tuple[str, ...]] = {
    "trainer": (
        *("trainer slow", "reference log-probs slow", "log-probs slow", "experience slow", "reward slow"),
        *("evaluation", "checkpoints", "unexplained time", "ready samples fetched slowly"),
    ),
    "sync": ("weight sync slow", "hand-over slow"),
    "stragglers": ("straggler",),
    "in_flight_cap": ("in-flight cap",),
    "preemptions": ("KV preemption",),
    "rollout": ("rollout slow", "long tail", "judge or tool slow", "stale samples dropped", "staleness window"),
}
"""Check -> the causes of levers that are faults of it."""
# Check -> columns of the log that must be there to rule it out, and what of the engines would tell else.
_RULED_OUT: Mapping[Check, tuple[tuple[str, ...], str]] = {
    "trainer": (("train_s",), "--map trainer.train_s=METRIC"),
    "sync": (("sync_s",), "--map trainer.sync_s=METRIC"),
    "stragglers": (("sample_s_max", "group_s_max"), "vllm:generation_tokens_total"),
    "in_flight_cap": (("in_flight_cap_samples",), "vllm:num_requests_running"),
    "preemptions": (("preemptions",), "vllm:num_preemptions_total"),
    "rollout": (("wait_s", "trainer_idle", "generate_s"), "--map trainer.wait_s=METRIC"),
}


def answers(case: Case, check: Check) -> bool:
    """Whether the account decides this question."""
    return case.observed.logs_alone and check in ANSWERS


def accounted(case: Case, check: Check) -> Reply:
    """The largest lever that answers a question; else whether it is ruled out, or cannot be told."""
    account = case.observed.account
    assert account is not None  # `answers` has looked
    found = [lever for lever in levers_of(case.observed) if lever.cause in ANSWERS[check]]
    if found:
        return _fault(case, check, found)
    columns, metric = _RULED_OUT[check]
    seen = next((c for c in columns if c in account.present or account.phase(c) is not None), None)
    if seen is None and check not in ("trainer", "rollout") and case.starving is False and not case.colocated:
        return Reply("ok", "not seen, and the trainer does not wait for it", (idle_words(case),))
    if seen is None:
        then = f"one metric tells: {metric}"
        return Reply("unknown", "not in the log", (), then, missing=metric)
    said = account.phase(seen)
    evidence = () if said is None else (f"{plain(said.course.usual)} of a step are {said.name}",)
    return Reply("ok", "no seconds to be had", evidence)


def _fault(case: Case, check: Check, found: list[StepLever]) -> Reply:
    """The first of a check's levers as its finding; the others stand in its evidence."""
    first, step_s = found[0], max(1e-9, case.observed.trainer.step_s.value if case.observed.trainer.step_s else 1e-9)
    since = "" if first.since_step is None else f" since step {first.since_step}"
    range_words = f"{plain(first.low)} to {plain(first.high)}"
    evidence = (
        f"{plain(first.mean)} of a step{since} ({range_words}), in {first.phase}",
        first.why,
        *(changed(case) if check == "rollout" else ()),
        *(f"{lever.cause}: {plain(lever.mean)} of a step" for lever in found[1:]),
    )
    share = min(1.0, sum(lever.mean for lever in found) / step_s)
    told = dict(cure_of(first, case.observed).lines(step_s))
    then = "\n".join((*told["do"].split("; "), f"verify: {told['verify']}", f"undo: {told['undo']}"))
    return Reply("fault", first.cause, evidence, then, _claims(case, check, share), first.cause)


def _claims(case: Case, check: Check, share: float) -> Claims:
    """Of which slices of the pools' time a shorter step is."""
    if check in ("trainer", "sync"):
        return {"train" if check == "trainer" else "sync": share, "idle": share}
    return {"rest": share, "busy": share} if case.colocated else case.shorter(share)
