"""Series into signals and instances: names, renames, copies, parts, ranks."""

from __future__ import annotations

import math
from collections.abc import Mapping

import numpy as np
import pytest

from fleetsim.errors import InputError
from fleetsim.history.catalogue import Catalogue, Identities, parse_metric, wanted
from fleetsim.history.history import Floats, History
from fleetsim.history.merge import fill, merge

NAN = math.nan
NO_TIMES = np.array([], dtype=float)


def _merged(*series: tuple[str, Mapping[str, str], list[float]]) -> History:
    rows = [(name, labels, np.array(values, dtype=float)) for name, labels, values in series]
    times = np.arange(len(series[0][2]), dtype=float)
    return merge(Catalogue(wanted()), rows, [], times=times, step_s=1.0, coarse=NO_TIMES, source="a test")


def _pod(name: str, **more: str) -> dict[str, str]:
    return {"pod": name, "instance": f"10.0.0.{len(name)}:8000", "model_name": "m", "engine": "0", **more}


def test_one_metric_may_count_for_two_signals() -> None:
    labels = _pod("a", finished_reason="length")
    names = [m.signal.name for m in Catalogue(wanted()).match("vllm:request_success_total", labels)]
    assert names == ["finished", "finished_length"]


def test_parts_are_added_up_and_copies_are_not() -> None:
    got = _merged(
        ("vllm:request_success_total", _pod("a", finished_reason="stop", prometheus_replica="x"), [1, 2]),
        ("vllm:request_success_total", _pod("a", finished_reason="stop", prometheus_replica="y"), [1, 2]),
        ("vllm:request_success_total", _pod("a", finished_reason="length", prometheus_replica="x"), [10, NAN]),
        ("vllm:request_success_total", _pod("a", finished_reason="length", prometheus_replica="y"), [10, 20]),
    )
    assert got.values["finished"].tolist() == [[11, 22]]
    assert got.values["finished_length"].tolist() == [[10, 20]]
    assert [n.kind for n in got.notes] == ["duplicate"]


def test_a_renamed_metric_fills_the_gaps_of_the_newer_one() -> None:
    got = _merged(
        ("vllm:gpu_cache_usage_perc", _pod("a"), [0.1, 0.2, NAN]),
        ("vllm:kv_cache_usage_perc", _pod("a"), [NAN, 0.3, 0.4]),
    )
    assert got.values["kv_use"].tolist() == [[0.1, 0.3, 0.4]]


def test_an_engine_sleeps_in_either_state() -> None:
    got = _merged(
        ("vllm:engine_sleep_state", _pod("a", sleep_state="weights_offloaded"), [0, 1, 0]),
        ("vllm:engine_sleep_state", _pod("a", sleep_state="discard_all"), [1, 0, 0]),
    )
    assert got.values["asleep"].tolist() == [[1, 1, 0]]


def test_what_fills_a_hole_makes_no_false_reset() -> None:
    first, late = np.array([10.0, NAN, 30.0, NAN]), np.array([5.0, 9.0, 25.0, 28.0])
    assert fill(first, late, counter=True).tolist() == [10, 10, 30, 30]
    after_restart = np.array([5.0, 9.0, 25.0, 1.0])
    assert fill(first, after_restart, counter=True).tolist() == [10, 10, 30, 1]
    assert fill(np.array([10.0, NAN, 2.0]), np.array([9.0, 1.0, 1.5]), counter=True).tolist() == [10, 1, 2]


def test_instances_are_pods_and_their_data_parallel_ranks() -> None:
    who = Identities([_pod("b", engine="1"), _pod("b"), _pod("a"), {"instance": "h:1", "dp_rank": "3"}])
    assert [str(i) for i in who.instances] == ["a", "b", "b/1", "h:1/3"]
    assert who.of(_pod("b", engine="1")) == 2


def test_servers_that_share_a_name_are_told_apart() -> None:
    ports = Identities([{"pod": "a", "instance": "10.0.0.1:8000"}, {"pod": "a", "instance": "10.0.0.1:8001"}])
    assert [i.name for i in ports.instances] == ["a:8000", "a:8001"]
    spaces = Identities([{"pod": "a", "namespace": "x"}, {"pod": "a", "namespace": "y"}])
    assert [i.name for i in spaces.instances] == ["x/a", "y/a"]
    moved = Identities([{"pod": "a", "instance": "10.0.0.1:8000"}, {"pod": "a", "instance": "10.0.0.2:8000"}])
    assert [i.name for i in moved.instances] == ["a"]
    assert "instance" not in moved.instances[0].labels


def test_only_the_first_tensor_parallel_rank_counts() -> None:
    got = _merged(
        ("sglang:generation_tokens_total", {"instance": "h:1", "tp_rank": "0"}, [1]),
        ("sglang:generation_tokens_total", {"instance": "h:1", "tp_rank": "1"}, [1]),
    )
    assert got.values["generation_tokens"].tolist() == [[1]]


