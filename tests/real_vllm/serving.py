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
from typing import NamedTuple

BLOCK, SLOTS = 32, 32
UP_S = 600.0  # it starts within a minute where nothing else runs
# The engine runs its model itself, as on a GPU; on a CPU, vLLM would start one more process for it.
EXECUTOR = "vllm.v1.executor.uniproc_executor.UniProcExecutor"
DRAFTED = 3
NGRAM = {"method": "ngram", "num_speculative_tokens": DRAFTED, "prompt_lookup_min": 1, "prompt_lookup_max": 2}


def environment(vllm_python: str) -> dict[str, str]:
    """What vLLM runs under here.

    One thread of the model's, and one for its search of drafts, which would spin waiting for a second one; none bound:
    the machine of a test run has few cores, and other work on them. Each vLLM looks at the model's classes in a process
    of its own, unless an earlier one left in the cache what it found.
    """
    return {
        "VLLM_CPU_KVCACHE_SPACE": "1",
        "VLLM_CPU_OMP_THREADS_BIND": "nobind",
        "OMP_NUM_THREADS": "1",
        "NUMBA_NUM_THREADS": "1",
        "VLLM_CACHE_ROOT": str(Path(vllm_python).parents[1] / "vllm-cache"),
    }


class Serving(NamedTuple):
    """A server that may still be starting: its address, its process, and the file that it writes to."""

    url: str
    process: subprocess.Popen[bytes]
    log: Path

    def ready(self) -> str:
        """The address, as soon as it answers."""
        until = time.monotonic() + UP_S
        while not healthy(self.url):
            told = self.log.read_text(errors="replace")[-3000:]
            assert self.process.poll() is None, told
            assert time.monotonic() < until, told
            time.sleep(0.5)
        return self.url


@contextmanager
def served(vllm_python: str, model: str, home: Path, *more: str) -> Iterator[Serving]:
    """A server that has just been started. more: further arguments."""
    with socket.socket() as s:
        s.bind(("127.0.0.1", 0))
        port = s.getsockname()[1]
    command = [
        str(Path(vllm_python).parent / "vllm"),
        *f"serve {model} --served-model-name tiny --load-format dummy --skip-tokenizer-init".split(),
        *f"--host 127.0.0.1 --port {port} --max-model-len 2048 --max-num-seqs {SLOTS} --enforce-eager".split(),
        *f"--block-size {BLOCK} --distributed-executor-backend {EXECUTOR}".split(),
        *more,
    ]
    under = {
        **{k: v for k, v in os.environ.items() if k in ("PATH", "LANG", "LD_LIBRARY_PATH")},
        **environment(vllm_python),
        "HOME": str(home),
        "VLLM_SERVER_DEV_MODE": "1",
        "VLLM_NO_USAGE_STATS": "1",
        "HF_HUB_OFFLINE": "1",
    }
    url = f"http://127.0.0.1:{port}"
    with (home / "log").open("wb") as log:
        process = subprocess.Popen(command, stdout=log, stderr=log, env=under, start_new_session=True)
    try:
        yield Serving(url, process, home / "log")
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
