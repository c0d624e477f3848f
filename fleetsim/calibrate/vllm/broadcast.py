"""How fast weights go from one GPU to another: torch.distributed's broadcast, in two processes of its own.

Run as `python -m fleetsim.calibrate.vllm.broadcast RANK STORE BACKEND`; rank 0 prints bytes per second.
"""

from __future__ import annotations

import os
import subprocess
import sys
import tempfile
from time import perf_counter

BYTES = {"nccl": 1 << 29, "gloo": 1 << 24}
TIMES = 5
LONGEST_S = 60.0


def broadcast_rate(backend: str | None = None) -> float | None:
    """Bytes per second between the first two GPUs, None where there are not two. backend: gloo measures host memory.

    Raises RuntimeError where it fails or hangs.
    """
    import torch

    if backend is None:
        if torch.cuda.device_count() < 2:
            return None
        backend = "nccl"
    with tempfile.TemporaryDirectory() as folder:
        command = [sys.executable, "-m", __name__]
        processes = [
            subprocess.Popen(
                [*command, str(rank), os.path.join(folder, "store"), backend],
                stdout=subprocess.PIPE,
                stderr=subprocess.PIPE,
                text=True,
            )
            for rank in range(2)
        ]
        try:
            said = [process.communicate(timeout=LONGEST_S) for process in processes]
        except subprocess.TimeoutExpired:
            raise RuntimeError(f"broadcast took longer than {LONGEST_S:g} s") from None
        finally:
            for process in processes:
                process.kill()
                process.wait()
    if any(process.returncode for process in processes):
        raise RuntimeError(f"broadcast failed: {' '.join(error.strip()[-200:] for _, error in said)}")
    return float(said[0][0].split()[-1])


def main(rank: int, store: str, backend: str) -> None:
    """Runs one of the two processes."""
    import torch
    from torch import distributed

    distributed.init_process_group(backend, init_method=f"file://{store}", rank=rank, world_size=2)
    on_gpu = backend == "nccl"
    if on_gpu:
        torch.cuda.set_device(rank)
    tensor = torch.zeros(BYTES[backend], dtype=torch.uint8, device="cuda" if on_gpu else "cpu")

    def send() -> float:
        begin = perf_counter()
        distributed.broadcast(tensor, src=0)
        if on_gpu:
            torch.cuda.synchronize()
        distributed.barrier()
        return perf_counter() - begin

    send()  # sets up the connection
    fastest = min(send() for _ in range(TIMES))
    if rank == 0:
        print(BYTES[backend] / fastest)
    distributed.destroy_process_group()


if __name__ == "__main__":
    main(int(sys.argv[1]), sys.argv[2], sys.argv[3])
