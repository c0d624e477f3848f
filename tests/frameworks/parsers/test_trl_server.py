"""The server that TRL starts, read from what TRL itself makes of its deprecated command."""

from __future__ import annotations

import shlex

import pytest

from fleetsim.config import Scenario
from fleetsim.frameworks.convert import scenario_from
from fleetsim.frameworks.source import parsed_source
from tests.frameworks.parsers.conftest import Parse

TRAINER = "trl grpo --num_processes 4 --model_name_or_path Qwen/Qwen2.5-7B --use_vllm True --vllm_mode server"
SERVERS = (
    "--tensor-parallel-size 2 --data_parallel_size 3",
    "--gpu_memory_utilization 0.8 --enable_prefix_caching False",
    "--max-num-seqs 256 --max-num-batched-tokens 4096",
    '--speculative_config \'{"method": "ngram", "num_speculative_tokens": 3}\'',
)


def read(server: str, *words: str) -> Scenario:
    return scenario_from("trl", parsed_source(f"{server} &\n{TRAINER}\n", "run.sh", words)).scenario


@pytest.mark.parametrize("flags", SERVERS)
def test_both_commands_are_one_server(flags: str, own_parser: Parse) -> None:
    """`trl vllm-serve` and the `vllm serve` that TRL 1.16 starts in its place are one scenario."""
    old = f"trl vllm-serve --model Qwen/Qwen2.5-7B {flags}"
    started = own_parser("trl", shlex.split(old), "")["settings"]["starts"]
    new = shlex.join(["vllm", *started[started.index("serve") :]])
    assert "--weight-transfer-config" in new
    sides = [read(server).model_dump(exclude={"name", "assumed"}) for server in (old, new)]
    assert sides[0] == sides[1]
    assert sides[0]["engine"]["entry_point"] == "api_server"


def test_another_vllm_server_is_none_of_the_trainers() -> None:
    judge = read("vllm serve Qwen/Judge-72B --tensor-parallel-size 8")
    assert (judge.engine.tp, judge.engine.model) == (1, "Qwen/Qwen2.5-7B")
