"""A window from end to end: observed, turned into a scenario, simulated again, judged.

What no job can do, so that what was read is not one: trained more than generated, a step that outlasts itself.
"""

from __future__ import annotations

from collections.abc import Callable, Collection
from functools import partial

from msgspec import Struct

from fleetsim import units
from fleetsim.config.load import default_scenario
from fleetsim.config.scenario import Scenario
from fleetsim.errors import FleetsimError, InputError, Problem
from fleetsim.faces import text
from fleetsim.history.history import History, Note
from fleetsim.history.option_names import SELECTOR, mapped
from fleetsim.records import replace
from fleetsim.replay.arrivals import sent_of, serves
from fleetsim.replay.backtest import Backtest, backtest, backtest_of_arrivals
from fleetsim.replay.diagnose.checks.case import Case, Gains
from fleetsim.replay.diagnose.checks.load import counts_groups
from fleetsim.replay.diagnose.cures import Cure, cures_of
from fleetsim.replay.diagnose.diagnosis import COSTS_OR_NOT, diagnose, remedies_of
from fleetsim.replay.diagnose.finding import Check, Verdict, job_usd_h, pools_of
from fleetsim.replay.diagnose.mending import enough_of, gains_of, rough, served_gains, tried_of, trusted
from fleetsim.replay.implied.implied_scenario import Implied, implied
from fleetsim.replay.observe.observe import observe
from fleetsim.replay.observe.observed import Observed
from fleetsim.replay.observe.rates import total

# Of the tokens trained: a queue that is worked off, and scrapes at different times, explain less than this.
MISSING = 0.2
# Steps below which a queue that is worked off may be all that was trained.
FEWEST_STEPS = 10
# Of a step: phases are counted at its ends, and a window cuts two steps.
OVER = 0.1


def possible(observed: Observed, history: History) -> Observed:
    """The window as it is, or without the tokens per trained token where the trainer counts prompts as well, and a note
    of that. Raises InputError for what no job can do."""
    t, ratio = observed.trainer, observed.queue.generated_per_trained
    problems = []
    if t.steps is None or t.steps.value < FEWEST_STEPS or observed.fleet is None:
        return observed
    phases = sum(q.value for q in (t.wait_s, t.train_s, t.sync_s) if q is not None and q.source == "exported")
    if t.step_s is not None and t.step_s.source == "exported" and phases > (1.0 + OVER) * t.step_s.value:
        said = f"{units.share(phases / t.step_s.value)} of a step"
        rule = "waiting, computing and sync together outlast the step: seconds of two trainers, or phases that overlap"
        remedy = text(
            "choose one trainer with {}, or map phases that follow one another ({})",
            SELECTOR,
            mapped("trainer.wait_s", "..."),
        )
        problems.append(Problem("trainer", said, rule, remedy))
    if ratio is not None and ratio < 1.0 - MISSING:
        prompts = (total(history, "prompt_tokens") or 0.0) / max(total(history, "generation_tokens") or 0.0, 1.0)
        if not problems and ratio * (1.0 + prompts) >= 1.0 - MISSING:
            said = (
                f"{ratio:.2f} output tokens are generated per token trained, and {prompts:.2f} prompt tokens per "
                "output token read: the trainer counts prompts as well, so its tokens are not compared with the "
                "engines'"
            )
            return replace(observed.without_trained_tokens(), notes=(*observed.notes, Note("other", said)))
        rule = (
            "no trainer trains on more than is generated: engines of this job are missing, or the trainer is another "
            "job's"
        )
        remedy = text("widen or mend {}, so that it matches all engines of the job and its own trainer", SELECTOR)
        problems.append(Problem("history", f"{ratio:.2f} tokens generated per token trained", rule, remedy))
    if problems:
        raise InputError(problems)
    return observed


# `diagnose` of the window, with what simulations say of its causes.
Judge = Callable[..., Verdict]
NO_ENGINES = (
    "no engine metrics: how many instances there are, their output tokens, their requests in flight and the response "
    "lengths are not known"
)


