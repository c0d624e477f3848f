"""What an estimated training step says: seconds by pass, other counts of GPUs, memory, and how sure it is."""

from __future__ import annotations

from collections.abc import Iterator
from typing import Any

from fleetsim import units
from fleetsim.config.scenario import Scenario
from fleetsim.records import as_dict, replace
from fleetsim.tell.data import head
from fleetsim.tell.document import Document, Section, Table
from fleetsim.tell.facts import explained, facts
from fleetsim.trainer.estimate import TrainerEstimate, laid_out
from fleetsim.trainer.plan import Memory, TrainerLayout, TrainingPlan
from fleetsim.trainer.seconds import KnownTrainerError, StepSeconds, shipped_fit, step_seconds

# Counts of GPUs beside the estimate's own, as multiples of it.
_BESIDE = (0.5, 2, 4, 8)


def document(found: TrainerEstimate) -> Document:
    """What `fleetsim profile trainer` says."""
    plan = found.plan
    title = f"about {units.seconds(found.step_s)} a step: {plan.shape.name} on {plan.layout.words} {plan.gpu.name}"
    samples = f"{plan.batch.samples:,} samples of {units.tokens(plan.batch.mean)} tokens"
    chosen = "; the smallest trainer that fits, because nobody gave its GPUs" if found.chosen else ""
    answer = facts(
        title,
        explained("recipe", f"{recipe_words(found)}, {samples}{chosen}."),
        explained("error", error_words(found.error)),
    )
    return Document(
        "fleetsim profile trainer",
        answer,
        (
            Section("where the seconds go", (_seconds(found),)),
            Section("on other counts of GPUs", (_scaling(found),)),
            Section("memory of one GPU", (_memory(found.memory),)),
        ),
    )


def recipe_words(found: TrainerEstimate) -> str:
    """ "FSDP, activations recomputed, packed"."""
    recipe = found.plan.recipe
    words = ["FSDP" if recipe.backend == "fsdp" else "Megatron"]
    words += [f"as {recipe.framework} has it"] if recipe.framework else []
    words += ["adapters"] if recipe.tune == "lora" else []
    words += ["activations recomputed" if recipe.recompute else "activations kept"]
    words += ["packed" if recipe.packing else "padded"]
    words += [f"copies on every {found.plan.shards:,} GPUs"] if found.plan.shards < found.gpus else []
    words += ["experts one by one"] if recipe.experts == "looped" else []
    words += ["fp8"] if recipe.precision == "fp8" else []
    words += {"none": [], "states": ["states offloaded"], "adam": ["optimizer in host memory"]}[recipe.offload]
    steps = recipe.epochs * recipe.minibatches
    return ", ".join([*words, *([units.plural(steps, "optimizer step")] if steps > 1 else [])])


def error_words(error: KnownTrainerError | None) -> str:
    """How far off published steps of this kind are."""
    if error is None:
        return "Nothing was published of this kind of trainer: nobody knows how far it is off."
    return (
        f"Its error: {units.share(error.median, 0)} in the median, {units.share(error.p90, 0)} for nine of ten: of "
        f"{units.plural(error.points, 'published step')} of this kind that the fit did not see."
    )


def _seconds(found: TrainerEstimate) -> Table:
    s, passes = found.seconds, found.seconds.passes
    rows = [("update", units.seconds(s.update), f"{units.share(found.mfu, 0)} of the GPUs' peak (MFU)")]
    if passes:
        rows.append(("log-probs", units.seconds(passes * s.forward), units.plural(passes, "pass")))
    rows += [
        ("arithmetic and memory", units.seconds(s.divides), "divided by more GPUs"),
        ("collectives", units.seconds(s.grows), "grows with them"),
        ("optimizer steps, micro-batches", units.seconds(s.stays), "stays"),
    ]
    return Table("Seconds of a step", ("", "seconds", ""), tuple(rows), words_last=1)


def _scaling(found: TrainerEstimate) -> Table:
    rows = tuple(
        (f"{one.layout.gpus:,}", one.layout.words, units.seconds(seconds.total), f"{found.step_s / seconds.total:.2f}")
        for one, seconds in others(found)
    )
    note = "" if rows else "No other count fits."
    return Table("Other counts of GPUs", ("GPUs", "layout", "step", "times as fast"), rows, left=2, note=note)


def others(found: TrainerEstimate) -> Iterator[tuple[TrainingPlan, StepSeconds]]:
    """The plan on half and on multiples of its GPUs where it fits, with its seconds."""
    fit = shipped_fit()
    for factor in _BESIDE:
        gpus = round(found.gpus * factor)
        plan = laid_out(replace(found.plan, layout=TrainerLayout(gpus)), fit) if gpus >= 1 else None
        if plan is not None:
            yield plan, step_seconds(plan, fit)


def _memory(memory: Memory) -> Table:
    rows = (
        ("weights, gradients, optimizer", units.gib(memory.states)),
        ("activations of a micro-batch", units.gib(memory.activations)),
        ("runtime", units.gib(memory.runtime)),
        ("may be filled", units.gib(memory.room)),
    )
    return Table("Memory of one GPU", ("", "bytes"), rows)


def data(found: TrainerEstimate, scenario: Scenario) -> dict[str, Any]:
    """The document of `fleetsim profile trainer --json`."""
    plan = found.plan
    return {
        **head("profile trainer", scenario),
        "step_s": found.step_s,
        "seconds": as_dict(found.seconds),
        "mfu": found.mfu,
        "model": plan.shape.name,
        "gpu": plan.gpu.name,
        "layout": {**as_dict(plan.layout), "dp": plan.layout.dp},
        "recipe": as_dict(plan.recipe),
        "batch": as_dict(plan.batch),
        "memory": {**as_dict(found.memory), "total": found.memory.total},
        "gpus_chosen": found.chosen,
        "error": None if found.error is None else as_dict(found.error),
        "other_counts": [{"gpus": one.layout.gpus, "step_s": seconds.total} for one, seconds in others(found)],
    }
