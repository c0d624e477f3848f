"""The client: whole answers or typed errors, and no secret anywhere."""

from __future__ import annotations

import base64
import json
import logging
import socket
from collections.abc import Iterator
from functools import partial
from pathlib import Path
from threading import Event

import numpy as np
import pytest
from hypothesis import example, given
from hypothesis import strategies as st
from msgspec.json import Decoder

from fleetsim.errors import InputError, OutsideError
from fleetsim.history import prometheus as module
from fleetsim.history.access import PASSWORD, TOKEN, USER, Access, PrometheusError, Refusal, access_from, address_of
from fleetsim.history.history import SeriesData
from fleetsim.history.prometheus import Prometheus, place
from fleetsim.history.session import Session
from tests.history.fake_prometheus import FakePrometheus, Fault, Series, serving

SECRET = "s3cr3t-t0ken-value"
START = 1_795_000_000.0


def series(name: str = "m", start: float = START, count: int = 400, step: float = 15.0, **labels: str) -> Series:
    times = start + step * np.arange(count)
    return Series({"__name__": name, **labels}, times, np.arange(count, dtype=float))


@pytest.fixture
def fake() -> Iterator[FakePrometheus]:
    with serving([series(pod="a"), series(pod="b")]) as one:
        yield one


def client(fake: FakePrometheus, waits: list[float] | None = None, **options: object) -> Prometheus:
    access = Access(**{"timeout_s": 60.0, **options})  # type: ignore[arg-type]
    return Prometheus(
        fake.url + fake.prefix, access, sleep=(waits if waits is not None else []).append, jitter=lambda: 0.5
    )


def error_json(text: str) -> bytes:
    return b'{"status":"error","errorType":"x","error":"' + text.encode() + b'"}'


def test_a_range_in_many_chunks_is_the_range_in_one(fake: FakePrometheus, monkeypatch: pytest.MonkeyPatch) -> None:
    whole = client(fake).query_range("m", START, START + 399 * 15, 15.0)
    monkeypatch.setattr(module, "FIRST_POINTS", 7)
    monkeypatch.setattr(module, "MAX_SAMPLES", 60)
    before = len(fake.asked)
    parts = client(fake).query_range("m", START, START + 399 * 15, 15.0)
    assert len(fake.asked) - before > 10
    assert [one.labels for one in parts] == [one.labels for one in whole]
    for one in parts:
        assert one.times.tolist() == [START + 15 * k for k in range(400)]
        assert one.values.tolist() == list(range(400))


def test_no_request_asks_for_more_points_than_prometheus_answers() -> None:
    with serving([series(count=25_000, step=1.0)]) as fake:
        (one,) = client(fake).query_range("m", START, START + 24_999, 1.0)
    assert one.values.tolist() == list(range(25_000))
    assert len(fake.asked) >= 3


@given(st.data())
def test_chunks_never_lose_or_double_a_point(data: st.DataObject) -> None:
    """Answers may come out of order, with points twice, and with points of the neighbouring chunk."""
    count = data.draw(st.integers(2, 40))
    cuts = sorted(data.draw(st.sets(st.integers(1, count - 1))))
    step = data.draw(st.sampled_from([0.5, 1.0, 15.0]))
    grid = START + step * np.arange(count)
    merged: dict[tuple[tuple[str, str], ...], np.ndarray] = {}
    for first, end in zip([0, *cuts], [*cuts, count], strict=True):
        around = range(max(first - 1, 0), min(end + 1, count))
        points = data.draw(st.permutations([(grid[k], k if first <= k < end else -1.0) for k in around]))
        times, values = np.array([*points, points[0]], dtype=float).T
        place([SeriesData({"a": "b"}, times, values)], merged, grid, first, end - 1, step)
    assert merged[("a", "b"),].tolist() == list(range(count))


@pytest.mark.filterwarnings("error")
def test_a_time_of_no_calendar_lies_in_no_chunk() -> None:
    grid, merged = np.arange(10.0), dict[tuple[tuple[str, str], ...], np.ndarray]()
    place([SeriesData({}, np.array([3.0, 1e300]), np.array([1.0, 2.0]))], merged, grid, 0, 9, 1.0)
    assert np.flatnonzero(np.isfinite(merged[()])).tolist() == [3]


