"""Long simulations that several tests look at are run once, whichever workers those tests fall to."""

from __future__ import annotations

import fcntl
import hashlib
import inspect
import os
import pickle
from collections.abc import Callable
from pathlib import Path
from typing import Any, TypeVar

from fleetsim.alerts import rehearsal
from fleetsim.alerts.rehearsal import Rehearsal
from fleetsim.config.scenario import Scenario

# Names the folder of one run of the tests, which tests/conftest.py makes before it starts workers, and removes.
FOLDER = "FLEETSIM_TESTS_ONCE"
# Read now, for a test may take every variable of ours away. None outside a run of tests: nothing is shared then.
SHARED = os.environ.get(FOLDER)
Made = TypeVar("Made")
_rehearse = rehearsal.rehearse


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
