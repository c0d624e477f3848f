"""The job of a run as a scenario file: `fleetsim scenario from --run LOG`."""

from __future__ import annotations

import os
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from typing import Any

from fleetsim.config.load import parse_override, scenario_from_mapping, with_overrides
from fleetsim.config.tree import is_touched
from fleetsim.config.yaml_text import from_yaml
from fleetsim.frameworks.scenario_text import SECTIONS, scenario_yaml
from fleetsim.job.grounds import record_words
from fleetsim.replay.shown.shown import with_run


@dataclass(frozen=True, slots=True)
class RunFile:
    """text: YAML with comments. raw: the same as a mapping. notes: what the reader must know of it."""

    text: str
    raw: Mapping[str, Any]
    notes: tuple[str, ...]


def run_file(start: Mapping[str, Any] | None, sets: Sequence[str], run: str) -> RunFile:
    """The job of a run as a file. start: another configuration, None = that which the run's log holds. Raises as
    `with_run`."""
    found, notes, _ = with_run(start, sets, {}, run)
    name = os.path.basename(run.rstrip("/"))
    head = {"schema_version": 1, "name": name, "source": f"observed in {name}"}
    raw = with_overrides({**head, **found}, sets)
    told = [parse_override(text)[0] for text in sets]
    raw["observed"] = [record for record in raw["observed"] if not is_touched(record["path"], told)]
    raw["assumed"] = [path for path in raw["assumed"] if not is_touched(path, told)]
    # an empty list is a default
    raw = {key: raw[key] for key in sorted(raw, key=_place) if raw[key] not in ([], ())}
    scenario = scenario_from_mapping(raw)
    comments = {record.path: f"{record_words(record)}, in {record.source}" for record in scenario.observed}
    header = ["What a run showed, as a job. `observed` says how sure its values are: plans take their ranges from it."]
    text = scenario_yaml(raw, comments, header)
    scenario_from_mapping(from_yaml(text, "scenario"))
    return RunFile(text, raw, notes)


def _place(key: str) -> int:
    """Where a key stands in a file: the head, then the sections in their order."""
    return SECTIONS.index(key) if key in SECTIONS else -1
