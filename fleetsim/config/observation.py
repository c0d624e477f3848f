"""What a run showed of a value of a scenario: beside the value itself, how sure it is, and where it was read."""

from __future__ import annotations

from typing import Annotated

from pydantic import Field

from fleetsim.config.base import ConfigSection, CountOrZero, Name

_Number = Annotated[float, Field(ge=0, le=1e15)]


class ObservedConfig(ConfigSection):
    """One quantity that a run showed. The interval holds the truth in eight of ten cases."""

    path: Annotated[str, Field(max_length=1000)] = Field(description="dotted path of the value that it became")
    what: Name = Field(description="as reports call it")
    value: _Number = Field(description="as observed, in `unit`; what the path holds follows from it")
    low: _Number = Field(description="lower end of the interval")
    high: _Number = Field(description="upper end of the interval")
    unit: Annotated[str, Field(max_length=40)] = Field(default="", description="s, tokens...; empty = a plain number")
    source: Annotated[str, Field(max_length=1000)] = Field(description="the file or server, and the metric in it")
    steps: CountOrZero = Field(default=0, description="optimizer steps that it is the mean of; 0 = not counted so")

    @property
    def factors(self) -> tuple[float, float]:
        """The ends of the interval over the value."""
        return (self.low / self.value, self.high / self.value) if self.value > 0 else (1.0, 1.0)
