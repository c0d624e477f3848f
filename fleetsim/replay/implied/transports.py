"""Another weight transport on the same history: which of the sync's times it gives anew, and which it scales."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any

from fleetsim import units
from fleetsim.config.load import with_changes
from fleetsim.config.scenario import Scenario
from fleetsim.config.tree import is_given
from fleetsim.engine.transport import SyncTimes, sync_times
from fleetsim.errors import InputError

_TIMES = {"publish_s": "publish", "pause_s": "pause", "trainer_block_s": "trainer held"}
_KEYS = ("sync.transport", "sync.link")


def with_transport(scenario: Scenario, changes: Mapping[str, Any]) -> tuple[dict[str, Any], str | None]:
    """The changes with the sync's times that follow from them, and a line on how.

    The scenario of a window has the times that were seen, and they would win over any transport. Where the transport
    that the window ran with is known, they keep their relation to what it is predicted to take: seen times x predicted
    after / predicted before. Where it is not, the new transport's own times are all there is. Times among the changes
    stay. None where the transport does not change, or has no times to give (`sync.transport=null`).
    """
    changed = dict(changes)
    if not any(is_given(path, _KEYS) for path in changes):
        return changed, None
    free = {f"sync.{name}": None for name in _TIMES if f"sync.{name}" not in changes}
    after = with_changes(scenario, {**changes, **free})
    if after.sync.transport is None:
        return changed, None
    now, then = sync_times(scenario), sync_times(after)
    before = _predicted(scenario)
    how = (
        f"from bytes and bandwidths, {then.text}; the window's {_words(now, free)} are of a transport that nobody named"
    )
    for path in free:
        name = path.removeprefix("sync.")
        seconds, seen = getattr(then, name), getattr(scenario.sync, name)
        if before is not None and seen is not None and getattr(before, name) > 0:
            seconds *= seen / getattr(before, name)
        changed[path] = seconds
    if before is not None:
        how = (
            f"from {scenario.sync.transport}'s {_words(now, free)} in the window, as {scenario.sync.transport} and "
            f"{after.sync.transport} are predicted to differ"
        )
    result = sync_times(with_changes(scenario, changed))
    return changed, f"{after.sync.transport}: {_words(result, free)}: {how}"


def _predicted(scenario: Scenario) -> SyncTimes | None:
    """What the window's transport would take by its own account; None where it is not known."""
    if scenario.sync.transport is None:
        return None
    try:
        return sync_times(with_changes(scenario, {f"sync.{name}": None for name in _TIMES}))
    except InputError:  # a model whose size nobody knows
        return None


def _words(times: SyncTimes, paths: Mapping[str, Any]) -> str:
    """ "pause 1.2 s, trainer held 0.4 s"."""
    return ", ".join(
        f"{word} {units.seconds(getattr(times, name))}" for name, word in _TIMES.items() if f"sync.{name}" in paths
    )
