"""What a training step takes, as a question: a job of which only the trainer, its batch and its GPUs count."""

from __future__ import annotations

from collections.abc import Collection
from typing import TYPE_CHECKING, Annotated

from fleetsim.config.paths import is_given
from fleetsim.dataclass import dataclass
from fleetsim.job.fields import AnyJob, JobFields, ready
from fleetsim.job.question import Lends
from fleetsim.job.settings import TRAINER, said

if TYPE_CHECKING:
    from fleetsim.config.scenario import Scenario
    from fleetsim.job.base_job import Job
    from fleetsim.trainer.estimate import TrainerEstimate


@dataclass(frozen=True, kw_only=True)
class TrainedJob(JobFields):
    """The job that is trained."""

    batch: Annotated[int | None, said("batch")] = None
    len_: Annotated[float | None, said("len")] = None
    max_len: Annotated[float | None, said("max_len")] = None
    len_cv: Annotated[float | None, said("len_cv")] = None
    prompt_len: Annotated[int | None, said("prompt_len")] = None
    model: Annotated[str | None, said("model", TRAINER)] = None
    gpu: Annotated[str | None, said("gpu", TRAINER, "Its GPU: H100, H200, A100...")] = None
    trainer_gpus: Annotated[int | None, said("trainer_gpus")] = None


@dataclass(frozen=True, kw_only=True)
class TrainerStep:
    """How long is a training step, and how large must its trainer be?"""

    job: Annotated[AnyJob, Lends(TrainedJob)]

    def answer(self) -> tuple[Job, TrainerEstimate]:
        """The job and its trainer. Raises InputError with all that is wrong, and for a trainer that is too small."""
        job = ready(self.job)
        return job, trainer_estimate(job.scenario, job.given)


def trainer_estimate(scenario: Scenario, given: Collection[str]) -> TrainerEstimate:
    """The trainer of a job, on the GPUs that somebody gave, or on the smallest that fits.

    given: dotted paths that somebody wrote. Raises InputError as `estimate_of` does.
    """
    from fleetsim.trainer.estimate import estimate_of

    return estimate_of(scenario, scenario.trainer.gpus if is_given("trainer.gpus", given) else None)
