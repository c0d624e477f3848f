"""Measuring over real HTTP: a fake server in real time, well-behaved and otherwise.

Nothing here depends on how fast the machine is: a measurement ends with its loads, which are few, long before its
budget; what is compared with what was measured is what the server lived through, not what it was meant to do.
"""

from __future__ import annotations

import socket
import ssl
import subprocess
import threading
from contextlib import AbstractContextManager
from pathlib import Path
from typing import Any

import numpy as np
import pytest

from fleetsim.calibrate.ask import Calibrate
from fleetsim.calibrate.engine_facts import facts_of
from fleetsim.calibrate.fit.design import observations_of
from fleetsim.calibrate.raw import Raw, RawWriter, raw_of, records_of
from fleetsim.calibrate.server.engine import STRETCH
from fleetsim.calibrate.server.measure import measure_server
from fleetsim.engine import EngineLimits
from fleetsim.errors import FleetsimError, InputError, OutsideError
from tests.calibrate.fake_scheduler import LIMITS, Scheduler
from tests.calibrate.fake_server import FakeServer, serve


@pytest.fixture(autouse=True)
def no_keys(monkeypatch: pytest.MonkeyPatch) -> None:
    for name in ("FLEETSIM_API_KEY", "OPENAI_API_KEY"):
        monkeypatch.delenv(name, raising=False)


def measure(fake: FakeServer | str, path: Path, **options: Any) -> Raw:
    """Records of a quick measurement of the first three prompts, a second of it or two."""
    writer = RawWriter(path / "a.raw.jsonl")
    how: dict[str, Any] = {"timeout_s": 60.0, "done": all_but("prefill", 3)}
    how |= {name: options.pop(name) for name in ("timeout_s", "done", "tell") if name in options}
    try:
        url = fake if isinstance(fake, str) else fake.url
        measure_server(Calibrate(url=url, **{"quick": True, "budget_s": 120.0, **options}), writer, **how)
    finally:
        writer.close()
    records, damaged = records_of(path / "a.raw.jsonl")
    return raw_of(records, damaged)


FEW = EngineLimits(max_num_seqs=16, max_num_batched_tokens=2048, kv_blocks=20_000, block_size=16)


def few(**faults: Any) -> AbstractContextManager[FakeServer]:
    """A server that runs few requests at once, of few tokens: its kept-out batches are short."""
    return serve(Scheduler(limits=FEW), context=1024, **faults)


def decode_ratio(raw: Raw, fake: FakeServer) -> float:
    """What stretches of decode iterations were measured to take, over what stretches took in the server; the median.

    1 where it is within the middle half of the server's own: a machine that does other things delays both.
    """
    o = observations_of(raw)
    decode = np.array([raw.phase_of[s] == "decode" for s in o.segment])
    held = decode & (np.bincount(o.of, minlength=len(o)) == 1)
    batches = o.decodes[np.searchsorted(o.of, np.flatnonzero(held))]
    assert len(batches)
    lived = {b: np.array(fake.lived_s[int(b)]) for b in set(batches)}
    means = {b: np.convolve(each, np.ones(n := min(STRETCH, len(each))) / n, "valid") for b, each in lived.items()}
    known = [np.clip(s, *np.quantile(means[b], (0.25, 0.75))) for s, b in zip(o.seconds[held], batches, strict=True)]
    return float(np.median(o.seconds[held] / known))


def left(path: Path) -> Raw:
    records, _ = records_of(path / "a.raw.jsonl")
    return raw_of(records)


class Ended(frozenset[str]):
    """Keys of loads that an earlier session ended: all there are, but the first so many of one phase."""

    but, most = "none", 0

    def __contains__(self, key: object) -> bool:
        if not str(key).startswith(self.but) or self.most == 0:
            return True
        self.most -= 1
        return False


def all_but(phase: str, most: int = 1000) -> Ended:
    ended = Ended()
    ended.but, ended.most = phase, most
    return ended


