"""The judges of a scenario: engines beside the rollout's, as what can be asked of any engine."""

from __future__ import annotations

from typing import TypeVar

from fleetsim.config.base import Named
from fleetsim.config.engine import EngineConfig
from fleetsim.config.sections import Sections
from fleetsim.config.stations import JudgeConfig

S = TypeVar("S", bound=Sections)
# Their names under `stations`; all of them are read alike.
JUDGES = ("judge", "teacher", "reference")


def judges_of(scenario: Sections) -> dict[str, JudgeConfig]:
    """Name -> judge, of those that a scenario has. One without engines of its own is the API of its overflow."""
    found = {name: getattr(scenario.stations, name) for name in JUDGES}
    return {name: judge if judge.instances else _rented(judge) for name, judge in found.items() if judge is not None}


def _rented(judge: JudgeConfig) -> JudgeConfig:
    """A judge of no engines: its requests wait for these as long as they would, and all go to the API behind them."""
    beyond = judge.overflow
    if beyond is None or not judge.has_engines:
        return judge
    api = beyond.model_copy(update={"first_token_s": beyond.after_s + beyond.first_token_s})
    return judge.model_copy(update={"api": api, "overflow": None})


def at_rollout(scenario: Sections) -> tuple[str, JudgeConfig] | None:
    """The judge that asks the rollout's own engines, with its name; None where there is none."""
    return next(((name, judge) for name, judge in judges_of(scenario).items() if judge.at == "rollout"), None)


def in_place(scenario: S, engine: EngineConfig, instances: int) -> S:
    """The scenario with other engines in the rollout's place, alone: what is asked of those can be asked of these."""
    fleet = scenario.fleet.model_copy(update={"instances": instances, "pools": Named()})
    return scenario.model_copy(update={"engine": engine, "fleet": fleet})


def as_rollout(scenario: S, judge: JudgeConfig) -> S:
    """The same with a judge's engines."""
    return in_place(scenario, judge.engine, judge.instances).model_copy(
        update={
            "workload": scenario.workload.model_copy(update={"output_tokens": judge.output_tokens}),
            "run": scenario.run.model_copy(update={"events": ()}),
        }
    )
