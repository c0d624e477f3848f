"""Tries mutated inputs, each in a process of its own, and says which ended in something that no user should see.

    python -m tests.fuzz.run --count 20000 --seed 1            every kind of input
    python -m tests.fuzz.run --count 500 --kind histories
    python -m tests.fuzz.run --kind results --seed 1 --only 77 one input again, with what it printed

A fault is: an internal error or a traceback, a signal, over 20 s of processor time without a word, over 1 GB of memory,
output that is no strict JSON under --json, or a control character that reaches the terminal.
"""

from __future__ import annotations

import argparse
import hashlib
import json
import os
import random
import re
import resource
import signal
import sys
import tempfile
import time
import zlib
from collections import Counter
from collections.abc import Iterator
from dataclasses import dataclass
from pathlib import Path

from tests.fuzz.seeds import Input, Maker, makers

CPU_S = 20
MEMORY_BYTES = 2**30
EXPECTED = frozenset({0, 2, 3, 10, 11, 12})
# What a terminal would act on: all of C0 but line breaks and tabs, DEL and C1.
_CONTROL = re.compile(r"[\x00-\x08\x0b-\x1f\x7f-\x9f]")


@dataclass(frozen=True, slots=True)
class Fault:
    """One input that ended wrongly. number: which of its kind."""

    kind: str
    seed: int
    number: int
    what: str
    input: Input


def inputs(make: Maker, kind: str, seed: int, count: int) -> Iterator[tuple[int, Input]]:
    """`count` inputs of one kind, none twice; each number has a stream of its own, so that one can be tried alone."""
    met: set[bytes] = set()
    number = 0
    while len(met) < count:
        given = numbered(make, kind, seed, number)
        digest = _digest(given)
        if digest not in met:
            met.add(digest)
            yield number, given
        number += 1


def _digest(given: Input) -> bytes:
    found = hashlib.sha256(repr(given.arguments).encode())
    for name, data in sorted(given.files.items()):
        found.update(repr((name, len(data))).encode())
        found.update(data)
    return found.digest()


def numbered(make: Maker, kind: str, seed: int, number: int) -> Input:
    """One of them."""
    return make(random.Random(zlib.crc32(f"{kind} {seed} {number}".encode())))


def tried(given: Input) -> tuple[str, str]:
    """What is wrong with how it ended ("" if nothing), and what it printed."""
    with tempfile.TemporaryDirectory(prefix="fuzz") as folder:
        out = Path(folder) / "printed"
        work = Path(folder) / "work"
        work.mkdir()
        for name, data in given.files.items():
            (work / name).write_bytes(data)
        child = os.fork()
        if child == 0:
            _run(given, work, out)
        _, status, used = os.wait4(child, 0)
        printed = out.read_text(errors="replace") if out.exists() else ""
    return _fault(given, status, used, printed), printed


def _run(given: Input, work: Path, out: Path) -> None:
    """The child: the command line as a process would run it. Never returns."""
    code = 1
    try:
        os.setsid()
        to = os.open(out, os.O_WRONLY | os.O_CREAT)
        os.dup2(os.open(os.devnull, os.O_RDONLY), 0)
        os.dup2(to, 1)
        os.dup2(to, 2)
        # whoever called may have put other streams there
        sys.stdout, sys.stderr = (os.fdopen(fd, "w", encoding="utf-8", errors="replace") for fd in (1, 2))
        os.chdir(work)
        now = int(time.process_time()) + 1
        resource.setrlimit(resource.RLIMIT_CPU, (now + CPU_S, now + CPU_S + 5))
        size = int(Path("/proc/self/statm").read_text().split()[0]) * os.sysconf("SC_PAGE_SIZE")
        resource.setrlimit(resource.RLIMIT_AS, (size + 2 * MEMORY_BYTES, size + 2 * MEMORY_BYTES))
        signal.alarm(10 * CPU_S)
        from fleetsim.cli.main import app

        try:
            app(list(given.arguments), prog_name="fleetsim")
            code = 0
        except SystemExit as end:
            code = end.code if isinstance(end.code, int) else 0 if end.code is None else 1
        sys.stdout.flush()
        sys.stderr.flush()
    except BaseException:  # noqa: BLE001 - the child ends here, whatever it was
        import traceback

        traceback.print_exc()
        sys.stderr.flush()
    finally:
        os._exit(code)


