"""Which trainers a framework can divide an update among: against every layout, and what plans make of it."""

from __future__ import annotations

from itertools import product

import pytest
from hypothesis import example, given
from hypothesis import strategies as st

from fleetsim.config import load_scenario
from fleetsim.config.load import with_changes
from fleetsim.errors import InputError
from fleetsim.frameworks.convert import scenario_from
from fleetsim.frameworks.equal_parts import divides, refusal
from fleetsim.frameworks.source import parsed_source
from fleetsim.plan.choices import Value
from fleetsim.search.shares import Engines, Room
from fleetsim.split.split import split

JOB, APART = load_scenario("presets/verl-sync"), load_scenario("presets/verl-fully-async")
POWERS = [1 << n for n in range(12)]


@given(
    st.integers(1, 600), st.integers(1, 60), st.integers(1, 4), st.integers(1, 4),
    st.sampled_from([None, 1, 2, 3, 8]), st.sampled_from([None, 1, 2, 4]),
)  # fmt: skip
def test_some_layout_divides_it(
    gpus: int, prompts: int, steps: int, parts: int, tp: int | None, cp: int | None
) -> None:
    """By trying all layouts: ranks of tensors, stages and contexts in powers of two where nobody says them."""
    update = prompts * 8
    changes = {
        "trainer.batch_samples": update * steps * parts, "trainer.minibatches": parts,
        "trainer.recipe.optimizer_steps": steps, "trainer.recipe.tp": tp, "trainer.recipe.cp": cp,
    }  # fmt: skip
    job = with_changes(APART, changes)
    each = [a * b * c for a, b, c in product([tp] if tp else POWERS, POWERS, [cp] if cp else POWERS)]
    whole = [n for n in each if gpus % n == 0]
    if whole:
        assert divides(job, gpus) == any(update % (gpus // n) == 0 for n in whole)
    assert divides(job, gpus, "prime-rl")


def test_a_job_of_no_framework_is_asked_for_nothing() -> None:
    assert divides(with_changes(JOB, {"trainer.recipe.framework": None}), 48)
    assert not divides(JOB, 48)
    assert refusal(JOB, 48).endswith("512 do not divide among 48 GPUs; 480 or 528 would")


def test_a_configuration_is_read_and_told_about() -> None:
    words = "actor_rollout_ref.model.path=Qwen/Qwen2.5-7B data.train_batch_size=64 actor_rollout_ref.rollout.n=8 "
    gpus = {n: scenario_from("verl", parsed_source(words + f"trainer.n_gpus_per_node={n}", "run")) for n in (4, 6)}
    told = {n: [x.why for x in result.not_modelled if "as many samples" in x.why] for n, result in gpus.items()}
    assert told[4] == []
    assert len(told[6]) == 1


@pytest.mark.usefixtures("quick")
@pytest.mark.parametrize("preset", ["verl-sync", "verl-fully-async"])
def test_no_trainer_that_verl_stops_at_is_advised(preset: str) -> None:
    """On 48 GPUs, of which 48 and 24 do not divide the samples of an update, all powers of two."""
    job = with_changes(load_scenario(f"presets/{preset}"), {"run.replications": 2, "run.steps": 8})
    advice = split(job, 48)
    assert {o.arrangement.trainer_gpus for o in advice.outcomes} <= set(POWERS)
    assert {label for label, _ in advice.stuck} == {"colocated sync", "colocated async"}
    assert [w.partition(":")[0] for w in advice.warnings if "cannot run" in w] == [
        "colocated sync and colocated async cannot run"
    ]
    for on_policy in (True, False):
        shares = list(Engines(job, Value({}), frozenset()).shares(Room(48), on_policy))
        assert shares
        assert {share.trainer_gpus for share in shares} <= set(POWERS)


@given(st.integers(1, 300), st.integers(1, 8), st.sampled_from([1, 2, 4]), st.integers(1, 24))
@example(20, 1, 4, 6)
def test_skyrl_is_given_updates_that_its_ranks_can_share(mini: int, n: int, updates: int, gpus: int) -> None:
    """As `validate_batch_sizes` of skyrl/train/utils/utils.py asserts, written out again here; its own parser is asked
    in tests/frameworks/parsers."""
    words = f"trainer.policy.model.path=Qwen/Qwen2.5-7B generator.n_samples_per_prompt={n} "
    words += f"trainer.train_batch_size={mini * updates} trainer.policy_mini_batch_size={mini} "
    words += f"trainer.placement.policy_num_gpus_per_node={gpus} generator.inference_engine.num_engines={gpus}"
    of_batch, of_update = mini * updates * n // gpus, mini * n // gpus
    taken = of_update > 0 and of_batch % of_update == 0
    try:
        scenario_from("skyrl", parsed_source(words, "run"), speed=lambda model, gpu, gpus: (1e-6, 1e-6))
    except InputError as error:
        assert not taken, error
    else:
        assert taken
