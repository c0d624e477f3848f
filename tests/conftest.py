"""What every test shares: hypothesis's settings, the order of the tests, what the fast lane leaves out, the part of the
day, and the table of published runs at the end of a test run."""

from __future__ import annotations

import gc
import os
import shutil
import signal
import tempfile
from collections import defaultdict
from collections.abc import Iterator
from itertools import count
from pathlib import Path
from typing import Any

import pytest
from hypothesis import HealthCheck, settings
from hypothesis.database import DirectoryBasedExampleDatabase

from tests.parts import ALL, LONG_PARTS, LONGEST, NEW_PARTS, PARTS, part_of_the_day, takes, words

# No deadline: the first example of a process may compile the kernel. The examples are the same every time, so that a
# red run is about the change and not about luck. `pytest -m hypothesis --hypothesis-profile=new` looks at new ones, and
# keeps those that fail.
settings.register_profile(
    "same",
    deadline=None,
    suppress_health_check=[HealthCheck.too_slow],
    derandomize=True,
    print_blob=True,
    database=None,
)
settings.register_profile(
    "new", settings.get_profile("same"), derandomize=False,
    database=DirectoryBasedExampleDatabase(Path(__file__).parents[1] / ".artefacts" / "examples"),
)  # fmt: skip
settings.load_profile("same")

# What is imported to collect the tests stays for good: looking through it for garbage again and again is a tenth of the
# time that collecting takes, and some of every test's.
gc.disable()

# numpy's threads, a core each, wait for each other in a loop, which would be a tenth of all work here; `size` and
# other commands ask for one thread, too.
os.environ.setdefault("OPENBLAS_NUM_THREADS", "1")
# Other tests have the other cores: a search makes its runs here (tests/sim/test_processes.py has processes of its own).
os.environ.setdefault("FLEETSIM_PROCESSES", "1")

# A background job of a shell ignores Ctrl-C, and what it starts does so too; the tests of Ctrl-C need it everywhere.
if signal.getsignal(signal.SIGINT) is signal.SIG_IGN:
    signal.signal(signal.SIGINT, signal.default_int_handler)


def pytest_addoption(parser: pytest.Parser) -> None:
    """Which slow tests, and which instances of tests marked `parts`, are run (tests/parts.py)."""
    parser.addoption("--all", action="store_const", const=ALL, dest="part", help="every test and every instance")
    numbers = range(ALL, PARTS + 1)
    parser.addoption(
        "--part", type=int, choices=numbers, dest="part", help="of such tests, and of slow ones, this part"
    )


def pytest_report_header(config: pytest.Config) -> str:
    """Which part this is."""
    return f"tests marked `parts`, and slow ones: {words(config.option.part)}"


def pytest_configure(config: pytest.Config) -> None:
    """Chooses the part for all workers. Compiles the kernel once, before several workers would each compile it for
    themselves. Makes a folder for what they share (tests/once.py)."""
    if hasattr(config, "workerinput"):
        config.option.part = config.workerinput["part"]
        return
    if config.option.part is None:  # whoever names files gets all that is in them
        named = config.args_source is pytest.Config.ArgsSource.ARGS
        config.option.part = ALL if named else part_of_the_day()
    os.environ["FLEETSIM_TESTS_ONCE"] = folder = tempfile.mkdtemp(prefix="fleetsim-tests-")
    config.add_cleanup(lambda: shutil.rmtree(folder))
    if getattr(config.option, "numprocesses", None):
        from fleetsim.engine import EngineLimits, LinearStepTime, run_requests

        run_requests(LinearStepTime(1.0), EngineLimits(1, 1, 1), 1, 1)


@pytest.hookimpl(optionalhook=True)
def pytest_configure_node(node: Any) -> None:
    """A worker parses the command line only: it is told which part was chosen."""
    node.workerinput["part"] = node.config.option.part


