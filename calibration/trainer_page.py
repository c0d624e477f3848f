"""The second part of docs/accuracy.md, and the tables behind it: how far the trainer's seconds are off."""

from __future__ import annotations

from collections.abc import Callable, Iterator, Mapping, Sequence

import numpy as np
from trainer_points import Step, plan_of, rows, sources

from fleetsim.records import as_dict
from fleetsim.trainer.plan import memory_of
from fleetsim.trainer.seconds import KnownTrainerError, TrainerFit

WORST = 12

INTRO = """
Where you give no seconds of a training step, fleetsim works them out ([the model](trainer.md)) with {parameters}
numbers that are fitted to {count} published times of {sources} sources. `python calibration/fit_trainer.py` fits them
and writes this part. `--tables` prints everything behind it: errors by framework and by model, the fitted numbers,
the worst rows, rows that were not fitted, memory beside published peaks, sources.

An error is |predicted / published - 1|. Kinds are told with the *framework left out*: the fit saw no row of the
framework. A framework's own rows are told with the *model left out*.

"""

SCALING = """## More GPUs, fewer GPUs

The parts of a step behave differently: arithmetic is divided by the GPUs, collectives grow with them, and what a step
costs anew stays. These are the rows that differ in their GPUs only, or nearly so. The lengths of each row follow from
what it publishes, so that seconds are compared per token.

| rows | GPUs | published speed-up | predicted | ideal |
| --- | --- | ---: | ---: | ---: |
"""

PAIRS = (
    ("verl-7b-07", "verl-7b-08"), ("verl-7b-07", "verl-7b-09"), ("verl-7b-16", "verl-7b-18"),
    ("verl-7b-14", "verl-7b-15"), ("verl-30b-04", "verl-30b-09"), ("verl-32b-05", "verl-32b-04"),
    ("verl-32b-06", "verl-32b-07"), ("rts-code-1", "rts-code-2"), ("rts-7b-4", "rts-7b-8"),
)  # fmt: skip

MEMORY = """## Memory

What prime-rl's benchmark held at its peak, beside what is predicted without the runtime. Nothing here is fitted. Its
supervised rows keep all logits at once and are left out, as are activations in host memory; its adapters are four at
once, which costs a large mixture more than is counted here.

| model | GPUs | tokens | trained | published, GiB | predicted, GiB |
| --- | ---: | ---: | --- | ---: | ---: |
"""

HONEST = """### What it does not know

- Rows without a length: of verl_megatron_practice's 7B, 30B and 235B runs the tokens follow from the MFU that verl
  printed. Their error is that of the share of the peak.
- Blackwell: NeMo-RL's rows on GB200 and B200 are fitted: it reaches {blackwell} of what Hopper GPUs do. prime-rl's on
  B200, with kernels that were not made for it, take twice as long as an H200; verl's hybrids there as well. They are
  shown, not fitted.
- The network between servers is taken to be one 400 Gb/s card per GPU. A slower one costs more: 12 GPUs on two servers
  of a cloud took twice what is predicted, Qwen3-32B on rented servers (RoCE) two to six times.
- Context parallel ranks take {context} longer for the same work, whatever they send.
- Steps that NeMo-RL publishes without phases are not used.
"""


def render(steps: Sequence[Step], fit: TrainerFit) -> str:
    """The part of the page, below its heading."""
    seen = [s for s in steps if s.fitted]
    count = len(as_dict(fit.efficiency)) + len(fit.kinds) + len(fit.frameworks)
    intro = INTRO.format(parameters=count, count=len(seen), sources=len({s.source for s in seen}))
    return (
        intro
        + _errors(fit)
        + _scaled(steps, fit)
        + HONEST.format(blackwell=_percent(fit.efficiency.blackwell), context=_percent(fit.efficiency.context))
    )


def _scaled(steps: Sequence[Step], fit: TrainerFit) -> str:
    """How well the effect of more GPUs is told, in a sentence."""
    off = [predicted / published - 1 for *_, published, predicted, _ in speed_ups(steps, fit)]
    return (
        f"{len(off)} pairs of rows differ in their GPUs only, or nearly so (from 1 to 2 up to 32 to 64 GPUs). "
        f"The predicted speed-ups are {100 * min(off):+.0f} % to {100 * max(off):+.0f} % off the published ones.\n\n"
    )


def tables(steps: Sequence[Step], fit: TrainerFit, ratios: Mapping[str, Mapping[str, float]]) -> str:
    """Everything behind it."""
    seen = [s for s in steps if s.fitted]
    parts = [_by("framework", seen, fit, ratios, lambda s: s.framework), _by("model", seen, fit, ratios, _model)]
    parts += [_parameters(fit), SCALING + "".join(_pairs(steps, fit)), "\n", _worst(seen, ratios)]
    parts += [_not_fitted(steps, fit)]
    return "".join([*parts, MEMORY, *_peaks(), _sources()])


def _model(step: Step) -> str:
    return step.plan.shape.name


def _percent(value: float) -> str:
    return f"{100 * value:.0f} %"


def _errors(fit: TrainerFit) -> str:
    head = "| kind | median | 90 % within | bias | times | sources |\n"
    rows = [f"| {name or 'all steps'} | {_error_row(e)} |\n" for name, e in fit.errors.items()]
    return head + "| --- | ---: | ---: | ---: | ---: | ---: |\n" + "".join(rows) + "\n"


