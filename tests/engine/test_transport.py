"""Weight-sync times by hand, transport by transport, and what must hold for every one of them."""

from __future__ import annotations

from typing import Any

import pytest
from hypothesis import given
from hypothesis import strategies as st

from fleetsim.config import Scenario, dump_scenario, scenario_from_mapping
from fleetsim.config.yaml_text import from_yaml
from fleetsim.engine.model.names import MODELS
from fleetsim.engine.transfer import TRANSPORTS
from fleetsim.engine.transport import SyncTimes, checkpoint_tensors, sync_times, sync_words
from fleetsim.errors import InputError

# 100 GB in 1,000 tensors; every rate a round number, so that seconds can be read off.
LINK: dict[str, Any] = {
    "model_bytes": 100_000_000_000, "tensors": 1000, "latency_s": 0.25, "tensor_s": 0.001, "call_s": 0.002,
    "gather_bytes_s": 5e9, "nic_bytes_s": 10e9, "link_bytes_s": 200e9, "node_gpus": 8, "pcie_bytes_s": 25e9,
    "efficiency": 1.0, "offload_bytes_s": 1e9, "changed_share": 0.01, "delta_bytes_s": 1e9,
    "storage_write_bytes_s": 2e9, "storage_read_bytes_s": 4e9, "storage_latency_s": 0.5, "relay_bytes_s": 50e9,
    "chunk_bytes": 1_000_000_000,
}  # fmt: skip
DEFAULT_PLACEMENT = {"cuda_ipc": "colocated"}


def times(
    transport: str, instances: int = 4, tp: int = 4, trainer_gpus: int = 16, recipe: Any = None, **link: Any
) -> SyncTimes:
    """16 trainer GPUs in two nodes and four instances of four GPUs in two more, unless said otherwise."""
    return sync_times(
        scenario_from_mapping(
            {
                "fleet": {"instances": instances, "placement": DEFAULT_PLACEMENT.get(transport, "disaggregated")},
                "engine": {"tp": tp},
                "trainer": {"gpus": trainer_gpus, "recipe": recipe or {}},
                "sync": {"transport": transport, "link": {**LINK, **link}},
            }
        )
    )


def three(t: SyncTimes) -> list[float]:
    return [t.publish_s, t.pause_s, t.trainer_block_s]


