"""Writes docs/size.svg, the picture at the top of the README: `fleetsim size --batch 512 --len 1536`, in a terminal.

    python docs/make_picture.py

It runs what the command runs and renders what the command prints; only the frame is drawn here.
"""

from __future__ import annotations

import io
import re
from pathlib import Path

from rich.console import Console
from rich.terminal_theme import TerminalTheme

from fleetsim.job.job import job_from_flags
from fleetsim.size.facts import document
from fleetsim.size.size import size
from fleetsim.tell.terminal import draw, warning_lines

PLACE = Path(__file__).with_name("size.svg")
COMMAND = "fleetsim size --batch 512 --len 1536"
COLUMNS = 100

# Dark, with enough contrast for the dim parts; black, red, green, yellow, blue, magenta, cyan, white twice.
_COLOURS = [
    (40, 44, 52), (224, 108, 117), (152, 195, 121), (229, 192, 123), (97, 175, 239), (198, 120, 221), (86, 182, 194),
    (220, 223, 228),
]  # fmt: skip
THEME = TerminalTheme((24, 26, 31), (220, 223, 228), _COLOURS, _COLOURS)


def picture() -> str:
    """The SVG."""
    job = job_from_flags(None, (), {"batch": 512, "len": 1536.0})
    result = size(job.scenario, given=job.given, notes=job.notes)
    console = Console(record=True, width=COLUMNS, file=io.StringIO(), force_terminal=True, highlight=False)
    console.print(f"[bold green]$[/] [bold]{COMMAND}[/]")
    console.print(draw(document(result)))
    if result.warnings:
        console.print()
        console.print(warning_lines(result.warnings))
    # A fixed id: the same answer gives the same file. Without the fonts that rich would fetch from another host:
    # whoever looks at it has a monospaced one.
    drawn = console.export_svg(title="fleetsim", theme=THEME, unique_id="fleetsim-size")
    return re.sub(r"\s*@font-face \{[^}]*\}", "", drawn)


if __name__ == "__main__":
    PLACE.write_text(picture(), encoding="utf-8")
    print(f"wrote {PLACE}")