def test_instants_ranges_of_samples_and_scalars(fake: FakePrometheus) -> None:
    found = client(fake).query('m{pod="a"}', START + 60)
    assert [(one.labels["pod"], one.values.tolist()) for one in found] == [("a", [4.0])]
    raw = client(fake).query('m{pod="a"}[1m]', START + 60)
    assert raw[0].times.tolist() == [START + 15 * k for k in range(5)]
    fake.faults.append(Fault(body=b'{"status":"success","data":{"resultType":"scalar","result":[5,"1.5"]}}'))
    assert client(fake).query("1.5", 5.0)[0].values.tolist() == [1.5]
    assert client(fake).query("absent_metric", START) == []
    assert client(fake).query_range("absent_metric", START, START + 60, 15) == []


_POINTS = st.lists(
    st.tuples(
        st.integers(0, 2**31) | st.floats(0, 2e9).map(lambda x: round(x, 3)) | st.just("1"),
        st.floats().map(repr)
        | st.integers().map(str)
        | st.sampled_from(["NaN", "+Inf", "-Inf", "1e999", "1_0", "x", 2]),
    ),
    max_size=4,
)


@given(st.lists(_POINTS, max_size=3))
@example([[(1, "2"), (3, "4")], [(1, "1,5")]])
@example([[(1, "2")], [(3,), (4, "5")], [(6, "7", "8")]])
def test_an_answer_is_read_the_same_either_way(many: list[list[tuple[object, ...]]]) -> None:
    result = [{"metric": {"pod": str(k)}, "values": points} for k, points in enumerate(many)]
    body = json.dumps({"status": "success", "data": {"result": result}}).encode()

    def read() -> object:
        try:
            found = Session(Access())._series(body)
        except Refusal as refusal:
            return refusal.args
        return [(one.labels, one.times.tolist(), list(map(repr, one.values.tolist()))) for one in found]

    either = read()
    with pytest.MonkeyPatch.context() as patch:
        patch.setattr("fleetsim.history.session._plain", None)  # whoever asks it is answered with the careful reader
        patch.setattr("fleetsim.history.session._ANSWERS", Decoder(int))
        assert read() == either


