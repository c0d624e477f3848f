"""What comes with fleetsim, by name: scenarios, presets and measured engines."""

from __future__ import annotations

import os
from typing import TYPE_CHECKING

from fleetsim.config.data_files import shipped_scenarios
from fleetsim.config.profile_files import load_profile, shipped_profiles

if TYPE_CHECKING:
    from fleetsim.config.engine_profile import Profile


def scenarios() -> tuple[str, ...]:
    """Names that `load` knows; those below `presets/` are of RL frameworks, and the last word is enough.

    >>> import fleetsim as fs
    >>> "presets/verl-fully-async" in fs.scenarios()
    True
    """
    return tuple(shipped_scenarios())


def profiles() -> tuple[str, ...]:
    """Names of the measured engines that come with fleetsim, for `load(profile=...)`."""
    return tuple(shipped_profiles())


def profile(path_or_name: str | os.PathLike[str]) -> Profile:
    """The profile of an engine: a file, or a shipped name. Raises InputError with all that is wrong."""
    return load_profile(path_or_name)
