"""What A and B of `fleetsim compare` are, told by their content: a scenario, a result, or history."""

from __future__ import annotations

import json
import os
from collections.abc import Mapping
from dataclasses import dataclass
from pathlib import Path
from typing import Any, Literal

from fleetsim.config.files import read_text
from fleetsim.config.scenario import Scenario
from fleetsim.config.shipped import find_scenario
from fleetsim.config.yaml_text import MAX_BYTES as MAX_YAML
from fleetsim.config.yaml_text import from_yaml
from fleetsim.errors import InputError, Problem

What = Literal["scenario", "result", "history"]


@dataclass(frozen=True, slots=True)
class Given:
    """where: A or B. text: as the user wrote it. document: of a result, its JSON."""

    where: str
    text: str
    what: What
    document: Mapping[str, Any] | None = None


def given_of(where: str, text: str) -> Given:
    """Raises InputError for what is none of the three."""
    path = Path(text)
    if "\0" in text or not text or not os.path.lexists(path):
        try:
            find_scenario(text)
        except InputError as error:
            problem = error.problems[0]
            rule = "no such file, and no shipped scenario of this name"
            raise InputError([Problem(where, text, rule, problem.remedy)]) from None
        return Given(where, text, "scenario")
    if path.is_dir():
        return Given(where, text, "history")
    if path.suffix in (".yaml", ".yml"):
        return Given(where, text, "scenario")
    return _by_content(where, text, path)


def _by_content(where: str, text: str, path: Path) -> Given:
    from fleetsim.history.files import form_of
    from fleetsim.plan.results import MAX_BYTES, is_result

    try:
        if path.is_file() and form_of(path) in ("dump", "table"):
            return Given(where, text, "history")
        size = path.stat().st_size
    except OSError as error:
        rule = f"cannot be read: {error.strerror or error}"
        raise InputError([Problem(where, text, rule, "check the path and its permissions")]) from None
    if size > MAX_BYTES:
        return Given(where, text, "history")
    try:
        content = read_text(path, where, MAX_BYTES)
    except InputError as error:
        if path.is_file() and ("binary" in str(error) or "UTF-8" in str(error)):
            return Given(where, text, "history")  # packed, perhaps: its reader says what it is not
        raise
    if content.lstrip().startswith("{"):
        document = _json(content)
        if isinstance(document, Mapping) and is_result(document):
            return Given(where, text, "result", document)
        if document is None and _opens_a_document(content):
            rule, remedy = "is no valid JSON: cut off, or edited by hand", "write the result again"
            raise InputError([Problem(where, text, rule, remedy)])
        return Given(where, text, "scenario" if _is_scenario(document) else "history")
    if size <= MAX_YAML and _is_scenario(_yaml(content)):
        return Given(where, text, "scenario")
    return Given(where, text, "history")


def _json(content: str) -> Any:
    """The value; None for what is no single JSON document (a run log has one a line)."""
    try:
        return json.loads(content)
    except (ValueError, RecursionError):
        return None


def _opens_a_document(content: str) -> bool:
    """Whether a text begins as JSON of many lines does, which a log of one object a line does not."""
    return content.lstrip().partition("\n")[0].strip() == "{"


def _yaml(content: str) -> Any:
    try:
        return from_yaml(content, "file")
    except InputError:
        return None


def _is_scenario(document: Any) -> bool:
    return isinstance(document, Mapping) and bool(document) and set(document) <= set(Scenario.model_fields)
