"""What a command starts from: a scenario file, a shipped scenario, or the preset of a framework."""

from __future__ import annotations

from fleetsim.config.shipped import find_preset
from fleetsim.errors import InputError, Problem


def scenario_or_preset(scenario: str | None, preset: str | None, flag: str = "SCENARIO") -> str | None:
    """The scenario argument that a command goes on with; None where neither was given.

    flag: how the command calls its scenario. Raises InputError for both at once, or an unknown preset.
    """
    if preset is None:
        return scenario
    if scenario is not None:
        raise InputError(
            [Problem("--preset", preset, f"{flag} {scenario} is given as well", "give one; --set changes its values")]
        )
    return str(find_preset(preset))
