"""What every section of a scenario file shares: strict, frozen, no unknown keys, finite numbers, bounded counts."""

import os
from pathlib import Path
from typing import Annotated, Any, TypeVar

from pydantic import AfterValidator, BaseModel, ConfigDict, Field, ValidationInfo, model_validator
from pydantic_core import PydanticCustomError


class ConfigSection(BaseModel):
    """Base of every section. Numbers must be written as numbers ("8" and true are no integers); keys must be known."""

    model_config = ConfigDict(strict=True, extra="forbid", frozen=True, allow_inf_nan=False, defer_build=True)

    @model_validator(mode="before")
    @classmethod
    def _empty_section_means_defaults(cls, given: Any) -> Any:
        """A section header whose keys are all commented out reads as null in YAML; it means the defaults."""
        return {} if given is None else given


S = TypeVar("S", bound=ConfigSection)


def unsaid(section: type[S]) -> S:
    """A section of which nothing is said. Its own rules are not compiled for it: a whole scenario's are, once."""
    return section.model_construct()


class Named(dict[str, S]):
    """Sections by their names. It has a hash, as all that stands in a scenario: nothing changes one that was read."""

    def __hash__(self) -> int:
        return hash(frozenset(self.items()))


def wrong(rule: str, remedy: str) -> PydanticCustomError:
    """What a validator raises: the rule that a value breaks, and what to do."""
    return PydanticCustomError("wrong", "{rule}", {"rule": rule, "remedy": remedy})


# The upper bounds keep every count in 32 bits and every sum of them in 64; nothing real comes near them.
MAX_COUNT = 1_000_000_000
MAX_TOKENS = 100_000_000
MAX_SECONDS = 1e9

Count = Annotated[int, Field(ge=1, le=MAX_COUNT)]
CountOrZero = Annotated[int, Field(ge=0, le=MAX_COUNT)]
Tokens = Annotated[int, Field(ge=0, le=MAX_TOKENS)]
Seconds = Annotated[float, Field(ge=0, le=MAX_SECONDS)]
Price = Annotated[float, Field(ge=0, le=1e9)]
PositiveSeconds = Annotated[float, Field(gt=0, le=MAX_SECONDS)]
# What is looked at, or fails, more often than this keeps a simulation busy and says nothing.
Interval = Annotated[float, Field(ge=0.1, le=MAX_SECONDS)]  # of looks: a step has thousands, not a million
Fraction = Annotated[float, Field(ge=0, le=1)]
Factor = Annotated[float, Field(gt=0, le=1e6)]
Name = Annotated[str, Field(min_length=1, max_length=1000)]


def _beside_the_scenario(given: str, info: ValidationInfo) -> str:
    """The path of a config.json, or of its folder, from the folder of the scenario's file, if it lies there; anything
    else as it is. A folder is known by its slash, at the begin or at the end, for names have one, too."""
    base = (info.context or {}).get("base")
    is_file = given.endswith(".json")
    is_folder = given.startswith(("./", "../")) or given.endswith("/")
    if base is None or Path(base) == Path() or not (is_file or is_folder):
        return given
    path = Path(base) / given
    return os.path.abspath(path) if (path if is_file else path / "config.json").is_file() else given


def beside_the_scenario(given: Any, key: str, info: ValidationInfo) -> Any:
    """A section with the file at `key` as a whole path, from the folder of the scenario's file: so a dumped scenario
    loads from anywhere."""
    base = (info.context or {}).get("base")
    if base is None or not isinstance(given, dict) or not isinstance(given.get(key), str) or not given[key]:
        return given
    return {**given, key: os.path.abspath(os.path.join(base, given[key]))}


ModelName = Annotated[Name, AfterValidator(_beside_the_scenario)]
