"""Requests through engines, without a trainer: the kernel as a function."""

from __future__ import annotations

from typing import NamedTuple

import numpy as np
from numpy.typing import ArrayLike, NDArray

from fleetsim.engine.kernel.tables import LEAST_LOADED, PREFIX_AFFINITY, REBASE, ROUND_ROBIN
from fleetsim.engine.limits import EngineLimits
from fleetsim.engine.step_time import StepTime
from fleetsim.errors import InputError, Problem
from fleetsim.records import replace

MOST_TOKENS = int(REBASE)
ROUTERS = {"round_robin": int(ROUND_ROBIN), "least_loaded": int(LEAST_LOADED), "prefix_affinity": int(PREFIX_AFFINITY)}


class RequestResult(NamedTuple):
    """What became of each request, in the order in which they were given; seconds from the start of the run.

    instance: which engine served it. start_s: first scheduled. first_token_s, finish_s. preemptions: how often it
    lost its KV cache. All of shape (requests,).
    """

    instance: NDArray[np.int64]
    start_s: NDArray[np.float64]
    first_token_s: NDArray[np.float64]
    finish_s: NDArray[np.float64]
    preemptions: NDArray[np.int32]


def run_requests(
    step_time: StepTime,
    limits: EngineLimits,
    prompt_tokens: ArrayLike,
    output_tokens: ArrayLike,
    *,
    arrival_s: ArrayLike | None = None,
    group: ArrayLike | None = None,
    prefix_caching: bool = False,
    instances: int = 1,
    routing: str = "round_robin",
    own_tokens: ArrayLike = 0,
    imbalance_limit: int = 0,
) -> RequestResult:
    """Runs requests through `instances` equal engines with continuous batching.

    prompt_tokens, output_tokens: integers from 1 to 2^30, shape (requests,) or scalars that broadcast. arrival_s:
    seconds >= 0, any order (default: all at 0). group: requests with the same label share one prompt (for prefix
    caching and for the prefix_affinity router). routing: round_robin, least_loaded or prefix_affinity, decided at
    arrival; with prefix_affinity an engine with a sibling may have `imbalance_limit` requests more than the least
    loaded. own_tokens: of each request's prompt, behind `prompt_tokens`, which no other request has; integers >= 0.

    The result equals an iteration-by-iteration simulation of the scheduler that `limits` names. Where they give no
    max_output_tokens, the longest output is what the client allows. Raises InputError for lengths, times
    or labels out of range, and for a request that can never fit into the KV cache.
    """
    prompt, output = _lengths(prompt_tokens, output_tokens)
    n = len(prompt)
    arrival = np.zeros(n) if arrival_s is None else np.broadcast_to(np.asarray(arrival_s, np.float64), n)
    own, own_problems = _own(own_tokens, n)
    if isinstance(imbalance_limit, bool) or not isinstance(imbalance_limit, int) or imbalance_limit < 0:
        own_problems.append(Problem("imbalance_limit", imbalance_limit, "an integer >= 0", "give a number of requests"))
    problems = own_problems + _problems(step_time, limits, prompt + own, output, arrival, instances, routing)
    label, size = _groups(group, prompt, problems)
    if problems:
        raise InputError(problems)

    from fleetsim.engine.native import advance
    from fleetsim.engine.state import World

    if limits.max_output_tokens is None:
        limits = replace(limits, max_output_tokens=int(output.max()))
    world = World(step_time, limits, instances=instances, prefix_caching=prefix_caching and group is not None)
    world.set(open_loop=1, routing=ROUTERS[routing], imbalance=imbalance_limit, n_arrivals=n)
    world.add_samples(n)
    world.add_groups(len(size))
    samples, groups = world.samples, world.groups
    # members of a group stand together, which is what the router and the prefix list expect
    rank = np.argsort(label, kind="stable")
    samples["prompt"], samples["extra"], samples["target"] = prompt[rank], own[rank], output[rank]
    if group is not None:
        samples["group"] = label[rank]
        groups["size"], groups["need"] = size, size
        groups["first"] = np.cumsum(size) - size
    place = np.empty(n, np.int32)
    place[rank] = np.arange(n, dtype=np.int32)
    order = np.argsort(arrival, kind="stable")
    world.arrival_s, world.arrival = arrival[order], place[order]
    advance(world.bind(), np.inf, n + 1)
    world.inspect()
    out = samples.take(place)
    return RequestResult(
        out["instance"].copy(),
        out["start_s"].copy(),
        out["first_token_s"].copy(),
        out["finish_s"].copy(),
        out["preemptions"].copy(),
    )


