"""Projects on verl that have names of their own for a group, a batch or a turn, and EasyR1, which renames the rest.

Read in each one's code: the trainer, which repeats the prompts, and the loop of turns. PeterGriffinJin/Search-R1 at
a14dc3a, GAIR-NLP/DeepResearcher at c93be8f, OpenManus/OpenManus-RL at c66d493 (built on verl-agent), mll-lab-nu/RAGEN
at 20daedc, ltzheng/SimpleTIR at e7b5b44, TIGER-AI-Lab/verl-tool at 980962b, Agent-RL/ReCall at aaf16b3,
Simple-Efficient/RL-Factory at d0abc1d, rllm-org/rllm at 9beb6e0f, PRIME-RL/PRIME at 18ad596, hiyouga/EasyR1 at b44b311.
"""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any

from msgspec import Struct

from fleetsim.frameworks import roles
from fleetsim.frameworks.draft import Draft
from fleetsim.frameworks.reading import Read
from fleetsim.frameworks.settings import RunSettings, Setting, normal

_ACTOR, _ROLLOUT = "actor_rollout_ref.actor", "actor_rollout_ref.rollout"


class Project(Struct, frozen=True):
    """mark: a key that only this project has. group: of the samples of a prompt. turns: of the cap of turns, and more:
    turns beyond it. each: whether the cap of a response is that of one turn; turn: where that stands apart. whole: the
    window that all turns must fit into, unless forgets is above 0: of how many turns a prompt holds the text. switch:
    what turns the turns on."""

    mark: str
    group: str = ""
    turns: str = ""
    more: int = 0
    each: bool = False
    turn: str = ""
    whole: str = ""
    forgets: str = ""
    switch: str = ""


_PROMPTS = "data.max_prompt_length"  # of projects whose first prompt has `data.max_start_length`
_PROJECTS = (
    Project("retriever", f"{_ROLLOUT}.n_agent", "max_turns", 1, each=True, whole=_PROMPTS, switch="do_search"),
    Project("agent_grpo", "agent_grpo.n", "max_turns", each=True, whole=_PROMPTS),
    Project("env.env_name", "env.rollout.n", "env.max_steps", each=True),
    Project(
        "es_manager",
        "es_manager.train.group_size",
        "agent_proxy.max_turn",
        each=True,
        whole=f"{_ROLLOUT}.max_model_len",
        forgets="agent_proxy.max_context_window",
    ),
    Project("agent.tool_use", turns="agent.max_turns", each=True, whole=_PROMPTS, switch="agent.tool_use"),
    Project(
        "actor_rollout_ref.agent",
        turns="actor_rollout_ref.agent.max_turns",
        more=1,
        turn="actor_rollout_ref.agent.max_action_length",
        switch="actor_rollout_ref.agent.enable_agent",
    ),
    Project(f"{_ROLLOUT}.max_turns", turns=f"{_ROLLOUT}.max_turns"),
    Project(
        "rllm.stepwise_advantage", turns="rllm.agent.max_steps", each=True, switch="rllm.stepwise_advantage.enable"
    ),
    Project("rllm", turns="rllm.agent.max_steps"),
    Project("data.n_samples", "data.n_samples"),
)
# Prompts of a batch, where a project does not call them as verl does.
BATCH = ("data.train_batch_size", "es_manager.train.env_groups")

# EasyR1's key -> verl's, of sections before single keys.
_RENAMED = {
    "worker.actor.model.model_path": "actor_rollout_ref.model.path",
    "worker.actor.model": "actor_rollout_ref.model",
    "worker.actor.offload.offload_optimizer": f"{_ACTOR}.fsdp_config.optimizer_offload",
    "worker.actor.ulysses_size": f"{_ACTOR}.ulysses_sequence_parallel_size",
    "worker.actor.global_batch_size": f"{_ACTOR}.ppo_mini_batch_size",
    "worker.actor.padding_free": "actor_rollout_ref.model.use_remove_padding",
    "worker.actor": _ACTOR,
    "worker.rollout.tensor_parallel_size": f"{_ROLLOUT}.tensor_model_parallel_size",
    "worker.rollout": _ROLLOUT,
    "data.rollout_batch_size": "data.train_batch_size",
    "data.mini_rollout_batch_size": "data.gen_batch_size",
    "algorithm.online_filtering": "algorithm.filter_groups.enable",
}
# verl/trainer/config.py and verl/workers/*/config.py of EasyR1: defaults that are not verl's.
_DEFAULTS = {
    "data.rollout_batch_size": 512,
    "algorithm.adv_estimator": "grpo",
    "worker.rollout.gpu_memory_utilization": 0.6,
}


def with_verl_names(settings: RunSettings) -> None:
    """Let verl's keys lead to EasyR1's settings, which keep their own names on the way back."""
    if not settings.has("worker.actor", "worker.rollout"):
        return
    for key, value in _DEFAULTS.items():
        settings.found.setdefault(key, Setting(key, value, "EasyR1's default"))
    for theirs, ours in _RENAMED.items():
        for key in [key for key in (theirs, *settings.below(theirs)) if key in settings.found]:
            settings.found.setdefault(normal(ours + key[len(theirs) :]), settings.found.pop(key))
    # verl/trainer/config.py: unless it is switched off, a penalty stands in the loss or in the reward
    off = settings.get("algorithm.disable_kl")
    kept = off is None or str(off[1]).lower() != "true"
    settings.found.setdefault(f"{_ACTOR}.use_kl_loss", Setting("algorithm.use_kl_loss", kept, "EasyR1's default"))
    settings.see("algorithm.use_kl_loss", "worker.ref", "worker.reward")


def project_of(settings: RunSettings) -> Project | None:
    """The project that has keys of its own here; None for verl itself."""
    return next((project for project in _PROJECTS if settings.has(project.mark)), None)


def group_of(draft: Draft) -> Read[int] | None:
    """Samples of a prompt by the project's own key, beside which `rollout.n` repeats once more."""
    project = project_of(draft.settings)
    read = draft.maybe_count(project.group, least=0) if project is not None and project.group else None
    return read if read is not None and read.value else None


def turns_of(draft: Draft, project: Project) -> Read[int] | None:
    """The cap of turns by the project's own key; None where nothing says it, or where it is switched off."""
    read = draft.maybe_count(project.turns, least=-1) if project.turns else None
    if project.switch:
        draft.settings.see(project.switch)
        on = draft.flag(project.switch, default="rllm" not in project.mark)
        if not on.value:
            return None
    if read is None or read.value < 1:
        return None
    more = project.more
    if not more:
        return read
    return Read(f"{read} + {more}", read.value + more, read.given, lambda want: read.written(want - more))


def trajectory_of(draft: Draft, project: Project, turns: Read[int], answer: Read[int]) -> Read[int]:
    """Tokens that a trajectory generates at most. answer: the cap of a response, which is a turn's or that of all."""
    if not project.each:
        turn = draft.maybe_count(project.turn) if project.turn else None
        return answer if turn is None else roles.trajectory(draft, turn, turns, answer)
    window = draft.maybe_count(project.whole) if project.whole else None
    if window is None or (project.forgets and draft.count(project.forgets, default=0, least=-1).value > 0):
        return roles.trajectory(draft, answer, turns, None)
    if project.whole != _PROMPTS:
        return roles.trajectory(draft, answer, turns, window)

    def held(want: Any) -> Mapping[str, Any] | None:
        return window.written(want - answer.value)

    # The last turn begins with a full window.
    whole = Read(f"{window} + {answer}", window.value + answer.value, window.given, held)
    return roles.trajectory(draft, answer, turns, whole)
