"""Pydantic's errors in plain words: path, value, rule, remedy."""

from __future__ import annotations

import re
from collections.abc import Callable, Mapping
from difflib import get_close_matches
from typing import Any

from pydantic import ValidationError
from pydantic_core import ErrorDetails

from fleetsim.config.tree import Node, Place, did_you_mean, did_you_mean_one_of, paths_ending_in, place_of
from fleetsim.errors import Problem

# A screenful of problems is to be mended, thousands (a file of another kind) are only to be counted.
MAX_SHOWN = 100
_COMMA = re.compile(r"[-+]?\d*,\d+")  # 0,5


def problems_of(error: ValidationError, root: Node) -> list[Problem]:
    """The problems that `error` holds, in its order; beyond MAX_SHOWN only their number.

    `root` is the tree of the validated model.
    """
    details = error.errors(include_url=False)
    problems: list[Problem] = []
    for detail in details[:MAX_SHOWN]:
        joint = detail.get("ctx", {}).get("problems")
        problems.extend(joint if joint is not None else [_problem(detail, root)])
    rest = len(details) - MAX_SHOWN
    if rest > 0:
        problems.append(Problem("...", rest, f"and {rest:,} more problems", "is this the right file?"))
    return problems


def of_another_kind(raw: object, root: Node, where: tuple[str, str], what: str) -> list[Problem]:
    """That a file is another document altogether: one problem instead of one for each of its keys.

    `root` is the tree of the model. where: what names the file in errors, and the file. what: the document that was
    asked for, in words.
    """
    if not isinstance(raw, Mapping) or not raw:
        return []
    if "fleetsim_version" in raw:
        rule = f"is the result of `fleetsim {str(raw.get('command', ''))[:20]}`, not {what}"
        return [Problem(*where, rule, f"give {what}")]
    known, keys = root.children, [str(key)[:40] for key in raw]
    if not known.keys().isdisjoint(keys) or 2 * sum(bool(get_close_matches(key, known, n=1)) for key in keys) >= len(
        keys
    ):
        return []
    rest = ", ..." if len(keys) > 5 else ""
    rule = f"is not {what}: none of its keys ({', '.join(keys[:5])}{rest}) belongs in one"
    return [Problem(*where, rule, f"give {what}")]


def wrong_places(error: ValidationError, root: Node) -> list[Place]:
    """The places that are wrong by themselves (rules that join fields are left out)."""
    return [place_of(root, d["loc"]) for d in error.errors(include_url=False) if "problems" not in d.get("ctx", {})]


def _problem(detail: ErrorDetails, root: Node) -> Problem:
    place = place_of(root, detail["loc"])
    path, node = place.path, place.node
    kind, given, ctx = detail["type"], detail["input"], detail.get("ctx", {})
    if kind == "extra_forbidden":
        return _unknown_key(path, given, str(detail["loc"][-1]), root, place.above)
    if kind == "missing":
        return Problem(path, None, "this key is required", f"add {path.rpartition('.')[2]}")
    if kind in ("union_tag_invalid", "union_tag_not_found", "model_attributes_type") and node.laws:
        return _unknown_law(path, given, node)
    if "remedy" in ctx:
        return Problem(path, given, _lower(detail["msg"]), str(ctx["remedy"]))
    say = _SAY.get(kind)
    rule, remedy = say(given, ctx) if say is not None else (_lower(detail["msg"]), "see `fleetsim scenario schema`")
    return Problem(path or "scenario", given, rule, remedy)


def _unknown_key(path: str, given: Any, key: str, root: Node, above: Node) -> Problem:
    hint = did_you_mean(key, above.children)
    elsewhere = paths_ending_in(root, key)
    if elsewhere and "did you mean" not in hint:
        hint = f"it belongs at {' or '.join(elsewhere)}"
    return Problem(path, given, "unknown key", hint)


