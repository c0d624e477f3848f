"""`scenario to`: what is written, `scenario from` reads as the same scenario; what is not is listed."""

from __future__ import annotations

import json
import subprocess
import sys
from collections.abc import Collection
from pathlib import Path
from typing import Any

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

import fleetsim as fs
from fleetsim.config import Scenario, load_scenario
from fleetsim.config.data_files import shipped_scenarios
from fleetsim.config.load import scenario_from_mapping
from fleetsim.config.scenario import reader_of
from fleetsim.config.tree import field_at
from fleetsim.errors import InputError
from fleetsim.frameworks.convert import FRAMEWORKS, scenario_from
from fleetsim.frameworks.export import Exported, left_out_words, scenario_to
from fleetsim.frameworks.reading import nodes_of
from fleetsim.frameworks.reversal import NOTHING, Wanted, policies_of
from fleetsim.frameworks.source import parsed_source
from fleetsim.job.nameplate import limits_of

PRESETS = [name for name in shipped_scenarios() if name.startswith("presets/")]
OWN = [(name, f) for name in PRESETS for f in FRAMEWORKS if name.removeprefix("presets/").startswith(f)]


def written(framework: str, scenario: Scenario) -> Exported:
    return scenario_to(framework, scenario, limits_of)


def read_again(made: Exported) -> Scenario:
    form = FRAMEWORKS[made.framework].form
    settings = parsed_source(made.text, f"made.{form if form in ('yaml', 'toml') else 'sh'}")
    assert not settings.not_understood
    return scenario_from(made.framework, settings, speed=lambda model, gpu, gpus: (1e-6, 1e-6)).scenario


def differing(again: Scenario, scenario: Scenario, listed: Collection[str]) -> dict[str, tuple[Any, Any]]:
    """What differs of what is not listed: path -> (what was wanted, what is there)."""
    wanted, own = Wanted(scenario, limits_of), limits_of(again)
    found = {}
    for path in dict.fromkeys((*policies_of(scenario), *policies_of(again))):
        want, has = wanted(path), field_at(again, path)
        has = own.get(path) if has is None else has
        if path not in listed and want is not NOTHING and has != want and not reader_of(scenario, path):
            found[path] = want, has
    return found


def same_but_for_what_is_listed(made: Exported, scenario: Scenario) -> None:
    assert differing(read_again(made), scenario, {left.path for left in made.left_out}) == {}, made.text


@pytest.mark.parametrize(("preset", "framework"), OWN)
def test_from_after_to_is_the_scenario(preset: str, framework: str) -> None:
    same_but_for_what_is_listed(written(framework, load_scenario(preset)), load_scenario(preset))


# Its service has the engines and the GPUs, trains adapters, and lets a group end on the weights that it began with.
TINKER = ("engine.", "fleet.", "sync.", "trainer.gpus", "trainer.recipe.tune", "trainer.recipe.backend",
          "admission.age_reference")  # fmt: skip


@pytest.mark.parametrize("framework", FRAMEWORKS)
def test_a_frameworks_own_mode_is_said_whole(framework: str) -> None:
    """Of the presets of its modes, nothing that decides who waits for whom is left out."""
    named = {
        "trl": "trl-async-grpo", "roll": "roll-rlvr-async", "openrlhf": "openrlhf-async-partial",
        "nemo-rl": "nemo-rl-sc-windowed", "slime": "slime-fully-async", "verl": "verl-v1-separate-async-switch",
        "skyrl": "skyrl-fully-async", "ms-swift": "trl-grpo", "rlinf": "trl-grpo", "tinker": "trl-async-grpo",
    }  # fmt: skip
    made = written(framework, load_scenario(f"presets/{named.get(framework, framework)}"))
    ours = (
        "buffer.capacity",
        *(["engine.max_num_batched_tokens"] if framework == "ms-swift" else []),  # written in TRL
        *(["trainer.recipe.packing"] if framework == "rlinf" else []),  # TRL pads
        *(TINKER if framework == "tinker" else []),
    )
    assert [left.path for left in made.left_out if not left.path.startswith(ours)] == []


def test_the_mode_is_the_one_that_says_most() -> None:
    modes = {name: written("verl", load_scenario(f"presets/{name}")).mode for name in ("areal", "openrlhf-hybrid")}
    assert modes == {"areal": "separate_async", "openrlhf-hybrid": "sync"}


def test_what_cannot_be_said_is_listed_with_what_holds_instead() -> None:
    made = written("openrlhf", load_scenario("presets/areal"))
    told = [left_out_words("openrlhf", left) for left in made.left_out]
    assert any(t.startswith("admission.law = version_window: openrlhf has batches_ahead") for t in told)
    assert all(f"#   {t.partition(':')[0]}" in made.text for t in told)


