"""docs/reference/json.md: the top levels of every command's document, from documents that the commands wrote."""

from __future__ import annotations

import json
import os
import subprocess
import sys
import tempfile
from collections.abc import Iterator, Mapping
from concurrent.futures import ThreadPoolExecutor
from pathlib import Path
from typing import Any

import typer.main
from reference_cli import commands

from fleetsim.cli.main import app

ROOT = Path(__file__).resolve().parents[1]
SMALL = ("--set", "trainer.batch_samples=64", "--set", "run.replications=2", "--set", "workload.output_tokens=200")
# The command (without which its document is left out), and arguments that make it write one soon.
DOCUMENTS: tuple[tuple[str, tuple[str, ...]], ...] = (
    ("size", ("--batch", "64", "--len", "200", "--replications", "2")),
    ("split", ("--gpus", "4", "--batch", "64", "--len", "200", "--model", "Qwen/Qwen2.5-1.5B", "--replications", "2")),
    ("plan", ("--gpus", "4", "--batch", "64", "--len", "200", "--model", "Qwen/Qwen2.5-1.5B", "--replications", "2")),
    ("simulate", ("async-one-step", *SMALL, "--steps", "12")),
    ("compare", ("async-one-step", "sync-colocated", "--replications", "2", "--steps", "12")),
    ("sweep", ("async-one-step", *SMALL, "--steps", "12", "--grid", "fleet.instances=2,3", "--workers", "1")),
    ("replay", ("--from", "history.om")),
    ("validate", ("--case", "C01")),
)
INTRO = """\
# JSON documents

`--json` prints one document: sorted keys, full precision, no timestamps; numbers that JSON does not know are null. The
same seed gives the same bytes. Here are the keys of the first two levels, by type.
An *estimate* is `{mean, ci_low, ci_high}`, the mean over replications with its 95 % interval.

"""


def page() -> str:
    """The whole page."""
    known = {path for path, _ in commands(typer.main.get_command(app))}
    chosen = [(name, arguments) for name, arguments in DOCUMENTS if name in known]
    with tempfile.TemporaryDirectory() as folder:
        run(("simulate", "async-one-step", "--replications", "1", "--openmetrics", "history.om"), folder)
        with ThreadPoolExecutor(2) as pool:
            texts = list(pool.map(lambda d: run((d[0], *d[1], "--json"), folder), chosen))
    parts = []
    for (name, _), text in zip(chosen, texts, strict=True):
        parts += [f"## fleetsim {name} --json\n", "| key | type |", "| --- | --- |", *keys(json.loads(text)), ""]
    return INTRO + "\n".join(parts)


def run(arguments: tuple[str, ...], folder: str) -> str:
    """What a command prints. Raises RuntimeError where it fails."""
    kept = {k: v for k, v in os.environ.items() if not k.startswith("FLEETSIM_") or k == "FLEETSIM_CACHE_DIR"}
    done = subprocess.run(
        [sys.executable, "-m", "fleetsim", *arguments],
        cwd=folder, env={**kept, "PYTHONPATH": str(ROOT)}, text=True, capture_output=True, check=False,
    )  # fmt: skip
    if done.returncode:
        raise RuntimeError(f"fleetsim {' '.join(arguments)} exits with {done.returncode}:\n{done.stderr}")
    return done.stdout


def keys(document: Mapping[str, Any]) -> Iterator[str]:
    """A row per key of the first two levels; the scenario has a page of its own."""
    for key, value in document.items():
        yield f"| `{key}` | {kind(value)} |"
        inner, mark = (value[0], "[]") if isinstance(value, list) and value else (value, "")
        if isinstance(inner, dict) and key != "scenario" and not is_estimate(inner):
            yield from (f"| `{key}{mark}.{name}` | {kind(below)} |" for name, below in inner.items())


def is_estimate(value: Any) -> bool:
    """Whether it is a mean with its interval."""
    return isinstance(value, dict) and set(value) == {"mean", "ci_low", "ci_high"}


def kind(value: Any) -> str:
    """The type of a JSON value, in a word."""
    if value is None:
        return "null, or a value"
    if isinstance(value, bool):
        return "true or false"
    if isinstance(value, (int, float)):
        return "number"
    if isinstance(value, str):
        return "text"
    if isinstance(value, list):
        return f"list of {kind(value[0])}s" if value and not isinstance(value[0], list) else "list"
    return "estimate" if is_estimate(value) else "object"
