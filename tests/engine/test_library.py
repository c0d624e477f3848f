"""The library against a kernel that this process compiled."""

from __future__ import annotations

import pytest
from hypothesis import given, settings

from fleetsim.config.scenario import Scenario
from fleetsim.engine import compiled, native
from fleetsim.errors import StuckError
from fleetsim.sim import fleet
from fleetsim.sim.run import simulate
from tests.sim.random_scenarios import scenarios


@pytest.mark.skipif(not compiled.is_fresh(), reason="compares with a kernel that this process compiled: .ci/run")
@settings(max_examples=30)
@given(scenario=scenarios())
def test_the_library_computes_what_numba_computes_to_the_last_bit(scenario: Scenario) -> None:
    """The library is for any x86-64, and made by this release of numba; what runs here is for this processor, and made
    by another release."""
    with pytest.MonkeyPatch.context() as patch:
        patch.delenv("FLEETSIM_KERNEL")
        library = native.from_library(str(compiled.library()))
        here = tables(scenario)
        patch.setattr(fleet, "advance", lambda *given: int(library["fleetsim_advance"](*given)))
        patch.setattr(fleet, "command", lambda *given: library["fleetsim_command"](*given))
        assert tables(scenario) == here


def tables(scenario: Scenario) -> dict[str, bytes] | str:
    """All that a run leaves behind, or why it cannot go on."""
    try:
        return {name: table.tobytes() for name, table in simulate(scenario).tables().items()}
    except StuckError as error:
        return str(error)
