"""The job that a question is about, whichever face asked it."""

from __future__ import annotations

from typing import TYPE_CHECKING, Any, cast

from fleetsim.errors import Problems
from fleetsim.job.fields import AnyJob, JobFields

if TYPE_CHECKING:
    from fleetsim.job.base_job import Job


def ready(job: AnyJob, **more: Any) -> Job:
    """The job itself. more: flags of the question that change the job as well; a Job has heard of them before.

    Raises InputError with all that is wrong with the fields.
    """
    from fleetsim.job.base_job import BaseJob, made

    if isinstance(job, BaseJob):
        return cast("Job", job)
    assert isinstance(job, JobFields)
    wrong = Problems(job.wrong())
    with wrong.check():
        found = made(job.start(), job.set_ or (), job.flags() | more)
    wrong.stop()
    return found
