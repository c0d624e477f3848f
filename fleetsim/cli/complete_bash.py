"""What bash hands over when TAB is pressed: it cuts words at "=" and ":", and what it is answered goes behind the cut.

So `--set admission.law=ver` comes as `--set`, `admission.law`, `=`, `ver`, while zsh and fish hand over two words.
"""

from __future__ import annotations

import contextlib
import io
import sys
from collections.abc import Iterator, MutableMapping, Sequence

_SIGNS = frozenset("=:")


@contextlib.contextmanager
def answering(environ: MutableMapping[str, str]) -> Iterator[None]:
    """Whole words go in, and of what is printed inside, only what bash does not have yet goes out."""
    said = rejoin(environ)
    if not said:
        yield
        return
    answer = io.StringIO()
    try:
        with contextlib.redirect_stdout(answer):
            yield
    finally:
        words = [word.removeprefix(said) for word in answer.getvalue().splitlines()]
        sys.stdout.write("".join(f"{word}\n" for word in words if word))


def rejoin(environ: MutableMapping[str, str]) -> str:
    """Puts the words together again, in place. Returns how the word at the cursor begins, up to the last cut: "" where
    bash has cut nothing, or where it is not bash that asks. Without the `--set=` of an option: its value alone counts.
    """
    if environ.get("_FLEETSIM_COMPLETE") != "complete_bash" or not environ.get("COMP_CWORD", "").isdecimal():
        return ""
    # One a line: the script that the shell runs sets IFS so.
    words = environ.get("COMP_WORDS", "").split("\n")[: int(environ["COMP_CWORD"]) + 1]
    joined, said = _joined(words)
    environ["COMP_WORDS"], environ["COMP_CWORD"] = "\n".join(joined), str(len(joined) - 1)
    return said.partition("=")[2] if said.startswith("-") else said


def _joined(words: Sequence[str]) -> tuple[list[str], str]:
    """The words, and the last one as far as the last cut in it."""
    joined: list[str] = []
    said, behind = "", False
    for word in words:
        sign = bool(word) and set(word) <= _SIGNS
        if (sign or behind) and len(joined) > 1:
            joined[-1] += word
        else:
            joined.append(word)
            said = ""
        if sign:
            said = joined[-1]
        behind = sign
    return joined, said
