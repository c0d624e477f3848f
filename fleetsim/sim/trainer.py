"""The trainer: waits for a batch, trains on it, hands over the weights."""

from __future__ import annotations

import numpy as np

from fleetsim.config.trainer import PhaseConfig, TrainerConfig
from fleetsim.engine.kernel.tables import (
    ACC_BUSY,
    ACC_DOWN,
    ACC_IDLE,
    ACC_OFF,
    ACC_PAUSED,
    CMD_DISCARD,
    CMD_RESUME,
    G_FILTERED,
)
from fleetsim.sim import buffer
from fleetsim.sim.admission import round_groups
from fleetsim.sim.failures import give_back_closed, resize
from fleetsim.sim.job import MOST_WASTED_BATCHES, Job, Process
from fleetsim.sim.stuck import wasting_error
from fleetsim.sim.sync import synchronise


def train(job: Job, size: list[int]) -> Process:
    """All optimizer steps of the run; size[0] is the number of instances that the fleet should have."""
    scenario, env = job.scenario, job.env
    for step in range(scenario.run.steps):
        start = job.now
        _apply_events(job, size, step)
        job.progress.generating = True
        job.top_up()
        batch = yield from _wait_for_batch(job, step)
        ready = job.now
        state = _fleet_state(job)
        _take(job, batch, step)
        switch = 0.0
        colocated = scenario.fleet.placement == "colocated"
        if colocated:
            yield from _take_gpus(job)
            switch = job.now - ready
        train_start = job.now
        prompt, output = _tokens(job, batch)
        compute = job.slowdown * compute_seconds(job, prompt + output)
        yield env.timeout(compute)
        train_end = job.now
        every = scenario.trainer.checkpoint.every_steps
        checkpoint = scenario.trainer.checkpoint.stall_s if every and (step + 1) % every == 0 else 0.0
        if checkpoint:
            yield env.timeout(checkpoint)
        sync_start = job.now
        if (step + 1) % scenario.sync.every_steps == 0:
            yield from _hand_over(job, step)
        sync_block = job.now - sync_start
        if colocated:
            switch += scenario.fleet.switch_s
            yield env.timeout(scenario.fleet.switch_s)
            job.fleet.set(halted=0)
            job.fleet.command(CMD_RESUME, 0, job.now)
        give_back_closed(job, size)
        times = (start, ready, train_start, train_end, job.now, ready - start, compute, switch, checkpoint, sync_block)
        trained = (prompt + output, output, len(batch) * scenario.workload.group_size)
        job.steps.append((step, *times, *trained, *state, *_totals(job)))
    job.done = True


def _take_gpus(job: Job) -> Process:
    """Colocated: engines stop, after their last sample if work in flight is drained, and the GPUs change hands."""
    if job.scenario.sync.in_flight == "drain" and job.fleet.get("in_flight") > 0:
        job.fleet.set(halted=1)
        yield job.fleet_empty()
    job.fleet.hold(job.now)
    yield job.env.timeout(job.scenario.fleet.switch_s)


def compute_seconds(job: Job, tokens: int) -> float:
    """Seconds of one optimizer step on so many tokens: phases, then the update."""
    trainer = job.scenario.trainer
    parts: list[TrainerConfig | PhaseConfig] = [trainer, *trainer.phases]
    return sum(part.fixed_s + part.per_token_s * tokens for part in parts)


def _apply_events(job: Job, size: list[int], step: int) -> None:
    for event in job.scenario.run.events:
        if event.step == step:
            if event.instances is not None:
                resize(job, size, event.instances)
            if event.trainer_slowdown is not None:
                job.slowdown = event.trainer_slowdown


def _wait_for_batch(job: Job, step: int) -> Process:
    """Waits until the buffer holds a batch that is young enough; stale groups are dropped on the way."""
    scenario, fleet = job.scenario, job.fleet
    trainer_version = step // scenario.sync.every_steps
    most = MOST_WASTED_BATCHES * scenario.groups_per_step
    dropped, before = 0, _filtered(job)
    while True:
        if fleet.get("n_ready") < scenario.groups_per_step:
            yield job.batch_of(scenario.groups_per_step)
        retry_limit = scenario.workload.filter.retry_limit
        if retry_limit is not None and _filtered(job) - before > retry_limit:
            raise wasting_error(scenario, fleet)
        batch, old = buffer.pick(scenario, fleet, trainer_version)
        if len(old):
            buffer.drop(fleet, old, job.now)
            dropped += len(old)
            if len(batch) < scenario.groups_per_step and dropped > most:
                raise wasting_error(scenario, fleet)
            job.top_up()
        if len(batch) == scenario.groups_per_step:
            return batch


