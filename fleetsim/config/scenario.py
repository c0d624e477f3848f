"""The scenario: everything that one simulated RL post-training job is made of."""

from __future__ import annotations

from pydantic import ValidationInfo, model_validator
from pydantic_core import PydanticCustomError

from fleetsim.config.rules import broken_rules
from fleetsim.config.sections import Sections


class Scenario(Sections):
    """A scenario file. Every section and key may be left out; the defaults are a 7B model on 8 + 8 H100."""

    @model_validator(mode="after")
    def _fields_fit_together(self, info: ValidationInfo) -> Scenario:
        """Rules that join fields hold for every Scenario; the loader runs them itself, beside the other errors."""
        by_the_loader = (info.context or {}).get("rules_later", False)
        problems = [] if by_the_loader else broken_rules(self)
        if problems:
            raise PydanticCustomError(
                "rules", "{text}", {"text": "; ".join(map(str, problems)), "problems": tuple(problems)}
            )
        return self
