"""A setting that nothing reads is told."""

from __future__ import annotations

import subprocess
import sys

import pytest

from fleetsim.config import default_scenario, with_changes
from fleetsim.config.scenario import unread_notes


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
