"""A scenario in a framework's own words: `fleetsim scenario to verl job.yaml`."""

from __future__ import annotations

from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass
from typing import Any

from fleetsim import units
from fleetsim.config.scenario import Scenario
from fleetsim.frameworks.convert import FRAMEWORKS, framework_name
from fleetsim.frameworks.equal_parts import divides, refusal
from fleetsim.frameworks.forms import written
from fleetsim.frameworks.reading import one_line
from fleetsim.frameworks.reversal import LeftOut, settled
from fleetsim.frameworks.wanted_values import Limits, longest

# Nodes, and GPUs of each, as the frameworks call them.
_NODE_KEYS = (("nnodes", "n_gpus_per_node"), ("num_nodes", "num_gpus_per_node"), ("num_nodes", "gpus_per_node"))
_WHOLE_NODE = 8
_PLAIN = (str, int, float, bool)


@dataclass(frozen=True, slots=True)
class Exported:
    """A configuration made of a scenario.

    text: what to paste, in the framework's own form. settings: the same by key. says: setting -> the scenario paths
    that it stands for. left_out: what this framework cannot be told. facts: what the plan rests on, and no framework is
    told. yours: what a run needs besides. notes: what is odd about it.
    """

    framework: str
    mode: str
    text: str
    settings: Mapping[str, Any]
    says: Mapping[str, tuple[str, ...]]
    left_out: tuple[LeftOut, ...]
    facts: tuple[str, ...]
    yours: str
    notes: tuple[str, ...] = ()


def scenario_to(
    framework: str,
    scenario: Scenario,
    limits: Limits,
    name: str = "scenario",
    generated: float | None = None,
    step_s: float | None = None,
) -> Exported:
    """The scenario in the framework's own words.

    limits: what an engine takes where a scenario gives no limits. name: what the scenario is called. generated: mean
    tokens of a sample, after the cap. step_s: seconds of a training step. Raises InputError for a framework that is not
    known, or one that cannot run this scenario in any of its modes.
    """
    framework = framework_name(framework)
    known, found = FRAMEWORKS[framework], settled(framework, scenario, limits)
    facts = tuple(facts_of(scenario, generated, step_s))
    comments = {key: ", ".join(found.says.get(key, ("the mode",))) for key in found.settings}
    header = [
        f"Made by `fleetsim scenario to {framework} {name}`: {framework}, {found.mode.name}.",
        "Behind each setting stands what it says of the scenario.",
        f"The plan holds for {'; '.join(facts)}.",
        f"Yours to add: {known.yours}.",
    ]
    if found.left_out:
        header += [f"{framework} cannot be told:", *(f"  {left_out_words(framework, o)}" for o in found.left_out)]
    notes = tuple(_small_nodes(found.settings))
    gpus = scenario.trainer.gpus
    if not divides(scenario, gpus, framework):
        notes = (*notes, refusal(scenario, gpus, framework))
    header += [f"Note: {note}" for note in notes]
    text = written(known, found.mode.start, found.settings, comments, header)
    left_out, yours = found.left_out, known.yours
    return Exported(framework, found.mode.name, text, found.settings, found.says, left_out, facts, yours, notes)


def _small_nodes(settings: Mapping[str, Any]) -> Iterator[str]:
    """A number of GPUs that no full node divides is asked for in small nodes, which few clusters have."""
    for key, nodes in settings.items():
        for name, per_node in _NODE_KEYS:
            each = settings.get(key.removesuffix(name) + per_node) if key.endswith(name) else None
            if isinstance(each, int) and isinstance(nodes, int) and nodes > 1 and each < _WHOLE_NODE:
                gpus = nodes * each
                more = -(-gpus // _WHOLE_NODE) * _WHOLE_NODE
                asked = f"{gpus} GPUs are {nodes} nodes of {each} here ({key})"
                yield f"{asked}; {more} GPUs would be whole nodes of {_WHOLE_NODE}"


def left_out_words(framework: str, left: LeftOut) -> str:
    """A value that cannot be said, what holds in its place, and why."""
    want, has = (_shown(left.path, v) for v in (left.value, left.has))
    return f"{left.path} = {want}: {framework} has {has}" + (f" ({left.why})" if left.why else "")


def _shown(path: str, value: Any) -> str:
    own = "the engine's own" if path.startswith("engine.") else "no limit"
    return own if value is None else one_line(value, 60)


def facts_of(scenario: Scenario, generated: float | None = None, step_s: float | None = None) -> list[str]:
    """What decides the plan and stands in no configuration."""
    cap = longest(scenario.workload.output_tokens)
    outputs = "outputs" if generated is None else f"outputs of {generated:,.0f} tokens in the mean"
    return [
        f"{scenario.engine.gpu} GPUs",
        f"{outputs}, at most {cap:,}" if cap else outputs,
        *([] if step_s is None else [f"a trainer that takes {units.seconds(step_s)} a step"]),
    ]


def to_document(result: Exported) -> dict[str, Any]:
    """The same as one JSON document, the text in it."""
    return {
        "schema_version": 1,
        "command": "scenario to",
        "framework": result.framework,
        "mode": result.mode,
        "text": result.text,
        "settings": dict(result.settings),
        "says": {key: list(paths) for key, paths in result.says.items()},
        "left_out": left_documents(result.left_out),
        "rests_on": list(result.facts),
        "yours": result.yours,
        "notes": list(result.notes),
    }


def left_documents(left_out: Sequence[LeftOut]) -> list[dict[str, Any]]:
    """What cannot be told, for JSON."""
    return [{"path": o.path, "value": plain(o.value), "has": plain(o.has), "why": o.why} for o in left_out]


def plain(value: Any) -> Any:
    """A value, or its text where JSON has none like it."""
    return value if value is None or isinstance(value, _PLAIN) else str(value)
