"""Arithmetic of the shell, of the nodes of its tree: whole numbers of 64 bits, comparisons, assignments."""

from __future__ import annotations

import operator
import re
from collections.abc import Callable
from typing import TYPE_CHECKING

from fleetsim.frameworks.shell_values import UNSET

if TYPE_CHECKING:
    from tree_sitter import Node

_LARGEST_POWER = 62


class Undecided(Exception):  # noqa: N818
    """Something that cannot be known without running the script."""


def _divided(a: int, b: int) -> int:
    if b == 0:
        raise Undecided
    return abs(a) // abs(b) * (1 if (a < 0) == (b < 0) else -1)


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
                    return stored(
                        left, _of_64_bits(number if sign == "=" else _OPERATORS[sign[:-1]](value(left), number))
                    )
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
    except (KeyError, RecursionError):
        raise Undecided from None


def _of_64_bits(number: int) -> int:
    return (int(number) + 2**63) % 2**64 - 2**63