@pytest.mark.parametrize(
    ("transport", "changes", "expected"),
    [
        # Rank 0 gathers 100 GB at 5 GB/s (its card alone would need 10 s); 1,000 tensors are loaded in 1 s.
        ("collective_broadcast", {}, [0, 21.25, 21.25]),
        ("collective_broadcast", {"pipelined": True}, [0, 20.25, 20.25]),
        # 16 GB a trainer GPU come back from the host at 1 GB/s first: 100 / 16 = 6.25 s.
        ("collective_broadcast", {"offloaded": True}, [0, 27.5, 27.5]),
        # A call for each tensor: 2 s.
        ("collective_broadcast", {"calls": "per_tensor"}, [0, 23.25, 23.25]),
        # All cards of a node take part: 80 GB/s.
        ("collective_broadcast", {"source": "sharded"}, [0, 2.5, 2.5]),
        # One node holds both sides: 200 GB/s between its GPUs.
        ("collective_broadcast", {"source": "sharded", "instances": 1, "trainer_gpus": 4}, [0, 1.75, 1.75]),
        # One sender's card: 10 s, if gathering were free.
        ("collective_broadcast", {"gather_bytes_s": 1e15}, [0, 11.25, 11.25]),
        # Four GPUs of an instance fetch 25 GB each over 10 GB/s, then load.
        ("rdma_p2p", {}, [0, 3.75, 3.75]),
        ("rdma_p2p", {"load": "in_place"}, [0, 2.75, 2.75]),
        ("rdma_p2p", {"pipelined": True}, [0, 2.75, 2.75]),
        ("rdma_p2p", {"source": "gather"}, [0, 21.25, 21.25]),
        ("rdma_p2p", {"instances": 1, "trainer_gpus": 4}, [0, 1.375, 1.375]),
        # Two stages: 50 GB through every card, then the 25 GB of a GPU. Without slices each GPU fetches all 100 GB.
        ("rdma_p2p", {"source": "stage", "stages": 2}, [0, 8.75, 8.75]),
        ("rdma_p2p", {"fetch": "whole"}, [0, 11.25, 11.25]),
        # Every GPU collects all 100 GB: 0.5 s over the links of a node, 1.25 s where shards lie in two. Megatron's copy
        # of 50 billion weights with gradients takes four GPUs; each of 16 ranks that share one needs its card for 10 s.
        ("cuda_ipc", {"trainer_gpus": 8, "recipe": {"backend": "fsdp"}}, [0, 1.75, 1.75]),
        ("cuda_ipc", {"recipe": {"backend": "fsdp"}}, [0, 2.5, 2.5]),
        ("cuda_ipc", {}, [0, 1.75, 1.75]),
        ("cuda_ipc", {"recipe": {"backend": "megatron", "pp": 2, "ep": 8}}, [0, 11.25, 11.25]),
        # Two trainer nodes write 4 GB/s; each rollout node reads 4 GB/s; 25 GB a GPU over PCIe take 1 s.
        ("checkpoint_shuttle", {}, [25.5, 25.25, 25]),
        ("checkpoint_shuttle", {"prefetch": True}, [50.5, 1.25, 25]),
        ("checkpoint_shuttle", {"source": "gather"}, [50.5, 25.25, 50]),
        # All nodes together: the two readers share 5 GB/s, and the writers are below it.
        ("checkpoint_shuttle", {"storage_total_bytes_s": 5e9}, [25.5, 40.25, 25]),
        # 1 % of the weights in 6 of 2 bytes each: 3 GB at 1 GB/s, then the loader.
        ("sparse_delta", {}, [0, 4.25, 4.25]),
        ("sparse_delta", {"index_bytes": 2}, [0, 3.25, 3.25]),
        # Through storage: packed 3 s, written 1.5 s by one node, seen 0.5 s later; read 0.75 s, loaded 1 s.
        ("sparse_delta", {"delta_over": "storage"}, [5, 2, 4.5]),
        ("sparse_delta", {"delta_over": "storage", "prefetch": True}, [5.75, 1.25, 4.5]),
        # Handed over at 50 GB/s; 100 GB and one chunk more down a chain of two nodes at 80 GB/s; 25 GB over PCIe.
        ("relay", {}, [2 + 101 / 80, 1.25, 2]),
        ("relay", {"tensor_s": 0.003}, [2 + 101 / 80, 3.25, 2]),
    ],
)  # fmt: skip
def test_by_hand(transport: str, changes: dict[str, Any], expected: list[float]) -> None:
    assert three(times(transport, **changes)) == pytest.approx(expected)


def test_every_transport_of_the_schema_is_there() -> None:
    schema = Scenario.model_json_schema()["$defs"]["SyncConfig"]["properties"]["transport"]
    assert set(TRANSPORTS) == set(schema["anyOf"][0]["enum"])


def test_without_a_transport_the_times_are_the_given_ones() -> None:
    assert sync_times(scenario_from_mapping({})) == SyncTimes(0.0, 1.0, 1.0)
    given_times = {"publish_s": 3.0, "pause_s": 2.0, "trainer_block_s": 0.0}
    assert sync_times(scenario_from_mapping({"sync": given_times})) == SyncTimes(3.0, 2.0, 0.0)


def test_a_given_time_stands_beside_derived_ones() -> None:
    found = sync_times(scenario_from_mapping({"sync": {"transport": "rdma_p2p", "pause_s": 0.0}}))
    assert found.pause_s == 0.0
    assert found.trainer_block_s > 0.5
    assert found.derived == ("publish_s", "trainer_block_s")
    assert "pause" not in sync_words(found)


def test_a_dumped_scenario_derives_the_same() -> None:
    s = scenario_from_mapping({"sync": {"transport": "relay", "link": LINK}})
    again = scenario_from_mapping(from_yaml(dump_scenario(s), "dump"))
    assert sync_times(again) == sync_times(s)
    assert sync_times(again).derived == ("publish_s", "pause_s", "trainer_block_s")


