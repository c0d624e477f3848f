"""RLinf (RLinf/RLinf at a3816b596): reasoning and agents, in turn on shared GPUs or streamed between GPUs of their own.

Names: examples/reasoning/config/math; what they mean: rlinf/utils/placement.py (ModelParallelComponentPlacement),
rlinf/scheduler/placement/placement.py (ranges of GPUs), rlinf/runners/reasoning_runner.py (a step), rlinf/config.py.
"""

from __future__ import annotations

import re
from collections.abc import Iterator, Mapping
from typing import Any

from fleetsim.frameworks import common, roles
from fleetsim.frameworks.draft import Draft
from fleetsim.frameworks.reading import NODE_GPUS, Read, above_0, never, one_of, times
from fleetsim.frameworks.tables import put_rows
from fleetsim.records import replace

PLACES = "cluster.component_placement"
# A cluster is listed GPU by GPU: a count that no cluster has makes no list.
_MOST_GPUS = 100_000
_RANGE = re.compile(r"(\d{1,6})(?:-(\d{1,6}))?(?::[\d-]+)?")


def build(draft: Draft, speed: common.TrainerSpeed | None) -> None:
    """Fill the draft from RLinf's keys."""
    kind = draft.text("runner.task_type", default="reasoning")
    text = "reasoning" in kind.value or "coding" in kind.value
    if not text or draft.flag("eval", default="eval" in kind.value).value:  # agents' programs take `eval` as well
        other = "an evaluation: no training" if text else "no text is generated: an embodied policy is not modelled"
        rule = "fine-tuning: no rollout to plan" if kind.value == "sft" else other
        draft.refuse(kind.key, kind.value, rule, "give a configuration of task_type reasoning")
        return
    prompts = draft.needed_count("data.rollout_batch_size", remedy="-- data.rollout_batch_size=512")
    n = put_rows(draft, "model")["workload.group_size"]
    draft.product("trainer.batch_samples", prompts, n, why="prompts x responses")
    _lengths(draft)
    _gpus(draft)
    put_rows(draft, "engine")
    if draft.values.get("engine.name") == "vllm":
        put_rows(draft, "vllm")
    shared = draft.values["fleet.placement"] == "colocated"
    updates = draft.count("algorithm.n_minibatches", default=1)
    path, other = "trainer.minibatches", "trainer.recipe.optimizer_steps"
    path, other = (other, path) if shared else (path, other)
    why = "their updates count as one step" if shared else "each is trained as soon as it is complete"
    draft.put(path, updates.value, updates, why=why, unless=1)
    draft.could(other, 1, never, 1)
    put_rows(draft, "batches")
    common.transport(draft, None, {})
    _recipe(draft, speed)


def _lengths(draft: Draft) -> None:
    """Tokens of one request; of an agent's turns together, what the sequence has beside the prompt."""
    prompt, whole = draft.maybe_count("data.max_prompt_length"), draft.maybe_count("runner.seq_length")
    answer = draft.maybe_count("algorithm.sampling_params.max_new_tokens") or whole
    # rlinf/agents/rstar2, rstar2_agent_loop.py; wideseek_r1, wideseek_r1.py: one agent, or a planner of several
    loop, agents = "agentloop", draft.text("agentloop.workflow", default="").value
    caps = {"mas": ["max_planner_turns"], "sa": ["max_sa_turns"]}.get(agents, ["max_turns", "max_assistant_turns"])
    calls = roles.turns_of_calls(draft.maybe_count(f"{loop}.max_user_turns"))
    turns = roles.fewest(*(draft.maybe_count(f"{loop}.{cap}") for cap in caps), calls)
    if agents == "mas":
        draft.note(f"{loop}.workflow = mas", "agents that a planner starts: a trajectory has its own turns alone")
    mark = next((key for key in (loop, "tools") if draft.settings.has(key)), "")
    roles.put_turns(draft, turns, f"{loop}.max_turns", mark)
    judge = draft.flag(f"{loop}.use_llm_judge", default=agents in ("mas", "sa"))  # wideseek_r1.py
    if judge.value:
        roles.judged(draft, f"{judge}: a judge on a server of its own")
    pools = [key for key in draft.settings.below("tools") if key.endswith(".concurrency_limit")]
    roles.workers(draft, "tools", [draft.maybe_count(key) for key in pools])
    if answer is not None:
        asked = 0 if prompt is None else prompt.value
        rest = whole
        if whole is not None and turns is not None and asked < whole.value:
            rest = whole.plus(-asked)  # the first prompt's; of an agent behind a server the cap is each request's
        answer = roles.trajectory(draft, answer, turns, rest, "runner.seq_length", several=bool(mark))
        own = draft.settings.get("algorithm.sampling_params.max_new_tokens")
        if own is not None and whole is not None and answer.key == own[0].key:
            cap = answer.key
            back = lambda want: {cap: want, whole.key: want + asked}  # noqa: E731 the sequence grows with the answer
            answer = Read(answer.key, answer.value, True, back)
    key = "algorithm.sampling_params.max_new_tokens"
    common.lengths(draft, answer, prompt, output_key=key, prompt_key="data.max_prompt_length")


