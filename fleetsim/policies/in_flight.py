"""What happens to unfinished samples when new weights are loaded (`sync.in_flight`): one record for each policy."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Literal

from fleetsim.dataclass import dataclass
from fleetsim.policies.tables import complete

InFlightName = Literal["drain", "abort_discard", "abort_resume", "keep", "keep_recompute", "finish_on_old_weights"]


@dataclass(frozen=True, slots=True, kw_only=True)
class InFlight:
    """What a policy does to the work on an instance that loads new weights.

    drains: nothing new is sent, and the pause begins when the last sample in flight has ended. aborts: requests leave
    their engine. discards: unfinished groups are thrown away, their credits return. recomputes: running requests lose
    their cache, and prompt and generated tokens are prefilled again. pauses: engines stand still while they load.
    """

    drains: bool
    aborts: bool
    discards: bool
    recomputes: bool
    pauses: bool

    @property
    def keeps_version(self) -> bool:
        """Whether what is in flight stays on the version that it was sent with."""
        return not self.pauses


IN_FLIGHT: Mapping[InFlightName, InFlight] = complete(
    InFlightName,
    {
        "drain": InFlight(drains=True, aborts=False, discards=False, recomputes=False, pauses=True),
        "abort_discard": InFlight(drains=False, aborts=True, discards=True, recomputes=False, pauses=True),
        "abort_resume": InFlight(drains=False, aborts=True, discards=False, recomputes=True, pauses=True),
        "keep": InFlight(drains=False, aborts=False, discards=False, recomputes=False, pauses=True),
        "keep_recompute": InFlight(drains=False, aborts=False, discards=False, recomputes=True, pauses=True),
        "finish_on_old_weights": InFlight(drains=False, aborts=False, discards=False, recomputes=False, pauses=False),
    },
)
