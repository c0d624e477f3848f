"""Seconds of a training step: against arithmetic by hand, and what must hold whatever is fitted."""

from __future__ import annotations

import math

import pytest

from fleetsim.engine.gpus import gpu_spec
from fleetsim.engine.model.names import model_shape
from fleetsim.records import replace
from fleetsim.trainer.estimate import laid_out
from fleetsim.trainer.plan import Batch, Recipe, TrainerLayout, TrainingPlan, memory_of, work_of
from fleetsim.trainer.seconds import (
    EXPERT_VISIT_S,
    Efficiency,
    TrainerFit,
    copies_s,
    ring_s,
    sharded_micro_s,
    shipped_fit,
    step_seconds,
)

# A trainer that reaches all of the data sheet, moves nothing and costs nothing anew (a parameter must be above 0).
PERFECT = TrainerFit(Efficiency(1, 1, 1, 1e-12, 1e-12, 1e12, 1e-12, 1, 1e-12, 1e-12, 1e-12, 1), {}, {}, {})
BATCH = Batch(512, 2048, 8704, 3500)


def plan(model: str = "Qwen/Qwen2.5-7B", gpus: int = 8, gpu: str = "H100", **recipe: object) -> TrainingPlan:
    return TrainingPlan(model_shape(model), gpu_spec(gpu), BATCH, Recipe(**recipe), TrainerLayout(gpus))  # type: ignore[arg-type]


def test_forward_operations_are_two_per_weight_that_a_token_meets() -> None:
    # Llama-3.1-8B: 6.98e9 in its layers, 0.525e9 in the LM head; its embedding is looked up.
    shape = model_shape("meta-llama/Llama-3.1-8B")
    assert work_of(shape).trunk_flop == pytest.approx(2 * (8.03e9 - 0.525e9), rel=0.002)
    assert work_of(shape).pair_flop == 4 * 32 * 128 * 32


def test_a_mixture_counts_the_experts_that_a_token_visits() -> None:
    shape = model_shape("Qwen/Qwen3-30B-A3B")
    assert work_of(shape).expert_flop == 2 * 48 * 8 * 3 * 2048 * 768
    assert work_of(shape).routed == 48 * 8 * 2048


def test_a_perfect_trainer_takes_operations_over_the_peak() -> None:
    """Eight operations per weight and token with recomputation, six without; attention 4.5 or 3.5 times forward."""
    for recompute, products, attention in ((True, 4, 4.5), (False, 3, 3.5)):
        p = plan(recompute=recompute, old_log_probs=False)
        forward = work_of(p.shape)
        flop = products * forward.trunk_flop + attention * forward.pair_flop * 3500 / 2
        adam = 30 * p.shape.params / 8 / p.gpu.memory_bytes_s
        by_hand = 512 * 2048 * flop / (8 * p.gpu.bf16_flop_s) + adam
        # What is left of collectives is the hand-over from GPU to GPU, which no bandwidth shortens.
        assert step_seconds(p, PERFECT).total == pytest.approx(by_hand, rel=0.01)


def test_adapters_save_a_third_of_the_backward_products() -> None:
    full, lora = (
        step_seconds(plan(tune=tune, old_log_probs=False, recompute=False), PERFECT).divides
        for tune in ("full", "lora")
    )
    assert 0.6 < lora / full < 0.75


def test_attention_counts_by_its_square() -> None:
    p = plan(old_log_probs=False)
    long = replace(p, batch=Batch(16, 65536, 65536, 65536))
    short = replace(p, batch=Batch(512, 2048, 2048, 2048))
    assert long.batch.tokens == short.batch.tokens
    fit = shipped_fit()
    assert step_seconds(long, fit).total > 1.6 * step_seconds(short, fit).total


