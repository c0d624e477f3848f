"""Families as text: an OpenMetrics file of a whole run."""

from __future__ import annotations

from collections.abc import Callable, Iterator, Mapping
from typing import TextIO

import numpy as np

from fleetsim.dataclass import dataclass
from fleetsim.export.metrics import families
from fleetsim.export.series import Family, Series, scrape_times
from fleetsim.sim.records import Records

# Prometheus forgets a series five minutes after its last sample; histograms are most of a history and change slowly.
HISTOGRAMS_EVERY_S = 120.0


@dataclass(frozen=True, slots=True)
class Written:
    """What a history file holds: samples (lines), and the unix seconds of its first and last one."""

    samples: int
    start_s: float
    end_s: float


def write_openmetrics(records: Records, file: TextIO, *, end_s: float, until_s: float | None = None) -> Written:
    """Writes the history of a scraped run, its last scrape at unix second `end_s`.

    until_s: seconds of the run after which nothing is written. Raises ValueError for a run that was not scraped.
    """
    times = scrape_times(records)
    last = len(times) if until_s is None else int(np.searchsorted(times, until_s + 1e-6, side="right"))
    start_s = end_s - float(times[last - 1])
    stamps = [f" {_stamp(start_s + t)}\n" for t in times[:last].tolist()]
    every = float(times[1]) if len(times) > 1 else HISTOGRAMS_EVERY_S
    targets = _targets(records)
    count = 0
    for family in families(records, max(1, round(HISTOGRAMS_EVERY_S / every))):
        file.write(f"# TYPE {family.name} {family.kind}\n")
        if family.unit:
            file.write(f"# UNIT {family.name} {family.unit}\n")
        file.write(f"# HELP {family.name} {family.help}\n")
        for series in family.series:
            form = _form(family, series, targets(series.target), "\0")
            file.writelines(_rows(form, series, stamps))
            count += len(series.lines) * int(np.searchsorted(series.rows, last))
    file.write("# EOF\n")
    return Written(count, start_s, end_s)


def _page_labels(records: Records) -> dict[str, str]:
    return {"engine": "0", "model_name": records.scenario.engine.model}


def _targets(records: Records) -> Callable[[int | None], dict[str, str]]:
    engine = _page_labels(records)

    def labels(target: int | None) -> dict[str, str]:
        if target is None:
            return {"instance": "trainer-0:9100", "job": "trainer", "pod": "trainer-0"}
        name = f"rollout-{target}"
        return {**engine, "instance": f"{name}:8000", "job": "rollout", "pod": name}

    return labels


def _stamp(unix_s: float) -> str:
    """Seconds as the format has them, to the millisecond that Prometheus keeps."""
    milliseconds = round(unix_s * 1000)
    whole, rest = divmod(milliseconds, 1000)
    return str(whole) if rest == 0 else f"{whole}.{rest:03d}"


def _form(family: Family, series: Series, target: Mapping[str, str], end: str) -> str:
    """The lines of one scrape, with a place for each value; `end` stands behind it."""
    out = []
    for suffix, own in series.lines:
        labels = {**target, **series.labels, **own}
        inside = ",".join(f'{name}="{_escaped(labels[name])}"' for name in sorted(labels))
        braces = f"{{{inside}}}" if inside else ""
        whole = suffix in ("_bucket", "_count") or series.values.dtype.kind == "i"
        out.append(f"{family.name}{suffix}{braces}".replace("%", "%%") + f" {'%d' if whole else '%r'}{end}")
    return "".join(out)


def _escaped(value: str) -> str:
    return value.replace("\\", r"\\").replace("\n", r"\n").replace('"', r"\"")


def _rows(form: str, series: Series, stamps: list[str], at_once: int = 4096) -> Iterator[str]:
    """The text of a series, some thousand scrapes at a time."""
    end = int(np.searchsorted(series.rows, len(stamps)))
    for first in range(0, end, at_once):
        part = slice(first, min(end, first + at_once))
        values, at = series.values[part].tolist(), [stamps[k] for k in series.rows[part].tolist()]
        if len(series.lines) > 1:
            yield "".join([(form % tuple(v)).replace("\0", stamp) for v, stamp in zip(values, at, strict=True)])
        else:  # most of a file: the name is the same in every line
            name = form.replace("%%", "%").rpartition(" ")[0]
            yield "".join([f"{name} {v!r}{stamp}" for (v,), stamp in zip(values, at, strict=True)])
