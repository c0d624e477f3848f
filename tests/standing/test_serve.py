"""What the server of the page refuses, and what it never reads."""

from __future__ import annotations

import asyncio
import re
from collections.abc import Awaitable, Callable
from pathlib import Path
from typing import Any

import pytest

import fleetsim as fs
from fleetsim.serve import app as serving
from fleetsim.serve.answers import TooLongError, Worker, count, read, whole
from fleetsim.serve.app import Site
from fleetsim.serve.form import form_fields

SMALL = {"batch": 64, "len": 200, "model": "Qwen/Qwen2.5-1.5B", "trainer_step_s": 5}
JSON = {"Content-Type": "application/json"}


def answered(do: Callable[[Any], Awaitable[None]]) -> None:
    """Against a server in this process."""
    from aiohttp.test_utils import TestClient, TestServer

    async def run() -> None:
        site = Site(loopback=True)
        async with TestClient(TestServer(site.app())) as client:
            await do(client)
        site.stop()

    asyncio.run(run())


def test_the_count_at_once_is_the_count_of_the_whole_answer() -> None:
    first, all_of_it = count({"options": SMALL}), whole({"options": SMALL})
    assert first["instances"] == all_of_it["instances"] == fs.load(**SMALL).size().instances
    at = {int(n) for n in re.findall(r"<title>(\d+) instances?: ", all_of_it["curves"])}
    assert first["instances"] in at
    assert len(at) > 3
    assert first["values"]["batch"] == 64
    assert first["values"]["trainer_step_s"] == 5
    assert first["command"].startswith("fleetsim size --batch 64 --len 200")


@pytest.mark.parametrize(
    ("asked", "words"),
    [
        ({"options": {"model": "/etc/passwd"}}, "is a path"),
        ({"options": {"model": "../x/config.json"}}, "is a path"),
        ({"start": "/etc/passwd"}, "is a path"),
        ({"start": "pyproject.toml"}, "is no shipped scenario"),
        ({"options": {"profile": "x.profile"}}, "name files"),
        ({"start": {"workload": {"output_tokens": {"kind": "empirical", "path": "/etc/passwd"}}}}, "is a path"),
        ({"start": [1]}, "must be a name or a mapping"),
        ({"start": {"a": [0] * 6000}}, "is too large"),
        ({"options": {"batch": 0}}, "batch"),
        ({"options": {"bach": 3}}, "did you mean"),
    ],
)
def test_what_is_refused(asked: dict[str, Any], words: str) -> None:
    with pytest.raises(fs.InputError) as refused:
        count(asked)
    assert words in str(refused.value)


def test_a_log_that_is_none_is_told_without_our_folder() -> None:
    with pytest.raises(fs.InputError) as refused:
        read("../../train.log", None, b"no step here\n")
    assert "train.log" in str(refused.value)
    assert "/tmp" not in str(refused.value)


def test_requests_from_elsewhere_and_of_other_kinds() -> None:
    async def do(client: Any) -> None:
        page = await client.get("/")
        assert page.status == 200
        assert "default-src 'none'" in page.headers["Content-Security-Policy"]
        assert (await client.get("/", headers={"Host": "evil.example"})).status == 403
        assert (await client.post("/count", data="{}")).status == 415
        assert (await client.post("/count", data="[]", headers=JSON)).status == 400
        assert (await client.post("/count", data="[" * 100_000, headers=JSON)).status == 400
        assert (await client.get("/../pyproject.toml")).status == 404
        assert (await client.get("/count")).status == 405
        octets = {"Content-Type": "application/octet-stream"}
        assert (await client.post("/read", data=b"x" * (serving.MOST_BYTES + 1), headers=octets)).status == 413
        found = await client.post("/count", json={"options": {"gpu": "H1000"}})
        assert found.status == 422
        assert "H100" in (await found.json())["problems"][0]["text"]

    answered(do)


