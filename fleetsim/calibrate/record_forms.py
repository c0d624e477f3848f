"""What a record of raw measurements must look like; the rest of the package reads records that do.

A file of raw data may have been cut, merged or edited on its way from the GPU box. A record with a wrong type, or with
a number that no engine can have, counts as damaged: it is left out, and how many there were is told.
"""

from __future__ import annotations

from collections.abc import Callable, Mapping
from typing import Any

import numpy as np

Form = Callable[[Any], bool]

# No iteration takes three hours, none holds more tokens than 30 bits count, no session lasts 30 years.
MOST_ITERATION_US = 10**10
MOST_TOKENS = 10**9
MOST_PAIRS = 10**18
MOST_US = 10**15


def well_formed(record: Mapping[str, Any]) -> bool:
    """Whether a record has what its kind ("t") needs, in the right types and within reach."""
    return _has(FORMS.get(str(record.get("t")), {}))(record)


def _has(fields: Mapping[str, Form]) -> Form:
    """A mapping whose values, where they are given, have these forms; other keys are free."""
    return lambda value: (
        isinstance(value, dict) and all(form(value[key]) for key, form in fields.items() if value.get(key) is not None)
    )


def _whole(low: int, high: int) -> Form:
    return lambda value: isinstance(value, int) and not isinstance(value, bool) and low <= value <= high


def _number(low: float, high: float) -> Form:
    return lambda value: isinstance(value, (int, float)) and not isinstance(value, bool) and low <= value <= high


def _column(low: int, high: int, real: bool = False) -> Form:
    """A list of whole numbers, or of any (real); a single one counts as a list."""

    def form(value: Any) -> bool:
        try:
            column = np.atleast_1d(np.array(value if isinstance(value, list) else [value]))
        except (ValueError, OverflowError):  # lists of different lengths; integers beyond 64 bits
            return False
        if column.ndim != 1 or column.dtype.kind not in ("iuf" if real else "iu"):
            return column.shape == (0,)
        return not len(column) or bool(low <= column.min() and column.max() <= high)

    return form


def _each(form: Form) -> Form:
    return lambda value: isinstance(value, (list, tuple)) and all(map(form, value))


def _text(value: Any) -> bool:
    return isinstance(value, str) and len(value) < 10_000


def _name(value: Any) -> bool:
    return _text(value) or (isinstance(value, int) and not isinstance(value, bool))


def _of_even_length(form: Form) -> Form:
    """Columns of a table: as many rows in each."""
    return lambda value: form(value) and len({len(v) for v in value.values() if isinstance(v, list)}) <= 1


_COUNT = _whole(0, 1_000_000_000)
_TOKENS = _column(-1, MOST_TOKENS)
_TIMES = _column(-1, MOST_US)
_SECONDS = _number(0, 1e9)
_LABEL = _has(
    {
        **dict.fromkeys(("G", "P", "groups", "slots", "budget", "pool_blocks", "tokens"), _COUNT),
        "length_scale": _number(0, 1e9),
    }
)
_ITERATIONS = _has(
    {
        **dict.fromkeys(("s", "ds", "du", "dv", "idle", "warm"), _TIMES),
        "dt": _column(-1, MOST_ITERATION_US),
        **dict.fromkeys(("nd", "K", "npf", "np", "Kp", "hit", "adm", "out", "fin"), _TOKENS),
        **dict.fromkeys(("pre", "run", "wait", "blk", "dr"), _TOKENS),
        "A": _column(0, MOST_PAIRS),
    }
)
_REQUESTS = _has(
    {
        **dict.fromkeys(("submit", "first", "finish"), _TIMES),
        **dict.fromkeys(("n", "pre", "P", "want"), _TOKENS),
    }
)

_DRAFTS = _has(
    {
        **dict.fromkeys(("iterations", "drafted"), _whole(0, 10**15)),
        "accepted_at": _each(_whole(0, 10**15)),
    }
)

FORMS: Mapping[str, Mapping[str, Form]] = {
    "meta": {"model": _text, "source": _text, "date": _text, "smi": _text},
    "start": {
        "cache": _has({"num_gpu_blocks": _COUNT, "block_size": _COUNT}),
        "sched": _has({"max_num_seqs": _COUNT, "max_num_batched_tokens": _COUNT}),
        "comp": _has({"sizes": _each(_COUNT)}),
        "model": _has({"max_model_len": _COUNT, "hf": _has({}), "dtype": _text}),
        "gpu": _has({"name": _text, "count": _COUNT, "driver": _text}),
        "engine_args": _has({"model": _text, "tensor_parallel_size": _COUNT}),
        "tp": _COUNT,
        "assumed": _each(_text),
        "speculation": _has({"method": _text}),
        "drafts": _DRAFTS,
        **dict.fromkeys(("engine", "vllm", "version", "cuda", "torch", "kind"), _text),
    },
    "it": {"ph": _text, "seg": _name, "lab": _LABEL, "c": _of_even_length(_ITERATIONS)},
    "seg": {
        "ph": _text,
        "seg": _name,
        "lab": _LABEL,
        "wall": _SECONDS,
        "submit": _SECONDS,
        "decode_s": _SECONDS,
        "hit_tokens": _COUNT,
        "drafts": _DRAFTS,
        "req": _of_even_length(_REQUESTS),
    },
    "obs": {
        "ph": _text,
        "seg": _name,
        "lab": _LABEL,
        "dt": _column(-MOST_ITERATION_US, MOST_ITERATION_US, real=True),
        "ovh": _column(0, MOST_TOKENS, real=True),
        "of": _column(0, MOST_TOKENS),
        **dict.fromkeys(("nd", "K", "np", "dr"), _column(0, MOST_TOKENS, real=True)),
        "A": _column(0, MOST_PAIRS, real=True),
    },
    "phase": {"ph": _text, "res": _has({"weights": _has({})})},
}
