"""How the batch is trained (`trainer.recipe`), from a framework's own keys: steps, passes, offload, parallel layout."""

from __future__ import annotations

import math
from collections.abc import Mapping
from typing import Any

from fleetsim.config.pools import RecipeConfig
from fleetsim.frameworks.draft import Draft
from fleetsim.frameworks.reading import Read, worded, writes

PATH = "trainer.recipe"
_DEFAULT = RecipeConfig()


# The framework's key, or several spellings of it with blanks between; then what it is where it says nothing, for a
# switch, or the framework's words with the recipe's, usual ones first. A key alone has a whole number.
Row = str | tuple[str, bool | Mapping[str, Any]]


def rows(draft: Draft, **fields: Row) -> None:
    """Fields of the recipe, each from its row."""
    for name, row in fields.items():
        keys, kind = (row, None) if isinstance(row, str) else row
        spellings, path, ours = keys.split(), f"{PATH}.{name}", getattr(_DEFAULT, name)
        if kind is None:
            draft.said(path, *spellings, now=ours, unless=ours)
        elif isinstance(kind, bool):
            read = draft.flag(*spellings, default=kind)
            draft.where_said(path, read, now=read.value, unless=ours)
        else:
            words(draft, name, kind, *spellings)


def megatron(draft: Draft, *sections: str) -> None:
    """The ranks under Megatron's names. sections: the prefix of the keys with its dot, or several of them."""
    names = {"tp": "tensor_model", "pp": "pipeline_model", "cp": "context", "ep": "expert_model"}
    rows(draft, **{ours: " ".join(f"{s}{name}_parallel_size" for s in sections) for ours, name in names.items()})


def words(draft: Draft, name: str, known: Mapping[str, Any], *keys: str, else_: Any = None) -> None:
    """A field whose values have words of their own. else_: what stands in for a word that is not known."""
    read, path, default = draft.maybe_text(*keys), f"{PATH}.{name}", getattr(_DEFAULT, name)
    back = worded(known, lambda word: {keys[0]: True if word == "true" else word})
    value = None if read is None else known.get(read.value.lower())
    if read is None or value is None:
        draft.could(path, default, back, default)
    else:
        draft.put(path, value, read, back=back, unless=default)
    if read is not None and value is None and else_ is not None:
        draft.assume(path, else_, f"{read}: {else_} stands in", f"--set {path}=VALUE")


def optimizer_steps(draft: Draft, batch: Read[int], mini: Read[int] | None, key: str) -> None:
    """Optimizer steps of an epoch: the batch over a mini-batch, both counted in the same. key: the mini-batch's.

    A framework may refuse a mini-batch of its own that is larger than the batch, or does not divide it: the batch then
    says both.
    """

    def back(want: Any) -> Mapping[str, Any] | None:
        if not isinstance(want, int) or batch.value % want:
            return None
        return writes(key)(batch.value // want)

    path = f"{PATH}.optimizer_steps"
    if mini is not None and (mini.value >= batch.value or batch.value % mini.value):
        both = "trainer.batch_samples"
        draft.could(both, draft.values.get(both), lambda _: writes(key)(batch.value))
    if mini is None or mini.value >= batch.value:
        draft.could(path, 1, back, 1)
    else:
        steps, why = max(1, batch.value // mini.value), "their updates count as one step"
        draft.put(path, steps, batch, mini, why=why, back=back, unless=1)


def ranks(draft: Draft, samples: Read[int] | None = None) -> int:
    """Data-parallel ranks, and what every trainer asks: whole ones and, where it asks that too, a sample for each."""
    gpus = draft.values.get("trainer.gpus", 1)
    names = [n for n in ("tp", "pp", "cp") if draft.values.get(f"{PATH}.{n}")]
    each = math.prod(draft.values[f"{PATH}.{n}"] for n in names)
    shown = " x ".join(names) or "1"
    if gpus % each:
        draft.refuse("trainer.gpus", gpus, f"must be a multiple of {shown} = {each}", "change one of them")
    elif samples is not None and samples.value < gpus // each:
        rule = f"is less than a sample for each of {gpus // each} data-parallel ranks"
        draft.refuse(samples.key, samples.value, rule, "have a larger batch, or fewer trainer GPUs")
    return max(1, gpus // each)
