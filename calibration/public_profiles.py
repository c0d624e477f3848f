"""Profiles of engines that others measured: those of public/points.yaml with enough loads of one engine.

    python calibration/public_profiles.py            write profiles/*.json
    python calibration/public_profiles.py --check    exit 1 if a profile would change

A profile is the roofline, as many times as slow as the published runs of this engine are in the (geometric) mean. Its
error is that of each run, predicted from the others. `fleetsim profile ls` lists them, `--profile NAME` takes one.
"""

from __future__ import annotations

import argparse
import re
import sys
from collections import defaultdict
from collections.abc import Sequence
from pathlib import Path
from typing import Any

import numpy as np
import yaml
from points import POINTS, Point, Run, read_points, ready

from fleetsim.calibrate.derivation import estimate_profile
from fleetsim.config.engine_profile import Profile, profile_text
from fleetsim.engine.operators.curves import shipped_curves

FOLDER = Path(__file__).resolve().parent / "profiles"
# Fewer loads say little of how far the next one is off.
FEWEST = 6


def engine_of(point: Point) -> tuple[Any, ...]:
    """What runs of one engine have in common."""
    return point.gpu, point.model, point.dtype, point.kv_dtype, point.tp, point.engine, point.version, point.source


def profiles() -> dict[str, str]:
    """Name and text of each profile."""
    # Ranks that share experts and drafted tokens are no part of a profile; a held request is the launch script's.
    runs, _ = ready([p for p in read_points() if p.dp == 1 and not p.mtp and not p.held])
    groups: defaultdict[tuple[Any, ...], list[Run]] = defaultdict(list)
    for run in runs:
        groups[engine_of(run.point)].append(run)
    date = str(yaml.safe_load(POINTS.read_text(encoding="utf-8").partition("\nsources:")[0])["read_on"])
    made = [profile_of(found, date) for found in groups.values() if len(found) >= FEWEST]
    return {profile.name: profile_text(profile) for profile in sorted(made, key=lambda p: p.name)}


def profile_of(runs: Sequence[Run], date: str) -> Profile:
    """The profile of an engine, from all its published loads."""
    p = runs[0].point
    off = np.log([run.predict(shipped_curves()).time for run in runs])  # predicted over measured
    others = (off.sum() - off) / (len(off) - 1)
    errors = np.abs(np.expm1(off - others))
    model = p.model.rpartition("/")[2]
    dtype = () if model.lower().endswith(p.dtype) else (p.dtype,)
    words = (p.gpu, model, *dtype, f"tp{p.tp}", p.engine, p.version or "unknown release")
    factor = float(np.exp(-off.mean()))
    plain = estimate_profile(
        p.gpu, p.model, p.tp, p.dtype, engine=p.engine, kv_dtype=p.kv_dtype, slower=factor,
        name=re.sub(r"[^a-z0-9.]+", "-", "-".join(words).lower()),
    )  # fmt: skip
    error = plain.error.model_copy(
        update={
            "median": round(float(np.median(errors)), 4),
            "p90": round(float(np.quantile(errors, 0.9)), 4),
            "worst": round(float(errors.max()), 4),
            "what": f"of {len(runs)} published loads, each predicted from the others (the engines' model saw all); "
            f"here {factor:.3f} times as slow as that model",
        }
    )
    provenance = plain.provenance.model_copy(
        update={"source": f"published runs ({p.source})", "engine_version": p.version, "date": date}
    )
    return plain.model_copy(update={"error": error, "provenance": provenance})


def main() -> None:
    """Writes the profiles, or holds them against what they would be today."""
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--check", action="store_true")
    made = profiles()
    if parser.parse_args().check:
        there = {path.stem: path.read_text(encoding="utf-8") for path in FOLDER.glob("*.json")}
        sys.exit(0 if there == made else "profiles would change: python calibration/public_profiles.py")
    FOLDER.mkdir(exist_ok=True)
    for old in FOLDER.glob("*.json"):
        old.unlink()
    for name, text in made.items():
        (FOLDER / f"{name}.json").write_text(text, encoding="utf-8")
    print(f"{len(made)} profiles in {FOLDER.name}/")


if __name__ == "__main__":
    main()
