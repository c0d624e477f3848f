"""What every framework has: a way in and out, and what its configuration leaves open, with the assumption for it."""

from __future__ import annotations

import math
import os
import re
from collections.abc import Callable, Mapping
from typing import Any

from fleetsim import units
from fleetsim.frameworks.draft import Assumed, Draft
from fleetsim.frameworks.reading import NODE_GPUS, Back, Read, never, worded, writes

# Published runs of reasoning and instruct models reach 0.27 to 0.39 of their length cap in the mean (Marin's and
# AReaL's runs, verl's V1 report, NeMo-RL's performance page): their middle.
MEAN_OF_CAP = 0.33
LENGTH_CV = 1.0
PROMPT_OF_CAP = 0.25
DEFAULT_CAP = 8192
DEFAULT_GPU = "H100-SXM"
OUTPUT_CAP = "workload.output_tokens.max"
# Text that stands for a model's name, and is none.
_PLACEHOLDER = re.compile(
    r"\s|[<>]|path/to/[\w.-]*(model|checkpoint)[\w.-]*\Z|path_to_\w*\Z|(\A|/)(your([_-][^/]*)?|to|(\w*_)?model_?path|path|sft|megatron)\Z",
    re.IGNORECASE,
)
# A model in the cache of huggingface_hub; and the ends of a path that say which state of a model lies there, not which.
_CACHED = re.compile(r"(?:\A|/)models--([^/]+?)--([^/]+)")
_STATE = re.compile(
    r"(/(global_?step|checkpoint|ckpt|epoch|step|iter)[_-]?\d*|/(actor|policy|huggingface|hf|hf_model|latest|final|models?))+\Z",
    re.IGNORECASE,
)

# The transformers whose mixtures are one product (modeling_utils.py, get_correct_experts_implementation).
_ONE_PRODUCT = (5,)

# (model, GPU, trainer GPUs) -> seconds per trained token of one update and of one log-prob pass; None if unknown.
TrainerSpeed = Callable[[str, str, int], tuple[float, float] | None]


def model(draft: Draft, *keys: str, remedy: str) -> None:
    """The model: a Hugging Face id, a folder with a config.json, or the last part of a path."""
    read = draft.maybe_text(*keys)
    if "engine.model" in draft.given:
        return
    if read is None:
        draft.could("engine.model", None, lambda want: {keys[0]: str(want).removesuffix("/config.json")})
        draft.refuse(keys[0], None, "is missing: the model says how fast an engine is", remedy)
        return
    shown = model_name(read.value)
    if not shown:
        placeholder = any(c.isprintable() for c in read.value.strip().rstrip("/"))
        draft.refuse(read.key, read.value, "names no model" + (": a placeholder" if placeholder else ""), remedy)
        return
    draft.put("engine.model", shown, read, back=lambda want: read.written(str(want).removesuffix("/config.json")))


def model_name(text: str) -> str:
    """The model that a setting names: a Hugging Face id, a folder's config.json, or the last part of a path that says
    which model it is; empty where that is a placeholder."""
    name = text.strip().rstrip("/")
    config = os.path.join(name, "config.json")
    try:
        local = "\0" not in name and os.path.isfile(config)
    except (OSError, ValueError):
        local = False
    if local:
        shown = config
    elif name.count("/") == 1 and not name.startswith((".", "/", "~", "$")):
        shown = name
    else:
        cached = _CACHED.search(name)
        shown = "/".join(cached.groups()) if cached else (_STATE.sub("", name) or name).rpartition("/")[2]
    shown = "".join(c for c in shown if c.isprintable())[:300]
    return "" if not local and (_PLACEHOLDER.search(name) or _PLACEHOLDER.search(shown)) else shown


