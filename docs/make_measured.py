"""Measured engines, predicted: fits every raw measurement under calibration/raw anew and writes docs/measured.md.

python docs/make_measured.py            fit, check, print the tables, write the page
python docs/make_measured.py --check    the same without writing; exit 1 if the page would change
"""

from __future__ import annotations

import argparse
import sys
from collections.abc import Sequence
from pathlib import Path

from fleetsim.calibrate.build import build_profile, default_name
from fleetsim.calibrate.engine_facts import facts_of
from fleetsim.calibrate.points import rows_of
from fleetsim.calibrate.raw import read_raw
from fleetsim.config.engine_profile import Profile

ROOT = Path(__file__).resolve().parents[1]
PAGE = ROOT / "docs" / "measured.md"
RAW = ROOT / "calibration" / "raw"

INTRO = """\
# Measured engines

This page says how far off a measured profile is, on batches that its fit never saw. `python docs/make_measured.py`
writes it from the raw measurements under `calibration/raw`, which `fleetsim calibrate` recorded of real engines. The
step time is fitted to the sweeps; the batches below are simulated with it: limits as the engine said, lengths as they
were generated. [Measuring an engine](calibrate.md) says how.

Engines that others measured ship as profiles, each with source, date, release and error: `fleetsim profile ls` lists
them, `--profile NAME` takes one, `python calibration/public_profiles.py` makes them of published runs.
"""
NO_GPU = """\
**No GPU is among our own yet.** What a CPU takes says nothing about GPUs; it proves the recording, the fit, the
scheduler's semantics and the prefix cache against a real vLLM. `calibration/measure.sh` on a box with one GPU adds
Qwen2.5-1.5B, Qwen2.5-7B and Llama-3.1-8B. Until then `size` and `simulate` use the [roofline](accuracy.md) unless you
measure yours.
"""


def profiles() -> list[tuple[Path, Profile]]:
    """Every raw measurement and the profile that fits it, by file name."""
    found = []
    for path in sorted(RAW.glob("*.jsonl.gz")):
        raw = read_raw(path)
        found.append((path, build_profile(raw, name=default_name(facts_of(raw)), raw_file=path.name)))
    return found


def page(measured: Sequence[tuple[Path, Profile]]) -> str:
    """The whole page."""
    blocks = [INTRO]
    if not any(p.provenance.gpu for _, p in measured):
        blocks.append(NO_GPU)
    for path, profile in measured:
        blocks += [f"## {profile.name}\n", provenance(path, profile), batches(profile), decodes(profile)]
    return "\n".join(blocks)


def provenance(path: Path, profile: Profile) -> str:
    """What was measured, when, with what."""
    p = profile.provenance
    gpu = f"{p.gpu or 'CPU'} x {p.tp or 1}"
    fit = profile.fit
    assert fit is not None  # measured here
    lines = [
        f"{p.engine} {p.engine_version}, {p.model} ({p.dtype}) on {gpu}, {p.date[:10]}; raw measurements: "
        f"`{path.relative_to(ROOT)}`.",
        f"Fitted to {fit.observations:,} durations ({fit.left_out:,} outliers left out); each load predicted by a fit "
        f"without it: median {fit.median:.1%}, 90th percentile {fit.p90:.1%}.",
    ]
    if profile.prefix_cache is not None:
        c = profile.prefix_cache
        lines.append(
            f"Prompt tokens that groups of siblings found in the prefix cache: {c.hit_tokens:,}; the model expects "
            f"{c.expected_tokens:,}."
        )
    return "\n".join(lines) + "\n"


def batches(profile: Profile) -> str:
    """The batches kept out of the fit."""
    rows = [
        "| batch kept out | samples | tokens | measured s | predicted s | makespan | finish, median | finish, p90 "
        "| preemptions, predicted |",
        "| --- | ---: | ---: | ---: | ---: | ---: | ---: | ---: | ---: |",
    ]
    rows += [
        f"| {c.name} | {c.samples} | {c.output_tokens:,} | {c.makespan_s:.2f} | {c.predicted_s:.2f} "
        f"| {c.makespan_error:+.1%} | {c.finish_error_median:.1%} | {c.finish_error_p90:.1%} "
        f"| {c.preemptions}, {c.predicted_preemptions} |"
        for c in profile.checks
    ]
    return "\n".join(rows) + "\n"


def decodes(profile: Profile) -> str:
    """Iterations of decodes only, in a sentence; `fleetsim profile show` has each."""
    errors = sorted(abs(r.error) for r in rows_of(profile, "decode"))
    median = errors[len(errors) // 2]
    return (
        f"Iterations of 1 to 64 decodes at {len(errors)} points (`fleetsim profile show`): median error {median:.1%}, "
        f"worst {errors[-1]:.1%}.\n"
    )


def main() -> int:
    """Writes the page, or checks it."""
    parser = argparse.ArgumentParser(description=__doc__.split("\n")[0])
    parser.add_argument("--check", action="store_true", help="exit 1 if the page would change")
    asked = parser.parse_args()
    text = page(profiles())
    if asked.check:
        same = PAGE.is_file() and PAGE.read_text(encoding="utf-8") == text
        print("docs/measured.md is up to date" if same else "docs/measured.md is not what this script writes")
        return 0 if same else 1
    print(text)
    PAGE.write_text(text, encoding="utf-8")
    return 0


if __name__ == "__main__":
    sys.exit(main())
