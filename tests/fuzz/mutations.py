"""Changes to an input that still looks like one: odd values in a tree, odd numbers and damage in a text."""

from __future__ import annotations

import copy
import math
import random
import re
from typing import Any

# What stands at the ends of every type, what overflows, what a terminal or a renderer would act on.
NUMBERS: tuple[float, ...] = (
    *(0, -1, 1, 2, 7, 1e-300, 1e-9, 0.5, -0.0, 1e6, 1e9, 1e9 + 1, 1e12, 1e18, 1e300, 1.7e308),
    *(2**31, 2**53, 2**63 - 1, 2**63, -(2**63), 10**30),
    *(math.nan, math.inf, -math.inf),
)
WORDS: tuple[str, ...] = (
    *("", " ", "0", "8", "nan", "null", "true", "None", "-", "--help", "../../etc/passwd", "/", "a" * 3000),
    *(
        "[red]",
        "[/x]",
        "[b]0",
        "[fd00::1]:8000",
        "\x1b]0;title\x07",
        "\x1b[2J",
        "\x9b31m",
        "\r\n",
        "\t",
        "\u202e",
        "\ud7ff",
    ),
    *(
        "é",
        "漢字",
        "🙂",
        "%s%n",
        "{0}",
        "{{x}}",
        "${HOME}",
        "$(id)",
        "<script>alert(1)</script>",
        "a|b",
        "`x`",
        "\\",
        '"',
    ),
)
OTHERS: tuple[Any, ...] = (None, True, False, [], {}, [1, 2], ["x"], [[1]], {"a": 1}, {"kind": "lognormal"})
NUMBER = re.compile(r"(?<![\w.])-?\d+(?:\.\d+)?(?:[eE][-+]?\d+)?(?![\w.])")


def odd_value(rng: random.Random, old: Any) -> Any:
    """Something that may stand in `old`'s place."""
    kind = rng.random()
    if isinstance(old, (int, float)) and not isinstance(old, bool) and kind < 0.75:
        if kind < 0.2 and math.isfinite(old):
            return type(old)(old * rng.choice([-1, 0.5, 2, 3, 10])) if abs(old) < 1e15 else old
        return rng.choice(NUMBERS)
    if isinstance(old, str) and kind < 0.6:
        return rng.choice(WORDS)
    return rng.choice((*NUMBERS, *WORDS, *OTHERS))


def mutated_tree(rng: random.Random, tree: Any, changes: int) -> Any:
    """`tree` (mappings, lists, scalars) with some of its places changed, dropped, doubled or swapped."""
    tree = copy.deepcopy(tree)
    for _ in range(changes):
        places = list(_places(tree))
        if not places:
            break
        parent, key = rng.choice(places)
        kind = rng.random()
        if kind < 0.7:
            parent[key] = odd_value(rng, parent[key])
        elif kind < 0.8:
            del parent[key]
        elif kind < 0.9:
            other, its = rng.choice(places)
            parent[key] = copy.deepcopy(other[its]) if (other is not parent or its != key) else None
        elif isinstance(parent, list):
            parent.insert(key, copy.deepcopy(parent[key]))
        else:
            parent[rng.choice(WORDS)] = odd_value(rng, 0)
    return tree


def _places(tree: Any) -> Any:
    """(parent, key) of every value in it."""
    items = tree.items() if isinstance(tree, dict) else enumerate(tree) if isinstance(tree, list) else ()
    for key, value in items:
        yield tree, key
        yield from _places(value)


def mutated_text(rng: random.Random, text: str, changes: int) -> str:
    """A text with some of its numbers, words, characters or lines changed."""
    for _ in range(changes):
        kind = rng.random()
        numbers = list(NUMBER.finditer(text)) if kind < 0.6 else []
        if numbers:
            at = rng.choice(numbers)
            text = f"{text[: at.start()]}{_written(rng.choice(NUMBERS))}{text[at.end() :]}"
            continue
        lines = text.splitlines(keepends=True)
        if not lines:
            return rng.choice(WORDS)
        line = rng.randrange(len(lines))
        where = rng.randrange(len(lines[line]) + 1)
        if kind < 0.7:
            lines[line] = lines[line][:where] + rng.choice(WORDS) + lines[line][where:]
        elif kind < 0.78:
            lines[line] = lines[line][:where] + lines[line][where + 1 :]
        elif kind < 0.85:
            del lines[line]
        elif kind < 0.92:
            lines.insert(line, rng.choice(lines))
        elif kind < 0.96:
            lines[line:] = [lines[line][:where]]
        else:
            other = rng.randrange(len(lines))
            lines[line], lines[other] = lines[other], lines[line]
        text = "".join(lines)
    return text


def _written(number: float) -> str:
    return {math.inf: "Infinity", -math.inf: "-Infinity"}.get(number, "NaN" if number != number else str(number))