def test_a_whole_measurement(tmp_path: Path) -> None:
    """In real time on a machine that does other things too: only roughly the truth, but all of the parts."""
    told: list[str] = []
    with few() as fake:
        raw = measure(fake, tmp_path, budget_s=30.0, measure_sync=True, tell=told.append, done=frozenset())
    facts = facts_of(raw)
    p, limits = facts.provenance, facts.limits
    assert (p.engine, p.engine_version, p.model) == ("vllm", "0.99.0", "fake-7b")
    assert (limits.max_num_seqs, limits.max_num_batched_tokens) == (FEW.max_num_seqs, FEW.max_num_batched_tokens)
    assert (limits.kv_blocks, limits.block_size) == (FEW.kv_blocks, FEW.block_size)
    assert raw.starts[-1]["model"]["max_model_len"] == 1024
    assert (p.gpu, p.gpu_count, p.driver, p.dtype) == ("NVIDIA H200", 2, "570.1", "bfloat16")
    assert facts.graph_sizes == (1, 2, 4, 8, 16)
    assert not p.assumed
    assert {s.phase for s in raw.segments} >= {"prefill", "decode", "mixed", "rl_requests"}
    assert 0.5 < decode_ratio(raw, fake) < 2.0
    batch = next(s for s in raw.segments if s.kept_out)
    assert batch.requests is not None
    assert batch.requests["n"] == batch.requests["want"]
    assert batch.record["gen"] == sum(batch.requests["n"]) == batch.label["tokens"]
    for submit, first, finish in zip(*(batch.requests[k] for k in ("submit", "first", "finish")), strict=True):
        assert 0 <= submit < first <= finish
    assert batch.record["hit_tokens"] > 0
    sync = next(r for r in raw.records if r.get("t") == "phase")
    assert sync["ph"] == "sync"
    assert 0 < sync["res"]["pause_keep_s"] < 5
    assert 0 < sync["res"]["resume_to_next_result_s"] < 5
    assert fake.resumes == 1
    assert not fake.paused
    assert any("decode" in text and "left" in text for text in told)
    ids = [b["prompt"] for b in fake.asked]
    assert all(isinstance(p, list) and max(p) < 256 for p in ids)


def test_siblings_in_one_request(tmp_path: Path) -> None:
    with few() as fake:
        raw = measure(fake, tmp_path, budget_s=20.0, done=all_but("rl_"))
    assert {s.phase for s in raw.segments} == {"rl_requests", "rl_n"}
    batch = next(s for s in raw.segments if s.phase == "rl_n")
    assert batch.requests is not None
    assert any(b.get("n") == 8 for b in fake.asked)
    for i in range(0, len(batch.requests["n"]), 8):
        assert len(set(batch.requests["n"][i : i + 8])) == 1
        assert len(set(batch.requests["submit"][i : i + 8])) == 1
    assert all(f > 0 for f in batch.requests["finish"])


@pytest.mark.parametrize(
    ("lacks", "way"),
    [
        ({"strict": True}, {"prompts": "token_ids", "counted_by": "spread"}),
        ({"text_only": True}, {"prompts": "text", "counted_by": "usage"}),
        ({"usage": False, "strict": True, "together": 4}, {"prompts": "text", "counted_by": "spread"}),
        ({"together": 4}, {"prompts": "token_ids", "counted_by": "usage"}),
    ],
)
def test_servers_that_speak_otherwise(tmp_path: Path, lacks: dict[str, Any], way: dict[str, Any]) -> None:
    if "usage" in lacks:
        lacks = {**lacks, "text_only": True}
    with few(**lacks) as fake:
        raw = measure(fake, tmp_path, done=all_but("decode", 3))
    assert raw.starts[0]["client"].items() >= way.items()
    # chunks of four tokens taken for one token each would be four times as slow
    assert 0.4 < decode_ratio(raw, fake) < 2.5


def test_sglang_by_its_own_names(tmp_path: Path) -> None:
    with serve(family="sglang") as fake:
        raw = measure(fake, tmp_path)
    facts = facts_of(raw)
    assert (facts.provenance.engine, facts.provenance.tp, facts.prefix_caching) == ("sglang", 2, True)
    assert (facts.limits.kv_blocks, facts.limits.block_size) == (LIMITS.kv_blocks, LIMITS.block_size)
    assert facts.limits.max_num_batched_tokens == LIMITS.max_num_batched_tokens
    assert "secret-of-the-server" not in (tmp_path / "a.raw.jsonl").read_text()


def test_limits_nobody_tells_are_tried_or_assumed(tmp_path: Path) -> None:
    small = EngineLimits(max_num_seqs=20, max_num_batched_tokens=512, kv_blocks=20_000, block_size=16)
    with serve(Scheduler(limits=small), dev=False, family="old") as fake:
        raw = measure(fake, tmp_path, done=all_but("none"))
    facts = facts_of(raw)
    assert facts.limits.max_num_seqs == 20
    assert any("max_num_seqs=20" in text for text in facts.provenance.assumed)
    assert any(text.startswith("max_num_batched_tokens=") for text in facts.provenance.assumed)
    assert facts.limits.kv_blocks == 20_000
    assert not raw.segments


