"""Weight-sync transports against published seconds (scenarios/published/weight_sync.yaml): writes docs/transports.md.

python docs/make_transports.py            predict every row, print predicted and published, write the page
python docs/make_transports.py --check    the same without writing; exit 1 if the page would change
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
from fleetsim.tell.markdown import same

PAGE = Path(__file__).resolve().parent / "transports.md"
GOAL = 1.5
# The other way round: a key fitted on rows of one source, held against rows of another. Sources share nothing.
CROSSED = (
    ("tensor_s", ("nemo-dsv3-nixl-async", "nemo-dsv3-nixl-sync"), ("checkpoint-engine",)),
    ("tensor_s", ("verl-30b-ce",), ("checkpoint-engine", "NeMo-RL nixl")),
)


INTRO = """\
# Weight-sync transports against published seconds

`sync.transport` derives the three times of a weight sync (publish, pause, trainer block) from bytes and bandwidths.
This page holds them against every published figure in `scenarios/published/weight_sync.yaml`, where sources and what
each figure contains are written down. It is written by

    python docs/make_transports.py

and CI fails when it has drifted. What is compared is the whole sync unless a row says otherwise.
"""

MODEL = """\
## What is counted

Stages, each with its key of `sync.link`:

- *gathering*: full tensors are put together on the rank that sends (`source: gather`), at `gather_bytes_s`. A fully
  sharded trainer collects each tensor from all its ranks, one after the other. Under Megatron a pipeline stage has its
  layers whole within a few ranks, and collects them in buckets while another stage sends; stages take turns at the
  wire. `trainer.recipe.backend` says which it is; where it is not given, a large model is trained with Megatron
- *sending*: bytes over the network cards or the links of a node, vendors' figures x `efficiency`
- *loading*: the engine takes the checkpoint tensor by tensor, `tensor_s` each. For mixtures of experts (18,867 tensors
  for 61 GB) this decides: a loader handles each expert's matrices one by one, however small. Ranks that share the
  experts (`engine.dp`) load their own only. Weights that land where
  the engine uses them (`load: in_place`, resharding) skip it
- *offload*: weights copied back from the trainer's host memory, `offload_bytes_s` per GPU
- *latency*: pausing, messages, resuming, `latency_s`; and `call_s` for each tensor where calls are not batched

| transport | publish (engines go on) | pause (engines stand still) | trainer block |
| --- | --- | --- | --- |
| `collective_broadcast` | 0 | latency + max(gathering, sending) + loading | as the pause |
| `rdma_p2p` | 0 | latency + max(gathering, each GPU fetches its slice) + loading | as the pause |
| `cuda_ipc` (colocated) | 0 | latency + max(gathering, collecting shards over the links) + loading | as the pause |
| `sparse_delta` | 0 | latency + max(changed bytes / `delta_bytes_s`, sending) + loading | as the pause |
| `delta_over: storage` | packing, writing, `storage_latency_s` | latency + reading + loading | packing, writing |
| `checkpoint_shuttle` | writing, `storage_latency_s` | latency + max(reading, copying, loading) | writing |
| `relay` | handing over, chain over the nodes | latency + max(PCIe pull, loading) | handing over |

Receiving and loading take turns, because most engines receive in the process that loads; under `pipelined` they run
side by side, as where checkpoint-engine's worker fills one half of a buffer while the engine loads the other. That
distinction was made after a first version, which always overlapped them, had two of the sixteen orders below wrong;
it is read off the code of checkpoint-engine (`ps.py`) and NeMo-RL (`packed_tensor.py`), and set by backend, not by row.

A time that the scenario gives is never overwritten: `sync.pause_s: 2` stays 2 whatever the transport says.
"""

FITTING = """\
One number each, from the fewest rows that show it. The other defaults are figures of vendors or of the sources, or
assumed, as the schema says of each key.
"""

SHUTTLE = """\
## What nothing here checks

`checkpoint_shuttle` and `sparse_delta` through storage have no published seconds beside a published storage rate; their
arithmetic is tested by hand, their default rates (2 GB/s written, 4 GB/s read per node) are assumed: give yours. Left
out of the file: the second table of verl's delta page (TorchTitan and FSDP on A100 and A800), whose full broadcasts of
one 8B model take 10 to 65 s and whose network is not stated; its order (delta never slower) is the one predicted here.
The `tensors` of the quantised models count a scale with its weight. That was decided with these rows in sight: counted
apart, the two fp8 models would ask for half the `tensor_s` of the two bf16 ones.
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
        f"**In short: over the {len(predicted)} predicted rows of the table the median factor is "
        f"{median(predicted):.2f} (goal: {GOAL:g}); {sum(f <= GOAL for f in predicted)} are within {GOAL:g}. Of "
        f"{setups} pairs that a source measured against each other, {sum(held)} come out in the published order.**\n\n"
        f"Over the {len(foreign)} rows whose source gave no figure to any default, the median factor is "
        f"{median(foreign):.2f}. {used} further rows of the table gave figures to the defaults and are no predictions. "
        f"Beyond the table: {len(beyond)} predicted rows, median factor {median(beyond):.2f}. Of all predicted rows "
        f"{inside} of {of} were published with {low:g} to {high:g} times the predicted seconds: the interval in which "
        f"a plan takes a derived sync to lie in eight of ten cases.\n"
    )
    fitted = ["| key of `sync.link` | fitted on | gives | default |", "| --- | --- | ---: | ---: |"]
    for what, value in fits(everything).items():
        on = ", ".join(f"{r.source}: {r.model}" for r in everything if r.use == f"fit {what}")
        fitted.append(f"| `{what}` | {on} | {value:.3g} | {FITTED[what][1]:.3g} |")
    listed = [
        f"- {r.source}, {r.model}: {_published(r)} s. {r.note[:1].upper()}{r.note[1:]}."
        for r in everything
        if r.use == "listed"
    ]
    blocks = [INTRO, verdict, MODEL, "## What was fitted\n"]
    blocks += [FITTING]
    blocks += ["\n".join(fitted) + "\n", "## The table\n", "\n".join(comparison(table)) + "\n"]
    blocks += ["## By source\n", "\n".join(summary(table)) + "\n"]
    blocks += ["## Fitted elsewhere\n\nThe same keys fitted on another source, to see what the choice of rows does:\n"]
    blocks += ["\n".join(crossed(table)) + "\n", f"## Rows beyond a factor of {GOAL:g}, and why\n"]
    blocks += ["\n".join(misses(table)) + "\n", "## Beyond the table\n", "\n".join(comparison(more)) + "\n"]
    blocks += ["\n".join(misses(more)) + "\n", "## Not predicted\n", "\n".join(listed) + "\n", SHUTTLE]
    return "\n".join(block for block in blocks if block)


def main(arguments: Sequence[str] | None = None) -> int:
    """Writes or checks the page; returns the exit code."""
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--check", action="store_true", help="write nothing; exit 1 if the page would change")
    check = parser.parse_args(arguments).check
    text = page()
    print("\n".join(line for line in text.splitlines() if line.startswith(("|", "**"))))
    if not check:
        PAGE.write_text(text, encoding="utf-8")
    elif not PAGE.is_file() or not same(PAGE.read_text(encoding="utf-8"), text):
        print(f"{PAGE.name} has drifted: run python docs/make_transports.py", file=sys.stderr)
        return 1
    return 0


if __name__ == "__main__":
    sys.exit(main())
