"""Sums and products of whole numbers as scripts write them: `1024 * 2`, `(512 * 100)`. Nothing else is evaluated."""

from __future__ import annotations

import ast
import warnings

_MOST_CHARACTERS = 200
_LARGEST = 10**15


def whole_number(text: str) -> int | None:
    """The value of an expression of whole numbers with + - * / // %, as a shell divides (towards zero); else None."""
    if len(text) > _MOST_CHARACTERS:
        return None
    try:
        with warnings.catch_warnings(action="ignore"):  # Python's opinion of `8if` is no news for the user
            return _value(ast.parse(text.strip().replace("\n", " "), mode="eval").body)
    except (SyntaxError, ValueError, RecursionError, MemoryError, ZeroDivisionError):
        return None


def _value(node: ast.expr) -> int:
    match node:
        case ast.Constant(value=int(value)) if not isinstance(value, bool):
            result = value
        case ast.UnaryOp(op=ast.USub(), operand=operand):
            result = -_value(operand)
        case ast.BinOp(left=left, op=op, right=right):
            a, b = _value(left), _value(right)
            match op:
                case ast.Add():
                    result = a + b
                case ast.Sub():
                    result = a - b
                case ast.Mult():
                    result = a * b
                case ast.Div() | ast.FloorDiv():
                    result = a // b if (a < 0) == (b < 0) or a % b == 0 else a // b + 1
                case ast.Mod():
                    result = a % b
                case _:
                    raise ValueError("operator")
        case _:
            raise ValueError("no sum")
    if abs(result) > _LARGEST:
        raise ValueError("too large")
    return result
