"""A real vLLM that drafts by n-grams on the CPU: its counters, the tokens that it sent, what calibrate makes of both.

No seconds are compared here: tokens and counters do not depend on what else the machine does.
"""

from __future__ import annotations

import json
import re
import urllib.request
from concurrent.futures import ThreadPoolExecutor
from pathlib import Path
from typing import Any

import pytest

from fleetsim.calibrate.ask import Calibrate
from fleetsim.calibrate.engine_facts import counts_in, measured_drafts
from fleetsim.calibrate.fit.design import observations_of
from fleetsim.calibrate.raw import RawWriter, read_raw
from fleetsim.calibrate.server.measure import measure_server
from tests.real_vllm.serving import DRAFTED as K
from tests.real_vllm.serving import Serving

REQUESTS, TOKENS = 8, 400


@pytest.fixture(scope="module")
def server(drafting: Serving) -> str:
    """The address of a server that drafts."""
    return drafting.ready()


def completion(url: str, prompt: list[int], **more: Any) -> urllib.request.Request:
    body = {"model": "tiny", "prompt": prompt, "max_tokens": TOKENS, "ignore_eos": True, "detokenize": False, **more}
    return urllib.request.Request(
        f"{url}/v1/completions", json.dumps(body).encode(), {"Content-Type": "application/json"}
    )


def generated(request: urllib.request.Request) -> int:
    with urllib.request.urlopen(request, timeout=600) as answer:
        return int(json.loads(answer.read())["usage"]["completion_tokens"])


def page_of(url: str) -> str:
    with urllib.request.urlopen(f"{url}/metrics", timeout=60) as answer:
        return str(answer.read().decode())


def counter(page: str, name: str, labels: str = "") -> int:
    """A counter of the page, read without fleetsim."""
    found = re.search(rf"^vllm:{name}\{{[^}}]*{labels}[^}}]*\}} (\S+)$", page, re.MULTILINE)
    assert found is not None, name
    return round(float(found[1]))


@pytest.fixture(scope="module")
def traffic(server: str) -> str:
    """What the server's metrics say after requests of its users, half of which repeat themselves."""
    before = counter(page_of(server), "generation_tokens_total")
    asks = [completion(server, [5 + i, 6, 7, 5, 6, 7], temperature=float(i % 2)) for i in range(REQUESTS)]
    with ThreadPoolExecutor(REQUESTS) as at_once:
        tokens = sum(at_once.map(generated, asks))
    page = page_of(server)
    assert tokens == REQUESTS * TOKENS == counter(page, "generation_tokens_total") - before
    return page


def test_calibrate_takes_what_the_users_requests_had_accepted(server: str, traffic: str, tmp_path: Path) -> None:
    at = [counter(traffic, "spec_decode_num_accepted_tokens_per_pos_total", f'position="{k}"') for k in range(K)]
    drafts, drafted = (counter(traffic, f"spec_decode_num_{name}_total") for name in ("drafts", "draft_tokens"))
    assert sum(at) == counter(traffic, "spec_decode_num_accepted_tokens_total") > 0
    writer = RawWriter(tmp_path / "a.raw.jsonl")
    measure_server(Calibrate(url=server, quick=True, budget_s=600.0), writer, done=Decodes())
    writer.close()
    raw = read_raw(tmp_path / "a.raw.jsonl")
    found = measured_drafts(raw)
    assert found is not None
    assert (found.method, found.num_speculative_tokens) == ("ngram", K)
    assert found.measured_on == "requests of its users"
    # every token is the first of its request, one that an iteration brings in any case, or an accepted one; the last
    # iteration of a request may accept more than it still wanted
    requests, tokens = (counter(traffic, n) for n in ("request_generation_tokens_count", "generation_tokens_total"))
    beyond = requests + found.iterations + sum(at) - tokens
    assert 0 <= beyond <= requests * K
    assert drafts <= found.iterations < tokens
    assert found.acceptance == pytest.approx([n / found.iterations for n in at], rel=1e-6)
    assert found.drafted_tokens == pytest.approx(drafted / found.iterations, rel=1e-6)

    after = page_of(server)
    own = [c for s in raw.segments if (c := counts_in(s.record)) is not None]
    assert len(own) == 3
    grown = counter(after, "spec_decode_num_draft_tokens_total") - drafted
    assert 0 < sum(c.drafted for c in own) <= grown
    o = observations_of(raw)
    verified = {s.id: c.each for s in raw.segments if (c := counts_in(s.record)) is not None}
    first = o.of.searchsorted(range(len(o)))
    assert o.drafted[first] == pytest.approx(
        [o.decodes[i] * verified[s] for i, s in zip(first, o.segment, strict=True)], abs=1e-3
    )


class Decodes(frozenset[str]):
    """Keys of loads that an earlier session ended: all but three of decodes."""

    most = 3

    def __contains__(self, key: object) -> bool:
        if not str(key).startswith("decode") or self.most == 0:
            return True
        self.most -= 1
        return False


def test_a_stream_has_no_more_parts_than_the_iterations_that_are_counted(server: str, traffic: str) -> None:
    """A part holds the tokens of one iteration, or of several where the client was slow."""
    before = page_of(server)
    ask = completion(server, [5, 6, 7, 5, 6, 7], temperature=0.0, stream=True)
    with urllib.request.urlopen(ask, timeout=600) as answer:
        parts = sum(line.startswith(b"data: {") for line in answer)
    after = page_of(server)
    accepted = counter(after, "spec_decode_num_accepted_tokens_total") - counter(
        before, "spec_decode_num_accepted_tokens_total"
    )
    assert accepted > 0
    assert parts <= TOKENS - accepted + K + 1
