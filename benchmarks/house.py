"""Figures of the house, before the rebuild and now, as a table: files, lines, circles, and what starting costs.

    python benchmarks/house.py [--before REF]

REF is unpacked from git beside this tree; both are measured by the same code and timed in turns. Processor seconds of a
whole process, user time, the least of ROUNDS runs. Seconds of CI's lanes are those of the last `.ci/run` in this tree.
"""

from __future__ import annotations

import io
import os
import platform
import resource
import subprocess
import sys
import tarfile
import tempfile
from collections.abc import Mapping
from pathlib import Path

ROOT = Path(__file__).resolve().parents[1]
sys.path.insert(0, str(ROOT / "docs"))
import house  # noqa: E402

# The last commit before the rebuild.
BEFORE = "1a6b914"
LAWS = (
    "barrier", "batches_ahead", "version_window", "target_step", "per_sync_window", "cumulative_ratio", "fixed_pool",
    "adaptive", "unbounded",
)  # fmt: skip
ROUNDS = 7
TIMED: Mapping[str, tuple[str, ...]] = {
    "Python alone": ("-c", "pass"),
    "`import fleetsim`": ("-c", "import fleetsim"),
    "`fleetsim --help`": ("-m", "fleetsim", "--help"),
    "`fleetsim size --batch 512 --len 1536`": ("-m", "fleetsim", "size", "--batch", "512", "--len", "1536"),
}


def unpacked(ref: str, folder: Path) -> Path:
    """The tree of a commit, in the folder."""
    packed = subprocess.run(["git", "archive", ref], cwd=ROOT, capture_output=True, check=True).stdout
    with tarfile.open(fileobj=io.BytesIO(packed)) as tar:
        tar.extractall(folder, filter="data")
    return folder


def user_seconds(root: Path, arguments: tuple[str, ...]) -> float:
    """Processor seconds in user mode of one run of Python with the tree's package."""
    environment = {**os.environ, "PYTHONPATH": str(root), "PYTHONDONTWRITEBYTECODE": ""}
    before = resource.getrusage(resource.RUSAGE_CHILDREN).ru_utime
    subprocess.run([sys.executable, *arguments], env=environment, cwd=root, capture_output=True, check=True)
    return resource.getrusage(resource.RUSAGE_CHILDREN).ru_utime - before


def timed(trees: Mapping[str, Path]) -> dict[str, dict[str, float]]:
    """What is run -> tree -> the least seconds. A run of each comes first: machine code and bytecode are warm."""
    least: dict[str, dict[str, float]] = {}
    for what, arguments in TIMED.items():
        for root in trees.values():
            user_seconds(root, arguments)
        rounds = [{name: user_seconds(root, arguments) for name, root in trees.items()} for _ in range(ROUNDS)]
        least[what] = {name: min(r[name] for r in rounds) for name in trees}
    return least


def main() -> None:
    """Prints the table."""
    ref = sys.argv[sys.argv.index("--before") + 1] if "--before" in sys.argv else BEFORE
    with tempfile.TemporaryDirectory() as folder:
        trees = {"before": unpacked(ref, Path(folder)), "now": ROOT}
        measured = {name: house.figures(root, LAWS) for name, root in trees.items()}
        seconds = timed(trees)
    print(f"# The house, measured\n\nWritten by `python benchmarks/house.py`; before is {ref}. {platform.platform()}, "
          f"{os.cpu_count()} processors, Python {platform.python_version()}.\n")  # fmt: skip
    print("| | before | now |\n| --- | ---: | ---: |")
    for what in measured["now"]:
        print(f"| {what} | {measured['before'][what]} | {measured['now'][what]} |")
    for what, by in seconds.items():
        print(f"| {what}, processor seconds | {by['before']:.2f} | {by['now']:.2f} |")
    lanes = sorted((ROOT / ".artefacts").glob("*.took"))
    if lanes:
        print("\n| lane of `.ci/run` | seconds |\n| --- | ---: |")
        for lane in lanes:
            print(f"| {lane.stem} | {lane.read_text().strip()} |")


if __name__ == "__main__":
    main()
