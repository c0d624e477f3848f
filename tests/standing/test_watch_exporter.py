"""What the watcher exports, as Prometheus's own parser reads it."""

from __future__ import annotations

import contextlib
import http.client
import socket
import urllib.error
import urllib.request

import pytest
from prometheus_client.parser import text_string_to_metric_families

from fleetsim.errors import InputError, OutsideError
from fleetsim.records import replace
from fleetsim.watch import exporter as exporter_module
from fleetsim.watch.exporter import Exporter, is_loopback, parse_listen
from fleetsim.watch.watch import Look, Status

LOOK = Look(
    data_s=95.0,
    current=7,
    wanted=9,
    observed_idle=0.2,
    predicted_idle=0.18,
    model_error=0.04,
    faults={"rollout": True, "sync": False},
)
STATUS = Status(
    up=True,
    recommended=8,
    withheld=None,
    look=LOOK,
    data_age_s=5.0,
    last_success_s=100.0,
    evaluations={"ok": 3, "failed": 1},
    changes=2,
)


def scraped(status: Status) -> dict[str, float]:
    """Sample -> value, labels written into the name."""
    with (
        Exporter(lambda: status, "127.0.0.1", 0) as exporter,
        urllib.request.urlopen(f"http://{exporter.address}/metrics", timeout=60) as answer,
    ):
        text = answer.read().decode()
    return {
        s.name + "".join(f"|{k}={v}" for k, v in sorted(s.labels.items())): s.value
        for family in text_string_to_metric_families(text)
        for s in family.samples
    }


def test_everything_of_a_good_status() -> None:
    found = scraped(STATUS)
    assert {name: value for name, value in found.items() if "build_info" not in name} == {
        "fleetsim_up": 1.0,
        "fleetsim_last_success_timestamp_seconds": 100.0,
        "fleetsim_data_age_seconds": 5.0,
        "fleetsim_recommended_instances": 8.0,
        "fleetsim_current_instances": 7.0,
        "fleetsim_wanted_instances": 9.0,
        "fleetsim_observed_trainer_idle_ratio": 0.2,
        "fleetsim_predicted_trainer_idle_ratio": 0.18,
        "fleetsim_model_error_ratio": 0.04,
        "fleetsim_verdict|check=rollout": 1.0,
        "fleetsim_verdict|check=sync": 0.0,
        "fleetsim_evaluations_total|result=ok": 3.0,
        "fleetsim_evaluations_total|result=failed": 1.0,
        "fleetsim_recommendation_changes_total": 2.0,
        **{
            f"fleetsim_recommendation_withheld|reason={r}": 0.0
            for r in (
                "starting",
                "stale",
                "data",
                "model",
                "no_plan",
                "trainer",
                "sync",
                "stragglers",
                "prefix_cache",
                "in_flight_cap",
                "max_num_seqs",
                "preemptions",
            )
        },
    }


def test_a_withheld_recommendation_is_absent_neither_zero_nor_nan() -> None:
    found = scraped(replace(STATUS, recommended=None, withheld="stale", look=None, up=False))
    assert "fleetsim_recommended_instances" not in found
    assert "fleetsim_current_instances" not in found
    assert found["fleetsim_recommendation_withheld|reason=stale"] == 1.0
    assert found["fleetsim_up"] == 0.0
    assert found["fleetsim_data_age_seconds"] == 5.0


def test_beside_a_fault_the_count_is_kept_and_the_reason_is_a_label() -> None:
    look = replace(LOOK, wanted=None, withheld="max_num_seqs", why="first raise max_num_seqs", then=6)
    found = scraped(replace(STATUS, recommended=8, withheld="max_num_seqs", look=look))
    assert found["fleetsim_recommended_instances"] == 8.0
    assert "fleetsim_wanted_instances" not in found
    reasons = {name: value for name, value in found.items() if "withheld" in name}
    assert reasons.pop("fleetsim_recommendation_withheld|reason=max_num_seqs") == 1.0
    assert set(reasons.values()) == {0.0}


def test_before_the_first_look_only_that_it_is_there() -> None:
    found = scraped(Status(False, None, "starting", None, None, None, {"ok": 0, "failed": 0}, 0))
    assert found["fleetsim_up"] == 0.0
    assert not [name for name in found if "instances" in name or "ratio" in name or "seconds" in name]


