"""Every setting that `scenario to` writes is one that the framework's own code declares (docs/make_config_keys.py)."""

from __future__ import annotations

from fnmatch import fnmatchcase
from pathlib import Path
from typing import Any

import pytest

from fleetsim.config import Scenario, load_scenario
from fleetsim.config.data_files import shipped_scenarios
from fleetsim.config.load import with_changes
from fleetsim.frameworks.convert import FRAMEWORKS
from fleetsim.frameworks.export import scenario_to
from fleetsim.job.nameplate import limits_of

KEYS = Path(__file__).parent / "config_keys"
PRESETS = [name for name in shipped_scenarios() if name.startswith("presets/")]
CHANGES: tuple[dict[str, Any], ...] = (
    {},
    {"engine.pp": 2, "engine.enforce_eager": True, "engine.dtype": "fp8", "workload.filter.zero_variance_share": 0.2},
    {"trainer.recipe.backend": "megatron", "trainer.recipe.tp": 2, "trainer.recipe.pp": 2, "trainer.recipe.cp": 2,
     "trainer.recipe.ep": 2, "trainer.recipe.offload": "adam", "trainer.recipe.reference": True,
     "trainer.recipe.optimizer_steps": 2, "trainer.recipe.epochs": 2},
    {"trainer.recipe.backend": "fsdp", "trainer.recipe.tp": 2, "trainer.recipe.cp": 2,
     "trainer.recipe.offload": "states", "trainer.recipe.recompute": False, "trainer.recipe.critic": True},
    {"engine.speculation.method": "draft_model", "engine.speculation.draft_model": "Qwen/Qwen2.5-0.5B",
     "engine.speculation.acceptance": 0.5, "engine.speculation.off_above_batch": 32},
    {"engine.speculation.method": "mtp", "engine.speculation.acceptance": 0.5},
)  # fmt: skip


def scenarios(framework: str) -> list[Scenario]:
    of = {"ms-swift": "trl-grpo", "rlinf": "trl-grpo", "tinker": "trl-"}.get(framework, framework)
    own = [load_scenario(p) for p in PRESETS if p.removeprefix("presets/").startswith(of)]
    return [with_changes(scenario, changes) for scenario in own for changes in CHANGES]


@pytest.mark.parts
@pytest.mark.parametrize("framework", FRAMEWORKS)
def test_every_setting_is_the_frameworks_own(framework: str) -> None:
    known = [k for k in (KEYS / f"{framework}.tsv").read_text(encoding="utf-8").splitlines() if k[:1] != "#"]
    exact, patterns = set(known), [key for key in known if "*" in key]
    written = {key.lstrip("+") for s in scenarios(framework) for key in scenario_to(framework, s, limits_of).settings}
    unknown = {key for key in written - exact if not any(fnmatchcase(key, pattern) for pattern in patterns)}
    assert unknown == set()
    assert len(written) > (5 if framework == "tinker" else 12)  # a service has no engines to be told of
