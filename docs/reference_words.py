"""docs/reference/metrics.md, words.md and exit_codes.md: names and their meaning, from where the code keeps them."""

from __future__ import annotations

from reference_cli import cell, table

from fleetsim.errors import EXIT_CODES
from fleetsim.job.words import BINDINGS
from fleetsim.quantities import CATALOGUE, OBSERVED, WINDOW_METRICS, Quantity
from fleetsim.replay.diagnose.finding import QUESTIONS
from fleetsim.replay.result import METRICS as FIGURES
from fleetsim.replay.result import formula
from fleetsim.size.words import PARTS

METRICS_INTRO = """\
# Metrics

## Of a simulated run

Every name is a key of `metrics` in JSON (dots are levels), and what `--fail-if 'NAME>NUMBER'` of `simulate`, `size` and
`split` understands. The window is what is left after [warm-up](../model.md#metrics); every value is the mean over
replications, with its 95 % interval. A share is 0 to 1.

| name | is | unit | formula | better |
| --- | --- | --- | --- | --- |
"""
REPLAY_INTRO = """
## Of a window of history

What `fleetsim replay --fail-if` understands, over the window that was read. A condition on a value that the window does
not have counts as tripped: unknown is not passed. [Which Prometheus metrics they are read from](../metrics.md). These
have the formula that stands above: {shared}. And these their own:

"""
WORDS_INTRO = """\
# Words in results

## What binds

`binding` in JSON: what to change if the step should be shorter ([how it is decided](../model.md#metrics)).

| word | means | what lifts it |
| --- | --- | --- |
"""
CHECKS_INTRO = """
## Checks of a replay

`check` of a finding, in the order in which they are asked. `state` is `fault`, `ok` or `unknown` (the data cannot say).

"""
PARTS_INTRO = """
## Parts of the headroom

`headroom.parts` of `size`: [what a fleet loses of its nameplate rate](../advice.md#size), cause by cause.

"""
WINDOWS_INTRO = """
## Of two windows of history

What [`compare`](../compare.md) reads in each window. Those named as above are the same, as far as metrics show them:
{shared}. And these:

| name | is | unit | formula | better |
| --- | --- | --- | --- | --- |
"""
CODES_INTRO = """\
# Exit codes

The same for every command.

"""
UNITS = {"seconds": "s", "share": "share", "money": "US dollars", "number": "", "count": ""}


def metrics_page() -> str:
    """docs/reference/metrics.md."""
    own = {m.name for m in OBSERVED}
    shared = ", ".join(f"`{name}`" for name in WINDOW_METRICS if name not in own)
    windows = WINDOWS_INTRO.format(shared=shared) + "\n".join(map(_row, OBSERVED)) + "\n"
    runs = METRICS_INTRO + "\n".join(map(_row, CATALOGUE)) + "\n"
    above = {m.name: m.formula for m in CATALOGUE}
    same = [name for name in FIGURES if formula(name) == above.get(name)]
    replay = REPLAY_INTRO.format(shared=", ".join(f"`{name}`" for name in same))
    return runs + replay + table(("name", "is"), {n: formula(n) for n in FIGURES if n not in same}) + windows


def _row(m: Quantity) -> str:
    return f"| `{m.name}` | {cell(m.title)} | {UNITS[m.unit]} | {cell(m.formula)} | {m.better or ''} |"


def words_page() -> str:
    """docs/reference/words.md."""
    rows = [f"| `{name}` | {cell(b.meaning)} | {cell(b.lift)} |" for name, b in BINDINGS.items()]
    checks = {str(check): asks for check, asks in QUESTIONS.items()}
    return (
        WORDS_INTRO
        + "\n".join(rows)
        + "\n"
        + CHECKS_INTRO
        + table(("check", "asks"), checks)
        + PARTS_INTRO
        + table(("part", "is"), PARTS)
    )


def codes_page() -> str:
    """docs/reference/exit_codes.md."""
    return CODES_INTRO + table(("code", "means"), {str(code): meaning for code, meaning in EXIT_CODES.items()})
