"""The examples of README and of docs/, executed as a reader sees them: every block, in order, in an empty folder.

    python docs/check_examples.py                     a fifteenth, by the day; exit 1 where one shows something else
    python docs/check_examples.py --all               all of them
    python docs/check_examples.py --write             put what was printed into all pages
    python docs/check_examples.py docs/tutorial.md    these pages only

In a `console` block, lines that begin with "$ " are commands (a backslash carries on); what follows is what they print
on stdout, and on stderr where they fail; one that exits with another code than 0 must be followed by "$ echo $?". In a
`sh` block, and an indented one that begins with `fleetsim`, every line is a command, which must succeed; a gate
(--fail-if, --verify) may say no. Its output is not shown, so its runs are short. A page's commands run in one folder,
one after the other; the page says `fleetsim examples` where it needs files. Servers run until their page ends. What
asks a Prometheus at port 9090 gets a real one, of the examples' history. What needs more than this machine has is
named, and not run. `python` blocks run as doctests where they are sessions (">>>"), else as they stand.
A comment before a block picks what is shown of a long output, the rest becomes "...":

    <!-- show: What binds..; metrics..goodput -->

shows the paragraph that begins with the first line that has "What binds", and the lines from "metrics" to "goodput".
Figures may differ a little, and lines may break elsewhere: exp() differs in its last bit between processors.

A plain `fleetsim ...`, or `fleetsim ... > FILE`, is a fork of this process, which has imported fleetsim already:
that is a third of most commands. bash runs everything else.
"""

from __future__ import annotations

import argparse
import doctest
import importlib
import io
import multiprocessing
import os
import pkgutil
import re
import shlex
import shutil
import signal
import subprocess
import sys
import tempfile
import time
from collections.abc import Iterator, Mapping, Sequence
from contextlib import ExitStack, chdir
from dataclasses import dataclass, field
from pathlib import Path

from markdown_it import MarkdownIt

DOCS = Path(__file__).resolve().parent
ROOT = DOCS.parent
sys.path.insert(0, str(ROOT))  # run as a script, its folder is on the path and the package is not
import fleetsim  # noqa: E402
from fleetsim.tell.page import same  # noqa: E402
from tests.parts import ALL, part_of_the_day, takes, words  # noqa: E402

GAP = "..."
TIMEOUT_S = 600.0
# Between processors: a length that rounds the other way moves every later event of a run a little.
RELATIVE, ABSOLUTE = 0.02, 0.3
_HALF_WIDTH = re.compile(r"± ?[\d.,]*\d")
# Rooms that no example needs, and the kernel's sources, which compile when they are imported.
_NOT_IMPORTED = tuple(f"fleetsim.{name}" for name in ("__main__", "calibrate", "engine.kernel", "validate", "watch"))
# What no shell acts on: words, quoted or not, and one file to write to. A fork does not end beside workers of its own.
_PLAIN = re.compile(r"""fleetsim(?! sweep)(\s|\\\n|[\w./:,=+@%^-]|'[^']*')*(>\s*(?P<file>[\w.]+))?\s*""")
_FIXED = {"COLUMNS": "80", "NO_COLOR": "1", "TERM": "dumb", "TZ": "UTC", "LC_ALL": "C.UTF-8"}
_SHOW = re.compile(r"<!--\s*show:(.*?)-->", re.DOTALL)
# What a command needs that is not here, by what it says.
_OUTSIDE = {
    re.compile(r"pip install|python3 -m venv|(^|&& )tests/"): "a package index",
    re.compile(r"calibrate .*--model|calibrate --url"): "a GPU with vLLM, or a server",
    re.compile(r"--ray|RAY_"): "a Ray cluster",
    re.compile(r"profile check"): "a measured engine",
    re.compile(r"^(kubectl|helm|docker|sbatch) "): "a cluster",
    re.compile(r"\.\.\.|\b(URL|FOLDER|HOST)\b"): "what only a reader knows",
}
_SERVER = re.compile(r"prometheus --config|fleetsim (serve|watch)(?!.*--(once|help))")
_GATE = re.compile(r"--fail-if|--verify")
_UP_S = 8.0  # a server that has run so long has started
# Of a run whose output is not shown: its words decide whether the command works.
_SHORT = {"FLEETSIM_RUN__STEPS": "12", "FLEETSIM_RUN__REPLICATIONS": "2"}
_EXAMPLES = "fleetsim examples"


