"""What the step logs of RL frameworks mean: metric name -> column of `StepLog`, a file of `step_logs` per framework.

wait_s: the seconds of a step in which the trainer waits for samples. In a synchronous step on shared GPUs that is the
whole generation; the GPUs work meanwhile, as generators, and generate_s says the same number. All times are seconds and
all lengths tokens in every framework, so that no entry has a factor.

`tests/history/test_log_keys.py` holds every key that a framework's code writes against its file.
"""

from __future__ import annotations

from fleetsim.history.run_log_columns import FrameworkLog
from fleetsim.history.step_logs.areal import AREAL
from fleetsim.history.step_logs.nemo_rl import NEMO_RL
from fleetsim.history.step_logs.open_instruct import OPEN_INSTRUCT
from fleetsim.history.step_logs.openrlhf import OPENRLHF
from fleetsim.history.step_logs.plain import PLAIN
from fleetsim.history.step_logs.prime_rl import PRIME_RL
from fleetsim.history.step_logs.roll import ROLL
from fleetsim.history.step_logs.skyrl import SKYRL
from fleetsim.history.step_logs.slime import SLIME
from fleetsim.history.step_logs.trl import TRL
from fleetsim.history.step_logs.verl import VERL

FRAMEWORKS: tuple[FrameworkLog, ...] = (
    VERL,
    TRL,
    OPEN_INSTRUCT,
    OPENRLHF,
    NEMO_RL,
    ROLL,
    AREAL,
    SLIME,
    PRIME_RL,
    SKYRL,
    PLAIN,
)

BY_NAME = {framework.name: framework for framework in FRAMEWORKS}
