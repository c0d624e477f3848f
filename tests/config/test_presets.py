"""Presets: they load, say where each value comes from, share what they must share, and are found by name."""

from __future__ import annotations

import re
import runpy
from pathlib import Path

import pytest

import fleetsim as fs
from fleetsim.config import Scenario, data_files, dump_scenario, load_scenario, scenario_from_mapping
from fleetsim.config.data_files import find_preset, presets, shipped_scenarios
from fleetsim.config.scenario import age_bound
from fleetsim.config.tree import given_paths
from fleetsim.config.yaml_text import from_yaml
from fleetsim.errors import InputError
from fleetsim.job.derived_values import SECONDS, fetching
from fleetsim.job.nameplate import mean_step_s
from fleetsim.trainer.estimate import estimate_of

NAMES = sorted(presets())
# Every row of the matrix of RL post-training systems, with its modes.
SYSTEMS = {
    "verl": {
        "sync",
        "one-step-off",
        "fully-async",
        "v1-colocate-async",
        "v1-separate-async",
        "v1-separate-async-switch",
    },
    "roll": {"rlvr-sync", "rlvr-async", "agentic"},
    "openrlhf": {"hybrid", "async", "async-partial"},
    "open-instruct": {""},
    "trl": {"grpo", "async-grpo", "async-grpo-lora"},
    "areal": {""},
    "skyrl": {"fully-async"},
    "nemo-rl": {"sync", "async-grpo", "sc-in-order", "sc-ready-first", "sc-weight-fifo", "sc-windowed"},
    "pipelinerl": {"", "max-lag"},
    "tinker": {"async"},
    "slime": {"sync", "async", "fully-async"},
    "prime-rl": {""},
    "laminar": {""},
    "streamrl": {""},
    "llamarl": {""},
    "rollpacker": {""},
    "seer": {""},
    "rlhfuse": {""},
}


def test_every_system_and_mode_has_one() -> None:
    expected = {f"{system}-{mode}".rstrip("-") for system, modes in SYSTEMS.items() for mode in modes}
    assert set(NAMES) == expected


def test_a_preset_goes_by_the_name_that_lists_give_it() -> None:
    """`scenario ls --json` and `fs.scenarios()` name the folder as well."""
    assert {f"presets/{name}": find_preset(f"presets/{name}") for name in presets()} == {
        name: path for name, path in shipped_scenarios().items() if name.startswith("presets/")
    }


@pytest.mark.parametrize("name", NAMES)
def test_round_trip_through_the_schema(name: str) -> None:
    scenario = load_scenario(find_preset(name))
    assert scenario.name == name
    assert scenario.description
    assert scenario.source
    again = scenario_from_mapping(from_yaml(dump_scenario(scenario), name))
    assert again == scenario
    # and every value is one that the simulator runs: a second validation without the loader's leniency
    assert Scenario.model_validate(scenario.model_dump()) == scenario


@pytest.mark.parametrize("name", NAMES)
def test_every_value_says_where_it_comes_from(name: str) -> None:
    """In the sections that a framework decides, and at the batch, each value has a comment."""
    section, silent = "", []
    for line in find_preset(name).read_text(encoding="utf-8").splitlines():
        if re.match(r"^[a-z]", line):
            section = line.partition(":")[0]
        elif section in ("admission", "buffer", "engine") or "batch_samples" in line or "in_flight" in line:
            key, _, rest = line.strip().partition(":")
            if (
                rest.strip()
                and not line.lstrip().startswith("#")
                and key not in ("kind", "trigger")
                and "# " not in rest
            ):
                silent.append(line)
    assert not silent


@pytest.mark.parametrize("name", NAMES)
def test_the_job_is_the_same_in_all(name: str) -> None:
    s, reference = load_scenario(find_preset(name)), load_scenario(find_preset("verl-one-step-off"))
    assert s.workload.model_copy(update={"turns": reference.workload.turns}) == reference.workload
    assert (s.engine.gpu, s.engine.model, s.engine.tp) == ("H100", "Qwen/Qwen2.5-7B", 1)
    assert s.trainer.batch_samples == 512
    rollout = 0 if s.fleet.placement == "colocated" else s.fleet.instances
    assert s.trainer.gpus + rollout == 16


@pytest.mark.parametrize("name", NAMES)
def test_no_preset_has_a_training_step_of_its_own(name: str) -> None:
    """Its seconds are those of the trainer's model, for the preset's framework, recipe and GPUs, and of its queue."""
    assert not given_paths(load_scenario(find_preset(name))) & set(SECONDS)
    job = fs.load(name).scenario
    assert set(SECONDS[:3]) <= set(job.assumed)
    queue_s = sum(phase.fixed_s for phase in fetching(job))
    assert mean_step_s(job) == pytest.approx(estimate_of(job, job.trainer.gpus).step_s + queue_s, rel=2e-3)


