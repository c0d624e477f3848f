"""What a training step takes, as a question: a job of which only the trainer, its batch and its GPUs count."""

from __future__ import annotations

from typing import TYPE_CHECKING, Annotated

from fleetsim.dataclass import dataclass
from fleetsim.job.fields import AnyJob, JobFields
from fleetsim.job.question import Lends
from fleetsim.job.settings import TRAINER, said
from fleetsim.job.subject import ready

if TYPE_CHECKING:
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
        from fleetsim.job.trainer_estimate import trainer_estimate

        job = ready(self.job)
        return job, trainer_estimate(job.scenario, job.given)