def _error_row(e: KnownTrainerError) -> str:
    return f"{_percent(e.median)} | {_percent(e.p90)} | {100 * e.bias:+.0f} % | {e.points} | {e.sources}"


def _by(what: str, seen: Sequence[Step], fit: TrainerFit, ratios: Mapping[str, Mapping[str, float]],
        key: Callable[[Step], str]) -> str:  # fmt: skip
    head = (
        f"## By {what}\n\n| {what} | times | fitted | {what} left out | bias |\n| --- | ---: | ---: | ---: | ---: |\n"
    )
    rows = []
    for name in sorted({key(s) for s in seen}):
        own = [s for s in seen if key(s) == name]
        inside = np.array([s.predicted(fit) / s.seconds - 1 for s in own])
        outside = np.array([ratios[what][s.name] - 1 for s in own])
        rows.append(
            f"| {name} | {len(own)} | {_percent(float(np.median(abs(inside))))} | "
            f"{_percent(float(np.median(abs(outside))))} | {100 * float(np.median(outside)):+.0f} % |\n"
        )
    return head + "".join(rows) + "\n"


def _parameters(fit: TrainerFit) -> str:
    head = "## What was fitted\n\n| parameter | value |\n| --- | ---: |\n"
    words = {
        "product": "share of the peak, products with dense weights", "expert": "share of the peak, routed experts",
        "attention": "share of the peak, attention", "touches": "times that a number of a forward pass is moved",
        "head_touches": "times that a logit is moved", "links": "share of a link's bandwidth",
        "exposed": "share of hidden collectives that is felt", "forward": "a pass for log-probs over a forward part",
        "step_s": "seconds of an optimizer step", "micro_s": "seconds of a micro-batch",
        "context": "share more on many context ranks", "blackwell": "what Blackwell reaches over what Hopper does",
    }  # fmt: skip
    rows = [f"| {words[name]} | {value:.3g} |\n" for name, value in as_dict(fit.efficiency).items()]
    rows += [f"| factor: {name} | {value:.2f} |\n" for name, value in {**fit.kinds, **fit.frameworks}.items()]
    return head + "".join(rows) + "\n"


def speed_ups(steps: Sequence[Step], fit: TrainerFit) -> Iterator[tuple[str, tuple[int, int], float, float, float]]:
    """(rows, GPUs of both, published, predicted, ideal) of each of PAIRS, per token."""
    updates = {s.id: s for s in steps if s.what == "update"}
    for one, other in PAIRS:
        a, b = updates[one], updates[other]
        tokens = b.plan.batch.tokens / a.plan.batch.tokens
        gpus = a.plan.layout.gpus, b.plan.layout.gpus
        published, predicted = a.seconds / b.seconds * tokens, a.predicted(fit) / b.predicted(fit) * tokens
        yield f"{one}, {other}", gpus, published, predicted, gpus[1] / gpus[0]


def _pairs(steps: Sequence[Step], fit: TrainerFit) -> Iterator[str]:
    for names, gpus, published, predicted, ideal in speed_ups(steps, fit):
        yield f"| {names} | {gpus[0]} to {gpus[1]} | {published:.2f} | {predicted:.2f} | {ideal:g} |\n"


def _worst(seen: Sequence[Step], ratios: Mapping[str, Mapping[str, float]]) -> str:
    head = "## The worst\n\nWith the model left out.\n\n| row | what | published, s | predicted / published |\n"
    order = sorted(seen, key=lambda s: -abs(np.log(ratios["model"][s.name])))[:WORST]
    rows = [f"| {s.id} | {s.what} | {s.seconds:g} | {ratios['model'][s.name]:.2f} |\n" for s in order]
    return head + "| --- | --- | ---: | ---: |\n" + "".join(rows) + "\n"


def _not_fitted(steps: Sequence[Step], fit: TrainerFit) -> str:
    head = "## Published, not fitted\n\n| rows | why | predicted / published |\n| --- | --- | ---: |\n"
    reasons = dict.fromkeys(s.why for s in steps if not s.fitted)
    rows = []
    for why in reasons:
        own = [s for s in steps if s.why == why and not s.fitted]
        ratios = [s.predicted(fit) / s.seconds for s in own]
        ids = own[0].id if len(own) == 1 else f"{own[0].id} and {len(own) - 1} more"
        rows.append(f"| {ids} | {why} | {min(ratios):.2f} to {max(ratios):.2f} |\n")
    return head + "".join(rows) + "\n"


def _peaks() -> Iterator[str]:
    said = set()
    for row in rows():
        key = row["model"], row["gpus"], row.get("mean"), row.get("tune")
        if "peak_gib" not in row or row.get("activations") == "offload" or row.get("kind") != "rl" or key in said:
            continue
        said.add(key)
        memory = memory_of(plan_of(row))
        ours = (memory.total - memory.runtime) / 2**30
        yield f"| {key[0]} | {key[1]} | {key[2]:,} | {key[3]} | {row['peak_gib']} | {ours:.1f} |\n"


def _sources() -> str:
    return "\n## Sources\n\n" + "".join(f"- *{name}*: {text}\n" for name, text in sources().items())
