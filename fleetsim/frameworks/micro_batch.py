"""How the trainer holds a micro-batch: its tokens, whether samples are padded, what is computed again, in which type.

Tokens are those of a GPU: of its own where context ranks share a sequence. A micro-batch of so many samples has their
mean tokens, or those of the longest where they are padded to it.
"""

from __future__ import annotations

import re
from collections.abc import Mapping, Sequence
from typing import Any

from fleetsim import units
from fleetsim.frameworks.draft import Draft
from fleetsim.frameworks.reading import Read, one_of

MICRO, PACKING = "trainer.recipe.micro_tokens", "trainer.recipe.packing"
_WORDS = re.compile(r"[a-z]\w*")
# Modules of a layer that are computed again in no time.
_SLIGHT = {"core_attn", "norm", "layernorm"}
# Settings that Megatron asks for together where all of a layer is (transformer_config.py).
_EACH_LAYER = {"method": "uniform", "num_layers": 1}


def tokens(draft: Draft, keys: Sequence[str], usual: int | None, options: Mapping[str, Any]) -> None:
    """A cap in tokens, where its switch (`on`) is; of cp: that of all context ranks together."""
    switch = draft.flag(*str(options["on"]).split("/"), default=False).value if "on" in options else True
    read = draft.maybe_count(*keys, least=-1) or (None if usual is None else Read(keys[0], usual, False))
    if MICRO in draft.values or not switch or read is None or read.value < 1:
        return
    ranks = _context_ranks(draft) if "of" in options else 1
    why = f"of {ranks} context ranks together" if ranks > 1 else ""
    draft.put(MICRO, max(1, read.value // ranks), read, why=why, back=one_of({}))


def samples(draft: Draft, keys: Sequence[str], usual: int | None, options: Mapping[str, Any]) -> None:
    """Samples of a micro-batch where no cap in tokens holds. each longest: the cap is that of as many longest ones. of
    gpus: they are those of all GPUs together."""
    read = draft.maybe_count(*keys) or (None if usual is None else Read(keys[0], usual, False))
    padded = "each" in options or draft.values.get(PACKING) is False
    paths = "workload.prompt_tokens", f"workload.output_tokens.{'max' if padded else 'mean'}"
    sizes = [draft.given.get(path, draft.values.get(path)) for path in paths]
    if MICRO in draft.values or read is None or not all(isinstance(size, (int, float)) for size in sizes):
        return
    each = "the longest" if padded else "the mean"
    why = f"{read}: so many samples of {each} length, {units.plural(round(sum(sizes)), 'token')}"
    ranks = draft.values["trainer.gpus"] if "of" in options else _context_ranks(draft)
    draft.assume(MICRO, max(1, round(read.value * sum(sizes) / ranks)), why, f"--set {MICRO}=TOKENS")


def _context_ranks(draft: Draft) -> int:
    return int(draft.values.get("trainer.recipe.cp") or 1)


def packed(draft: Draft, keys: Sequence[str], alone: str) -> None:
    """Whether samples are packed, or go with others of their length: a switch says it, or one of several.

    alone: of the samples of a micro-batch, one by default, which are padded to the longest of them.
    """
    reads = [draft.flag(key, default=False) for key in keys]
    read = next((one for one in reads if one.value), reads[0])
    back = one_of({True: {keys[0]: True}, False: {one.key: False for one in reads if one.value} or {keys[0]: False}})
    each = draft.count(*alone.split("/"), default=1) if alone and not read.value else read
    if alone and not read.value and each.value == 1:
        draft.put(PACKING, True, each, why="one sample is not padded", back=back, unless=True)
    else:
        draft.put(PACKING, read.value, read, back=back, unless=True)


def recomputed(draft: Draft, keys: list[str], usual: str, switch: bool | None) -> None:
    """Whether activations are computed again: all of a layer, or (selective) modules of it, core attention alone where
    none is named (Megatron-LM, megatron/training/arguments.py). That and norms count for nothing here.

    usual: the framework's own word. switch: whether the first key, which switches it, is on where nothing says so.
    """
    path, on = "trainer.recipe.recompute", None if switch is None else draft.flag(keys[0], default=switch)
    keys = keys[on is not None :]
    read = draft.maybe_text(*keys) or Read(keys[0], usual, False)
    full = {keys[0].replace("granularity", word): value for word, value in _EACH_LAYER.items()} | {keys[0]: "full"}
    off = {"null": None, "selective": "none"}  # ms-swift's and torchtitan's word
    ways = {True: full} | ({False: {read.key: off[usual]}} if usual in off else {})
    back = one_of(ways if on is None else {True: {on.key: True}, False: {on.key: False}})
    lists = [key.replace("granularity", "modules").replace("ac.mode", "ac.targets") for key in keys]
    named = draft.settings.get(*(key for key in lists if key not in keys))
    modules = set(_WORDS.findall(str(named[1]))) - _SLIGHT if named and read.value == "selective" else set()
    if on is not None and not (on.value and read.given):
        draft.put(path, on.value, on, back=back, unless=True)
    elif read.given and read.value == "selective":
        why = f"{read}, of {units.listed(sorted(modules), 'and')}: all" if modules else f"{read}: nothing"
        draft.could(path, bool(modules), back)
        draft.assume(path, bool(modules), f"{why} counts as computed again", f"--set {path}={not modules}".lower())
    else:
        draft.put(path, read.value.lower() in ("full", "true"), read, back=back, unless=True)


def imitated(draft: Draft, read: Read[Any]) -> None:
    """Training that imitates fewer bits than it computes in."""
    why = f"{read}: imitated in 16 bits, which takes longer"
    draft.assume("trainer.recipe.precision", "bf16", why, "--set trainer.fixed_s=SECONDS, from your own logs")