# Tests that sleep more than they work. They come first, in the hands of one worker; the others work meanwhile.
WAITING = ("real_prometheus/test_rules_live.py", "real_prometheus/test_watch_live.py", "calibrate/test_server_http.py")
# The longest come next: what begins last ends last, and the other workers would wait for it.
LONG = (
    "api/test_same_as_the_command.py",
    "engine/test_roofline_accuracy.py",
    "fuzz/test_bounded.py",
    "golden/",
    "packaging/test_wheel.py",
    "plan/test_doubt.py",
    "planner/",
    "validation/test_validate.py",
)
# Folders, files and single tests that take most of the time: with programs of their own, or with long runs.
SLOW = (
    "browser/",
    "frameworks/parsers/",
    "fuzz/",
    "golden/",
    "outside/",
    "pack/",
    "planner/",
    "real_prometheus/",
    "real_vllm/",
    "trace/",
    "validation/",
    "analysis/test_binding.py",
    "analysis/test_timeline.py",
    "api/test_histories.py::test_two_files_are_the_commands_and_what_was_read_is_taken_too",
    "api/test_notebook.py",
    "api/test_same_as_the_command.py",
    "calibrate/test_build.py::test_measurements_cut_short_give_a_profile_or_say_what_is_missing",
    "calibrate/test_derivation.py",
    "calibrate/test_drafts.py::test_over_http",
    "calibrate/test_drafts.py::test_the_fit_finds_the_iterations_behind_the_tokens",
    "calibrate/test_dry_run.py",
    "calibrate/test_fit.py",
    "calibrate/test_measure.py",
    "calibrate/test_server_http.py",
    "calibrate/test_tables_aic.py::test_tables_alone_make_a_profile_without_a_prior",
    "cli/test_alerts_command.py",
    "cli/test_calibrate_command.py",
    "cli/test_compare_command.py",
    "cli/test_completion.py::test_tab_in_a_real_bash",
    "cli/test_interrupted.py",
    "cli/test_plan_file.py",
    "cli/test_replay_command.py",
    "cli/test_secrets.py",
    "cli/test_simulate_openmetrics.py",
    "cli/test_simulate_perfetto.py",
    "cli/test_simulate_words.py",
    "cli/test_size_command.py",
    "cli/test_widths.py::test_help_breaks_no_word_at_any_width",
    "config/test_scenario_files.py::test_a_dumped_scenario_loads_back_equal",
    "config/test_scenario_files.py::test_files_of_another_kind_are_refused_briefly",
    "config/test_yaml_text.py::test_what_is_written_reads_back_equal",
    "docs/test_house.py",
    "docs/test_schemas.py",
    "engine/test_control.py::test_nothing_is_lost_and_nothing_leaks",
    "engine/test_guard.py",
    "engine/test_jump_equals_loop.py",
    "engine/test_known_error.py::test_every_engine_has_an_error_and_says_of_what",
    "engine/test_native.py",
    "engine/test_roofline.py",
    "engine/test_roofline_accuracy.py",
    "engine/test_shapes.py::test_any_mapping_is_a_shape_or_an_input_error",
    "engine/test_speculation.py::test_the_mean_field_is_near_drafts_drawn_one_by_one",
    "frameworks/test_bash.py::test_of_drawn_scripts_all_is_known",
    "frameworks/test_config_keys.py::test_every_setting_is_the_frameworks_own",
    "frameworks/test_errors.py::test_no_values_raise_anything_but_input_errors",
    "frameworks/test_patch.py",
    "frameworks/test_to.py",
    "history/test_files.py::test_a_mutated_file_is_read_or_refused",
    "history/test_prometheus.py",
    "history/test_read.py",
    "history/test_saved_window.py::test_a_mutated_window_is_read_or_refused",
    "history/test_saved_window.py::test_any_history_reads_back_to_the_bit",
    "history/test_trackers.py",
    "packaging/test_wheel.py",
    "plan/test_alternatives.py",
    "plan/test_anew.py::test_nobody_is_advised_to_cut_many_responses",
    "plan/test_best.py",
    "plan/test_change_of_a_run.py",
    "plan/test_colocated.py",
    "plan/test_compare.py",
    "plan/test_doubt.py",
    "plan/test_drafts.py",
    "plan/test_growth.py",
    "plan/test_joint_draws.py",
    "plan/test_knee.py",
    "plan/test_plan_crews.py::test_the_command_that_is_told_makes_the_plan_with_its_judge",
    "plan/test_presets.py",
    "plan/test_promises.py",
    "plan/test_ranges_held.py",
    "plan/test_results.py::test_a_damaged_result_is_read_or_refused",
    "plan/test_size.py",
    "plan/test_surplus.py",
    "printed/test_howtos.py",
    "printed/test_presets.py",
    "replay/test_advice.py",
    "replay/test_as_seen.py",
    "replay/test_bare_what_if.py::test_a_queue_that_grows_is_simulated_as_one",
    "replay/test_client_cap.py::test_batches_that_ebb_have_no_cap",
    "replay/test_compare_windows.py",
    "replay/test_departures.py::test_everyone_who_went_is_told_once",
    "replay/test_diagnose.py::test_any_window_gets_a_verdict_that_adds_up",
    "replay/test_end_to_end.py",
    "replay/test_given.py::test_a_given_cap_keeps_the_measured_lengths",
    "replay/test_given.py::test_one_fact_given_is_one_fact",
    "replay/test_given.py::test_whatever_a_file_says_wrong_the_window_counts_and_a_line_says_so",
    "replay/test_holes.py",
    "replay/test_implied.py::test_any_histogram_gives_a_law_with_its_buckets_and_mean",
    "replay/test_observe.py",
    "replay/test_one_job.py::test_several_jobs_on_one_prometheus_ask_for_a_selector",
    "replay/test_one_job.py::test_the_selector_that_is_asked_for_picks_the_job",
    "replay/test_own_time.py",
    "replay/test_pauses.py::test_pauses_are_recovered_within_one_scrape_interval",
    "replay/test_plan_file.py::test_one_wrong_value_is_an_error_with_its_path",
    "replay/test_rolling.py",
    "replay/test_serving.py::test_lost_prefix_hits_are_found_without_a_group_size",
    "replay/test_shown.py",
    "replay/test_speed.py::test_prompts_that_come_with_the_load_are_not_taken_for_it",
    "replay/test_stalls.py",
    "replay/test_thrash.py",
    "replay/test_transports.py::test_the_model_that_the_metrics_name_is_what_travels",
    "replay/test_truth.py",
    "replay/test_what_if.py",
    "replay/test_withheld.py",
    "report/test_alerts_view.py",
    "report/test_outside_text.py::test_no_face_goes_round_it",
    "report/test_perfetto.py::test_any_run_makes_a_valid_trace",
    "report/test_perfetto.py::test_every_arrangement",
    "report/test_perfetto.py::test_the_same_run_gives_the_same_bytes",
    "report/test_replay_html.py",
    "report/test_replay_page.py",
    "report/test_report_pages.py::test_a_scenario_s_name_stays_a_name",
    "report/test_verdict_pages.py::test_names_of_others_stay_words",
    "sim/test_activity.py::test_a_log_of_any_size_says_the_same",
    "sim/test_activity.py::test_recording_changes_nothing_and_is_complete",
    "sim/test_invariants.py::test_invariants",
    "sim/test_judges.py",
    "sim/test_relations.py",
    "sim/test_scrape.py",
    "sim/test_pools.py",
    "sim/test_spot.py",
    "sim/test_stations.py",
    "standing/test_dashboard.py::test_panels_do_not_overlap_and_have_what_grafana_asks_for",
    "standing/test_learned.py::test_alerts_of_a_run_stand_at_its_own_levels",
    "standing/test_real_rules.py",
    "standing/test_thresholds.py",
    "standing/test_watch_exporter.py",
    "standing/test_watch_log.py::test_the_command_follows_until_it_is_ended",
    "standing/test_watch_survives.py",
    "sweep/test_cluster.py",
    "sweep/test_killed.py",
    "test_one_formatter.py",
    "trainer/test_accuracy.py",
)
# Of the slow ones those whose files work out something once, for all their tests.
AS_ONE = ("validation/", "trainer/test_accuracy.py")


