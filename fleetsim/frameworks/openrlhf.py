"""OpenRLHF (OpenRLHF/OpenRLHF at 3c3be623, v0.11.0): train_ppo_ray, its dotted and its older flags.

Names and defaults: openrlhf/cli/train_ppo_ray.py (flags of v0.8 for the older names); what they do:
openrlhf/trainer/ppo_trainer_async.py.
"""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any

from fleetsim.frameworks import common, roles
from fleetsim.frameworks.draft import Draft, ServedModel
from fleetsim.frameworks.reading import Read, above_0, one_line, one_of, switched, writes
from fleetsim.frameworks.tables import put_rows


def build(draft: Draft, speed: common.TrainerSpeed | None) -> None:
    """Fill the draft from OpenRLHF's flags."""
    is_async = draft.flag("train.async_enable", "async_train", default=False)
    together = draft.flag("train.colocate_all", "colocate_all_models", default=False)
    partial = draft.flag("train.partial_rollout_enable", "partial_rollout", default=False)
    draft.mode = "asynchronous" if is_async.value else "hybrid" if together.value else "synchronous"
    draft.preset = f"openrlhf-async{'-partial' * partial.value}" if is_async.value else "openrlhf-hybrid"
    n = put_rows(draft, "model")["workload.group_size"]
    batch = draft.count("rollout.batch_size", "rollout_batch_size", default=1024)
    samples = draft.product("trainer.batch_samples", batch, n, why="prompts x responses")
    update = draft.count("train.batch_size", "train_batch_size", default=128)
    common.optimizer_steps(draft, samples, update, update.key)
    prompt = draft.maybe_count("prompt_max_len")
    answer = draft.maybe_count("rollout.max_new_tokens", "generate_max_len")
    whole = draft.maybe_count("data.max_len", "max_len") or Read("data.max_len", 2048, False)
    asked = whole.value // 4 if prompt is None else prompt.value
    length = max(1, whole.value - asked) if answer is None else answer.value
    whole_of = lambda want: whole.written(want + length)  # noqa: E731 from a prompt's cap to that of both
    if answer is None:
        own = writes("rollout.max_new_tokens")
        answer = Read(f"{whole.key} {whole.value} less the prompt", length, whole.given, own)
    else:
        words = f"{whole.key} {whole.value} - {answer.key} {length}"
        known = prompt is None and whole.given and whole.value > length
        answer = _beside_the_prompt(answer, prompt, whole)
        if known:
            prompt = Read(words, whole.value - length, True, whole_of)
    common.lengths(draft, answer, prompt)
    if prompt is None:
        draft.could("workload.prompt_tokens", None, lambda want: whole_of(common.cap_of_prompts(want)))
    _gpus(draft, is_async.value, together)
    if is_async.value:
        _async(draft, batch)
    else:
        put_rows(draft, "batches")
        if partial.value:
            draft.refuse(partial.key, True, "needs asynchronous training", "add --train.async_enable, or drop it")
    put_rows(draft, "requests")
    kl = draft.number("algo.kl.init_coef", "init_kl_coef", default=0.01)
    common.hardware_and_times(draft, speed, True, above_0(kl, 0.01))
    put_rows(draft, "trainer")
    common.ranks(draft, samples)
    _roles(draft, kl.value > 0, together)


def _beside_the_prompt(answer: Read[int], prompt: Read[int] | None, whole: Read[int]) -> Read[int]:
    """The cap of answers, which end where prompt and answer fill vLLM's max_model_len: they move together."""
    if prompt is not None and not whole.given:  # then it is the sum of both
        return answer
    asked = whole.value // 4 if answer.value >= whole.value else whole.value - answer.value
    asked = asked if prompt is None else prompt.value

    def written(want: Any) -> Mapping[str, Any] | None:
        told, most = answer.written(want), None if want is None else int(want) + asked
        stays = most is None or (most <= whole.value and not (prompt is None and whole.given))
        return told if told is None or stays else {**told, **(whole.written(most) or {})}

    length = min(answer.value, max(1, whole.value - asked))
    key = answer.key if length == answer.value else f"{whole.key} {whole.value} less the prompt"
    return Read(key, length, True, written)


def _roles(draft: Draft, reference: bool, together: Read[bool]) -> None:
    """train_ppo_ray.py: a critic, a reference and a reward model, each on GPUs of its own unless all share them."""

    def apart(role: str) -> int:
        keys = [(f"{role}.num_{word}", f"{role}_num_{word}") for word in ("nodes", "gpus_per_node")]
        return 0 if together.value else roles.nodes(draft, keys[0], keys[1], 8)

    estimator = draft.text("algo.advantage.estimator", "advantage_estimator", default="gae")
    words = switched(estimator.key, "gae", "reinforce")
    both = draft.flag("train.colocate_critic_reward", "colocate_critic_reward", default=False).value
    with_actor = draft.flag("train.colocate_actor_ref", "colocate_actor_ref", default=False).value
    if reference and not with_actor and (gpus := apart("ref")):
        roles.passed(draft, "ref.num_nodes: the reference model", gpus)
    agent = draft.maybe_text("train.agent_func_path", "agent_func_path")
    remote = draft.settings.get("reward.remote_url", "remote_rm_url")  # one, or several in a list
    model = draft.maybe_text("reward.model_name_or_path", "reward_pretrain")
    scored = model is not None and remote is None and agent is None
    its_own = 0 if both and scored else apart("critic")  # with the reward model, whose GPUs are counted
    roles.critic(draft, estimator, estimator.value == "gae", words, its_own)
    if model is not None and scored:
        roles.judged(draft, str(model), apart("reward"), ServedModel(common.model_name(model.value)))
    elif remote is not None:
        kind = "a function" if str(remote[1]).endswith(".py") else "a server"
        roles.judged(draft, f"{remote[0].key} = {one_line(remote[1], 60)}: {kind}")
    roles.put_turns(draft, None, "", "" if agent is None else str(agent))
    rank = draft.count("ds.lora.rank", "lora_rank", default=0, least=0)
    roles.adapters(draft, rank)


def _gpus(draft: Draft, is_async: bool, together: Read[bool]) -> None:
    trainer = put_rows(draft, "trainer GPUs")["trainer.gpus"]
    engines = draft.needed_count("vllm.num_engines", "vllm_num_engines", remedy="-- --vllm.num_engines 8")
    draft.take("fleet.instances", engines)
    tp = put_rows(draft, "engine")["engine.tp"]
    colocated = together.value and not is_async
    words = {"disaggregated": {together.key: False}} | ({} if is_async else {"colocated": {together.key: True}})
    why = "engines and trainer share GPUs" if colocated else "the engines have GPUs of their own"
    place = "colocated" if colocated else "disaggregated"
    draft.put("fleet.placement", place, together, why=why, back=one_of(words))
    if colocated and engines.value * tp.value > trainer.value:
        rule = f"{engines} x {tp} needs more than the actor's {trainer.value} GPUs, which they share"
        draft.refuse(engines.key, engines.value, rule, "use fewer engines or more actor GPUs")


def _async(draft: Draft, batch: Read[int]) -> None:
    put_rows(draft, "asynchronous")
    started = draft.maybe_count("rollout.vllm_generate_batch_size", "vllm_generate_batch_size")
    more = started if started is not None and started.value > batch.value else None
    put_rows(draft, "batches in order" if more is None else "surplus")
    common.oversampled(draft, more, batch, "rollout.vllm_generate_batch_size")
    if more is not None:
        draft.semantics("buffer.leftover", "carry_over", "the surplus is kept for the next batch")
