"""One thing that was looked at, and what became of it. Looking never raises: the machine may be broken anywhere."""

from __future__ import annotations

from collections.abc import Callable, Mapping
from dataclasses import field
from typing import Any, Literal

from fleetsim.dataclass import dataclass

State = Literal["ok", "info", "warning", "fault"]


@dataclass(frozen=True, slots=True)
class Check:
    """name: what was looked at. state: fault = something that was asked for does not work; warning = it works, but not
    as it should; info = neither. text: what was found. remedy: what to do. facts: the same for programs."""

    name: str
    state: State
    text: str
    remedy: str | None = None
    facts: Mapping[str, Any] = field(default_factory=dict)


def guarded(name: str, look: Callable[[], Check], on_error: State = "warning") -> Check:
    """The check, or why it could not be made."""
    try:
        return look()
    except Exception as error:  # noqa: BLE001 - whatever is broken here is what was to be found
        what = str(error).strip().splitlines()
        said = f"{type(error).__name__}: {what[0]}" if what else type(error).__name__
        return Check(name, on_error, f"could not be looked at: {said}", facts={"error": said})
