"""Settings that a scenario's other policies never read: told where somebody gives them, not ignored in silence."""

from __future__ import annotations

from collections.abc import Callable, Iterable

from fleetsim.config.paths import is_at
from fleetsim.config.scenario import Scenario
from fleetsim.policies.admission import readers
from fleetsim.policies.samples import AGE_ACTIONS, BATCH_RULES, listed, names_of


def _law(laws: list[str]) -> tuple[Callable[[Scenario], bool], str]:
    return (lambda s: s.admission.law in laws), f"admission.law {listed(laws)}"


# Path -> (whether the scenario reads it, what would).
_READERS: dict[str, tuple[Callable[[Scenario], bool], str]] = {
    **{path: _law(laws) for path, laws in readers().items()},
    "engine.gpu_sheet": (
        lambda s: s.engine.gpu_sheet is None or s.engine.gpu == s.engine.gpu_sheet.name,
        "an engine.gpu of the sheet's name",
    ),
    "engine.entry_point": (
        lambda s: s.engine.kind == "roofline" and s.engine.name == "vllm",
        "a vLLM of engine.kind roofline",
    ),
    "engine.overlap": (
        lambda s: s.engine.kind == "roofline" and s.engine.ranks > 1,
        "an engine of kind roofline whose ranks share experts (engine.dp, or prefill_dp or decode_dp)",
    ),
    "admission.max_age": (
        lambda s: AGE_ACTIONS[s.admission.age_action].limits_age,
        "an admission.age_action other than train_anyway",
    ),
    "sync.every_steps": (lambda s: s.sync.trigger == "steps", "sync.trigger steps"),
    "sync.at_once": (lambda s: s.sync.scope == "rolling", "sync.scope rolling"),
    "fleet.lending": (lambda s: s.fleet.placement == "colocated_lending", "fleet.placement colocated_lending"),
    "fleet.switch_s": (lambda s: s.fleet.placement != "disaggregated", "a colocated or lending fleet.placement"),
    "buffer.leftover": (
        lambda s: BATCH_RULES[s.buffer.batch_rule].rounds,
        f"buffer.batch_rule {names_of(lambda rule: rule.rounds)}",
    ),
    "buffer.oversampling": (lambda s: s.buffer.batch_rule == "first_finished", "buffer.batch_rule first_finished"),
    "buffer.wait_for_oldest": (
        lambda s: s.buffer.batch_rule == "oldest_version_first",
        "buffer.batch_rule oldest_version_first",
    ),
    "buffer.on_full": (lambda s: s.buffer.capacity_samples is not None, "a buffer.capacity_samples"),
}


def reader_of(scenario: Scenario, path: str) -> str:
    """What would read a path that nothing in this scenario reads; "" where something does."""
    for place, (reads, reader) in _READERS.items():
        if is_at(path, place) and not reads(scenario):
            return reader
    return ""


def unread_notes(scenario: Scenario, sets: Iterable[str]) -> tuple[str, ...]:
    """A sentence for each path among the `--set` texts that nothing in this scenario reads."""
    paths = dict.fromkeys(text.partition("=")[0].strip() for text in sets)
    found = {path: reader_of(scenario, path) for path in paths}
    return tuple(f"{path} changes nothing here: only {reader} reads it" for path, reader in found.items() if reader)
