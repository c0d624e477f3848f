"""How fast and how large: fleetsim's speed and memory on this machine, as a table with the machine.

    python benchmarks/run.py            measure and print
    python benchmarks/run.py --write    and write benchmarks/results.json and benchmarks/RESULTS.md

Kernel cases run in processes of their own (cases.py), so that peak memory is theirs alone. Commands are timed as whole
processes, from exec to exit, with the interpreter that runs this script. Needs Prometheus on PATH
(tests/real_prometheus/install.sh) and takes about ten minutes.
"""

from __future__ import annotations

import argparse
import gzip
import json
import os
import platform
import statistics
import subprocess
import sys
import tempfile
import time
import zipfile
from collections.abc import Iterator, Mapping
from contextlib import contextmanager
from importlib.metadata import version
from pathlib import Path
from typing import Any

from rich.console import Console
from rich.table import Table

HERE = Path(__file__).resolve().parent
RAW = HERE.parent / "calibration" / "raw" / "cpu-tiny.raw.jsonl.gz"
FLEETSIM = [sys.executable, "-m", "fleetsim"]
SIZE = ["size", "--batch", "512", "--len", "1536"]

ASKED: Mapping[str, list[str]] = {
    "plan_64": ["plan", "--gpus", "64"],
    "size_preset": ["size", "--preset", "trl-async-grpo-lora"],
    "size_slime": ["size", "--preset", "slime-fully-async"],
}

# key, what, unit, target
ROWS: tuple[tuple[str, str, str, float], ...] = (
    ("requests_4096", "4,096 requests of 512 + 1,024 tokens, 8 instances, max_num_seqs 256", "ms", 10),
    ("requests_million", "1,048,576 requests, lognormal lengths, 64 instances", "s", 3),
    ("requests_million_peak", "- peak memory of the process", "MiB", 1024),
    ("fleet_1000", "1,000 instances, 131,072 samples per step, 20 async steps", "s", 10),
    ("fleet_1000_peak", "- peak memory of the process", "MiB", 2048),
    ("cost_ratio", "cost per request at 1,000 instances / at 8, the same million requests", "x", 2),
    ("fit_100000", "the fit of 100,000 measured iterations, cross-validation and intervals included", "s", 5),
    ("size_warm", "fleetsim size --batch 512 --len 1536, whole process", "s", 1),
    ("size_first", "- the very first time after installing", "s", 6),
    ("plan_64", "fleetsim plan --gpus 64, whole process", "s", 5),
    ("size_preset", "fleetsim size of the slowest preset but slime's, whole process", "s", 5),
    ("size_slime", "fleetsim size --preset slime-fully-async: 4,096 samples sent again at each sync", "s", 5),
    ("steady_ratio", "a step of a run that ends when it is steady / a step of a look, the default job", "x", 1),
    ("split_64", "fleetsim split --gpus 64, whole process", "s", 10),
    ("validate", "fleetsim validate, whole process: all published runs", "s", 60),
    ("replay_day", "fleetsim replay of 24 h x 64 instances at 15 s, from a local Prometheus, whole process", "s", 30),
    ("replay_day_peak", "- peak memory of the process", "MiB", 1024),
    ("help", "fleetsim --help, whole process", "s", 0.25),
    ("profile_show", "fleetsim profile show, whole process", "s", 0.5),
    ("recording", "what recording adds to an iteration of a real engine (calibration/raw)", "%", 1),
)


def machine() -> dict[str, str]:
    """What the figures were measured on."""
    cpu = platform.processor() or platform.machine()
    info = Path("/proc/cpuinfo")
    if info.is_file():
        named = [line.split(":", 1)[1] for line in info.read_text().splitlines() if line.startswith("model name")]
        cpu = named[0].strip() if named else cpu
    return {
        "cpu": cpu,
        "cores": str(os.cpu_count()),
        "load before": f"{os.getloadavg()[0]:.1f}",
        "system": f"{platform.system()} {platform.machine()}",
        "python": platform.python_version(),
        "numpy": version("numpy"),
    }


def case(name: str) -> dict[str, Any]:
    """One case of cases.py in a process of its own, without huge pages, as the command line runs."""
    small = {**os.environ, "NUMPY_MADVISE_HUGEPAGE": "0"}
    done = subprocess.run(
        [sys.executable, HERE / "cases.py", name], env=small, stdout=subprocess.PIPE, text=True, check=True
    )
    measured: dict[str, Any] = json.loads(done.stdout)
    return measured


def process_seconds(arguments: list[str], site: Path) -> float:
    """Seconds of one `fleetsim` process: the package in `site`."""
    environment = {**os.environ, "PYTHONPATH": str(site)}
    environment.pop("PYTHONDONTWRITEBYTECODE", None)  # else each process would compile what it imports
    start = time.perf_counter()
    subprocess.run([*FLEETSIM, *arguments], env=environment, cwd=site, check=True, capture_output=True)
    return time.perf_counter() - start


