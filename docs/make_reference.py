"""The reference, from the code: commands, scenario keys, metrics, words, exit codes, JSON documents and their schemas.

python docs/make_reference.py            write docs/reference and fleetsim/tell/schemas
python docs/make_reference.py --check    the same without writing; exit 1 if a page would change
"""

from __future__ import annotations

import sys
from collections.abc import Callable
from pathlib import Path

sys.path.insert(0, str(Path(__file__).resolve().parents[1]))
import reference_cli
import reference_json
import reference_scenario
import reference_schemas
import reference_words

FOLDER = Path(__file__).resolve().parent / "reference"
PAGES: dict[str, Callable[[], str]] = {
    "cli.md": reference_cli.page,
    "scenario.md": reference_scenario.page,
    "metrics.md": reference_words.metrics_page,
    "words.md": reference_words.words_page,
    "exit_codes.md": reference_words.codes_page,
    "json.md": reference_json.page,
}
SCHEMAS = FOLDER.parents[1] / "fleetsim" / "tell" / "schemas"
NOTE = "<!-- Written by python docs/make_reference.py from the code; CI fails when it has drifted. -->\n\n"


def main() -> int:
    """Writes or checks all pages; returns the exit code."""
    check, drifted = "--check" in sys.argv[1:], []
    pages = {FOLDER / name: NOTE + page().rstrip() + "\n" for name, page in PAGES.items()}
    pages |= {SCHEMAS / name: text for name, text in reference_schemas.schemas().items()}
    for path, text in pages.items():
        if not check:
            path.parent.mkdir(exist_ok=True)
            path.write_text(text, encoding="utf-8")
        elif not path.exists() or path.read_text(encoding="utf-8") != text:
            drifted.append(path.name)
    if drifted:
        print(f"docs/reference has drifted ({', '.join(drifted)}): run python docs/make_reference.py", file=sys.stderr)
    return int(bool(drifted))


if __name__ == "__main__":
    sys.exit(main())
