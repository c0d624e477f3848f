"""One series as a file has it."""

from __future__ import annotations

from collections.abc import Mapping

from fleetsim.dataclass import dataclass
from fleetsim.history.history import Floats


@dataclass(frozen=True, slots=True)
class RawSeries:
    """One series as it stands in a file. stamps: (n,) unix seconds, in any order; values: (n,)."""

    name: str
    labels: Mapping[str, str]
    stamps: Floats
    values: Floats
