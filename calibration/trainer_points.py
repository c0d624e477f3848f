"""Published training steps (public/trainer_points.yaml), as plans whose seconds are known."""

from __future__ import annotations

from collections.abc import Iterator, Mapping
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import yaml

from fleetsim.engine.gpus import GpuSpec, gpu_spec
from fleetsim.engine.model.names import model_shape
from fleetsim.engine.model.shape import ModelShape
from fleetsim.trainer.plan import Batch, Recipe, TrainerLayout, TrainingPlan
from fleetsim.trainer.seconds import TrainerFit, family_of, kind_of, step_seconds

POINTS = Path(__file__).resolve().parent / "public" / "trainer_points.yaml"


@dataclass(frozen=True, slots=True)
class Step:
    """One published time: of the update, or of the passes for log-probs, of one row of the file."""

    id: str
    source: str
    what: str
    seconds: float
    passes: int
    plan: TrainingPlan
    fitted: bool
    why: str

    @property
    def name(self) -> str:
        """Unique among all: the row, and what of it."""
        return f"{self.id} {self.what}"

    @property
    def kind(self) -> str:
        """Backend and kind of model."""
        return kind_of(self.plan.shape, self.plan.recipe.backend)

    @property
    def family(self) -> str:
        """Framework and kind of model, by which factors are fitted: "verl dense"."""
        return family_of(self.plan.shape, self.framework)

    @property
    def framework(self) -> str:
        """Whose trainer it is."""
        return str(self.plan.recipe.framework)

    def predicted(self, fit: TrainerFit) -> float:
        """Seconds of the model."""
        found = step_seconds(self.plan, fit)
        return found.update if self.what == "update" else self.passes * found.forward


def read_steps() -> tuple[Step, ...]:
    """Every time of every row."""
    document = yaml.safe_load(POINTS.read_text(encoding="utf-8"))
    return tuple(step for row in document["points"] for step in _steps(row))


def sources() -> dict[str, str]:
    """Who published the rows."""
    return dict(yaml.safe_load(POINTS.read_text(encoding="utf-8"))["sources"])


def rows() -> tuple[Mapping[str, Any], ...]:
    """The rows as they stand in the file."""
    return tuple(yaml.safe_load(POINTS.read_text(encoding="utf-8"))["points"])


def plan_of(row: Mapping[str, Any]) -> TrainingPlan:
    """The plan of a row."""
    shape, gpu = model_shape(row["model"]), gpu_spec(row["gpu"])
    layout = TrainerLayout(row["gpus"], *(row.get(name, 1) for name in ("tp", "pp", "cp", "ep")))
    recipe = Recipe(
        backend=row["backend"],
        tune=row.get("tune", "full"),
        recompute=row.get("recompute", True),
        minibatches=row.get("minibatches", 1),
        micro_tokens=row["micro_tokens"],
        offload=row.get("offload", "none"),
        framework=row["framework"],
        experts=row.get("experts", "grouped"),
    )
    return TrainingPlan(shape, gpu, _batch(row, shape, gpu), recipe, layout)


def _steps(row: Mapping[str, Any]) -> Iterator[Step]:
    plan = plan_of(row)
    for what, passes in (("update", 1), ("forward", row.get("forwards", 1))):
        if what in row:
            yield Step(
                row["id"], row["from"], what, float(row[what]), passes, plan, row.get("fitted", True),
                row.get("why", ""),
            )  # fmt: skip


def _batch(row: Mapping[str, Any], shape: ModelShape, gpu: GpuSpec) -> Batch:
    spread = 1 + row.get("cv", 0.0) ** 2
    mean = row["mean"] if "mean" in row else _mean_of_mfu(row, shape, gpu, spread)
    return Batch(row["samples"], mean, row["longest"], row.get("token_length", mean * spread))


def _mean_of_mfu(row: Mapping[str, Any], shape: ModelShape, gpu: GpuSpec, spread: float) -> float:
    """Mean tokens of a sample from verl's MFU: six operations per weight and token, embeddings twice, and attention
    over all pairs (verl-project/verl, utils/flops_counter.py)."""
    flops = row["mfu"] * gpu.bf16_flop_s * row["gpus"] * row["update"]
    weights = shape.active_trunk_params + 2 * shape.embedding_params
    mean = flops / (6 * weights) / row["samples"]
    for _ in range(20):
        token = 6 * weights + 3 * shape.prefill_pair_flop * mean * spread
        mean = flops / token / row["samples"]
    return float(mean)