def _placed(draft: Draft) -> Iterator[tuple[str, str, set[int] | None]]:
    """Component, key and GPUs; None for all GPUs of the cluster. A key may name several components."""
    for key in draft.settings.below(PLACES):
        found = draft.settings.get(key)
        names = key.removeprefix(f"{PLACES}.").removesuffix(".placement")
        if found is None or names.endswith(".node_group"):
            continue
        text, gpus = str(found[1]).strip(), set[int]()
        for part in text.split(",") if text != "all" else ():
            match = _RANGE.fullmatch(part.strip())
            if match is None:
                draft.refuse(found[0].key, text, "must be all, or ranges of GPUs such as 0-7", "mend it")
                break
            gpus |= set(range(int(match[1]), min(int(match[2] or match[1]), int(match[1]) + _MOST_GPUS) + 1))
        for name in names.split(","):
            yield name.strip(), found[0].key, None if text == "all" else gpus


def _gpus(draft: Draft) -> None:
    """The trainer's GPUs, the engines, and the GPUs of what stands beside them."""
    placed = {name: (key, gpus) for name, key, gpus in _placed(draft)}
    nodes = draft.count("cluster.num_nodes", default=1)
    everything = set(range(min(nodes.value * NODE_GPUS, _MOST_GPUS + 1)))
    sizes: dict[str, set[int]] = {}
    for role in ("actor", "rollout"):
        if role not in placed:
            draft.refuse(f"{PLACES}.{role}", None, "is missing: it says which GPUs the role has", f"{role}: 0-7")
        gpus = placed.get(role, ("", {0}))[1]
        sizes[role] = everything if gpus is None else gpus or {0}
    keys = {role: placed[role][0] if role in placed else f"{PLACES}.{role}" for role in sizes}
    keys["rollout"] = keys["rollout"] if "rollout" in placed else f"{PLACES}.rollout,reward"
    shared = bool(sizes["actor"] & sizes["rollout"])
    trainer = Read(keys["actor"], len(sizes["actor"]), True)
    rollout = Read(keys["rollout"], len(sizes["rollout"]), True)

    def place(train: int, roll: int, together: bool) -> Mapping[str, Any] | None:
        if keys["actor"] == keys["rollout"]:
            return {keys["actor"]: f"0-{train - 1}", nodes.key: -(-train // NODE_GPUS)} if together else None
        first = 0 if together else roll
        ranges = {
            keys["rollout"]: f"0-{(train if together else roll) - 1}",
            keys["actor"]: f"{first}-{first + train - 1}",
        }
        return {**ranges, nodes.key: -(-(first + train) // NODE_GPUS)}

    draft.put("trainer.gpus", trainer.value, trainer, nodes, back=lambda want: place(want, rollout.value, shared))
    if any(placed[role][1] is None for role in sizes if role in placed):
        why = f"all GPUs of {nodes}: {NODE_GPUS} each, which no setting says"
        draft.assume("trainer.gpus", trainer.value, why, f"-- {keys['actor']}=0-{trainer.value - 1}")
    tp, pp = put_rows(draft, "ranks").values()
    each = tp if pp.value == 1 else times(tp, pp)
    held = lambda want: place(want if shared else trainer.value, want, shared)  # noqa: E731
    draft.parted("fleet.instances", Read(rollout.key, rollout.value, True, held), each)
    kinds = one_of({"colocated": place(rollout.value, rollout.value, True) or {},
                    "disaggregated": place(trainer.value, rollout.value, False) or {}})  # fmt: skip
    draft.mode, draft.preset = ("collocated" if shared else "disaggregated"), "trl-grpo"
    why = "rollout and training share GPUs" if shared else "they share no GPU"
    draft.put("fleet.placement", "colocated" if shared else "disaggregated", trainer, rollout, why=why, back=kinds)
    held = sizes["actor"] | sizes["rollout"]
    for name, (key, gpus) in placed.items():
        own = len((everything if gpus is None else gpus) - held)
        if name.endswith("_judge"):
            roles.judged(draft, key, own)
        elif name.endswith("inference") and own:
            roles.passed(draft, key, own, "trainer.recipe.old_log_probs")
        elif name == "reward" and own and draft.flag("reward.use_reward_model", default=False).value:
            roles.judged(draft, key, own)


def _recipe(draft: Draft, speed: common.TrainerSpeed | None) -> None:
    """The passes and the layout: reasoning_runner.py, megatron_actor_worker.py and fsdp_actor_worker.py."""
    old = draft.flag("algorithm.recompute_logprobs", default=True)
    own = lambda want: {old.key: want, "rollout.return_logprobs": not want}  # noqa: E731 one of the two must be on
    reference = above_0(draft.number("algorithm.kl_beta", default=0.0), 0.001)
    common.hardware_and_times(draft, speed, replace(old, back=own), reference)
    put_rows(draft, "trainer")
    megatron = draft.values.get("trainer.recipe.backend") == "megatron"
    put_rows(draft, "megatron" if megatron else "fsdp", "actor.model.")
    if not megatron and draft.text("actor.fsdp_config.strategy", default="fsdp").value == "fsdp":
        put_rows(draft, "mesh")
    if megatron:
        host = draft.flag("actor.optim.optimizer_cpu_offload", default=False).value
        put_rows(draft, "optimizer on the host" if host else "offload")
    critic = draft.flag("critic.use_critic_model", default=False)
    roles.critic(draft, critic, critic.value, lambda want: {critic.key: True} if want else {})
    if draft.flag("reward.use_reward_model", default=False).value:
        roles.judged(draft, "reward.use_reward_model = True")
    kind = draft.text("reward.reward_type", default="")
    if kind.value == "code_offline":  # rlinf/algorithms/rewards/code
        roles.judged(draft, f"{kind}: a judge behind an interface")
    lora = draft.flag("actor.model.is_lora", default=False)
    roles.adapters(draft, lora)
