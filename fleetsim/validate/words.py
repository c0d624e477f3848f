"""What the page of published runs says beside its tables."""

WRITTEN = """\
Real RL post-training runs that others published, simulated. This page is written by

    fleetsim validate --write docs

and CI fails when it has drifted (`fleetsim validate --check docs`). `fleetsim validate` prints the same tables,
`--json` everything behind them, `--case C01` one case. The figures, their sources and every setting stand in
`scenarios/published/*.case.yaml`."""

HOW_TO_READ = """\
**One scalar is fitted per case at most, on the baseline arm alone; all other arms are predicted.** The scalar is what
the source leaves open: the *mean length* where it is not published; the *decode slowdown* (a multiplier of every
iteration of every instance) where lengths and the trainer's seconds are; the *trainer's seconds* where lengths are and
the trainer's are not. Nothing is ever fitted on a predicted arm.

**Inputs of a predicted arm** are its published configuration (GPUs, split, caps, staleness), its published mean
length, and, by one rule for all cases, the seconds of its trainer's own computation where they are published
(`update_actor`, `fwd_bwd`): a planner measures those on the trainer alone. Its waits, its step time, its tokens per
second and its totals are never inputs; they are what is predicted. The column *from this arm* names every such input.

**Blind** is a second prediction of every arm but the baseline, by the same simulation, with nothing of the arm but its
configuration: no seconds of its own, and the baseline's mean length at its own cap. Its trainer takes what the
trainer's model says of its configuration, times what the baseline's published seconds are of the model's for the
baseline; a hand-over takes what the baseline's does where both share their GPUs alike, else what the way of moving
weights comes to. The trainer's model was fitted to published steps, some of them of these runs.

**Not before the fact.** Many settings that a source leaves out were looked up in its code and its other publications
after a first comparison had shown that something was off (which split, what its FLOP/s count, whether CUDA graphs were
on). Each has its source beside it and holds for every arm of its case, but the page proves less than a prediction made
before the fact.

**Errors.** *error* is predicted / published - 1. *ratio* is the same after both are divided by the baseline arm's: how
well the simulation tells what a change does; *blind* is that of the blind prediction. A bottleneck is what the authors
name, or what their waits show; the simulated one is *trainer* if the trainer waits for samples less than 3 % of the
time, else the client's cap if it was reached, else *generation*."""

IN_A_JOB = """\
Generation inside a training job is slower than the same engine alone: its client, its tokenizers and the host take
their part. This is what published runs lost: the decode slowdown that is fitted on the baseline arm of each case. Plans
and runs take it for `engine.slowdown` where nobody says otherwise (`--slowdown 1`): of `trainer.recipe.framework`, its
few runs drawn to those of all, else of all. Each run predicted by the others is off by 18 % in the median; with no
slowdown at all, by 33 %."""

UNKNOWN = """\
Arms that something decides which their publication does not give. They are shown and have no gate, or none where they
are predicted blind."""

RANGES = """\
Every answer has a range that should hold in eight of ten cases. Here each arm is told as a plan tells it, before
anything of it is known but its configuration, its mean length and the seconds of its trainer where they are published:
nothing is fitted but a mean length that no source gives, the engine is as slow as runs of *other* cases were, and a
trainer of unknown seconds is the trainer model's. Inputs in doubt are moved to the ends of their intervals, as `size`
does it. Left out are figures that are relative, and engines or models that another one stands in for."""


NO_CASE = (
    "aishukamal/rl-time-slicing, time-slicing-vertical-integrations (D05): two jobs take turns on one GPU; one "
    "job is simulated here.",
    "verl-project/verl-recipe, reward_queue (D07): rewards of a judge within the loop and beside it, on 64 NPUs; "
    "neither the judge's seconds, which decide, nor lengths nor the kind of NPU are published.",
    "verl-project/verl, examples/prefix_grouper (D08): attention over a shared prompt in the trainer; neither the "
    "batch nor the lengths of prompts and responses are published, and the trainer's model computes every sample "
    "apart.",
    "verl-project/verl pull request 7519 (D12): bf16, fp8 and mxfp8; the model, the GPUs and their number are not "
    "in what could be read.",
    "Tencent-Hunyuan/UniRL issue 94 (D16): features off and on; GPU, split, lengths and seconds of the trainer "
    "are not published.",
    "verl-project/verl-recipe, dynamo (D17): routing by cached prefixes, in milliseconds of a token; GPUs, "
    "engines and batch are not published.",
    "radixark/miles, docs/models/qwen/qwen3-8.md (D18): tokens a second of an engine at two shares of memory; no "
    "step, no batch.",
    "Single runs with their phases (D20: verl pull request 7203 and docs/perf/dpsk.md, marin-community/marin "
    "issue 8653, miles' glm52_tbench2, aishukamal/rl-time-slicing's benchmark-deepresearch): one arm each, "
    "nothing to predict from another.",
    "NovaSky-AI/SkyRL issue 1208 (D25): a judge on a second L4; its seconds for a sample are not published.",
)
