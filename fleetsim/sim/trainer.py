"""The trainer: waits for samples, trains on them, hands over the weights."""

from __future__ import annotations

import math

import numpy as np

from fleetsim.config.law_numbers import law_of, round_groups
from fleetsim.config.pools import PhaseConfig, TrainerConfig
from fleetsim.config.scenario import most_steps
from fleetsim.engine.kernel.tables import CMD_MOVE, CMD_RESUME, CMD_REVIVE, CMD_SWITCH_OFF, DONE
from fleetsim.engine.transport import sync_times
from fleetsim.policies.samples import BATCH_RULES, IN_FLIGHT
from fleetsim.sim import buffer
from fleetsim.sim.admission import begin_step
from fleetsim.sim.buffer import Ids, pick, ready_groups
from fleetsim.sim.failures import give_back_closed, lose, resize
from fleetsim.sim.periodic import checkpoint, evaluate
from fleetsim.sim.records import SWITCH, TRAIN, WAIT
from fleetsim.sim.run_state import Process, RunState
from fleetsim.sim.spot import paid_seconds
from fleetsim.sim.stations import counts_now
from fleetsim.sim.sync import hand_over
from fleetsim.sim.waiting import wait_for_groups

# The method `sum` of so few rows takes twice as long.
_sum = np.add.reduce


def train(job: RunState) -> Process:
    """All optimizer steps of the run, or as many as its watch wants."""
    scenario, env = job.scenario, job.env
    colocated = scenario.fleet.placement == "colocated"
    parts, want = scenario.trainer.minibatches, scenario.groups_per_step // scenario.trainer.minibatches
    for step in range(most_steps(scenario)):
        start = job.now
        _apply_events(job, step)
        begin_round(job)
        begin_step(scenario, job.fleet, job.progress, step)
        wait = compute = switch = sync_block = 0.0
        if scenario.fleet.placement == "colocated_lending":
            switch = yield from lend(job, step)
            wait = job.now - start - switch
        prompt = output = trained = 0
        for part in range(parts):
            asked = job.now
            job.trainer_does(WAIT, step)
            batch = yield from wait_for_groups(job, step, want)
            wait += job.now - asked
            ready = job.now
            if part == 0:
                state = fleet_state(job)
            _take(job, batch, step, last=part == parts - 1)
            if colocated:
                drained = yield from _take_gpus(job, step)
                wait, switch = wait + drained, switch + (job.now - ready - drained)
            if part == 0:
                train_start = job.now
            tokens = _tokens(job, batch)
            seconds = job.slowdown * compute_seconds(job, tokens[0] + tokens[1], 1.0 / parts)
            job.trainer_does(TRAIN, step)
            yield env.timeout(seconds)
            compute, prompt, output = compute + seconds, prompt + tokens[0], output + tokens[1]
            trained += tokens[2]
            job.pulls += 1
            job.samples += len(batch) * scenario.workload.group_size
            if scenario.sync.trigger == "pulls" and job.pulls == scenario.sync.every_pulls:
                began = job.now
                drained = yield from hand_over(job, step, step + (part + 1) / parts)
                wait, sync_block = wait + drained, sync_block + (job.now - began - drained)
        train_end = job.now
        saved = yield from checkpoint(job, step)
        if _publishes(job, step):
            began = job.now
            drained = yield from hand_over(job, step, step + 1.0)
            wait, sync_block = wait + drained, sync_block + (job.now - began - drained)
        if colocated:
            job.trainer_does(SWITCH, step)
            switch += scenario.fleet.switch_s
            yield env.timeout(scenario.fleet.switch_s)
            job.fleet.set(halted=0)
            job.fleet.command(CMD_RESUME, at=job.now)
        evaluated = yield from evaluate(job, step)
        give_back_closed(job)
        times = (start, ready, train_start, train_end, job.now, wait, compute, switch, saved, sync_block, evaluated)
        job.steps.append((step, *times, prompt + output, output, trained, *state, *totals(job)))
        job.stations += [(step, k, *counts) for k, counts in enumerate(counts_now(job.fleet.world))]
        if job.watch is not None and job.watch(step + 1, job.now):
            break
    job.done = True


