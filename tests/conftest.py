"""What every test shares: hypothesis's settings, the order of the tests, what the fast lane leaves out, and the table
of published runs at the end of a test run."""

from __future__ import annotations

import gc
import os
import shutil
import signal
import tempfile
from pathlib import Path

import pytest
from hypothesis import HealthCheck, settings

# No deadline: the first example of a process may compile the kernel. In CI the examples are the same every time, so
# that a red run is about the change and not about luck; elsewhere every run looks at new ones.
settings.register_profile("default", deadline=None, suppress_health_check=[HealthCheck.too_slow])
settings.register_profile("ci", settings.get_profile("default"), derandomize=True, print_blob=True)
settings.load_profile("ci" if os.environ.get("CI") else "default")

# What is imported to collect the tests stays for good: looking through it for garbage again and again is a tenth of the
# time that collecting takes, and some of every test's.
gc.disable()

# A background job of a shell ignores Ctrl-C, and what it starts does so too; the tests of Ctrl-C need it everywhere.
if signal.getsignal(signal.SIGINT) is signal.SIG_IGN:
    signal.signal(signal.SIGINT, signal.default_int_handler)


def pytest_configure(config: pytest.Config) -> None:
    """Compile the kernel once, before several workers would each compile it for themselves; a folder for what they
    share (tests/once.py)."""
    if hasattr(config, "workerinput"):
        return
    os.environ["FLEETSIM_TESTS_ONCE"] = folder = tempfile.mkdtemp(prefix="fleetsim-tests-")
    config.add_cleanup(lambda: shutil.rmtree(folder))
    if getattr(config.option, "numprocesses", None):
        from fleetsim.engine import EngineLimits, LinearStepTime, run_requests

        run_requests(LinearStepTime(1.0), EngineLimits(1, 1, 1), 1, 1)


# Tests that sleep more than they work. They come first, in the hands of one worker; the others work meanwhile.
WAITING = ("real_prometheus/test_rules_live.py", "real_prometheus/test_watch_live.py", "calibrate/test_server_http.py")
# Files, or folders, whose tests take most of the time: with programs of their own, or with long runs of the simulator.
SLOW = (
    "browser/",
    "frameworks/parsers/",
    "fuzz/",
    "golden/",
    "planner/",
    "real_prometheus/",
    "real_vllm/",
    "trace/",
    "analysis/test_binding.py",
    "api/test_notebook.py",
    "api/test_same_as_the_command.py",
    "calibrate/test_fit.py",
    "calibrate/test_measure.py",
    "calibrate/test_server_http.py",
    "cli/test_alerts_command.py",
    "cli/test_calibrate_command.py",
    "cli/test_interrupted.py",
    "cli/test_plan_file.py",
    "cli/test_secrets.py",
    "engine/test_cache.py",
    "engine/test_jump_equals_loop.py",
    "engine/test_native.py",
    "engine/test_roofline.py",
    "engine/test_roofline_accuracy.py",
    "frameworks/test_to.py",
    "history/test_trackers.py",
    "outside/",
    "packaging/test_wheel.py",
    "plan/test_presets.py",
    "plan/test_ranges_held.py",
    "plan/test_spread.py",
    "replay/test_end_to_end.py",
    "replay/test_rolling.py",
    "replay/test_stalls.py",
    "replay/test_truth.py",
    "replay/test_withheld.py",
    "report/test_replay_page.py",
    "sim/test_scrape.py",
    "standing/test_real_rules.py",
    "standing/test_thresholds.py",
    "sweep/test_cluster.py",
    "sweep/test_killed.py",
    "validation/",
)


def pytest_collection_modifyitems(items: list[pytest.Item]) -> None:
    """Marks what is slow, and puts first what waits: the first worker begins with it, the others help it at its end."""
    here = Path(__file__).parent
    places = {item: str(item.path.relative_to(here)) if item.path.is_relative_to(here) else "" for item in items}
    for item, place in places.items():
        if place.startswith(SLOW):
            item.add_marker(pytest.mark.slow)
    items.sort(key=lambda item: not places[item].startswith(WAITING))


def pytest_collection_finish() -> None:
    """From here on garbage is looked for, in what tests make."""
    gc.freeze()
    gc.enable()


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
