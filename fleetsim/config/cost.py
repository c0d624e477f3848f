"""The `cost` section: what a GPU-hour of either pool costs."""

from __future__ import annotations

from typing import Annotated, Literal

from pydantic import Field

from fleetsim.config.base import ConfigSection, Name

Price = Annotated[float, Field(ge=0, le=1e9)]


class CostConfig(ConfigSection):
    """Prices of both pools. A null price is that of the GPU type, which rollout and trainer are taken to share."""

    instance_price_usd_per_gpu_h: Price | None = Field(
        default=None, description="US dollars per rollout GPU and hour; null = of its type, from a table"
    )
    trainer_price_usd_per_gpu_h: Price | None = Field(
        default=None, description="US dollars per trainer GPU and hour; null = of the rollout GPU's type"
    )
    market: Literal["neocloud", "hyperscaler"] = Field(
        default="neocloud", description="whose list prices on demand stand in: calibration/gpu_prices.csv"
    )
    prices: Name | None = Field(
        default=None, description="a CSV file with the columns gpu and usd_per_gpu_h, which goes before the shipped one"
    )
