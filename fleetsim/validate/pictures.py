"""What the page of published runs shows beside its text: arms in tables and charts, and what is said of them."""

from __future__ import annotations

from collections.abc import Iterator, Sequence

from fleetsim import units
from fleetsim.tell.charts.axes import log_axis, ratio_axis
from fleetsim.tell.charts.chart import Chart, ChartRow, ChartSeries, MarkLook, Panel, Plot, RowMark, Rows, look
from fleetsim.tell.document import Table
from fleetsim.units import number
from fleetsim.validate.verdict import BEYOND, RATIO_MEDIAN, ArmResult, CaseResult, role

_LOOKS = {
    "predicted": ("predicted", MarkLook("accent")),
    "fitted": ("fitted on", MarkLook("quiet", symbol="circle-open")),
    "apart": ("predicted, no gate", MarkLook("third", symbol="diamond-open")),
    "missed": ("misses a gate", MarkLook("second", symbol="x")),
}
_MEASURES = {"step_s": "seconds of a step", "tok_s": "tokens per second", "ratio": "a ratio of two arms"}


def error_chart(results: Sequence[CaseResult]) -> Chart | None:
    """Every arm that has a published figure, by case: its error relative to the baseline's, as the gates take it."""
    rows: list[ChartRow] = []
    for result in results:
        shown = [(arm, error) for arm in result.arms if (error := gated_error(arm)) is not None]
        if not shown:
            continue
        rows.append(ChartRow(f"{result.case.id}  {result.case.title}"))
        for arm, error in shown:
            kind = style_of(result, arm)
            said = "fitted" if kind == "fitted" else percent(error)
            rows.append(
                ChartRow(arm.arm.name, said, (RowMark(kind, 1.0 + error, said=f"{arm.arm.name}: {_both(arm)}"),))
            )
    dots = [mark.value for row in rows for mark in row.marks]
    if not dots:
        return None
    low, high = min(*dots, 1 - BEYOND), max(*dots, 1 + BEYOND)
    bands = tuple((1 - band, 1 + band) for band in (BEYOND, RATIO_MEDIAN))
    words = (
        "Predicted / published, both relative to the baseline arm of their case, on a logarithmic axis; a baseline "
        "that is predicted is absolute. The bands are what the gates allow: "
        f"{units.share(RATIO_MEDIAN, 0)} for the median of all arms, {units.share(BEYOND, 0)} for each."
    )
    axis = ratio_axis("predicted / published", low, high)
    return Chart("errors", "Error of every arm", words, Rows(axis, tuple(rows), _LOOKS, centre=1.0, bands=bands))


def figures_chart(results: Sequence[CaseResult]) -> Chart | None:
    """Published against predicted, both logarithmic; on the line they are the same."""
    points = [
        (result, arm, published)
        for result in results
        for arm in result.arms
        if (published := arm.arm.published) is not None and arm.predicted > 0
    ]
    if not points:
        return None
    series = []
    for i, (measure, name) in enumerate(_MEASURES.items()):
        some = [p for p in points if measure_of(p[0], p[1]) == measure]
        said = [f"{r.case.id} {arm.arm.name}: {_both(arm)}" for r, arm, _ in some]
        x, y = [published for *_, published in some], [arm.predicted for _, arm, _ in some]
        series += [ChartSeries(name, "dots", x, y, look(i), said=said)] if some else []
    values = [v for _, arm, published in points for v in (published, arm.predicted)]
    low, high = min(values), max(values)
    series.append(ChartSeries("", "line", [low, high], [low, high], MarkLook("quiet", "dash")))
    words = (
        f"{len(points)} arms; on the dashed line the prediction is what was published. Arms that a scalar was fitted "
        "on lie on it by construction."
    )
    panel = Panel(log_axis("predicted", low, high), tuple(series), height_px=340)
    return Chart("published", "Predicted and published", words, Plot(log_axis("published", low, high), (panel,)))


def gated_error(arm: ArmResult) -> float | None:
    """The error that the ratio gates look at; the absolute one of a baseline; None where nothing is published."""
    return arm.ratio_error if arm.ratio_error is not None else arm.error


def style_of(result: CaseResult, arm: ArmResult) -> str:
    """A key of the error chart's styles."""
    if role(result, arm) == "fitted":
        return "fitted"
    if arm in result.misses:
        return "missed"
    return "predicted" if arm.arm.gated else "apart"


def measure_of(result: CaseResult, arm: ArmResult) -> str:
    """What the figure of an arm is: of the case's measure, or relative to another arm."""
    return "ratio" if arm.arm.reference is not None else result.case.measure