def lengths(
    draft: Draft,
    output_cap: Read[int] | None,
    prompt_cap: Read[int] | None,
    caps_from: str = "no length cap found",
    *,
    output_key: str = "",
    prompt_key: str = "",
) -> None:
    """Output lengths from their cap, prompt lengths from theirs: configurations hold caps, never means.

    output_key, prompt_key: where a cap that is not there would stand.
    """
    if output_cap is not None:
        draft.put(OUTPUT_CAP, output_cap.value, output_cap)
    else:
        draft.could(OUTPUT_CAP, DEFAULT_CAP, writes(output_key, DEFAULT_CAP), None)
        draft.assume(OUTPUT_CAP, DEFAULT_CAP, caps_from)
    cap = draft.values.get(OUTPUT_CAP, DEFAULT_CAP)
    mean, why = max(1, round(MEAN_OF_CAP * cap)), "as published runs have it; a configuration says caps only"
    own = "--set workload.output_tokens.mean=TOKENS, from your own logs"
    draft.assume("workload.output_tokens.mean", mean, f"{units.share(MEAN_OF_CAP, 0)} of the cap, {why}", own)
    why = "standard deviation / mean; the tail decides what a sync waits"
    draft.assume("workload.output_tokens.cv", LENGTH_CV, why)
    path = "workload.prompt_tokens"
    if prompt_cap is not None:
        tokens = max(1, round(PROMPT_OF_CAP * prompt_cap.value))
        why = f"{units.share(PROMPT_OF_CAP, 0)} of the cap; --set {path}=TOKENS"
        draft.put(path, tokens, prompt_cap, why=why, back=lambda want: prompt_cap.written(cap_of_prompts(want)))
        draft.guesses.add(path)
    else:
        draft.could(path, 512, lambda want: writes(prompt_key)(cap_of_prompts(want)))
        draft.assume(path, 512, "tokens of a prompt; the configuration says no cap")


def hardware_and_times(
    draft: Draft,
    speed: TrainerSpeed | None,
    old: Read[bool] | bool,
    reference: Read[bool] | bool = False,
    *,
    taught: bool = False,
    called: str = "old log-probs",
) -> None:
    """GPU type, the passes beside the update, seconds of the trainer and of a sync.

    old, reference: whether log-probs of the policy, and of a reference model, are computed, and the settings that make
    it so or not, if any do. taught: a teacher passes as a reference does. called: the policy's own pass.
    """
    name = draft.given.get("engine.model", draft.values.get("engine.model"))
    gpus = draft.given.get("trainer.gpus", draft.values.get("trainer.gpus"))
    measured = "--set trainer.fixed_s=SECONDS --set trainer.per_token_s=0 --set trainer.phases=[], from your own logs"

    def estimated(gpu: Any) -> tuple[float, float] | None:
        known = isinstance(name, str) and isinstance(gpu, str) and isinstance(gpus, int)
        return speed(name, gpu, gpus) if speed is not None and known else None

    named = draft.maybe_text("launcher.accelerators")  # of SkyPilot, whose GPU may be none that is known
    found = None if named is None else estimated(named.value)
    if named is not None and (found or speed is None):
        draft.take("engine.gpu", named)
    else:
        draft.assume("engine.gpu", DEFAULT_GPU, "the configuration does not name the GPU")
    gpu = draft.given.get("engine.gpu", draft.values.get("engine.gpu"))
    found = found if named is not None and gpu == named.value else estimated(gpu)
    read = {"old_log_probs": old, "reference": reference}
    own, other = (pass_.value if isinstance(pass_, Read) else pass_ for pass_ in read.values())
    made_by = {"framework": draft.framework, "old_log_probs": own, "reference": other or taught}
    if found is None:
        why = "seconds of compute per optimizer step: no model shape to estimate from"
        draft.assume("trainer.fixed_s", 20.0, why, measured)
        draft.comments |= dict.fromkeys((f"trainer.recipe.{name}" for name in made_by), "in these 20 seconds")
    else:
        why = f"estimated for an update on {gpus} {gpu}; a plan works it out for its own batch and recipe"
        draft.assume("trainer.fixed_s", 0.0, "all trainer seconds are counted per token", measured)
        draft.assume("trainer.per_token_s", _short(found[0]), why, measured)
        made = {called: own, "reference log-probs": other or taught}
        phases = [{"name": which, "per_token_s": _short(found[1])} for which, is_made in made.items() if is_made]
        if phases:
            draft.assume("trainer.phases", phases, "estimated forward passes", measured)
    draft.values |= {f"trainer.recipe.{name}": value for name, value in made_by.items()}
    for name, pass_ in read.items():
        if isinstance(pass_, Read):
            draft.could(f"trainer.recipe.{name}", pass_.value, pass_.written)
    pin = draft.settings.pinned.get("transformers")
    if pin is not None and pin.only_before(_ONE_PRODUCT):
        why = f"{pin.text}: the experts of a sharded mixture one by one"
        draft.put("trainer.recipe.experts", "looped", why=why, back=never)
    how = "the seconds of a sync follow from the model's bytes and the bandwidths of sync.link"
    remedy = "--set sync.pause_s=SECONDS --set sync.trainer_block_s=SECONDS --set sync.publish_s=SECONDS"
    draft.assumed.append(Assumed("sync.pause_s", "by transport", how, remedy))
    shared = draft.values.get("fleet.placement") in ("colocated", "colocated_lending")
    if shared and "fleet.switch_s" not in draft.values:
        draft.assume("fleet.switch_s", 5.0, "seconds to hand the GPUs over, each way")


