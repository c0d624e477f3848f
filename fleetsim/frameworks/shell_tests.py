"""What follows from words: whether a test holds, `[ ... ]` of its words, `[[ ... ]]` of its tree; what `seq` prints.

None: that is not known. What `read` and `mapfile` take.
"""

from __future__ import annotations

import re
from collections.abc import Callable, Iterable, Sequence
from posixpath import basename, dirname, normpath
from typing import TYPE_CHECKING

from fleetsim.frameworks.shell_values import UNKNOWN, UNSET, Undecided, Value, fits, integer, is_known
from fleetsim.frameworks.shell_words import WordReader, source_of, sum_of

if TYPE_CHECKING:
    from tree_sitter import Node

_COMPARED: dict[str, Callable[[int, int], bool]] = {
    "-eq": int.__eq__,
    "-ne": int.__ne__,
    "-lt": int.__lt__,
    "-le": int.__le__,
    "-gt": int.__gt__,
    "-ge": int.__ge__,
}
_WHOLE = re.compile(r"-?\d{1,9}")
_CHANGE = re.compile(r"s([#|,/])((?:(?!\1)[\w/ .^$(|)+?*-])+)\1([\w/ .-]*)\1")  # whose expression is Python's as well
_MOST_LISTED = 100  # a loop that waits counts further
_BINARY = frozenset({*_COMPARED, "=", "==", "!=", "<", ">", "-nt", "-ot", "-ef", "=~"})


def all_of(answers: Iterable[bool | None]) -> bool | None:
    """Whether all hold: not, if one does not."""
    answers = set(answers)
    return False if False in answers else None if None in answers else True


def negated(answer: bool | None) -> bool | None:
    """The other answer, if there is one."""
    return None if answer is None else not answer


def holds(shell: WordReader, words: Sequence[str]) -> bool | None:
    """`test words`."""
    for sign in ("-o", "-a"):
        if len(words) > 2 and sign in words[1:-1] and not (len(words) == 3 and words[1] in _BINARY):
            at = words.index(sign, 1)
            both = holds(shell, words[:at]), holds(shell, words[at + 1 :])
            return all_of(both) if sign == "-a" else negated(all_of(map(negated, both)))
    match list(words):
        case []:
            return False
        case [word]:
            return shell.decided(word)
        case [left, sign, right] if sign in _BINARY:
            return _compared(shell, left, sign, right, None)
        case ["!", *rest]:
            return negated(holds(shell, rest))
        case ["(", *rest, ")"]:
            return holds(shell, rest)
        case [sign, word]:
            return _of_one(shell, sign, word)
    return None


def holds_in_double_brackets(shell: WordReader, node: Node) -> bool | None:
    """`[[ node ]]`."""
    named = node.named_children
    sign = "".join(source_of(child) for child in node.children if not child.is_named or child.type == "test_operator")
    operands = [child for child in named if child.type != "test_operator"]
    match node.type, operands:
        case "test_command" | "parenthesized_expression", [inner]:
            return holds_in_double_brackets(shell, inner)
        case "unary_expression" | "negated_command", [inner] if sign == "!":
            return negated(holds_in_double_brackets(shell, inner))
        case "unary_expression", [inner]:
            return _of_one(shell, sign, shell.text(inner))
        case "binary_expression", [left, right] if sign in ("&&", "||"):
            first = holds_in_double_brackets(shell, left)
            if first is (sign == "||"):
                return first
            both = first, holds_in_double_brackets(shell, right)
            return all_of(both) if sign == "&&" else negated(all_of(map(negated, both)))
        case "binary_expression", [left, right]:
            turned = left.type == "unary_expression" and source_of(left).startswith("!")
            left = left.named_children[-1] if turned else left
            same = _compared(shell, shell.text(left), sign, shell.text(right), shell.pattern(right))
            return negated(same) if turned else same
    return shell.decided(shell.text(node))


def _of_one(shell: WordReader, sign: str, word: str) -> bool | None:
    if sign in ("-n", "-z"):
        return shell.decided(word) if sign == "-n" else negated(shell.decided(word))
    if sign == "-v" and word.isidentifier():
        shell.presumed = shell.presumed or word not in shell.values
        return shell.values.get(word) is not None
    return None


def _compared(shell: WordReader, left: str, sign: str, right: str, pattern: str | None) -> bool | None:
    """pattern: the right side as `[[` reads it; None for `[`."""
    shell.presumed = shell.presumed or UNSET in left + right
    if sign in _COMPARED:
        try:
            compared = _COMPARED[sign](integer(left), integer(right))
        except Undecided:
            return False if pattern is None and is_known(left + right) else None
        return compared and (pattern is not None or bool(left.strip() and right.strip()))  # `[` calls nothing an error
    if sign in ("=", "==", "!="):
        # `NAME=${NAME:-}` asks for it: it is nothing.
        left, right = ("" if side == UNSET * 2 else side.replace(UNSET, "") or side for side in (left, right))
        if not (left and right) and set(pattern or "").isdisjoint("*?["):
            same = negated(shell.decided(left + right))
        elif pattern is not None:
            same = fits(left, pattern)
        else:
            same = left == right if is_known(left + right) else None
        return negated(same) if sign == "!=" else same
    if sign == "=~":
        shell.assign("BASH_REMATCH", UNKNOWN)
        found = _expression(right, left)
        return None if found is None else bool(found.search(left))
    return (left < right) == (sign == "<") if sign in ("<", ">") and is_known(left + right) and left != right else None


