"""AReaL (inclusionAI/AReaL at 4aef98d8d): asynchronous GRPO and PPO.

Names and defaults: areal/api/cli_args.py (InferenceEngineConfig, GenerationHyperparameters, SGLangConfig, vLLMConfig);
the parallelism strings: areal/api/alloc_mode.py; what it does: areal/infra/staleness_manager.py.
"""

from __future__ import annotations

import math
import re
from collections.abc import Mapping
from typing import Any

from fleetsim.frameworks import common, roles
from fleetsim.frameworks.draft import Draft, ServedModel
from fleetsim.frameworks.reading import Back, Read, never, one_line, one_of, switched, times
from fleetsim.frameworks.sides import adapter
from fleetsim.frameworks.tables import put_rows

_DIMENSION = re.compile(r"([dptcem])(\d{1,4})")
# Layers of a mixture split on their own: of theirs, what the experts have stays.
_ATTENTION = re.compile(r"\(attn:([^|()]*)\|ffn:[^|()e]*(e\d{1,4})?[^|()]*\)")
_PART = re.compile(r"(?:(\w+)(?:\[\w+\])?[:.])?((?:[dptcem]\d{1,4})+)")

_NO_BOUND = 1e6  # versions
_CAPS = ("max_turns", "max_steps", "max_llm_calls_per_run")
_AGENTS = re.compile(r"agent|search|multi-?turn|tool")

# The class that AReaL's own defaults name: with it alone nobody asked for an agent.
_OWN_AGENT = "online_agent._OnlineAgent"


def build(draft: Draft, speed: common.TrainerSpeed | None) -> None:
    """Fill the draft from AReaL's keys."""
    draft.mode, draft.preset = "asynchronous", "areal"
    put_rows(draft, "model")
    n, own = draft.count("gconfig.n_samples", default=1), draft.maybe_count("n_trajs")  # an episode has so many
    # Files before the trainer's own grouping (rl_trainer.py) name a launcher, no scheduler: a prompt is one episode.
    parts = [n] if own is None else [n, own] if draft.settings.has("scheduler.type") else [own]
    n = draft.product("workload.group_size", *parts)
    batch = _batch(draft, n)
    _lengths(draft)
    engine = _parallelism(draft)
    _engine(draft, engine)
    eta = draft.number("rollout.max_head_offpolicyness", default=0.0)
    # A bound that no run reaches is none; the way back to one is the value itself.
    unbounded = eta.value > _NO_BOUND
    law, why = "version_window", "(eta + version + 1) batches less what is accepted or runs"
    if unbounded:
        law, why = "unbounded", f"{eta}: only the rollouts in flight are limited"
    draft.could("admission.law", law, one_of({"unbounded": {eta.key: 1e9}}))
    draft.semantics("admission.law", law, why)
    draft.where(not unbounded, "admission.max_staleness", eta.value, eta, back=eta.written)
    most = draft.count("rollout.max_concurrent_rollouts", default=batch.value)
    draft.product("fleet.max_in_flight_samples", most, n, why="rollouts are prompts with all samples")
    put_rows(draft, "rollouts")
    # areal/api/cli_args.py, should_compute_prox_logp
    decoupled = draft.flag("actor.use_decoupled_loss", default=False)
    recompute = draft.flag("actor.recompute_logprob", default=False)
    method = draft.text("actor.prox_logp_method", default="recompute")
    old = recompute
    if decoupled.value:
        old = Read(method.key, method.value != "loglinear", True, switched(method.key, "recompute", "loglinear"))
    penalty = draft.number("actor.kl_ctl", default=0.1)
    with_ref = {"actor.kl_ctl": 0.1, "ref.backend": "${actor.backend}", "ref.path": "${actor.path}"}
    back = one_of({True: with_ref, False: {penalty.key: 0.0}})
    reference = Read(penalty.key, penalty.value > 0 and draft.settings.has("ref"), True, back)
    common.hardware_and_times(draft, speed, old, reference)
    put_rows(draft, "trainer")
    _roles(draft)


def _lengths(draft: Draft) -> None:
    """areal/api/cli_args.py, GenerationHyperparameters: max_new_tokens are those of one request, max_tokens those of
    a conversation with its prompt. What an example of AReaL calls its turns stands in sections of its own."""
    settings = draft.settings
    keys = [k for k in settings.found if k.rpartition(".")[2] in _CAPS and "eval" not in k]
    turns = draft.maybe_count(*keys) if keys else None
    marks = ["workflow", "agent_builder_path", "econfig", "max_tokens_per_trajectory", "rollout.agent", "n_trajs"]
    named = settings.get("rollout.agent.agent_cls_path")
    if named is not None and str(named[1]).endswith(_OWN_AGENT):
        marks.remove("rollout.agent")
    agent = next((mark for mark in marks if settings.has(mark)), "")
    experiment = draft.maybe_text("experiment_name")  # an example's workflow may stand in its program alone
    if not agent and experiment is not None and _AGENTS.search(experiment.value):
        agent = str(experiment)
    several, turn = bool(agent) or turns is not None, draft.count("gconfig.max_new_tokens", default=16384)
    if settings.has("tir"):  # tir_workflow.py: it counts calls, and a turn is a request up to one and one to its end
        turns, turn = roles.turns_of_calls(turns), times(turn, Read("requests of a turn", 2, True))
    roles.put_turns(draft, turns, "", agent)
    keys = ["max_tokens_per_trajectory", "tir.max_length", "gconfig.max_tokens", "rollout.agent.engine_max_tokens"]
    whole = draft.maybe_count(*keys) or Read("gconfig.max_tokens", 32768, False)
    answer = roles.trajectory(draft, turn, turns, whole, several=several and turns is None)
    common.lengths(draft, answer, draft.maybe_count("train_dataset.max_length"), prompt_key="train_dataset.max_length")