@contextmanager
def installed() -> Iterator[Path]:
    """A folder with the package as a wheel installs it: with the kernel as a library."""
    with tempfile.TemporaryDirectory() as folder:
        build = [sys.executable, "-m", "hatchling", "build", "-t", "wheel", "-d", folder]
        subprocess.run(build, cwd=HERE.parent, check=True, capture_output=True)
        site = Path(folder) / "site"
        zipfile.ZipFile(next(Path(folder).glob("*.whl"))).extractall(site)
        yield site


def measure() -> dict[str, float]:
    """All figures, in the units of ROWS."""
    out: dict[str, float] = {}
    out["requests_4096"] = statistics.median(case("requests_4096")["seconds"]) * 1e3
    for name in ("requests_million", "fleet_1000"):
        runs = [case(name) for _ in range(3)]
        out[name] = statistics.median(run["seconds"][0] for run in runs)
        out[f"{name}_peak"] = max(run["peak_bytes"] for run in runs) / 2**20
    day = json.loads(
        subprocess.run([sys.executable, HERE / "replay_day.py"], stdout=subprocess.PIPE, check=True).stdout
    )
    out["replay_day"], out["replay_day_peak"] = statistics.median(day["seconds"]), day["peak_bytes"] / 2**20
    out["cost_ratio"] = case("cost_per_request")["ratio"]
    out["steady_ratio"] = case("steady_run")["ratio"]
    out["fit_100000"] = statistics.median(case("fit_100000")["seconds"])
    with installed() as site:
        out["size_first"] = process_seconds(SIZE, site)  # Python compiles what it imports, too
        out["size_warm"] = statistics.median(process_seconds(SIZE, site) for _ in range(7))
        for key, asked in ASKED.items():
            out[key] = statistics.median(process_seconds(asked, site) for _ in range(3))
        split = ["split", "--gpus", "64"]
        out["split_64"] = statistics.median(process_seconds(split, site) for _ in range(3))
        out["validate"] = process_seconds(["validate"], site)
        out["help"] = statistics.median(process_seconds(["--help"], site) for _ in range(11))
        profile = str(site / "cpu-tiny.profile.json")
        process_seconds(["calibrate", "--from", str(RAW), "-o", profile], site)
        show = ["profile", "show", profile]
        out["profile_show"] = statistics.median(process_seconds(show, site) for _ in range(11))
    out["recording"] = 100.0 * recording_share()
    return out


def recording_share() -> float:
    """The recorder's own seconds over the wall time of all loads, as the raw measurements hold them."""
    with gzip.open(RAW, "rt", encoding="utf-8") as lines:
        loads = [record for record in map(json.loads, lines) if record["t"] == "seg" and "rec_s" in record]
    return float(sum(load["rec_s"] for load in loads) / sum(load["wall"] for load in loads))


def shown(value: float, unit: str) -> str:
    """A figure with its unit: three digits, or whole numbers from 100 on."""
    return f"{value:,.0f} {unit}" if value >= 100 else f"{value:.3g} {unit}"


def table(figures: Mapping[str, float]) -> Table:
    """The figures beside their targets."""
    out = Table("what", title="fleetsim benchmarks")
    out.add_column("measured", justify="right")
    out.add_column("target", justify="right")
    for key, what, unit, target in ROWS:
        style = "green" if figures[key] <= target else "red"
        out.add_row(what, f"[{style}]{shown(figures[key], unit)}[/]", f"<= {shown(target, unit)}")
    return out


def page(figures: Mapping[str, float], host: Mapping[str, str]) -> str:
    """The same as Markdown."""
    lines = [
        "# Benchmarks",
        "",
        "Written by `python benchmarks/run.py --write`. Times are medians of several runs; memory is the largest peak",
        "of a whole process, Python and its libraries included. For comparison, measured on a machine of this size:",
        "Vidur needs 9.6 to 13.3 s and BLIS 1.9 to 2.6 s (as a process) for the first case, and BLIS 24.9 s and",
        "4.1 GB for 32,768 requests.",
        "",
        "| what | measured | target |",
        "| --- | ---: | ---: |",
        *(f"| {what} | {shown(figures[key], unit)} | <= {shown(target, unit)} |" for key, what, unit, target in ROWS),
        "",
        "Machine: " + ", ".join(f"{name} {value}" for name, value in host.items()) + ".",
        "",
    ]
    return "\n".join(lines)


def main() -> int:
    """Measures, prints, writes; exit code 1 if a target is missed."""
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--write", action="store_true", help="write results.json and RESULTS.md")
    arguments = parser.parse_args()
    host = machine()
    figures = measure()
    console = Console()
    console.print(table(figures))
    console.print(", ".join(f"{name} {value}" for name, value in host.items()), style="dim")
    if arguments.write:
        rounded = {key: float(f"{figures[key]:.3g}") for key, *_ in ROWS}
        document = {"machine": host, "figures": rounded, "units": {key: unit for key, _, unit, _ in ROWS}}
        (HERE / "results.json").write_text(json.dumps(document, indent=2) + "\n", encoding="utf-8")
        (HERE / "RESULTS.md").write_text(page(figures, host), encoding="utf-8")
    return int(any(figures[key] > target for key, _, _, target in ROWS))


if __name__ == "__main__":
    sys.exit(main())
