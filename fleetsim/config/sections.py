"""What a scenario is made of: its keys and sections, each right by itself. Whether they fit together: `rules.py`."""

from __future__ import annotations

from typing import Annotated, Literal

from pydantic import AfterValidator, Field
from pydantic_core import PydanticCustomError

from fleetsim.config.admission import AdmissionConfig, BufferConfig
from fleetsim.config.base import ConfigSection
from fleetsim.config.cost import CostConfig
from fleetsim.config.engine import EngineConfig
from fleetsim.config.fleet import FleetConfig
from fleetsim.config.followers import FollowConfig
from fleetsim.config.observation import ObservedConfig
from fleetsim.config.published import PublishedConfig
from fleetsim.config.run import RunConfig
from fleetsim.config.stations import StationsConfig
from fleetsim.config.sync import SyncConfig
from fleetsim.config.targets import TargetsConfig
from fleetsim.config.trainer import TrainerConfig
from fleetsim.config.tree import tree_of, unknown_path
from fleetsim.config.workload import WorkloadConfig


def _names_a_value(path: str) -> str:
    """The path, if a scenario has such a key."""
    problem = unknown_path(tree_of(Sections), path)
    if problem is not None:
        remedy = problem.remedy if problem.rule == "unknown key" else f"name the list as a whole ({problem.rule})"
        raise PydanticCustomError("assumed", "names no value of a scenario", {"remedy": remedy})
    return path


def _of_a_value(observed: ObservedConfig) -> ObservedConfig:
    """The record, if a scenario has the key that it speaks of."""
    _names_a_value(observed.path)
    return observed


AssumedPath = Annotated[str, Field(max_length=1000), AfterValidator(_names_a_value)]
Observed = Annotated[ObservedConfig, AfterValidator(_of_a_value)]


class Sections(ConfigSection):
    """The keys and sections of a scenario, before anybody asked whether they fit together."""

    schema_version: Literal[1] = Field(default=1, description="version of this file format")
    name: Annotated[str, Field(max_length=1000)] = Field(default="scenario", description="as reports call it")
    description: Annotated[str, Field(max_length=100_000)] = Field(default="", description="what it is for")
    source: Annotated[str, Field(max_length=100_000)] = Field(default="", description="where its figures come from")
    published: PublishedConfig | None = Field(default=None, description="published outcome, if it is a real run")
    assumed: tuple[AssumedPath, ...] = Field(
        default=(),
        strict=False,
        max_length=1000,
        description="dotted paths (workload.output_tokens.mean) of values in this file that nobody measured: reports "
        "name them as assumed; take a path out when its value is yours",
    )
    observed: tuple[Observed, ...] = Field(
        default=(),
        strict=False,
        max_length=100,
        description="what a run showed of values in this file, with intervals: plans take these for how far an input "
        "may be off; a value that is given anew loses its record",
    )
    follow: FollowConfig = FollowConfig()
    workload: WorkloadConfig = WorkloadConfig()
    stations: StationsConfig = StationsConfig()
    engine: EngineConfig = EngineConfig()
    fleet: FleetConfig = FleetConfig()
    trainer: TrainerConfig = TrainerConfig()
    sync: SyncConfig = SyncConfig()
    admission: AdmissionConfig = AdmissionConfig()
    buffer: BufferConfig = BufferConfig()
    targets: TargetsConfig = TargetsConfig()
    cost: CostConfig = CostConfig()
    run: RunConfig = RunConfig()

    @property
    def groups_per_step(self) -> int:
        """Prompt groups that one optimizer step trains."""
        return self.trainer.batch_samples // self.workload.group_size
