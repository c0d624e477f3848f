"""What a shell offers after TAB: names of scenarios, presets, profiles and metrics, and the keys of a scenario.

The options themselves are typer's work. Values are looked up only while a shell completes, so that no other start of
fleetsim pays for it; whatever goes wrong then offers nothing, for an error in the middle of a prompt helps nobody.
"""

from __future__ import annotations

import contextlib
import copy
import io
import sys
import typing
from collections.abc import Callable, Iterable, Iterator, MutableMapping, Sequence
from typing import Any

import typer
from typer.models import ParameterInfo

from fleetsim.cli.flags import annotate, parameters_of

Values = Callable[[str], list[str]]
_MOST_DEFAULT = 40  # characters of a default that is shown as an example


def attach(app: typer.Typer, prefix: str = "") -> None:
    """Gives each parameter of every command its values, by its name and its command's."""
    for command in app.registered_commands:
        if command.callback is None:
            continue
        path = f"{prefix}{command.name or command.callback.__name__}"
        parameters = parameters_of(command.callback)
        hints = dict(_completed(command.callback, path))
        annotate(command.callback, [p.replace(annotation=hints.get(p.name, p.annotation)) for p in parameters])
    for group in app.registered_groups:
        if group.typer_instance is not None:
            attach(group.typer_instance, f"{prefix}{group.name} ")


def values_of(command: str, parameter: str) -> Values | None:
    """The completer of one parameter; None = what the shell does by itself."""
    if parameter == "fail_if":
        return safe(lambda: _gate_metrics(command))
    if parameter == "name" and command.startswith("profile "):
        return safe(_profiles)
    if parameter == "name" and command == "scenario init":
        return safe(_scenarios)
    return _BY_NAME.get(parameter)


def safe(known: Callable[[], Iterable[str]]) -> Values:
    """The known words that begin as what was typed; nothing where they cannot be found out."""

    def values(incomplete: str) -> list[str]:
        try:
            return [word for word in known() if word.startswith(incomplete)]
        except Exception:  # noqa: BLE001 - see above
            return []

    return values


def keys(incomplete: str) -> list[str]:
    """`fleet.instances=` and its like. A single key is offered with its values, so that the shell adds no blank."""
    try:
        found = [
            path for path in dict(_paths()) if f"{path}=".startswith(incomplete) or incomplete.startswith(f"{path}=")
        ]
        if len(found) != 1:
            return [f"{path}=" for path in found]
        offered = [f"{found[0]}={value}" for value in dict(_paths())[found[0]] or ("null",)]
        return [word for word in (f"{found[0]}=", *offered) if word.startswith(incomplete)]
    except Exception:  # noqa: BLE001 - as in `safe`
        return []


def listed(incomplete: str) -> list[str]:
    """As `keys`, for several values with commas between: those that are not there yet."""
    key, sign, value = incomplete.partition("=")
    done, comma, last = value.rpartition(",")
    if not comma:
        return keys(incomplete)
    there = done.split(",")
    found = [word.partition("=")[2] for word in keys(f"{key}{sign}{last}")]
    return [f"{key}={done},{word}" for word in found if word and word not in there]


def _completed(callback: Callable[..., Any], path: str) -> Iterator[tuple[str, Any]]:
    """The annotations of a command with the completers in their marks, which are copied: commands share them."""
    for name, hint in typing.get_type_hints(callback, include_extras=True).items():
        values = values_of(path, name)
        marks = getattr(hint, "__metadata__", ())
        if values is None or not any(isinstance(mark, ParameterInfo) for mark in marks):
            yield name, hint
            continue
        copies = [copy.copy(mark) for mark in marks]
        for mark in copies:
            if isinstance(mark, ParameterInfo):
                mark.autocompletion = values
        yield name, typing.Annotated[hint.__origin__, *copies]


def _scenarios() -> Iterator[str]:
    """Files here, presets by their short name, the others by their full one; then all full names."""
    from fleetsim.config.data_files import shipped_scenarios

    yield from _files("*.yaml", "*.yml")
    yield from _presets()
    yield from shipped_scenarios()


def _presets() -> Iterable[str]:
    from fleetsim.config.data_files import presets

    return presets()


def _profiles() -> Iterator[str]:
    from fleetsim.config.data_files import data_folder

    yield from _files("*.profile.json")
    yield from sorted(path.stem for path in (data_folder("calibration") / "profiles").glob("*.json"))


def _files(*patterns: str) -> Iterator[str]:
    from pathlib import Path

    for pattern in patterns:
        yield from sorted(str(path) for path in Path().glob(pattern))


def _gate_metrics(command: str) -> Iterable[str]:
    from fleetsim.quantities import RUN_METRICS

    if command == "replay":
        from fleetsim.replay.result import METRICS

        return METRICS
    from fleetsim.plan.ask import COUNTS

    if command == "compare":  # what its gate knows, without the condition
        parts = ("regression.", "ratio.", "difference.", "")
        return ("regression", *(f"{part}{name}" for name in RUN_METRICS for part in parts))
    more = {"size": ("instances",), "split": ("rollout_gpus", "trainer_gpus"), "plan": COUNTS}
    return (*RUN_METRICS, *more.get(command, ()))


