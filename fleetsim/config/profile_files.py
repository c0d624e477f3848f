"""Profile files: found by name or path, checked, sealed against edits by hand."""

from __future__ import annotations

import hashlib
import json
import os
from pathlib import Path

from pydantic import ValidationError

from fleetsim.config.data_files import data_folder, read_json
from fleetsim.config.engine_profile import SCHEMA_VERSION, Profile
from fleetsim.config.problems import of_another_kind, problems_of
from fleetsim.config.tree import did_you_mean, tree_of
from fleetsim.errors import InputError, Problem

MAX_BYTES = 64 * 2**20
_PROFILE = "give a profile, as fleetsim calibrate writes it"


def shipped_profiles() -> dict[str, Path]:
    """Names and paths of the profiles under calibration/profiles/ that come with fleetsim."""
    return {p.stem: p for p in sorted((data_folder("calibration") / "profiles").glob("*.json"))}


def load_profile(path_or_name: str | os.PathLike[str]) -> Profile:
    """The profile in a JSON file, or the shipped one of this name.

    Raises InputError with all problems: no such file or name, no JSON, unknown keys, wrong values.
    """
    path = find_profile(path_or_name)
    where = os.fspath(path)
    raw = read_json(path, "profile", MAX_BYTES, _PROFILE)
    if other := of_another_kind(raw, tree_of(Profile), ("profile", where), "a profile"):
        raise InputError(other)
    return profile_from_mapping(raw, where)


def find_profile(path_or_name: str | os.PathLike[str]) -> Path:
    """The file that a profile argument means: a path, or the name of a shipped profile. Raises InputError."""
    text = os.fspath(path_or_name)
    if "\0" not in text and text and os.path.lexists(text):
        return Path(text)
    shipped = shipped_profiles()
    if text in shipped:
        return shipped[text]
    hint = did_you_mean(text, shipped) if shipped else "give the path of a profile file"
    raise InputError([Problem("profile", text, "no such file, and no shipped profile of this name", hint)])


def profile_from_mapping(mapping: object, where: str = "profile") -> Profile:
    """The profile in a plain mapping. `where` names it in errors. Raises InputError with all problems."""
    if not isinstance(mapping, dict):
        raise InputError([Problem(where, mapping, "must be a JSON object", "see the shipped profiles")])
    version = mapping.get("schema_version", SCHEMA_VERSION)
    if isinstance(version, int) and not isinstance(version, bool) and version > SCHEMA_VERSION:
        rule = f"this fleetsim reads profiles up to schema_version {SCHEMA_VERSION}"
        remedy = "upgrade fleetsim, or fit again from the raw measurements with fleetsim calibrate --from RAW"
        raise InputError([Problem(f"{where}: schema_version", version, rule, remedy)])
    try:
        profile = Profile.model_validate(mapping)
    except ValidationError as error:
        raise InputError(problems_of(error, tree_of(Profile))) from None
    if profile.seal is not None and seal_of(profile) != profile.seal:
        rule = "the file was changed after it was written: its content does not match its seal"
        remedy = "fit again with fleetsim calibrate --from RAW, or remove the seal to own the change"
        raise InputError([Problem(f"{where}: seal", profile.seal, rule, remedy)])
    return profile


def seal_of(profile: Profile) -> str:
    """The hash of a profile's content without its seal: sha256 over its canonical JSON."""
    # A section that came later is part of the content only where it says something: older seals hold.
    later = {"speculation"} if profile.speculation is None else set()
    return sealed(profile.model_dump(mode="json", exclude={"seal"} | later))


def sealed(content: object) -> str:
    """sha256 over the canonical JSON of a file's content."""
    text = json.dumps(content, sort_keys=True, separators=(",", ":"), ensure_ascii=True)
    return f"sha256:{hashlib.sha256(text.encode()).hexdigest()}"


def profile_text(profile: Profile) -> str:
    """The profile as the text of its file, sealed. The same profile gives the same bytes."""
    whole = profile.model_copy(update={"seal": seal_of(profile)})
    return json.dumps(whole.model_dump(mode="json", exclude_none=True), indent=1, ensure_ascii=True) + "\n"
