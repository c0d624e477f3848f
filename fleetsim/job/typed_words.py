"""What is typed for a job: what a flag stands for, which flags contradict each other, and how a value is written."""

from __future__ import annotations

import re
from collections.abc import Collection, Iterator, Mapping, Sequence
from typing import Any

from fleetsim.config.law_numbers import law_of
from fleetsim.config.load import parse_override
from fleetsim.config.scenario import Scenario
from fleetsim.config.tree import is_at, is_given, is_touched, value_at
from fleetsim.config.workload import ConstantTokens, Gamma, LengthSpec, Lognormal
from fleetsim.config.yaml_text import from_yaml
from fleetsim.errors import InputError, Problem
from fleetsim.faces import SET, flag, text
from fleetsim.job.options import change_texts, override_text
from fleetsim.job.settings import ALSO, LENGTH_FLAGS, LENGTHS, PATHS, SIMULATE_FLAGS, place_of, typed

# Each of these says where the engine's speed comes from: the last word wins, so it takes the others back.
_SPEEDS = ("profile", "instance_tok_s", "gpu", "model")


def overrides(name: str, value: Any) -> list[str]:
    """The overrides that a flag stands for. JSON is YAML, so text keeps its quotes and numbers their digits."""
    return [*ALSO.get(name, ()), override_text(PATHS[name], value)]


def contradictions(flags: Mapping[str, Any]) -> list[Problem]:
    """Flags that name different sources for the engine's speed."""
    found = []
    if "profile" in flags:
        for name in ("instance_tok_s", "gpu", "model"):
            if name in flags:
                rule = "a profile has its own engine speed, GPU and model"
                found.append(Problem(flag(name), flags[name], rule, "drop one of the two"))
    return found


def given_twice(sets: Sequence[str], flags: Mapping[str, Any]) -> list[Problem]:
    """A path that a flag and --set both give: neither may lose in silence."""
    found = []
    for written in sets:
        try:
            path, _ = parse_override(written)
        except InputError:
            continue  # told by the load
        name = said_by(path, flags)
        if name is not None:
            rule, remedy = text("{} says the same thing", flag(name)), text("keep {} or {}", SET, flag(name))
            found.append(Problem(SET, written, rule, remedy))
    return found


def said_by(path: str, flags: Collection[str]) -> str | None:
    """The one of these flags that says what stands at a path; the flags of lengths say a law together."""
    if is_at(path, LENGTHS):
        return next((name for name in LENGTH_FLAGS if name in flags), None)
    return next((name for name in flags if PATHS.get(name) == path), None)


def merged(
    texts: Mapping[str, str], options: Mapping[str, Any], new: Mapping[str, str], said: Mapping[str, Any]
) -> tuple[dict[str, str], dict[str, Any]]:
    """`key.path=value` texts by path, and options, with what is said anew: the last word wins.

    texts, options: as they were. new, said: the same, said since.
    """
    places = {place for name in said if (place := place_of(name)) is not None}
    earlier = {path: text for path, text in texts.items() if not is_given(path, places | new.keys())}
    kept = {name: value for name, value in options.items() if not is_given(place_of(name) or "", new.keys())}
    if "profile" in said:
        kept = {name: value for name, value in kept.items() if name not in _SPEEDS}
    elif any(name in said for name in _SPEEDS):
        kept.pop("profile", None)
    return earlier | dict(new), kept | dict(said)


def unused_notes(flags: Mapping[str, Any]) -> tuple[str, ...]:
    """Flags that name the hardware beside a speed that was given as a number."""
    if "instance_tok_s" not in flags:
        return ()
    idle = [f"--{name}" for name in ("gpu", "model") if name in flags]
    if not idle:
        return ()
    return (f"{' and '.join(idle)} only name the instance: its speed is --instance-tok-s",)


Word = tuple[Mapping[str, Any], Mapping[str, Any]]
"""Options by name, and values by path: what one change is typed as."""


# Path -> the flag of `simulate` that says it alone.
NAMES = {place: name for name, place in PATHS.items() if name in SIMULATE_FLAGS}
_WORD = re.compile(r"[A-Za-z][A-Za-z0-9_./+-]*")


def words_for(paths: Collection[str], scenario: Scenario) -> Iterator[Word]:
    """A flag for each of these values of the scenario that has one and that it says alone; else the key and value."""
    done: set[str] = set()
    for path in paths:
        value, name = there(scenario, path), NAMES.get(path, "")
        also = dict(map(parse_override, ALSO.get(name, ())))
        if name and isinstance(value, dict) and value.keys() == {"kind", "value"}:  # a constant law
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
