"""What `--json` prints of a calibration and of profiles."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import asdict
from typing import TYPE_CHECKING, Any

from fleetsim.calibrate.known_profiles import drift_of
from fleetsim.calibrate.points import rows_of
from fleetsim.tell.data import versions

if TYPE_CHECKING:
    from fleetsim.calibrate.known_profiles import ClientView, Known, Rechecked
    from fleetsim.calibrate.run import Calibrated
    from fleetsim.config.engine_profile import Profile


def calibrated_data(result: Calibrated) -> dict[str, Any]:
    """The document of `fleetsim calibrate`."""
    return {
        "schema_version": 1,
        "command": "calibrate",
        "path": None if result.path is None else str(result.path),
        "raw": None if result.raw is None else str(result.raw),
        "profile": None if result.profile is None else result.profile.model_dump(mode="json"),
        "warnings": list(result.warnings),
    }


def listed_data(known: Known) -> dict[str, Any]:
    """The document of `fleetsim profile ls`."""
    return {
        "schema_version": 1,
        "command": "profile ls",
        "profiles": [{"profile": one.give, **_summary(one.profile)} for one in known.listed],
        "unreadable": [{"profile": give, "problem": problem} for give, problem in known.wrong],
    }


def _summary(profile: Profile) -> dict[str, Any]:
    p = profile.provenance
    return {
        "name": profile.name,
        "kind": profile.kind,
        **{name: getattr(p, name) for name in ("gpu", "model", "tp", "engine", "engine_version", "date")},
        "error": profile.error.model_dump(mode="json"),
    }


def profile_data(profile: Profile, command: str, seen: Sequence[ClientView] = ()) -> dict[str, Any]:
    """The document of `fleetsim profile show` and `estimate`: the profile, and what it predicts for each of its points.

    seen: what clients would see, where that was asked.
    """
    rows = [row for kind in ("decode", "prefill", "mixed") for row in rows_of(profile, kind)]
    return {
        **versions(command),
        "profile": profile.model_dump(mode="json"),
        "predictions": [
            {
                **row.point.model_dump(mode="json"),
                "predicted_s": row.predicted_s,
                "error": row.error,
                "context_tokens": row.context,
                "tok_s": row.tok_s,
            }
            for row in rows
        ],
        **({"clients": [asdict(s) for s in seen]} if seen else {}),
    }


def checked_data(profile: Profile, checked: Sequence[Rechecked], limit: float) -> dict[str, Any]:
    """The document of `fleetsim profile check`."""
    drift = drift_of(checked)
    return {
        **versions("profile check"),
        "profile": profile.name,
        "limit": limit,
        "passed": all(one.passed for one in checked),
        "batches": [
            {
                "passed": one.passed,
                "now": one.now.model_dump(mode="json"),
                "stored": None if one.stored is None else one.stored.model_dump(mode="json"),
            }
            for one in checked
        ],
        "drift": None if drift is None else {**asdict(drift), "changed": drift.changed},
    }
