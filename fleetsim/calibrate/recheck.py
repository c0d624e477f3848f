"""The batches that were kept out of a profile's fit, predicted once more, and where their measurements lie."""

from __future__ import annotations

import os
from pathlib import Path

from fleetsim.config.profile import BatchCheck, Profile
from fleetsim.errors import InputError, Problem


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
    from fleetsim.calibrate.check import check_batches
    from fleetsim.calibrate.facts import facts_of
    from fleetsim.calibrate.raw import read_raw
    from fleetsim.sim.engines import step_time_of

    raw = read_raw(raw_file)
    facts = facts_of(raw)
    overhead_s = profile.fit.overhead_s if profile.fit is not None else 0.0
    checks = check_batches(raw, facts, step_time_of(profile), overhead_s=overhead_s)
    if not checks:
        remedy = "measure with fleetsim calibrate: its RL-like batches stay out of the fit"
        raise InputError([Problem("--raw", str(raw_file), "holds no batch that was kept out of the fit", remedy)])
    p = profile.provenance
    notes = [
        f"{what} of the measurements is {there or 'not known'}, of the profile {mine}"
        for what, there, mine in (
            ("the GPU", facts.gpu, p.gpu),
            ("the model", facts.model, p.model),
            ("the engine", f"{facts.engine} {facts.version}".strip(), f"{p.engine} {p.engine_version}".strip()),
            ("the tensor-parallel size", str(facts.tp), str(p.tp or "")),
        )
        if mine and there != mine
    ]
    return checks, tuple(notes)
