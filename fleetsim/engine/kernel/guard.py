"""The checked build: fences around every table, and what is said when the kernel steps over one.

The kernel reaches rows through addresses, where nothing knows how long a table is. With FLEETSIM_KERNEL=checked every
table is laid out with its size in front of it and guard words behind it, and every access that `addresses.py` compiles
reads that size first: an index outside, a number read in the width of another, or an address that is no table ends the
run with an IndexError that names table and index. A table of two axes has a fence around each of its lines, so that
one instance's heap cannot grow into the next one's. Nothing of this is in the build that answers questions.
"""

from __future__ import annotations

import ctypes
from typing import Any

import numpy as np
from numpy.typing import NDArray

from fleetsim.engine.kernel.tables import ADDRESSES, FLEET

# Words of 8 bytes in front of a table, counted from its first row: a mark that depends on the address, the rows, bytes
# of a row, lines (1, or the first axis of two), the last index that was refused, how many were.
MARK, ROWS, BYTES, LINES, REFUSED, REFUSALS = range(-6, 0)
HEAD, TAIL = 6, 2
FENCE = 8 * (HEAD + TAIL)
KEY = 0x5AFE_F1EE_7ABC_0DE5


def line_bytes(width: int) -> int:
    """Bytes from one line of a table to the next: `width` of the line, rounded up to words, and a fence."""
    return (width + 7) // 8 * 8 + FENCE


def guarded(array: NDArray[Any]) -> NDArray[Any]:
    """A copy of a table of one axis or two, with a fence around it, or around each line of two axes."""
    lines, columns = array.shape if array.ndim == 2 else (1, len(array))
    step = line_bytes(columns * array.itemsize)
    words = np.zeros((max(1, lines), step // 8), np.int64)
    head = words[:, :HEAD]
    marks = (words.ctypes.data + 8 * HEAD + step * np.arange(len(words))) ^ KEY
    head[:, MARK], head[:, ROWS], head[:, BYTES], head[:, LINES] = marks, columns, array.itemsize, lines
    words[:, -TAIL:] = marks[:, None]
    steps = (step, array.itemsize)[2 - array.ndim :]
    out: NDArray[Any] = np.ndarray(array.shape, array.dtype, words.data, 8 * HEAD, steps)
    out[...] = array
    return out


def inspect(fleet: int) -> None:
    """Looks at the fences of a fleet's tables. Raises IndexError for an index refused or a word overwritten."""
    row = np.ctypeslib.as_array((ctypes.c_byte * FLEET.itemsize).from_address(fleet)).view(FLEET)[0]
    for name, base in (("fleet", fleet), *((name, int(row[name])) for name in ADDRESSES)):
        head = _words(base, HEAD)
        if head[MARK] != base ^ KEY:
            raise IndexError(f"no table {name} at its address, or the fence in front of it was overwritten")
        rows, size, lines = (int(head[k]) for k in (ROWS, BYTES, LINES))
        step = line_bytes(rows * size)
        words = _words(base, max(1, lines) * step // 8).reshape(-1, step // 8)
        for line in np.flatnonzero(words[:, HEAD + REFUSALS]):
            where = f", line {line} of {lines}" if lines != 1 else ""
            index = int(words[line, HEAD + REFUSED])
            raise IndexError(
                f"the kernel reached for row {index} of table {name}{where}, which has {rows} of {size} bytes"
            )
        marks = (base + step * np.arange(len(words))) ^ KEY
        fences = np.column_stack([words[:, HEAD + MARK], words[:, -TAIL:]])
        if np.any(fences != marks[:, None]):
            raise IndexError(f"the fence behind table {name} was overwritten")


def _words(base: int, n: int) -> NDArray[np.int64]:
    """The n words from the head of the table at `base` on."""
    return np.ctypeslib.as_array((ctypes.c_int64 * n).from_address(base - 8 * HEAD))
