"""docs/reference/json.md: the top levels of every command's document, from documents that the commands wrote."""

from __future__ import annotations

import json
import os
import tempfile
from collections.abc import Iterator, Mapping
from contextlib import chdir
from typing import Any
from unittest import mock

import typer.main
from reference_cli import commands
from typer.testing import CliRunner

from fleetsim.cli.main import app
from fleetsim.quantities import CATALOGUE

SMALL = ("--set", "trainer.batch_samples=64", "--set", "run.replications=2", "--set", "workload.output_tokens=200")
# The command (without which its document is left out), and arguments that make it write one soon.
DOCUMENTS: tuple[tuple[str, tuple[str, ...]], ...] = (
    ("size", ("--batch", "64", "--len", "200", "--replications", "2")),
    (
        "split",
        (
            "--gpus",
            "4",
            "--max-staleness",
            "4",
            "--batch",
            "64",
            "--len",
            "200",
            "--model",
            "Qwen/Qwen2.5-1.5B",
            "--replications",
            "2",
        ),
    ),
    ("plan", ("--gpus", "4", "--batch", "64", "--len", "200", "--model", "Qwen/Qwen2.5-1.5B", "--replications", "2")),
    ("simulate", ("async-one-step", *SMALL, "--steps", "12")),
    ("compare", ("async-one-step", "sync-colocated", "--replications", "2", "--steps", "12")),
    ("sweep", ("async-one-step", *SMALL, "--steps", "12", "--grid", "fleet.instances=2,3", "--workers", "1")),
    ("replay", ("--from", "history.om")),
    ("validate", ("--case", "C01")),
)
METRICS = {name for quantity in CATALOGUE for name in (quantity.name, quantity.name.partition(".")[0])}
# So many metrics side by side are not listed by name.
FEW = 4
# The scenario has a page of its own, and the introduction says what a fact has.
ELSEWHERE = ("scenario", "facts")
INTRO = """\
# JSON documents

`--json` prints one document: sorted keys, full precision, no timestamps; numbers that JSON does not know are null. The
same seed gives the same bytes. `fleetsim scenario schema --result COMMAND` prints its JSON Schema.

Here are the keys of the first level; what stands below one is listed once, for the
first command that has it.

A key without a type is text, *n* a number, *e* an estimate (`{mean, ci_low, ci_high}`: the mean over replications with
its 95 % interval), *o* an object, *b* true or false, *?* null or a value; `[]` a list. *metrics* stands for
[metrics](metrics.md) by their names.

`facts` is the table from which terminal, page and Markdown select, by name: each fact with its `name`, its words
(`said`), the `line` of the brief that it stands in, and where it is a figure its `value`, `unit`, `low` and `high`, and
what it lies between them for (`of`: doubt about *inputs*, or the *seeds* alone).
`brief` is what a terminal shows first.

"""


def page() -> str:
    """The whole page."""
    known = {path for path, _ in commands(typer.main.get_command(app))}
    chosen = [(name, arguments) for name, arguments in DOCUMENTS if name in known]
    with tempfile.TemporaryDirectory() as folder:
        run(("simulate", "async-one-step", "--replications", "1", "--openmetrics", "history.om"), folder)
        texts = [run((name, *arguments, "--json"), folder) for name, arguments in chosen]
    parts, seen = [], set()
    for (name, _), text in zip(chosen, texts, strict=True):
        parts += [f"## fleetsim {name} --json\n", *keys(json.loads(text), seen), ""]
    return INTRO + "\n".join(parts)


def run(arguments: tuple[str, ...], folder: str) -> str:
    """What a command prints. Raises RuntimeError where it fails."""
    kept = {k: v for k, v in os.environ.items() if not k.startswith("FLEETSIM_")}
    with chdir(folder), mock.patch.dict(os.environ, kept, clear=True):
        done = CliRunner().invoke(app, list(arguments))
    if done.exit_code:
        raise RuntimeError(f"fleetsim {' '.join(arguments)} exits with {done.exit_code}:\n{done.output}")
    return done.stdout


def keys(document: Mapping[str, Any], seen: set[tuple[str, ...]]) -> Iterator[str]:
    """The keys of the first level, then those below each that no earlier command had."""
    yield ", ".join(kind(key, value) for key, value in document.items())
    below: dict[str, str] = {}
    for key, value in document.items():
        inner = value[0] if isinstance(value, list) and value else value
        if not isinstance(inner, dict) or key in ELSEWHERE or is_estimate(inner):
            continue
        told = (key, *inner)
        if told not in seen:
            seen.add(told)
            others = [kind(name, held) for name, held in inner.items() if name not in METRICS]
            if len(inner) - len(others) >= FEW:
                others.append("*metrics*")
            else:
                others = [kind(name, held) for name, held in inner.items()]
            said = ", ".join(others)
            same = next((name for name, text in below.items() if text == said), None)
            below[key] = f"as `{same}`" if same else said
    yield from ("", *(f"- `{key}`: {said}" for key, said in below.items())) if below else ()


def is_estimate(value: Any) -> bool:
    """Whether it is a mean with its interval."""
    return isinstance(value, dict) and set(value) == {"mean", "ci_low", "ci_high"}


def kind(name: str, value: Any) -> str:
    """A key with the type of its value, in a letter."""
    if isinstance(value, list):
        return kind(f"{name}[]", value[0] if value and not isinstance(value[0], list) else "")
    letter = (
        "?" if value is None else "b" if isinstance(value, bool) else "n" if isinstance(value, (int, float)) else ""
    )
    letter = ("e" if is_estimate(value) else "o") if isinstance(value, dict) else letter
    return f"`{name}` {letter}".strip()