def filtering(draft: Draft, read: Read[bool], over: Read[float] | None = None) -> None:
    """A filter of groups without gradient: the configuration switches it on, the share is the data's.

    over: so many times the prompts of a batch are generated, from which it is picked; the others are dropped.
    """
    path = "workload.filter.zero_variance_share"
    draft.could(path, 0.0, lambda want: read.written(want > 0), 0.0)
    if read.value and over is not None and over.value > 1:
        why = f"{over} prompts are generated for each that is trained"
        draft.assume(path, round(1 - 1 / over.value, 4), f"{read}; {why}", f"--set {path}=SHARE")
    elif read.value:
        why = f"{read}: the share of groups that it drops is not in a configuration"
        draft.assume(path, 0.0, why, f"--set {path}=SHARE, from your own logs")


def engine_name(draft: Draft, read: Read[str], known: Mapping[str, str]) -> None:
    """The rollout engine. known: the framework's word -> the scenario's."""
    word = read.value.lower()
    back = worded(known, read.written)
    if word in known:
        draft.put("engine.name", known[word], read, back=back)
    else:
        draft.could("engine.name", None, back)
        draft.note(str(read), "no rollout engine that is simulated: vLLM's scheduler stands in")


def entry_point(draft: Draft, point: str, why: str) -> None:
    """How the framework starts vLLM: limits that no setting gives are those of this start."""
    if draft.values.get("engine.name", "vllm") == "vllm":
        draft.semantics("engine.entry_point", point, why)


def transport(draft: Draft, read: Read[str] | None, words: Mapping[str, str]) -> None:
    """How weights travel. words: the framework's word -> the scenario's, for engines with GPUs of their own."""
    if draft.values.get("fleet.placement") == "colocated":
        draft.semantics("sync.transport", "cuda_ipc", "weights change hands on the GPU that both use")
    elif read is not None and read.value.lower() in words:
        draft.put("sync.transport", words[read.value.lower()], read, back=worded(words, read.written))
    else:
        if read is not None:
            draft.could("sync.transport", "collective_broadcast", worded(words, read.written))
        draft.semantics("sync.transport", "collective_broadcast", "one rank sends to all engines")
        if read is not None and read.given:
            draft.note(str(read), "this transport: a collective broadcast stands in")