def _objectives() -> Iterator[str]:
    """Metrics, those of which one way is better by their bare name; any with its way before it."""
    from fleetsim.quantities import CATALOGUE

    yield from (metric.name for metric in CATALOGUE if metric.better is not None)
    yield from (f"{way}:{metric.name}" for way in ("min", "max") for metric in CATALOGUE)


def _paths() -> Iterator[tuple[str, tuple[str, ...]]]:
    """Every dotted key of a scenario that holds a value, with the values it may have, or its default."""
    from fleetsim.config.scenario import Scenario

    yield from _below(Scenario, "")


def _below(model: Any, prefix: str) -> Iterator[tuple[str, tuple[str, ...]]]:
    for name, field in model.model_fields.items():
        models = [m for m in _branches(field.annotation) if hasattr(m, "model_fields")]
        path = f"{prefix}{name}"
        if not models:
            yield path, _values(field)
        elif all("kind" in m.model_fields for m in models) and len(models) > 1:  # a union of laws
            yield path, ()
            yield f"{path}.kind", tuple(str(m.model_fields["kind"].default) for m in models)
            parts = {key: _values(f) for m in models for key, f in m.model_fields.items() if key != "kind"}
            yield from ((f"{path}.{key}", found) for key, found in parts.items())
        else:
            yield from _below(models[0], f"{path}.")


def _branches(annotation: Any) -> Iterator[Any]:
    """The types of a union, without their marks."""
    if typing.get_origin(annotation) is typing.Annotated:
        yield from _branches(typing.get_args(annotation)[0])
    elif typing.get_origin(annotation) in (typing.Union, type(int | str)):
        for branch in typing.get_args(annotation):
            yield from _branches(branch)
    else:
        yield annotation


def _values(field: Any) -> tuple[str, ...]:
    found: list[str] = []
    for branch in _branches(field.annotation):
        if typing.get_origin(branch) is typing.Literal:
            found += map(str, typing.get_args(branch))
        elif branch is bool:
            found += ["true", "false"]
    if not found and isinstance(field.default, (int, float, str)) and field.default != "":
        found = [str(field.default)]
    return tuple(value for value in found if len(value) <= _MOST_DEFAULT and " " not in value)


_BY_NAME: dict[str, Values] = {
    "scenario": safe(_scenarios),
    "files": safe(_scenarios),
    "preset": safe(_presets),
    "profile": safe(_profiles),
    "a": safe(lambda: (*_scenarios(), *_files("*.json", "*.om"))),
    "b": safe(lambda: (*_scenarios(), *_files("*.json", "*.om"))),
    "metric": safe(lambda: _gate_metrics("simulate")),
    "objective": safe(_objectives),
    "set_": keys,
    "set_a": keys,
    "set_b": keys,
    "given": keys,
    "sweep": keys,
    "grid": listed,
}


# --- What bash hands over when TAB is pressed: it cuts words at "=" and ":", and an answer goes behind the cut.
# So `--set admission.law=ver` comes as `--set`, `admission.law`, `=`, `ver`, while zsh and fish hand over two words.

_SIGNS = frozenset("=:")


@contextlib.contextmanager
def answering(environ: MutableMapping[str, str]) -> Iterator[None]:
    """Whole words go in, and of what is printed inside, only what bash does not have yet goes out."""
    said = rejoin(environ)
    if not said:
        yield
        return
    answer = io.StringIO()
    try:
        with contextlib.redirect_stdout(answer):
            yield
    finally:
        words = [word.removeprefix(said) for word in answer.getvalue().splitlines()]
        sys.stdout.write("".join(f"{word}\n" for word in words if word))


def rejoin(environ: MutableMapping[str, str]) -> str:
    """Puts the words together again, in place. Returns how the word at the cursor begins, up to the last cut: "" where
    bash has cut nothing, or where it is not bash that asks. Without the `--set=` of an option: its value alone counts.
    """
    if environ.get("_FLEETSIM_COMPLETE") != "complete_bash" or not environ.get("COMP_CWORD", "").isdecimal():
        return ""
    # One a line: the script that the shell runs sets IFS so.
    words = environ.get("COMP_WORDS", "").split("\n")[: int(environ["COMP_CWORD"]) + 1]
    joined, said = _joined(words)
    environ["COMP_WORDS"], environ["COMP_CWORD"] = "\n".join(joined), str(len(joined) - 1)
    return said.partition("=")[2] if said.startswith("-") else said


def _joined(words: Sequence[str]) -> tuple[list[str], str]:
    """The words, and the last one as far as the last cut in it."""
    joined: list[str] = []
    said, behind = "", False
    for word in words:
        sign = bool(word) and set(word) <= _SIGNS
        if (sign or behind) and len(joined) > 1:
            joined[-1] += word
        else:
            joined.append(word)
            said = ""
        if sign:
            said = joined[-1]
        behind = sign
    return joined, said
