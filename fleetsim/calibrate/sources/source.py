"""One source of somebody else's measurements: durations, what they held, what the file says of the engine."""

from __future__ import annotations

import os
from collections.abc import Sequence
from dataclasses import field, replace

import numpy as np
from numpy.typing import NDArray

from fleetsim.calibrate.fit.observations import PER_DURATION, PER_ITERATION, Observations, in_a_row
from fleetsim.calibrate.loads import prompt_chunks
from fleetsim.dataclass import dataclass
from fleetsim.errors import InputError, Problem

Array = NDArray[np.float64]


def config_of(model: str | None) -> str | None:
    """The config.json in a model's folder; any other name as it is."""
    if model and "\0" not in model and os.path.isfile(os.path.join(model, "config.json")):
        return os.path.join(model, "config.json")
    return model


@dataclass(frozen=True, slots=True)
class Duration:
    """A duration and the iterations that it took.

    seconds: of all of them together. iterations: shape (iterations, 4), by ITERATION; averages may be fractions.
    overheads: how many of a client's fixed costs lie in the duration. run: which run of the benchmark, 0, 1, 2...
    """

    seconds: float
    iterations: Array
    overheads: float = 0.0
    run: int = 0


@dataclass(frozen=True, slots=True)
class Source:
    """What one file or table tells.

    what: the kind of file, in words. observations: a segment each. run: the benchmark run of each observation, shape
    (observations,). single: whether the durations are those of single iterations, not averages over a run. facts: what
    it says of the engine, by the names of Given and engine, engine_version, date. assumed: what had to be assumed to
    read it.
    """

    path: str
    what: str
    observations: Observations
    run: NDArray[np.int64]
    single: bool = False
    facts: dict[str, str | int | float] = field(default_factory=dict)
    assumed: tuple[str, ...] = ()


def iteration(decodes: float, kv_tokens: float, prefill_tokens: float = 0.0, attn_pairs: float = 0.0) -> Array:
    """One iteration, shape (1, 4)."""
    return np.array([[decodes, kv_tokens, prefill_tokens, attn_pairs]], np.float64)


def of_a_prompt(tokens: float, budget: float) -> Array:
    """The iterations that compute one prompt on an empty engine, shape (iterations, 4)."""
    return np.concatenate([iteration(0, 0, *chunk) for chunk in prompt_chunks([tokens], budget)])


def observations_from(measured: Sequence[Duration], path: str) -> tuple[Observations, NDArray[np.int64]]:
    """Durations as the fit takes them, a segment each, and the run of each. Raises InputError if there are none."""
    if not measured:
        raise InputError([Problem("--from", path, "holds no usable duration", "give results of finished runs")])
    rows = np.concatenate([m.iterations for m in measured])
    observations = Observations(
        seconds=np.array([m.seconds for m in measured]),
        segment=np.arange(len(measured), dtype=np.int32),
        overheads=np.array([m.overheads for m in measured]),
        of=np.repeat(np.arange(len(measured)), [len(m.iterations) for m in measured]),
        decodes=rows[:, 0],
        kv_tokens=rows[:, 1],
        prefill_tokens=rows[:, 2],
        attn_pairs=rows[:, 3],
        drafted=np.zeros(len(rows)),
    )
    return observations, np.array([m.run for m in measured], np.int64)


def joined(sources: Sequence[Source]) -> tuple[Observations, NDArray[np.int64]]:
    """The observations of all sources, segments and runs counted on. shape of runs: (observations,)."""
    runs, first = [], 0
    for s in sources:
        runs.append(s.run + first)
        first += int(s.run.max(initial=-1)) + 1
    together = in_a_row([s.observations for s in sources])
    return replace(together, segment=np.arange(len(together), dtype=np.int32)), np.concatenate(runs)


def subset(o: Observations, keep: NDArray[np.bool_]) -> Observations:
    """The observations that stay, with their iterations."""
    rows = keep[o.of]
    place = np.cumsum(keep) - 1
    kept = {name: getattr(o, name)[keep] for name in PER_DURATION}
    return Observations(of=place[o.of[rows]], **kept, **{name: getattr(o, name)[rows] for name in PER_ITERATION})
