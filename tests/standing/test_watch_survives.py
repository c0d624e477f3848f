"""`fleetsim watch` as a process: logs that are replaced or not there yet, servers that answer nonsense or too much."""

from __future__ import annotations

import gzip
import os
import re
import signal
import subprocess
import sys
import threading
import time
import urllib.request
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from http.server import BaseHTTPRequestHandler, ThreadingHTTPServer
from pathlib import Path

import pytest

from fleetsim.history import session
from fleetsim.history.access import Access, PrometheusError
from fleetsim.history.prometheus import Prometheus
from tests.history.verl_log import VerlJob, console

STARVED = VerlJob(rate=0.6, window=640, train_s=60.0)
IDLE = VerlJob(rate=4.0, window=192, train_s=60.0)
PATIENCE_S = 120.0


class Watching:
    """The lines of a running watch."""

    def __init__(self, process: subprocess.Popen[str]) -> None:
        self.process, self.lines = process, list[str]()
        self._reader = threading.Thread(target=lambda: self.lines.extend(process.stderr or ()), daemon=True)
        self._reader.start()

    def says(self, pattern: str, after: int = 0) -> int:
        """Waits for a line; how many there were with it."""
        until = time.monotonic() + PATIENCE_S
        while time.monotonic() < until:
            for place, line in enumerate(self.lines[after:], after):
                if re.search(pattern, line):
                    return place + 1
            assert self.process.poll() is None, self.lines
            time.sleep(0.1)
        raise AssertionError(f"not said: {pattern}; but {self.lines}")


@contextmanager
def watch(*flags: str) -> Iterator[Watching]:
    """A watch that looks every second, until it is ended: cleanly, however it fared."""
    call = [sys.executable, "-m", "fleetsim", "watch", "--every", "1s", *flags]
    with subprocess.Popen(call, stderr=subprocess.PIPE, text=True) as process:
        try:
            watching = Watching(process)
            yield watching
            process.send_signal(signal.SIGTERM)
            assert process.wait(60) == 0, watching.lines
        finally:
            process.kill()


def test_a_log_that_is_not_there_yet_is_waited_for(tmp_path: Path) -> None:
    path = tmp_path / "train.log"
    with watch("--log", str(path)) as watching:
        watching.says("is not there: waiting for it")
        path.write_text(console(STARVED, 24))
        watching.says("step 24: verdict: 107 s a step")


def test_a_trainer_that_resumed_at_an_earlier_step_is_spoken_of_again(tmp_path: Path) -> None:
    path = tmp_path / "train.log"
    path.write_text(console(STARVED, 60))
    with watch("--log", str(path), "--window", "900s") as watching:
        seen = watching.says("step 60: verdict: 107 s a step")
        with path.open("a") as file:
            file.write(console(IDLE, 30, first=20))
        seen = watching.says("went back from step 60 to step 49: the run resumed there, or began anew", seen)
        watching.says("step 49: verdict: .*trainer slow", seen)


@pytest.mark.parametrize("way", ["another file", "emptied"])
def test_a_new_run_in_the_place_of_the_log_is_told(tmp_path: Path, way: str) -> None:
    path = tmp_path / "train.log"
    path.write_text(console(STARVED, 40))
    with watch("--log", str(path)) as watching:
        seen = watching.says("step 40: verdict: 107 s a step")
        if way == "another file":
            (tmp_path / "new.log").write_text(console(IDLE, 60))
            (tmp_path / "new.log").replace(path)
        else:
            path.write_text(console(IDLE, 4))
        seen = watching.says("is another file than before|4 steps so far", seen)
        path.write_text(console(IDLE, 61))
        watching.says("verdict: .*trainer slow", seen)


@pytest.mark.parametrize("way", ["a pipe", "links in a circle"])
def test_what_cannot_be_read_again_and_again_is_said_and_a_file_in_its_place_is_read(tmp_path: Path, way: str) -> None:
    path = tmp_path / "train.log"
    if way == "a pipe":
        os.mkfifo(path)
    else:
        path.symlink_to(path)
    with watch("--log", str(path)) as watching:
        seen = watching.says("this look failed: .*(is a pipe or a device|symbolic links)")
        path.unlink()
        path.write_text(console(STARVED, 24))
        watching.says("step 24: verdict: 107 s a step", seen)


Answer = Callable[[BaseHTTPRequestHandler], None]


@contextmanager
def server(answer: Answer) -> Iterator[str]:
    """A server on the loopback that answers every GET so; its address."""

    class Handler(BaseHTTPRequestHandler):
        def do_GET(self) -> None:
            answer(self)

        def log_message(self, *args: object) -> None:
            pass

    with ThreadingHTTPServer(("127.0.0.1", 0), Handler) as serving:
        serving.daemon_threads = True
        threading.Thread(target=serving.serve_forever, daemon=True).start()
        try:
            yield f"http://127.0.0.1:{serving.server_address[1]}"
        finally:
            serving.shutdown()


