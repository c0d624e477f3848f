"""Rules that join two fields. Each is refused only where it is nonsense whatever the run does.

Limits that block each other while running (a buffer smaller than a batch, a cap below a group) are no business of
the loader: the run stops with StuckError and names them.
"""

from __future__ import annotations

from collections.abc import Callable, Iterator
from itertools import pairwise

from fleetsim.config.engine_rules import ENGINE_RULES
from fleetsim.config.lengths import ConstantTokens, Gamma, Lognormal
from fleetsim.config.policy_rules import POLICY_RULES
from fleetsim.config.sections import Sections
from fleetsim.config.transport_rules import TRANSPORT_RULES
from fleetsim.errors import Problem

Rule = Callable[[Sections], Iterator[Problem]]


def _batch_is_whole_groups(s: Sections) -> Iterator[Problem]:
    batch, group = s.trainer.batch_samples, s.workload.group_size
    if batch % group:
        below = batch // group * group
        near = f"{below} or {below + group}" if below else f"{group}"
        yield Problem(
            "trainer.batch_samples", batch, f"must be a multiple of workload.group_size ({group})", f"use {near}"
        )


def _engine_kind_has_its_source(s: Sections) -> Iterator[Problem]:
    if s.engine.kind == "measured" and s.engine.profile is None:
        yield Problem(
            "engine.profile", None, "kind measured needs a profile", "give its name or file, or use kind: roofline"
        )
    if s.engine.kind == "constant" and s.engine.instance_tok_s is None:
        yield Problem(
            "engine.instance_tok_s",
            None,
            "kind constant needs instance_tok_s",
            "give the output tokens per second of one instance, or use kind: roofline",
        )


def _prompts_hold_the_shared_prefix(s: Sections) -> Iterator[Problem]:
    prompt, prefix = s.workload.prompt_tokens, s.workload.shared_prefix_tokens
    bounds: list[tuple[str, float]] = []
    if isinstance(prompt, ConstantTokens):
        bounds.append(("the prompt", prompt.value))
    elif prompt.max is not None:
        bounds.append(("the longest prompt", prompt.max))
    if isinstance(prompt, Lognormal) and prompt.median is not None:
        bounds.append(("the median prompt", prompt.median))
    if isinstance(prompt, (Lognormal, Gamma)) and prompt.mean is not None:
        bounds.append(("the mean prompt", prompt.mean))
    for what, tokens in bounds:
        if prefix > tokens:
            yield Problem(
                "workload.shared_prefix_tokens",
                prefix,
                f"is part of every prompt, but {what} has {tokens:g} tokens",
                "count the shared system prompt in prompt_tokens as well",
            )
            return


def _prompts_and_outputs_have_tokens(s: Sections) -> Iterator[Problem]:
    for name in ("prompt_tokens", "output_tokens"):
        law = getattr(s.workload, name)
        if isinstance(law, ConstantTokens) and law.value < 1:
            yield Problem(f"workload.{name}", law.value, "must be at least 1 token", "use 1 or more")


def _every_turn_has_a_token(s: Sections) -> Iterator[Problem]:
    law, turns = s.workload.output_tokens, s.workload.turns.count
    most = law.value if isinstance(law, ConstantTokens) else law.max
    if turns > 1 and most is not None and most < turns:
        yield Problem(
            "workload.turns.count",
            turns,
            f"output_tokens counts all turns together, but is at most {most:g}",
            "raise output_tokens to a token per turn, or lower the turns",
        )


def _warmup_leaves_steps(s: Sections) -> Iterator[Problem]:
    warmup, steps = s.run.warmup_steps, s.run.steps
    if warmup is not None and steps is not None and warmup >= steps:
        yield Problem(
            "run.warmup_steps", warmup, f"must be below run.steps ({steps})", "simulate more steps or drop fewer"
        )


def _events_in_order(s: Sections) -> Iterator[Problem]:
    steps = [e.step for e in s.run.events]
    for i, (a, b) in enumerate(pairwise(steps)):
        if b < a:
            yield Problem(f"run.events[{i + 1}].step", b, f"events must be sorted by step (after {a})", "sort them")


def _most_instances(s: Sections) -> int:
    return max([s.fleet.instances, *(e.instances for e in s.run.events if e.instances is not None)])


def _lost_instances_exist(s: Sections) -> Iterator[Problem]:
    most = _most_instances(s)
    for i, event in enumerate(s.run.events):
        if event.lose_instance is not None and event.lose_instance >= most:
            yield Problem(
                f"run.events[{i}].lose_instance",
                event.lose_instance,
                f"no such instance: they are 0 to {most - 1}",
                "name one of them",
            )


def _speed_factors_have_instances(s: Sections) -> Iterator[Problem]:
    most = _most_instances(s)
    if len(s.fleet.speed_factors) > most:
        yield Problem(
            "fleet.speed_factors",
            len(s.fleet.speed_factors),
            f"more factors than instances (at most {most} during the run)",
            "drop the surplus or raise fleet.instances",
        )


def _phases_have_names_of_their_own(s: Sections) -> Iterator[Problem]:
    seen: set[str] = set()
    for i, phase in enumerate(s.trainer.phases):
        if phase.name in seen:
            yield Problem(f"trainer.phases[{i}].name", phase.name, "two phases have this name", "rename one")
        seen.add(phase.name)


# Each rule with the fields it reads: a field that is itself wrong must not raise a second, derived complaint.
RULES: tuple[tuple[Rule, tuple[str, ...]], ...] = (
    (_batch_is_whole_groups, ("trainer.batch_samples", "workload.group_size")),
    (_engine_kind_has_its_source, ("engine.kind", "engine.profile", "engine.instance_tok_s")),
    (_prompts_hold_the_shared_prefix, ("workload.prompt_tokens", "workload.shared_prefix_tokens")),
    (_prompts_and_outputs_have_tokens, ("workload.prompt_tokens", "workload.output_tokens")),
    (_every_turn_has_a_token, ("workload.output_tokens", "workload.turns.count")),
    (_warmup_leaves_steps, ("run.warmup_steps", "run.steps")),
    (_events_in_order, ("run.events",)),
    (_lost_instances_exist, ("fleet.instances", "run.events")),
    (_speed_factors_have_instances, ("fleet.speed_factors", "fleet.instances", "run.events")),
    (_phases_have_names_of_their_own, ("trainer.phases",)),
    *ENGINE_RULES,
    *POLICY_RULES,
    *TRANSPORT_RULES,
)


def broken_rules(s: Sections, wrong: frozenset[str] = frozenset()) -> list[Problem]:
    """All problems of the rules that read none of the `wrong` paths (nor anything under or above them)."""

    def touches(path: str) -> bool:
        return any(
            bad == path or not bad or bad.startswith((f"{path}.", f"{path}[")) or path.startswith(f"{bad}.")
            for bad in wrong
        )

    return [p for rule, reads in RULES if not (wrong and any(map(touches, reads))) for p in rule(s)]
