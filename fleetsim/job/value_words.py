"""Values of a scenario in the words of a report: engine, prices, weight sync, trainer."""

from __future__ import annotations

from fleetsim import units
from fleetsim.config.scenario import Scenario
from fleetsim.engine.defaults import ENTRY_POINTS, default_limits
from fleetsim.engine.gpus import gpu_of
from fleetsim.engine.model.names import model_shape
from fleetsim.engine.model.precision import KV_BYTES, PRECISIONS
from fleetsim.engine.prices import listed_price
from fleetsim.engine.slowdown import is_known
from fleetsim.engine.transport import sync_times
from fleetsim.errors import InputError
from fleetsim.job.nameplate import mean_batch_tokens


def profile(s: Scenario) -> str:
    """The profile, by its name and error."""
    from fleetsim.job.engine_source import profile_words
    from fleetsim.sim.engines import profile_of

    found = profile_of(s)
    return "" if found is None else profile_words(found)


def instance(s: Scenario) -> str:
    """The engines of an instance, and its GPUs."""
    why = ": the cheapest that fits" if s.engine.kind == "roofline" and s.engine.tp > 1 else ""
    stages = f" x PP{s.engine.pp}" if s.engine.pp > 1 else ""
    apart = s.engine.disaggregation
    if apart is not None:
        sides = f"{apart.prefill} prefill (TP{s.engine.prefill_tp}) + {apart.decode} decode (TP{s.engine.tp}) engines"
        return f"{sides}: {units.plural(s.engine.gpus, 'GPU')} per instance"
    return f"TP{s.engine.tp}{stages} ({units.plural(s.engine.gpus, 'GPU')} per instance{why})"


def weights(s: Scenario) -> str:
    """The types of the weights."""
    shape = model_shape(s.engine.model)
    small = PRECISIONS[shape.weights_type(s.engine.dtype)].bits < 16
    own = ", as the checkpoint has them" if s.engine.dtype == "auto" and small else ""
    return f"{shape.stored(s.engine.dtype).text(shape.mixture is not None)}{own}"


def kv_cache(s: Scenario) -> str:
    """The type of the KV cache."""
    kind = model_shape(s.engine.model).cache_type(s.engine.kv_dtype)
    own = ", as the checkpoint asks" if s.engine.kv_dtype == "auto" and KV_BYTES[kind] < 2 else ""
    return f"KV cache in {kind}{own}"


def entry_point(s: Scenario) -> str:
    """How vLLM is started, and the limits that it has then."""
    point = ENTRY_POINTS[s.engine.entry_point]
    seqs, tokens = default_limits(gpu_of(s.engine), "vllm", s.engine.entry_point)
    seqs, tokens = s.engine.max_num_seqs or seqs, s.engine.max_num_batched_tokens or tokens
    return f"vLLM as {point.words}: {seqs:,} requests at once, {tokens:,} tokens per iteration"


def drafts(s: Scenario) -> str:
    """What drafts are taken to bring."""
    from fleetsim.sim.engines import engine_of

    found = engine_of(s)[0].speculation
    assert found is not None  # asked of scenarios with speculation alone
    return f"{found.source.replace('assumed: ', '')}: {found.lengths[0][found.most]:.2f} tokens an iteration"


def prefix_caching(s: Scenario) -> str:
    """Whether prompts that are cached are computed again."""
    from fleetsim.sim.engines import profile_of

    found, on = profile_of(s), s.engine.prefix_caching
    measured = found.prefix_cache if found is not None else None
    as_there = ", as in the engine that was measured" if measured is not None and measured.enabled == on else ""
    return f"prefix caching {'on' if on else 'off'}{as_there}"


def slowdown(s: Scenario) -> str:
    """How much slower engines are in this job, and whose runs say so."""
    whose = s.trainer.recipe.framework
    own = f"{whose}'s published runs" if is_known(whose) else "published runs"
    return f"iterations take {s.engine.slowdown:g} times as long as of the engine alone, as in {own}"


def price_list(s: Scenario) -> str:
    """Where the price of a GPU comes from."""
    return listed_price(s.engine.gpu, s.cost.market, s.cost.prices).words


def publish(s: Scenario) -> str:
    """When new weights are published."""
    return f"weights published {units.seconds(sync_times(s).publish_s)} after the update"


def pause(s: Scenario) -> str:
    """How long engines stand still in a weight sync."""
    times = sync_times(s)
    if "pause_s" not in times.derived:
        return f"engines pause {times.pause_s:g} s per weight sync"
    return f"engines pause {units.seconds(times.pause_s)} per weight sync: from {times.text}"


def trainer_block(s: Scenario) -> str:
    """How long the trainer waits in a weight sync."""
    times = sync_times(s)
    derived = "trainer_block_s" in times.derived
    waits = units.seconds(times.trainer_block_s) if derived else f"{times.trainer_block_s:g} s"
    return f"the trainer waits {waits} per weight sync"


def per_token(s: Scenario) -> str:
    """The update's seconds per token, and what a mean batch makes of them."""
    t = s.trainer
    batch = mean_batch_tokens(s) * t.per_token_s
    return f"{t.per_token_s:.3g} s of compute per trained token ({units.seconds(batch)} for a mean batch)"


def estimated_step(s: Scenario) -> str:
    """The whole step, how it is trained, and how far off that is."""
    from fleetsim.trainer.estimate import estimate_of

    try:
        found = estimate_of(s, s.trainer.gpus)
    except InputError:  # somebody runs what does not fit by this estimate: what the file assumes stands
        return per_token(s)
    error = "" if found.error is None else f", off by {units.share(found.error.median, 0)} in the median"
    how = "FSDP" if found.plan.recipe.backend == "fsdp" else "Megatron"
    passes = ", log-probs included" if found.seconds.passes else ""
    return f"{units.seconds(found.step_s)} of compute per step{passes} (estimated, {how}{error})"


def trainer_gpus(s: Scenario) -> str:
    """The trainer's GPUs."""
    least = ", the fewest servers that fit" if "trainer.gpus" in s.assumed else ""
    return f"{units.plural(s.trainer.gpus, 'GPU')}{least}"
