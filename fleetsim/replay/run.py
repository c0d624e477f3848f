"""A window from end to end: observed, turned into a scenario, simulated again, judged."""

from __future__ import annotations

from collections.abc import Callable, Collection
from dataclasses import dataclass

from fleetsim.config.load import default_scenario
from fleetsim.config.scenario import Scenario
from fleetsim.errors import FleetsimError
from fleetsim.history.history import History
from fleetsim.replay.backtest import Backtest, backtest
from fleetsim.replay.diagnose import diagnose
from fleetsim.replay.finding import Verdict
from fleetsim.replay.implied import Implied, implied
from fleetsim.replay.money import pools_of
from fleetsim.replay.observe import observe
from fleetsim.replay.observed import Observed
from fleetsim.replay.removals import gains_of, trusted


@dataclass(frozen=True, slots=True)
class Replayed:
    """What became of a window.

    priced: what the sizes of the findings rest on that nobody gave. implied, backtest: None where the window does not
    say enough to simulate it (`unsimulated` says what is missing), backtest also where none was asked for.
    """

    observed: Observed
    verdict: Verdict
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
    model: bool = True,
    back_test: bool = True,
    progress: Callable[[str], None] = lambda text: None,
) -> Replayed:
    """Observes, simulates and judges a window.

    base: the user's scenario; None = nothing is known but the window. given: dotted paths of it that somebody gave.
    facts: of these, what was set one by one: it wins over the window, as the rest of `base` does not. model: find the
    scenario that the window implies, for what-ifs. back_test: simulate it. progress is told what is being done.
    Raises InputError for a window without any value.
    """
    progress("observing")
    observed = observe(history, base)
    start = base if base is not None else default_scenario()
    found: Implied | None = None
    back: Backtest | None = None
    missing: str | None = None
    from_file = base is not None and bool(set(given) - set(facts))
    try:
        if model or back_test:
            progress("fitting the engine's speed")
            found = implied(observed, history, start, given=frozenset(facts), from_file=from_file)
        if found is not None and back_test:
            back = backtest(
                observed, found, progress=lambda done, of: progress(f"back-test: {done} of {of} replications")
            )
    except FleetsimError as error:  # the observation stands without a simulation
        missing = str(error)
    verdict = diagnose(observed, start, back, given=given)
    faults = [f.check for f in verdict.findings if f.state == "fault"]
    if found is not None and trusted(back) and faults:
        progress("simulating without each fault")
        verdict = diagnose(observed, start, back, given=given, gains=gains_of(found, faults))
    return Replayed(observed, verdict, pools_of(observed, start, given).assumed, found, back, missing)
