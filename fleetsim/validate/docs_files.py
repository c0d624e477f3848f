"""The page that `fleetsim validate` writes, and whether it is still true."""

from __future__ import annotations

import os
from collections.abc import Sequence
from pathlib import Path
from typing import TYPE_CHECKING

from fleetsim.errors import InputError, OutsideError, Problem
from fleetsim.files import reason

if TYPE_CHECKING:
    from fleetsim.validate.run import RangedArm
    from fleetsim.validate.verdict import CaseResult

STEM = "validation"


def checked_folder(cases: Sequence[str], write: str | None, check: str | None) -> Path | None:
    """The folder of --write or --check. Raises InputError for both, for a page of some cases only, or for no folder."""
    problems = []
    if write is not None and check is not None:
        problems.append(Problem("--check", check, "cannot be combined with --write", "give one of the two"))
    given = write if write is not None else check
    flag = "--write" if write is not None else "--check"
    if given is not None and cases:
        problems.append(Problem("--case", ", ".join(cases), f"{flag} is about all cases", "leave --case out"))
    if given is not None and not os.path.isdir(given):
        problems.append(Problem(flag, given, "is no folder", "create it"))
    if problems:
        raise InputError(problems)
    return None if given is None else Path(given)


def write_docs(folder: Path, results: Sequence[CaseResult], arms: Sequence[RangedArm]) -> None:
    """Writes the page and its picture. Raises OutsideError."""
    try:
        for name, text in docs_files(results, arms).items():
            (folder / name).write_text(text, encoding="utf-8")
    except OSError as error:
        raise OutsideError(f"{folder}: cannot be written to: {reason(error)}") from None


def drifted(folder: Path, results: Sequence[CaseResult], arms: Sequence[RangedArm]) -> bool:
    """Whether the page there says something else. A missing page has drifted."""
    from fleetsim.tell.markdown import same

    page = f"{STEM}.md"
    try:
        written = (folder / page).read_text(encoding="utf-8")
    except OSError:
        return True
    # a fit stops at a step of its own on another processor: its arms move by a fraction of a percent
    return not same(written, docs_files(results, arms)[page], relative=0.02, absolute=0.6)


def docs_files(results: Sequence[CaseResult], arms: Sequence[RangedArm]) -> dict[str, str]:
    """Name and text of each file."""
    from fleetsim.tell.markdown import markdown_files
    from fleetsim.validate.told import document

    return markdown_files(document(results, len(results), arms), STEM)
