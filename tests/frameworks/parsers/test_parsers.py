"""A framework's own parser takes what `scenario to` writes, and what it then has is the scenario."""

from __future__ import annotations

from pathlib import Path
from typing import Any

import pytest

from fleetsim.config import Scenario, load_scenario
from fleetsim.frameworks.convert import FRAMEWORKS, scenario_from
from fleetsim.frameworks.export import Exported
from fleetsim.frameworks.settings import settings_of
from tests.frameworks.parsers.conftest import Parse, commands
from tests.frameworks.test_to import PRESETS, differing, written

OWN = ("verl", "openrlhf", "trl", "areal", "skyrl")


def parsed(made: Exported, ask: Parse, folder: Path) -> dict[str, Any]:
    """All settings that the framework then has, by key, and the programs that are started."""
    script = FRAMEWORKS[made.framework].form not in ("yaml", "toml")
    started = commands(made.text, folder) if script else [[]]
    found: dict[str, Any] = {}
    for words in started:
        answer = ask(made.framework, words, made.text)
        assert "error" not in answer, f"{answer['error']}\n{made.text}"
        found |= answer["settings"]
    return found


def taken_whole(made: Exported, scenario: Scenario, ask: Parse, folder: Path) -> None:
    """The framework takes it, has every setting as it was written, and all its settings together say the scenario."""
    found = parsed(made, ask, folder)
    for key, value in made.settings.items():
        has = found[key.lstrip("+")] if "${" not in str(value) else value
        assert has == value, key
    resolved = settings_of(found.items(), made.framework)
    start = next(mode.start for mode in FRAMEWORKS[made.framework].modes if mode.name == made.mode)
    resolved.programs += start.split()
    again = scenario_from(made.framework, resolved, speed=lambda model, gpu, gpus: (1e-6, 1e-6)).scenario
    assert differing(again, scenario, {left.path for left in made.left_out}) == {}, made.text


@pytest.mark.parametrize("framework", OWN)
def test_presets_are_taken(framework: str, own_parser: Parse, tmp_path: Path) -> None:
    """Its own, and some of the others: what they cannot be told is listed, and the rest is a configuration."""
    for name in [p for p in PRESETS if p.startswith(f"presets/{framework}")] + PRESETS[::7]:
        scenario = load_scenario(name)
        taken_whole(written(framework, scenario), scenario, own_parser, tmp_path)
