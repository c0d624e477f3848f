"""A setting that nothing reads is told."""

from __future__ import annotations

import subprocess
import sys

import pytest
from typer.testing import CliRunner

from fleetsim.cli.main import app
from fleetsim.config import default_scenario, with_changes
from fleetsim.config.scenario import unread_notes
from fleetsim.job.job import job_from_flags


@pytest.mark.parametrize(
    ("text", "changes", "reader"),
    [
        ("admission.staleness_threshold=0.5", {"admission.law": "per_sync_window"}, "per_sync_window"),
        ("admission.max_staleness=3", {"admission.law": "target_step"}, "version_window or target_step"),
        ("sync.at_once=4", {"sync.scope": "rolling"}, "sync.scope rolling"),
        ("admission.adaptive.grow=2", {"admission.law": "adaptive"}, "adaptive"),
        ("fleet.lending.return_at=0.5", {"fleet.placement": "colocated_lending"}, "colocated_lending"),
        ("buffer.on_full=drop_oldest", {"buffer.capacity_samples": 512}, "capacity_samples"),
        ("admission.max_age=2", {"admission.age_action": "wait", "admission.max_age": 2.0}, "age_action"),
    ],
)
def test_told_unless_something_reads_it(text: str, changes: dict[str, object], reader: str) -> None:
    other = with_changes(default_scenario(), {"admission.law": "barrier"})
    (note,) = unread_notes(other, [text])
    assert note.startswith(text.partition("=")[0])
    assert reader in note
    assert unread_notes(with_changes(default_scenario(), changes), [text]) == ()


def test_what_every_scenario_reads_is_not_told() -> None:
    assert unread_notes(default_scenario(), ["fleet.instances=3", "trainer.fixed_s=9"]) == ()


@pytest.mark.parametrize("name", ["sandboxes", "sandbox_start_s", "tool_s", "tool_tokens", "reward_workers"])
def test_a_flag_that_nothing_reads_is_told_by_its_name(name: str) -> None:
    """Who counts sandboxes for a job of one turn must not take the answer for one about sandboxes."""
    (note,) = job_from_flags(None, [], {name: 9}).notes
    assert note.startswith(f"--{name.replace('_', '-')} changes nothing here")
    assert job_from_flags(None, [], {name: 9, "turns": 4, "reward_s": 2.0}).notes == ()


def test_groups_that_shrink_to_fit_the_batch_are_told() -> None:
    (note,) = job_from_flags(None, [], {"batch": 513}).notes
    assert "groups of 3 are assumed" in note
    assert job_from_flags(None, [], {"batch": 520}).notes == ()
    assert job_from_flags(None, [], {"batch": 513, "group_size": 3}).notes == ()


def test_an_option_of_one_value_given_twice_says_that_the_last_counts() -> None:
    found = CliRunner().invoke(
        app, ["profile", "trainer", "--model", "Qwen/Qwen3-8B", "--gpu", "H100", "--gpu", "H200"]
    )
    assert "--gpu is given 2 times: the last one counts" in found.stderr
    assert found.exit_code == 0


def test_two_forms_at_once_are_refused() -> None:
    found = CliRunner().invoke(app, ["size", "-o", "csv", "--json"])
    assert found.exit_code == 2
    assert "each asks for another form" in found.stderr


def test_a_word_that_is_no_choice_is_told_once() -> None:
    found = CliRunner().invoke(app, ["size", "-o", "xml"])
    assert found.stderr.count("xml") == 1
    assert "Value error" not in found.stderr


def test_a_reader_that_has_seen_enough_is_no_error() -> None:
    script = "from fleetsim.cli.main import main; main()"
    writer = subprocess.Popen(
        [sys.executable, "-c", script, "scenario", "schema"], stdout=subprocess.PIPE, stderr=subprocess.PIPE
    )
    assert writer.stdout is not None
    assert writer.stderr is not None
    writer.stdout.close()
    assert writer.stderr.read() == b""
    assert writer.wait() == 0
