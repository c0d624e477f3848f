"""The map of the house in docs/architecture.md: its floors and rooms with their lines, drawn from the imports.

python docs/make_architecture.py            write docs/img/house.svg and the list of rooms in docs/architecture.md
python docs/make_architecture.py --check    the same without writing; exit 1 if the rooms or their order would change
"""

from __future__ import annotations

import ast
import re
import sys
from collections import Counter
from collections.abc import Mapping, Sequence
from pathlib import Path

sys.path.insert(0, str(Path(__file__).resolve().parent))
sys.path.insert(0, str(Path(__file__).resolve().parents[1]))
from house import Source, arrows, layers, sources

from fleetsim.units import plural

ROOT = Path(__file__).resolve().parents[1]
PICTURE = ROOT / "docs" / "img" / "house.svg"
PAGE = ROOT / "docs" / "architecture.md"
BEGIN, END = "<!-- rooms: written by docs/make_architecture.py -->", "<!-- end of rooms -->"
WIDTH, FLOOR, ROOM_HEIGHT, MARGIN, GAP = 980, 76, 44, 16, 14

STYLE = """\
text { font: 13px system-ui, sans-serif; fill: #1b1f24; text-anchor: middle }
.small { font-size: 11px; fill: #59636e }
rect { fill: #eef2f6; stroke: #9aa5b1; rx: 6 }
path { fill: none; stroke: #6b7785; stroke-opacity: .35 }
@media (prefers-color-scheme: dark) {
  text { fill: #e6edf3 } .small { fill: #9198a1 } rect { fill: #21262d; stroke: #57606a } path { stroke: #b1bac4 }
}"""


def rooms(found: Mapping[str, Source]) -> dict[str, tuple[int, int]]:
    """Room -> (files, lines)."""
    files = Counter(s.room for s in found.values() if s.name)
    lines: Counter[str] = Counter()
    for source in found.values():
        lines[source.room] += source.lines
    return {room: (files[room], lines[room]) for room in files}


def picture(
    floors: Sequence[Sequence[str]], sizes: Mapping[str, tuple[int, int]], drawn: Mapping[tuple[str, str], int]
) -> str:
    """The floors from the top down; an arrow from a room to each that it imports, wider for more imports."""
    at: dict[str, tuple[float, float]] = {}
    boxes = []
    for level, floor in enumerate(floors):
        width = (WIDTH - 2 * MARGIN - GAP * (len(floor) - 1)) / max(len(floor), 3)
        left = (WIDTH - width * len(floor) - GAP * (len(floor) - 1)) / 2
        for k, room in enumerate(floor):
            x, y = left + k * (width + GAP), MARGIN + level * FLOOR
            at[room] = (x + width / 2, y)
            files, lines = sizes.get(room, (0, 0))
            size = f"{plural(files, 'file')}, {lines:,} lines"
            boxes.append(
                f'<rect x="{x:.0f}" y="{y}" width="{width:.0f}" height="{ROOM_HEIGHT}"/>'
                f'<text x="{x + width / 2:.0f}" y="{y + 18}">{room}</text>'
                f'<text class="small" x="{x + width / 2:.0f}" y="{y + 34}">{size}</text>'
            )
    lines_ = []
    for (room, other), count in sorted(drawn.items()):
        if room in at and other in at:
            (x0, y0), (x1, y1) = at[room], at[other]
            y0 += ROOM_HEIGHT
            middle = (y0 + y1) / 2
            path = f"M{x0:.0f} {y0}C{x0:.0f} {middle:.0f} {x1:.0f} {middle:.0f} {x1:.0f} {y1}"
            lines_.append(f'<path d="{path}" stroke-width="{min(0.6 + count / 12, 4):.1f}"/>')
    height = MARGIN + FLOOR * len(floors)
    box = f'viewBox="0 0 {WIDTH} {height}" role="img" aria-label="floors and rooms"'
    head = f'<svg xmlns="http://www.w3.org/2000/svg" {box}>'
    return "\n".join([head, f"<style>{STYLE}</style>", *lines_, *boxes, "</svg>"]) + "\n"


def table(floors: Sequence[Sequence[str]], found: Mapping[str, Source], sizes: Mapping[str, tuple[int, int]]) -> str:
    """The rooms from the top down, each with the first sentence of its own docstring."""
    rows = ["| room | what it holds | files | lines |", "| --- | --- | ---: | ---: |"]
    for floor in floors:
        for room in floor:
            files, lines = sizes.get(room, (0, 0))
            told = (ast.get_docstring(found[room].tree) or "") if room in found else ""
            first = re.split(r"(?<=[.?])\s", told.replace("\n", " "), maxsplit=1)[0].rstrip(".")
            rows.append(f"| `{room}` | {first} | {files} | {lines:,} |")
    return "\n".join(rows)


def _words(page: str) -> str:
    """The page without its counts of files and lines, which every change moves."""
    return re.sub(r"\| [\d,]+ \| [\d,]+ \|", "|", page)


def main() -> int:
    """Writes or checks; the exit code."""
    found, floors = sources(ROOT), layers(ROOT)
    sizes = rooms(found)
    page = PAGE.read_text(encoding="utf-8")
    before, _, rest = page.partition(BEGIN)
    _, _, after = rest.partition(END)
    new = f"{before}{BEGIN}\n\n{table(floors, found, sizes)}\n\n{END}{after}"
    if "--check" in sys.argv:
        if _words(new) != _words(page):
            print("docs/architecture.md: the rooms changed; python docs/make_architecture.py writes them")
            return 1
        return 0
    PAGE.write_text(new, encoding="utf-8")
    PICTURE.write_text(picture(floors, sizes, arrows(found)), encoding="utf-8")
    return 0


if __name__ == "__main__":
    sys.exit(main())