def test_what_takes_too_long_ends_its_process_alone() -> None:
    worker = Worker(0.2)
    with pytest.raises(TooLongError, match=r"no answer within 0\.2 s"):
        worker.ask("whole", {"options": SMALL})
    worker.limit_s = 120.0
    assert worker.ask("count", {"options": SMALL})["instances"] >= 1
    worker.stop()


def test_every_row_of_the_form_is_an_option() -> None:
    for field in form_fields():
        value = field.choices[0] if field.choices else field.high
        fs.load(
            **{**SMALL, "model": "Qwen/Qwen3-8B", "max_len": 200000, field.name: int(value) if field.whole else value}
        )


def test_an_agents_job_is_whole_and_what_has_no_row_is_kept_by_its_path() -> None:
    agents = {"turns": "uniform:1:5", "tool_s": 5, "sandboxes": 64, "sandbox_start_s": 4}
    asked = {"options": {**SMALL, **agents, "stations.tools.calls_per_s": 2}}
    found = count(asked)
    said = "--turns uniform:1:5 --tool-s 5 --sandboxes 64 --sandbox-start-s 4"
    assert said in found["command"]
    assert found["command"].endswith("--set stations.tools.calls_per_s=2")
    assert {name: found["values"][name] for name in ("turns", "tool_s", "sandboxes")} == {
        "turns": 3, "tool_s": 5, "sandboxes": 64
    }  # fmt: skip
    told = "tools and rewards: the rate limit of tools, 2 calls per second; beside it all 18 sandboxes are in use"
    assert ["binds", told] in found["lines"]  # as many as are worth it at this rate
    with pytest.raises(fs.InputError, match="did you mean"):
        count({"options": {"stations.tools.callsps": 2}})


def test_no_aiohttp_is_told(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setitem(__import__("sys").modules, "aiohttp", None)
    with pytest.raises(fs.OutsideError, match=r"fleetsim\[server\]"):
        serving.installed()


def test_the_page_names_no_other_server() -> None:
    for file in (Path(serving.__file__).parent / "page").iterdir():
        assert "http" not in file.read_text().replace("http://www.w3.org/2000/svg", ""), file.name


def test_a_client_that_drips_bytes_is_closed_and_a_bad_address_is_answered(monkeypatch: pytest.MonkeyPatch) -> None:
    """Over real sockets: a head that never ends, while another connection is used again and again."""
    monkeypatch.setattr(serving, "SENDING_S", 0.6)

    async def dripped(host: str, port: int) -> bool:
        _, writer = await asyncio.open_connection(host, port)
        writer.write(b"GET / HTTP/1.1\r\nHost: localhost\r\nX-Drip: ")
        for _ in range(600):  # a minute, if nobody closes
            writer.write(b"a")
            await asyncio.sleep(0.1)
            if writer.transport.is_closing():
                return True
        return False

    async def asked_again(host: str, port: int) -> list[bytes]:
        reader, writer = await asyncio.open_connection(host, port)
        lines = []
        for path in (b"/", b"/page.css", b"http://[bad"):
            writer.write(b"GET " + path + b" HTTP/1.1\r\nHost: localhost\r\n\r\n")
            lines.append(await reader.readline())
            await reader.readuntil(b"\r\n\r\n")
            await asyncio.sleep(0.2)
            if path != b"http://[bad":
                await asyncio.wait_for(reader.read(1 << 20), 5)
        writer.close()
        return lines

    async def run() -> tuple[bool, list[bytes]]:
        heard: asyncio.Future[str] = asyncio.get_running_loop().create_future()
        ended = asyncio.Event()
        server = asyncio.create_task(serving.serve(Site(loopback=True), "127.0.0.1", 0, heard.set_result, ended))
        port = int((await heard).rstrip("/").rpartition(":")[2])
        found = await asyncio.gather(dripped("127.0.0.1", port), asked_again("127.0.0.1", port))
        ended.set()
        await server
        return found

    closed, lines = asyncio.run(run())
    assert closed
    assert [line.split()[1] for line in lines[:2]] == [b"200", b"200"]
    assert lines[2].split()[1] == b"400"