def test_trainer_ranks_export_the_same_and_queues_add_up() -> None:
    got = _merged(
        ("rl_trainer_steps_total", {"instance": "t:1", "r": "0"}, [4, 5]),
        ("rl_trainer_steps_total", {"instance": "t:1", "r": "1"}, [4, NAN]),
        ("rl_rollout_queue_samples", {"instance": "t:1", "shard": "0"}, [4, 5]),
        ("rl_rollout_queue_samples", {"instance": "t:1", "shard": "1"}, [6, 7]),
    )
    assert got.fleet["trainer.steps"].tolist() == [4, 5]
    assert got.fleet["queue.samples"].tolist() == [10, 12]
    assert got.instances == ()
    assert {n.kind for n in got.notes} == {"duplicate"}


def test_histograms_share_their_bounds() -> None:
    def bucket(pod: str, le: str, values: list[float]) -> tuple[str, dict[str, str], Floats]:
        return "vllm:request_generation_tokens_bucket", _pod(pod, le=le), np.array(values)

    got = merge(
        Catalogue(wanted()),
        [],
        [
            bucket("a", "1", [1, 2]),
            bucket("a", "+Inf", [3, 4]),
            bucket("b", "1.0", [5, 6]),
            bucket("b", "2.0", [6, 8]),
            bucket("b", "+Inf", [6, 9]),
            ("vllm:request_generation_tokens_sum", _pod("b"), np.array([7.0, 12.0])),
        ],
        times=np.array([0.0, 300.0]),
        step_s=300.0,
        coarse=np.array([0.0, 300.0]),
        source="a test",
    ).histograms["output_tokens"]
    assert got.le.tolist() == [1, 2, math.inf]
    assert got.counts[0].tolist() == [[1, 3, 3], [2, 4, 4]]  # above its last bound everything is below the next
    assert got.counts[1].tolist() == [[5, 6, 6], [6, 8, 9]]
    assert np.isnan(got.sums[0]).all()
    assert got.sums[1].tolist() == [7, 12]


def test_the_last_configuration_counts() -> None:
    got = _merged(
        ("vllm:cache_config_info", _pod("a", num_gpu_blocks="10"), [1, NAN]),
        ("vllm:cache_config_info", _pod("a", num_gpu_blocks="20"), [NAN, 1]),
        ("vllm:num_requests_running", _pod("b"), [1, 1]),
    )
    assert [c.get("num_gpu_blocks") for c in got.configs] == ["20", None]


def test_a_mapped_metric_counts_alone() -> None:
    asked = wanted({"trainer.step_s": 'my_step{phase="all"}', "running": "my_running"})
    by_name = {w.signal.name: w for w in asked}
    assert [str(m) for m in by_name["running"].metrics] == ["my_running"]
    catalogue = Catalogue(asked)
    assert not catalogue.match("my_step", {"phase": "train"})
    assert catalogue.match("my_step", {"phase": "all"})[0].signal.name == "trainer.step_s"
    assert not catalogue.match("vllm:num_requests_running", {})


@pytest.mark.parametrize(
    ("mapping", "says"),
    [
        ({"trainer.steps_s": "x"}, 'did you mean "trainer.step_s"?'),
        ({"running": "a b"}, "a metric is a name"),
        ({"running": 'a{b=~"c"}'}, "a metric is a name"),
        ({"running": 'a{b="c"'}, "a metric is a name"),
    ],
)
def test_a_bad_mapping_is_refused(mapping: dict[str, str], says: str) -> None:
    with pytest.raises(InputError, match=says.replace("?", r"\?")):
        wanted(mapping)


def test_metrics_parse_back() -> None:
    for text in ("up", 'vllm:x{a="b"}', 'x{a="b",c="d, e"}'):
        assert str(parse_metric(text)) == text


def test_a_series_without_an_address_is_still_of_its_pod() -> None:
    who = Identities([{"pod": "a", "instance": "10.0.0.1:8000", "namespace": "x"}, {"pod": "a"}])
    assert [i.name for i in who.instances] == ["a"]


def test_an_engine_is_one_with_a_model_where_one_metric_names_none() -> None:
    """vLLM's cache_config_info has no model_name."""
    page = {"instance": "h:8000", "job": "rollout", "engine": "0"}
    got = _merged(
        ("vllm:cache_config_info", {**page, "block_size": "16"}, [1, 1]),
        ("vllm:generation_tokens_total", {**page, "model_name": "tiny"}, [1, 2]),
        ("vllm:num_requests_running", {**page, "model_name": "tiny"}, [1, 2]),
    )
    assert [(str(i), i.model) for i in got.instances] == [("h:8000", "tiny")]
    assert got.configs[0]["block_size"] == "16"
    two = Identities([{**page, "model_name": "tiny"}, {**page, "model_name": "other"}])
    assert [i.model for i in two.instances] == [""]
