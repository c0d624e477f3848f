"""Weight-sync transports against published seconds (scenarios/published/weight_sync.yaml): writes docs/transports.md.

python docs/make_transports.py            predict every row, print all tables, write the page
python docs/make_transports.py --check    the same without writing; exit 1 if the page would change

The page has the sums; every row, predicted and published, and why it is far off, is printed.
"""

from __future__ import annotations

import argparse
import math
import sys
from collections.abc import Iterable, Sequence
from pathlib import Path
from statistics import median

sys.path.insert(0, str(Path(__file__).resolve().parents[1]))  # run as a script, its folder is on the path, not docs
from docs.transport_rows import (
    FITTED,
    Row,
    concordance,
    coverage,
    factor,
    fit,
    fits,
    in_order,
    pairs,
    predicted_s,
    rows,
    scenario_of,
)
from fleetsim.engine.transport import transfer_of
from fleetsim.job.uncertainty import SYNC_DERIVED
from fleetsim.tell.page import same

PAGE = Path(__file__).resolve().parent / "transports.md"
GOAL = 1.5
# The other way round: a key fitted on rows of one source, held against rows of another. Sources share nothing.
CROSSED = (
    ("tensor_s", ("nemo-dsv3-nixl-async", "nemo-dsv3-nixl-sync"), ("checkpoint-engine",)),
    ("tensor_s", ("verl-30b-ce",), ("checkpoint-engine", "NeMo-RL nixl")),
)


INTRO = """\
# How far off are the seconds of a weight sync?

`sync.transport` derives the three times of a weight sync (publish, pause, trainer block) from bytes and bandwidths
([the equations](trainer.md#weight-sync)). This page holds them against every published figure in
`scenarios/published/weight_sync.yaml`. `python docs/make_transports.py` writes it, and prints every row with its
reason. A time that you give always stands: with `sync.pause_s: 2` the pause is 2 s.
"""

MODEL = """\
## What is counted

- *Gathering* (`gather_bytes_s`): full tensors are put together on the rank that sends. Where `trainer.recipe.backend`
  is not given, a large model is trained with Megatron.
- *Sending*: bytes over the network cards or the links of a node, vendors' figures x `efficiency`.
- *Loading* (`tensor_s`): the engine takes the checkpoint tensor by tensor. For mixtures of experts (18,867 tensors
  for 61 GB) this decides. Ranks that share the experts load their own only; weights that land in place skip it.
- *Offload* (`offload_bytes_s`): weights are copied back from the trainer's host memory.
- *Latency*: `latency_s` for pausing, messages and resuming; `call_s` for each tensor where calls are not batched.

Receiving and loading take turns, because most engines receive in the process that loads. Under `pipelined` they run
side by side.
"""

FITTING = """\
One number each, from the fewest rows that show it. The other defaults are figures of vendors or of the sources, or
assumed, as the schema says of each key.
"""

FAR = """\
## Where it is wrong

- A transfer inside one node is slower here than verl's figures of 0.02 and 0.12 s, which cannot hold the whole sync.
- Trainers that take stacks of experts apart on the gathering rank (veomni), or gather Megatron shards in host memory,
  need 2.5 to 4 times as long as predicted.
- `call_s` is a call over HTTP (1.6 ms). Opening an IPC handle takes a third of that, a call in SkyRL three times as
  much.
- `latency_s` (0.5 s, assumed) is more than some sources' timers hold.
- **Held against nothing**: `checkpoint_shuttle` and `sparse_delta` through storage. Their rates (2 GB/s written, 4
  GB/s read per node) are assumed: give yours. An adapter alone (TRL) is a matter of saving and accepting, not of
  bytes.
"""


def _number(x: float) -> str:
    return f"{x:.2f}" if x < 10 else f"{x:.1f}"


def _published(row: Row) -> str:
    return f"{row.lowest:g}" if row.lowest == row.highest else f"{row.lowest:g} to {row.highest:g}"


def comparison(table: Iterable[Row]) -> list[str]:
    """The rows, predicted and published, with what each was used for."""
    lines = [
        "| source | model | devices (trainer, rollout) | transport | published s | predicted s | ratio | used for |",
        "| --- | --- | --- | --- | ---: | ---: | ---: | --- |",
    ]
    for row in table:
        t, predicted = transfer_of(scenario_of(row)), predicted_s(row)
        gpus = f"{row.what['gpu']}: {t.trainer_gpus}, {t.instances} x TP{t.tp}"
        use = {"predict": "predicted", "given": "figure of a stage given"}.get(row.use, f"**{row.use}**")
        lines.append(
            f"| {row.source} | {row.model} | {gpus} | {row.variant} | {_published(row)} | {_number(predicted)} "
            f"| {predicted / row.seconds:.2f} | {use} |"
        )
    return lines


def summary(table: Sequence[Row]) -> list[str]:
    """Median and worst factor by source over predicted rows, and the order within the source."""
    lines = [
        "| source | rows predicted | median factor | worst | order within a setup | order over the source |",
        "| --- | ---: | ---: | ---: | ---: | ---: |",
    ]
    for source in dict.fromkeys(row.source for row in table):
        mine = [row for row in table if row.source == source]
        factors = [factor(row) for row in mine if row.predicted_only]
        setups, (right, of) = pairs(mine), concordance(mine)
        middle = f"{median(factors):.2f} | {max(factors):.2f}" if factors else "- | -"
        held = f"{sum(in_order(*pair) for pair in setups)} of {len(setups)}" if setups else "-"
        lines.append(f"| {source} | {len(factors)} | {middle} | {held} | {f'{right} of {of}' if of else '-'} |")
    return lines