def _filtered(job: Job) -> int:
    """Groups filtered so far; counted only where a retry limit asks for it."""
    if job.scenario.workload.filter.retry_limit is None:
        return 0
    return int(np.count_nonzero(job.fleet.world.groups["status"][: job.fleet.started()] == G_FILTERED))


def _take(job: Job, batch: buffer.Ids, step: int) -> None:
    """The batch leaves the buffer; what a first-finished rule leaves behind is aborted or carried over."""
    scenario, fleet = job.scenario, job.fleet
    buffer.take(fleet, batch, step, job.now)
    job.progress.generating = False
    if scenario.buffer.batch_rule == "first_finished" and scenario.buffer.leftover == "abort":
        bound = fleet.started()
        if scenario.admission.law == "batches_ahead":
            bound = min(bound, (step + 1) * round_groups(scenario))
        late = buffer.ready_groups(fleet)
        tokens = buffer.abort(fleet, late[late < bound], job.now)
        fleet.set(aborted_tokens=fleet.get("aborted_tokens") + tokens)
        fleet.command(CMD_DISCARD, bound, job.now)
    job.progress.taken_groups += len(batch)
    job.top_up()


def _hand_over(job: Job, step: int) -> Process:
    """The trainer's part of a weight sync: an earlier one must be over, then it is held for trainer_block_s.

    With a barrier or on shared GPUs nothing else can be done until the sync is over: it is held until then.
    """
    if job.sync_done is not None and not job.sync_done.processed:
        yield job.sync_done
    job.sync_done = job.env.process(synchronise(job, step))
    yield job.env.timeout(job.scenario.sync.trainer_block_s)
    alone = job.scenario.fleet.placement == "colocated" or job.scenario.admission.law == "barrier"
    if alone and not job.sync_done.processed:
        yield job.sync_done


def _tokens(job: Job, batch: buffer.Ids) -> tuple[int, int]:
    """Prompt and output tokens of the batch, tool tokens counted with the prompts."""
    size = job.scenario.workload.group_size
    samples = job.fleet.world.samples
    rows = (job.fleet.world.groups["first"][batch][:, None] + np.arange(size)).ravel()
    prompt, extra, output = (int(samples[name][rows].sum()) for name in ("prompt", "extra", "target"))
    return prompt + extra, output


def _fleet_state(job: Job) -> tuple[float, ...]:
    """What the fleet looks like when the batch is complete: columns version .. credits of STEP."""
    fleet, rows = job.fleet, job.fleet.world.instances
    size = job.scenario.workload.group_size
    buffered = buffer.ready_groups(fleet)
    versions = fleet.world.groups["version"][buffered]
    oldest = len(job.steps) - versions.min() * job.scenario.sync.every_steps if len(buffered) else 0.0
    up = rows["account"] != ACC_OFF
    free = rows["free"][up] / fleet.limits.kv_blocks
    return (
        job.progress.version,
        len(buffered) * size,
        fleet.get("n_blocked") * size,
        float(oldest),
        fleet.get("in_flight"),
        int(rows["running"].sum()),
        int(rows["waiting"].sum()),
        int(rows["kv_sum"].sum()),
        float(1.0 - free.mean()) if len(free) else 0.0,
        fleet.get("credits"),
    )


def _totals(job: Job) -> tuple[float, ...]:
    """Totals since the start of the run: columns instances .. preemptions of STEP."""
    fleet, rows = job.fleet, job.fleet.world.instances
    fleet.advance(job.now)
    return (
        int(np.count_nonzero(rows["account"] != ACC_OFF)),
        *(fleet.seconds(account, job.now) for account in (ACC_BUSY, ACC_PAUSED, ACC_IDLE, ACC_DOWN)),
        int(rows["generated"].sum()),
        int(rows["prefilled"].sum()),
        int(rows["hit_tokens"].sum()),
        fleet.get("aborted_tokens"),
        fleet.get("lost_tokens"),
        fleet.get("recomputed_tokens"),
        int(rows["preemptions"].sum()),
    )
