"""How fast instances are under a load, and how full they are: the mix of a run on its engine's iteration times."""

from __future__ import annotations

import math

import numpy as np
from msgspec import Struct
from numpy.typing import NDArray

from fleetsim.engine.kernel.tables import DONE, GONE
from fleetsim.engine.step_time import StepTime
from fleetsim.sim.records import Records
from fleetsim.sim.stations import limits_of

Floats = NDArray[np.float64]
# Samples of a run from which their mean lengths are taken.
ENOUGH = 5000


class Mix(Struct, frozen=True):
    """What an iteration of a run holds beside b decodes: prefills x b prompt tokens, context x b cached tokens.

    prompt: tokens of a prompt. seqs: requests that an instance runs at most, by its own limits.
    """

    step_time: StepTime
    prefills: float
    context: float
    prompt: float
    seqs: float

    def iteration_s(self, decodes: Floats) -> Floats:
        """Seconds of an iteration with so many decodes."""
        return self.step_time.mixed_s(decodes, self.context, self.prefills, self.prompt / 2.0)

    @property
    def saturated_tok_s(self) -> float:
        """Output tokens per second of an instance that holds as many requests as it may."""
        seconds = float(self.iteration_s(np.array([self.seqs]))[0])
        return self.seqs / seconds if seconds > 0 else 0.0


def mix_of(records: Records, generated: float, prefilled: float) -> Mix:
    """The mix of a run that generated and prefilled so many tokens.

    The context is that of a sample met in flight, as `nameplate.context_in_flight`; what the memory holds follows
    from it. A prompt that siblings on one instance share is held once.
    """
    step_time, limits = records.engine
    samples = records.samples[:: 1 + len(records.samples) // ENOUGH]
    made = samples["target"].astype(np.float64)
    prompt, written = float(samples["prompt"].mean()), float(made @ made / made.sum()) / 2.0
    context, scenario = prompt + written, records.scenario
    together = scenario.fleet.group_placement == "together" and scenario.engine.prefix_caching
    held = limits.held_tokens(prompt / (scenario.workload.group_size if together else 1) + written)
    seqs = max(1.0, min(float(limits.max_num_seqs), limits.kv_tokens / held))
    apart = step_time.prefill is not None  # prompts take none of the time in which tokens are made
    return Mix(step_time, 0.0 if apart else prefilled / max(1.0, generated), context, prompt, seqs)


def in_flight(begin: Floats, end: Floats, at: Floats) -> Floats:
    """How many of the intervals begin to end hold each of the times `at`; an end below 0 has not come.

    Intervals without a beginning are not expected.
    """
    moments = np.sort(at, axis=None)

    def so_far(events: Floats) -> NDArray[np.int64]:
        """Events up to each moment. The moments are few and the events many: those are not sorted."""
        return np.cumsum(np.bincount(np.searchsorted(moments, events, side="left"), minlength=len(moments) + 1))

    held = so_far(begin) - so_far(np.where(end < 0, np.inf, end))
    return held[np.searchsorted(moments, at)].astype(np.float64)


def given_up_s(records: Records) -> Floats:
    """When each sample was given up in flight: with its group, or when that was complete without it; else below 0."""
    samples, when = records.samples, records.groups["ready_s"].astype(np.float64)
    known = records.discards["group"] < len(when)
    when[records.discards["group"][known]] = records.discards["time_s"][known]
    in_flight = (samples["status"] == GONE) & (samples["finish_s"] < 0) & (samples["sent_s"] >= 0)
    found: Floats = np.where(in_flight, when[samples["group"]], -1.0)
    return found


def ended_s(records: Records, sent: Floats) -> Floats:
    """When each sample was done or, of a group that was trained without it, its time was over; else below 0."""
    done = np.where(records.samples["status"] == DONE, records.samples["finish_s"], -1.0)
    limit_s, _ = limits_of(records.scenario).get("episode", (math.inf, ""))
    return done if limit_s == math.inf else np.maximum(done, np.minimum(given_up_s(records), sent + limit_s))


def shared_with(units: Floats, instances: float) -> Floats:
    """How many units share an instance with a unit, itself included, when they are dealt out evenly: the mean over all.

    A unit is what cannot be divided: a group that is placed together, or a sample.
    """
    each = np.floor(units / instances)
    rest = units - each * instances
    found: Floats = np.maximum(1.0, ((instances - rest) * each**2 + rest * (each + 1.0) ** 2) / units)
    return found