def _expression(expression: str, text: str) -> re.Pattern[str] | None:
    """An expression that is Python's as well, and quick; None for another, and where it or the text is not known."""
    if not is_known(text + expression) or sum(map(expression.count, "+*{?")) > 1 or "[:" in expression:
        return None
    try:
        return re.compile(expression)
    except re.error:
        return None


def asks_for_npu(words: Sequence[str]) -> bool:
    """Whether a command finds out if there is an Ascend NPU: an answer is of GPUs, so that there is none."""
    return words[:1] == ["npu-smi"] or any("import torch_npu" in word for word in words)


def printed(words: Sequence[str], folder: Value, given: Value) -> str | None:
    """What `basename`, `cat`, `dirname`, `echo`, `expr`, `pwd`, `realpath`, `sed s/this/that/` and `seq` print; None
    for every other command, and where that is not known. folder: where a command runs. given: what it reads."""
    match words:
        case ["realpath", path] if path.startswith("/"):
            return normpath(path)
        case ["sed", *form, program] if form in ([], ["-E"]) and given and (change := _CHANGE.fullmatch(program)):
            # The older expressions mean these signs by themselves.
            found = _expression(change[2], str(given)) if form or set(change[2]).isdisjoint("(|)+?") else None
            return None if found is None else found.sub(change[3], str(given).rstrip("\n"), count=1)
        case ["cd" | "true" | ":" | "set" | "shopt" | "trap" | "ulimit" | "sleep", *_]:
            return ""
        case ["pwd", *_] if isinstance(folder, str) and folder.startswith((UNKNOWN, "/")):
            return folder
        case ["expr", a, ("+" | "-" | "*" | "/" | "%") as sign, b] if _WHOLE.fullmatch(a) and _WHOLE.fullmatch(b):
            return str(sum_of(f"{a}{sign}{b}")) if sign in "+-*" or int(b) else None
        case ["cat"] | ["cat", "-"] if isinstance(given, str):
            return given.removesuffix("\n")
        case ["echo", *texts] if not "".join(texts[:1]).startswith("-") and not any("\\" in text for text in texts):
            return " ".join(texts)
        case ["basename", path, *suffix] if is_known(basename(path.rstrip("/"))):
            name = basename(path.rstrip("/"))
            return name.removesuffix(suffix[0]) if suffix and suffix[0] != name else name
        case ["dirname", path] if is_known(basename(path.rstrip("/"))):
            return dirname(path.rstrip("/")) or "."
        case ["seq", *ends] if 0 < len(ends) < 4 and all(map(_WHOLE.fullmatch, ends)):
            first, *way, last = map(int, ends if len(ends) > 1 else ("1", *ends))
            step = way[0] if way else 1
            listed = range(first, last + (1 if step > 0 else -1), step) if step else range(0)
            return "\n".join(map(str, listed)) if len(listed) <= _MOST_LISTED else None
    return None


def read(words: Sequence[str], given: str, between: Value) -> dict[str, Value] | None:
    """The variables that `read ...` or `mapfile ...` sets, and what is left to read, by "<"; None: not known.

    given: what there is to read. between: the variable IFS.
    """
    if not is_known(given) or (between is not None and not isinstance(between, str)):
        return None
    signs = " \t\n" if between in (None, UNSET) else str(between)
    if words[0] != "read":
        lines = words[0] != "getopts" and words[1:2] == ["-t"] and len(words) == 3
        return {words[2]: tuple(given.splitlines()), "<": ""} if lines else None
    names, ends, array, rest = list[str](), "\n", False, iter(words[1:])
    for word in rest:
        letters = word[1:] if word.startswith("-") else ""
        if not letters:
            names.append(word)
        elif letters[-1] in "nNtui" or (not set(letters) <= set("rasdep")):
            return None
        elif letters[-1] == "d":
            ends = next(rest, "")
        elif letters[-1] == "p":
            next(rest, "")
        array = array or "a" in letters
    text, _, left = given.partition(ends) if ends else (given, "", "")
    blank = "".join(sign for sign in signs if sign.isspace())
    text = text.strip(blank) if blank else text
    around = f"[{re.escape(blank)}]*" if blank else ""
    cut = re.compile(f"{around}[{re.escape(signs)}]{around}" if signs else r"(?!)")
    most = -1 if array else len(names) - 1  # of cuts; 0 is no limit there
    fields = (cut.split(text, max(most, 0)) if most else [text]) if text else []
    if array:
        return {names[0]: tuple(fields), "<": left} if names else None
    return {**dict.fromkeys(names, ""), **dict(zip(names, fields, strict=False)), "<": left} if names else None