def test_flags_fill_what_a_server_does_not_say(tmp_path: Path) -> None:
    with serve(dev=False, family="none") as fake, pytest.raises(OutsideError, match=r"no /metrics.*--yes"):
        measure(fake, tmp_path)
    with serve(dev=False, family="none") as fake:
        raw = measure(
            fake,
            tmp_path,
            yes=True,
            max_num_seqs=48,
            max_num_batched_tokens=1024,
            kv_blocks=500,
            block_size=32,
            max_model_len=2000,
            gpu="H100",
            tp=4,
        )
    p, limits = facts_of(raw).provenance, facts_of(raw).limits
    assert (p.engine, limits.max_num_seqs, limits.max_num_batched_tokens) == ("openai", 48, 1024)
    assert (limits.kv_blocks, limits.block_size) == (500, 32)
    assert raw.starts[-1]["model"]["max_model_len"] == 4096  # it does say its context
    assert (p.gpu, p.tp) == ("H100", 4)
    assert p.assumed == ("prefix caching on: the server does not say it",)


def test_nobody_is_disturbed(tmp_path: Path) -> None:
    with serve(foreign=3) as fake:
        with pytest.raises(OutsideError, match=r"3 requests are running.*--yes"):
            measure(fake, tmp_path)
        assert not fake.asked
        raw = measure(fake, tmp_path, yes=True)
        assert raw.segments


def test_others_who_come_in_the_middle_end_it(tmp_path: Path) -> None:
    with serve(foreign_from=8, foreign_ended=50) as fake, pytest.raises(OutsideError, match=r"others.*--resume"):
        measure(fake, tmp_path)
    kept = left(tmp_path)
    assert kept.starts
    assert any(not s.cut for s in kept.segments)


@pytest.mark.parametrize(
    ("faults", "options", "says"),
    [
        ({"status": 403}, {}, r"asks for a key \(403"),
        ({"status": 404}, {}, r"no /v1/completions.*http://localhost:8000"),
        ({"status": 500}, {}, r"failed with 500: as the fake was told; see the server's own log"),
        ({"status": 400}, {}, r"takes no way.*400"),
        ({"status": 302}, {}, r"redirects"),
        ({"status": 418}, {}, r"answered 418"),
        ({"html": True}, {}, r"HTML.*http://localhost:8000"),
        ({"key": "right"}, {}, r"asks for a key \(401: invalid key\); give one with --api-key"),
        ({"key": "right"}, {"api_key": "wrong-one"}, r"refuses this key \(401"),
        ({"models": ()}, {}, r"serves no model"),
        ({"busy_times": 99}, {}, r"429.*rate limit"),
    ],
)
def test_answers_that_are_none(tmp_path: Path, faults: dict[str, Any], options: dict[str, Any], says: str) -> None:
    with serve(**faults) as fake, pytest.raises(OutsideError, match=says) as caught:
        measure(fake, tmp_path, **options)
    assert caught.value.exit_code == 3
    assert "wrong-one" not in str(caught.value) + (tmp_path / "a.raw.jsonl").read_text()


def test_which_model(tmp_path: Path) -> None:
    with serve(models=("a", "b")) as fake:
        with pytest.raises(InputError, match=r"several models.*a, b"):
            measure(fake, tmp_path)
        with pytest.raises(InputError, match=r"'c': not served at .*it serves: a, b"):
            measure(fake, tmp_path, model="c")
        measure(fake, tmp_path, model="b")
        assert {b["model"] for b in fake.asked} == {"b"}


