"""The order of loads that a calibration runs.

Machines drift: they warm up, and neighbours come and go. So the sweeps run in several passes, each shuffled, with the
batches between them: a drift then looks like noise instead of bending a curve, and the batches are predicted from
measurements of before and after. The first pass is coarse, so that a short budget covers the whole range.
"""

from __future__ import annotations

import itertools
from dataclasses import replace

import numpy as np

from fleetsim.calibrate.batches import batches
from fleetsim.calibrate.loads import Limits, Load
from fleetsim.calibrate.vllm.sweeps import sweep

EXTRA_PASSES = 3  # over everything, where time is left in the end


def loads_in_order(limits: Limits, *, quick: bool = False, seed: int = 0) -> list[Load]:
    """All loads in the order in which they should run. Quick: two coarse passes, a short batch after each."""
    keys = itertools.count(1_000_000)
    rng = np.random.default_rng([11, seed])
    number = itertools.count(1)

    def one_pass(coarse: bool) -> list[Load]:
        loads = sweep(limits, coarse=coarse, number=next(number), keys=keys)
        return [loads[i] for i in rng.permutation(len(loads))]

    kept_out = batches(limits, quick=quick, seed=seed)
    if quick:
        parts = [one_pass(True), [kept_out[0]], one_pass(True), [kept_out[1]]]
    else:
        on, off, preempt, long = kept_out
        first, whole, last = one_pass(True), one_pass(False), one_pass(True)
        half = len(whole) // 2
        parts = [first, [on], whole[:half], [off], whole[half:], [preempt], last, [long]]
    extra = [replace(load, optional=True) for _ in range(EXTRA_PASSES) for load in one_pass(quick)]
    return [*itertools.chain(*parts), *extra]