def test_the_words_say_what_was_derived_from_what() -> None:
    words = sync_words(times("sparse_delta"))
    assert words.startswith("weight sync: publish 0 s, pause 4.2 s, trainer held 4.2 s: from 3.00 GB that changed")
    assert "100.0 GB in 1,000 tensors (sparse_delta), most of it packing" in words
    assert sync_words(sync_times(scenario_from_mapping({}))) == ""


@pytest.mark.parametrize(
    ("model", "tensors"),
    [
        ("Qwen/Qwen2.5-7B", 28 * 12 + 3), ("Qwen/Qwen2.5-0.5B", 24 * 12 + 2), ("Qwen/Qwen3-8B", 36 * 11 + 3),
        ("Qwen/Qwen3-30B-A3B", 48 * (8 + 1 + 3 * 128) + 3), ("meta-llama/Llama-3.1-8B", 32 * 9 + 3),
    ],
)  # fmt: skip
def test_tensors_of_published_checkpoints(model: str, tensors: int) -> None:
    assert checkpoint_tensors(MODELS[model]) == tensors


def test_the_size_comes_from_the_engine() -> None:
    def of(dtype: str) -> float:
        s = {"engine": {"model": "Qwen/Qwen2.5-32B", "dtype": dtype}, "sync": {"transport": "rdma_p2p"}}
        return sync_times(scenario_from_mapping(s)).pause_s

    bytes_16, bytes_8 = (MODELS["Qwen/Qwen2.5-32B"].weight_bytes(d) for d in ("bfloat16", "fp8"))
    assert of("bfloat16") - of("fp8") == pytest.approx((bytes_16 - bytes_8) / (50e9 * 0.88))


def gathered(model: str, backend: str | None = None) -> float:
    s = {
        "engine": {"model": model, "tp": 8},
        "fleet": {"instances": 4},
        "trainer": {"gpus": 64, "recipe": {"backend": backend}},
        "sync": {"transport": "collective_broadcast", "link": {"load": "in_place", "latency_s": 0.0}},
    }
    return sync_times(scenario_from_mapping(s)).pause_s


def test_the_trainers_backend_says_how_fast_weights_are_gathered() -> None:
    small, large = "Qwen/Qwen2.5-32B", "Qwen/Qwen3-235B-A22B"
    size = {name: MODELS[name].weight_bytes("bfloat16") for name in (small, large)}
    assert gathered(small) == gathered(small, "fsdp") == pytest.approx(size[small] / 5.1e9)
    assert gathered(large) == gathered(large, "megatron") == pytest.approx(size[large] / 22.6e9)
    assert gathered(large, "fsdp") == pytest.approx(size[large] / 5.1e9)


def test_a_size_alone_says_which_trainer_it_needs() -> None:
    """100 GB are 50 billion weights of 16 bits: more than a fully sharded trainer is taken for."""
    assert times("collective_broadcast", gather_bytes_s=None).pause_s == pytest.approx(1.25 + 100 / 10)  # one card
    assert times("collective_broadcast", gather_bytes_s=None, model_bytes=50_000_000_000).pause_s == pytest.approx(
        1.25 + 50 / 5.1
    )


def test_ranks_that_share_the_experts_load_their_own() -> None:
    def loading(dp: int) -> float:
        link = {"tensor_s": 1.0, "latency_s": 0.0, "link_bytes_s": 1e18, "nic_bytes_s": 1e18, "source": "sharded"}
        s = {
            "engine": {"model": "Qwen/Qwen3-30B-A3B", "tp": 2, "dp": dp},
            "fleet": {"instances": 4},
            "sync": {"transport": "collective_broadcast", "link": link},
        }
        return sync_times(scenario_from_mapping(s)).pause_s

    experts = 48 * 3 * 128
    assert loading(1) == pytest.approx(checkpoint_tensors(MODELS["Qwen/Qwen3-30B-A3B"]))
    assert loading(1) - loading(4) == pytest.approx(experts * 7 / 8)