def optimizer_steps(draft: Draft, batch: Read[int], mini: Read[int] | None, key: str) -> None:
    """Optimizer steps of an epoch: the batch over a mini-batch, both counted in the same. key: the mini-batch's.

    A framework may refuse a mini-batch of its own that is larger than the batch, or does not divide it: the batch then
    says both.
    """

    def back(want: Any) -> Mapping[str, Any] | None:
        if not isinstance(want, int) or batch.value % want:
            return None
        return writes(key)(batch.value // want)

    path = "trainer.recipe.optimizer_steps"
    if mini is not None and (mini.value >= batch.value or batch.value % mini.value):
        both = "trainer.batch_samples"
        draft.could(both, draft.values.get(both), lambda _: writes(key)(batch.value))
    mini, why = mini or batch, "their updates count as one step"
    steps = max(1, batch.value // mini.value)
    draft.where(mini.value < batch.value, path, steps, batch, mini, now=1, why=why, back=back, unless=1)


def ranks(draft: Draft, samples: Read[int] | None = None) -> int:
    """Data-parallel ranks, and what every trainer asks: whole ones and, where it asks that too, a sample for each."""
    gpus = draft.values.get("trainer.gpus", 1)
    names = [n for n in ("tp", "pp", "cp") if draft.values.get(f"trainer.recipe.{n}")]
    each = math.prod(draft.values[f"trainer.recipe.{n}"] for n in names)
    shown = " x ".join(names) or "1"
    if gpus % each:
        draft.refuse("trainer.gpus", gpus, f"must be a multiple of {shown} = {each}", "change one of them")
    elif samples is not None and samples.value < gpus // each:
        rule = f"is less than a sample for each of {gpus // each} data-parallel ranks"
        draft.refuse(samples.key, samples.value, rule, "have a larger batch, or fewer trainer GPUs")
    return max(1, gpus // each)


SHARDS = "trainer.recipe.shards"
# Words for GPUs that share the weights: all of a server, or none (torch's ShardingStrategy; accelerate has numbers).
_SHARING = {"hybrid": NODE_GPUS, "no_shard": 1, "multi_gpu": 1}
_STRATEGIES = {"3": "no_shard", "4": "hybrid", "5": "hybrid"}


def shared(draft: Draft, keys: list[str], options: Mapping[str, Any]) -> None:
    """GPUs that share the weights where not all do: so many, or as many as a word means; of copies: so many groups of
    them. least: fewer mean all. back no: the program itself takes no such setting."""
    read, gpus = draft.maybe_text(*keys), draft.values.get("trainer.gpus", 1)
    text = "" if read is None else read.value.lower()
    text = _STRATEGIES.get(text, "") if text.isdigit() and keys[0].endswith("strategy") else text
    said = int(text) if text.isdigit() else next((n for word, n in _SHARING.items() if word in text), 0)
    copies, key = options.get("of") == "copies", read or Read(keys[0], "", False)

    def back(want: int | None) -> Mapping[str, Any]:
        return {keys[0]: max(1, gpus // (want or gpus)) if copies else want or -1}

    value, why = max(1, gpus // said) if copies and said else said, "groups of GPUs hold copies of the weights"
    asked, way = said > copies and said >= options.get("least", 1), never if "back" in options else back
    draft.where(asked, SHARDS, value, key, why=why, back=way, unless=None)


_WIDE = {"bfloat16": "bfloat16", "bf16": "bfloat16", "float16": "float16", "fp16": "float16"}
# Parts of a setting's text, the longer one first; GPTQ and AWQ are taken to be of 4 bits.
_SMALL = {"mxfp4": "mxfp4", "fp4": "nvfp4", "fp8": "fp8", "int4": "int4", "awq": "int4", "gptq": "int4"}


def oversampled(draft: Draft, started: Read[int] | None, batch: Read[int], key: str) -> None:
    """Prompts that are started for a batch of them, None where no more than it holds. key: what would say them."""
    back: Back = lambda want: {key: round(want * batch.value)} if want > 1 else None  # noqa: E731 a surplus
    if started is None:
        draft.could("buffer.oversampling", 1.0, back, 1.0)
    else:
        draft.put("buffer.oversampling", started.value / batch.value, started, batch, back=back)


def weights_type(draft: Draft, *keys: str) -> None:
    """The type of the engine's weights, where a setting says it; else they are as the checkpoint has them."""
    read = draft.maybe_text(*keys)
    if read is None:
        draft.could("engine.dtype", "auto", writes(keys[0], ""), "auto")
        return
    value = read.value.lower()
    small = next((dtype for word, dtype in _SMALL.items() if word in value), None)
    if small is not None or value in _WIDE:
        draft.put("engine.dtype", small or _WIDE[value], read)
    elif "int" in value:
        draft.note(str(read), "quantized weights of this type: 16-bit weights are simulated")


def listed(draft: Draft, key: str, what: str) -> Read[int] | None:
    """How many a list names; None where there is none."""
    found = draft.settings.get(key)
    if found is None or not isinstance(found[1], list) or not found[1]:
        return None
    return Read(f"{what} in {found[0].key}", len(found[1]), True)


def cap_of_prompts(tokens: float) -> int:
    """The cap of which so many tokens are the assumed share."""
    return round(tokens / PROMPT_OF_CAP)


def _short(seconds: float) -> float:
    return float(f"{seconds:.4g}")
