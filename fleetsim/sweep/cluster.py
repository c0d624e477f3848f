"""Cells on a Ray cluster: one task each, sent to whichever node is free, and sent again when a worker dies.

Ray's tasks and not joblib's Ray backend: that one hands results over only when all of them are there, so that nothing
could be journalled meanwhile, and by default gives up when a worker dies (joblib 1.6, Ray 2.60).
"""

from __future__ import annotations

import logging
import os
import socket
import sys
from collections.abc import Callable, Iterator, Sequence
from contextlib import contextmanager
from tempfile import TemporaryFile
from typing import Any

from fleetsim.errors import InputError, OutsideError, Problem
from fleetsim.faces import Text, flag, text
from fleetsim.sweep.cell import Design, SweepRow, run_cell, sources_digest

# A worker may die so often under one cell; then it is the cell that kills it.
RETRIES = 5
_REMEDY = Text(
    "run the same command again to go on: finished cells are kept where there is an --out",
    "ask again: the cells so far are in the error's `known`",
)


# How Ray's core says that a token is missing or wrong, and what helps (Ray 2.60).
_REFUSED = ("InvalidAuthToken", "Unauthenticated")
TOKEN = (
    "the cluster refuses us: it asks for its token, and ours is missing or another one; print it on the head node with "
    "ray get-auth-token, and set RAY_AUTH_MODE=token and RAY_AUTH_TOKEN to it here (or RAY_AUTH_TOKEN_PATH to a file "
    "that holds it, or put it into ~/.ray/auth_token)"
)


def check_ray(address: str) -> None:
    """Raises InputError where no address was given, OutsideError where Ray is not installed."""
    if not address.strip():
        raise InputError([Problem(flag("ray"), address, "names no cluster", "give auto, or HOST:PORT")])
    try:
        import ray  # noqa: F401 - only whether it is there
    except ImportError:
        raise OutsideError("a Ray cluster needs Ray, which is not installed; pip install 'fleetsim[ray]'") from None


def on_cluster(design: Design, cells: Sequence[int], address: str, finished: Callable[[SweepRow], None]) -> None:
    """Cells on all cores of a cluster; nodes that join meanwhile are used too. `finished` is told each, in the order in
    which they finish.

    Raises OutsideError when there is no cluster, or its nodes cannot do the work.
    """
    import ray

    _connect(ray, address)
    pending: list[Any] = []
    try:
        design_there = ray.put(design)
        task = ray.remote(num_cpus=1, max_retries=RETRIES, retry_exceptions=False)(_there)
        waiting = iter(cells)
        while True:
            # Two a core: one runs, one waits for it.
            slots = max(1, int(ray.cluster_resources().get("CPU", 1)))
            while len(pending) < 2 * slots and (cell := next(waiting, None)) is not None:
                pending.append(task.remote(design_there, cell))
            if not pending:
                return
            ray.wait(pending, num_returns=1)
            done, pending = ray.wait(pending, num_returns=len(pending), timeout=0)
            for found in done:
                row, sources = ray.get(found)
                _check_sources(sources)
                finished(row)
    except ray.exceptions.RayError as error:
        raise OutsideError(text("{}: {}; {}", flag("ray"), _last_line(error), _REMEDY)) from None
    finally:
        for task_there in pending:
            ray.cancel(task_there, force=True)
        ray.shutdown()


def _connect(ray: Any, address: str) -> None:
    said = ""
    try:
        host, colon, port = address.removeprefix("ray://").rpartition(":")
        if colon and port.isdigit():  # Ray would go on asking for minutes where nothing listens
            socket.create_connection((host.strip("[]"), int(port)), timeout=10).close()
        with TemporaryFile() as log:
            try:
                with _stderr_to(log.fileno()):
                    ray.init(address=address, log_to_driver=False, logging_level=logging.ERROR)
            except (Exception, SystemExit):
                log.seek(0)
                said = log.read().decode(errors="replace")
                raise
    except (Exception, SystemExit) as error:  # noqa: BLE001 - Ray raises anything where it cannot connect
        # only releases that know tokens have it
        refusal = getattr(ray.exceptions, "AuthenticationError", ())
        if isinstance(error, refusal) or any(word in f"{said} {error}" for word in _REFUSED):
            raise OutsideError(text("{} {!r}: {}", flag("ray"), address, TOKEN)) from None
        none = "{} {!r}: no cluster there: {}; start one with ray start --head, or give the address of its head node"
        raise OutsideError(text(none, flag("ray"), address, _last_line(error))) from None


@contextmanager
def _stderr_to(file: int) -> Iterator[None]:
    """What is written to stderr goes to a file: Ray's core writes why it cannot connect, many times, and raises less.

    The descriptor, because that core is no Python.
    """
    sys.stderr.flush()
    kept = os.dup(2)
    os.dup2(file, 2)
    try:
        yield
    finally:
        os.dup2(kept, 2)
        os.close(kept)


def _there(design: Design, cell: int) -> tuple[SweepRow, str]:
    """A cell, on a node, and the digest of the code that ran it there."""
    return run_cell(design, cell), sources_digest()


def _check_sources(sources: str) -> None:
    if sources != sources_digest():
        other = "{}: a node runs another version of fleetsim, so its cells could differ; install this one on all nodes"
        raise OutsideError(text(other, flag("ray")))


def _last_line(error: BaseException) -> str:
    """The last line of an error that has text: Ray puts the traceback of the worker before it."""
    lines = [line.strip() for line in str(error).splitlines() if line.strip()]
    return lines[-1] if lines else type(error).__name__
