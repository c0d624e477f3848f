"""How a value of a scenario is typed: by a flag of its own where there is one, else by `--set`."""

from __future__ import annotations

import re
from collections.abc import Collection, Iterator, Mapping
from dataclasses import fields
from typing import Any

from fleetsim.config.law_numbers import law_of
from fleetsim.config.lengths import ConstantTokens, Gamma, LengthSpec, Lognormal
from fleetsim.config.override import parse_override
from fleetsim.config.paths import is_at, is_touched, value_at
from fleetsim.config.scenario import Scenario
from fleetsim.config.yaml_text import from_yaml
from fleetsim.job.fields import CountedJob, typed
from fleetsim.job.options import change_texts
from fleetsim.job.settings import ALSO, LENGTH_FLAGS, LENGTHS, PATHS, place_of

Word = tuple[Mapping[str, Any], Mapping[str, Any]]
"""Options by name, and values by path: what one change is typed as."""


# The flags of a job that `simulate` has.
FLAGS = (*(n for f in fields(CountedJob) if place_of(n := f.name.rstrip("_")) is not None), "steps")
NAMES = {place: name for name, place in PATHS.items() if name in FLAGS}
_WORD = re.compile(r"[A-Za-z][A-Za-z0-9_./+-]*")


def words_for(paths: Collection[str], scenario: Scenario) -> Iterator[Word]:
    """A flag for each of these values of the scenario that has one and that it says alone; else the key and value."""
    done: set[str] = set()
    for path in paths:
        value, name = there(scenario, path), NAMES.get(path, "")
        also = dict(map(parse_override, ALSO.get(name, ())))
        if path == "workload.prompt_tokens" and value.keys() == {"kind", "value"}:
            value = value["value"]
        elif isinstance(value, dict) or (name == "max_staleness" and law_of(scenario).budget != "versions"):
            name = ""
        if path in done:
            continue
        if name and value is not None and all(_alike(there(scenario, key), said) for key, said in also.items()):
            done |= also.keys()
            yield {name: value}, {}
        else:
            yield {}, {path: value}


def _alike(value: Any, said: Any) -> bool:
    return bool((list(value) if isinstance(value, tuple) else value) == said)


def contradicts(option: str, changes: Mapping[str, Any]) -> bool:
    """Whether an option says something else than these values, which are said after it."""
    if option in LENGTH_FLAGS:
        return is_touched(LENGTHS, changes)
    if option == "max_staleness":  # a law of another budget refuses it, and one of batches takes it for its own number
        return any(is_at(path, "admission") for path in changes)
    return any(is_touched(path, changes) for path, _ in map(parse_override, ALSO.get(option, ())))


def length_flags(law: LengthSpec) -> Iterator[dict[str, Any]]:
    """Ways to say a law by flags, the shortest first; --len is the mean of what is generated, as people round it."""
    from fleetsim.workload.lengths import mean_length

    cap = {"max_len": law.max} if not isinstance(law, ConstantTokens) and law.max is not None else {}
    if cap:
        yield cap
    if isinstance(law, (Lognormal, Gamma, ConstantTokens)):
        mean = mean_length(law, at_least=1.0)
        said = {"len": float(f"{mean:.0f}" if mean >= 1000 else f"{mean:.4g}")}
        spread = {"len_cv": 0.0 if isinstance(law, ConstantTokens) else law.cv}
        yield from (spread, said, said | cap, said | spread, said | spread | cap)


def text_of(path: str, value: Any) -> str:
    """A value as one would type it: words without quotes, where they are read as words; a constant law as a number."""
    text = change_texts({path: value})[path].partition("=")[2]
    plain = from_yaml(text, path)
    if isinstance(plain, dict) and plain.keys() == {"kind", "value"}:
        plain, text = plain["value"], typed(plain["value"])
    if isinstance(plain, float) and plain.is_integer():
        text = typed(plain)
    if isinstance(plain, str) and _WORD.fullmatch(plain) and from_yaml(plain, path) == plain:
        text = plain
    return f"{path}={text}"


def unquoted(said: tuple[str, str]) -> tuple[str, str]:
    """A path and its text, as Python wrote it: without quotes that it needs not."""
    path, text = said
    return path, text_of(path, parse_override(text)[1]) if text.partition("=")[2].startswith('"') else text


def there(scenario: Scenario, path: str) -> Any:
    """The value at a path; None below a section that the scenario does not have."""
    try:
        return value_at(scenario, path)
    except AttributeError:
        return None
