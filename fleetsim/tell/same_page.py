"""Pages that commands and scripts write: whether one that was written elsewhere still says the same."""

from __future__ import annotations

import math
import re

_FIGURE = re.compile(r"\d[\d,]*(?:\.\d+)?")


def same(ours: str, theirs: str, relative: float = 0.01, absolute: float = 0.11) -> bool:
    """Whether two pages say the same: the same words, and figures that differ by the last digit shown at most.

    exp() differs by a bit between processors, and a length that rounds the other way moves every later event a little.
    """
    if _FIGURE.sub("#", ours) != _FIGURE.sub("#", theirs):
        return False
    pairs = zip(*(_FIGURE.findall(text) for text in (ours, theirs)), strict=True)
    return all(
        math.isclose(*(float(x.replace(",", "")) for x in pair), rel_tol=relative, abs_tol=absolute) for pair in pairs
    )
