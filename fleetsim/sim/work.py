"""How much a run holds: what no machine could hold is refused before it is begun, in words.

Every count in a scenario is bounded by itself; their products are not. Tables of engines have a row per instance and
place of a sequence, tables of samples a row for each that is sent in the whole run.
"""

from __future__ import annotations

from fleetsim.config.scenario import Scenario
from fleetsim.engine.limits import EngineLimits
from fleetsim.errors import InputError, Problem

# Bytes of a fleet's tables: 10,000 instances of 1,024 sequences need 0.1 GB.
MOST_TABLE_BYTES = 1 << 30
# Bytes of a run's samples, all of which are kept: half a kilobyte each (benchmarks/RESULTS.md), and each further turn's
# seconds and tokens. 50 million samples of one turn.
MOST_SAMPLE_BYTES = 25 * 10**9
_SAMPLE_BYTES, _TURN_BYTES = 500, 12


def most_instances(limits: EngineLimits) -> int:
    """The largest fleet whose tables fit."""
    return MOST_TABLE_BYTES // _instance_bytes(limits)


def _instance_bytes(limits: EngineLimits) -> int:
    return 8 * limits.max_num_seqs + 4 * limits.block_size


def check_tables(scenario: Scenario, limits: EngineLimits, instances: int) -> None:
    """Raises InputError for a fleet whose tables would not fit (`engine/state.py` makes them)."""
    sizes = {
        "fleet.instances": instances * _instance_bytes(limits),
        "engine.max_num_batched_tokens": 8 * max(limits.max_num_batched_tokens, limits.max_num_seqs),
    }
    values = {"fleet.instances": instances, "engine.max_num_batched_tokens": limits.max_num_batched_tokens}
    problems = [
        Problem(
            path,
            values[path],
            f"its tables take {size / 2**30:,.1f} GiB, at most {MOST_TABLE_BYTES >> 30} can be simulated",
            "lower it, or engine.max_num_seqs" if path == "fleet.instances" else "lower it",
        )
        for path, size in sizes.items()
        if size > MOST_TABLE_BYTES
    ]
    if problems:
        raise InputError(problems)


def check_samples(samples: int, turns: float) -> None:
    """Raises InputError for a run that sends more samples than can be held. samples: so far, and to be sent now."""
    needed = samples * (_SAMPLE_BYTES + _TURN_BYTES * turns)
    if needed > MOST_SAMPLE_BYTES:
        rule = f"they need {needed / 1e9:,.0f} GB, at most {MOST_SAMPLE_BYTES / 1e9:.0f} can be simulated"
        remedy = "lower run.steps or trainer.batch_samples, or let admission run less far ahead"
        raise InputError([Problem("run", f"{samples:,} samples", rule, remedy)])
