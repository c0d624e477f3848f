"""What every test shares: hypothesis's settings, and the table of published runs at the end of a test run."""

from __future__ import annotations

import os
import signal

import pytest
from hypothesis import HealthCheck, settings

# No deadline: the first example of a process may compile the kernel. In CI the examples are the same every time, so
# that a red run is about the change and not about luck; elsewhere every run looks at new ones.
settings.register_profile("default", deadline=None, suppress_health_check=[HealthCheck.too_slow])
settings.register_profile("ci", settings.get_profile("default"), derandomize=True, print_blob=True)
settings.load_profile("ci" if os.environ.get("CI") else "default")

# A background job of a shell ignores Ctrl-C, and what it starts does so too; the tests of Ctrl-C need it everywhere.
if signal.getsignal(signal.SIGINT) is signal.SIG_IGN:
    signal.signal(signal.SIGINT, signal.default_int_handler)


def pytest_configure(config: pytest.Config) -> None:
    """Compile the kernel once, before several workers would each compile it for themselves."""
    if not hasattr(config, "workerinput") and getattr(config.option, "numprocesses", None):
        from fleetsim.engine import EngineLimits, LinearStepTime, run_requests

        run_requests(LinearStepTime(1.0), EngineLimits(1, 1, 1), 1, 1)


def pytest_terminal_summary(terminalreporter: pytest.TerminalReporter) -> None:
    """Predicted and published, side by side: what a test recorded as the property `published`."""
    rows = [
        value
        for reports in terminalreporter.stats.values()
        for report in reports
        if getattr(report, "when", None) == "call"
        for name, value in report.user_properties
        if name == "published"
    ]
    if rows:
        terminalreporter.section("published runs")
        for row in sorted(rows):
            terminalreporter.write_line(row)
