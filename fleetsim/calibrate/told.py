"""The terminal view of a profile, and of the profiles that there are."""

from __future__ import annotations

from collections.abc import Sequence

from rich.console import Group, RenderableType
from rich.padding import Padding
from rich.text import Text

from fleetsim import units
from fleetsim.calibrate.known_profiles import Listed
from fleetsim.calibrate.sheets import sheets_of
from fleetsim.calibrate.words import batch_words, opening
from fleetsim.config.profile import BatchCheck, Profile
from fleetsim.tell.characters import bar
from fleetsim.tell.document import Table
from fleetsim.tell.terminal import drawn, grid, section

MEASURED, PREDICTED = "█", "▒"
_BAR_WIDTH = 40


def profile_report(profile: Profile, give: str) -> Group:
    """Everything that `fleetsim profile show` prints. give: how the user names the profile."""
    blocks: list[RenderableType] = [Text(profile.name, style="bold"), *(Text(line) for line in opening(profile))]
    before, *others = sheets_of(profile)
    blocks.append(_sheet(before))
    if profile.checks:
        title = f"batches kept out of the fit ({MEASURED} measured, {PREDICTED} predicted)"
        blocks.append(section(title, batches(profile.checks)))
    blocks += [_sheet(sheet) for sheet in others]
    blocks.append(section("next", _next(profile, give)))
    return Group(*blocks)


def batches(checks: Sequence[BatchCheck]) -> Group:
    """Each kept-out batch: its makespan measured and predicted as bars, its errors in words."""
    longest = max(max(c.makespan_s, c.predicted_s) for c in checks)
    lines: list[RenderableType] = []
    for check in checks:
        table = grid("", "", "", align=("left", "right", "left"))
        for name, seconds, character in (
            ("  measured", check.makespan_s, MEASURED),
            ("  predicted", check.predicted_s, PREDICTED),
        ):
            width = round(_BAR_WIDTH * seconds / longest) if longest > 0 else 0
            table.add_row(name, f"{seconds:,.1f} s", bar([(1.0, character)], width))
        lines += [Text(check.name), table, Padding(Text(batch_words(check), style="dim"), (0, 0, 0, 2))]
    return Group(*lines)


def list_lines(listed: Sequence[Listed]) -> list[str]:
    """A line for every profile, never broken: what --profile takes, and what it is."""
    rows = [("profile", "GPU", "model", "TP", "engine", "date", "error")]
    for one in listed:
        p, error = one.profile.provenance, one.profile.error.median
        engine = f"{p.engine} {p.engine_version}".strip()
        rows.append(
            (
                one.give,
                p.gpu.removeprefix("NVIDIA ") or "?",
                p.model.rstrip("/").rpartition("/")[2] or "?",
                str(p.tp or "?"),
                engine if one.profile.kind == "measured" else f"derived from {p.source or engine or '?'}",
                p.date,
                "?" if error is None else units.share(error),
            )
        )
    widths = [max(map(len, column)) for column in zip(*rows, strict=True)]
    return ["  ".join(c.ljust(w) for c, w in zip(row, widths, strict=True)).rstrip() for row in rows]


def _sheet(sheet: Table) -> RenderableType:
    return section(sheet.title, drawn(sheet))


def _next(profile: Profile, give: str) -> Group:
    lines: list[RenderableType] = [Text(f"fleetsim size --batch 512 --len 1536 --profile {give}", style="bold")]
    if profile.checks and profile.raw is not None:
        lines.append(Text(f"fleetsim profile check {give}", style="bold"))
    lines.append(Text(f"fleetsim profile show {give} --html profile.html", style="bold"))
    return Group(*lines)
