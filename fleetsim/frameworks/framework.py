"""What `fleetsim scenario` knows of a framework: how its configuration is read, and in which form it is written."""

from __future__ import annotations

from collections.abc import Callable, Mapping
from dataclasses import field
from typing import Any, Literal

from fleetsim.dataclass import dataclass
from fleetsim.frameworks.common import TrainerSpeed
from fleetsim.frameworks.draft import Draft

Build = Callable[[Draft, TrainerSpeed | None], None]
# A YAML or TOML file; or a script with `key.path=value` words (overrides), with `--key value` where a switch stands
# alone (flags; dashes where they are spelled `--a-key`), or with `--key value` where true and false are values too.
Form = Literal["yaml", "toml", "overrides", "flags", "dashes", "values"]


@dataclass(frozen=True, slots=True)
class Mode:
    """A way to run the framework. start: the command that starts it so; {key} is a setting that stands in the command
    itself. settings: what selects this way.
    """

    name: str
    start: str
    settings: Mapping[str, Any] = field(default_factory=dict)


@dataclass(frozen=True, slots=True)
class Framework:
    """build: fills a draft from its settings. repository: where it lives. modes: the one that can say most of a
    scenario is written. form: in which text. yours: what a run needs that no scenario says. beside: prefix of the keys
    of another command -> that command, which runs beside.
    """

    build: Build
    repository: str
    form: Form
    modes: tuple[Mode, ...]
    yours: str
    beside: Mapping[str, str] = field(default_factory=dict)
    takes_words: bool = True