def _both(arm: ArmResult) -> str:
    published = "" if arm.arm.published is None else f"published {units.number(arm.arm.published)}, "
    return f"{published}predicted {units.number(arm.predicted)} ({percent(arm.error)})"


def percent(error: float | None) -> str:
    """A signed error, or a dash."""
    return "-" if error is None else units.change(error)


# --- The arms of a case in tables: predicted and published, side by side.

SIDES = {"trainer": "trainer", "generation": "generation", "in_flight_cap": "in-flight cap"}
_UNITS = {"step_s": "seconds of a step", "tok_s": "trained tokens per second"}


def arms(result: CaseResult) -> Table:
    """Predicted and published, side by side."""
    return Table(
        f"{result.case.id}, {_UNITS[result.case.measure]}",
        ("arm", "published", "predicted", "error", "ratio", "blind", "binds"),
        tuple(_arm(result, arm, blind) for arm, blind in _figures(result)),
        words_last=1,
        marked=frozenset(i for i, arm in enumerate(result.arms) if arm in result.misses),
    )


def _figures(result: CaseResult) -> Iterator[tuple[ArmResult, ArmResult | None]]:
    """Every arm, and as it was predicted blind."""
    for i, arm in enumerate(result.arms):
        yield arm, None if result.blind is None else result.blind.arms[i]


def _arm(result: CaseResult, arm: ArmResult, blind: ArmResult | None) -> tuple[str, ...]:
    wrong = f", published {SIDES.get(arm.arm.bottleneck or '', '')}" if arm.bottleneck is False else ""
    error = "fitted" if role(result, arm) == "fitted" else percent(arm.error)
    return (
        arm.arm.name,
        "-" if arm.arm.published is None else number(arm.arm.published),
        number(arm.predicted),
        error,
        percent(arm.ratio_error),
        percent(blind.ratio_error if blind else None),
        SIDES[arm.figures.side] + wrong,
    )


# --- What the page of published runs says beside its tables.

WRITTEN = """\
How far are answers from what real projects published? This page gives the errors, and the rules by which they were
made. `fleetsim validate --write docs` writes it, and CI runs `fleetsim validate --check docs`.

    fleetsim validate                          # every arm of every case
    fleetsim validate --case C07               # one case
    fleetsim validate --html validation.html   # all arms, with sources, assumptions and causes

Every setting and its source stand in `scenarios/published/*.case.yaml`."""

HOW_TO_READ = """\
- **Fitted**: at most one scalar per case, on its baseline arm alone. It is what the source leaves open: the mean
  length, the decode slowdown (a factor on every iteration), or the trainer's seconds. Of a step that publishes no part
  of itself, slowdown and trainer share what it is off by, each as far as it is in doubt. All other arms are predicted.
- **Given for a predicted arm**: its published configuration, its published mean length, and the seconds of its
  trainer's own computation where they are published, because a planner can measure those alone. Its step time, waits
  and tokens per second are never given.
- **Blind**: a second prediction that gets only the configuration of the arm. The trainer's seconds then come from the
  [trainer's model](accuracy.md#the-trainer), scaled to the baseline.
- **Error**: predicted / published - 1. **Ratio**: the same after both are divided by the baseline arm's, so it shows
  how well the effect of a change is predicted.
- **Bottleneck**: what the authors name, or what their waits show. In the simulation it is *trainer* if the trainer
  waits for samples less than 3 % of the time, else the client's cap if it was reached, else *generation*.

All but the sealed cases are no predictions before the fact: settings that a source leaves out were looked up in its
code after a first comparison had shown a gap. [Frozen predictions](predictions/README.md) are of runs that nobody
knows."""

GROUPS = (
    "Trainer given: the arm's own seconds of training are an input, so only its waiting is predicted. Trainer not "
    "given: they follow from the fit, another publication or the model. Blind: configuration alone. Sealed: "
    "written from a publication and entered in a ledger (scenarios/published/sealed.yaml) before the first "
    "prediction; an edit says what and why. Ranges are those of a job with one arm measured, and come from public "
    "cases that were kept out whole."
)

IN_A_JOB = """\
Generation inside a training job is slower than the same engine alone: the client, its tokenizers and the host take
their part. The table shows the decode slowdown that is fitted on the baseline arm of each case. Plans and runs take it
for `engine.slowdown` unless you give one (`--slowdown 1`): that of `trainer.recipe.framework`, drawn towards that of
all runs, else that of all. Each run predicted by the others is off by 14 % in the median; without a slowdown, by
33 %."""

UNKNOWN = "Something decides these arms that nobody published. They are in the gates all the same."

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