def test_it_is_read_only() -> None:
    with Exporter(lambda: STATUS, "127.0.0.1", 0) as exporter:
        host, port = exporter.address.split(":")
        for method in ("POST", "PUT", "DELETE", "PATCH"):
            connection = http.client.HTTPConnection(host, int(port), timeout=60)
            connection.request(method, "/metrics", body=b"x")
            answer = connection.getresponse()
            assert answer.status == 405
            assert answer.headers["Allow"] == "GET"
            connection.close()
        with urllib.request.urlopen(f"http://{exporter.address}/healthz", timeout=60) as answer:
            assert answer.read() == b"ok\n"
        with pytest.raises(urllib.error.HTTPError):
            urllib.request.urlopen(f"http://{exporter.address}/-/quit", timeout=60)


def test_a_port_in_use_is_the_outside_world() -> None:
    with Exporter(lambda: STATUS, "127.0.0.1", 0) as exporter:
        host, port = exporter.address.split(":")
        with pytest.raises(OutsideError, match="cannot listen"):
            Exporter(lambda: STATUS, host, int(port))


@pytest.mark.parametrize(
    ("text", "host", "port", "loopback"),
    [
        (":9105", "127.0.0.1", 9105, True),
        ("9105", "127.0.0.1", 9105, True),
        ("127.0.0.1:0", "127.0.0.1", 0, True),
        ("localhost:9105", "localhost", 9105, True),
        ("[::1]:9105", "::1", 9105, True),
        ("0.0.0.0:9105", "0.0.0.0", 9105, False),
        ("[::]:9105", "::", 9105, False),
        ("watch.example:80", "watch.example", 80, False),
    ],
)
def test_where_to_listen(text: str, host: str, port: int, loopback: bool) -> None:
    assert parse_listen(text) == (host, port)
    assert is_loopback(host) == loopback


@pytest.mark.parametrize("text", ["", ":", "localhost", ":65536", ":-1", "host:http", ":٣"])
def test_where_nobody_can_listen(text: str) -> None:
    with pytest.raises(InputError):
        parse_listen(text)


MALFORMED = (
    b"",
    b"\r\n\r\n",
    b"GET\r\n\r\n",
    b"\x00\xff\xfe garbage \r\n\r\n",
    b"GET /metrics HTTP/9.9\r\n\r\n",
    b"GET " + b"/" * 100_000 + b" HTTP/1.1\r\n\r\n",
    b"GET /metrics HTTP/1.1\r\n" + b"A: b\r\n" * 500 + b"\r\n",
    b"GET /metrics HTTP/1.1\r\nX: " + b"x" * 200_000 + b"\r\n\r\n",
    b"POST /metrics HTTP/1.1\r\nContent-Length: 99999999999\r\n\r\nabc",
    b"GET /metrics HTTP/1.1\r\nAccept: " + b"application/openmetrics-text;version=\xff" + b"\r\n\r\n",
    b"GET /metrics HTTP/1.1\r\nConte",  # and then nothing
)


def test_slow_huge_and_malformed_requests_and_many_connections_leave_it_serving(
    capfd: pytest.CaptureFixture[str],
) -> None:
    with Exporter(lambda: STATUS, "127.0.0.1", 0) as exporter:
        host, port = exporter.address.split(":")

        def dial() -> socket.socket:
            return socket.create_connection((host, int(port)), timeout=60)

        silent = [dial() for _ in range(100)]
        for sent in MALFORMED:
            with dial() as line, contextlib.suppress(OSError):  # refused in the middle of it is refused
                line.sendall(sent)
                line.shutdown(socket.SHUT_WR)
                while line.recv(1 << 16):
                    pass
            with urllib.request.urlopen(f"http://{exporter.address}/metrics", timeout=60) as answer:
                assert b"fleetsim_recommended_instances 8.0" in answer.read(), sent[:60]
        for line in silent:
            line.close()
    assert "Traceback" not in capfd.readouterr().err


def test_an_address_that_is_none_gets_an_answer() -> None:
    with Exporter(lambda: STATUS, "127.0.0.1", 0) as exporter:
        host, port = exporter.address.rsplit(":", 1)
        with socket.create_connection((host, int(port)), timeout=10) as client:
            client.sendall(b"GET http://[bad HTTP/1.0\r\n\r\n")
            assert client.recv(99).startswith(b"HTTP/1.0 404 ")


def test_a_client_that_sends_a_byte_now_and_then_is_cut_off(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(exporter_module._Handler, "most_s", 0.3)
    with Exporter(lambda: STATUS, "127.0.0.1", 0) as exporter:
        host, port = exporter.address.rsplit(":", 1)
        with socket.create_connection((host, int(port)), timeout=10) as client:
            sent = 0
            with contextlib.suppress(ConnectionError):
                for byte in b"GET /healthz HTTP/1.0" * 3:
                    client.send(bytes([byte]))
                    sent += 1
                    client.settimeout(0.05)
                    with contextlib.suppress(TimeoutError):
                        if client.recv(1) == b"":
                            break
            assert 2 < sent < 63