@dataclass(slots=True)
class Command:
    """One command of a block: as it is written, and what the page shows below it."""

    text: str
    shown: str = ""


@dataclass(slots=True)
class Block:
    """A block of commands. first, last: its lines in the page, fences apart. show: which parts of an output are shown.
    silent: no output is."""

    first: int
    last: int
    show: tuple[str, ...]
    commands: list[Command] = field(default_factory=list)
    silent: bool = False

    @property
    def text(self) -> str:
        """The block as a page has it."""
        return "".join(f"$ {c.text}\n{c.shown}" for c in self.commands)


def blocks_of(page: str) -> list[Block]:
    """The executed blocks of a page. Raises ValueError for one that does not begin with a command."""
    found: list[Block] = []
    show: tuple[str, ...] = ()
    for token in MarkdownIt().parse(page):
        if token.type == "html_block":
            match = _SHOW.search(token.content)
            show = tuple(part.strip() for part in match[1].split(";")) if match else ()
        elif token.type == "fence" and token.info.split()[:1] == ["console"] and token.map:
            block = Block(token.map[0] + 1, token.map[1] - 1, show)
            block.commands = list(_commands(token.content, block.first))
            found.append(block)
            show = ()
        elif token.map and (token.info == "sh" or (token.type == "code_block" and token.content[:9] == "fleetsim ")):
            lines = token.content.replace("\\\n", "").splitlines()
            commands = [Command(line) for line in lines if line.strip() and not line.startswith("#")]
            found.append(Block(token.map[0] + 1, token.map[1] - 1, (), commands, silent=True))
        elif token.type == "fence":
            show = ()
    return found


def _commands(content: str, line: int) -> Iterator[Command]:
    current: Command | None = None
    carried = False
    for text in content.splitlines():
        if carried and current is not None:
            current.text += f"\n{text}"
        elif text.startswith("$ "):
            if current is not None:
                yield current
            current = Command(text[2:])
        elif current is None:
            raise ValueError(f"line {line + 1}: a console block begins with a command: $ ...")
        else:
            current.shown += f"{text}\n"
            continue
        carried = text.endswith("\\")
    if current is not None:
        yield current


def picked(output: str, show: Sequence[str]) -> str:
    """The parts of an output that a page shows, with a gap line where something was left out.

    A part is `start..end` (from the first line with `start` to the next with `end`), `start..` (to the end of that
    paragraph) or `start` (that line). Raises ValueError for a part that the output does not have.
    """
    if not show:
        return output
    lines = output.splitlines()
    kept: set[int] = set()
    for part in show:
        start, dots, end = part.partition("..")
        first = next((i for i, line in enumerate(lines) if start in line), None)
        if first is None:
            raise ValueError(f"no line has {start!r}")
        last: int | None = first
        if dots and end:
            last = next((i for i in range(first, len(lines)) if end in lines[i]), None)
        elif dots:
            last = next((i - 1 for i in range(first, len(lines)) if not lines[i].strip()), len(lines) - 1)
        if last is None:
            raise ValueError(f"no line after {start!r} has {end!r}")
        kept |= set(range(first, last + 1))
    out: list[str] = []
    for i, line in enumerate(lines):
        if i in kept:
            out.append(line)
        elif not out or out[-1] != GAP:
            out.append(GAP)
    return "\n".join(out) + "\n"


