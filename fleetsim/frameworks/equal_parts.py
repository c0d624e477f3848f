"""Frameworks that give every data-parallel rank as many samples of an update, and stop at a batch that does not divide.

Asserted in verl-project/verl at 1dda039 (verl/workers/engine_workers.py, `train_mini_batch`; verl/utils/config.py,
`validate_config`; workers before it rounded down) and NVIDIA-NeMo/RL at 7ea279a (nemo_rl/distributed/
batched_data_dict.py, `shard_by_batch_size`); in TRL a batch is made of one share per process
(trl/trainer/grpo_config.py), and so in ms-swift, which builds on it. The others pad, pack or round.
"""

from __future__ import annotations

import math

from fleetsim import units
from fleetsim.config.scenario import Scenario

FRAMEWORKS = frozenset({"verl", "nemo-rl", "trl", "ms-swift"})


def update_samples(scenario: Scenario) -> int:
    """Samples of one optimizer step, rounded down."""
    trainer = scenario.trainer
    return trainer.batch_samples // (trainer.minibatches * trainer.recipe.optimizer_steps)


def divides(scenario: Scenario, gpus: int, framework: str | None = None) -> bool:
    """Whether some layout of so many trainer GPUs has ranks among which a framework can divide an update.

    Tensor, pipeline and context ranks are powers of two where nobody says them: what is odd in the number of GPUs stays
    in the number of data-parallel ranks. framework: null = that of the job's recipe; true for those that ask for
    nothing, and where nobody names one.
    """
    recipe = scenario.trainer.recipe
    if (framework or recipe.framework) not in FRAMEWORKS:
        return True
    ranks = gpus // math.gcd(gpus, math.prod(n for n in (recipe.tp, recipe.pp, recipe.cp) if n is not None))
    odd = ranks // (ranks & -ranks)
    return update_samples(scenario) % odd == 0


def refusal(scenario: Scenario, gpus: int, framework: str | None = None) -> str:
    """Why the framework cannot train on so many GPUs, and with which updates it could."""
    whose, update = framework or scenario.trainer.recipe.framework, update_samples(scenario)
    unit = math.lcm(gpus, scenario.workload.group_size)
    near = units.listed([f"{n:,}" for n in (update // unit * unit, (update // unit + 1) * unit) if n], "or")
    rule = f"{whose} gives each rank as many samples of an update, and {update:,} do not divide among {gpus:,} GPUs"
    return f"{rule}; {near} would"
