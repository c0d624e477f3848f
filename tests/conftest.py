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
# Folders, files and single tests that take most of the time: with programs of their own, or with long runs.
SLOW = (
    "browser/",
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
    "calibrate/test_tables_aic.py::test_tables_alone_make_a_profile_without_a_prior",
    "cli/test_alerts_command.py",
    "cli/test_calibrate_command.py",
    "cli/test_interrupted.py",
    "cli/test_plan_file.py",
    "cli/test_secrets.py",
    "config/test_scenario_files.py::test_files_of_another_kind_are_refused_briefly",
    "docs/test_house.py",
    "engine/test_cache.py",
    "engine/test_guard.py",
    "engine/test_jump_equals_loop.py",
    "engine/test_known_error.py::test_every_engine_has_an_error_and_says_of_what",
    "engine/test_native.py",
    "engine/test_roofline.py",
    "engine/test_roofline_accuracy.py",
    "engine/test_shapes.py::test_any_mapping_is_a_shape_or_an_input_error",
    "frameworks/parsers/",
    "frameworks/test_config_keys.py::test_every_setting_is_the_frameworks_own",
    "frameworks/test_to.py",
    "history/test_trackers.py",
    "outside/",
    "packaging/test_wheel.py",
    "plan/test_presets.py",
    "plan/test_ranges_held.py",
    "plan/test_spread.py",
    "replay/test_bare_what_if.py::test_a_queue_that_grows_is_simulated_as_one",
    "replay/test_end_to_end.py",
    "replay/test_holes.py::test_a_hole_changes_no_mean",
    "replay/test_implied.py::test_any_histogram_gives_a_law_with_its_buckets_and_mean",
    "replay/test_one_job.py::test_the_selector_that_is_asked_for_picks_the_job",
    "replay/test_own_time.py::test_waiting_beside_a_batch_is_never_overstated",
    "replay/test_rolling.py",
    "replay/test_stalls.py",
    "replay/test_thrash.py",
    "replay/test_truth.py",
    "replay/test_withheld.py",
    "report/test_alerts_view.py",
    "report/test_outside_text.py::test_no_face_goes_round_it",
    "report/test_perfetto.py::test_any_run_makes_a_valid_trace",
    "report/test_replay_html.py::test_names_of_others_stay_words",
    "report/test_replay_page.py",
    "report/test_verdict_pages.py::test_names_of_others_stay_words",
    "sim/test_activity.py::test_recording_changes_nothing_and_is_complete",
    "sim/test_invariants.py::test_invariants",
    "sim/test_scrape.py",
    "standing/test_dashboard.py::test_panels_do_not_overlap_and_have_what_grafana_asks_for",
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
        if f"{place}::{item.name}".startswith(SLOW):
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
