"""`vllm serve` with the tiny model and the development endpoints, on a free port, for as long as it is needed."""

from __future__ import annotations

import os
import signal
import socket
import subprocess
import time
import urllib.error
import urllib.request
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path

from tests.real_vllm.conftest import ENVIRONMENT

BLOCK, SLOTS = 32, 32
UP_S = 600.0  # it starts within a minute where nothing else runs


@contextmanager
def served(vllm_python: str, model: str, home: Path, *more: str) -> Iterator[str]:
    """Its address. more: further arguments."""
    with socket.socket() as s:
        s.bind(("127.0.0.1", 0))
        port = s.getsockname()[1]
    command = [
        str(Path(vllm_python).parent / "vllm"),
        *f"serve {model} --served-model-name tiny --load-format dummy --skip-tokenizer-init".split(),
        *f"--host 127.0.0.1 --port {port} --max-model-len 2048 --max-num-seqs {SLOTS} --enforce-eager".split(),
        *f"--block-size {BLOCK}".split(),
        *more,
    ]
    environment = {
        **{k: v for k, v in os.environ.items() if k in ("PATH", "LANG", "LD_LIBRARY_PATH")},
        **ENVIRONMENT,
        "HOME": str(home),
        "VLLM_SERVER_DEV_MODE": "1",
        "VLLM_NO_USAGE_STATS": "1",
        "HF_HUB_OFFLINE": "1",
    }
    url = f"http://127.0.0.1:{port}"
    with (home / "log").open("wb") as log:
        process = subprocess.Popen(command, stdout=log, stderr=log, env=environment, start_new_session=True)
    try:
        until = time.monotonic() + UP_S
        while not healthy(url):
            told = (home / "log").read_text(errors="replace")[-3000:]
            assert process.poll() is None, told
            assert time.monotonic() < until, told
            time.sleep(0.5)
        yield url
    finally:
        os.killpg(process.pid, signal.SIGTERM)
        try:
            process.wait(20)
        except subprocess.TimeoutExpired:
            os.killpg(process.pid, signal.SIGKILL)
            process.wait(20)


def healthy(url: str) -> bool:
    try:
        with urllib.request.urlopen(f"{url}/health", timeout=5) as answer:
            return bool(answer.status == 200)
    except (urllib.error.URLError, OSError):
        return False
