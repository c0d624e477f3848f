"""Scripts run by bash against stubs, for comparison with what is read from their text.

    python -m tests.frameworks.stubbed CHECKOUT [PART OF A SCRIPT'S NAME ...]

runs every script of a git repository in a jail: a folder that is its root, with a network and processes of its own, an
unprivileged user, and few seconds. There is no program but bash, some that change text, and one stub with many names:
it keeps its words, and answers as a machine of eight GPUs would. It needs root, for `chroot`.
"""

from __future__ import annotations

import os
import re
import shutil
import signal
import subprocess
import sys
import tempfile
from collections import Counter
from collections.abc import Iterator, Sequence
from difflib import unified_diff
from pathlib import Path
from subprocess import DEVNULL

from msgspec import Struct, field

from fleetsim.frameworks.arguments import of_slurm
from fleetsim.frameworks.shell import expanded
from fleetsim.frameworks.shell_values import Words
from fleetsim.frameworks.source import training_of
from tests.frameworks.bash import LAUNCHERS, PROGRAMS, RECORDER, agrees, recorded

# `exec` and `command -v` want a file of a stub's name.
FILES = LAUNCHERS | {"curl", "docker", "hostname", "jq", "megatron", "nvidia-smi", "openrlhf", "rl", "swift", "trl"}
IN_JAIL = {*PROGRAMS, "awk", "cut", "echo", "find", "grep", "head", "ls", "mkdir", "mkfifo", "mktemp", "readlink"}
IN_JAIL |= {"sh", "sort", "tail", "tee", "touch", "tr", "uniq", "wc", "xargs"}
# After it has kept its words.
ANSWERS = """\
ulimit() { :; }
answer() {
  case "$*" in
    "nvidia-smi topo"*) printf 'GPU%s NV18 NV18\\n' 0 1 2 3 4 5 6 7 ;;
    nvidia-smi*memory*) printf '81559\\n%.0s' 1 2 3 4 5 6 7 8 ;;
    nvidia-smi*) printf 'GPU %s: NVIDIA H100 80GB HBM3\\n' 0 1 2 3 4 5 6 7 ;;
    "hostname -"[iI]*) echo 127.0.0.1 ;;
    hostname*|whoami*|uname*) echo stub ;;
    nproc*) echo 96 ;;
    date*) echo 20261201 ;;
    scontrol*) printf 'node%s\\n' 0 1 2 3 4 5 6 7 ;;
    *cluster_resources*) echo 4096 ;;
    lsof*|npu-smi*|*torch_npu*) return 1 ;;
    env\\ *|nohup\\ *|numactl\\ *|setsid\\ *|srun\\ *|stdbuf\\ *|sudo\\ *|timeout\\ *|uv\\ run\\ *)
      while [[ $# -gt 0 && $1 != bash && $1 != sh ]]; do [[ $1 != [A-Za-z_]*=* ]] || export "$1"; shift; done
      "$@" ;;
  esac
}
"""
STUB_FILE = '#!/bin/bash\n[[ ${BASH_SOURCE[0]} == "$0" ]] || return 0\ncommand_not_found_handle "${0#/bin/}" "$@"\n'
SCRIPTS = (".sh", ".bash", ".sbatch", ".slurm")
READ_BY_SCRIPTS = (*SCRIPTS, ".env", ".yaml", ".yml", ".json", ".toml")
NOBODY = 65534
MOST_TRIES, SECONDS = 12, 8
_MISSING = re.compile(r"(cd: )?(\S+): No such file or directory")
_RUNS = re.compile(r"\b(?:ba)?sh\b.* \S+\.sh\b")  # a script, of which the commands are kept as well
_UNSET = re.compile(r"line \d+: \$?(\w+)(?:\[.*?\])?: ")


class Trial(Struct):
    """How a script of this text is run: with which variables and arguments, in which folder. asked: what it missed."""

    text: str
    variables: dict[str, str]
    arguments: list[str] = field(default_factory=list)
    folder: str = "/work"
    asked: set[str] = field(default_factory=set)

    def asks(self) -> bool:
        """Give it what it may ask for where it started nothing: variables that it tests, then arguments."""
        asked = set(re.findall(r'-z +"?\$\{?([A-Za-z]\w*)', self.text)) - self.variables.keys()
        self.variables |= dict.fromkeys(asked, "1")
        if asked or not re.search(r"\$\{?[1#]", self.text) or self.arguments == ["0"] * 4:
            return bool(asked)
        # A node's number among them is the first node's.
        self.arguments = ["0"] * 4 if len(self.arguments) == 4 else [*self.arguments, "1"]
        return True


