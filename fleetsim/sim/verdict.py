"""What binds in a run, found out when somebody reads it: a search makes many runs, and shows few of them."""

from __future__ import annotations

from dataclasses import replace

import numpy as np
from numpy.typing import NDArray

from fleetsim.sim.binding import binding_of
from fleetsim.sim.records import Records
from fleetsim.sim.window import window_of

# What is read of the samples. The rest of a run is small, or not needed.
_READ = ("sent_s", "finish_s", "status", "target", "prompt", "group")
# A run of more samples is answered at once: many of them would fill the memory, and beside them the answer takes no
# time.
_MOST_KEPT = 50_000


class Verdict:
    """`binding_of` a run, as text. The run is kept until then, without what is not read for it."""

    __slots__ = ("_known", "_run")

    def __init__(self, records: Records) -> None:
        self._known: str | None = None
        self._run: Records | None = None
        if len(records.samples) > _MOST_KEPT:
            self._known = binding_of(records, window_of(records))
        else:
            self._run = replace(records, samples=_columns(records), groups=records.groups.copy())

    def __str__(self) -> str:
        run = self._run
        if run is not None:
            self._known, self._run = binding_of(run, window_of(run)), None
        return str(self._known)

    def __eq__(self, other: object) -> bool:
        return isinstance(other, Verdict | str) and str(self) == str(other)

    def __hash__(self) -> int:
        return hash(str(self))


def _columns(records: Records) -> NDArray[np.void]:
    """The columns of the samples that are read, of memory of their own."""
    samples = records.samples
    kept = np.empty(len(samples), [(name, samples.dtype[name]) for name in _READ])
    for name in _READ:
        kept[name] = samples[name]
    return kept
