"""docs/metrics.md: the exporter that it shows runs, and exports names that the catalogue reads."""

from __future__ import annotations

import re
import subprocess
import sys
from pathlib import Path

from fleetsim.history.signals import SIGNALS

PAGE = Path(__file__).resolve().parents[2] / "docs" / "metrics.md"
SCRAPE = """
import urllib.request
print(urllib.request.urlopen(f"http://127.0.0.1:{server.server_port}/metrics", timeout=60).read().decode())
"""


def test_the_exporter_shown_exports_what_is_read() -> None:
    """Run as it stands, but on a free port."""
    (code,) = re.findall(r"```python\n(.*?)```", PAGE.read_text(encoding="utf-8"), re.DOTALL)
    assert "start_http_server(9200, " in code
    code = code.replace("start_http_server(9200, ", "start_http_server(0, ") + SCRAPE
    done = subprocess.run([sys.executable, "-c", code], capture_output=True, text=True, check=True, timeout=300)
    exported = set(re.findall(r"^(rl_\w+?)(?:\{.*\})? ", done.stdout, re.MULTILINE))
    read = {
        name
        for signal in SIGNALS
        for name in signal.metrics
        if name.startswith("rl_") and not name.startswith("rl_insight_")
    }
    assert read <= exported
    assert {name for name in exported if not name.endswith("_created")} == read
