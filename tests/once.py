"""Long simulations that several tests look at are run once, whichever workers those tests fall to; and what one test
simulates again and again."""

from __future__ import annotations

import fcntl
import hashlib
import inspect
import os
import pickle
import sys
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from pathlib import Path
from typing import Any, TypeVar

from fleetsim.alerts import rehearsal
from fleetsim.alerts.rehearsal import Rehearsal
from fleetsim.config.scenario import Scenario
from fleetsim.sim import run
from fleetsim.sim.records import Records

# Names the folder of one run of the tests, which tests/conftest.py makes before it starts workers, and removes.
FOLDER = "FLEETSIM_TESTS_ONCE"
# Read now, for a test may take every variable of ours away. None outside a run of tests: nothing is shared then.
SHARED = os.environ.get(FOLDER)
Made = TypeVar("Made")
_rehearse, _simulate = rehearsal.rehearse, run.simulate
_known: dict[object, Records] = {}


def once(key: object, make: Callable[[], Made]) -> Made:
    """What `make` returns, made by the first worker that asks for it; the others wait for it. key: all that it depends
    on but the source, as something whose repr says it."""
    if SHARED is None:
        return make()
    place = Path(SHARED, hashlib.sha256(repr(key).encode()).hexdigest())
    with place.with_suffix(".lock").open("w") as lock:
        fcntl.flock(lock, fcntl.LOCK_EX)
        if not place.exists():
            place.write_bytes(pickle.dumps(make()))
    made: Made = pickle.loads(place.read_bytes())
    return made


def rehearse_once(scenario: Scenario, *given: Any, **options: Any) -> Rehearsal:
    """`rehearse`, whose result depends on nothing but the plan, the options and the windows that are tried."""
    asked = inspect.signature(_rehearse).bind(scenario, *given, **options)
    asked.apply_defaults()
    others = {name: value for name, value in asked.arguments.items() if name not in ("scenario", "tell")}
    return once(
        (scenario.model_dump_json(), others, rehearsal.MULTIPLES), lambda: _rehearse(*asked.args, **asked.kwargs)
    )


@contextmanager
def simulated_once() -> Iterator[None]:
    """Here a scenario that was simulated is not simulated again: for calls that tell the same runs in other forms.
    Nobody is told of the steps of a run that is remembered. `forget` is for a test of two runs being the same."""

    def recall(scenario: Scenario, **options: Any) -> Records:
        if options.get("engine") is not None:
            return _simulate(scenario, **options)
        key = (scenario, *sorted((name, value) for name, value in options.items() if name != "on_step"))
        found = _known.get(key)
        if found is None:
            found = _known[key] = _simulate(scenario, **options)
        return found

    _put(_simulate, recall)
    try:
        yield
    finally:
        _put(recall, _simulate)  # also in what was imported meanwhile
        forget()


def forget() -> None:
    """What `simulated_once` remembers."""
    _known.clear()


def _put(old: object, new: object) -> None:
    """In the place of a function another, wherever it was imported."""
    for name, module in list(sys.modules.items()):
        if name.startswith(("fleetsim.", "tests.")) and getattr(module, "simulate", None) is old:
            vars(module)["simulate"] = new