class Jail:
    """The scripts of a checkout with bash, stubs and nothing else; other files are there, and empty.

    Files belong to root; the user who runs scripts may add some, which `clean` takes away.
    """

    def __init__(self, root: Path, repository: str) -> None:
        self.root, self.tree = root, root / "work"
        for name in ("bin", "record", "dev", "proc", "tmp", "work", "root"):
            (root / name).mkdir()
        (root / "usr").symlink_to(".")
        for program in IN_JAIL:
            self._add_program(str(shutil.which(program)), root / "bin" / program)
        os.mknod(root / "dev/null", 0o20666, os.makedev(1, 3))
        (root / "dev/null").chmod(0o666)
        (root / "dev/fd").symlink_to("/proc/self/fd")
        (root / "env.sh").write_text(RECORDER.format(folder="/record").rstrip("}\n") + '\n  answer "$@"\n}\n' + ANSWERS)
        for name in FILES:
            self._add_stub(root / "bin" / name)
        self._add_checkout(repository)
        for folder, _, _ in os.walk(root):
            os.chmod(folder, 0o777)
        self.own = set(self._files())
        self.scripts = sorted(os.path.relpath(path, self.tree) for path in self.own if path.endswith(SCRIPTS))

    def _add_program(self, source: str, place: Path) -> None:
        shutil.copy(source, place)
        needs = subprocess.run(["ldd", source], capture_output=True, text=True, check=False).stdout
        for library in re.findall(r"(/\S+) \(0x", needs):
            (self.root / library[1:]).parent.mkdir(parents=True, exist_ok=True)
            shutil.copy(library, self.root / library[1:])

    def _add_checkout(self, repository: str) -> None:
        git = ["git", f"--git-dir={next(Path(repository).glob('**/objects')).parent}", "-c", "core.quotePath=false"]
        listed = subprocess.run([*git, "ls-tree", "-rl", "HEAD"], capture_output=True, text=True, check=True).stdout
        for line in listed.splitlines():
            about, _, name = line.partition("\t")
            mode, _, blob, size = about.split()
            place = self.tree / name
            place.parent.mkdir(parents=True, exist_ok=True)
            is_link, text = mode == "120000", b""
            if is_link or (size.isdigit() and name.endswith(READ_BY_SCRIPTS)):
                text = subprocess.run([*git, "cat-file", "blob", blob], capture_output=True, check=True).stdout
            if is_link:
                place.symlink_to(text.decode())
            elif mode.startswith("100"):
                place.write_bytes(text)
                place.chmod(int(mode[3:], 8))

    def _add_stub(self, place: Path) -> None:
        place.parent.mkdir(parents=True, exist_ok=True)
        place.write_text(STUB_FILE)
        place.chmod(0o755)

    def _files(self) -> Iterator[str]:
        for folder, folders, names in os.walk(self.root):
            yield from (os.path.join(folder, name) for name in (*folders, *names))

    def clean(self) -> None:
        """Take away what a script made."""
        for path in sorted(set(self._files()) - self.own, key=len, reverse=True):
            (os.rmdir if os.path.isdir(path) and not os.path.islink(path) else os.remove)(path)

    def run(self, script: str, trial: Trial) -> str:
        """Run a script of the checkout. What it said of errors."""
        for path in (self.root / "record").iterdir():
            path.unlink()
        env = {"PATH": "/bin", "BASH_ENV": "/env.sh", "HOME": "/root", "LC_ALL": "C", **trial.variables}
        command = [str(shutil.which("unshare")), "--net", "--pid", "--fork", f"--mount-proc={self.root}/proc"]
        command += [str(shutil.which("chroot")), f"--userspec={NOBODY}:{NOBODY}", str(self.root), "/bin/bash", "-c"]
        command += [
            'builtin ulimit -t 5 -f 2048 -u 300 -v 2000000; cd "$0" && exec bash "$@"',
            trial.folder,
            f"/work/{script}",
            *trial.arguments,
        ]
        # Into a file: a process that outlives the jail would keep a pipe open.
        with tempfile.TemporaryFile() as said:
            ran = subprocess.Popen(command, env=env, stdin=DEVNULL, stdout=DEVNULL, stderr=said, start_new_session=True)
            try:
                ran.wait(timeout=SECONDS)
            except subprocess.TimeoutExpired:
                os.killpg(ran.pid, signal.SIGKILL)  # with its first process, all of the jail ends
                ran.wait()
            said.seek(0)
            return said.read().decode("utf-8", "replace")

    def gives(self, script: str, said: str, trial: Trial) -> bool:
        """Put there what a script missed: a folder, a program, a file to source, a variable. Whether that was new."""
        before = len(trial.asked)
        for line in said.splitlines():
            missing, unset = _MISSING.search(line), _UNSET.search(line)
            what = missing[2] if missing else unset[1] if unset else ""
            if not what or what in trial.asked:
                continue
            place = self.root / os.path.normpath(os.path.join(trial.folder, what))[1:]
            if not place.resolve().is_relative_to(self.root.resolve()):  # a link of the checkout's
                continue
            if missing and not what.startswith("/") and (self.tree / script).parent.joinpath(what).exists():
                trial.folder = f"/work/{os.path.dirname(script)}"
            elif missing and missing[1]:
                place.mkdir(parents=True, exist_ok=True)
                place.chmod(0o777)
            elif missing and "/" in what.strip("/"):
                self._add_stub(place)
            elif not missing and what.isdigit():
                trial.arguments = ["1"] * int(what)
            elif "unbound variable" in line or re.search(rf"\b{what}:?\?", trial.text):
                default = re.search(rf"\b{what}:?-([\w./-]+)\}}", trial.text)
                trial.variables[what] = default[1] if default else "1"
            else:
                continue
            trial.asked.add(what)
        return len(trial.asked) > before


