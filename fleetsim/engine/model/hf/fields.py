"""The fields of one config.json, each checked where it is read, with every problem met and every key that was used."""

from __future__ import annotations

from collections.abc import Mapping
from pathlib import Path
from typing import Any

from fleetsim.errors import InputError, Problem
from fleetsim.json_text import from_loose_json

_MAX_FILE_BYTES = 4 * 2**20
_LARGEST = {"num_hidden_layers": 4096, "vocab_size": 2**24, "max_position_embeddings": 2**31}
_LARGEST_OTHER = 2**20
COPY = "copy the model's own config.json"


class Fields:
    """The mapping being read."""

    def __init__(self, config: Mapping[str, Any], where: str) -> None:
        self.config, self.where = config, where
        self.problems: list[Problem] = []
        self.used: set[str] = set()
        kind = self.get("model_type")
        self.family = kind if isinstance(kind, str) else ""

    def get(self, key: str) -> Any:
        """The value as it stands; None where it is absent."""
        self.used.add(key)
        return self.config.get(key)

    def wrong(self, key: str, value: object, rule: str, remedy: str = COPY) -> None:
        """Adds a problem."""
        self.problems.append(Problem(f"{self.where}.{key}", value, rule, remedy))

    def count(self, *keys: str, default: int | None = None, least: int = 1) -> int:
        """The first of `keys` that is given and not null, as an integer; `least` stands in where that is a problem.

        Of a list with a number for each layer the common one is taken.
        """
        found = None
        for key in keys:
            value = self.get(key)
            if value is None or found is not None:
                continue
            if isinstance(value, list) and value and all(v == value[0] for v in value):
                value = value[0]
            most = _LARGEST.get(key, _LARGEST_OTHER)
            if isinstance(value, int) and not isinstance(value, bool) and least <= value <= most:
                found = value
            else:
                self.wrong(key, value, f"an integer from {least} to {most}")
                found = max(1, least)
        if found is None and default is None:
            self.wrong(keys[0], None, "required", "copy the model's own config.json, whole")
            return max(1, least)
        return found if found is not None else default or 0

    def flag(self, *keys: str, default: bool) -> bool:
        """The first of `keys` that is given and not null."""
        for key in keys:
            value = self.get(key)
            if isinstance(value, bool):
                return value
            if value is not None:
                self.wrong(key, value, "true or false")
                return default
        return default

    def listed(self, key: str, layers: int) -> list[Any] | None:
        """A list with an entry of one kind, text or integer, for each layer; None where it is absent or wrong."""
        value = self.get(key)
        if value is None:
            return None
        alike = isinstance(value, list) and (
            all(isinstance(v, str) for v in value) or all(isinstance(v, int) and not isinstance(v, bool) for v in value)
        )
        if alike and len(value) == layers:
            return list(value)
        rule = f"must be a list of {layers} texts or integers, one per layer"
        self.wrong(key, value if isinstance(value, str) else type(value).__name__, rule, "copy it whole")
        return None

    def nested(self, key: str) -> Fields:
        """The fields of a mapping inside; their problems are this one's too."""
        value = self.get(key)
        inner = Fields(value if isinstance(value, Mapping) else {}, f"{self.where}.{key}")
        if value is not None and not isinstance(value, Mapping):
            self.wrong(key, type(value).__name__, "a JSON object")
        inner.problems = self.problems
        inner.family = self.family
        return inner


def read_json(path: Path) -> Any:
    """The parsed file; InputError for a directory, a pipe, a huge, unreadable or malformed file.

    Published files hold numbers that are none (a `time_step_limit` of Infinity); a field that is read names its own.
    """
    try:
        if not path.exists():
            raise InputError([Problem("model", str(path), "must be an existing file", "check the path")])
        if not path.is_file():
            raise InputError([Problem("model", str(path), "must be a regular file", "give the config.json itself")])
        size = path.stat().st_size
        if size > _MAX_FILE_BYTES:
            rule = f"must be at most {_MAX_FILE_BYTES} bytes (it has {size})"
            raise InputError([Problem("model", str(path), rule, "give config.json, not the weights or tokenizer")])
        return from_loose_json(path.read_text(encoding="utf-8"))
    except (OSError, UnicodeDecodeError) as error:
        raise InputError([Problem("model", str(path), "must be a readable text file", str(error))]) from error
    except ValueError as error:
        raise InputError([Problem("model", str(path), f"valid JSON ({error})", "download it again")]) from error
