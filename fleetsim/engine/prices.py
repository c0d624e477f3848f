"""What a GPU costs by the hour: two numbers of a scenario, or a table of list prices with date and source.

The table is `calibration/gpu_prices.csv`: on demand, per GPU type and market, the median of what was found. A table of
one's own (`cost.prices`) has the columns gpu and usd_per_gpu_h, and goes before it for the GPUs that it names.
"""

from __future__ import annotations

import csv
import io
import math
import os
from collections.abc import Mapping
from functools import lru_cache

from msgspec import Struct

from fleetsim.config.data_files import changed_ns, data_path, read_text
from fleetsim.config.scenario import Scenario
from fleetsim.config.sections import CostConfig
from fleetsim.engine.gpus import gpu_spec
from fleetsim.errors import InputError, Problem

# US dollars per GPU-hour of a type that no table has.
UNKNOWN = 3.0
# A spot machine / the same on demand, where nobody says it: clouds offered GPUs at 0.2 to 0.7 in 2025 and 2026.
SPOT_PRICE = 0.4
_MAX_BYTES = 1 << 20
_MOST = 1e6
_MONTHS = ("January", "February", "March", "April", "May", "June", "July", "August", "September", "October", "November",
           "December")  # fmt: skip


class GpuPrice(Struct, frozen=True):
    """US dollars per GPU-hour. name: the type. known: a table has it. words: where the number is from."""

    name: str
    usd_per_gpu_h: float
    known: bool
    words: str


class Prices(Struct, frozen=True):
    """US dollars per GPU-hour of both pools; spot: of rollout's on spot machines."""

    rollout: float
    trainer: float
    spot: float


def prices_of(scenario: Scenario) -> Prices:
    """What both pools cost: what the scenario says, else by the types of their GPUs.

    Raises InputError as `listed_price` does.
    """
    cost = scenario.cost
    rollout = own_or_listed(cost.instance_price_usd_per_gpu_h, scenario.engine.gpu, cost)
    trainer = own_or_listed(cost.trainer_price_usd_per_gpu_h, trainer_type(scenario), cost)
    spot = SPOT_PRICE * rollout if cost.spot_price_usd_per_gpu_h is None else cost.spot_price_usd_per_gpu_h
    return Prices(rollout, trainer, spot)


def trainer_type(scenario: Scenario) -> str:
    """The type of the trainer's GPUs: rollout's, where nobody says another."""
    return scenario.trainer.recipe.gpu or scenario.engine.gpu


def own_or_listed(price: float | None, gpu: str, cost: CostConfig) -> float:
    """A price that was given, else that of the GPU's type. Raises InputError as `listed_price` does."""
    return listed_price(gpu, cost.market, cost.prices).usd_per_gpu_h if price is None else price


def listed_price(gpu: str, market: str = "neocloud", own: str | None = None) -> GpuPrice:
    """The price of a GPU type in a market, from a table of one's own (a file) or from the shipped one.

    A type that neither has costs `UNKNOWN`. Raises InputError when the file is not such a table.
    """
    name = _name(gpu)
    if own is not None:
        price = _own_table(os.path.abspath(own), changed_ns(own)).get(name)
        if price is not None:
            return GpuPrice(name, price, True, os.path.basename(own))
    row = _shipped().get((name, market))
    if row is None:
        return GpuPrice(name, UNKNOWN, False, f"no {market} price of {name} is on record")
    usd, date = row
    return GpuPrice(name, usd, True, f"{name} on demand, {market}, {_MONTHS[int(date[5:7]) - 1]} {date[:4]}")


def _name(gpu: str) -> str:
    """The data sheet's name, by which "H100" and "H100-SXM" are one type; the name itself where there is none."""
    try:
        return gpu_spec(gpu).name
    except InputError:
        return gpu


@lru_cache(maxsize=1)
def _shipped() -> Mapping[tuple[str, str], tuple[float, str]]:
    text = data_path("calibration", "gpu_prices.csv").read_text(encoding="utf-8")
    return {
        (row["gpu"], row["market"]): (float(row["usd_per_gpu_h"]), row["date"])
        for row in csv.DictReader(io.StringIO(text))
    }


@lru_cache(maxsize=8)
def _own_table(path: str, written_ns: int) -> Mapping[str, float]:
    """GPU type -> dollars of a user's file. written_ns: when it was written, so that an edited one is read again."""
    rows = csv.DictReader(io.StringIO(read_text(path, "cost.prices", _MAX_BYTES)))
    if not {"gpu", "usd_per_gpu_h"} <= set(rows.fieldnames or ()):
        rule = "must be a CSV with the columns gpu and usd_per_gpu_h"
        raise InputError([Problem("cost.prices", path, rule, "write them into its first line")])
    found, problems = {}, []
    try:
        for number, row in enumerate(rows, 2):
            text = row["usd_per_gpu_h"] or ""
            price = _number(text)
            if price is None or not row["gpu"]:
                rule = f"line {number} must hold a GPU and dollars from 0 to {_MOST:,.0f}"
                problems.append(Problem("cost.prices", text[:100], rule, "mend the line"))
            else:
                found[_name(row["gpu"])] = price
    except csv.Error as error:
        problems.append(Problem("cost.prices", path, f"is no CSV ({error})", "mend the file"))
    if problems:
        raise InputError(problems[:20])
    return found


def _number(text: str) -> float | None:
    try:
        price = float(text)
    except ValueError:
        return None
    return price if math.isfinite(price) and 0 <= price <= _MOST else None