@pytest.mark.parametrize(
    ("engine", "path", "remedy"),
    [
        ({"model": "acme/unheard-of"}, "engine.model", "sync.link.model_bytes"),
        ({"instance_tok_s": 4000.0}, "sync.link.model_bytes", "engine.model"),
        ({"gpu": "abacus"}, "engine.gpu", "link.node_gpus"),
        ({"dtype": "int3"}, "engine.dtype", "bfloat16"),
    ],
)
def test_what_is_not_known_is_asked_for(engine: dict[str, Any], path: str, remedy: str) -> None:
    with pytest.raises(InputError) as caught:
        sync_times(scenario_from_mapping({"engine": engine, "sync": {"transport": "collective_broadcast"}}))
    assert [p.path for p in caught.value.problems] == [path]
    assert remedy in caught.value.problems[0].remedy


def test_what_is_given_need_not_be_known() -> None:
    s = {"engine": {"model": "acme/unheard-of", "gpu": "abacus"}, "sync": {"transport": "rdma_p2p", "link": LINK}}
    assert sync_times(scenario_from_mapping(s)).pause_s > 0


def test_a_profile_names_the_gpu_as_its_driver_does() -> None:
    def of(gpu: str) -> SyncTimes:
        s = {"engine": {"gpu": gpu}, "sync": {"transport": "collective_broadcast"}, "fleet": {"instances": 4},
             "trainer": {"gpus": 4}}  # fmt: skip
        return sync_times(scenario_from_mapping(s))

    assert of("NVIDIA H100 80GB HBM3") == of("H100-SXM")


RATES = ("gather_bytes_s", "nic_bytes_s", "link_bytes_s", "pcie_bytes_s", "offload_bytes_s", "delta_bytes_s",
         "storage_write_bytes_s", "storage_read_bytes_s", "relay_bytes_s")  # fmt: skip
COSTS = ("model_bytes", "tensors", "tensor_s", "call_s", "latency_s", "changed_share", "index_bytes",
         "storage_latency_s", "chunk_bytes")  # fmt: skip
SETUPS = st.fixed_dictionaries(
    {
        "instances": st.integers(1, 40),
        "tp": st.sampled_from([1, 2, 8, 16]),
        "trainer_gpus": st.integers(1, 64),
        "source": st.sampled_from([None, "gather", "stage", "sharded"]),
        "offloaded": st.booleans(),
        "pipelined": st.booleans(),
        "calls": st.sampled_from(["batched", "per_tensor"]),
    }
)


@given(
    st.sampled_from(sorted(TRANSPORTS)), SETUPS, st.sampled_from([*RATES, *COSTS]), st.floats(0.2, 5.0),
    st.floats(1.0, 100.0), st.booleans(),
)  # fmt: skip
def test_more_bytes_are_never_faster_and_more_bandwidth_never_slower(
    transport: str, setup: dict[str, Any], key: str, base: float, factor: float, stored: bool
) -> None:
    if stored and transport == "sparse_delta":
        setup = {**setup, "delta_over": "storage"}

    def at(value: float) -> list[float]:
        whole = isinstance(LINK.get(key, 4), int)
        value = min(value, 1.0) if key == "changed_share" else value
        return three(times(transport, **setup, **{key: max(1, round(value)) if whole else value}))

    little, much = at(LINK.get(key, 4) * base), at(LINK.get(key, 4) * base * factor)
    more, less = (little, much) if key in RATES else (much, little)
    assert all(a >= b - 1e-9 for a, b in zip(more, less, strict=True))
    assert all(0 <= x < 1e9 for x in more)


@given(SETUPS, st.floats(0.001, 1.0))
def test_a_delta_never_moves_more_than_the_model(setup: dict[str, Any], share: float) -> None:
    everything = times("sparse_delta", **setup, changed_share=1.0)
    assert times("sparse_delta", **setup, changed_share=share).pause_s <= everything.pause_s + 1e-9
    packing = 100e9 / LINK["delta_bytes_s"]
    rest = times("sparse_delta", **setup, changed_share=0.0, gather_bytes_s=1e15).pause_s
    assert everything.pause_s <= packing + rest + 1e-6