def _roles(draft: Draft) -> None:
    """A critic and a teacher: areal/trainer/rl_trainer.py makes each where its section stands."""
    settings = draft.settings

    backend = Read("critic.backend", None, settings.has("critic"))
    with_it = {f"critic.{key}": f"${{actor.{key}}}" for key in ("backend", "path")}
    with_it |= {f"critic.{key}": f"${{{key}}}" for key in ("experiment_name", "trial_name")}
    roles.critic(draft, backend, settings.has("critic"), one_of({True: with_it, False: {}}), _own_gpus(draft, "critic"))
    if settings.has("teacher"):
        path = draft.text("teacher.path", default="a teacher")
        roles.taught(draft, str(path), *_own_engines(draft, "teacher"))
    if settings.has("judge_engine"):
        roles.judged(draft, "judge_engine: a judge", *_own_engines(draft, "judge_engine"))
    if settings.has("ref") and draft.values.get(roles.REFERENCE) and (apart := _own_gpus(draft, "ref")):
        roles.passed(draft, "ref.backend: the reference model", apart)
    if any(draft.flag(f"{role}.use_lora", default=False).value for role in ("actor", "rollout")):
        rank = draft.count("actor.lora_rank", "vllm.max_lora_rank", "sglang.max_lora_rank", default=32)
        roles.adapters(draft, rank)
        adapter(draft, rank)
    other = "vllm" if draft.values.get("engine.name") != "vllm" else "sglang"
    settings.see("critic", "ref", "teacher", "judge_engine", other)


def _own_engines(draft: Draft, role: str) -> tuple[int, ServedModel]:
    """GPUs of a role that reads every sample, and its engines."""
    gpus, sizes = _own_gpus(draft, role), _sizes(draft, draft.maybe_text(f"{role}.backend"))[1]
    model = roles.served(draft, (f"{role}.path",)).model
    return gpus, ServedModel(model, math.prod(sizes[letter] for letter in "ptc") if gpus else 0)


def _own_gpus(draft: Draft, role: str) -> int:
    """GPUs of a role that does not share another's."""
    backend = draft.maybe_text(f"{role}.backend")
    if backend is None or draft.text(f"{role}.scheduling_strategy.type", default="separation").value == "colocation":
        return 0
    sizes = _sizes(draft, backend)[1]
    return math.prod(sizes[letter] for letter in "dptc")


