"""A job of the outside world, step by step: when, how long each phase took, which samples it trained on.

Frameworks pipeline in two ways. `World` starts groups while fewer than (1 + staleness) batches are begun beyond what
was trained. A `serial` generator makes one batch at a time, the next while the trainer has one; where it is `locked`
too, weights wait until the batch that is being made is complete (OpenRLHF's vllm_lock, slime's train_async.py).
"""

from dataclasses import dataclass

from tests.outside.setting import Setting
from tests.outside.world import Group, Request, World


@dataclass(frozen=True)
class Step:
    """A step, in seconds since the job began. held_s: what it waited, after training, for the lock."""

    number: int
    begin: float
    wait_s: float
    train_s: float
    held_s: float
    sync_s: float
    made_s: float
    queued: int
    ages: tuple[int, ...]
    lengths: tuple[int, ...]
    capped: int
    prompt: int
    group: int

    @property
    def end(self) -> float:
        """When its weights are where they belong."""
        return self.begin + self.wait_s + self.train_s + self.held_s + self.sync_s

    @property
    def step_s(self) -> float:
        """From the end of the step before."""
        return self.end - self.begin

    @property
    def mean(self) -> float:
        """Tokens of a response."""
        return sum(self.lengths) / len(self.lengths)


class Lived(World):
    """A world that keeps its steps."""

    def __init__(self, setting: Setting, serial: bool = False, locked: bool = False) -> None:
        super().__init__(setting)
        self.serial, self.locked = serial, locked
        self.steps: list[Step] = []
        self.samples: dict[int, list[Request]] = {}
        self.born: dict[int, float] = {}  # of a batch, where they are made one at a time
        self.made: dict[int, float] = {}
        self.began = self.trained = self.last = 0.0
        self.queued = 0
        self.batch: list[Group] = []
        self.holding: tuple[list[Group], float] | None = None

    def draw(self, group: int, now: float) -> Request:
        """Keeps each request with its group."""
        request = super().draw(group, now)
        self.samples.setdefault(group, []).append(request)
        self.born.setdefault((group - 1) // self.setting.batch, now)
        return request

    def finish(self, request: Request, now: float) -> None:
        """Keeps when the last of a batch was there."""
        self.made[(request.group - 1) // self.setting.batch] = now
        super().finish(request, now)

    def take(self, now: float) -> None:
        """Notes what a step begins with; lets weights go where only the lock held them."""
        if self.holding is not None and len(self.queue) >= self.setting.batch:
            batch, _ = self.holding
            self.holding = None
            super().stepped(batch, now)
            return
        before = list(self.queue)
        waited = self.trainer.state == "wait"
        super().take(now)
        if waited and self.trainer.state == "train":
            gone = before[: len(before) - len(self.queue)]
            self.batch = gone[-self.setting.batch :]
            self.began = now
            if self.serial:
                self.trained_groups += self.setting.batch
                self.fill(now)

    def stepped(self, batch: list[Group], now: float) -> None:
        """The optimizer step is done."""
        self.trained = now
        if self.locked and len(self.queue) < self.setting.batch:
            self.holding = (batch, now)
            return
        super().stepped(batch, now)

    def synced(self, now: float) -> None:
        """The step is over: keeps it."""
        if self.serial:
            self.trained_groups -= self.setting.batch
        sync_s = now - self.trainer.since if self.trainer.state == "sync" else 0.0
        requests = [request for group in self.batch for request in self.samples.pop(group.number)]
        number = len(self.steps)
        self.steps.append(
            Step(
                number=number,
                begin=self.last,
                wait_s=self.began - self.last,
                train_s=self.trained - self.began,
                held_s=now - sync_s - self.trained,
                sync_s=sync_s,
                made_s=self.made.get(number, 0.0) - self.born.get(number, 0.0),
                queued=self.queued,
                ages=tuple(self.trainer.steps - group.version for group in self.batch),
                lengths=tuple(request.length for request in requests),
                capped=sum(request.capped for request in requests),
                prompt=self.setting.prompt,
                group=self.setting.group,
            )
        )
        self.last, self.queued = now, len(self.queue)
        super().synced(now)


def live(setting: Setting, law: str) -> Lived:
    """Lives a job to its end. law: "window" and "barrier" (World's), "serial" or "locked"."""
    lived = Lived(setting, serial=law in ("serial", "locked"), locked=law == "locked")
    lived.run()
    return lived
