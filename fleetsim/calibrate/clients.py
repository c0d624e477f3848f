"""Clients that keep one engine busy: each sends its next request when an earlier one has ended.

So do the load generators of vLLM, SGLang and TensorRT-LLM with a limit on concurrency. All clients start together:
the first wave of prompts queues for the engine, and the mean time to the first token holds that queue's share of all
requests (10 requests of each client: a tenth).
"""

from __future__ import annotations

from collections.abc import Callable
from typing import NamedTuple

import numpy as np
from msgspec import Struct
from numpy.typing import ArrayLike, NDArray

from fleetsim.engine.limits import EngineLimits
from fleetsim.engine.operators.curves import Curves, shipped_curves
from fleetsim.engine.requests import RequestResult, run_requests
from fleetsim.engine.step_time import StepTime
from fleetsim.errors import InputError, Problem
from fleetsim.records import replace

_ROUNDS = 12
# The mean time to the first token settles to this share.
_SETTLED = 2e-3
# Schedulers plan one iteration ahead of the GPU, without a request that arrives meanwhile: vLLM's asynchronous
# scheduling (on by default from 0.14), SGLang's overlap schedule, TensorRT-LLM's overlap scheduler.
_PLANNED_AHEAD = 1.0


class RequestPath(Struct, frozen=True):
    """What lies between a client and the scheduler of an engine.

    request_s: seconds of one request to be sent, received, tokenized and handed over, and of its first token to come
    back. iterations: of the engine that go by before a request that arrived takes part in one.
    """

    request_s: float = 0.0
    iterations: float = 0.0


DIRECT = RequestPath()


def request_path(engine: str, held: float = 0.0, curves: Curves | None = None) -> RequestPath:
    """The path to a server of this engine. held: mean iterations for which its flags make a request wait."""
    host = (curves or shipped_curves()).hosts[engine]
    return RequestPath(host.request_s, _PLANNED_AHEAD + held)


class ClientTimes(NamedTuple):
    """What clients see of each request, in the order in which they were given; seconds, all of shape (requests,).

    sent_s: from the start of the load. first_s: from sending to the first token. later_s: per later token. finish_s.
    """

    sent_s: NDArray[np.float64]
    first_s: NDArray[np.float64]
    later_s: NDArray[np.float64]
    finish_s: NDArray[np.float64]


def closed_load(
    step_time: StepTime,
    limits: EngineLimits,
    prompt_tokens: ArrayLike,
    output_tokens: ArrayLike,
    clients: int,
    path: RequestPath = DIRECT,
) -> ClientTimes:
    """Runs requests of so many clients through one engine.

    prompt_tokens, output_tokens: as in `run_requests`, one of each per request. A request is sent when an earlier one
    has ended, the first of every client at 0. Raises InputError as `run_requests` does, and for clients below 1.
    """
    if isinstance(clients, bool) or not isinstance(clients, int) or clients < 1:
        raise InputError([Problem("clients", clients, "an integer >= 1", "give the number of requests at a time")])
    prompt, output = np.broadcast_arrays(np.atleast_1d(prompt_tokens), np.atleast_1d(output_tokens))
    limits = replace(limits, max_num_seqs=min(clients, limits.max_num_seqs))
    direct = run_requests(step_time, limits, prompt, output)

    def sent_at(sent: NDArray[np.float64]) -> RequestResult:
        return run_requests(step_time, limits, prompt, output, arrival_s=sent + path.request_s)

    if path == DIRECT and step_time.prefill is None:
        return _direct(sent_at, output, clients, direct)
    return _by_path(sent_at, output, clients, path, direct)


_SentAt = Callable[[NDArray[np.float64]], RequestResult]


def _direct(sent_at: _SentAt, output: NDArray[np.int64], clients: int, result: RequestResult) -> ClientTimes:
    """Without a path, sending when one has ended is queueing for its place, but where requests were preempted: these
    wait inside the engine, so when the next one is sent settles only by and by."""
    sent = np.zeros(len(output))
    for _ in range(_ROUNDS):
        sent = _sent(result.finish_s, clients)
        if np.all(result.first_token_s >= sent):
            break
        result = sent_at(sent)
    return _answers(sent, result, output, 0.0)


def _by_path(
    sent_at: _SentAt, output: NDArray[np.int64], clients: int, path: RequestPath, direct: RequestResult
) -> ClientTimes:
    """Each round makes one more wave of requests right, as a request depends on earlier ones only; the start is a guess
    that holds every wave up by the path as often as it was walked."""
    ahead_s = path.iterations * float(np.median(_later(direct, output)))
    waves = 1 + np.arange(len(output)) // clients
    sent = _sent(direct.finish_s + path.request_s * waves, clients)
    settled = np.inf
    for _ in range(_ROUNDS):
        result = sent_at(sent)
        answers = _answers(sent, result, output, ahead_s)
        first_s = float(answers.first_s.mean())
        if abs(first_s - settled) <= _SETTLED * first_s:
            break
        settled, sent = first_s, _sent(answers.finish_s, clients)
    return answers


def _sent(finish_s: NDArray[np.float64], clients: int) -> NDArray[np.float64]:
    sent = np.zeros(len(finish_s))
    sent[clients:] = np.sort(finish_s)[: max(0, len(finish_s) - clients)]
    return sent


def _later(result: RequestResult, output: NDArray[np.int64]) -> NDArray[np.float64]:
    return np.asarray((result.finish_s - result.first_token_s) / np.maximum(output - 1, 1))


def _answers(
    sent: NDArray[np.float64], result: RequestResult, output: NDArray[np.int64], ahead_s: float
) -> ClientTimes:
    first_s = np.maximum(result.first_token_s + ahead_s - sent, 0)
    return ClientTimes(sent, first_s, _later(result, output), result.finish_s)
