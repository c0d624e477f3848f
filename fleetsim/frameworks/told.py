"""What was taken, assumed and left out of a framework's settings: as lines, and as one document."""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from typing import Any

from fleetsim import units
from fleetsim.frameworks.convert import Imported
from fleetsim.frameworks.draft import Taken
from fleetsim.frameworks.reading import one_line

_LIST_LIMIT = 40


def report_lines(result: Imported, verbose: bool = False) -> Iterator[str]:
    """What was taken, assumed and left out, for a terminal."""
    yield f"{result.framework}: {result.mode}; the preset {result.preset} has the same semantics"
    facts = [t for t in result.taken if not _is_mode(t, result)]
    yield f"took {units.plural(len(facts), 'value')}:"
    for t in facts:
        yield f"  {' and '.join(t.settings)}  ->  {t.path} = {one_line(t.value)}" + (f"  ({t.why})" if t.why else "")
    yield "from the mode:"
    for t in result.taken:
        if _is_mode(t, result):
            yield f"  {t.path} = {one_line(t.value)}: {t.why}"
    own = any(a.remedy.startswith("-- ") for a in result.assumed)
    how = f" (what follows -- is a setting of {result.framework}, for the end of this command)" if own else ""
    yield f"assumed {units.plural(len(result.assumed), 'value')}{how}:"
    for a in result.assumed:
        yield f"  {a.path} = {one_line(a.value)}: {a.why}" + (f"; {a.remedy}" if a.remedy else "")
    if result.not_modelled:
        yield "does not model:"
        for n in result.not_modelled:
            yield f"  {n.setting}: {n.why}"
    yield from _listed("not understood", result.not_understood, verbose, always=True)
    yield from _listed("expressions that were not followed", result.remarks, verbose)
    yield from _listed("keys without a bearing on the scenario", result.not_looked_at, verbose)


def _is_mode(taken: Taken, result: Imported) -> bool:
    return taken.settings == (result.mode,)


def _listed(what: str, items: Sequence[str], verbose: bool, always: bool = False) -> Iterator[str]:
    if not items:
        return
    if not (verbose or always):
        yield f"{what}: {len(items)} (--verbose lists them)"
        return
    shown = items if verbose else items[:_LIST_LIMIT]
    yield f"{what}:"
    for item in shown:
        yield f"  {one_line(item)}"
    if len(shown) < len(items):
        yield f"  and {len(items) - len(shown)} more (--verbose)"


def report_document(result: Imported) -> dict[str, Any]:
    """The same as one JSON document, the scenario in it."""
    return {
        "schema_version": 1,
        "command": "scenario from",
        "framework": result.framework,
        "mode": result.mode,
        "preset": result.preset,
        "scenario": result.raw,
        "took": [{"path": t.path, "value": t.value, "settings": list(t.settings), "why": t.why} for t in result.taken],
        "assumed": [{"path": a.path, "value": a.value, "why": a.why, "remedy": a.remedy} for a in result.assumed],
        "not_modelled": [{"setting": n.setting, "why": n.why} for n in result.not_modelled],
        "not_understood": list(result.not_understood),
        "not_followed": list(result.remarks),
        "not_looked_at": list(result.not_looked_at),
    }
