"""What a training step takes, as a question: a job of which only the trainer, its batch and its GPUs count."""

from __future__ import annotations

from typing import TYPE_CHECKING, Annotated

from fleetsim.dataclass import dataclass
from fleetsim.job.fields import JOB, TRAINER, AnyJob, JobFields
from fleetsim.job.question import Lends, Option
from fleetsim.job.subject import ready

if TYPE_CHECKING:
    from fleetsim.job.job_face import Job
    from fleetsim.trainer.estimate import TrainerEstimate


@dataclass(frozen=True, kw_only=True)
class TrainedJob(JobFields):
    """The job that is trained."""

    batch: Annotated[int | None, Option("Samples per optimizer step (512).", JOB)] = None
    len_: Annotated[float | None, Option("Mean generated tokens per sample (1,513).", JOB)] = None
    max_len: Annotated[float | None, Option("Longest response, tokens: max_tokens (8,192).", JOB)] = None
    len_cv: Annotated[float | None, Option("Spread of the lengths: deviation / mean (1).", JOB)] = None
    prompt_len: Annotated[int | None, Option("Tokens per prompt (512).", JOB)] = None
    model: Annotated[str | None, Option("Hugging Face id, or a config.json (Qwen/Qwen2.5-7B).", TRAINER)] = None
    gpu: Annotated[str | None, Option("Its GPU: H100, H200, A100... (H100).", TRAINER)] = None
    trainer_gpus: Annotated[int | None, Option("GPUs of the trainer (the fewest that fit).", TRAINER)] = None


@dataclass(frozen=True, kw_only=True)
class TrainerStep:
    """How long is a training step, and how large must its trainer be?"""

    job: Annotated[AnyJob, Lends(TrainedJob)]

    def answer(self) -> tuple[Job, TrainerEstimate]:
        """The job and its trainer. Raises InputError with all that is wrong, and for a trainer that is too small."""
        from fleetsim.job.trainer_estimate import trainer_estimate

        job = ready(self.job)
        return job, trainer_estimate(job.scenario, job.given)