def _publishes(job: RunState, step: int) -> bool:
    """Whether a publication falls to the end of this step."""
    sync = job.scenario.sync
    if sync.trigger == "samples":
        return job.samples >= (sync.every_samples or 1)
    return sync.trigger == "steps" and (step + 1) % sync.every_steps == 0


def _take_gpus(job: RunState, step: int) -> Process:
    """Colocated: engines stop, after their last sample if work in flight is drained, and the GPUs change hands.

    Returns the seconds of the drain: the trainer still waits for samples in them."""
    asked = job.now
    if IN_FLIGHT[job.scenario.sync.in_flight].drains:
        job.fleet.set(halted=1)
        if job.fleet.get("in_flight") > 0:
            job.trainer_does(WAIT, step)
            yield job.fleet_empty()
    drained = job.now - asked
    job.trainer_does(SWITCH, step)
    job.fleet.hold(job.now)
    yield job.env.timeout(job.scenario.fleet.switch_s)
    return drained


def compute_seconds(job: RunState, tokens: int, share: float = 1.0) -> float:
    """Seconds of one optimizer step, or of a `share` of it, on so many tokens: phases, then the update."""
    trainer = job.scenario.trainer
    phases: list[TrainerConfig | PhaseConfig] = [trainer, *trainer.phases]
    return sum(phase.fixed_s * share + phase.per_token_s * tokens for phase in phases)


def _apply_events(job: RunState, step: int) -> None:
    """What the scenario says happens when this step begins."""
    for event in job.scenario.run.events:
        if event.step == step:
            if event.instances is not None:
                resize(job, event.instances)
            if event.trainer_slowdown is not None:
                job.slowdown = event.trainer_slowdown
            if event.sync_slowdown is not None:
                job.times = sync_times(job.scenario).slower(event.sync_slowdown)
            if event.length_factor is not None:
                job.fleet.stretch(event.length_factor)
            if event.lose_instance is not None:
                lose(job, event.lose_instance)


def _take(job: RunState, batch: Ids, step: int, *, last: bool) -> None:
    """The groups leave the buffer; with the last part of a batch, what a first-finished rule does not need goes."""
    scenario, fleet = job.scenario, job.fleet
    buffer.take(fleet, batch, step, job.now)
    job.progress.taken_groups += len(batch)
    job.progress.taken_of_round += len(batch)
    if last:
        job.progress.generating = False
        if BATCH_RULES[scenario.buffer.batch_rule].rounds and scenario.buffer.leftover != "carry_over":
            bound = fleet.started()
            if law_of(scenario).rounds == "overlapping":
                bound = min(bound, (step + 1) * round_groups(scenario))
            late = buffer.ready_groups(fleet)
            buffer.abort(fleet, late[late < bound], job.now)
            if scenario.buffer.leftover == "defer":
                put_off(job)
            else:
                unfinished = fleet.unfinished()
                job.discard(unfinished[unfinished < bound])
    job.top_up()


def _tokens(job: RunState, batch: Ids) -> tuple[int, int, int]:
    """Prompt and output tokens of the batch, tool tokens counted with the prompts; and its samples."""
    samples = job.fleet.world.samples
    rows = job.fleet.samples_of(batch)
    rows = rows[samples["status"][rows] == DONE]
    # a rollout that a station cut short has made fewer than were its length
    output = np.minimum(samples["target"][rows], samples["made"][rows])
    prompt, extra = (int(np.add.reduce(samples[name][rows])) for name in ("prompt", "extra"))
    return prompt + extra, int(np.add.reduce(output)), len(rows)


def begin_round(job: RunState) -> None:
    """Begins a round. It is a long one when the groups that were put off fill a batch: then it has these groups and no
    others."""
    batch = job.scenario.groups_per_step
    job.progress.round_groups = None
    if job.scenario.buffer.leftover == "defer" and len(job.deferred) >= batch:
        again, job.deferred = job.deferred[:batch], job.deferred[batch:]
        job.fleet.draws.repeat(np.array(again, np.int64))
        job.progress.round_groups = batch


