"""What `fleetsim validate --json` writes: everything behind the page, as one document."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import asdict
from typing import Any

from fleetsim.tell.data import versions
from fleetsim.validate.case import STATED
from fleetsim.validate.run import RangedArm, held_share
from fleetsim.validate.verdict import CaseResult, role, summary


def data(results: Sequence[CaseResult], arms: Sequence[RangedArm] = ()) -> dict[str, Any]:
    """Gates, assumptions and every arm. `error` is predicted / published - 1, `ratio_error` the same relative to the
    baseline arm; null where nothing is published. `blind`: with nothing of an arm but its configuration. `ranges`: of
    the arms whose ranges were asked for."""
    total = summary(results)
    return {
        **versions("validate"),
        "assumed": list(STATED),
        "summary": {**asdict(total), "holds": total.holds},
        "cases": [_case(result) for result in results],
        **(
            {"ranges": {"held": held_share(arms), "arms": [asdict(a) | {"held": a.held} for a in arms]}} if arms else {}
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
        "fitted": None if result.fitted is None else asdict(result.fitted),
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
                "figures": asdict(arm.figures),
                "blind": {
                    "gated": unseen.arm.gated,
                    "predicted": unseen.predicted,
                    "error": unseen.error,
                    "ratio_error": unseen.ratio_error,
                    "bottleneck_right": unseen.bottleneck,
                    "figures": asdict(unseen.figures),
                },
            }
            for arm, unseen in zip(result.arms, blind.arms, strict=True)
        ],
    }
