"""`Draft`: the implied scenario while it is being written, with a word on where each value comes from."""

from __future__ import annotations

from typing import Any

from fleetsim.config.load import with_changes
from fleetsim.config.scenario import Scenario


class Draft:
    """Changes to a scenario, by dotted path. A path that the user has set is never changed."""

    def __init__(self, start: Scenario, from_base: bool, given: frozenset[str]) -> None:
        self.start, self.from_base, self.given = start, from_base, given
        self.changes: dict[str, Any] = {}
        self.taken: list[str] = []
        self.assumed: list[str] = []

    def set_by_user(self, path: str) -> bool:
        """Whether the user has set this path, something in it, or what it lies in."""
        return any(path == g or g.startswith(f"{path}.") or path.startswith(f"{g}.") for g in self.given)

    def take(self, path: str, value: Any, text: str) -> None:
        """A value that the window shows."""
        self._put(path, value, text, self.taken)

    def assume(self, path: str, value: Any, text: str) -> None:
        """A value that nothing shows."""
        self._put(path, value, text, self.assumed)

    def _put(self, path: str, value: Any, text: str, into: list[str]) -> None:
        if self.set_by_user(path):
            self.taken.append(f"{path}: as set")
            return
        self.changes[path] = value
        into.append(f"{path}: {text}")

    def scenario(self) -> Scenario:
        """The scenario as written so far. Raises InputError as the loader does."""
        changes = dict(self.changes)
        named = [p for p in self.start.assumed if not any(p == c or p.startswith(f"{c}.") for c in changes)]
        if len(named) < len(self.start.assumed):
            changes["assumed"] = named
        return with_changes(self.start, changes) if changes else self.start
