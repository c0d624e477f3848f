"""`ScenarioDraft`: the implied scenario while it is being written, with a word on where each value comes from.

One rule for every value, key by key: what the user gave as a key of its own; then what the window measures; then the
scenario file; then a default. Where two of them say different things, a line says so.
"""

from __future__ import annotations

from collections.abc import Collection, Mapping
from typing import Any

from fleetsim.config.load import with_changes
from fleetsim.config.scenario import Scenario
from fleetsim.config.tree import field_at, given_paths, is_given, is_touched
from fleetsim.job.derived_values import as_alone

# Two numbers that differ by more than this share are told to differ; counts of instances by one.
DIFFERS = 0.05
_EXACT = ("fleet.instances",)


class ScenarioDraft:
    """Changes to a scenario, by dotted path. A path that the user has given by itself is never changed.

    start: the scenario to begin with. from_base: whether it is a file's. given: paths that the user gave one by one.
    written: the paths that the file says, None = all that are not defaults.
    """

    def __init__(
        self, start: Scenario, from_base: bool, given: frozenset[str], written: Collection[str] | None = None
    ) -> None:
        self.start, self.from_base, self.given = as_alone(start), from_base, given
        paths = given_paths(start) if written is None else written
        self._written = frozenset(p for p in paths if from_base and not is_given(p, start.assumed))
        self.changes: dict[str, Any] = {}
        self.taken: list[str] = []
        self.assumed: list[str] = []
        self.differs: list[str] = []

    def set_by_user(self, path: str) -> bool:
        """Whether the user has given this path, something in it, or what it lies in."""
        return is_touched(path, self.given)

    def take(self, path: str, value: Any, text: str, *, against: tuple[Any, Any] | None = None) -> None:
        """A value that the window shows. against: what is compared for the line that the two differ, as measured and as
        said (default: the value and the one at the path)."""
        seen, said = against if against is not None else (value, self.at(path))
        self.compare(path, seen, said)
        self._put(path, value, text, self.taken)

    def assume(self, path: str, value: Any, text: str) -> None:
        """A value that nothing shows."""
        self._put(path, value, text, self.assumed)

    def compare(self, path: str, seen: Any, said: Any, *, counts: str = "what was measured counts") -> None:
        """A line where the window measures something else than somebody said: which of the two counts. counts: of a
        scenario file's; what the user gave as a key of its own always does."""
        by_user = self.set_by_user(path)
        if said is None or not (by_user or self._wrote(path)) or not _differ(path, seen, said):
            return
        who, which = ("given", "what was given counts") if by_user else ("in the scenario", counts)
        self.differs.append(f"{path}: {_words(seen)} measured, {_words(said)} {who}; {which}")

    def at(self, path: str) -> Any:
        """The value before any change."""
        return field_at(self.start, path)

    def says(self, path: str) -> bool:
        """Whether somebody has said this value: the user by itself, or the file, not as assumed."""
        return self.set_by_user(path) or (self.from_base and self._wrote(path))

    def _wrote(self, path: str) -> bool:
        return is_touched(path, self._written)

    def _put(self, path: str, value: Any, text: str, into: list[str]) -> None:
        if self.set_by_user(path):
            line = f"{path}: as set"
            if line not in self.taken:
                self.taken.append(line)
            return
        self.changes[path] = value
        into.append(f"{path}: {text}")

    def scenario(self) -> Scenario:
        """The scenario as written so far. Raises InputError as the loader does."""
        changes = dict(self.changes)
        named = [p for p in self.start.assumed if not is_given(p, changes)]
        if len(named) < len(self.start.assumed):
            changes["assumed"] = named
        return with_changes(self.start, changes) if changes else self.start

    def facts(self, *sections: str) -> Mapping[str, Any]:
        """What the user gave one by one in these sections: path -> value."""
        return {path: self.at(path) for path in sorted(self.given) if is_given(path, sections)}


def _differ(path: str, seen: Any, said: Any) -> bool:
    """Whether two values are more than a way of reading apart; of lists and laws nothing is said."""
    if isinstance(seen, bool | str) or isinstance(said, bool | str):
        return bool(seen != said)
    if not isinstance(seen, int | float) or not isinstance(said, int | float):
        return False
    if path in _EXACT:
        return seen != said
    return abs(seen - said) > DIFFERS * max(abs(seen), abs(said))


def _words(value: Any) -> str:
    if isinstance(value, bool):
        return "on" if value else "off"
    return f"{value:,.4g}" if isinstance(value, float) else f"{value:,}" if isinstance(value, int) else str(value)
