"""YAML in and out: the 1.2 core schema without tags, anchors or duplicate keys, and with limits on size and depth.

The text is read as parser events and built by hand (`yaml_events.py`), so nothing in a file can construct anything but
mappings, lists, strings, numbers, booleans and nulls. Plain scalars follow YAML 1.2 (`1e-6` is a number, `on` and
`1:30` are strings); PyYAML's own resolver follows 1.1, where they are not. `to_yaml` quotes whatever either of them
would misread. The parser is imported when there is something to parse: the value of a flag is most often one word.
"""

from __future__ import annotations

import json
import math
import re
from collections.abc import Callable
from typing import Any

from fleetsim.config.plain_scalar import plain_scalar
from fleetsim.visible import visible

MAX_BYTES = 4 * 2**20
# Words that mean in YAML what they say: unquoted, and between quotes.
_WORD = re.compile(r"[A-Za-z0-9][A-Za-z0-9_./+-]*")
_QUOTED = re.compile(r'"[A-Za-z0-9_./+-]*"')


def from_yaml(text: str, where: str) -> Any:
    """The value of one YAML document. `where` (a file or a flag) names it in errors.

    Raises InputError for text that is no YAML, an empty document, a second document, anchors, aliases, tags,
    duplicate keys, keys that are no scalars, more than `yaml_events.MAX_NODES` nodes or nesting deeper than MAX_DEPTH.
    """
    if _WORD.fullmatch(text):
        return plain_scalar(text)
    if _QUOTED.fullmatch(text):
        return text[1:-1]
    from fleetsim.config.yaml_events import document

    return document(text, where)


def to_yaml(value: Any) -> str:
    """YAML of plain values that `from_yaml` reads back equal: keys keep their order, laws stand on one line."""
    from fleetsim.config.yaml_events import dumped

    # What is not printable stands in double quotes, where a character may be written out.
    return visible(dumped(value))


def as_yaml(value: Any, other: Callable[[Any], Any] | None = None) -> str:
    """A value in one line. JSON is YAML, so text keeps its quotes and numbers their digits; but JSON has no infinities.

    other: what becomes of an object that JSON does not know. Raises TypeError for one where nothing does.
    """
    if isinstance(value, float) and not math.isfinite(value):
        return ".nan" if math.isnan(value) else ".inf" if value > 0 else "-.inf"
    return json.dumps(value, default=other)
