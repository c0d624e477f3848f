"""What computing a prompt token costs an engine: for prompts computed twice, and for what a preemption loses."""

from __future__ import annotations

from dataclasses import dataclass

from fleetsim.errors import InputError
from fleetsim.replay.diagnose.checks.case import Case
from fleetsim.replay.diagnose.cost import observed_slices


@dataclass(frozen=True, slots=True)
class PromptCost:
    """seconds: of one prompt token, beside a batch of decodes. words: whose engine that is."""

    seconds: float
    words: str


def prompt_cost(case: Case) -> PromptCost | None:
    """The marginal seconds of a prompt token in a full iteration of the scenario's engine; None where it has none.

    (f(N) - f(b)) / (N - b) + per prefill token + half the prompt's attention, with N = max_num_batched_tokens and b the
    requests that ran on an instance. Prompts of an engine of kind constant are free by definition: None.
    """
    from fleetsim.sim.engines import engine_of

    try:
        step, limits = engine_of(case.scenario)
    except InputError:  # no GPU, model or profile that is known: the size stays open, the finding does not
        return None
    if step.kind == "constant":
        return None
    f = case.observed.fleet
    running = 0.0 if f is None or f.running is None or f.instances <= 0 else f.running / f.instances
    most = limits.max_num_batched_tokens
    decodes = min(int(running), most - 1)
    f_full, f_now = step.seconds(0, most) - step.per_prefill_token_s * most, step.seconds(0, decodes)
    f_now -= step.per_prefill_token_s * decodes
    lengths = case.observed.lengths
    prompt = 0.0 if lengths is None or lengths.prompt_mean is None else lengths.prompt_mean
    seconds = max(0.0, f_full - f_now) / (most - decodes) + step.per_prefill_token_s + step.attention_s(prompt / 2)
    engine = case.scenario.engine
    name = (
        f"profile {engine.profile}" if engine.kind == "measured" else f"{engine.model} on {engine.gpu} x {engine.gpus}"
    )
    said = case.says("engine.profile") or case.says("engine.model")
    return PromptCost(seconds, name if said else f"{name}, assumed")


def busy_share(case: Case, tokens_s: float, cost: PromptCost) -> float | None:
    """The share of the rollout GPUs' time that computing so many prompt tokens a second takes; None without a fleet."""
    f = case.observed.fleet
    if f is None or f.instances <= 0:
        return None
    return min(tokens_s * cost.seconds / f.instances, observed_slices(case.observed).get("busy", 1.0))