@pytest.mark.parametrize("name", NAMES)
def test_secondary_notes_are_named(name: str) -> None:
    s = load_scenario(find_preset(name))
    assert ("secondary notes" in s.source) == ("secondary notes" in s.description)
    if "secondary notes" not in s.source:
        assert re.search(r" at [0-9a-f]{9,12}\b", s.source), "a source that was read has a commit"


def test_values_of_the_sources() -> None:
    """A few figures, read in the frameworks' files: verl's caps, TRL's queue, prime-rl's marks."""
    verl = load_scenario(find_preset("verl-fully-async"))
    window = int(16 * (verl.admission.staleness_threshold + 1) * 4)  # required_samples x (threshold + 1) x trigger
    assert verl.buffer.capacity_samples == window * verl.workload.group_size
    assert verl.fleet.max_in_flight_samples_per_instance == 16 * verl.workload.group_size
    trl = load_scenario(find_preset("trl-async-grpo"))
    assert trl.admission.max_age is not None
    assert trl.fleet.max_in_flight_samples == trl.admission.max_age * trl.trainer.batch_samples
    prime = load_scenario(find_preset("prime-rl")).admission.adaptive
    assert (prime.grow, prime.grow_below_kv, prime.trim_above_kv, prime.cancel_above_kv) == (1.25, 0.6, 0.8, 0.9)


@pytest.mark.parametrize(
    ("given", "name"),
    [
        ("verl-fully-async", "verl-fully-async"),
        ("verl_fully_async", "verl-fully-async"),
        ("VERL-FULLY", "verl-fully-async"),
        ("areal", "areal"),
        ("pipelinerl", "pipelinerl"),  # a whole name is no prefix of another
        ("open_i", "open-instruct"),
    ],
)
def test_found_by_name(given: str, name: str) -> None:
    assert find_preset(given).stem == name


@pytest.mark.parametrize(
    ("given", "told"),
    [
        ("verl", "short for several presets.*verl-fully-async"),
        ("verl-fuly-async", "did you mean verl-fully-async"),
        ("one-step-off", "did you mean verl-one-step-off"),
        ("zzz", "fleetsim scenario ls"),
        ("", "fleetsim scenario ls"),
        ("../sync-colocated", "no preset of this name"),
        ("x" * 1_000_000, "no preset of this name"),
    ],
)
def test_names_that_mean_none(given: str, told: str) -> None:
    with pytest.raises(InputError, match=told):
        find_preset(given)


def test_a_preset_is_a_shipped_scenario_too() -> None:
    assert load_scenario("areal") == load_scenario("presets/areal")
    assert data_files.find_scenario("areal") == find_preset("areal")


BOUNDS: list[tuple[dict[str, object], float | None]] = [
    ({"admission": {"law": "barrier"}}, 0),
    ({"admission": {"law": "batches_ahead"}}, 1),
    ({"admission": {"law": "batches_ahead"}, "trainer": {"minibatches": 2}}, None),
    ({"admission": {"law": "batches_ahead", "batches_ahead": 2}}, None),
    (
        {
            "admission": {"law": "batches_ahead", "batches_ahead": 2},
            "sync": {"in_flight": "drain"},
            "buffer": {"batch_rule": "fifo"},
        },
        2,
    ),
    ({"admission": {"law": "version_window", "max_staleness": 3}}, None),
    ({"admission": {"law": "version_window", "max_staleness": 2.5}, "buffer": {"wait_for_oldest": True}}, 3),
    ({"admission": {"law": "cumulative_ratio", "async_ratio": 1}, "buffer": {"wait_for_oldest": True}}, 1),
    ({"admission": {"law": "target_step", "max_staleness": 1}, "buffer": {"batch_rule": "exact_target_step"}}, 1),
    ({"admission": {"law": "unbounded", "age_action": "drop_on_dequeue", "max_age": 4}}, 4),
    ({"admission": {"law": "unbounded", "max_age": 4}}, None),
    ({"admission": {"law": "unbounded", "age_action": "wait", "max_age": 4}}, None),
    ({"admission": {"law": "version_window", "max_staleness": 4, "age_action": "wait", "max_age": 4}}, 4),
    ({"admission": {"law": "version_window", "max_staleness": 5, "age_action": "wait", "max_age": 4}}, None),
]


@pytest.mark.parametrize(("mapping", "bound"), BOUNDS)
def test_which_rules_bound_the_age(mapping: dict[str, object], bound: float | None) -> None:
    assert age_bound(scenario_from_mapping(mapping)) == bound


def test_the_page_is_what_the_files_say() -> None:
    root = Path(__file__).resolve().parents[2]
    script = runpy.run_path(str(root / "docs" / "make_presets.py"))
    assert script["page"]() == (root / "docs" / "presets.md").read_text(encoding="utf-8"), (
        "run python docs/make_presets.py"
    )
