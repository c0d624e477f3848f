"""docs/validation.md: what was fitted, what was predicted, what was assumed, and every error."""

from __future__ import annotations

from collections.abc import Sequence

from fleetsim.report.validation_words import SIDES, fit_words, gate_rows, percent, predicted_side, role
from fleetsim.tell.document import number
from fleetsim.validate.assumptions import STATED
from fleetsim.validate.verdict import CaseResult, summary

PLOT = "validation.svg"

INTRO = """\
# Published runs, predicted

Real RL post-training runs that others published, simulated. This page is written by

    fleetsim validate --write docs

and CI fails when it has drifted (`fleetsim validate --check docs`). `fleetsim validate` prints the same tables,
`--json` everything behind them, `--case C01` one case. The figures, their sources and every setting stand in
`scenarios/published/*.case.yaml`.

## How to read it

**One scalar is fitted per case at most, on the baseline arm alone; all other arms are predicted.** The scalar is what
the source leaves open: the *mean length* where it is not published; the *decode slowdown* (a multiplier of every
iteration of every instance) where lengths and the trainer's seconds are; the *trainer's seconds* where lengths are and
the trainer's are not. Nothing is ever fitted on a predicted arm.

**Inputs of a predicted arm** are its published configuration (GPUs, split, caps, staleness), its published mean
length, and, by one rule for all cases, the seconds of its trainer's own computation where they are published
(`update_actor`, `fwd_bwd`): a planner measures those on the trainer alone. Its waits, its step time, its tokens per
second and its totals are never inputs; they are what is predicted. The column *from this arm* names every such input.

**Not blind.** Many settings that a source leaves out were looked up in its code and its other publications after a
first comparison had shown that something was off (which split, what its FLOP/s count, whether CUDA graphs were on).
Each has its source beside it and holds for every arm of its case, but the page proves less than a prediction made
before the fact.

**Errors.** *error* is predicted / published - 1. *ratio* is the same after both are divided by the baseline arm's: how
well the simulation tells what a change does. A bottleneck is what the authors name, or what their waits show; the
simulated one is *trainer* if the trainer waits for samples less than 3 % of the time, else the client's cap if it was
reached, else *generation*.

## What is assumed in every case
"""


def validation_page(results: Sequence[CaseResult]) -> str:
    """The whole page."""
    blocks = [INTRO, "\n".join(f"- {text}" for text in STATED) + "\n", "## The gates\n", gates(results)]
    blocks.append(f"![Errors of all arms]({PLOT})\n")
    for result in results:
        blocks += case_section(result)
    return "\n".join(blocks)


def gates(results: Sequence[CaseResult]) -> str:
    """The table of gates, and the arms that miss one."""
    total = summary(results)
    rows = ["| gate | wanted | reached | |", "| --- | --- | --- | --- |"]
    rows += [f"| {g} | {w} | {r} | {'holds' if ok else '**missed**'} |" for g, w, r, ok in gate_rows(total)]
    text = "\n".join(rows) + "\n"
    if total.missed:
        text += f"\nArms that miss: {', '.join(total.missed)}. Each has a paragraph below.\n"
    return text


def case_section(result: CaseResult) -> list[str]:
    """One case: sources, fit, assumptions, arms, readings."""
    case = result.case
    trust = "read in the source" if case.trust == "primary" else "excerpts of issues and pull requests"
    blocks = [f"## {case.id}: {case.title}\n"]
    blocks.append(f"Sources ({trust}): " + "; ".join(" ".join(s.split()) for s in case.sources) + ".\n")
    note = f" The figure is {' '.join(case.measure_note.split())}." if case.measure_note else ""
    blocks.append(fit_words(result) + note + "\n")
    if case.assumed:
        blocks.append("Assumed here beside the list above:\n")
        blocks.append("\n".join(f"- {' '.join(text.split())}" for text in case.assumed) + "\n")
    blocks.append(arms_table(result))
    if result.wrong_order:
        blocks.append("Wrong order: " + "; ".join(f"{a} and {b}" for a, b in result.wrong_order) + ".\n")
    blocks += [f"**{a.arm.name}.** {' '.join(a.arm.reading.split())}\n" for a in result.arms if a.arm.reading]
    if case.reading:
        blocks.append(" ".join(case.reading.split()) + "\n")
    return blocks


def arms_table(result: CaseResult) -> str:
    """Predicted and published, side by side."""
    unit = {"step_s": "s per step", "tok_s": "tok/s"}[result.case.measure]
    rows = [
        f"| arm | | published, {unit} | predicted | error | ratio | waits | binds, published | predicted "
        "| from this arm |",
        "| --- | --- | ---: | ---: | ---: | ---: | ---: | --- | --- | --- |",
    ]
    for arm in result.arms:
        published = "-" if arm.arm.published is None else number(arm.arm.published)
        wrong = " **(wrong)**" if arm.bottleneck is False else ""
        name = arm.arm.name + ("" if arm.arm.gated else " (not gated)")
        relative = f" (over {arm.arm.reference})" if arm.arm.reference else ""
        rows.append(
            f"| {name} | {role(result, arm)} | {published}{relative} | {number(arm.predicted)} | {percent(arm.error)} "
            f"| {percent(arm.ratio_error)} | {arm.figures.wait_share:.0%} | {SIDES.get(arm.arm.bottleneck or '', '-')} "
            f"| {predicted_side(arm)}{wrong} | {arm.arm.inputs or '-'} |"
        )
    return "\n".join(rows) + "\n"
