"""The profiles that a user can name: which there are, whether they hold, what `--json` prints of them."""

from __future__ import annotations

import os
from collections.abc import Sequence
from pathlib import Path
from typing import TYPE_CHECKING, Any

from msgspec import Struct

from fleetsim.calibrate.points import rows_of
from fleetsim.config.engine_profile import BatchCheck, Profile, load_profile, shipped_profiles
from fleetsim.errors import InputError, Problem
from fleetsim.records import as_dict
from fleetsim.tell.data import versions

if TYPE_CHECKING:
    from fleetsim.calibrate.one_load import ClientView


class ListedProfile(Struct, frozen=True):
    """A profile as `profile ls` lists it. give: what --profile takes for it."""

    give: str
    profile: Profile


def known_profiles() -> tuple[list[ListedProfile], list[tuple[str, str]]]:
    """The shipped ones, then those of this folder (*.profile.json); name and problem of each that cannot be used."""
    here = {str(path): path for path in sorted(Path().glob("*.profile.json"))}
    listed: list[ListedProfile] = []
    wrong: list[tuple[str, str]] = []
    for give, path in {**shipped_profiles(), **here}.items():
        try:
            listed.append(ListedProfile(give, load_profile(path)))
        except InputError as error:
            wrong += [(give, str(problem)) for problem in error.problems]
    return listed, wrong


# Stored numbers are rounded; a simulator that changed moves them by more than this (a thousandth of a percent).
_SAME = 1e-5


class Rechecked(Struct, frozen=True):
    """A kept-out batch, predicted anew. stored: what the profile says of it, None where it does not know it."""

    now: BatchCheck
    stored: BatchCheck | None
    passed: bool


class Drift(Struct, frozen=True):
    """How far today's errors are from the stored ones, at most: of makespans, of finish times' medians."""

    makespan: float
    finish: float

    @property
    def changed(self) -> bool:
        """Whether the simulator predicts something else than when the profile was written."""
        return max(self.makespan, self.finish) > _SAME


def compared(now: Sequence[BatchCheck], stored: Sequence[BatchCheck], limit: float) -> tuple[Rechecked, ...]:
    """Each batch beside what is stored of it (by name and size); it passes if both of its errors are within `limit`."""
    known = {(c.name, c.samples): c for c in stored}
    errors = [max(abs(c.makespan_error), c.finish_error_median) for c in now]
    return tuple(Rechecked(c, known.get((c.name, c.samples)), e <= limit) for c, e in zip(now, errors, strict=True))


def drift_of(checked: Sequence[Rechecked]) -> Drift | None:
    """How far apart stored and new errors are; None where there is nothing to compare."""
    off = [
        (abs(one.now.makespan_error - old.makespan_error), abs(one.now.finish_error_median - old.finish_error_median))
        for one in checked
        if (old := one.stored) is not None
    ]
    return Drift(*map(max, zip(*off, strict=True))) if off else None


def raw_file(profile: Profile, place: Path, given: str | None) -> Path:
    """The raw measurements of a profile. place: its file. Raises InputError where there are none."""
    if given is not None:
        if not os.path.isfile(given):
            raise InputError([Problem("--raw", given, "no such file", "give the .raw.jsonl.gz of the calibration")])
        return Path(given)
    if profile.raw is None:
        what = "was derived, nothing was measured for it" if profile.kind == "derived" else "names no raw measurements"
        raise InputError([Problem("profile", profile.name, what, "give the measurements to check it on: --raw FILE")])
    # Shipped profiles keep theirs in a folder of their own.
    for folder in (place.parent, place.parent.parent / "raw"):
        if os.path.isfile(folder / profile.raw):
            return folder / profile.raw
    remedy = "say where it is: --raw FILE (of shipped profiles: calibration/raw/ in fleetsim's repository)"
    raise InputError([Problem("profile.raw", profile.raw, f"is not beside {place}", remedy)])


def predicted_anew(profile: Profile, raw_file: Path) -> tuple[tuple[BatchCheck, ...], tuple[str, ...]]:
    """The kept-out batches of the raw measurements as the profile predicts them today, and what is odd about them.

    Raises InputError for measurements that cannot be read or hold no such batch.
    """
    from fleetsim.calibrate.build import check_batches
    from fleetsim.calibrate.engine_facts import facts_of
    from fleetsim.calibrate.raw import read_raw
    from fleetsim.sim.engines import step_time_of

    raw = read_raw(raw_file)
    facts = facts_of(raw)
    overhead_s = profile.fit.overhead_s if profile.fit is not None else 0.0
    checks = check_batches(raw, facts, step_time_of(profile), overhead_s=overhead_s)
    if not checks:
        remedy = "measure with fleetsim calibrate: its RL-like batches stay out of the fit"
        raise InputError([Problem("--raw", str(raw_file), "holds no batch that was kept out of the fit", remedy)])
    there, mine = (
        {"GPU": p.gpu, "model": p.model, "engine": f"{p.engine} {p.engine_version}".strip(),
         "tensor-parallel size": str(p.tp or "")}
        for p in (facts.provenance, profile.provenance)
    )  # fmt: skip
    odd = [what for what, said in mine.items() if said and there[what] != said]
    of = "the {} of the measurements is {}, of the profile {}"
    return checks, tuple(of.format(what, there[what] or "not known", mine[what]) for what in odd)


# --- What `--json` prints of profiles.


def listed_data(listed: Sequence[ListedProfile], wrong: Sequence[tuple[str, str]]) -> dict[str, Any]:
    """The document of `fleetsim profile ls`."""
    said = ("gpu", "model", "tp", "engine", "engine_version", "date")
    profiles = [
        {
            "profile": one.give,
            "name": one.profile.name,
            "kind": one.profile.kind,
            **{name: getattr(one.profile.provenance, name) for name in said},
            "error": one.profile.error.model_dump(mode="json"),
        }
        for one in listed
    ]
    unreadable = [{"profile": give, "problem": problem} for give, problem in wrong]
    return {"schema_version": 1, "command": "profile ls", "profiles": profiles, "unreadable": unreadable}


def profile_data(profile: Profile, command: str, seen: Sequence[ClientView] = ()) -> dict[str, Any]:
    """The document of `fleetsim profile show` and `estimate`: the profile, and what it predicts for each of its points.

    seen: what clients would see, where that was asked.
    """
    predictions = [
        {
            **row.point.model_dump(mode="json"),
            "predicted_s": row.predicted_s,
            "error": row.error,
            "context_tokens": row.context,
            "tok_s": row.tok_s,
        }
        for kind in ("decode", "prefill", "mixed")
        for row in rows_of(profile, kind)
    ]
    shown = {"profile": profile.model_dump(mode="json"), "predictions": predictions}
    return {**versions(command), **shown, **({"clients": [as_dict(s) for s in seen]} if seen else {})}


def checked_data(profile: Profile, checked: Sequence[Rechecked], limit: float) -> dict[str, Any]:
    """The document of `fleetsim profile check`."""
    drift = drift_of(checked)
    return {
        **versions("profile check"),
        "profile": profile.name,
        "limit": limit,
        "passed": all(one.passed for one in checked),
        "batches": [
            {"passed": one.passed, "now": one.now.model_dump(), "stored": one.stored and one.stored.model_dump()}
            for one in checked
        ],
        "drift": None if drift is None else {**as_dict(drift), "changed": drift.changed},
    }