def environment(folder: Path) -> dict[str, str]:
    """What commands see: this checkout as `fleetsim`, no colour, 80 columns, nobody's own settings."""
    kept = {k: v for k, v in os.environ.items() if not k.startswith("FLEETSIM_")}
    shim = folder / "bin"
    shim.mkdir(parents=True, exist_ok=True)
    program = shim / "fleetsim"
    program.write_text(f'#!/bin/sh\nexec {shlex.quote(sys.executable)} -m fleetsim "$@"\n', encoding="utf-8")
    program.chmod(0o755)
    path = os.pathsep.join([str(shim), str(Path(sys.executable).parent), kept.get("PATH", "")])
    return {**kept, **_FIXED, "PATH": path, "PYTHONPATH": str(ROOT)}


def _import_fleetsim() -> None:
    """What the commands import, in the process that is forked for each of them."""
    for module in pkgutil.walk_packages(fleetsim.__path__, "fleetsim."):
        if not module.name.startswith(_NOT_IMPORTED):
            importlib.import_module(module.name)


def _command_line(words: Sequence[str], folder: Path, env: Mapping[str, str], files: Sequence[Path]) -> None:
    """In a process of its own: the command's standard output and error go to these files."""
    os.chdir(folder)
    os.environ.clear()
    os.environ.update(env)
    time.tzset()
    for number, file in enumerate(files, 1):
        os.dup2(os.open(file, os.O_WRONLY | os.O_CREAT | os.O_TRUNC), number)
    sys.stdout, sys.stderr = (os.fdopen(number, "w", encoding="utf-8", closefd=False) for number in (1, 2))
    sys.argv = list(words)
    from fleetsim.__main__ import main

    main()


def run_command(text: str, before: int, folder: Path, env: Mapping[str, str]) -> tuple[int, str, str]:
    """Exit code, standard output and standard error of a command in this folder; before: the exit code of the last one.

    Raises TimeoutExpired.
    """
    plain = _PLAIN.fullmatch(text)
    if not plain:
        done = subprocess.run(
            ["bash", "-c", f"(exit {before})\n{text}"],
            cwd=folder, env=env, text=True, capture_output=True, timeout=TIMEOUT_S, check=False,
        )  # fmt: skip
        return done.returncode, done.stdout, done.stderr
    words = shlex.split(text.replace("\\\n", ""))
    with tempfile.TemporaryDirectory() as name:
        out, err = Path(name) / "out", Path(name) / "err"
        file = folder / plain["file"] if plain["file"] else out
        ours = words[: -2 if plain["file"] else None], folder, env, (file, err)
        process = multiprocessing.get_context("fork").Process(target=_command_line, args=ours)
        process.start()
        process.join(TIMEOUT_S)
        if process.exitcode is None:
            process.kill()
            raise subprocess.TimeoutExpired(text, TIMEOUT_S)
        return process.exitcode, out.read_text("utf-8") if file is out else "", err.read_text("utf-8")


def outside(command: str) -> str:
    """What the command needs that is not here, or nothing; a remark behind it needs nothing."""
    command = re.sub(r"\s#\s.*", "", command)
    program = next((p for p in ("promtool", "prometheus") if command.startswith(f"{p} ") and not shutil.which(p)), "")
    if ":9090" in command and not shutil.which("prometheus"):
        program = "prometheus"
    return program or next((what for words, what in _OUTSIDE.items() if words.search(command)), "")


