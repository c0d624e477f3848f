"""A day of 64 instances, scraped every 15 s, read from a real Prometheus by `fleetsim replay`: seconds and memory.

    python benchmarks/replay_day.py [DATA]

DATA: a folder for the Prometheus data (22 MB), kept and used again; else made anew, which takes some minutes: the day
is simulated, written as OpenMetrics text (1.3 GB) and loaded by promtool. Needs prometheus and promtool on PATH
(tests/real_prometheus/install.sh). Prints one JSON object, as benchmarks/cases.py does.
"""

from __future__ import annotations

import json
import os
import subprocess
import sys
import tempfile
import time
from pathlib import Path

ROOT = Path(__file__).resolve().parents[1]
sys.path.insert(0, str(ROOT))  # run as a script, its folder is on the path and the tests are not
from tests.real_prometheus.server import Server  # noqa: E402

FLEETSIM = [sys.executable, "-m", "fleetsim"]
END = "2026-11-20T00:00"
FLEET = ["fleet.instances=64", "trainer.batch_samples=4096", "run.replications=1"]


def make(server: Server) -> None:
    """Simulates the day and loads it."""
    text = server.home / "day.om"
    sets = [word for setting in FLEET for word in ("--set", setting)]
    simulate = ["simulate", "async-one-step", *sets, "--hours", "24", "--openmetrics", str(text)]
    subprocess.run([*FLEETSIM, *simulate, "--openmetrics-end", END], check=True, stdout=subprocess.DEVNULL, cwd=ROOT)
    server.backfill(text)
    text.unlink()


def replayed(server: Server) -> dict[str, float]:
    """One `fleetsim replay` of the whole day, without the simulations of the back-test."""
    day = ["--start", "2026-11-19T00:00", "--end", END, "--no-backtest", "--json"]
    start = time.perf_counter()
    process = subprocess.Popen(
        [*FLEETSIM, "replay", "--prometheus", server.url, *day], stdout=subprocess.PIPE, cwd=ROOT
    )
    assert process.stdout is not None
    document = json.loads(process.stdout.read())
    _, status, usage = os.wait4(process.pid, 0)
    seconds = time.perf_counter() - start
    assert os.waitstatus_to_exitcode(status) == 0
    assert len(document["observed"]["instances"]) == 64
    return {"seconds": seconds, "cpu_s": usage.ru_utime + usage.ru_stime, "peak_bytes": usage.ru_maxrss * 1024.0}


def main() -> None:
    """Measures three times."""
    with tempfile.TemporaryDirectory() as folder:
        home = Path(sys.argv[1]).resolve() if len(sys.argv) > 1 else Path(folder)
        server = Server(home)
        if not server.data.exists():
            make(server)
        with server:
            runs = [replayed(server) for _ in range(3)]
    told: dict[str, object] = {name: [r[name] for r in runs] for name in ("seconds", "cpu_s")}
    print(json.dumps({**told, "peak_bytes": max(r["peak_bytes"] for r in runs)}))


if __name__ == "__main__":
    main()
