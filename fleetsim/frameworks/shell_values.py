"""A shell's variables: text of which parts may be unknown, what two values agree on, patterns, `${NAME:-default}`.

Arithmetic of the nodes of a script's tree: whole numbers of 64 bits, comparisons, assignments.
"""

from __future__ import annotations

import operator
import re
from collections.abc import Callable, Iterator, Sequence
from difflib import SequenceMatcher
from fnmatch import fnmatchcase, translate
from typing import TYPE_CHECKING

if TYPE_CHECKING:
    from tree_sitter import Node

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


Part = tuple[str, bool] | None  # text, and whether it stood in quotes; None: one word ends here
# Variables that every shell has.
_ALWAYS_SET = frozenset(
    {*"0?$!_-", "BASH_SOURCE", "EUID", "HOME", "HOSTNAME", "PATH", "PPID", "PWD", "RANDOM", "SHELL"}
)
_MOST_CHARACTERS = 1_000_000
_MOST_NOTES = 200


class Variables:
    """Values by name; an element of an associative array by `NAME[key]`, the arguments of a script or function by `@`.

    presumed: whether something was decided by the environment's setting nothing. line: of the command at hand.
    characters: of all values so far, so that a script that doubles them ends.
    """

    def __init__(self) -> None:
        self.values: dict[str, Value] = {}
        self.presumed = False
        self.line = 0
        self.characters = 0
        self.not_understood: list[str] = []
        self.remarks: list[str] = []

    def say(self, notes: list[str], what: str) -> None:
        """Note something once."""
        note = f"line {self.line}: {what}"
        if note not in notes and len(notes) < _MOST_NOTES:
            notes.append(note)

    @property
    def too_long(self) -> bool:
        """Whether there is more text than a script has."""
        return self.characters > _MOST_CHARACTERS

    def assign(self, name: str, value: Value) -> None:
        """Give a variable a value. What grows too long is unknown."""
        self.characters += sum(map(len, value or ()))
        self.values[name] = UNKNOWN if self.too_long else value

    def decided(self, text: str) -> bool | None:
        """Whether a text is more than nothing; what only the environment could set is presumed to be nothing."""
        self.presumed = self.presumed or UNSET in text
        return filled(text)

    def items(self, name: str, index: str, at: Callable[[str], int]) -> tuple[str, ...] | None:
        """The values of a variable, an element, or all elements (index @ or *).

        None: it is known to be unset. (UNSET,): nothing here sets it. at: the place in an array that an index means.
        """
        arguments = self.values.get("@")
        if name == "#":
            if not isinstance(arguments, tuple):
                return (UNKNOWN if arguments == UNKNOWN else f"0{UNSET}",)
            return (str(len(arguments)) if all(map(is_known, arguments)) else UNKNOWN,)
        if name in "@*" or index in ("@", "*"):
            value = self.values.get("@" if name in "@*" else name, UNSET)
            return (value,) if isinstance(value, str) else value
        if name.isdigit() and name != "0":
            value, index = arguments if isinstance(arguments, tuple) else UNSET, str(int(name) - 1)
        else:
            value = self.values.get(name, UNSET)
            value = UNKNOWN if value == UNSET and name in _ALWAYS_SET else value
        if index and f"{name}[{index}]" in self.values:
            value = self.values[f"{name}[{index}]"]
        if not isinstance(value, tuple):
            return None if value is None else (value,)
        if not all(map(is_known, value)):
            return (UNKNOWN,)
        place = at(index or "0")
        return (value[place],) if -len(value) <= place < len(value) else None

    def or_default(
        self, name: str, items: tuple[str, ...] | None, sign: str, default: Callable[[], list[Part]]
    ) -> list[Part] | None:
        """What `-`, `=`, `+`, `?` (with a colon: for nothing, too) put in place of a value; None: the value itself."""
        text = "".join(items or ())
        has = self.decided(text)
        if sign[0] != ":":
            has = bool(items) and text != UNSET
        match sign[-1], has:
            case "?", _:
                if not has:
                    self.values[name] = UNKNOWN
                    return [(UNKNOWN, True)]
                return None
            case "+", None:
                return [(str(either("", joined(default()))), False)]
            case "+", _:
                return default() if has else []
            case _, None:
                return [(UNKNOWN, False)]
            case _, True:
                return None
        found = default()
        if sign[-1] == "=":
            self.assign(name, joined(found))
        return found

    def absent(self, name: str, many: bool) -> None:
        """Tell that nothing in the script sets a variable."""
        if not name.isidentifier():
            self.say(self.remarks, f"${name}")
        elif many:
            self.say(self.not_understood, f"{name} is not set in this script: its flags are missing")
        else:
            self.say(self.remarks, f"${{{name}}} is not set in this script")