def test_the_right_key_and_a_patient_client(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("OPENAI_API_KEY", "right")
    with serve(key="right", busy_times=3, prefix="/gate") as fake:
        raw = measure(fake.url + "/v1", tmp_path)
    assert raw.segments
    assert any("429 to 3 requests" in str(r.get("note")) for r in raw.records)
    assert "right" not in (tmp_path / "a.raw.jsonl").read_text()
    assert fake.headers[-1]["Authorization"] == "Bearer right"


@pytest.mark.parametrize(
    ("faults", "says"),
    [
        ({"die_after": 12}, r"broke|no connection|ended before its end"),
        ({"hang_after": 12}, r"no token for 1 s; is the server alive"),
        ({"garble_after": 12}, r"not JSON.*see the server's own log"),
        ({"error_after": 12}, r"EngineCore encountered an issue.*own log"),
    ],
)
def test_a_server_that_dies_in_the_middle_loses_nothing(tmp_path: Path, faults: dict[str, Any], says: str) -> None:
    with serve(**faults) as fake, pytest.raises(OutsideError, match=says):
        measure(fake, tmp_path, **({"timeout_s": 1.0} if "hang_after" in faults else {}))
    assert left(tmp_path).damaged == 0


def test_what_was_measured_before_a_death_is_kept(tmp_path: Path) -> None:
    with serve(die_after=100) as fake, pytest.raises(OutsideError):
        measure(fake, tmp_path, done=frozenset())
    kept = left(tmp_path)
    assert any(not s.cut for s in kept.segments)
    assert len(observations_of(kept)) > 0
    assert any(r.get("t") == "error" for r in kept.records)


def test_a_connection_that_was_kept_for_too_long_is_made_anew(tmp_path: Path) -> None:
    """A server may close an idle connection just when it is used again: the request goes out a second time, once."""
    with serve(drops=1) as fake:
        raw = measure(fake, tmp_path)
    assert raw.segments
    with serve(drops=2) as fake, pytest.raises(OutsideError, match="the connection broke"):
        measure(fake, tmp_path)


def test_a_server_that_refuses_siblings_keeps_the_rest(tmp_path: Path) -> None:
    with few(refuses_n=True) as fake:
        raw = measure(fake, tmp_path, budget_s=20.0, done=all_but("rl_"))
    assert "rl_requests" in {s.phase for s in raw.segments if not s.cut}
    assert any(r.get("t") == "error" and "n must be 1" in r["err"] for r in raw.records)


def test_responses_that_end_early_are_measured_as_they_are(tmp_path: Path) -> None:
    with serve(early=12) as fake:
        raw = measure(fake, tmp_path)
    assert raw.starts[0]["client"]["ends_early"]
    assert any("ignore_eos" in str(r.get("note")) for r in raw.records)
    assert any(s.phase == "prefill" and not s.cut for s in raw.segments)


def test_a_server_without_pause_is_noted(tmp_path: Path) -> None:
    with serve(dev=False) as fake:
        raw = measure(fake, tmp_path, measure_sync=True, max_num_seqs=64, max_num_batched_tokens=2048)
    assert any("VLLM_SERVER_DEV_MODE" in str(r.get("note")) for r in raw.records)


def test_a_server_that_stays_paused_is_said_how_to_resume(tmp_path: Path) -> None:
    with serve(stuck_paused=True) as fake, pytest.raises(OutsideError, match=r"curl -X POST .*/resume"):
        measure(fake, tmp_path, measure_sync=True, done=all_but("none"))


def test_ctrl_c_while_paused_resumes_and_keeps_what_was_measured(tmp_path: Path) -> None:
    with serve(interrupt=True) as fake, pytest.raises(KeyboardInterrupt):
        measure(fake, tmp_path, measure_sync=True)
    assert fake.resumes >= 1
    assert not fake.paused
    assert len(observations_of(left(tmp_path))) > 0


def test_nobody_listens(tmp_path: Path) -> None:
    with socket.socket() as s:
        s.bind(("127.0.0.1", 0))
        port = s.getsockname()[1]
    with pytest.raises(OutsideError, match=r"no connection.*is the server up"):
        measure(f"http://127.0.0.1:{port}", tmp_path)


def test_something_else_listens(tmp_path: Path) -> None:
    """A port that speaks no HTTP, and a name that does not resolve."""
    with socket.create_server(("127.0.0.1", 0)) as server:

        def greet() -> None:
            connection, _ = server.accept()
            with connection:
                connection.recv(1000)
                connection.sendall(b"220 mail.example ESMTP\r\n")

        thread = threading.Thread(target=greet, daemon=True)
        thread.start()
        with pytest.raises(OutsideError, match=r"broke|is it an HTTP server"):
            measure(f"http://127.0.0.1:{server.getsockname()[1]}", tmp_path)
        thread.join(60)
    with pytest.raises(FleetsimError, match=r"no connection"):
        measure("http://no-such-host.invalid:8000", tmp_path)


def test_a_certificate_nobody_signed(tmp_path: Path) -> None:
    cert, key = tmp_path / "cert.pem", tmp_path / "key.pem"
    made = subprocess.run(
        f"openssl req -x509 -newkey rsa:2048 -nodes -days 1 -subj /CN=localhost -keyout {key} -out {cert}".split(),
        capture_output=True,
        check=False,
    )
    if made.returncode:
        pytest.skip("no openssl to make a certificate with")
    context = ssl.SSLContext(ssl.PROTOCOL_TLS_SERVER)
    context.load_cert_chain(cert, key)
    with socket.create_server(("127.0.0.1", 0)) as server:

        def shake() -> None:
            connection, _ = server.accept()
            with connection:
                try:
                    context.wrap_socket(connection, server_side=True)
                except (ssl.SSLError, OSError):
                    return

        thread = threading.Thread(target=shake, daemon=True)
        thread.start()
        with pytest.raises(OutsideError, match=r"TLS failed.*SSL_CERT_FILE"):
            measure(f"https://127.0.0.1:{server.getsockname()[1]}", tmp_path)
        thread.join(60)
