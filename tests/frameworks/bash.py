"""What bash starts when it runs a script, for comparison with what is read from the script's text."""

from __future__ import annotations

import os
import shutil
import subprocess
from pathlib import Path

from fleetsim.frameworks.shell import Script

LAUNCHERS = {"python", "python3", "torchrun", "ray", "accelerate", "uv", "srun", "sbatch", "deepspeed"}
# No program is on PATH but these; bash calls this function for every other, which keeps its words in a file of its own.
PROGRAMS = ("bash", "basename", "cat", "dirname", "expr", "realpath", "sed", "seq")
# What ms-swift is told by its environment stands before its words. A script ends when what it put behind itself has.
# A file's name is the number of its process: bash makes them in the script's order, also where one that was put behind
# writes late.
RECORDER = """\
trap wait EXIT
command_not_found_handle() {{
  case $1 in swift|megatron)
    [[ ${{NPROC_PER_NODE@a}} != *x* ]] || set -- "NPROC_PER_NODE=$NPROC_PER_NODE" "$@"
    [[ ${{NNODES@a}} != *x* ]] || set -- "NNODES=$NNODES" "$@" ;;
  esac
  printf '%s\\0' "$@" > "{folder}/$BASHPID"
}}
"""


def there_is_bash() -> bool:
    """Whether there is a bash of version 5."""
    bash = shutil.which("bash")
    says = ["-c", "echo -n ${BASH_VERSINFO[0]}"]
    return bool(bash and int(subprocess.run([bash, *says], capture_output=True, check=True).stdout) >= 5)


def started_by_bash(script: str, folder: Path) -> list[list[str]]:
    """The words of every launcher that bash starts, in order. folder: an empty one, where it runs."""
    return [words for words in all_started(script, folder) if os.path.basename(words[0]) in LAUNCHERS]


def all_started(script: str, folder: Path, home: str = "/root") -> list[list[str]]:
    """The words of every program that bash would start, in order. folder: an empty one, where it runs."""
    for name in ("bin", "record"):
        (folder / name).mkdir()
    for program in PROGRAMS:
        (folder / "bin" / program).symlink_to(str(shutil.which(program)))
    (folder / "env.sh").write_text(RECORDER.format(folder=folder / "record"))
    (folder / "run.sh").write_text(script)
    env = {"PATH": str(folder / "bin"), "BASH_ENV": str(folder / "env.sh"), "HOME": home, "LC_ALL": "C.UTF-8"}
    command = [str(shutil.which("bash")), "run.sh"]
    with subprocess.Popen(command, env=env, cwd=folder, stdout=subprocess.DEVNULL, stderr=subprocess.PIPE) as ran:
        said = ran.communicate(timeout=60)[1]
    assert b"syntax error" not in said, said
    return recorded(folder / "record", ran.pid)


def recorded(folder: Path, first: int = 0) -> list[list[str]]:
    """The words that were kept, in order. first: number of the process that started the others."""
    # Numbers start again from the lowest after the highest, of which there are at most 2^22.
    records = sorted(folder.iterdir(), key=lambda path: (int(path.name) - first) % 2**22)
    return [path.read_bytes().decode("utf-8", "replace").split("\0")[:-1] for path in records]


def started_as_read(script: Script) -> list[list[tuple[str, bool]]]:
    """The words of every launcher that was found in the text, and whether all of a word is known."""
    return [words for words, _ in script.commands if os.path.basename(words[0][0]) in LAUNCHERS]


def agrees(read: list[tuple[str, bool]], ran: list[str]) -> bool:
    """Whether words are those that ran, where a word that is not known stands for any number of them."""

    places = {0}
    for text, known in read:
        if known:
            places = {j + 1 for j in places if j < len(ran) and ran[j] == text}
        else:
            places = set(range(min(places, default=len(ran) + 1), len(ran) + 1))
    return len(ran) in places
