"""A closed batch on one engine: which iterations it takes follows from the lengths, whatever each of them lasts."""

from __future__ import annotations

import numpy as np

from fleetsim.calibrate.tables.source import Array

MOST_ITERATIONS = 200_000


def batch_iterations(requests: int, prompt_tokens: int, output_tokens: int, slots: int, budget: int) -> Array:
    """The iterations of equal requests that are all there from the start, shape (iterations, 4).

    At most MOST_ITERATIONS of them. slots: running at once. budget: max_num_batched_tokens. Running requests first,
    then new ones while slots and budget last; a prompt's last token also yields the first output token. KV blocks are
    taken as enough.
    """
    left_prompt = np.full(requests, prompt_tokens, np.int64)
    made = np.zeros(requests, np.int64)
    running: list[int] = []
    arrived = 0
    rows: list[list[float]] = []
    while (running or arrived < requests) and len(rows) < MOST_ITERATIONS:
        while len(running) < slots and arrived < requests:
            running.append(arrived)
            arrived += 1
        who = np.array(running)
        decoding = who[left_prompt[who] == 0]
        room = budget - len(decoding)
        b, kv = len(decoding), float((prompt_tokens + made[decoding] - 1).sum())
        tokens, pairs = 0, 0.0
        made[decoding] += 1
        for i in who[left_prompt[who] > 0]:
            chunk = min(room, int(left_prompt[i]))
            if chunk <= 0:
                break
            pairs += chunk * (prompt_tokens - int(left_prompt[i])) + chunk * (chunk + 1) / 2
            tokens, room = tokens + chunk, room - chunk
            left_prompt[i] -= chunk
            made[i] += left_prompt[i] == 0
        rows.append([b, kv, tokens, pairs])
        running = [i for i in running if made[i] < output_tokens]
    return np.array(rows, np.float64)