def _batch(draft: Draft, n: Read[int]) -> Read[int]:
    """Prompts of a batch."""
    batch = draft.needed_count("train_dataset.batch_size", remedy="-- train_dataset.batch_size=256")
    samples = times(batch, n)
    consumer = draft.count("rollout.consumer_batch_size", default=1)

    def both(want: int) -> dict[str, Any] | None:
        prompts = samples.written(want)  # the staleness manager counts in batches of its own size
        return None if prompts is None else {**prompts, consumer.key: want // n.value}

    draft.put("trainer.batch_samples", samples.value, batch, n, why="prompts x responses", back=both)
    if consumer.given and consumer.value != batch.value:
        rule = f"differs from {batch}, the batch that is trained"
        draft.refuse(consumer.key, consumer.value, rule, "make them equal")
    elif consumer.value != batch.value:
        why = "AReaL's staleness then counts in batches of one prompt: whole batches are simulated"
        draft.note(f"{consumer.key} is not set", why)
    return batch


def _parallelism(draft: Draft) -> str:
    """fleet.instances, engine.tp and trainer.gpus from `rollout.backend` and `actor.backend`, or `allocation_mode`."""
    rollout, actor = draft.maybe_text("rollout.backend"), draft.maybe_text("actor.backend")
    old = draft.maybe_text("allocation_mode")
    if old is not None and (rollout is None or actor is None):
        first, plus, second = old.value.partition("+")
        whole = lambda text: {old.key: f"{text}{plus}{second}"}  # noqa: E731 the other half as it is
        rollout = Read(old.key, first, True, whole)
        actor = Read(old.key, second, True, lambda text: {old.key: f"{first}+{text}"}) if plus else rollout
    for key, read in (("rollout.backend", rollout), ("actor.backend", actor)):
        if read is None:
            draft.refuse(key, None, "is missing: it says how many GPUs there are", f"-- {key}=sglang:d4t1")
    engine, sizes = _sizes(draft, rollout)
    backend, trainer = _sizes(draft, actor)
    shared = draft.text("rollout.scheduling_strategy.type", default="separation").value == "colocation"
    if rollout is not None and actor is not None:
        letter = {name: _letter(rollout, engine, sizes, name) for name in "tdp"}
        draft.put("engine.tp", sizes["t"], rollout, back=letter["t"])
        draft.put("fleet.instances", sizes["d"], rollout, why="d: data-parallel servers", back=letter["d"])
        _trainer(draft, actor, backend, trainer)
        draft.put("engine.pp", sizes["p"], rollout, why="p: pipeline stages", back=letter["p"], unless=1)
        name = _letter(rollout, "", sizes, "d")
        draft.could("engine.name", None, lambda want: _named(name, want, sizes["d"]))
    kind = {"colocated": "colocation", "disaggregated": "separation"}
    place = one_of({k: {"rollout.scheduling_strategy.type": v} for k, v in kind.items()})
    draft.could("fleet.placement", None, place, "disaggregated")
    draft.semantics(
        "fleet.placement",
        "colocated" if shared or (old is not None and "+" not in old.value) else "disaggregated",
        "rollout and training share GPUs" if shared else "rollout has GPUs of its own",
    )
    return engine


def _trainer(draft: Draft, actor: Read[str], backend: str, sizes: dict[str, int]) -> None:
    """The trainer's GPUs and ranks; its data-parallel ranks follow from the GPUs."""
    ranks = math.prod(sizes[k] for k in "ptc")
    gpus = _letter(actor, backend, sizes, "d")
    back = lambda want: None if want % ranks else gpus(want // ranks)  # noqa: E731
    draft.put("trainer.gpus", ranks * sizes["d"], actor, why="d x p x t x c", back=back)
    for name in ("tp", "pp", "cp", "ep"):
        letter, back = name[0], _letter(actor, backend, sizes, name[0])
        value = None if sizes[letter] == 1 else sizes[letter]
        draft.put(f"trainer.recipe.{name}", value, actor, back=back, unless=None)
    turned = _letter(Read(actor.key, "", True), "", sizes, "d")
    kind = {"fsdp": "fsdp", "archon": "fsdp", "megatron": "megatron"}.get(backend)
    if not backend:  # a string without a name: alloc_mode.py of 2025
        kind = "megatron" if max(sizes["p"], sizes["e"]) > 1 else "fsdp"
    named = never if actor.key == "allocation_mode" else lambda want: _named(turned, want, sizes["d"])
    draft.put("trainer.recipe.backend", kind, actor, back=named, unless=None)


def _letter(read: Read[str], engine: str, sizes: dict[str, int], letter: str) -> Back:
    """Back from one dimension of `backend:d4p1t2`, or of half of an `allocation_mode`: the others as they are."""
    between = "." if f"{engine}." in read.value else ":"

    def back(want: Any) -> Mapping[str, Any] | None:
        if not isinstance(want, int):
            return None
        changed = {**sizes, letter: want}
        shown = "".join(f"{k}{n}" for k, n in changed.items() if n > 1 or k in "dpt")
        return read.written(f"{engine}{between}{shown}" if engine else shown)

    return back


def _named(back: Back, name: str | None, size: int) -> dict[str, str] | None:
    """The same sizes for another engine."""
    sizes = back(size)
    return None if name is None or sizes is None else {key: f"{name}:{text}" for key, text in sizes.items()}


def _sizes(draft: Draft, read: Read[str] | None) -> tuple[str, dict[str, int]]:
    sizes: dict[str, int] = dict.fromkeys("dptce", 1)
    if read is None:
        return "", sizes
    match = _PART.fullmatch(_ATTENTION.sub(r"\1\2", read.value.strip()))
    if match is None:
        rule = "must read backend:d<data>p<pipeline>t<tensor>c<context>, one part per role"
        draft.refuse(read.key, one_line(read.value), rule, "for example sglang:d4t1")
        return "", sizes
    for letter, size in _DIMENSION.findall(match[2]):
        sizes["t" if letter == "m" else letter] = max(1, int(size))  # m: tensor ranks in files before 0.3
    return (match[1] or "").lower(), sizes


def _engine(draft: Draft, engine: str) -> None:
    if engine in ("vllm", "sglang"):
        draft.put("engine.name", engine, Read("rollout.backend", engine, True), back=one_of({}))
    put_rows(draft, "vllm" if engine == "vllm" else "sglang")
    if engine != "vllm":
        # areal/api/cli_args.py, SGLangConfig: prompts are not cut, max_prefill_tokens bounds those that start together
        chunk = draft.maybe_count("sglang.chunked_prefill_size", least=-1)
        whole = chunk is None or chunk.value < 1
        tokens = draft.count("sglang.max_prefill_tokens", default=32768) if chunk is None or whole else chunk
        draft.put("engine.max_num_batched_tokens", tokens.value, tokens, why="prompts are not cut" if whole else "")
        put_rows(draft, "cache")
