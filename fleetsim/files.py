"""Files that are written: a command's are checked before the work, and each is complete or not there at all.

A command never replaces a file; what Python asks for replaces one.
"""

from __future__ import annotations

import contextlib
import os
import sys
from collections.abc import Iterator, Mapping
from pathlib import Path

from fleetsim.errors import InputError, OutsideError, Problem

# Where Windows locks a byte that nothing is written to.
_FAR = 2**40


def hold(handle: int) -> bool:
    """Locks an open file for this process, until it is closed; False where another process has it."""
    try:
        if sys.platform == "win32":
            import msvcrt

            at = os.lseek(handle, 0, os.SEEK_CUR)
            os.lseek(handle, _FAR, os.SEEK_SET)
            msvcrt.locking(handle, msvcrt.LK_NBLCK, 1)
            os.lseek(handle, at, os.SEEK_SET)
        else:
            import fcntl

            fcntl.flock(handle, fcntl.LOCK_EX | fcntl.LOCK_NB)
    except OSError:
        return False
    return True


def new_file(flag: str, output: str, overwrite: bool = False) -> Path:
    """The file that a flag names, checked before the work for it begins. Raises InputError."""

    def refuse(rule: str, remedy: str) -> InputError:
        return InputError([Problem(flag, output, rule, remedy)])

    if not output or "\0" in output:
        raise refuse("is no file name", "give one, for example job.yaml")
    if output == "-":
        raise refuse("is no file: stdout is for the answer", "give a file")
    try:
        with contextlib.suppress(FileNotFoundError):  # most outputs; another reason is the user's to mend
            os.lstat(output)
        if os.path.isdir(output):
            raise refuse("is a directory", "give a file")
        if not os.path.isdir(os.path.dirname(output) or "."):
            raise refuse("its folder does not exist", "create it first")
        if os.path.lexists(output) and not overwrite:
            raise refuse(
                "exists already",
                "choose another name" + (", or overwrite it with --force" if flag == "--output" else ", or remove it"),
            )
    except (OSError, ValueError) as error:
        raise refuse(f"is no usable path: {reason(error)}", "give a file") from None
    return Path(output)


def apart(outputs: Mapping[str, str | None]) -> None:
    """Outputs of one command are files of their own: flag -> path, None where not given. Raises InputError."""
    first: dict[str, str] = {}
    problems = []
    for flag, output in outputs.items():
        if not output or "\0" in output:
            continue
        other = first.setdefault(os.path.realpath(output), flag)
        if other != flag:
            problems.append(Problem(flag, output, f"is the place of {other} as well", "give each a name of its own"))
    if problems:
        raise InputError(problems)


def write_text(place: Path, text: str) -> None:
    """A text file, written beside its place and moved there. Raises OutsideError."""
    try:
        data = text.encode("utf-8")
    except ValueError as error:
        raise unwritten(place, error) from None
    write_bytes(place, data)


def write_bytes(place: Path, data: bytes) -> None:
    """A file, written beside its place and moved there. Raises OutsideError."""
    with whole(place) as beside:
        beside.write_bytes(data)


@contextlib.contextmanager
def whole(place: Path) -> Iterator[Path]:
    """A file beside `place` to be written; it is moved there after the block, or removed if the block fails.

    Raises OutsideError.
    """
    beside = place.with_name(f".{place.name}.{os.getpid()}")
    try:
        yield beside
        beside.replace(place)
    except (OSError, ValueError) as error:
        raise unwritten(place, error) from None
    finally:
        with contextlib.suppress(OSError, ValueError):
            beside.unlink(missing_ok=True)


def replace_file(path: str | os.PathLike[str], content: str | bytes) -> Path:
    """Writes the file that Python names, text as UTF-8; an existing one is replaced. Raises OutsideError."""
    place = Path(path)
    try:
        if isinstance(content, bytes):
            place.write_bytes(content)
        else:
            place.write_text(content, encoding="utf-8")
    except (OSError, ValueError) as error:  # ValueError: a zero byte in the name
        raise unwritten(place, error) from None
    return place


def unwritten(place: str | Path, error: Exception, flag: str = "") -> OutsideError:
    """The error that says why a place, given by a flag, could not be written to."""
    return OutsideError(f"{flag} {str(place)!r}: cannot be written: {reason(error)}".lstrip())


def reason(error: Exception) -> str:
    """What the operating system says, without numbers and paths."""
    return getattr(error, "strerror", None) or str(error)
