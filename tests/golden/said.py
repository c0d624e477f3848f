"""What a call said as one text, where it is kept, and what differs between two of them."""

from __future__ import annotations

import datetime
import difflib
import json
import re
import shlex
from pathlib import Path

import fleetsim
from tests.golden.call import Call
from tests.golden.calls import CALLS
from tests.golden.files import file_text
from tests.golden.run import Ended, Workshop
from tests.golden.shortened import json_text

SAID = Path(__file__).parent / "said"
# A number as people and machines write it; a sign or a letter before it is a part of the words.
_FIGURE = re.compile(r"(?<![\w.])\d[\d,]*(?:\.\d+)?(?:e[+-]?\d+)?")
_NEAR = 1e-6
# Lines that whoever waits long is told, and only on a slow machine.
_WAITED = re.compile(r"still working: .*|[\d,]+ of [\d,]+, .*left")


def told(call: Call, workshop: Workshop) -> str:
    """Runs the call; returns its golden as it is now."""
    ended = workshop.run(call)
    return _fixed(_written(call, ended), workshop.root)


def golden(name: str) -> Path:
    """The file in which the golden of this call is kept."""
    return SAID / f"{name}.txt"


def differs(name: str, now: str) -> str:
    """A unified diff of the golden and what is said now; empty where they are the same."""
    kept = golden(name)
    before = kept.read_text(encoding="utf-8") if kept.exists() else ""
    lines = difflib.unified_diff(before.splitlines(), now.splitlines(), f"said/{name}.txt", "now", lineterm="")
    return "\n".join(lines)


def alike(before: str, now: str) -> bool:
    """Whether both have the same words, and figures equal to 1e-6 or to the last digit shown: the exponential of one
    processor is not that of another, to the bit."""
    if _FIGURE.sub("#", before) != _FIGURE.sub("#", now):
        return False
    return all(map(_near, _FIGURE.findall(before), _FIGURE.findall(now)))


def unkept() -> list[str]:
    """Goldens that no call has."""
    names = {call.name for call in CALLS}
    return sorted(f.name for f in SAID.glob("*") if f.stem not in names)


def _near(a: str, b: str) -> bool:
    if a == b:
        return True
    x, y = (float(text.replace(",", "")) for text in (a, b))
    shown = max(_digit(a), _digit(b))
    return abs(x - y) <= max(_NEAR * max(x, y), 1.001 * shown if shown < 1 else 0.0)


def _digit(text: str) -> float:
    """The value of one in the last digit shown."""
    mantissa, _, exponent = text.partition("e")
    return 10.0 ** (int(exponent or 0) - len(mantissa.partition(".")[2]))


def _written(call: Call, ended: Ended) -> str:
    command = shlex.join(["fleetsim", *call.argv]) if call.argv else call.code.strip()
    settings = " ".join([f"COLUMNS={call.columns}", *(f"{k}={v}" for k, v in call.variables)])
    parts = [f"{command}\n--- {settings}, exit code {ended.code}"]
    parts += [
        f"--- {name}\n{text}" for name, text in (("stdout", _document(ended.out)), ("stderr", _told(ended.err))) if text
    ]
    parts += [f"--- wrote {name}\n{file_text(place)}" for name, place in ended.files.items()]
    lines = "\n".join(part.rstrip("\n") for part in parts).splitlines()
    return "\n".join(line.rstrip() for line in lines) + "\n"


def _told(err: str) -> str:
    return "".join(line for line in err.splitlines(keepends=True) if not _WAITED.fullmatch(line.rstrip("\n")))


def _document(out: str) -> str:
    if not out.startswith("{"):
        return out
    try:
        return json_text(out)
    except json.JSONDecodeError:
        return out


def _fixed(text: str, root: Path) -> str:
    """The text without what differs from day to day and from place to place."""
    for place in {str(root), str(root.resolve())}:
        text = text.replace(place, "TMP")
    text = text.replace(str(Path(fleetsim.__file__).parents[1]), "HERE")
    text = re.sub(r" at 0x[0-9a-f]+>", " at ADDRESS>", text)
    version = re.escape(fleetsim.__version__)
    text = re.sub(rf'(fleetsim_version": "|\bfleetsim ){version}', r"\1VERSION", text)
    today = datetime.datetime.now(datetime.UTC).date().isoformat()
    return re.sub(rf"{today}(T\d\d:\d\d:\d\d)?", "TODAY", text)
