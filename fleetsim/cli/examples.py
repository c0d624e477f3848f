"""`fleetsim examples`: the files that README and documentation use, made here by fleetsim itself."""

from __future__ import annotations

import shlex
from contextlib import chdir, redirect_stderr, redirect_stdout
from dataclasses import dataclass
from io import StringIO
from pathlib import Path
from typing import Annotated

from fleetsim.cli.terminal import beside, columns, say
from fleetsim.job.settings import Argument

# A console log of verl's asynchronous trainer with its configuration at its head, made by tests/history/verl_log.py.
_LOG = Path(__file__).parent / "train.log.gz"
_JOB = (
    "size --batch 512 --len 1536 --model Qwen/Qwen2.5-32B --tp 2 --gpu H200 --trainer-step-s 45 --trainer-gpus 32 "
    "--sync-pause-s 1 --slowdown 1 --target-idle 0.05"
)
# File -> what it is, and the words of the command that makes it; none: it comes with fleetsim. `> FILE` is its output.
SAMPLES = {
    "job.yaml": ("the job of the guides, sized", f"{_JOB} --max-staleness 2 --save job.yaml"),
    "before.json": ("a run of job.yaml", "simulate job.yaml --json > before.json"),
    "after.json": ("the same with an instance more", "simulate job.yaml --instances 5 --json > after.json"),
    "history.om": (
        "the metrics of a fleet that loses an instance",
        "simulate async-one-step --steps 200 --set 'run.events=[{step: 100, lose_instance: 1}]' "
        "--openmetrics history.om",
    ),
    "train.log": ("the console log of a run of verl", ""),
    "run.sh": ("a configuration of verl", "scenario to verl verl-fully-async -o run.sh"),
    "engine.profile.json": (
        "the profile of an engine, estimated",
        "profile estimate --gpu H100 --model Qwen/Qwen2.5-7B -o engine.profile.json",
    ),
}


@dataclass(frozen=True, kw_only=True)
class Placed:
    """Where the files go."""

    folder: Annotated[str, Argument("The folder; it is made where there is none.", "DIR")] = "."


def examples(asked: Placed) -> None:
    """The files that README and documentation use: a job, results, a history, a log, a configuration.

    Examples:
    fleetsim examples
    fleetsim examples samples

    It takes some seconds, for fleetsim simulates them. A file that is there already is left as it is.
    """
    from fleetsim.cli.progress import progress
    from fleetsim.errors import OutsideError
    from fleetsim.files import reason

    folder = Path(asked.folder)
    there = {name for name in SAMPLES if (folder / name).exists()}
    try:
        folder.mkdir(parents=True, exist_ok=True)
        with progress("making examples") as watch, chdir(folder):
            for name in [name for name in SAMPLES if name not in there]:
                watch(f"making {name}")
                _make(name)
    except OSError as error:
        raise OutsideError(f"{folder}: {reason(error)}; give a folder that can be written to") from None
    rows = [(name, what + ("; was there already" if name in there else "")) for name, (what, _) in SAMPLES.items()]
    say("\n".join(beside(rows, columns())))
    say(f"next{f', in {folder}' if asked.folder != '.' else ''}: fleetsim simulate job.yaml", err=True)


def _make(name: str) -> None:
    """One file, into the folder at hand."""
    from fleetsim.cli.main import app
    from fleetsim.errors import OutsideError
    from fleetsim.files import write_bytes, write_text

    command, _, file = SAMPLES[name][1].partition(" > ")
    if not command:
        import gzip

        write_bytes(Path(name), gzip.decompress(_LOG.read_bytes()))
        return
    out, err = StringIO(), StringIO()
    with redirect_stdout(out), redirect_stderr(err):
        code = app(shlex.split(command), prog_name="fleetsim", standalone_mode=False)
    if code:
        raise OutsideError(f"fleetsim {command} ends with {code}:\n{err.getvalue()}")
    if file:
        write_text(Path(file), out.getvalue())
