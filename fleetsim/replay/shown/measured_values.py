"""What a window measured of a job: values by path, their records, and what is still assumed of them."""

from __future__ import annotations

from collections.abc import Collection, Mapping
from dataclasses import dataclass
from typing import Any

from fleetsim.config.load import with_changes
from fleetsim.config.scenario import Scenario
from fleetsim.config.sections import ObservedConfig
from fleetsim.config.tree import is_touched, value_at
from fleetsim.faces import flag, setting
from fleetsim.history.history import History
from fleetsim.job.derived_values import SECONDS as GIVEN_SECONDS
from fleetsim.job.derived_values import SLOWDOWN, as_alone
from fleetsim.replay.implied.implied_scenario import implied
from fleetsim.replay.implied.logged_speed import CORRELATION
from fleetsim.replay.implied.workload import OUTPUT
from fleetsim.replay.observe.observe import observe
from fleetsim.replay.observe.observed import Observed
from fleetsim.replay.shown.records import records_of

RUN = flag("run")
SECONDS = tuple(path for path in GIVEN_SECONDS if path != "trainer.scaling.points")
SYNC = ("sync.transport", "sync.publish_s", "sync.pause_s", "sync.trainer_block_s")
# What any job with this model, these prompts and this hardware has in common.
COMMON = (
    OUTPUT,
    CORRELATION,
    "workload.prompt_tokens",
    *SECONDS,
    "trainer.checkpoint.every_steps",
    "trainer.checkpoint.stall_s",
    *SYNC,
    "fleet.switch_s",
    SLOWDOWN,
)
# What its owner decided: of the same job alone.
DECIDED = (
    "workload.group_size",
    "trainer.batch_samples",
    "sync.scope",
    "sync.every_steps",
    "fleet.speed_factors",
    "engine.prefix_caching",
    "engine.kv_blocks",
    "engine.block_size",
    "engine.max_num_seqs",
)
# What a run's fleet is known by, and how to say it.
_OF_A_FLEET = {
    "fleet.instances": setting("fleet.instances", "N"),
    "engine.gpu": flag("gpu"),
    "engine.model": flag("model"),
}


@dataclass(frozen=True, slots=True)
class Measured:
    """scenario: the run's own, as implied. values: what the window measured of it, by path. observed: how sure the main
    ones are. assumed: which of the values are assumed all the same. notes: what the reader of a plan must know."""

    scenario: Scenario
    values: Mapping[str, Any]
    observed: tuple[ObservedConfig, ...]
    assumed: tuple[str, ...]
    notes: tuple[str, ...]


def measured(history: History, scenario: Scenario, given: Collection[str]) -> Measured:
    """What a window shows of the job in `scenario`; given: the dotted paths of it that somebody wrote.

    Raises InputError for a window that shows neither engines nor a trainer.
    """
    observed = observe(history, scenario)
    policy = _policy(observed, given)
    scenario = as_alone(with_changes(scenario, policy))
    found = implied(observed, history, scenario, written=frozenset(given))
    kept = SECONDS if observed.trainer.train_s is not None else ()
    values = dict(policy)
    if observed.trainer.batch_samples is not None and observed.trainer.batch_samples.source == "log":
        kept = (*kept, "trainer.batch_samples")
    for path in (*COMMON, *DECIDED):
        value = value_at(found.scenario, path)
        # seconds that were measured to be what the job says are observed all the same
        if value != value_at(scenario, path) or (path in kept and value):
            values[path] = value
    if found.speed is not None and found.speed.factor is not None and is_touched("engine.model", given):
        values[SLOWDOWN] = float(f"{found.speed.factor:.4g}")
    values |= _client_cap(history, observed, scenario, given)
    notes = [f"{RUN}: {line}" for line in found.differs]
    if SLOWDOWN not in values and not is_touched(SLOWDOWN, given):
        notes.append(f"{RUN} does not show how fast the engines are{_missing(observed, given)}")
    fitted = found.logged is not None and found.logged.alike is not None
    assumed = tuple(path for path in (CORRELATION,) if path in values and not fitted)
    return Measured(found.scenario, values, tuple(records_of(history, observed, found, values)), assumed, tuple(notes))


def _policy(observed: Observed, given: Collection[str]) -> dict[str, Any]:
    """How far generation runs ahead of the trainer, as the log shows it, where nobody says it."""
    account = observed.account
    if account is None or not observed.logs_alone or any(is_touched(path, given) for path in ("admission", "sync")):
        return {}
    if account.mode == "synchronous":
        return {"admission.law": "barrier"}
    if account.mode == "one step off":
        return {"admission.law": "batches_ahead", "admission.batches_ahead": 1}
    cap, pull = (account.present.get(name) for name in ("window_cap_groups", "pull_groups"))
    if cap and pull and cap > pull:
        return {"admission.law": "per_sync_window", "admission.staleness_threshold": round(cap / pull - 1.0, 2)}
    age = account.present.get("staleness_steps")
    if account.mode == "asynchronous" and age:
        return {"admission.law": "version_window", "admission.max_staleness": max(1, round(age))}
    return {}


def _client_cap(history: History, observed: Observed, scenario: Scenario, given: Collection[str]) -> dict[str, Any]:
    """The most that the client keeps in generation, where nobody said it: of an instance, where they are counted."""
    cap = None if observed.logged is None else observed.logged.in_flight_cap
    caps = ("fleet.max_in_flight_samples", "fleet.max_in_flight_samples_per_instance")
    if cap is None or history.steps is None or any(is_touched(path, given) for path in caps):
        return {}
    count = scenario.fleet.instances if is_touched("fleet.instances", given) else None
    unit = "groups" if "in_flight_cap_groups" in history.steps.columns else "samples"
    place, most = (caps[0], cap) if count is None else (caps[1], cap / count)
    return {place: max(1, round(most)), "fleet.in_flight_unit": unit}


def _missing(observed: Observed, given: Collection[str]) -> str:
    """What would make the engines' speed known."""
    if observed.fleet is not None:
        return ""
    lacking = [words for path, words in _OF_A_FLEET.items() if not is_touched(path, given)]
    if lacking:
        return f": say what it ran on with {' and '.join(lacking)}"
    return ": its trainer hardly waits, and it times no samples"