def crossed(table: Sequence[Row]) -> list[str]:
    """Fits on one source, held against others."""
    lines = [
        "| key | fitted on | value | default | held against | rows | median factor |",
        "| --- | --- | ---: | ---: | --- | ---: | ---: |",
    ]
    for what, on, against in CROSSED:
        key, default = FITTED[what]
        value = fit(what, [row for row in table if row.id in on])
        rest = [r for r in table if r.source in against and _feels(r, what) and r.use != "listed"]
        factors = [factor(row, **{key: value}) for row in rest]
        source = next(row.source for row in table if row.id == on[0])
        lines.append(
            f"| `{what}` | {source} ({len(on)}) | {value:.3g} | {default:.3g} "
            f"| {', '.join(against)} | {len(rest)} | {median(factors):.2f} |"
        )
    return lines


def _feels(row: Row, what: str) -> bool:
    """Whether the key decides the row: half of it moves the prediction by a tenth."""
    key, default = FITTED[what]
    return abs(math.log(predicted_s(row, **{key: default / 2}) / predicted_s(row, **{key: default * 2}))) > 0.2


def misses(table: Iterable[Row]) -> list[str]:
    """Predicted rows beyond the goal, each with its reason."""
    return [
        f"- {row.source}, {row.model}, {row.variant}: {_published(row)} s published, {_number(predicted_s(row))} s "
        f"predicted ({predicted_s(row) / row.seconds:.2f}). {row.note[:1].upper()}{row.note[1:]}."
        for row in table
        if row.predicted_only and factor(row) > GOAL
    ]


def page() -> str:
    """The whole page."""
    everything = rows()
    told = [row for row in everything if row.use != "listed"]
    table, more = [r for r in told if r.lookup], [r for r in told if not r.lookup]
    predicted = [factor(r) for r in table if r.predicted_only]
    beyond = [factor(r) for r in more if r.predicted_only]
    held, setups = [in_order(*pair) for pair in pairs(table)], len(pairs(table))
    used = sum(not r.predicted_only for r in table)
    gave = {r.source for r in everything if r.use not in ("predict", "listed")}
    foreign = [factor(r) for r in table if r.source not in gave]
    (low, high), (inside, of) = SYNC_DERIVED, coverage(told, *SYNC_DERIVED)
    verdict = (
        f"**{len(predicted)} rows of the sources that were looked up first: the median factor is "
        f"{median(predicted):.2f} (goal: {GOAL:g}), {sum(f <= GOAL for f in predicted)} are within {GOAL:g}. "
        f"Of {setups} pairs that a source measured against each other, {sum(held)} come out in the published "
        f"order.**\n\n"
        f"- {len(beyond)} rows that were found later: median factor {median(beyond):.2f}.\n"
        f"- {len(foreign)} rows whose source gave no figure to any default: {median(foreign):.2f}.\n"
        f"- {used} further rows gave figures to the defaults and are no predictions.\n"
        f"- Of all predicted rows, {inside} of {of} were published with {low:g} to {high:g} times the predicted "
        f"seconds. A plan takes this interval to hold in eight of ten cases.\n"
    )
    fitted = ["| key of `sync.link` | fitted on | gives | default |", "| --- | --- | ---: | ---: |"]
    for what, value in fits(everything).items():
        on = ", ".join(f"{r.source}: {r.model}" for r in everything if r.use == f"fit {what}")
        fitted.append(f"| `{what}` | {on} | {value:.3g} | {FITTED[what][1]:.3g} |")
    blocks = [INTRO, verdict, "\n".join(summary(told)) + "\n", MODEL, "## What was fitted\n"]
    return "\n".join([*blocks, FITTING, "\n".join(fitted) + "\n", FAR])


def report() -> str:
    """Every row, and why those far off are."""
    everything = rows()
    told = [row for row in everything if row.use != "listed"]
    listed = [
        f"- {r.source}, {r.model}: {_published(r)} s. {r.note[:1].upper()}{r.note[1:]}."
        for r in everything
        if r.use == "listed"
    ]
    blocks = [comparison(told), ["Keys fitted on another source:"], crossed(told)]
    blocks += [[f"Rows beyond a factor of {GOAL:g}, and why:"], misses(told), ["Not predicted:"], listed]
    return "\n\n".join("\n".join(block) for block in blocks)


def main(arguments: Sequence[str] | None = None) -> int:
    """Writes or checks the page; returns the exit code."""
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--check", action="store_true", help="write nothing; exit 1 if the page would change")
    check = parser.parse_args(arguments).check
    text = page()
    print(report())
    if not check:
        PAGE.write_text(text, encoding="utf-8")
    elif not PAGE.is_file() or not same(PAGE.read_text(encoding="utf-8"), text):
        print(f"{PAGE.name} has drifted: run python docs/make_transports.py", file=sys.stderr)
        return 1
    return 0


if __name__ == "__main__":
    sys.exit(main())
