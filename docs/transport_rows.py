"""Published weight syncs (scenarios/published/weight_sync.yaml) as scenarios: predictions, fits, orders.

Used by make_transports.py and by the tests.
"""

from __future__ import annotations

import math
from collections.abc import Callable, Iterable, Sequence
from dataclasses import dataclass
from itertools import combinations
from statistics import geometric_mean
from typing import Any

import yaml

from fleetsim.config import data_path, scenario_from_mapping
from fleetsim.config.exchange import GATHER_BYTES_S, LinkConfig
from fleetsim.engine.transport import sync_times

ROWS = "published/weight_sync.yaml"
# What was fitted: as the rows name it -> the key of sync.link and its default. All are fitted with the first.
FITTED: dict[str, tuple[str, float]] = {
    "tensor_s": ("tensor_s", LinkConfig().tensor_s),
    "gather_bytes_s": ("gather_bytes_s", GATHER_BYTES_S["fsdp"]),
    "gather_bytes_s of Megatron": ("gather_bytes_s", GATHER_BYTES_S["megatron"]),
    "delta_bytes_s": ("delta_bytes_s", LinkConfig().delta_bytes_s),
    "relay_bytes_s": ("relay_bytes_s", LinkConfig().relay_bytes_s),
}


@dataclass(frozen=True, slots=True)
class Row:
    """One published sync. lowest, highest: the published seconds. use: what it is for, as the file says it."""

    id: str
    source: str
    setup: str
    model: str
    transport: str
    what: dict[str, Any]
    lowest: float
    highest: float
    measure: str
    use: str
    lookup: bool
    note: str

    @property
    def seconds(self) -> float:
        """The middle of what was published."""
        return (self.lowest + self.highest) / 2

    @property
    def predicted_only(self) -> bool:
        """Whether no default rests on this row."""
        return self.use == "predict"

    @property
    def variant(self) -> str:
        """The transport and what sets this row apart from its neighbours."""
        said = [f"{k} {v:g}" if isinstance(v, float) else str(v) for k, v in self.what["link"].items() if k in _SAID]
        return ", ".join([self.transport, *said])


_SAID = ("source", "fetch", "load", "calls")


def rows() -> list[Row]:
    """Every row of the file."""
    table = yaml.safe_load(data_path("scenarios", ROWS).read_text(encoding="utf-8"))
    backends = {name: source.get("backend") for name, source in table["sources"].items()}
    return [_row({"backend": backends[r["source"]], **r}) for r in table["rows"]]


def _row(r: dict[str, Any]) -> Row:
    seconds = r["seconds"] if isinstance(r["seconds"], list) else [r["seconds"]] * 2
    return Row(
        r["id"], r["source"], r.get("setup", r["id"]), r["model"], r["transport"], {"link": {}, **r}, *seconds,
        r.get("measure", "complete"), r["use"], r.get("lookup", True), r.get("note", ""),
    )  # fmt: skip


def scenario_of(row: Row, **link: Any) -> Any:
    """The row as a scenario; `link` overrides fleetsim's defaults, not what the row's source says."""
    w = row.what
    size = {} if "hf" in w else {"model_bytes": round(w["gigabytes"] * 1e9), "tensors": w["tensors"]}
    return scenario_from_mapping(
        {
            "engine": {
                "gpu": w["gpu"], "tp": w["tp"], "dtype": w.get("dtype", "bfloat16"),
                "model": w.get("hf", "Qwen/Qwen2.5-7B"), "dp": w.get("dp", 1),
            },
            "fleet": {
                "instances": w.get("instances", 1),
                "placement": "colocated" if w.get("colocated") else "disaggregated",
            },
            "trainer": {"gpus": w["trainer_gpus"], "recipe": {"backend": w.get("backend")}},
            "sync": {"transport": row.transport, "link": {**size, **link, **w["link"]}},
        }
    )  # fmt: skip


def predicted_s(row: Row, **link: Any) -> float:
    """Seconds that fleetsim derives for what the row measured."""
    times = sync_times(scenario_of(row, **link))
    by_measure = {
        "complete": times.complete_s, "pause": times.pause_s, "trainer_block": times.trainer_block_s,
    }  # fmt: skip
    return by_measure[row.measure]


def factor(row: Row, **link: Any) -> float:
    """How many times too long or too short, at least 1."""
    ratio = predicted_s(row, **link) / row.seconds
    return max(ratio, 1 / ratio)


def fit(what: str, on: Iterable[Row], **link: Any) -> float:
    """The value of one of FITTED that meets every row, by bisection; their geometric mean.

    Raises ValueError for a row that no value meets.
    """
    key, default = FITTED[what]

    def met(row: Row) -> float:
        return _solve(lambda v: predicted_s(row, **link, **{key: v}) - row.seconds, default / 1e4, default * 1e4)

    return geometric_mean([met(row) for row in on])


def _solve(gap: Callable[[float], float], lowest: float, highest: float) -> float:
    low, high = math.log(lowest), math.log(highest)
    rising = gap(math.exp(low)) < 0
    if rising == (gap(math.exp(high)) < 0):
        raise ValueError("no value of the key meets the row")
    for _ in range(100):
        middle = (low + high) / 2
        low, high = (middle, high) if (gap(math.exp(middle)) < 0) == rising else (low, middle)
    return math.exp(low)


def fits(table: Sequence[Row]) -> dict[str, float]:
    """Each of FITTED from its rows, the first in place."""
    first, *others = FITTED
    found = {first: fit(first, [row for row in table if row.use == f"fit {first}"])}
    for what in others:
        found[what] = fit(what, [row for row in table if row.use == f"fit {what}"], **{first: found[first]})
    return found


def pairs(table: Iterable[Row]) -> list[tuple[Row, Row]]:
    """Rows of one setup and measure, the faster first; without pairs that the source has equally fast."""
    found = []
    for a, b in combinations(table, 2):
        if (a.source, a.setup, a.measure) == (b.source, b.setup, b.measure) and a.seconds != b.seconds:
            found.append((a, b) if a.seconds < b.seconds else (b, a))
    return found


def coverage(table: Iterable[Row], low: float, high: float) -> tuple[int, int]:
    """Predicted rows whose published seconds lie within the interval about the predicted ones, and all of them."""
    inside = [low <= row.seconds / predicted_s(row) <= high for row in table if row.predicted_only]
    return sum(inside), len(inside)


def in_order(faster: Row, slower: Row) -> bool:
    """Whether fleetsim has the two in the published order."""
    return predicted_s(faster) < predicted_s(slower)


def concordance(table: Sequence[Row]) -> tuple[int, int]:
    """Pairs of rows, each of one source, in the published order, and pairs in all; predicted ties count as wrong."""
    told = [
        (predicted_s(a) - predicted_s(b)) * (a.seconds - b.seconds) > 0
        for a, b in combinations(table, 2)
        if a.source == b.source and a.measure == b.measure and a.seconds != b.seconds
    ]
    return sum(told), len(told)
