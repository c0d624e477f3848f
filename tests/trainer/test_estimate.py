"""The trainer of a job: which one a team would take, what is refused, and how it is told."""

from __future__ import annotations

import json
from typing import Any

import pytest
from typer.testing import CliRunner

import fleetsim as fs
from fleetsim import units
from fleetsim.cli.main import app
from fleetsim.config.load import with_changes
from fleetsim.errors import InputError
from fleetsim.job.derived_values import FETCH, fetching, with_derived
from fleetsim.job.trainer_scaling import moved_trainer
from fleetsim.trainer.estimate import batch_of, estimate_of, estimate_on, server_gpus


def job(**options: Any) -> Any:
    return fs.load(None, options.pop("changes", None), **options)


def test_the_smallest_trainer_is_in_whole_servers() -> None:
    found = {model: job(model=model).trainer_step() for model in ("Qwen/Qwen2.5-0.5B", "Qwen/Qwen3-32B")}
    assert found["Qwen/Qwen2.5-0.5B"].gpus == 8
    assert found["Qwen/Qwen3-32B"].gpus == 16
    assert all(one.chosen and one.memory.fits for one in found.values())


def test_a_trainer_that_is_too_small_is_refused_with_the_least_that_would_do() -> None:
    with pytest.raises(InputError) as refused:
        job(model="Qwen/Qwen3-32B", trainer_gpus=2).trainer_step()
    (problem,) = refused.value.problems
    assert problem.path == "trainer_gpus"
    assert problem.value == 2
    assert "297 GB of weights, gradients and optimizer" in problem.rule
    assert "at least 16" in problem.remedy
    assert estimate_of(job(model="Qwen/Qwen3-32B").scenario, 16).memory.fits


def test_a_search_hears_that_a_trainer_is_too_small_without_the_error() -> None:
    scenario = job(model="Qwen/Qwen3-32B").scenario
    assert estimate_on(scenario, 2) is None
    assert estimate_on(scenario, 16) == estimate_of(scenario, 16)
    with pytest.raises(InputError, match="at least 16"):
        estimate_of(scenario, 2)


def test_what_the_refusal_advises_helps() -> None:
    small = job(model="Qwen/Qwen3-32B", trainer_gpus=4, changes={"trainer.recipe.tune": "lora"})
    assert small.trainer_step().gpus == 4


def test_a_trainer_trains_the_adapters_that_its_engines_serve() -> None:
    """Unless somebody says that it trains all weights."""

    def seconds(**tune: str) -> float:
        changes = {"engine.lora.rank": 32, **{f"trainer.recipe.{name}": value for name, value in tune.items()}}
        return float(job(model="Qwen/Qwen3-8B", trainer_gpus=8, changes=changes).trainer_step().seconds.total)

    assert seconds() == seconds(tune="lora") < 0.95 * seconds(tune="full")


def test_ranks_that_were_given_stay() -> None:
    changes = {"trainer.recipe.tp": 4, "trainer.recipe.ep": 8, "trainer.recipe.backend": "megatron"}
    layout = job(model="Qwen/Qwen3-30B-A3B", trainer_gpus=16, changes=changes).trainer_step().plan.layout
    assert (layout.tp, layout.ep) == (4, 8)


def test_the_batch_has_prompts_tools_and_the_spread_of_lengths() -> None:
    even = job(len=1536, len_cv=0.0, prompt_len=512, batch=64)
    batch = batch_of(even.scenario)
    assert (batch.samples, batch.mean, batch.token_length) == (64, 2048, pytest.approx(2048))
    wide = batch_of(job(len=1536, prompt_len=512, batch=64).scenario)
    assert wide.token_length > 1.3 * wide.mean
    assert wide.mean < wide.longest <= 8192 + 512
    tools = {"workload.turns.count": 3, "workload.turns.tool_tokens": 100}
    assert batch_of(job(len=1536, len_cv=0.0, prompt_len=512, changes=tools).scenario).mean == 2248


