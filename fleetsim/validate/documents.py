"""What `fleetsim validate` writes: all behind the page as JSON; the page in docs, and whether it is still true."""

from __future__ import annotations

import os
from collections.abc import Sequence
from pathlib import Path
from typing import Any

from fleetsim.errors import InputError, OutsideError, Problem
from fleetsim.files import reason
from fleetsim.records import as_dict
from fleetsim.tell.data import versions
from fleetsim.validate.case import STATED
from fleetsim.validate.groups import Row, groups_of
from fleetsim.validate.run import RangedArm, held_share
from fleetsim.validate.verdict import CaseResult, role, summary

# --- What `fleetsim validate --json` writes: everything behind the page, as one document.


def data(results: Sequence[CaseResult], rows: Sequence[Row], arms: Sequence[RangedArm] = ()) -> dict[str, Any]:
    """Gates, assumptions and every arm. `error` is predicted / published - 1, `ratio_error` the same relative to the
    baseline arm; null where nothing is published. `blind`: with nothing of an arm but its configuration. `arms`: one
    row for each, with the range of its figure, and `groups` what they come to. `ranges`: of the arms whose ranges as a
    plan tells them were asked for."""
    total = summary(results)
    return {
        **versions("validate"),
        "assumed": list(STATED),
        "summary": {**as_dict(total), "holds": total.holds},
        "groups": [as_dict(group) for group in groups_of(rows)],
        "arms": [as_dict(row) | {"held": row.held} for row in rows],
        "cases": [_case(result) for result in results],
        **(
            {"ranges": {"held": held_share(arms), "arms": [as_dict(a) | {"held": a.held} for a in arms]}}
            if arms
            else {}
        ),
    }


def _case(result: CaseResult) -> dict[str, Any]:
    case, blind = result.case, result.blind or result
    return {
        "id": case.id,
        "title": case.title,
        "sources": list(case.sources),
        "trust": case.trust,
        "gates": list(case.gates),
        "measure": case.measure,
        "assumed": list(case.assumed),
        "fit": None if case.fit is None else case.fit.model_dump(),
        "fitted": None if result.fitted is None else as_dict(result.fitted),
        "wrong_order": [list(pair) for pair in result.wrong_order],
        "blind_wrong_order": [list(pair) for pair in blind.wrong_order],
        "arms": [
            {
                "name": arm.arm.name,
                "role": role(result, arm),
                "gated": arm.arm.gated,
                "inputs": arm.arm.inputs,
                "published": arm.arm.published,
                "relative_to": arm.arm.reference,
                "predicted": arm.predicted,
                "error": arm.error,
                "ratio_error": arm.ratio_error,
                "bottleneck_published": arm.arm.bottleneck,
                "bottleneck_predicted": arm.figures.side,
                "bottleneck_right": arm.bottleneck,
                "missed": arm in result.misses,
                "figures": as_dict(arm.figures),
                "blind": {
                    "gated": unseen.arm.gated,
                    "predicted": unseen.predicted,
                    "error": unseen.error,
                    "ratio_error": unseen.ratio_error,
                    "bottleneck_right": unseen.bottleneck,
                    "figures": as_dict(unseen.figures),
                },
            }
            for arm, unseen in zip(result.arms, blind.arms, strict=True)
        ],
    }


# --- The page that `fleetsim validate` writes, and whether it is still true.

STEM = "validation"


def checked_folder(cases: Sequence[str], folder: str | None, write: str | None, check: str | None) -> Path | None:
    """The folder of --write or --check. Raises InputError for both, for a page of some cases or of others (folder: of
    --cases), or for no folder."""
    problems = []
    if write is not None and check is not None:
        problems.append(Problem("--check", check, "cannot be combined with --write", "give one of the two"))
    given = write if write is not None else check
    flag = "--write" if write is not None else "--check"
    if given is not None and cases:
        problems.append(Problem("--case", ", ".join(cases), f"{flag} is about all cases", "leave --case out"))
    if given is not None and folder is not None:
        problems.append(Problem("--cases", folder, f"{flag} is about the shipped cases", "leave --cases out"))
    if given is not None and not os.path.isdir(given):
        problems.append(Problem(flag, given, "is no folder", "create it"))
    if problems:
        raise InputError(problems)
    return None if given is None else Path(given)


def write_docs(folder: Path, results: Sequence[CaseResult], arms: Sequence[RangedArm], rows: Sequence[Row]) -> None:
    """Writes the page and its picture. Raises OutsideError."""
    try:
        for name, text in docs_files(results, arms, rows).items():
            (folder / name).write_text(text, encoding="utf-8")
    except OSError as error:
        raise OutsideError(f"{folder}: cannot be written to: {reason(error)}") from None


def drifted(folder: Path, results: Sequence[CaseResult], arms: Sequence[RangedArm], rows: Sequence[Row]) -> bool:
    """Whether the page there says something else. A missing page has drifted."""
    from fleetsim.tell.markdown import same

    page = f"{STEM}.md"
    try:
        written = (folder / page).read_text(encoding="utf-8")
    except OSError:
        return True
    # a fit stops at a step of its own on another processor: its arms move by a fraction of a percent
    return not same(written, docs_files(results, arms, rows)[page], relative=0.02, absolute=0.6)


def docs_files(results: Sequence[CaseResult], arms: Sequence[RangedArm], rows: Sequence[Row]) -> dict[str, str]:
    """Name and text of each file."""
    from fleetsim.tell.markdown import markdown_files
    from fleetsim.validate.told import document

    return markdown_files(document(results, len(results), arms, rows), STEM, "Published runs, predicted")
