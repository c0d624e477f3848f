"""How the batch is trained (`trainer.recipe`), from a framework's own keys: steps, passes, offload, parallel layout."""

from __future__ import annotations

import math
from collections.abc import Mapping
from typing import Any

from fleetsim.config.pools import RecipeConfig
from fleetsim.frameworks.draft import Draft
from fleetsim.frameworks.reading import Back, Read

PATH = "trainer.recipe"
_DEFAULT = RecipeConfig()


def counts(draft: Draft, keys: Mapping[str, str | tuple[str, ...]]) -> None:
    """Whole numbers. keys: field of the recipe -> the framework's key, or several spellings of it."""
    for name, key in keys.items():
        spellings = (key,) if isinstance(key, str) else key
        ours = getattr(_DEFAULT, name)
        draft.where_said(f"{PATH}.{name}", draft.maybe_count(*spellings), spellings[0], now=ours, unless=ours)


def megatron(draft: Draft, *sections: str) -> None:
    """The ranks under Megatron's names. sections: the prefix of the keys with its dot, or several of them."""
    names = {"tp": "tensor_model", "pp": "pipeline_model", "cp": "context", "ep": "expert_model"}
    counts(draft, {ours: tuple(f"{s}{name}_parallel_size" for s in sections) for ours, name in names.items()})


def flags(draft: Draft, keys: Mapping[str, tuple[str | tuple[str, ...], bool]]) -> None:
    """True or false. keys: field of the recipe -> the framework's key or spellings of it, and its default there."""
    for name, (key, default) in keys.items():
        read = draft.flag(*((key,) if isinstance(key, str) else key), default=default)
        ours = getattr(_DEFAULT, name)
        draft.where_said(f"{PATH}.{name}", read, read.key, now=read.value, unless=ours)


def words(draft: Draft, name: str, known: Mapping[str, Any], *keys: str, else_: Any = None) -> None:
    """A field whose values have words of their own. known: the framework's word -> the recipe's, usual ones first.

    else_: what stands in for a word that is not known; None = the recipe's own value.
    """
    read = draft.maybe_text(*keys)
    back = _back(keys[0], known)
    default = getattr(_DEFAULT, name)
    value = None if read is None else known.get(read.value.lower())
    if read is None or value is None:
        draft.could(f"{PATH}.{name}", default, back, default)
    else:
        draft.put(f"{PATH}.{name}", value, read, back=back, unless=default)
    if read is not None and value is None and else_ is not None:
        draft.assume(f"{PATH}.{name}", else_, f"{read}: {else_} stands in", f"--set {PATH}.{name}=VALUE")


def passes(draft: Draft, **made: tuple[bool, Back]) -> None:
    """The passes beside the update: whether each is made, and the settings that make it or not.

    They stand in the scenario where the trainer's seconds are estimated (`common.hardware_and_times`).
    """
    for name, (value, back) in made.items():
        draft.could(f"{PATH}.{name}", value, back)


def optimizer_steps(draft: Draft, batch: Read[int], mini: Read[int] | None, key: str, why: str = "") -> None:
    """Optimizer steps of an epoch: the batch over a mini-batch, both counted in the same. key: the mini-batch's.

    A framework may refuse a mini-batch of its own that is larger than the batch, or does not divide it: the batch then
    says both.
    """

    def back(want: Any) -> Mapping[str, Any] | None:
        if not isinstance(want, int) or batch.value % want:
            return None
        return Read(key, 1, False).written(batch.value // want)

    path = f"{PATH}.optimizer_steps"
    if mini is not None and (mini.value >= batch.value or batch.value % mini.value):
        both = "trainer.batch_samples"
        draft.could(both, draft.values.get(both), lambda _: Read(key, 1, False).written(batch.value))
    if mini is None or mini.value >= batch.value:
        draft.could(path, 1, back, 1)
    else:
        draft.put(path, max(1, batch.value // mini.value), batch, mini, why=why or "mini-batches", back=back, unless=1)


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


def _back(key: str, known: Mapping[str, Any]) -> Back:
    def back(want: Any) -> Mapping[str, Any] | None:
        found = next((word for word, meant in known.items() if meant == want), None)
        return None if found is None else {key: True if found == "true" else found}

    return back