@pytest.mark.parametrize("model", ["Qwen/Qwen2.5-7B", "Qwen/Qwen3-30B-A3B", "meta-llama/Llama-3.1-70B"])
def test_more_gpus_are_faster_but_never_by_as_much(model: str) -> None:
    backend = "fsdp" if model == "Qwen/Qwen2.5-7B" else "megatron"
    fit, before = shipped_fit(), None
    for gpus in (32, 64, 128):
        found = laid_out(plan(model, gpus, backend=backend), fit)
        assert found is not None
        seconds = step_seconds(found, fit).total
        if before is not None:
            assert before / 2 < seconds < before
        before = seconds


def test_a_step_stops_shrinking_where_one_sample_is_left_for_a_rank() -> None:
    p, fit = plan(old_log_probs=False), shipped_fit()
    at = {g: step_seconds(replace(p, layout=TrainerLayout(g)), fit) for g in (256, 512)}
    assert at[512].total > 0.95 * at[256].total
    assert at[512].grows > at[256].grows


def test_passes_minibatches_and_epochs_add_up() -> None:
    fit = shipped_fit()
    one = step_seconds(plan(old_log_probs=False), fit)
    assert one.total == one.update
    both = step_seconds(plan(reference=True), fit)
    assert both.total == pytest.approx(one.update + 2 * both.forward)
    assert step_seconds(plan(epochs=3, old_log_probs=False), fit).update == pytest.approx(3 * one.update)
    critic = step_seconds(plan(critic=True), fit)
    assert critic.total == pytest.approx(2 * (one.update + critic.forward))
    parts = step_seconds(plan(minibatches=16, old_log_probs=False), fit)
    assert parts.update > one.update + 15 * 0.5 * fit.efficiency.step_s
    for found in (one, both, critic, parts):
        assert found.divides + found.grows + found.stays == pytest.approx(found.total)


def test_padding_costs_what_it_pads() -> None:
    fit = shipped_fit()
    padded, packed = (step_seconds(plan(packing=p, old_log_probs=False), fit).divides for p in (False, True))
    assert padded / packed == pytest.approx(8704 / 2048, rel=0.2)


def test_a_ring_over_servers_is_as_fast_as_all_their_cards() -> None:
    h100 = gpu_spec("H100")
    inside, across = ring_s(h100, 8e9, 8, 1.0), ring_s(h100, 8e9, 16, 1.0)
    assert inside == pytest.approx(7e9 / 450e9 + 7 * 5e-6)
    assert across == pytest.approx(7.5e9 / 400e9 + 15 * 5e-6)


def test_context_ranks_and_blackwell_take_longer_for_the_same_work() -> None:
    """Two context ranks half of the share that many take; a GPU of Blackwell what it reaches of its data sheet."""
    dear = TrainerFit(replace(PERFECT.efficiency, context=0.2, blackwell=0.8), {}, {}, {})
    for gpu, times in (("H100", 1.0), ("B200", 1.0 / 0.8)):
        for cp, more in ((1, 1.0), (2, 1.1), (4, 1.15)):
            one = replace(plan(gpu=gpu), layout=TrainerLayout(8, cp=cp))
            ratio = step_seconds(one, dear).total / step_seconds(one, PERFECT).total
            assert ratio == pytest.approx(times * more, rel=1e-3)


def test_what_pcie_reaches_is_not_discounted_twice() -> None:
    """Its 16 GB/s are what collectives reach; of NVLink the share that trainers reach counts, and of cards."""
    l20, h100 = gpu_spec("L20"), gpu_spec("H100")
    assert ring_s(l20, 8e9, 8, 0.4) == pytest.approx(7e9 / 16e9 + 7 * 5e-6)
    assert ring_s(h100, 8e9, 8, 0.4) == pytest.approx(7e9 / (0.4 * 450e9) + 7 * 5e-6)
    assert ring_s(l20, 8e9, 16, 0.02) == pytest.approx(7.5e9 / (8 * 0.02 * 50e9) + 15 * 5e-6)