class Page:
    """The folder in which the commands of a page run, and what runs beside them until it is closed.

    shared: a folder for what `fleetsim examples` makes, once for all pages.
    """

    def __init__(self, text: str, folder: Path, env: Mapping[str, str], shared: Path) -> None:
        self.folder, self.env, self.shared = folder, env, shared
        self.left_out: list[str] = []
        self._own_prometheus = "prometheus --config" in text
        self._servers: list[subprocess.Popen[str]] = []

    def run(self, block: Block) -> list[str]:
        """What the commands print, as the page would show it. Raises ValueError where one fails unannounced."""
        outputs, code = [], 0
        for i, command in enumerate(block.commands):
            if needed := outside(command.text):
                self.left_out.append(f"not run, for it needs {needed}: {command.text}")
                outputs.append("")
                continue
            if ":9090" in command.text and not self._own_prometheus:
                self._prometheus()
            if _SERVER.search(command.text):
                self._serve(command.text)
                outputs.append("")
                continue
            if command.text == _EXAMPLES:
                self._examples()
            env = {**self.env, **_SHORT} if block.silent and not command.text.startswith(_EXAMPLES) else self.env
            code, out, err = run_command(command.text, code, self.folder, env)
            asked = i + 1 < len(block.commands) and block.commands[i + 1].text == "echo $?"
            if code and not asked and not (block.silent and code == 10 and _GATE.search(command.text)):
                raise ValueError(f"$ {command.text}\nexits with {code}:\n{out[-2000:]}{err[-2000:]}")
            if block.silent:
                outputs.append("")
                continue
            printed = out + (err if code else "")
            tidy = "".join(f"{line.rstrip()}\n" for line in printed.splitlines())
            try:
                outputs.append(picked(tidy, block.show) if command.text != "echo $?" and tidy else tidy)
            except ValueError as error:
                raise ValueError(f"$ {command.text}\nprints something else: {error}:\n{tidy}") from error
        return outputs

    def close(self) -> None:
        """Ends the servers."""
        for server in self._servers:
            server.send_signal(signal.SIGINT)
            try:
                server.wait(30)
            except subprocess.TimeoutExpired:
                server.kill()
                server.wait()

    def _examples(self) -> None:
        """The files of `fleetsim examples`, which are made once."""
        made = self.shared / "examples"
        if not made.exists():
            work = self.shared / "examples.work"
            work.mkdir()
            code, _, err = run_command(_EXAMPLES, 0, work, self.env)
            if code:
                raise ValueError(f"$ {_EXAMPLES}\nexits with {code}:\n{err}")
            work.rename(made)
        for file in made.iterdir():
            if not (self.folder / file.name).exists():
                shutil.copy(file, self.folder)

    def _serve(self, command: str, cwd: Path | None = None) -> None:
        """Starts it, and goes on once it is up. Raises ValueError where it ends before."""
        log = Path(tempfile.mkstemp(dir=self.shared)[1])
        words = ["bash", "-c", f"exec {command}"]
        with log.open("w") as out:
            server = subprocess.Popen(words, cwd=cwd or self.folder, env=self.env, text=True, stdout=out, stderr=out)
        self._servers.append(server)
        try:
            code = server.wait(_UP_S)
        except subprocess.TimeoutExpired:
            return
        raise ValueError(f"$ {command}\nends with {code}:\n{log.read_text()[-2000:]}")

    def _prometheus(self) -> None:
        """A Prometheus at port 9090 that holds the examples' history, started once for a page."""
        self._own_prometheus = True
        self._examples()
        data = Path(tempfile.mkdtemp(dir=self.shared))
        history = self.shared / "examples" / "history.om"
        subprocess.run(
            ["promtool", "tsdb", "create-blocks-from", "openmetrics", history, data / "data"],
            check=True, capture_output=True,
        )  # fmt: skip
        (data / "prometheus.yml").write_text("{}")
        self._serve(
            "prometheus --config.file=prometheus.yml --storage.tsdb.path=data --storage.tsdb.retention.time=10y "
            "--web.listen-address=127.0.0.1:9090",
            data,
        )


def says(shown: str, printed: str) -> bool:
    """Whether the page shows what was printed: the same words, wherever lines break, and nearly the same figures.

    Half-widths of intervals are not compared: of a few replications they move by far more than the means do.
    """
    ours, theirs = (_HALF_WIDTH.sub("±", " ".join(text.split())) for text in (shown, printed))
    return same(ours, theirs, RELATIVE, ABSOLUTE)