class Outcome(Struct):
    """What became of a script: the words that started training, read and run, and what the reader could not know.

    verdict: `none` starts no training; `same` words; `host`: the same but for words that the reader says it does not
    know; `stops` before it starts the training; `differs`: it starts what is not read.
    """

    verdict: str
    read: Words
    ran: list[str]
    notes: list[str]


def outcome_of(jail: Jail, script: str) -> Outcome:
    """Run a script as far as it goes, and hold what starts training against what is read."""
    file = jail.tree / script
    text = file.read_text("utf-8", "replace")
    read = expanded(text, file.parent, file.name)
    commands = [[(word.replace(str(jail.root), ""), known) for word, known in words] for words, _ in read.commands]
    trial = Trial(text, dict(of_slurm(text)))
    found, most, ran, said, reached = training_of(commands), None, list[list[str]](), "", False
    for _ in range(MOST_TRIES):
        said = jail.run(script, trial)
        ran = [words for words in recorded(jail.root / "record") if not _RUNS.search(" ".join(words))]
        most = training_of([[(word, True) for word in words] for words in ran])
        reached = not found or any(agrees(found, words) for words in ran)
        if not jail.gives(script, said, trial) and (reached or not trial.asks()):
            break
    jail.clean()
    words = [word for word, _ in most or []]
    verdict = "same" if all(known for _, known in found or []) else "host"
    verdict = "none" if not found else verdict if reached else "stops"
    if words and not any(agrees(command, words) for command in commands):
        verdict = "differs"
    own = said.splitlines()[-3:] if verdict in ("stops", "differs") else []
    return Outcome(verdict, found or [], words, [*own, *read.not_understood, *read.remarks])


def main(repository: str, parts: Sequence[str]) -> None:
    """Run the scripts of a checkout; print what is read (-) and runs (+) of each that differs, and all verdicts."""
    counts = Counter[str]()
    with tempfile.TemporaryDirectory() as folder:
        jail = Jail(Path(folder), repository)
        for script in jail.scripts:
            if any(part in script for part in parts or [""]):
                outcome = outcome_of(jail, script)
                counts[outcome.verdict] += 1
                if outcome.verdict not in ("none", "same"):
                    read = [word if known else f"{word} NOT KNOWN" for word, known in outcome.read]
                    lines = [*unified_diff(read, outcome.ran, n=0, lineterm="")][2:]
                    print(f"{outcome.verdict}: {script}", *lines, *outcome.notes[:20], sep="\n    ")
    print(", ".join(f"{number} {verdict}" for verdict, number in sorted(counts.items())))


if __name__ == "__main__":
    main(sys.argv[1], sys.argv[2:])
