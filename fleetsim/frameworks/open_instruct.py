"""open-instruct (allenai/open-instruct at e6c3044aa): grpo_fast and grpo.

Names and defaults: open_instruct/data_loader.py (StreamingDataLoaderConfig, VLLMConfig), open_instruct/grpo_utils.py
(GRPOExperimentConfig); what they do: DataPreparationActor in data_loader.py, open_instruct/vllm_utils.py.
"""

from __future__ import annotations

from fleetsim.frameworks import common, roles
from fleetsim.frameworks.draft import Draft
from fleetsim.frameworks.reading import Read, never, one_line, one_of, switched
from fleetsim.frameworks.tables import put_rows
from fleetsim.records import replace


def build(draft: Draft, speed: common.TrainerSpeed | None) -> None:
    """Fill the draft from open-instruct's flags."""
    draft.mode, draft.preset = "asynchronous", "open-instruct"
    prompts = draft.count("num_unique_prompts_rollout", default=16)
    n = put_rows(draft, "model")["workload.group_size"]
    draft.product("trainer.batch_samples", prompts, n, why="prompts x responses")
    answer = draft.count("response_length", default=256)
    prompt = draft.count("max_prompt_token_length", default=256)
    common.lengths(draft, answer, prompt)
    # Calls of tools stand between turns within one response length (vllm_utils.py).
    calls = draft.count("max_steps", "max_tool_calls", default=5)
    tools = draft.settings.get("tools", "tool_parser_type")
    turns = None if tools is None else roles.turns_of_calls(calls)
    roles.put_turns(draft, turns, "", "" if tools is None else f"{tools[0].key} = {one_line(tools[1], 40)}")
    if turns is not None:
        draft.where_said(roles.TURN_CAP, draft.maybe_count(cap := "per_turn_max_tokens"), cap)
    if tools is not None:
        roles.workers(draft, "tools", [draft.maybe_count("pool_size")], "pool_size")
    roles.judges(draft, "llm_judge_model", "code_api_url")
    rubrics = draft.flag("apply_evolving_rubric_reward", default=False)
    if rubrics.value:
        roles.judged(draft, f"{rubrics}: a model that judges by rubrics, and writes them")
    # open_instruct/data_loader.py: a pack holds the longest prompt with the longest response, or nothing starts
    pack = {"pack_length": answer.value + prompt.value}
    draft.could("workload.output_tokens.max", answer.value, lambda want: pack)
    _gpus(draft)
    steps = draft.count("async_steps", default=8)
    ahead = (steps, prompts, n)
    draft.semantics("admission.law", "fixed_pool", "one prompt is sent for each that is taken from the results")
    out = draft.product("admission.pool_samples", *ahead, why="batches of prompts sent beforehand")
    draft.put("buffer.capacity_samples", out.value, *ahead, why="batches prepared ahead of the trainer")
    put_rows(draft, "queue")
    active = draft.flag("active_sampling", default=False)
    if not active.value and draft.flag("filter_zero_std_samples", default=True).value:
        draft.note("filter_zero_std_samples without active_sampling", "filtered groups make a batch smaller")
    put_rows(draft, "sync")
    _recipe(draft, speed)


def _recipe(draft: Draft, speed: common.TrainerSpeed | None) -> None:
    """The passes of a step, the GPUs, and what the seconds of a step are made of."""
    reference = draft.flag("load_ref_policy", default=True)
    vllm_logprobs = draft.flag("use_vllm_logprobs", default=False)
    several = draft.count("num_mini_batches", default=1).value > 1  # grpo_fast.py, step: one takes its own log-probs
    # GRPOExperimentConfig: no penalty without a reference, no correction of log-probs that are the engine's
    own, asked, uncorrected = vllm_logprobs.key, reference.key, {"use_rho_correction": False}
    with_old = one_of({True: {own: False}, False: {own: True, **uncorrected}}) if several else never
    old = Read(own, several and not vllm_logprobs.value, True, with_old)
    back = one_of({True: {asked: True}, False: {asked: False, "beta": 0.0}})
    common.hardware_and_times(draft, speed, old, replace(reference, back=back))
    # open_instruct/grpo_utils.py: one optimizer step for each mini-batch of each epoch; ZeRO-3 alone splits sequences
    put_rows(draft, "updates")
    parts = draft.count("sequence_parallel_size", default=1)
    split = lambda want: {parts.key: want, **({"deepspeed_stage": 3} if want > 1 else {})} if want else None  # noqa: E731
    draft.put("trainer.recipe.cp", parts.value if parts.given else None, parts, back=split, unless=None)
    put_rows(draft, "memory")
    if draft.settings.runs("grpo.py"):  # olmo_core_utils.py, build_ac_config; grpo_fast.py always computes again
        budget = draft.number("activation_memory_budget", default=1.0, most=1.0)
        whole = draft.text("activation_checkpointing_mode", default="budget").value == "selected_modules"
        again = Read(budget.key, whole or budget.value < 1, budget.given, switched(budget.key, 0.5, 1.0))
        draft.put("trainer.recipe.recompute", again.value, again, back=again.back, unless=True)


def _gpus(draft: Draft) -> None:
    found = draft.settings.get("num_learners_per_node", "actor_num_gpus_per_node")
    value = [1] if found is None else found[1] if isinstance(found[1], list) else [found[1]]
    if not value or not all(type(v) is int and 0 <= v <= 1024 for v in value) or not sum(value):
        draft.refuse("num_learners_per_node", value, "must be GPUs per node, such as 8 8", "mend it")
        value = [1]
    key = "num_learners_per_node" if found is None else found[0].key
    nodes = lambda want: {key: [8] * (want // 8) + [want % 8] * (want % 8 > 0)}  # noqa: E731
    learners = Read(key, sum(value), found is not None, nodes)
    draft.take("trainer.gpus", learners, why="summed over the nodes")
    put_rows(draft, "instances")
    single = draft.flag("single_gpu_mode", default=False)
    if single.value:
        draft.note(str(single), "engine and learner on one GPU at the same time")
    put_rows(draft, "engine")
