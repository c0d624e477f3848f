"""How many cells a worker gets at a time: enough that handing them out costs nothing, few enough to lose little."""

from __future__ import annotations

from collections.abc import Iterator, Sequence

# What a chunk should take. A sweep that is killed loses at most the chunks in flight.
CHUNK_S = 0.3
MOST_CELLS = 256


class Chunks:
    """Cells, handed out in chunks that grow as cells prove to be quick. `learn` is told what chunks took."""

    def __init__(self, cells: Sequence[int], at_once: int) -> None:
        self._cells, self._next, self._at_once = cells, 0, at_once
        self._seconds, self._done = 0.0, 0

    def learn(self, cells: int, seconds: float) -> None:
        """Learns how long some cells took; earlier lessons count less and less."""
        self._seconds, self._done = self._seconds / 2 + seconds, self._done // 2 + cells

    def __iter__(self) -> Iterator[tuple[int, ...]]:
        while self._next < len(self._cells):
            left = len(self._cells) - self._next
            size = self._size(left)
            yield tuple(self._cells[self._next : self._next + size])
            self._next += size

    def _size(self, left: int) -> int:
        """Towards the end chunks shrink, so that all workers finish together."""
        if self._done == 0:
            return 1
        quick = CHUNK_S * self._done / max(self._seconds, 1e-6)
        return max(1, min(int(quick), MOST_CELLS, -(-left // (2 * self._at_once))))
