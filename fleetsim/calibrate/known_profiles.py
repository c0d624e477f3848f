"""The profiles that a user can name: those that come with fleetsim, and those in the folder."""

from __future__ import annotations

from pathlib import Path

from fleetsim.config.engine_profile import Profile
from fleetsim.config.profile_files import load_profile, shipped_profiles
from fleetsim.dataclass import dataclass
from fleetsim.errors import InputError


@dataclass(frozen=True, slots=True)
class ListedProfile:
    """A profile as `profile ls` lists it. give: what --profile takes for it."""

    give: str
    profile: Profile


@dataclass(frozen=True, slots=True)
class Known:
    """wrong: name and problem of each that cannot be used."""

    listed: tuple[ListedProfile, ...]
    wrong: tuple[tuple[str, str], ...]


def known_profiles() -> Known:
    """The shipped ones, then those of this folder (*.profile.json)."""
    here = {str(path): path for path in sorted(Path().glob("*.profile.json"))}
    listed: list[ListedProfile] = []
    wrong: list[tuple[str, str]] = []
    for give, path in {**shipped_profiles(), **here}.items():
        try:
            listed.append(ListedProfile(give, load_profile(path)))
        except InputError as error:
            wrong += [(give, str(problem)) for problem in error.problems]
    return Known(tuple(listed), tuple(wrong))
