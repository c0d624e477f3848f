"""The /metrics pages of a simulated run, for a Prometheus that scrapes them."""

from __future__ import annotations

import numpy as np

from fleetsim.export.openmetrics import _form, families
from fleetsim.export.series import scrape_times
from fleetsim.sim.records import Records


class Pages:
    """The /metrics pages of a scraped run: Prometheus text, without timestamps, as each target answers a scrape."""

    def __init__(self, records: Records) -> None:
        self.families = tuple(families(records))
        self.labels = {"engine": "0", "model_name": records.scenario.engine.model}
        self.scrapes = len(scrape_times(records))

    def page(self, target: int | None, k: int) -> str | None:
        """What instance `target` (None: the trainer) answers to scrape k; None when it does not answer."""
        out = []
        for family in self.families:
            lines = []
            for series in family.series:
                at = int(np.searchsorted(series.rows, k))
                if series.target == target and at < len(series.rows) and series.rows[at] == k:
                    form = _form(family, series, {} if target is None else self.labels, "\n")
                    lines.append(form % tuple(series.values[at].tolist()))
            if lines:
                name = family.name + ("_total" if family.kind == "counter" else "")
                out += [f"# HELP {name} {family.help}\n# TYPE {name} {family.kind}\n", *lines]
        return "".join(out) or None
