"""Measurements of others as sources of a profile: benchmark results, tables, operator tables."""

from __future__ import annotations

import os

from fleetsim.calibrate.engine_flags import GivenFlags
from fleetsim.calibrate.sources.documents import csv_rows, json_documents, text_of, unknown
from fleetsim.calibrate.sources.source import Duration, Source, joined, subset
from fleetsim.json_text import from_json

__all__ = ["Duration", "GivenFlags", "Source", "is_raw", "joined", "read_source", "subset"]

OPERATORS = "aiconfigurator"
RECORDS = frozenset({"meta", "start", "it", "obs", "seg", "note", "phase", "end", "error"})


def is_raw(path: str) -> bool:
    """Whether a file holds raw measurements of `fleetsim calibrate` (fleetsim.calibrate.raw), by its first line."""
    import gzip
    import zlib

    try:
        with open(path, "rb") as file:
            packed = file.read(2) == b"\x1f\x8b"
        with gzip.open(path, "rb") if packed else open(path, "rb") as stream:
            record = from_json(stream.readline(1 << 20))
    except (OSError, EOFError, ValueError, zlib.error):
        return False
    return isinstance(record, dict) and str(record.get("t")) in RECORDS


def read_source(path: str, given: GivenFlags | None = None) -> Source:
    """The measurements at `path`, whatever wrote them; `aiconfigurator:SYSTEM[:VERSION]` names operator tables.

    given: what the user says of the engine. Raises InputError for what is none of the known files, with what was looked
    for, and for every number that is missing or impossible; OutsideError where aiconfigurator is not installed.
    """
    from fleetsim.calibrate.sources import csv_table, guidellm, vllm_bench

    given = given or GivenFlags()
    if path == OPERATORS or path.startswith(f"{OPERATORS}:"):
        from fleetsim.calibrate.sources.aiconfigurator import read_operators

        return read_operators(path, given)
    if "\0" not in path and os.path.isdir(path):
        return vllm_bench.read_folder(path, given)
    if is_raw(path):
        raise unknown(path, "holds raw measurements, which are fitted alone, not beside other files")
    text = text_of(path)
    if text.lstrip()[0] not in "{[":
        rows = csv_rows(text, path)
        if vllm_bench.is_serve(rows[0]):
            return vllm_bench.read_serve(rows, path, given, "vllm bench sweep")
        return csv_table.read_csv(rows, path, given)
    documents = json_documents(text, path)
    if all(vllm_bench.is_serve(d) for d in documents):
        return vllm_bench.read_serve(documents, path, given)
    if all(vllm_bench.is_offline(d) for d in documents):
        return vllm_bench.read_offline(documents, path, given)
    if len(documents) == 1 and guidellm.is_report(documents[0]):
        return guidellm.read_report(documents[0], path, given)
    raise unknown(path, f"is JSON with the keys {', '.join(sorted(map(str, documents[0]))[:8]) or '(none)'}")
