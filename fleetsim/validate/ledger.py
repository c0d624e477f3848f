"""The ledger of sealed cases: what stood in each before its first prediction, and what was changed since.

`sealed.yaml` beside the cases holds, for each sealed file, the hash that it had on the day it was written, the first
prediction of each arm, and every later edit with its reason. A file whose hash is not the last one there is refused.
"""

from __future__ import annotations

import hashlib
from collections.abc import Mapping
from pathlib import Path
from typing import Annotated, Literal, TypeVar

from pydantic import Field, ValidationError

from fleetsim.config.base import ConfigSection
from fleetsim.config.data_files import read_text
from fleetsim.config.yaml_text import MAX_BYTES, from_yaml
from fleetsim.errors import InputError, Problem

FILE = "sealed.yaml"
Date = Annotated[str, Field(pattern=r"^20[0-9]{2}-[01][0-9]-[0-3][0-9]$")]
Hash = Annotated[str, Field(pattern="^[0-9a-f]{64}$")]
_Section = TypeVar("_Section", bound=ConfigSection)
Words = Annotated[str, Field(min_length=1, max_length=2000)]


class Edit(ConfigSection):
    """A change after the first prediction. sha256: of the file after it."""

    date: Date
    sha256: Hash
    what: Words
    why: Words


class Sealed(ConfigSection):
    """A sealed case. first: the first prediction of each arm, in the case's measure; empty before it."""

    file: Annotated[str, Field(min_length=1, max_length=200)]
    sealed: Date
    sha256: Hash
    first: dict[str, float] = Field(default={})
    edits: Annotated[tuple[Edit, ...], Field(strict=False)] = ()

    @property
    def now(self) -> str:
        """The hash that the file has after its last edit."""
        return self.edits[-1].sha256 if self.edits else self.sha256


class Ledger(ConfigSection):
    """The file."""

    schema_version: Literal[1] = 1
    cases: Annotated[tuple[Sealed, ...], Field(strict=False)] = ()

    def first(self, case: str) -> dict[str, float]:
        """The first predictions of a case, by arm: its file begins with its id."""
        return next((entry.first for entry in self.cases if entry.file.startswith(f"{case}-")), {})


def hash_of(path: Path) -> str:
    """sha256 of a case's text, whatever ends its lines."""
    return hashlib.sha256(path.read_text(encoding="utf-8").encode()).hexdigest()


def read_section(path: Path, model: type[_Section], what: str, remedy: str) -> _Section:
    """A YAML file as a section. what: names it where it cannot be read. Raises InputError with what is wrong."""
    raw = from_yaml(read_text(path, what, MAX_BYTES), path.name)
    if not isinstance(raw, Mapping):
        raise InputError([Problem(path.name, raw, "must be a mapping", remedy)])
    try:
        return model.model_validate(dict(raw))
    except ValidationError as error:
        problems = [
            Problem(".".join([path.name, *map(str, e["loc"])]), e["input"] if e["type"] != "missing" else None,
                    e["msg"], remedy)
            for e in error.errors(include_url=False)
        ]  # fmt: skip
        raise InputError(problems) from None


def read_ledger(folder: Path) -> Ledger:
    """The ledger of a folder of cases; an empty one where there is none. Raises InputError with what is wrong."""
    path = folder / FILE
    return read_section(path, Ledger, "LEDGER", "correct the ledger") if path.is_file() else Ledger()


def check(ledger: Ledger, sealed: dict[str, Path], folder: Path) -> None:
    """Holds the sealed cases of a folder, by name of the file, against its ledger.

    Raises InputError for a case that the ledger does not know, that was changed, or that is gone.
    """
    known = {entry.file: entry for entry in ledger.cases}
    problems = [
        Problem(
            name, hash_of(path), f"is sealed, and {FILE} has no entry for it", "enter its hash before predicting it"
        )
        for name, path in sealed.items()
        if name not in known
    ]
    for name, entry in known.items():
        path = folder / name
        if not path.is_file():
            problems.append(Problem(name, None, f"stands in {FILE} and is gone", "put the file back"))
        elif hash_of(path) != entry.now:
            remedy = f"undo the change, or add an edit to {FILE}: date, sha256, what, why"
            problems.append(Problem(name, hash_of(path), f"was changed since it was sealed ({entry.now})", remedy))
    if problems:
        raise InputError(problems)