def put_off(job: RunState) -> None:
    """The round has its batch: unfinished groups are aborted and wait for a long round."""
    late = job.fleet.unfinished()
    job.deferred.extend(int(g) for g in late)
    job.discard(late)


def fleet_state(job: RunState) -> tuple[float, ...]:
    """What the fleet looks like when the batch is complete: columns version .. credits of STEP."""
    fleet = job.fleet
    size = job.scenario.workload.group_size
    buffered = ready_groups(fleet)
    versions = fleet.world.groups["version"][buffered]
    oldest = job.steps_behind(int(versions.min())) if len(buffered) else 0.0
    fleet.add_up(fleet.now)
    return (
        job.progress.version,
        len(buffered) * size,
        fleet.get("n_blocked") * size,
        float(oldest),
        fleet.get("in_flight"),
        fleet.get("running"),
        fleet.get("waiting"),
        fleet.get("kv_sum"),
        fleet.mean_kv_use(),
        fleet.get("credits"),
    )


def totals(job: RunState) -> tuple[float, ...]:
    """Totals since the start of the run: columns instances .. preemptions of STEP."""
    fleet = job.fleet
    fleet.advance(job.now)
    fleet.add_up(job.now)
    get = fleet.get
    return (
        get("up"),
        *(get("busy_s"), get("paused_s"), get("idle_s"), get("down_s")),
        job.lent_s,
        *paid_seconds(job),
        float(_sum(fleet.world.instances["block_s"])),
        *(get("generated"), job.evaluated_tokens, get("prefilled"), get("hit_tokens"), get("host_tokens")),
        fleet.prefill_busy_s(),
        *(get("aborted_tokens"), get("lost_tokens"), get("recomputed_tokens"), get("preemptions")),
    )


# --- The trainer's GPUs serve rollout while it waits for samples (verl's hybrid rollout with step switching).


def threshold_groups(job: RunState) -> int:
    """Groups that are ready when the trainer calls its GPUs back: return_at of a batch, one at least."""
    return max(1, math.ceil(job.scenario.fleet.lending.return_at * job.scenario.groups_per_step - 1e-9))


def _enough(job: RunState, step: int, wanted: int) -> bool:
    """Whether the rules would let the trainer take so many groups now."""
    batch, _ = pick(job.scenario, job.fleet, job.progress, wanted, step)
    return len(batch) == wanted


def lend(job: RunState, step: int) -> Process:
    """Lends the GPUs until enough groups are ready, if fewer are now; returns the seconds that the switching took.

    Each of the two switches takes switch_s. After the first, all requests in flight are routed again, to the lent
    instances too, and their prompts are computed again. When the GPUs are called back, their requests go to the other
    instances in the same way, and the GPUs switch once their last iteration has ended.
    """
    scenario, fleet, env = job.scenario, job.fleet, job.env
    wanted = threshold_groups(job)
    if _enough(job, step, wanted):
        return 0.0
    job.under_way += 1
    job.trainer_does(SWITCH, step)
    yield env.timeout(scenario.fleet.switch_s)
    job.under_way -= 1
    lent = range(fleet.own, fleet.own + fleet.lent)
    since = job.now
    for i in lent:
        fleet.serve_version(max(job.progress.version, job.loadable), i)
        fleet.command(CMD_REVIVE, i, job.now)
    for i in range(fleet.own):  # what is in flight spreads over them too: verl aborts it and routes it anew
        fleet.command(CMD_MOVE, i, job.now, -1)
    job.trainer_does(WAIT, step)
    yield from wait_for_groups(job, step, wanted)
    empty = [job.instance_empty(i) for i in lent]  # none of them takes the others' requests
    for i in lent:
        fleet.command(CMD_MOVE, i, job.now, -1)
    for i, emptied in zip(lent, empty, strict=True):
        if not emptied.processed:
            yield emptied
        fleet.command(CMD_SWITCH_OFF, i, job.now)
        job.lent_s += job.now - since
    job.under_way += 1
    job.trainer_does(SWITCH, step)
    yield env.timeout(scenario.fleet.switch_s)
    job.under_way -= 1
    return 2 * scenario.fleet.switch_s
