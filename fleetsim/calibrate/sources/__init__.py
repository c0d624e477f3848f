"""Measurements of others as sources of a profile: benchmark results, tables, operator tables."""

from __future__ import annotations

import os
from pathlib import Path

from fleetsim.calibrate.facts import GivenFlags
from fleetsim.calibrate.raw import first_record
from fleetsim.calibrate.sources.source import FileReading, Source, csv_rows, json_documents, text_of, unknown
from fleetsim.files import reason

OPERATORS = "aiconfigurator"
RECORDS = frozenset({"meta", "start", "it", "obs", "seg", "note", "phase", "end", "error"})


def is_raw(path: str) -> bool:
    """Whether a file holds raw measurements of `fleetsim calibrate` (fleetsim.calibrate.raw), by its first line."""
    return str(first_record(path).get("t")) in RECORDS


def read_source(path: str, given: GivenFlags | None = None) -> Source:
    """The measurements at `path`, whatever wrote them; `aiconfigurator:SYSTEM[:VERSION]` names operator tables.

    A folder is what `vllm bench sweep` leaves: all its run=N.json, else all JSON files in it. given: what the user says
    of the engine. Raises InputError for what is none of the known files, with what was looked for, and for every number
    that is missing or impossible; OutsideError where aiconfigurator is not installed.
    """
    from fleetsim.calibrate.sources.benchmarks import FORMATS, SERVE, read_benchmarks
    from fleetsim.calibrate.sources.csv_table import read_csv

    how = FileReading(given or GivenFlags())
    if path == OPERATORS or path.startswith(f"{OPERATORS}:"):
        from fleetsim.calibrate.sources.aiconfigurator import read_operators

        return read_operators(path, how.given)
    if "\0" not in path and os.path.isdir(path):
        root = Path(path)
        try:
            names = sorted(root.rglob("run=*.json")) or sorted({*root.rglob("*.json")} - {*root.rglob("summary.json")})
        except OSError as error:
            raise unknown(path, f"cannot be listed: {reason(error)}") from None
        documents = [d for name in map(os.fspath, names) for d in json_documents(text_of(name), name) if SERVE.has(d)]
        if not documents:
            raise unknown(path, f"is a folder without a result of vllm bench serve in its {len(names)} JSON files")
        return read_benchmarks(SERVE, documents, path, how, "vllm bench sweep")
    if is_raw(path):
        raise unknown(path, "holds raw measurements, which are fitted alone, not beside other files")
    text = text_of(path)
    if text.lstrip()[0] not in "{[":
        rows = csv_rows(text, path)
        return (
            read_benchmarks(SERVE, rows, path, how, "vllm bench sweep")
            if SERVE.has(rows[0])
            else read_csv(rows, path, how)
        )
    documents = json_documents(text, path)
    form = next((form for form in FORMATS if all(map(form.has, documents))), None)
    if form is None:
        raise unknown(path, f"is JSON with the keys {', '.join(sorted(map(str, documents[0]))[:8]) or '(none)'}")
    return read_benchmarks(form, documents, path, how)
