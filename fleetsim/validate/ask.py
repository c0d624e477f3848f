"""`validate`: published runs, predicted; what is said of them, and the page of docs that is written or held against."""

from __future__ import annotations

import os
from collections.abc import Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import TYPE_CHECKING, Any

from fleetsim.errors import InputError, Interrupted, OutsideError, Problem
from fleetsim.files import reason
from fleetsim.job.result import SILENT, Briefed, Watch, unchanging
from fleetsim.records import as_dict

if TYPE_CHECKING:
    from fleetsim.tell.document import Document
    from fleetsim.validate.groups import Row
    from fleetsim.validate.run import RangedArm
    from fleetsim.validate.verdict import CaseResult, Summary

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


@unchanging
@dataclass(frozen=True, slots=True, eq=False)
class ValidateResult(Briefed):
    """Cases and their predictions. of: cases that there are. arms: a row for each. ranges: of the arms whose ranges as
    a plan tells them were asked for. warnings: what is not there."""

    cases: tuple[CaseResult, ...]
    of: int
    arms: tuple[Row, ...]
    ranges: tuple[RangedArm, ...] = ()
    warnings: tuple[str, ...] = ()

    @property
    def summary(self) -> Summary:
        """Gates, and whether they hold."""
        from fleetsim.validate.groups import summed

        return summed(self.cases, self.arms)

    def told(self) -> Document:
        """What there is to say of the cases that were asked for."""
        from fleetsim.validate.facts import document

        return document(self.cases, len(self.cases), self.ranges, self.arms)

    def page(self, watch: Watch = SILENT) -> str:
        """What the command writes under --html."""
        from fleetsim.tell.page import document_page
        from fleetsim.validate.facts import document

        return document_page(document(self.cases, self.of, self.ranges, self.arms))

    def rows(self) -> list[dict[str, Any]]:
        """The rows of -o csv."""
        return [as_dict(row) for row in self.arms]

    def document(self) -> dict[str, Any]:
        """What the command prints under --json: gates, assumptions and every arm.

        `error` is predicted / published - 1, `ratio_error` the same relative to the baseline arm; null where nothing is
        published. `blind`: with nothing of an arm but its configuration. `arms`: one row for each, with the range of
        its figure, and `groups` what they come to.
        """
        from fleetsim.tell.data import versions
        from fleetsim.validate.case import STATED
        from fleetsim.validate.groups import groups_of, held_share

        total, told = self.summary, [as_dict(a) | {"held": a.held} for a in self.ranges]
        return {
            **versions("validate"),
            "assumed": list(STATED),
            "summary": {**as_dict(total), "holds": total.holds},
            "groups": [as_dict(group) for group in groups_of(self.arms)],
            "arms": [as_dict(row) | {"held": row.held} for row in self.arms],
            "cases": [_case(result) for result in self.cases],
            **({"ranges": {"held": held_share(self.ranges), "arms": told}} if told else {}),
            **({"warnings": list(self.warnings)} if self.warnings else {}),
        }

    def docs(self) -> dict[str, str]:
        """Name and text of each file of the page in docs."""
        from fleetsim.tell.page import markdown_files

        return markdown_files(self.told(), STEM, "Published runs, predicted")

    def write_docs(self, folder: Path) -> None:
        """Writes the page and its picture. Raises OutsideError."""
        try:
            for name, text in self.docs().items():
                (folder / name).write_text(text, encoding="utf-8")
        except OSError as error:
            raise OutsideError(f"{folder}: cannot be written to: {reason(error)}") from None

    def drifted(self, folder: Path) -> bool:
        """Whether the page there says something else. A missing page has drifted."""
        from fleetsim.tell.page import same

        page = f"{STEM}.md"
        try:
            written = (folder / page).read_text(encoding="utf-8")
        except OSError:
            return True
        # a fit stops at a step of its own on another processor: its arms move by a fraction of a percent
        return not same(written, self.docs()[page], relative=0.02, absolute=0.6)


def validate(
    case: Sequence[str] = (), cases: str | None = None, *, ranges: bool = False, watch: Watch = SILENT
) -> ValidateResult:
    """Published cases, one scalar of each fitted, everything else predicted.

    case: ids of those that are wanted, else all. cases: a folder of others (*.case.yaml). ranges: every arm with its
    range as a plan tells it. Raises InputError, StuckError; Interrupted with what was simulated until then.
    """
    from fleetsim.validate.case import case_files, load_cases, shipped
    from fleetsim.validate.groups import rows_of
    from fleetsim.validate.ledger import read_ledger
    from fleetsim.validate.run import ranged_arms, run_cases

    folder = None if cases is None else Path(cases)
    loaded = load_cases(tuple(case), folder)
    order, of, ledger = [c.id for c in loaded], len(case_files(folder)), read_ledger(folder or shipped())

    def result(
        found: Sequence[CaseResult], arms: Sequence[RangedArm] = (), warnings: Sequence[str] = ()
    ) -> ValidateResult:
        return ValidateResult(tuple(found), of, rows_of(found, ledger), tuple(arms), tuple(warnings))

    watch.loaded()
    watch("simulating published runs")
    watch.at(0, len(order))
    try:
        found = run_cases(loaded, progress=lambda done: watch.at(order.index(done) + 1, len(order)))
        if ranges:
            watch("moving what is not certain to both ends of its interval")
        return result(found, ranged_arms(found) if ranges else ())
    except Interrupted as cut:
        known = None if cut.known is None else result(cut.known, (), [f"interrupted: {cut.missing}"])
        raise Interrupted(known, cut.missing) from None


def _case(result: CaseResult) -> dict[str, Any]:
    from fleetsim.validate.verdict import role

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
