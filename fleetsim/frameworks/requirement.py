"""Versions that a text pins: `pip install "trl[vllm]==1.10.0"`, `# dependencies = ["trl>=1.12,<2"]`.

A framework's defaults change with its version, and a configuration rarely says it; the script around it often does.
"""

from __future__ import annotations

import re
from collections.abc import Iterator

from fleetsim.dataclass import dataclass

Version = tuple[int, ...]
_ONE = r"(?:===?|~=|<=|>=|!=|<|>)[ ]{0,4}\d{1,9}(?:\.\d{1,9}){0,5}(?:\.\*)?[a-z0-9.]{0,12}"
_ALL = re.compile(
    rf"(?<![\w.-])([A-Za-z][\w-]{{0,60}})(?:\[[\w, -]{{0,80}}\])?[ ]{{0,4}}({_ONE}(?:[ ]?,[ ]?{_ONE}){{0,6}})"
)
_PARTS = re.compile(r"(===?|~=|<=|>=|!=|<|>)[ ]*(\d+(?:\.\d+)*)")


@dataclass(frozen=True, slots=True)
class Requirement:
    """A package and the versions that it may have. text: as it is written."""

    package: str
    text: str

    def only_before(self, version: Version) -> bool:
        """Whether every version that it allows is older than this one."""
        return any(
            _short(found) <= version if sign == "<" else _short(found) < version
            for sign, found in _bounds(self.text)
            if sign in ("==", "===", "<=", "<") or (sign == "~=" and len(found) > len(version))
        )

    def only_from(self, version: Version) -> bool:
        """Whether every version that it allows is this one or newer."""
        return any(
            _short(found) >= version for sign, found in _bounds(self.text) if sign in ("==", "===", "~=", ">=", ">")
        )


def requirements_of(text: str) -> dict[str, Requirement]:
    """Package -> the first requirement of it in a text. Any text gives some."""
    found: dict[str, Requirement] = {}
    for match in _ALL.finditer(text):
        found.setdefault(match[1].lower(), Requirement(match[1].lower(), match[0].strip()))
    return found


def _bounds(text: str) -> Iterator[tuple[str, Version]]:
    for sign, version in _PARTS.findall(text):
        yield sign, tuple(map(int, version.split(".")))


def _short(version: Version) -> Version:
    """Without zeros at its end: 1.11 and 1.11.0 are one version."""
    while len(version) > 1 and version[-1] == 0:
        version = version[:-1]
    return version