def joined(parts: list[Part]) -> str:
    """Parts of a word as one text: what an assignment stores."""
    return "".join(" " if part is None else part[0] for part in parts)


def operated(text: str, sign: str, pattern: str, by: str) -> str:
    """What an operator within `${...}` makes of a value."""
    match sign:
        case "#" | "##" | "%" | "%%":
            return cut(text, sign, pattern)
        case "/" | "//" | "/#" | "/%":
            return replaced(text, sign, pattern, by)
        case "^^" | ",,":
            return text.upper() if sign == "^^" else text.lower()
        case "^" | ",":
            return (text[:1].upper() if sign == "^" else text[:1].lower()) + text[1:]
    return text


_LARGEST_POWER = 62


class Undecided(Exception):  # noqa: N818
    """Something that cannot be known without running the script."""


def _divided(a: int, b: int) -> int:
    """A quotient as a shell has it: towards zero."""
    return a // b if (a < 0) == (b < 0) or a % b == 0 else a // b + 1


def _power(a: int, b: int) -> int:
    if not 0 <= b <= _LARGEST_POWER:
        raise Undecided
    return int(a**b)


_OPERATORS: dict[str, Callable[[int, int], int]] = {
    "+": operator.add,
    "-": operator.sub,
    "*": operator.mul,
    "/": _divided,
    "%": lambda a, b: a - b * _divided(a, b),
    "**": _power,
    "<<": lambda a, b: a << (b & 63),
    ">>": lambda a, b: a >> (b & 63),
    "&": operator.and_,
    "|": operator.or_,
    "^": operator.xor,
    "&&": lambda a, b: bool(a and b),
    "||": lambda a, b: bool(a or b),
    "==": operator.eq,
    "!=": operator.ne,
    "<": operator.lt,
    "<=": operator.le,
    ">": operator.gt,
    ">=": operator.ge,
    ",": lambda _, b: b,
}


def integer(text: str) -> int:
    """The number that a text is: nothing is 0, the environment's nothing is none. Raises Undecided."""
    digits = text.replace(UNSET, "").strip()
    if not digits and UNSET not in text:
        return 0
    base, mark, rest = digits.partition("#")
    octal = re.fullmatch(r"[+-]?0[0-7]+", digits)
    try:
        return int(rest, int(base)) if mark else int(digits, 8 if octal else 0)
    except ValueError:
        raise Undecided from None


def calculated(node: Node, operand: Callable[[Node], str], assign: Callable[[str, str], None]) -> int:
    """The value of a sum. operand: the text of a variable or a word in it. assign: sets a variable.

    Raises Undecided.
    """

    def stored(target: Node, number: int) -> int:
        assign((target.text or b"").decode(), str(number))
        return number

    def value(node: Node | None) -> int:
        if node is None:
            raise Undecided
        named = node.named_children
        sign = b"".join(child.text or b"" for child in node.children if not child.is_named).decode()
        match node.type:
            case "binary_expression" | "variable_assignment" if len(named) == 2:
                left, right = named
                if sign in ("&&", "||"):
                    first = bool(value(left))
                    return int(first if first == (sign == "||") else bool(value(right)))
                if sign.endswith("=") and sign not in _OPERATORS:
                    number = value(right)
                    number = number if sign == "=" else _OPERATORS[sign[:-1]](value(left), number)
                    return stored(left, _of_64_bits(number))
                return _of_64_bits(_OPERATORS[sign](value(left), value(right)))
            case "unary_expression" | "postfix_expression" if len(named) == 1:
                number = value(named[0])
                if sign in ("++", "--"):
                    changed = stored(named[0], number + (1 if sign == "++" else -1))
                    return number if node.type == "postfix_expression" else changed
                return {"-": -number, "+": number, "!": int(not number), "~": ~number}[sign]
            case "ternary_expression" if len(named) == 3:
                return value(named[1] if value(named[0]) else named[2])
            case "parenthesized_expression" | "arithmetic_expansion" | "compound_statement" if named:
                return [value(child) for child in named][-1]
        return integer(operand(node))

    try:
        return value(node)
    except (KeyError, RecursionError, ZeroDivisionError):
        raise Undecided from None


def _of_64_bits(number: int) -> int:
    return (int(number) + 2**63) % 2**64 - 2**63