def _unknown_law(path: str, given: Any, node: Node) -> Problem:
    known = ", ".join(node.laws)
    if not isinstance(given, dict):
        number = _as_number(given, False)
        mends = "without quotes" in number or "decimals" in number
        remedy = number if mends else f"write a number, or kind: one of {known}"
        return Problem(path, given, "must be a number or a mapping that describes a law", remedy)
    kind = given.get("kind")
    if kind is None:
        return Problem(path, given, "does not say which law it is", f"add kind: one of {known}")
    return Problem(f"{path}.kind", kind, f"must be one of {known}", did_you_mean_one_of(str(kind), node.laws))


def _lower(text: str) -> str:
    return text[:1].lower() + text[1:]


def _as_number(given: Any, whole: bool) -> str:
    """The remedy for something that is no (whole) number."""
    what = "a whole number" if whole else "a number"
    if isinstance(given, bool):
        return f"write {what}, not true or false"
    if isinstance(given, str):
        try:
            number = float(given)
        except ValueError:
            point = given.strip().replace(",", ".", 1)
            if _COMMA.fullmatch(given.strip()) and not whole:
                return f"write {point}: decimals follow a point"
            return f"write {what}"
        if not whole or number.is_integer():
            return f"write {given.strip()} without quotes"
    if isinstance(given, float) and whole:
        return f"use {round(given)}" if abs(given) < 1e15 else "write a whole number in reach"
    return f"write {what}"


def _bound(sign: str, key: str) -> Callable[[Any, dict[str, Any]], tuple[str, str]]:
    def say(given: Any, ctx: dict[str, Any]) -> tuple[str, str]:
        limit = ctx[key]
        shown = f"{limit:,}" if isinstance(limit, int) else f"{limit:g}"
        return f"must be {sign} {shown}", f"give a number {sign} {shown}"

    return say


def _literal(given: Any, ctx: dict[str, Any]) -> tuple[str, str]:
    words = str(ctx["expected"]).replace("'", "")
    known = list(dict.fromkeys(w.strip() for w in words.replace(" or ", ",").split(",")))
    return f"must be {'one of ' if len(known) > 1 else ''}{', '.join(known)}", (
        did_you_mean_one_of(given, known) if isinstance(given, str) else f"use {known[0]}"
    )


def _length(given: Any, ctx: dict[str, Any]) -> tuple[str, str]:
    if "min_length" in ctx:
        return f"must hold at least {ctx['min_length']}", "add one"
    return f"must hold at most {ctx['max_length']:,}", "shorten it"


_SAY: dict[str, Callable[[Any, dict[str, Any]], tuple[str, str]]] = {
    "int_type": lambda given, ctx: ("must be a whole number", _as_number(given, True)),
    "int_parsing_size": lambda given, ctx: ("must be a whole number of at most 19 digits", "use a smaller one"),
    "float_type": lambda given, ctx: ("must be a number", _as_number(given, False)),
    "finite_number": lambda given, ctx: ("must be finite", "give a number, or leave the key out for its default"),
    "bool_type": lambda given, ctx: ("must be true or false", "write true or false without quotes"),
    "string_type": lambda given, ctx: ("must be text", "put it in quotes"),
    "string_unicode": lambda given, ctx: ("must be valid Unicode text", "remove the broken character"),
    "tuple_type": lambda given, ctx: ("must be a list", "write [a, b, c]"),
    "model_type": lambda given, ctx: ("must be a mapping of keys to values", "write key: value lines below it"),
    "model_attributes_type": lambda given, ctx: (
        "must be a mapping of keys to values",
        "write key: value lines below it",
    ),
    "greater_than_equal": _bound("at least", "ge"),
    "greater_than": _bound("above", "gt"),
    "less_than_equal": _bound("at most", "le"),
    "less_than": _bound("below", "lt"),
    "literal_error": _literal,
    "too_short": _length,
    "too_long": _length,
    "string_too_short": lambda given, ctx: ("must not be empty", "write a name"),
    "string_too_long": lambda given, ctx: (f"must have at most {ctx['max_length']:,} characters", "shorten it"),
}
