"""Projects on verl that have names of their own for a group, a batch or a turn, and EasyR1, which renames the rest.

Read in each one's code: the trainer, which repeats the prompts, and the loop of turns. PeterGriffinJin/Search-R1 at
a14dc3a, GAIR-NLP/DeepResearcher at c93be8f, OpenManus/OpenManus-RL at c66d493 (built on verl-agent), mll-lab-nu/RAGEN
at 20daedc, ltzheng/SimpleTIR at e7b5b44, TIGER-AI-Lab/verl-tool at 980962b, Agent-RL/ReCall at aaf16b3,
Simple-Efficient/RL-Factory at d0abc1d, rllm-org/rllm at 9beb6e0f, PRIME-RL/PRIME at 18ad596, hiyouga/EasyR1 at b44b311.
"""

from __future__ import annotations

from typing import Any

from msgspec import Struct
from msgspec.json import decode

from fleetsim.frameworks import roles
from fleetsim.frameworks.draft import Draft
from fleetsim.frameworks.reading import Read
from fleetsim.frameworks.settings import RunSettings, Setting
from fleetsim.frameworks.tables import FRAMEWORKS, rename


class Project(Struct, frozen=True):
    """Keys of a project. group: of the samples of a prompt. turns: of the cap of turns, and more: turns beyond it.
    each: whether the cap of a response is that of one turn; turn: where that stands apart. whole: the window that all
    turns must fit into, unless forgets is above 0: of how many turns a prompt holds the text. switch: what turns the
    turns on; off: where nothing says it, they are off. reference: whether a reference passes without a penalty, too; or
    the key that decides it, where it is not off. usual: whose defaults are not those of verl today."""

    group: str = ""
    turns: str = ""
    more: int = 0
    each: bool = False
    turn: str = ""
    whole: str = ""
    forgets: str = ""
    switch: str = ""
    off: bool = False
    reference: bool | str = False
    usual: str = ""


_PROMPTS = "data.max_prompt_length"  # of projects whose first prompt has `data.max_start_length`
# Prompts of a batch, where a project does not call them as verl does.
BATCH = ("data.train_batch_size", "es_manager.train.env_groups")


_ITS_ASYNC = "rllm.async_training"


def is_agent_flow(settings: RunSettings) -> bool:
    """Whether rLLM's own trainer runs on verl, with agents of the user's; before it had backends a switch said so."""
    backend, workflow = settings.get("rllm/backend"), settings.get("rllm.workflow.use_workflow")
    return _is_on(workflow) if backend is None else backend[1] == "verl"


def _is_on(found: tuple[Setting, Any] | None) -> bool:
    return found is not None and str(found[1]).lower() == "true"


def with_verl_names(settings: RunSettings) -> bool:
    """Let verl's keys lead to the settings of EasyR1 and rLLM, which keep their own names on the way back; whether it
    is EasyR1."""
    if is_agent_flow(settings) and settings.has("rllm/backend"):
        off = "" if _is_on(settings.get(f"{_ITS_ASYNC}.enable")) else _ITS_ASYNC
        rename("verl", settings, "rLLM", own=True, off=off)
    easy = settings.has("worker.actor", "worker.rollout")
    if easy:
        rename("verl", settings, "EasyR1")
        # Its penalty (verl/trainer/config.py), unless it is switched off, stands in the loss or in the reward.
        kept = Setting("algorithm.use_kl_loss", not _is_on(settings.get("algorithm.disable_kl")))
        settings.found.setdefault("actor_rollout_ref.actor.use_kl_loss", kept)
        settings.see("algorithm.use_kl_loss", "worker.ref", "worker.reward")
    project = project_of(settings)
    if project is not None and project.usual:
        rename("verl", settings, project.usual)
    return easy


def project_of(settings: RunSettings) -> Project | None:
    """The project that has keys of its own here; None for verl itself."""
    found = next((mark for mark in FRAMEWORKS["verl"].told["project"] if settings.has(mark)), None)
    return None if found is None else decode(FRAMEWORKS["verl"].told["project"][found][0], type=Project)


def group_of(draft: Draft) -> Read[int] | None:
    """Samples of a prompt by the project's own key, beside which `rollout.n` repeats once more."""
    project = project_of(draft.settings)
    read = draft.maybe_count(project.group, least=0) if project is not None and project.group else None
    return read if read is not None and read.value else None


def has_reference(draft: Draft) -> bool:
    """Whether the project's reference passes whatever penalty there is."""
    project = project_of(draft.settings)
    key = project.reference if project is not None else False
    said = draft.maybe_text(key) if isinstance(key, str) else None
    return bool(key) and (said is None or said.value.lower().strip("0.") not in ("", "false"))


def turns_of(draft: Draft, project: Project) -> Read[int] | None:
    """The cap of turns by the project's own key; None where nothing says it, or where it is switched off."""
    read = draft.maybe_count(project.turns, least=-1) if project.turns else None
    if project.switch:
        draft.settings.see(project.switch)
        on = draft.flag(project.switch, default=not project.off)
        if not on.value:
            return None
    if read is None or read.value < 1:
        return None
    return read.plus(project.more)


def trajectory_of(draft: Draft, project: Project, turns: Read[int], answer: Read[int]) -> Read[int]:
    """Tokens that a trajectory generates at most. answer: the cap of a response, which is a turn's or that of all."""
    window = draft.maybe_count(project.whole) if project.whole else None
    if not project.each:
        turn = draft.maybe_count(project.turn) if project.turn else None
        return answer if turn is None else roles.trajectory(draft, turn, turns, window or answer)
    if window is None or (project.forgets and draft.count(project.forgets, default=0, least=-1).value > 0):
        return roles.trajectory(draft, answer, turns, None)
    if project.whole != _PROMPTS:
        return roles.trajectory(draft, answer, turns, window)

    # The last turn begins with a full window.
    return roles.trajectory(draft, answer, turns, window.plus(answer.value, f"{window} + {answer}"))
