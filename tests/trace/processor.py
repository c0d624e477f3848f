"""Perfetto's trace processor, two ways, behind its own Python package: as WebAssembly under node, or the program."""

from __future__ import annotations

import os
import shutil
import subprocess
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path
from typing import Any

HERE = Path(__file__).parent
ENGINE = HERE / ".engine"
CHUNK = 1 << 20
Rows = list[dict[str, Any]]


class Pipes:
    """Bytes to and from a process, as perfetto's RPC client wants them."""

    def __init__(self, command: list[str]) -> None:
        self.process = subprocess.Popen(command, stdin=subprocess.PIPE, stdout=subprocess.PIPE)

    def send(self, data: bytes) -> None:
        assert self.process.stdin is not None
        self.process.stdin.write(data)
        self.process.stdin.flush()

    def read(self, n: int) -> bytes:
        assert self.process.stdout is not None
        data = self.process.stdout.read(n)
        if len(data) < n:
            raise ConnectionError("the trace processor has gone")
        return data

    def close(self) -> None:
        for end in (self.process.stdin, self.process.stdout):
            if end is not None:
                end.close()
        self.process.wait(60)


class Wasm:
    """The trace processor under node, with one trace in it. Raises RuntimeError where it refuses the trace."""

    def __init__(self, trace: Path) -> None:
        from perfetto.trace_processor.platform import PlatformDelegate
        from perfetto.trace_processor.protos import ProtoFactory
        from perfetto.trace_processor.rpc import TraceProcessorRpc

        self.protos = ProtoFactory(PlatformDelegate())
        self.rpc = TraceProcessorRpc(Pipes(["node", str(HERE / "pipe.mjs"), str(ENGINE)]), self.protos)
        data = trace.read_bytes()
        for at in range(0, len(data), CHUNK):
            self._ask("TPM_APPEND_TRACE_DATA", append_trace_data=data[at : at + CHUNK])
        self._ask("TPM_FINALIZE_TRACE_DATA")

    def _ask(self, method: str, **fields: bytes) -> None:
        stream = self.protos.TraceProcessorRpcStream()
        stream.msg.add(request=self.protos.TraceProcessorRpc.TraceProcessorMethod.Value(method), **fields)
        self.rpc.transport.send(stream.SerializeToString())
        answer = self.protos.TraceProcessorRpc()
        answer.ParseFromString(self.rpc._read_payload())
        error = answer.append_result.error or answer.fatal_error
        if method == "TPM_FINALIZE_TRACE_DATA":
            error = error or answer.finalize_data_result.error
        if error:
            raise RuntimeError(error)

    def query(self, sql: str) -> Rows:
        from perfetto.common.query_result_iterator import QueryResultIterator

        result = self.rpc.execute_query(sql)
        if result.error:
            raise RuntimeError(result.error)
        return [dict(row.__dict__) for row in QueryResultIterator(result.column_names, result.batch)]

    def close(self) -> None:
        self.rpc.close()


class Program:
    """The trace processor as Google's program for this machine."""

    def __init__(self, trace: Path, binary: str) -> None:
        from perfetto.trace_processor import TraceProcessor, TraceProcessorConfig

        self.processor = TraceProcessor(trace=str(trace), config=TraceProcessorConfig(bin_path=binary))

    def query(self, sql: str) -> Rows:
        return [dict(row.__dict__) for row in self.processor.query(sql)]

    def close(self) -> None:
        self.processor.close()


def program() -> str | None:
    """The program: FLEETSIM_TRACE_PROCESSOR, or where the perfetto package keeps what it has downloaded."""
    given = os.environ.get("FLEETSIM_TRACE_PROCESSOR")
    if given:
        return given
    kept = Path.home() / ".local" / "share" / "perfetto" / "prebuilts"
    found = sorted(kept.glob("trace_processor_shell-*"))
    return str(found[-1]) if found else None


def has_wasm() -> bool:
    """Whether install.sh has been here."""
    return shutil.which("node") is not None and (ENGINE / "trace_processor.wasm").is_file()


@contextmanager
def opened(kind: str, trace: Path) -> Iterator[Wasm | Program]:
    """The processor with a trace in it."""
    binary = program()
    if kind == "program":
        assert binary is not None
    processor = Wasm(trace) if kind == "wasm" else Program(trace, str(binary))
    try:
        yield processor
    finally:
        processor.close()