class Replayed(Struct, frozen=True):
    """What became of a window.

    cures: what is wrong, the largest first. priced: what the sizes of the findings rest on that nobody gave. implied,
    backtest: None where the window does not say enough to simulate it (`unsimulated` says what is missing), backtest
    also where none was asked for.
    """

    observed: Observed
    verdict: Verdict
    cures: tuple[Cure, ...]
    priced: tuple[str, ...]
    implied: Implied | None
    backtest: Backtest | None
    unsimulated: str | None


def replay(
    history: History,
    base: Scenario | None = None,
    *,
    given: Collection[str] = (),
    facts: Collection[str] = (),
    from_file: bool = True,
    model: bool = True,
    back_test: bool = True,
    progress: Callable[[str], None] = lambda text: None,
) -> Replayed:
    """Observes, simulates and judges a window.

    base: the user's scenario; None = nothing is known but the window. given: dotted paths of it that somebody gave.
    facts: of these, what was set one by one: it wins over the window, as the rest of `base` does not. from_file: False
    where `base` holds nothing but defaults and facts. model: find the scenario that the window implies, for what-ifs.
    back_test: simulate it. progress is told what is being done. Raises InputError for a window without any value, or
    one that no job can show.
    """
    progress("observing")
    observed = possible(observe(history, base), history)
    start = base if base is not None else default_scenario()
    found: Implied | None = None
    back: Backtest | None = None
    sent = sent_of(history, observed) if back_test and serves(observed) else None
    missing: str | None = None
    from_file = base is not None and from_file
    if observed.fleet is None and not from_file and "fleet.instances" not in facts:
        missing = NO_ENGINES  # whatever fleet stood in for it would be judged, not the job
    try:
        if missing is None and (model or back_test):
            progress("fitting the engine's speed")
            written = frozenset(given) - frozenset(facts) or None
            found = implied(observed, history, start, given=frozenset(facts), from_file=from_file, written=written)
        if found is not None and back_test:
            told = lambda done, of: progress(f"back-test: {done} of {of} replications")  # noqa: E731
            back = backtest_of_arrivals(observed, found, sent, progress=told) if sent is not None else None
            back = back or backtest(observed, found, progress=told)
    except FleetsimError as error:  # the observation stands without a simulation
        missing = str(error)
    judge = partial(diagnose, observed, start, back, given=given)
    verdict = judge(unsimulated=missing, weighed=back_test or missing is not None)
    if found is not None and sent is not None:
        if verdict.faults and trusted(back):
            progress("sending the requests again without each fault")
            verdict = judge(gains=served_gains(found, sent, verdict.faults))
    elif found is not None and rough(back):
        case = Case(observed, start, frozenset(given), back)
        verdict = _weighed(judge, case, found, verdict, progress)
    cures = cures_of(observed, verdict, job_usd_h(observed, start, given))
    return Replayed(observed, verdict, cures, pools_of(observed, start, given).assumed, found, back, missing)


def _weighed(judge: Judge, case: Case, found: Implied, verdict: Verdict, progress: Callable[[str], None]) -> Verdict:
    """The verdict again, with what the simulation says of its causes; of one that is only roughly right, which of two
    causes is the larger. case: without them."""
    faults, starved = verdict.faults, verdict.starves == "trainer"
    symptom: list[Check] = ["rollout"] if starved and "preemptions" in faults else []
    if counts_groups(case.scenario, case.given) and starved and "in_flight_cap" not in faults:
        symptom.append("in_flight_cap")
    if not trusted(case.backtest):
        asked = [check for check in faults if check in (*COSTS_OR_NOT, "stragglers")]
        if not asked or not starved:
            return verdict
        progress("simulating without each of its causes")
        return judge(ranked=gains_of(found, [*asked, "rollout"], tried_of(found), sure=False))
    gains = Gains()
    if faults:
        progress("simulating without each fault")
        gains = gains_of(found, [*faults, *symptom], tried_of(found))
        verdict = judge(gains=gains)
        remedies = remedies_of(replace(case, gains=gains, ranked=gains))
        if remedies:
            verdict = judge(gains=gains, tried=gains_of(found, remedies, remedies))
    if set(verdict.faults) - {"model"} or verdict.starves != "neither" or case.colocated:
        return verdict  # the fleet is sized last: what is mended first changes what it has to do
    progress("simulating half of the fleet")
    return judge(gains=gains, enough=enough_of(found))
