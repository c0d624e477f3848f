"""Finds Prometheus, or skips, loudly: everything here reads from a real server on loopback.

tests/real_prometheus/install.sh installs it. With FLEETSIM_REQUIRE_PROMETHEUS=1 a missing one is a failure.
"""

from __future__ import annotations

import os
import shutil
from collections.abc import Callable, Iterator
from pathlib import Path
from typing import Any

import pytest

from tests.real_prometheus.server import Server


@pytest.fixture(scope="session")
def prometheus() -> None:
    """Both binaries are on PATH."""
    missing = [name for name in ("prometheus", "promtool") if shutil.which(name) is None]
    if not missing:
        return
    reason = (
        f"REAL PROMETHEUS NOT TESTED: no {' and no '.join(missing)} on PATH; "
        "tests/real_prometheus/install.sh installs Debian's package prometheus"
    )
    if os.environ.get("FLEETSIM_REQUIRE_PROMETHEUS") == "1":
        pytest.fail(reason)
    pytest.skip(reason)


@pytest.fixture
def serve(prometheus: None, tmp_path: Path) -> Iterator[Callable[..., Server]]:
    """Starts a Prometheus: serve(text, ...) with a history in it, serve(targets=...) that scrapes. All are stopped."""
    started: list[Server] = []

    def start(history: str | Path | None = None, **options: Any) -> Server:
        server = Server(tmp_path / f"prometheus-{len(started)}", **options)
        started.append(server)
        if history is not None:
            server.backfill(history)
        server.start()
        return server

    yield start
    for server in started:
        server.stop()
