"""What the page of published runs says beside its tables."""

WRITTEN = """\
How far are answers from what real projects published? This page gives the errors, and the rules by which they were
made. `fleetsim validate --write docs` writes it, and CI runs `fleetsim validate --check docs`.

    fleetsim validate                          # every arm of every case
    fleetsim validate --case C07               # one case
    fleetsim validate --html validation.html   # all arms, with sources, assumptions and causes

Every setting and its source stand in `scenarios/published/*.case.yaml`."""

HOW_TO_READ = """\
- **Fitted**: at most one scalar per case, on its baseline arm alone. It is what the source leaves open: the mean
  length, the decode slowdown (a factor on every iteration), or the trainer's seconds. All other arms are predicted.
- **Given for a predicted arm**: its published configuration, its published mean length, and the seconds of its
  trainer's own computation where they are published, because a planner can measure those alone. Its step time, waits
  and tokens per second are never given.
- **Blind**: a second prediction that gets only the configuration of the arm. The trainer's seconds then come from the
  [trainer's model](accuracy.md#the-trainer), scaled to the baseline.
- **Error**: predicted / published - 1. **Ratio**: the same after both are divided by the baseline arm's, so it shows
  how well the effect of a change is predicted.
- **Bottleneck**: what the authors name, or what their waits show. In the simulation it is *trainer* if the trainer
  waits for samples less than 3 % of the time, else the client's cap if it was reached, else *generation*.

These are not predictions before the fact. Settings that a source leaves out were looked up in its code after a first
comparison had shown a gap. [Sealed predictions](predictions/README.md) are."""

CASES = """\
The ratio error of the worst gated arm of each case, and how many ranges hold (see below). `fleetsim validate --case ID`
prints the arms of one case, `--ranges` each range that does not hold."""

IN_A_JOB = """\
Generation inside a training job is slower than the same engine alone: the client, its tokenizers and the host take
their part. The table shows the decode slowdown that is fitted on the baseline arm of each case. Plans and runs take it
for `engine.slowdown` unless you give one (`--slowdown 1`): that of `trainer.recipe.framework`, drawn towards that of
all runs, else that of all. Each run predicted by the others is off by 18 % in the median; without a slowdown, by
33 %."""

UNKNOWN = (
    "Something decides these arms that nobody published. They have no gate, or none where they are predicted blind."
)

RANGES = """\
Every answer has a range that should hold in eight of ten cases. Here each arm is told as a plan tells it: only its
configuration, its mean length and the published seconds of its trainer are known. The engine is as slow as runs of
*other* cases were, and unknown seconds of a trainer come from its model. Inputs in doubt move to the ends of their
intervals, as `size` moves them. Relative figures are left out, and arms with another engine or model in their place."""


NO_CASE_HEAD = "Published runs that are no case:"
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
