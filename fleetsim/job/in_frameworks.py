"""A job and a framework's own configuration: one made of the other, as the command line and Python ask for it."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from typing import TYPE_CHECKING, Any

from fleetsim.config.load import with_changes
from fleetsim.errors import InputError, Problem
from fleetsim.job.nameplate import generated_mean, limits_of

if TYPE_CHECKING:
    from fleetsim.config.scenario import Scenario
    from fleetsim.frameworks.convert import Imported
    from fleetsim.frameworks.export import Exported
    from fleetsim.frameworks.patch import ConfigPatch


def imported(framework: str, config: Sequence[str], sets: Sequence[str]) -> Imported:
    """The job of a configuration. config: its file or launch script, then its own flags. sets: `key.path=value` on
    top. Raises InputError."""
    from fleetsim.frameworks.convert import framework_name, scenario_from
    from fleetsim.frameworks.source import settings_from
    from fleetsim.history.text import printed_config
    from fleetsim.trainer.estimate import token_seconds

    name = framework_name(framework)
    shown, settings = settings_from(config, printed_config)
    return scenario_from(name, settings, shown, sets, token_seconds)


def exported(framework: str, scenario: Scenario, name: str) -> Exported:
    """A scenario in a framework's words. name: what the scenario is called. Raises InputError."""
    from fleetsim.frameworks.export import scenario_to
    from fleetsim.job.derived_values import training_step_s

    means = generated_mean(scenario), training_step_s(scenario)
    return scenario_to(framework, scenario, limits_of, name, *means)


def patched(framework: str, scenario: Scenario, config: str) -> ConfigPatch:
    """What of a framework's own configuration must change to say a scenario. Raises InputError."""
    from fleetsim.frameworks.patch import patch_of

    return patch_of(framework, scenario, limits_of, config)


def changed_in(framework: str, config: str, changes: Mapping[str, Any], instances: int) -> ConfigPatch:
    """What of a framework's own configuration must change for changes of the job: dotted paths to values.

    What else it says stays, even where somebody measured something else. instances: of the fleet that was measured.
    Raises InputError, also for a configuration of another fleet.
    """
    found = imported(framework, [config], ())
    own, guessed = found.scenario, {one.path for one in found.assumed}
    if own.fleet.instances != instances and "fleet.instances" not in guessed:
        rule = f"has {own.fleet.instances} instances, and the fleet that was measured {instances}"
        raise InputError([Problem("--config", config, rule, "give the configuration of that run")])
    return patched(framework, with_changes(own, changes), config)