def body(text: bytes, status: int = 200, **headers: str) -> Answer:
    def answer(to: BaseHTTPRequestHandler) -> None:
        to.send_response(status)
        for name, value in {**headers, "Content-Length": str(len(text))}.items():
            to.send_header(name.replace("_", "-"), value)
        to.end_headers()
        to.wfile.write(text)

    return answer


def drip(to: BaseHTTPRequestHandler, piece: bytes = b" ") -> None:
    """A byte now and then, without end."""
    to.send_response(200)
    to.end_headers()
    try:
        while True:
            to.wfile.write(piece)
            time.sleep(0.05)
    except OSError:
        pass


def dripping_head(to: BaseHTTPRequestHandler) -> None:
    """The same of its head."""
    to.wfile.write(b"HTTP/1.1 200 ")
    drip_on(to)


def drip_on(to: BaseHTTPRequestHandler) -> None:
    try:
        while True:
            to.wfile.write(b"O")
            time.sleep(0.05)
    except OSError:
        pass


EMPTY = b'{"status":"success","data":{"resultType":"vector","result":[]}'
ODD = {
    "warnings that are a number": (body(EMPTY + b',"warnings":1.5}'), "holds no metric"),
    "a redirect to no address": (body(b"", 302, Location="http://[bad"), "redirects"),
    "a list of numbers": (body(b'{"status":"success","data":{"result":[1,2,3]}}'), "no series of numbers"),
    "a series of nothing": (body(b'{"status":"success","data":{"result":[{"metric":{},"values":7}]}}'), "no series"),
    "a date of no calendar": (body(EMPTY + b"}", Date="Fri, 99 Foo 99999 99:99:99 GMT"), "holds no metric"),
    "an unknown packing": (body(b"x", Content_Encoding="br"), "packs its answer"),
}


@pytest.mark.parametrize("odd", ODD)
def test_no_answer_ends_a_watch_nor_its_exporter(odd: str) -> None:
    answer, said = ODD[odd]
    with server(answer) as url, watch("--prometheus", url, "--listen", ":0", "--timeout", "1") as watching:
        port = re.search(r":(\d+)/metrics", watching.lines[watching.says("exporting on") - 1])
        assert port is not None
        seen = watching.says(f"this evaluation failed.*{said}")
        page, until = "", time.monotonic() + PATIENCE_S
        while time.monotonic() < until and not re.search(r'result="failed"} [2-9]', page):
            with urllib.request.urlopen(f"http://127.0.0.1:{port[1]}/metrics", timeout=10) as found:
                page = found.read().decode()
            time.sleep(0.2)
        assert "fleetsim_up 0.0" in page
        assert re.search(r'fleetsim_evaluations_total\{result="failed"} [2-9]', page), page
        assert not any("failed" in line for line in watching.lines[seen:]), watching.lines  # said once


MANY = b'{"status":"success","data":{"result":[' + b",".join([b'{"metric":{},"value":[1,"1"]}'] * 1_200_000) + b"]}}"
FLOODS = {
    "gzip bomb": (body(gzip.compress(b" " * (64 << 20)), Content_Encoding="gzip"), "too_large"),
    "many series": (body(MANY), "too_large"),
    "drip": (drip, "timeout"),
    "dripping head": (dripping_head, "timeout"),
}


@pytest.mark.parametrize("flood", FLOODS)
def test_an_answer_has_so_many_bytes_series_and_seconds(flood: str) -> None:
    answer, kind = FLOODS[flood]
    began = time.monotonic()
    with server(answer) as url:
        prometheus = Prometheus(url, Access(timeout_s=0.5, deadline_s=3.0))
        with pytest.raises(PrometheusError) as error:
            prometheus.query("up", 0.0)
    assert error.value.kind == kind, str(error.value)
    assert time.monotonic() - began < 10.0


def test_brackets_without_end_are_no_answer() -> None:
    with server(body(b"[" * 100_000)) as url, pytest.raises(PrometheusError, match="no complete JSON"):
        Prometheus(url, Access(tries=1)).query("up", 0.0)


def test_a_wait_that_is_no_number_is_none() -> None:
    with server(body(b"", 503, Retry_After="nan")) as url:
        slept: list[float] = []
        with pytest.raises(PrometheusError, match="answered 503"):
            Prometheus(url, Access(tries=2), sleep=slept.append).query("up", 0.0)
    assert len(slept) == 1
    assert 0 < slept[0] < 1


def test_the_limits_are_far_above_what_is_asked_for() -> None:
    """A sample of a range is some 30 bytes of JSON."""
    from fleetsim.history.prometheus import MAX_SAMPLES

    assert 30 * MAX_SAMPLES < session.MOST_BYTES / 2
