"""A Prometheus that knows what an OpenMetrics file says, at the time of its last sample."""

from __future__ import annotations

import re
import time
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path
from unittest import mock

import numpy as np

from tests.history.fake_prometheus import Series, serving

_SAMPLE = re.compile(r"([\w:]+)(?:\{(.*)\})? (\S+) (\S+)")
_LABEL = re.compile(r'(\w+)="([^"]*)"')


@contextmanager
def prometheus(place: Path) -> Iterator[str]:
    """Its URL, until the block ends; meanwhile it is the time of the last sample."""
    series = _series(place.read_text(encoding="utf-8"))
    last = max(float(s.times[-1]) for s in series)
    with serving(series) as fake, mock.patch.object(time, "time", return_value=last):
        yield fake.url


def _series(text: str) -> list[Series]:
    found: dict[tuple[str, str], list[tuple[float, float]]] = {}
    for line in text.splitlines():
        if sample := _SAMPLE.fullmatch(line):
            name, labels, value, at = sample.groups()
            found.setdefault((name, labels or ""), []).append((float(at), float(value)))
    return [
        Series({"__name__": name, **dict(_LABEL.findall(labels))}, *map(np.array, zip(*points, strict=True)))
        for (name, labels), points in found.items()
    ]
