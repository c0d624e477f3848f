"""Text of which parts may be unknown, as a shell's variables hold it: what two such values agree on, and patterns."""

from __future__ import annotations

import re
from collections.abc import Iterator, Sequence
from difflib import SequenceMatcher
from fnmatch import fnmatchcase, translate

# Two characters that Unicode keeps for private use stand for text that is not known: UNKNOWN for any text, UNSET for
# what only the environment or the command line could have set. That is presumed to be nothing where a script asks
# whether it is anything, as `${NAME:-default}` does.
UNKNOWN, UNSET = "\ue000", "\ue001"
_KEY = re.compile(r"--[A-Za-z_][\w.-]*|[+~]{0,2}[A-Za-z_][\w./@-]*=", re.DOTALL)
_MOST_COMPARED = 4000
_LONGEST_CUT = 2000

Words = list[tuple[str, bool]]  # text, and whether all of it is known
Value = str | tuple[str, ...] | None  # None: known to be unset


def is_known(text: str) -> bool:
    """Whether no part of the text is unknown."""
    return UNKNOWN not in text and UNSET not in text


def filled(text: str) -> bool | None:
    """Whether a text is more than nothing; None if that is not known."""
    rest = text.replace(UNSET, "")
    return None if rest and not rest.strip(UNKNOWN) else bool(rest)


def either(a: Value, b: Value) -> Value:
    """What is known of a value that is one of these two."""
    if a == b:
        return a
    if isinstance(a, tuple) or isinstance(b, tuple):
        return tuple(words_of_either(*((v,) if v and isinstance(v, str) and v != UNSET else v or () for v in (a, b))))
    words = [(v or "").replace(UNSET, "").split() for v in (a, b)]
    if not any(_KEY.match(word) for both in words for word in both):
        return UNKNOWN
    return " ".join(words_of_either(*words))


def words_of_either(a: Sequence[str], b: Sequence[str]) -> Iterator[str]:
    """The words of one of two command lines: those of both, and the settings of one of them without their values."""
    if len(a) + len(b) > _MOST_COMPARED:
        yield UNKNOWN
        return
    for kind, start, end, other, last in SequenceMatcher(None, a, b, autojunk=False).get_opcodes():
        ours, theirs = a[start:end], b[other:last]
        if kind == "equal":
            yield from ours
        elif len(ours) == len(theirs) and all(_key(x) == _key(y) for x, y in zip(ours, theirs, strict=True)):
            yield from (_key(word) + UNKNOWN for word in ours)
        else:
            yield from dict.fromkeys(word for side in (ours, theirs) for word in _without_values(side))


def _key(word: str) -> str:
    """The part of a word that names a setting: `--flag`, `key=`; nothing of a value."""
    match = _KEY.match(word)
    return match[0] if match else ""


def _without_values(words: Sequence[str]) -> Iterator[str]:
    flag = False
    for word in words:
        key = _key(word)
        if key:
            yield f"{key.rstrip('=')}={UNKNOWN}"
        elif not flag:
            yield UNKNOWN
        flag = bool(key) if key or word.startswith("-") else flag


def fits(text: str, pattern: str) -> bool | None:
    """Whether a pattern of the shell fits a whole text; None if that is not known."""
    if not pattern.strip("*") and pattern:
        return True
    return fnmatchcase(text, pattern.replace("[^", "[!")) if is_known(text) and is_known(pattern) else None


def literally(text: str) -> str:
    """A pattern that fits this text only."""
    return re.sub(r"([*?[])", r"[\1]", text)


def cut(text: str, sign: str, pattern: str) -> str:
    """`${text#pattern}`, `##`, `%`, `%%`: without the shortest or longest beginning or end that fits."""
    places: Sequence[int] = range(len(text) + 1)
    if sign in ("##", "%"):
        places = places[::-1]
    for at in places if len(text) <= _LONGEST_CUT and is_known(pattern) else ():
        gone, left = (text[:at], text[at:]) if sign[0] == "#" else (text[at:], text[:at])
        if fnmatchcase(gone, pattern.replace("[^", "[!")):
            # The shortest may end within what is not known.
            return left if is_known(gone) or len(sign) == 2 else UNKNOWN
    return text if is_known(text + pattern) else UNKNOWN


def replaced(text: str, sign: str, pattern: str, by: str) -> str:
    """`${text/pattern/by}`, `//` for all of it, `/#` and `/%` at the beginning or end."""
    if not is_known(text + pattern) or not pattern:
        return text if not pattern else UNKNOWN
    body = translate(pattern.replace("[^", "[!"))[:-2]
    body = {"/#": rf"\A{body}", "/%": rf"{body}\Z"}.get(sign, body)
    return re.sub(body, lambda _: by, text, count=sign != "//")