def _fault(given: Input, status: int, used: resource.struct_rusage, printed: str) -> str:
    if os.WIFSIGNALED(status):
        if "still working: " in printed and os.WTERMSIG(status) in (signal.SIGXCPU, signal.SIGALRM):
            return ""  # long work, and it says so
        number = os.WTERMSIG(status)
        return {signal.SIGXCPU: f"over {CPU_S} s of processor time", signal.SIGALRM: "hangs"}.get(
            number, f"signal {signal.Signals(number).name}"
        )
    if "internal error: " in printed or "Traceback (most recent call last)" in printed:
        lines = [line for line in printed.splitlines() if "Error" in line or "internal" in line]
        return (lines or [printed[:200]])[-1][:200]
    code = os.WEXITSTATUS(status)
    if code not in EXPECTED:
        return f"exit {code}"
    if used.ru_maxrss * 1024 > MEMORY_BYTES:
        return f"{used.ru_maxrss / 2**20:.1f} GB of memory"
    control = _CONTROL.search(printed)
    if control:
        return (
            f"control character {control[0]!r} printed: {printed[max(0, control.start() - 30) : control.end() + 10]!r}"
        )
    if "--json" in given.arguments and code in (0, 10) and "-o" not in given.arguments:
        return _no_json(printed)
    return ""


def _no_json(printed: str) -> str:
    start = printed.find("{")
    try:
        json.JSONDecoder(parse_constant=_refuse).raw_decode(printed[max(start, 0) :])
    except ValueError as error:
        return f"no JSON: {error}"
    return ""


def _refuse(constant: str) -> float:
    raise ValueError(f"{constant} is no JSON")


def main() -> int:
    """The script."""
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--count", type=int, default=500, help="inputs in all")
    parser.add_argument("--seed", type=int, default=0)
    parser.add_argument("--kind", action="append", help="only this kind; may be repeated")
    parser.add_argument("--only", type=int, help="one number of the kind: prints all that it printed")
    asked = parser.parse_args()
    os.environ["COLUMNS"] = "100"
    with tempfile.TemporaryDirectory(prefix="fuzz-seeds") as folder:
        made = makers(Path(folder))
        kinds = asked.kind or sorted(made)
        if asked.only is not None:
            given = numbered(made[kinds[0]], kinds[0], asked.seed, asked.only)
            os.environ["FLEETSIM_DEBUG"] = "1"
            fault, printed = tried(given)
            print(given.arguments)
            for name, data in given.files.items():
                Path("/tmp/fuzz-only").mkdir(exist_ok=True)
                (Path("/tmp/fuzz-only") / name).write_bytes(data)
            print(printed, "\n->", fault or "nothing wrong")
            return 1 if fault else 0
        faults = list(found(made, kinds, asked.seed, asked.count))
    print(f"{asked.count:,} inputs, {len(faults)} faults")
    for what, times in Counter(f"{f.kind}: {re.sub(r'[0-9]+', 'N', f.what)}" for f in faults).most_common():
        print(f"{times:6d}  {what}")
    return 1 if faults else 0


def found(made: dict[str, Maker], kinds: list[str], seed: int, count: int) -> Iterator[Fault]:
    """The faults, each printed as it is found."""
    per_kind = -(-count // len(kinds))
    for kind in kinds:
        began, seen = time.monotonic(), 0
        for number, given in inputs(made[kind], kind, seed, per_kind):
            what, _ = tried(given)
            if what:
                seen += 1
                print(f"{kind} {number}: {what}  | {' '.join(given.arguments)[:150]!r}", flush=True)
                yield Fault(kind, seed, number, what, given)
        print(f"{kind}: {per_kind:,} inputs, {seen} faults, {time.monotonic() - began:.0f} s", flush=True)


if __name__ == "__main__":
    sys.exit(main())