def python_problems(page: str, name: str, folder: Path) -> list[str]:
    """What the page's Python sessions print otherwise, and what its other Python code raises."""
    blocks = [t.content for t in MarkdownIt().parse(page) if t.type == "fence" and t.info == "python"]
    problems = []
    out = io.StringIO()
    with chdir(folder):
        session = "\n".join(text for text in blocks if ">>> " in text)
        test = doctest.DocTestParser().get_doctest(session, {"__name__": "__main__"}, name, name, 0)
        if test.examples:
            doctest.DocTestRunner(optionflags=doctest.ELLIPSIS).run(test, out=out.write)
        for text in blocks:
            if ">>> " not in text:
                done = subprocess.run([sys.executable, "-c", text], text=True, capture_output=True, check=False)
                problems += [f"{text}\nfails:\n{done.stderr[-2000:]}"] if done.returncode else []
    return [*problems, *filter(None, [out.getvalue()])]


def run_page(path: Path, shared: Path, *, write: bool = False) -> tuple[int, list[str], list[str]]:
    """Runs a page's commands in a folder of their own: how many blocks it has, what differs, a text a block at most,
    and what was not run. Rewrites it if asked to.

    shared: a folder for what all pages use.
    """
    text = path.read_text(encoding="utf-8")
    lines, problems, blocks = text.splitlines(), [], blocks_of(text)
    with tempfile.TemporaryDirectory() as name, ExitStack() as ending:
        folder = Path(name) / "work"
        folder.mkdir()
        page = Page(text, folder, environment(Path(name)), shared)
        ending.callback(page.close)
        for block in blocks:
            wrong = []
            try:
                for command, printed in zip(block.commands, page.run(block), strict=True):
                    if not block.silent and not says(command.shown, printed):
                        wrong.append(f"$ {command.text}\nthe page shows:\n{command.shown}printed:\n{printed}")
                        command.shown = printed
            except (ValueError, subprocess.SubprocessError) as error:
                problems.append(str(error))
                write = False  # a page is written whole
            problems += ["\n".join(wrong)] if wrong else []
    if write and problems:
        for block in reversed([block for block in blocks if not block.silent]):
            lines[block.first : block.last] = block.text.splitlines()
        path.write_text("\n".join(lines) + "\n", encoding="utf-8")
        problems = []
    return len(blocks), problems, page.left_out


def pages() -> list[Path]:
    """README, and every page of the documentation, that has something to execute."""
    found = [ROOT / "README.md", *sorted(DOCS.rglob("*.md"))]
    return [page for page in found if "_build" not in page.parts and _executed(page.read_text(encoding="utf-8"))]


def _executed(text: str) -> bool:
    return bool(blocks_of(text)) or "```python" in text


def main() -> int:
    """Runs the pages, one after the other; returns the exit code."""
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("pages", nargs="*", type=Path)
    parser.add_argument("--all", action="store_true", help="all pages, not a fifteenth of them")
    parser.add_argument("--write", action="store_true", help="put what was printed into the pages")
    arguments = parser.parse_args()
    part = ALL if arguments.all or arguments.write else part_of_the_day()
    chosen = arguments.pages or [page for n, page in enumerate(pages()) if takes(part, "examples", n)]
    if not arguments.pages:
        print(f"examples: {words(part)}")
    failed = False
    os.environ.update(_FIXED)
    _import_fleetsim()

    with tempfile.TemporaryDirectory() as shared:
        for path in chosen:
            began = time.monotonic()
            count, problems, left_out = run_page(path, Path(shared), write=arguments.write)
            said = f"{len(problems)} of {count} blocks FAIL" if problems else f"{count} blocks ok"
            print("\n  ".join([f"{time.monotonic() - began:5.1f} s  {path}: {said}", *left_out]), flush=True)
            failed |= bool(problems)
            for problem in problems:
                print(problem, file=sys.stderr)
    for path in chosen:
        with tempfile.TemporaryDirectory() as name:
            found = python_problems(path.read_text(encoding="utf-8"), str(path), Path(name))
        failed |= bool(found)
        print(*found, sep="\n", end="", file=sys.stderr)
    if failed:
        print("python docs/check_examples.py --write puts what is printed now into the pages", file=sys.stderr)
    return int(failed)


if __name__ == "__main__":
    sys.exit(main())