@pytest.fixture
def quick() -> Iterator[None]:
    """For tests of words, flags, files and documents: runs end a few steps after their beginning, and what a test asks
    for in several forms is simulated once."""
    from tests.once import simulated_once
    from tests.printed.shell import short_runs

    with short_runs(), simulated_once():
        yield


def pytest_xdist_auto_num_workers() -> int:
    """A worker per core and one more: servers, browsers and clocks are waited for, and a core is idle meanwhile."""
    return (len(os.sched_getaffinity(0)) if hasattr(os, "sched_getaffinity") else os.cpu_count() or 1) + 1


def pytest_collection_modifyitems(config: pytest.Config, items: list[pytest.Item]) -> None:
    """Marks what is slow; leaves out what is of another part; puts first what waits, and what is long: the first worker
    begins with them, the others help it at its end."""
    here = Path(__file__).parent
    places = {item: str(item.path.relative_to(here)) if item.path.is_relative_to(here) else "" for item in items}
    for item, place in places.items():
        if f"{place}::{item.name}".startswith(SLOW):
            item.add_marker(pytest.mark.slow)
    seen: defaultdict[str, Iterator[int]] = defaultdict(count)
    new = config.getoption("hypothesis_profile", None) == "new"
    left, long = [], frozenset(LONGEST.read_text().split())
    for item in list(items):
        test = item.nodeid.partition("[")[0]
        if item.get_closest_marker("parts"):
            taken = takes(config.option.part, test, next(seen[test]))
        elif f"{places[item]}::{item.name.partition('[')[0]}" in long and not item.get_closest_marker("slow"):
            taken = takes(config.option.part, test, next(seen[test]), LONG_PARTS)
        else:
            # What is worked out once for a whole file is worked out for all of its tests or for none.
            name = places[item] if places[item].startswith(AS_ONE) else test
            taken = not item.get_closest_marker("slow") or takes(config.option.part, name)
        if new:
            taken = taken and takes(config.option.part, test, parts=NEW_PARTS)
        if not taken:
            items.remove(item)
            left.append(item)
    if left:
        config.hook.pytest_deselected(items=left)
    items.sort(key=lambda item: 0 if places[item].startswith(WAITING) else 1 if places[item].startswith(LONG) else 2)


def pytest_collection_finish() -> None:
    """From here on garbage is looked for, in what tests make: a tenth as often as Python does by itself."""
    gc.freeze()
    gc.set_threshold(7_000, 10, 10)
    gc.enable()


def pytest_terminal_summary(terminalreporter: pytest.TerminalReporter, config: pytest.Config) -> None:
    """Which part was run. Predicted and published, side by side: what a test recorded as the property `published`."""
    if config.option.part != ALL:
        terminalreporter.section(f"OF TESTS MARKED `parts` AND OF SLOW ONES ONLY {words(config.option.part)}")
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