def test_adam_states_take_sixteen_bytes_with_weights_and_gradients_more() -> None:
    """18 bytes per weight, sharded: 2 of the weight, 4 of the gradient, 12 of Adam's states."""
    p = plan("Qwen/Qwen3-32B", 16)
    layer = 2 * 2 * (p.shape.params - p.shape.embeddings_params) / 64
    assert memory_of(p).states == pytest.approx(18 * p.shape.params / 16 + layer)
    lora = replace(p, recipe=Recipe(tune="lora"))
    assert memory_of(lora).states == pytest.approx((2 + 0.16) * p.shape.params / 16 + layer)


def test_copies_of_the_weights_trade_memory_for_the_network() -> None:
    """16 GPUs in two servers, each with all of the weights (HSDP): gathers and scatters stay in a server, and the two
    add up their eighths of the gradients, 4 bytes there and back through a card each."""
    fit = replace(shipped_fit(), efficiency=replace(shipped_fit().efficiency, links=0.5), kinds={})
    whole, halves = plan(gpus=16), plan(gpus=16, shards=8)
    assert memory_of(halves).states - memory_of(whole).states == pytest.approx(18 * whole.shape.params / 16)
    size, e = whole.shape.params * 8, fit.efficiency
    near = 7 / 8 * size / (0.5 * 450e9) + (3 * 28 * 7) * 5e-6
    far = 15 / 16 * size / (0.5 * 8 * 50e9) + (3 * 28 * 15) * 5e-6
    work = work_of(whole.shape)
    assert sharded_micro_s(halves, work, e.links, 2, True) == pytest.approx(near)
    assert sharded_micro_s(whole, work, e.links, 2, True) == pytest.approx(far)
    assert copies_s(halves, e.links, 1.0) == pytest.approx(size / 8 / 2 / (0.5 * 50e9) + 5e-6)
    assert copies_s(whole, e.links, 1.0) == 0
    assert plan(gpus=4, shards=8).shards == 4
    assert plan(gpus=16, shards=8, backend="megatron").shards == 16


def test_a_framework_factor_is_its_own() -> None:
    fit = TrainerFit(PERFECT.efficiency, {"fsdp dense": 1.5}, {"verl dense": 2.0}, {})
    plain = step_seconds(plan(), PERFECT).total
    assert step_seconds(plan(), fit).total == pytest.approx(1.5 * plain)
    assert step_seconds(plan(framework="verl"), fit).total == pytest.approx(3.0 * plain)
    assert math.isclose(step_seconds(plan(framework="unheard of"), fit).total, 1.5 * plain)


def test_experts_in_a_python_loop_cost_each_visit() -> None:
    """The row that the constant is of, and the pass beside it that it is not of (16 s, in more micro-batches than the
    model has)."""
    recipe = {"framework": "verl", "minibatches": 16, "micro_tokens": 20000, "offload": "states", "experts": "looped"}
    row = plan("Qwen/Qwen3-30B-A3B", 64, **recipe)
    row = replace(row, batch=Batch(8192, 1065, 8365, 1746), layout=TrainerLayout(64, cp=4))
    grouped = replace(row, recipe=replace(row.recipe, experts="grouped"))
    found, one_product = (step_seconds(one, shipped_fit()) for one in (row, grouped))
    assert found.update == pytest.approx(167, rel=0.05)
    assert 10 < found.forward < 16
    assert one_product.update < 60
    layers, experts, passes = 48, 128, 3 + 1
    dense = replace(row, shape=model_shape("Qwen/Qwen2.5-7B"))
    again = replace(dense, recipe=grouped.recipe)
    assert step_seconds(dense, shipped_fit()) == step_seconds(again, shipped_fit())
    same = replace(shipped_fit(), frameworks={}, kinds={})
    more = step_seconds(row, same).update - step_seconds(grouped, same).update
    assert more == pytest.approx(16 * passes * layers * experts * EXPERT_VISIT_S)
