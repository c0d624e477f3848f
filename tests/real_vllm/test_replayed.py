"""Real vLLM's own /metrics, scraped by a real Prometheus and replayed: what it counted is what is observed."""

from __future__ import annotations

import json
import time
import urllib.request
from collections.abc import Iterator
from concurrent.futures import ThreadPoolExecutor
from pathlib import Path

import pytest

from fleetsim.history.prometheus import Prometheus
from fleetsim.history.read import read_prometheus
from fleetsim.replay.observe.observe import observe
from tests.real_prometheus.conftest import prometheus  # noqa: F401 - a fixture
from tests.real_prometheus.server import Server
from tests.real_vllm.serving import BLOCK, Serving

SIBLINGS, TOKENS, PROMPT, ROUNDS = 8, 256, 100, 6


@pytest.fixture
def server(drafting: Serving) -> str:
    """The address of a server that answers; that it drafts changes no counter that is looked at here."""
    return drafting.ready()


@pytest.fixture
def scraped(server: str, prometheus: None, tmp_path: Path) -> Iterator[Server]:  # noqa: F811 - the fixture
    """A Prometheus that scrapes the engine every second."""
    with Server(tmp_path / "prometheus", targets={"rollout": [server.removeprefix("http://")]}) as found:
        found.wait_for("vllm:generation_tokens_total")
        yield found


def group(url: str, seed: int) -> int:
    """One prompt group in one request; the output tokens that the server says it made."""
    body = {
        "model": "tiny",
        "prompt": [(seed * 7 + k) % 250 + 1 for k in range(PROMPT)],
        "max_tokens": TOKENS,
        "ignore_eos": True,
        "n": SIBLINGS,
        "temperature": 1.0,
        "detokenize": False,
    }
    request = urllib.request.Request(
        f"{url}/v1/completions", json.dumps(body).encode(), {"Content-Type": "application/json"}
    )
    with urllib.request.urlopen(request, timeout=120) as answer:
        return int(json.load(answer)["usage"]["completion_tokens"])


def test_what_vllm_counted_is_what_is_observed(server: str, scraped: Server) -> None:
    time.sleep(3.0)  # scrapes before the load
    began = time.time()
    with ThreadPoolExecutor(2) as clients:
        made = sum(clients.map(lambda seed: group(server, seed), range(2 * ROUNDS)))
    assert made == 2 * ROUNDS * SIBLINGS * TOKENS
    time.sleep(3.0)  # and after it
    history = read_prometheus(Prometheus(scraped.url), began - 2.0, time.time(), 1.0, 'job="rollout"')
    seen = observe(history)
    assert (seen.engine, seen.model, seen.block_size, seen.prefix_caching) == ("vllm", "tiny", BLOCK, True)
    assert len(seen.instances) == 1
    one = seen.instances[0]
    assert one.generated_tokens == pytest.approx(made, rel=0.02)
    assert one.preemptions == 0
    assert one.restarts == 0
    assert seen.fleet is not None
    assert seen.fleet.instances_now == 1
    # All siblings but the first find the full blocks of their prompt in the cache.
    whole = (PROMPT - 1) // BLOCK * BLOCK
    assert one.prefix_hit == pytest.approx((SIBLINGS - 1) * whole / (SIBLINGS * PROMPT), abs=0.02)
