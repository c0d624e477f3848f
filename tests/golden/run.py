"""One call in this process: what it prints, how it ends, and the files that it writes."""

from __future__ import annotations

import contextlib
import functools
import gc
import io
import os
import shutil
import signal
import sys
import traceback
import warnings
from collections.abc import Callable, Iterator
from dataclasses import dataclass
from pathlib import Path
from unittest import mock

import typer.main

from fleetsim.records import replace
from tests.golden.call import Call
from tests.golden.inputs import INPUTS
from tests.golden.server import prometheus
from tests.once import once

# Variables that would show in what a command says: width, colour, and whatever changes a scenario.
_QUIET = ("FORCE_COLOR", "PY_COLORS", "GITHUB_ACTIONS", "TERMINAL_WIDTH", "LINES", "CI", "DATABRICKS_RUNTIME_VERSION")
# Building the commands takes longer than most calls; it is done once.
_commands = functools.cache(typer.main.get_command)
_KEPT = frozenset({"FLEETSIM_CACHE_DIR", "FLEETSIM_PROCESSES"})


@dataclass(frozen=True, slots=True)
class Ended:
    """code: the exit code. files: those that the call wrote or changed, by their path in its folder."""

    code: int
    out: str
    err: str
    files: dict[str, Path]


class Workshop:
    """A folder for calls. Inputs are made once, when a call first asks for them (by the tests: once for all workers);
    each call gets copies of its own."""

    def __init__(self, root: Path) -> None:
        self.root = root
        self._made: set[str] = set()

    def run(self, call: Call) -> Ended:
        """Runs the call in a folder of its own."""
        place = self.root / call.name
        place.mkdir()
        for name in call.needs:
            self._give(name, place)
        before = _files(place)
        code, out, err = self._served(call, place) if call.served else _said(call, place)
        after = _files(place)
        return Ended(code, out, err, {name: place / name for name in after if before.get(name) != after[name]})

    def _served(self, call: Call, place: Path) -> tuple[int, str, str]:
        """The same with a Prometheus, whose URL is the word URL."""
        self._give(call.served, self.root)
        with prometheus(self.root / call.served) as url:
            argv = tuple(url if word == "URL" else word for word in call.argv)
            code, out, err = _said(replace(call, argv=argv), place)
        return code, out.replace(url, "URL"), err.replace(url, "URL")

    def _give(self, name: str, place: Path) -> None:
        """Puts the input there, made if it is not yet."""
        store = self.root / "inputs" / name
        if name not in self._made:
            store.parent.mkdir(parents=True, exist_ok=True)
            made = INPUTS[name]
            if isinstance(made, str):
                store.write_text(made, encoding="utf-8")
            elif isinstance(made, Path):
                shutil.copy(made, store)
            elif isinstance(made, bytes):
                store.write_bytes(made)
            else:
                store.write_bytes(once(("golden input", name), functools.partial(self._made_by, made, name)))
            self._made.add(name)
        shutil.copy(store, place / name)

    def _made_by(self, made: Call, name: str) -> bytes:
        """An input that a command makes: a file that it writes, or else what it prints."""
        place = self.root / f"for {name}"
        place.mkdir()
        for need in made.needs:
            self._give(need, place)
        code, out, err = _said(made, place)
        if code:
            raise RuntimeError(f"the input {name} cannot be made, exit code {code}: {err}")
        return (place / name).read_bytes() if (place / name).exists() else out.encode()


def _files(place: Path) -> dict[str, bytes]:
    return {str(f.relative_to(place)): f.read_bytes() for f in sorted(place.rglob("*")) if f.is_file()}


def _said(call: Call, place: Path) -> tuple[int, str, str]:
    """The call's exit code, stdout and stderr."""
    out, err = (io.TextIOWrapper(io.BytesIO(), encoding="utf-8", write_through=True) for _ in range(2))
    with _alone(place, call), contextlib.redirect_stdout(out), contextlib.redirect_stderr(err):
        code = _ended(_python(call.code) if call.code else _command)
    for stream in (out, err):
        stream.seek(0)
    return code, out.read(), err.read()


def _command() -> None:
    """The command line of `sys.argv`, as its console script runs it."""
    from fleetsim.__main__ import main

    main()


def _python(code: str) -> Callable[[], None]:
    def run() -> None:
        try:
            exec(compile(code, "script", "exec"), {"__name__": "__golden__"})
        except Exception as error:  # noqa: BLE001 - a golden shows what a caller would catch
            print(f"raises {type(error).__module__.partition('.')[0]}.{type(error).__name__}: {error}")

    return run


def _ended(does: Callable[[], None]) -> int:
    try:
        does()
    except SystemExit as end:
        return end.code if isinstance(end.code, int) else 0 if end.code is None else 1
    except BaseException:
        traceback.print_exc()
        raise
    return 0


@contextlib.contextmanager
def _alone(place: Path, call: Call) -> Iterator[None]:
    """The folder, arguments and environment of a fresh process; everything as it was afterwards."""
    environment, folder, argv = dict(os.environ), Path.cwd(), sys.argv
    interrupt, thresholds = signal.getsignal(signal.SIGINT), gc.get_threshold()
    for name in list(os.environ):
        if name in _QUIET or (name.startswith("FLEETSIM_") and name not in _KEPT):
            del os.environ[name]
    os.environ.update(COLUMNS=str(call.columns), NO_COLOR="1", TERM="dumb", TZ="UTC", **dict(call.variables))
    sys.argv = ["fleetsim", *call.argv]
    os.chdir(place)
    try:
        with warnings.catch_warnings(), mock.patch.object(typer.main, "get_command", _commands):
            yield
    finally:
        os.chdir(folder)
        os.environ.clear()
        os.environ.update(environment)
        sys.argv = argv
        signal.signal(signal.SIGINT, interrupt)
        gc.set_threshold(*thresholds)
        gc.unfreeze()