def _lengths(prompt_tokens: ArrayLike, output_tokens: ArrayLike) -> tuple[NDArray[np.int64], NDArray[np.int64]]:
    try:
        prompt, output = np.broadcast_arrays(np.atleast_1d(prompt_tokens), np.atleast_1d(output_tokens))
    except ValueError as error:
        raise InputError(
            [Problem("prompt_tokens, output_tokens", str(error), "equal lengths", "give one of each per request")]
        ) from None
    problems = []
    for name, given in (("prompt_tokens", prompt), ("output_tokens", output)):
        whole = given.ndim == 1 and given.dtype.kind in "iuf" and bool(np.all(given == np.floor(given)))
        if not whole or bool(np.any((given < 1) | (given > MOST_TOKENS))):
            shown = given[:3].tolist() if given.ndim else given
            problems.append(
                Problem(
                    name, shown, f"integers from 1 to {MOST_TOKENS}, one axis", "round up; an empty request never ends"
                )
            )
    if problems:
        raise InputError(problems)
    return prompt.astype(np.int64), output.astype(np.int64)


def _own(tokens: ArrayLike, n: int) -> tuple[NDArray[np.int64], list[Problem]]:
    """Tokens that each request's prompt has for itself; 0 and a problem where they are no counts."""
    own = np.asarray(tokens)
    if own.dtype.kind in "iu" and own.shape in ((), (n,)) and bool(np.all((own >= 0) & (own <= MOST_TOKENS))):
        return np.broadcast_to(own, (n,)).astype(np.int64), []
    rule = f"integers from 0 to {MOST_TOKENS}, one or one of each request"
    return np.zeros(n, np.int64), [Problem("own_tokens", own.tolist() if own.size < 4 else own.shape, rule, "mend it")]


def _problems(
    step_time: StepTime,
    limits: EngineLimits,
    prompt: NDArray[np.int64],
    output: NDArray[np.int64],
    arrival: NDArray[np.float64],
    instances: int,
    routing: str,
) -> list[Problem]:
    problems = []
    longest = int((prompt + output).max(initial=1)) - 1  # the last token is never put into the cache
    need = limits.blocks_for(longest)
    holds = step_time.blocks_of_one(limits.kv_blocks)
    if need > holds:
        problems.append(
            Problem(
                "limits.kv_blocks",
                holds,
                f"at least {need} for a request of {longest} cached tokens",
                "give the engine more KV blocks or cap the length: vLLM refuses such a max_model_len",
            )
        )
    if limits.host_blocks and step_time.prefill is not None:
        rule = "0 where prompts are computed by engines of their own"
        problems.append(Problem("limits.host_blocks", limits.host_blocks, rule, "leave it out"))
    if not np.all(np.isfinite(arrival)) or np.any(arrival < 0):
        problems.append(Problem("arrival_s", arrival[:3].tolist(), "finite seconds >= 0", "let the times start at 0"))
    if instances < 1:
        problems.append(Problem("instances", instances, "an integer >= 1", "give at least one engine"))
    if routing not in ROUTERS:
        problems.append(Problem("routing", routing, f"one of {', '.join(ROUTERS)}", "choose a router"))
    return problems


def _groups(
    group: ArrayLike | None, prompt: NDArray[np.int64], problems: list[Problem]
) -> tuple[NDArray[np.int64], NDArray[np.int64]]:
    """Group index per request and members per group; adds a problem when siblings' prompts differ."""
    n = len(prompt)
    if group is None:
        return np.zeros(n, np.int64), np.zeros(1, np.int64)
    labels = np.atleast_1d(group)
    if labels.shape != (n,):
        problems.append(Problem("group", labels.shape, f"shape ({n},)", "give one label per request"))
        return np.zeros(n, np.int64), np.zeros(1, np.int64)
    _, index, size = np.unique(labels, return_inverse=True, return_counts=True)
    first = np.zeros(len(size), np.int64)
    first[index] = prompt
    if np.any(first[index] != prompt):
        where = int(np.flatnonzero(first[index] != prompt)[0])
        problems.append(
            Problem(f"group[{where}]", labels[where], "one prompt length per group", "siblings share one prompt")
        )
    return index.astype(np.int64), size.astype(np.int64)