def test_an_unknown_model_or_gpu_is_told_where_it_stands() -> None:
    with pytest.raises(InputError) as refused:
        job(changes={"trainer.recipe.gpu": "H1000"}).trainer_step()
    assert refused.value.problems[0].path == "trainer.recipe.gpu"


def test_a_name_of_the_recipe_s_own_that_nobody_knows_is_refused_unless_its_seconds_or_its_sheet_are_given() -> None:
    """The same rule as for engine.gpu: a name that no data sheet has says nothing of seconds."""
    own = {"trainer.recipe.gpu": "H1000"}
    sheet = {"name": "H1000", "memory_gib": 80, "memory_tb_s": 4, "link_gb_s": 450}
    for wrong in (own, {"trainer.recipe.model": "nobody/knows"}):
        with pytest.raises(InputError) as refused:
            job(changes=wrong).size()
        assert [p.path for p in refused.value.problems] == list(wrong)
    assert job(changes=own, trainer_step_s=20.0, instances=4, replications=1).simulate().mean["step_s"] > 0
    peaks = (900, 1800)
    slow, fast = (
        job(changes=own | {"engine.gpu_sheet": sheet | {"bf16_tflop_s": peak}}).trainer_step() for peak in peaks
    )
    assert fast.seconds.total < 0.9 * slow.seconds.total


def test_a_known_framework_has_its_own_error() -> None:
    plain = job().trainer_step()
    prime = job(changes={"trainer.recipe.framework": "prime-rl"}).trainer_step()
    assert plain.error is not None
    assert prime.error is not None
    assert prime.error.median < plain.error.median
    assert plain.error.points > prime.error.points


def test_nvlink_domains_of_72_grow_by_trays() -> None:
    from fleetsim.engine.gpus import gpu_spec

    assert [server_gpus(gpu_spec(gpu)) for gpu in ("H100", "GB200")] == [8, 4]


def test_the_command_says_the_same_as_python() -> None:
    runner = CliRunner()
    text = runner.invoke(app, ["profile", "trainer", "--model", "Qwen/Qwen3-30B-A3B"])
    assert text.exit_code == 0
    found = job(model="Qwen/Qwen3-30B-A3B").trainer_step()
    assert f"about {units.seconds(found.step_s)} a step" in text.output
    assert "the smallest trainer that fits" in " ".join(text.output.split())
    document = json.loads(runner.invoke(app, ["profile", "trainer", "--model", "Qwen/Qwen3-30B-A3B", "--json"]).stdout)
    assert document["step_s"] == found.step_s
    assert document["layout"]["gpus"] == found.gpus
    assert [one["gpus"] for one in document["other_counts"]][-1] == 8 * found.gpus


@pytest.mark.parametrize(
    ("responses", "pulls", "joined_s", "pull_s"), [(8192, 4, 3.96, 1.01), (8192, 4, 3.64, 1.43), (6144, 4, 2.30, 0.76)]
)
def test_a_batch_is_fetched_as_slowly_as_logs_say(responses: int, pulls: int, joined_s: float, pull_s: float) -> None:
    """aishukamal/rl-time-slicing, verl-benchmarks: gen less total_wait_time of a step, and the wait of a pull whose
    samples are ready; one pull of a window waits for its samples."""
    made = fs.load("verl-fully-async", {"trainer.batch_samples": responses, "trainer.minibatches": pulls}).scenario
    (phase,) = fetching(made)
    assert phase.fixed_s == pytest.approx(joined_s + (pulls - 1) * pull_s, rel=0.2)


def test_only_verl_s_queue_is_fetched_from_and_only_once() -> None:
    for name, often in (("verl-fully-async", 1), ("areal", 0)):
        scenario = with_derived(fs.load(name).scenario, ())
        moved = with_changes(scenario, moved_trainer(scenario, 2 * scenario.trainer.gpus))
        for made in (scenario, moved):  # more GPUs fetch no faster
            assert tuple(phase for phase in made.trainer.phases if phase.name == FETCH) == fetching(scenario), name
        assert len(fetching(scenario)) == often