def test_a_batch_that_does_not_divide_among_the_devices_is_listed() -> None:
    scenario = load_scenario("presets/trl-grpo", ["trainer.batch_samples=8", "trainer.gpus=16"])
    left = {o.path: (o.value, o.has) for o in written("trl", scenario).left_out}
    assert left["trainer.batch_samples"] == (8, 16)


def test_gpus_that_fill_no_node_come_on_nodes_that_there_are() -> None:
    odd = written("verl", load_scenario("presets/verl-fully-async", ["fleet.instances=13"]))
    assert (odd.settings["rollout.nnodes"], odd.settings["rollout.n_gpus_per_node"]) == (2, 7)
    assert {o.path: (o.value, o.has) for o in odd.left_out}["fleet.instances"] == (13, 14)
    assert odd.notes == ("14 GPUs are 2 nodes of 7 here (rollout.nnodes); 16 GPUs would be whole nodes of 8",)
    assert written("verl", load_scenario("presets/verl-fully-async", ["fleet.instances=16"])).notes == ()


@pytest.mark.parametrize("part", [1, 2, 3, 4, 8, 16])
def test_nodes_hold_the_gpus_and_split_no_instance(part: int) -> None:
    for gpus in range(part, 200, part):
        (nodes,), each = nodes_of((gpus,), part)
        assert nodes * each >= gpus
        assert nodes * each - gpus < nodes * part
        assert each <= 8
        assert each % part == 0 or part % each == 0
        assert nodes == 1 or each >= 4 or part > 4
        (nodes,), each = nodes_of((gpus,), part, exact=True)
        assert nodes * each == gpus


@given(st.integers(1, 200), st.integers(1, 200))
def test_two_pools_on_nodes_of_one_size_have_no_node_too_many(trainer: int, rollout: int) -> None:
    (one, other), each = nodes_of((trainer, rollout))
    assert one * each >= trainer
    assert other * each >= rollout
    assert (one - 1) * each < trainer
    assert (other - 1) * each < rollout
    assert trainer + rollout <= 8 or 4 <= each <= 8
    assert nodes_of((trainer, trainer)) == ((one, one), each) or trainer != rollout


def test_processes_stand_before_the_command_that_the_environment_starts() -> None:
    made = written("ms-swift", load_scenario("presets/trl-grpo", ["trainer.gpus=16", "fleet.instances=16"]))
    assert "\nNNODES=2 NPROC_PER_NODE=8 swift rlhf " in made.text
    assert read_again(made).trainer.gpus == 16


def test_a_framework_that_nobody_knows() -> None:
    with pytest.raises(InputError, match="is no framework that is known"):
        written("verl2", load_scenario("presets/verl-sync"))


PLACED: dict[str, dict[str, Any]] = {
    "barrier": {"admission": {"law": "barrier"}, "sync": {"in_flight": "drain"}, "buffer": {"batch_rule": "fifo"}},
    "ahead": {
        "admission": {"law": "batches_ahead", "batches_ahead": 1},
        "sync": {"in_flight": "drain"},
        "buffer": {"batch_rule": "fifo"},
    },
    "window": {
        "admission": {"law": "version_window", "max_staleness": 2.0},
        "sync": {"in_flight": "abort_resume", "transport": "collective_broadcast"},
        "buffer": {"batch_rule": "oldest_version_first"},
    },
}
SPECULATION = st.sampled_from(
    [
        None,
        {"method": "mtp", "num_speculative_tokens": 2, "acceptance": 0.6},
        {"method": "eagle3", "num_speculative_tokens": 4, "acceptance": 0.6},
        {"method": "draft_model", "num_speculative_tokens": 5, "acceptance": 0.5, "draft_model": "Qwen/Qwen2.5-0.5B"},
        {"method": "ngram", "num_speculative_tokens": 3, "acceptance": 0.2, "off_above_batch": 64},
    ]
)

SIDES = st.fixed_dictionaries(
    {"prefill": st.integers(1, 4), "decode": st.integers(1, 4)},
    optional={
        "prefill_tp": st.sampled_from([1, 2, 4]),
        "max_num_batched_tokens": st.sampled_from([None, 16384]),
        "latency_s": st.just(0.01),
    },
)