def test_most_answers_are_read_quickly(fake: FakePrometheus, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr("fleetsim.history.session._careful", None)  # where it is asked, this fails
    assert len(client(fake).query_range("m", START, START + 600, 15.0)) == 2


def test_special_values_are_numbers() -> None:
    weird = Series({"__name__": "m"}, START + 15.0 * np.arange(4), np.array([np.inf, -np.inf, 1e300, 2.0]))
    with serving([weird]) as fake:
        (one,) = client(fake).query_range("m", START, START + 45, 15.0)
    assert one.values.tolist() == [np.inf, -np.inf, 1e300, 2.0]


def test_a_long_query_goes_in_the_body(fake: FakePrometheus) -> None:
    long = 'm{pod=~"a|' + "x" * 5000 + '"}'
    assert len(client(fake).query(long, START)) == 1
    assert len(client(fake).query("m", START)) == 2
    assert [asked[0] for asked in fake.asked] == ["POST", "GET"]


def test_a_path_prefix_stays_in_the_address(fake: FakePrometheus) -> None:
    fake.prefix = "/select/0/prometheus"
    assert len(client(fake).query("m", START)) == 2
    fake.prefix = "/elsewhere"
    with pytest.raises(PrometheusError, match="prefix"):
        Prometheus(fake.url, Access()).query("m", START)


PASSING = [
    Fault(503, b"starting"),
    Fault(502, b"<html>bad gateway</html>"),
    Fault(429, error_json("too many requests")),
    Fault(after=20),
    Fault(after=0),
    Fault(body=b'{"status":"success","data":{"resultType":"matrix","res'),
    Fault(body=b""),
]


@pytest.mark.parametrize("fault", PASSING)
def test_what_passes_is_tried_again_and_the_answer_is_right(fake: FakePrometheus, fault: Fault) -> None:
    waits: list[float] = []
    fake.faults.extend([None, fault, fault])
    prometheus = client(fake, waits)
    assert len(prometheus.query("m", START)) == 2
    found = prometheus.query_range("m", START, START + 60, 15.0)
    assert [one.values.tolist() for one in found] == [[0, 1, 2, 3, 4]] * 2
    assert waits == [0.5, 1.0]


@pytest.mark.parametrize(
    ("fault", "kind", "says", "tries"),
    [
        (Fault(400, error_json("1:3: parse error: unexpected x")), "refused", "parse error: unexpected x", 1),
        (Fault(401, b"no"), "denied", TOKEN, 1),
        (Fault(403, b"no"), "denied", "does not let", 1),
        (Fault(404, b"404 page not found"), "refused", "path prefix", 1),
        (Fault(422, error_json("many-to-many matching")), "refused", "many-to-many", 1),
        (Fault(302, b"", {"Location": "https://login.example/?next=x"}), "refused", "https://login.example)", 1),
        (Fault(418, b"teapot"), "refused", "418: teapot", 1),
        (Fault(500, error_json("boom")), "busy", "boom", 1),
        (Fault(503, b"still starting"), "busy", "503: still starting, 7 times", 7),
        (Fault(429, b"", {"Retry-After": "2"}), "busy", "asks to wait 2 s", 7),
        (Fault(body=b'{"status":"succ'), "broken", "no complete JSON", 7),
        (Fault(after=10), "broken", "broke off", 7),
        (Fault(body=b"<!DOCTYPE html><title>Log in</title>"), "broken", "web page", 1),
        (Fault(body=b'{"status":"success"}'), "broken", "without a result", 1),
        (Fault(body=error_json("odd")), "broken", "odd", 1),
        (Fault(body=b"[]"), "broken", "not with success", 1),
        (
            Fault(body=b'{"status":"success","data":{"result":[{"metric":{},"value":[1,"x"]}]}}'),
            "broken",
            "no series",
            1,
        ),
    ],
)
def test_what_stays_is_a_typed_error(fake: FakePrometheus, fault: Fault, kind: str, says: str, tries: int) -> None:
    fake.always = lambda params: fault
    with pytest.raises(PrometheusError) as caught:
        client(fake).query("m", START)
    error = caught.value
    assert error.exit_code == 3
    assert error.kind == kind
    assert says in str(error)
    assert fake.url in str(error)
    assert error.problem.remedy
    assert len(fake.asked) == tries


def test_retry_after_is_honoured_and_a_wait_beyond_the_deadline_is_not_begun(fake: FakePrometheus) -> None:
    waits: list[float] = []
    fake.faults.append(Fault(429, b"", {"Retry-After": "3"}))
    assert len(client(fake, waits).query("m", START)) == 2
    assert waits == [3.0]
    fake.faults.append(Fault(429, b"", {"Retry-After": "3600"}))
    with pytest.raises(PrometheusError, match="asks to wait 3600 s"):
        client(fake, waits).query("m", START)
    assert waits == [3.0]


def test_a_slow_server_is_a_timeout(fake: FakePrometheus) -> None:
    fake.always = lambda params: Fault(delay_s=0.5)
    with pytest.raises(PrometheusError, match=r"did not answer within 0\.1 s") as caught:
        client(fake, timeout_s=0.1).query("m", START)
    assert caught.value.kind == "timeout"


def test_a_server_that_is_silent_to_the_simplest_query_is_given_up(fake: FakePrometheus) -> None:
    fake.always = lambda params: Fault(delay_s=0.5)
    with pytest.raises(PrometheusError, match="nor the simplest query within") as caught:
        client(fake, timeout_s=0.1).query_range("m", START, START + 399 * 15, 15.0)
    assert caught.value.kind == "timeout"
    assert len(fake.asked) <= 2  # smaller windows would each have waited as long


def test_a_server_that_is_slow_with_much_is_asked_for_less(fake: FakePrometheus) -> None:
    def slow(params: dict[str, str]) -> Fault | None:
        points = (float(params["end"]) - float(params["start"])) / float(params["step"]) + 1 if "end" in params else 1
        return Fault(delay_s=5.0) if points > 100 else None

    fake.always = slow
    found = client(fake, timeout_s=1.0).query_range("m", START, START + 399 * 15, 15.0)
    assert [one.values.tolist() for one in found] == [list(range(400))] * 2


def test_nobody_there_is_said_at_once() -> None:
    with socket.socket() as taken:
        taken.bind(("127.0.0.1", 0))
        port = taken.getsockname()[1]
    waits: list[float] = []
    with pytest.raises(PrometheusError, match="cannot be reached: Connection refused") as caught:
        Prometheus(f"http://127.0.0.1:{port}", sleep=waits.append).query("m", START)
    assert caught.value.kind == "unreachable"
    assert len(waits) == 1


def test_tls_to_a_server_without_it_is_a_typed_error(fake: FakePrometheus) -> None:
    prometheus = Prometheus(fake.url.replace("http:", "https:"), sleep=lambda s: None)
    with pytest.raises(PrometheusError) as caught:
        prometheus.query("m", START)
    assert caught.value.kind in ("tls", "unreachable")


@pytest.mark.parametrize(
    "said",
    [
        "exceeded maximum resolution of 11,000 points per timeseries",
        "query processing would load too many samples into memory in query execution",
        "query timed out in expression evaluation",
        "the query exceeded the maximum number of chunks (limit: 2000000 chunks) (err-mimir-max-chunks-per-query)",
    ],
)
def test_a_chunk_that_is_too_large_is_halved_and_the_rest_goes_on(fake: FakePrometheus, said: str) -> None:
    def limit(params: dict[str, str]) -> Fault | None:
        points = (float(params["end"]) - float(params["start"])) / float(params["step"]) + 1
        return Fault(503 if "timed out" in said else 422, error_json(said)) if points > 60 else None

    fake.always = limit
    found = client(fake).query_range("m", START, START + 399 * 15, 15.0)
    assert [one.values.tolist() for one in found] == [list(range(400))] * 2
    fake.always = lambda params: Fault(422, error_json(said))
    with pytest.raises(PrometheusError) as caught:
        client(fake).query_range("m", START, START + 399 * 15, 15.0)
    assert caught.value.kind == "too_large"


def test_warnings_about_partial_data_are_kept_once(fake: FakePrometheus) -> None:
    fake.always = lambda params: Fault(extra={"warnings": ["store gateway x: unavailable"], "isPartial": True})
    prometheus = client(fake)
    for _ in range(3):
        prometheus.query_range("m", START, START + 60, 15.0)
    assert len(prometheus.warnings) == 2
    assert prometheus.warnings[0] == "store gateway x: unavailable"


def test_the_servers_clock_is_compared_with_ours(fake: FakePrometheus) -> None:
    prometheus = client(fake)
    assert prometheus.clock_ahead_s is None
    prometheus.query("m", START)
    assert prometheus.clock_ahead_s is not None
    assert abs(prometheus.clock_ahead_s) < 3


# -------------------------------------------------------------------------------------------------------- credentials


def test_credentials_are_sent_and_come_from_where_the_user_put_them(fake: FakePrometheus, tmp_path: Path) -> None:
    (tmp_path / "token").write_text(SECRET + "\n")
    (tmp_path / "basic").write_text(f"me:{SECRET}\n")
    basic = "Basic " + base64.b64encode(f"me:{SECRET}".encode()).decode()
    for access, expected in [
        (access_from(env={TOKEN: SECRET}), f"Bearer {SECRET}"),
        (access_from(env={USER: "me", PASSWORD: SECRET}), basic),
        (access_from(token_file=tmp_path / "token", env={TOKEN: "other"}), f"Bearer {SECRET}"),
        (access_from(basic_auth_file=tmp_path / "basic", env={TOKEN: "other"}), basic),
    ]:
        Prometheus(fake.url, access).query("m", START)
        assert fake.asked[-1][3]["authorization"] == expected
    Prometheus(fake.url.replace("//", f"//me:{SECRET}@"), Access()).query("m", START)
    assert fake.asked[-1][3]["authorization"] == basic
    Prometheus(fake.url, access_from(org_id="team-7", env={})).query("m", START)
    assert fake.asked[-1][3]["x-scope-orgid"] == "team-7"
    assert "authorization" not in fake.asked[-1][3]


@pytest.mark.parametrize("status", [200, 302, 400, 401, 403, 429, 500])
@pytest.mark.parametrize("how", ["token", "basic", "address", "header"])
def test_no_secret_is_shown(
    fake: FakePrometheus, status: int, how: str, caplog: pytest.LogCaptureFixture, capfd: pytest.CaptureFixture[str]
) -> None:
    """Not even when the server says it back."""
    caplog.set_level(logging.DEBUG)
    url, access = fake.url, Access()
    if how == "token":
        access = access_from(env={TOKEN: SECRET})
    elif how == "basic":
        access = access_from(env={USER: "me", PASSWORD: SECRET})
    elif how == "address":
        url = url.replace("//", f"//me:{SECRET}@")
    else:
        access = access_from(headers={"X-Key": SECRET}, env={})
    encoded = base64.b64encode(f"me:{SECRET}".encode()).decode()
    echo = error_json("x" * 280 + f" {SECRET} " + (encoded if how in ("basic", "address") else ""))
    fake.always = lambda params: Fault(status, echo, {"Location": f"https://u:{SECRET}@x.example/?t={SECRET}"})
    prometheus = Prometheus(url, access, sleep=lambda s: None)
    with pytest.raises(PrometheusError) as caught:
        prometheus.query("m", START)
    shown = [str(caught.value), repr(caught.value), repr(prometheus), repr(prometheus.access), repr(access)]
    shown += [prometheus.url, caplog.text, *capfd.readouterr(), repr(vars(prometheus)), repr(prometheus._client.auth)]
    assert not any(SECRET[:8] in text or encoded[:12] in text for text in shown)


def test_an_unreachable_address_with_credentials_shows_none(caplog: pytest.LogCaptureFixture) -> None:
    caplog.set_level(logging.DEBUG)
    with pytest.raises(PrometheusError) as caught:
        Prometheus(f"http://me:{SECRET}@127.0.0.1:9/x", sleep=lambda s: None).query("m", START)
    assert SECRET not in str(caught.value) + caplog.text
    assert "http://127.0.0.1:9/x" in str(caught.value)


def test_redirects_are_not_followed(fake: FakePrometheus) -> None:
    with serving([series()]) as other:
        fake.always = lambda params: Fault(307, b"", {"Location": other.url + "/api/v1/query"})
        with pytest.raises(PrometheusError, match="redirects"):
            Prometheus(fake.url, access_from(env={TOKEN: SECRET})).query("m", START)
        assert other.asked == []


@pytest.mark.parametrize(
    ("url", "clean"),
    [
        ("http://h:9090", "http://h:9090"),
        ("https://h/prometheus/", "https://h/prometheus"),
        ("http://h:9090/graph", "http://h:9090"),
        ("http://h:9090/graph?g0.expr=up&g0.tab=1", "http://h:9090"),
        ("http://h/mimir/api/v1/query", "http://h/mimir"),
        ("http://[::1]:9090/", "http://[::1]:9090"),
        (" http://u:p%40@h ", "http://h"),
        ("http://h/select/0/prometheus", "http://h/select/0/prometheus"),
    ],
)
def test_addresses(url: str, clean: str) -> None:
    assert address_of(url)[0] == clean


@pytest.mark.parametrize(
    "url", ["h:9090", "ftp://h", "http://", "http://h:port", "", "http://u:SECRETpw@:1", "u:SECRETpw@h"]
)
def test_what_is_no_address_is_an_error_without_credentials(url: str) -> None:
    with pytest.raises(InputError) as caught:
        address_of(url)
    assert "http://" in str(caught.value)
    assert "SECRETpw" not in str(caught.value)


@pytest.mark.parametrize("shown", ["http://h:9090/prometheus", "http://h:9090"])
def test_a_query_of_the_address_is_not_dropped_in_silence(shown: str) -> None:
    with pytest.raises(InputError, match="has a query") as caught:
        address_of(f"{shown}?tenant=SECRETpw")
    assert f"'{shown}'" in str(caught.value)
    assert "SECRETpw" not in str(caught.value)


def test_all_wrong_options_are_named_at_once_and_no_secret_with_them(tmp_path: Path) -> None:
    (tmp_path / "empty").write_text("")
    with pytest.raises(InputError) as caught:
        access_from(
            token_file=tmp_path / "empty",
            ca_file=tmp_path / "none.pem",
            client_key=tmp_path / "none.key",
            headers={"X-Key": "sécret"},
            timeout_s=0,
            env={},
        )
    paths = {p.path for p in caught.value.problems}
    assert paths == {"--token-file", "--ca-file", "--client-key", "header X-Key", "--timeout"}
    assert "sécret" not in str(caught.value)
    (tmp_path / "basic").write_text("nocolonSECRET")
    with pytest.raises(InputError, match="colon") as caught:
        access_from(basic_auth_file=tmp_path / "basic", env={})
    assert "nocolonSECRET" not in str(caught.value)


def test_two_questions_are_asked_at_a_time_and_their_answers_keep_their_order() -> None:
    second, told = Event(), list[int]()

    def first() -> str:
        assert second.wait(30.0), "the second was not asked while the first was under way"
        return "first"

    def then() -> str:
        second.set()
        return "second"

    assert Prometheus.several([first, then, lambda: "third"], told.append) == ["first", "second", "third"]
    assert told == [0, 1, 2]
    assert Prometheus.several([], told.append) == []


def test_what_the_first_question_that_fails_raises_is_raised_and_no_more_are_asked() -> None:
    asked, over, ended = list[int](), Event(), [Event() for _ in range(2)]

    def fails() -> int:
        raise OutsideError("gone")

    def other(i: int) -> int:
        asked.append(i)
        over.wait(30.0)
        ended[i].set()
        return i

    with pytest.raises(OutsideError, match="gone"):
        Prometheus.several([fails, *(partial(other, i) for i in range(20))], lambda i: None)
    over.set()  # two may have been under way
    assert all(ended[i].wait(30.0) for i in list(asked))
    assert len(asked) <= len(ended)