@st.composite
def scenarios(draw: st.DrawFn) -> Scenario:
    tp, pp = draw(st.sampled_from([1, 2, 4, 8])), draw(st.sampled_from([1, 1, 2]))
    instances, group = draw(st.integers(1, 24)), draw(st.integers(1, 16))
    apart = draw(st.booleans())
    sides = draw(st.one_of(st.none(), SIDES)) if pp == 1 else None
    gpus = tp * pp if sides is None else sides["decode"] * tp + sides["prefill"] * (sides.get("prefill_tp") or tp)
    raw = {
        **PLACED[draw(st.sampled_from(sorted(PLACED)))],
        "workload": {
            "group_size": group,
            "prompt_tokens": draw(st.integers(1, 4000)),
            "output_tokens": {"kind": "lognormal", "mean": 900.0, "cv": 0.8, "max": draw(st.integers(1000, 30000))},
        },
        "engine": {
            "model": draw(st.sampled_from(["Qwen/Qwen2.5-7B", "Qwen/Qwen3-32B"])),
            "tp": tp,
            "pp": pp,
            "name": draw(st.sampled_from(["vllm", "sglang"])),
            "prefix_caching": draw(st.booleans()),
            "enforce_eager": draw(st.booleans()),
            "max_num_seqs": draw(st.one_of(st.none(), st.integers(1, 2048))),
            "gpu_memory_utilization": draw(st.one_of(st.none(), st.sampled_from([0.5, 0.85]))),
            "dtype": draw(st.sampled_from(["auto", "fp8"])),
            "speculation": draw(SPECULATION),
            "disaggregation": sides,
            "lora": draw(st.sampled_from([None, {"rank": 32}, {"rank": 24}, {"rank": 8, "max_loras": 2}])),
        },
        "trainer": {
            "gpus": draw(st.integers(1, 40)) if apart else instances * gpus,
            "batch_samples": group * draw(st.integers(1, 200)),
            "recipe": {
                "reference": draw(st.booleans()),
                "epochs": draw(st.integers(1, 3)),
                "optimizer_steps": draw(st.sampled_from([1, 2, 4])),
                "offload": draw(st.sampled_from(["none", "states", "adam"])),
                "backend": draw(st.sampled_from([None, "fsdp", "megatron"])),
                "tp": draw(st.sampled_from([None, 2])),
            },
        },
        "fleet": {"instances": instances, "placement": "disaggregated" if apart else "colocated"},
    }
    return scenario_from_mapping(raw)


@pytest.mark.parts
@pytest.mark.parametrize("framework", FRAMEWORKS)
@settings(max_examples=25, deadline=None)
@given(scenario=scenarios())
def test_from_after_to_for_any_scenario(framework: str, scenario: Scenario) -> None:
    """Whatever is not listed comes back; a scenario that the framework cannot run is refused before it is written."""
    try:
        made = written(framework, scenario)
    except InputError:
        return
    same_but_for_what_is_listed(made, scenario)


@pytest.mark.parametrize("framework", [f for f in FRAMEWORKS if FRAMEWORKS[f].form not in ("yaml", "toml")])
def test_a_script_is_a_script(framework: str) -> None:
    made = written(framework, load_scenario(next((p for p, f in OWN if f == framework), "presets/trl-grpo")))
    assert subprocess.run(["bash", "-n"], input=made.text, text=True, capture_output=True).stderr == ""


def run(*words: str) -> subprocess.CompletedProcess[str]:
    return subprocess.run([sys.executable, "-m", "fleetsim", "scenario", *words], capture_output=True, text=True)


def test_the_command_writes_a_file_that_from_reads(tmp_path: Path) -> None:
    file = tmp_path / "run.sh"
    first = run("to", "verl", "verl-fully-async", "--set", "fleet.instances=16", "-o", str(file))
    assert first.returncode == 0
    assert "yours to add: data.train_files" in first.stderr
    again = run("from", "verl", str(file), "--json")
    found = json.loads(again.stdout)["scenario"]
    assert found["fleet"]["instances"] == 16
    assert found["admission"]["law"] == "per_sync_window"
    assert run("to", "verl", "verl-sync", "-o", str(file)).returncode == 2


def test_the_document_has_all() -> None:
    document = json.loads(run("to", "slime", "areal", "--json").stdout)
    assert document["command"] == "scenario to"
    assert document["mode"] == "fully asynchronous"
    assert {left["path"] for left in document["left_out"]} >= {"admission.law"}
    assert document["settings"]["n_samples_per_prompt"] == 8
    assert document["text"].startswith("#!/usr/bin/env bash")


def test_from_python() -> None:
    made = fs.load("presets/prime-rl").to("prime_rl")
    assert made.framework == "prime-rl"
    assert '[weight_broadcast]\ntype = "nccl"' in made.text
