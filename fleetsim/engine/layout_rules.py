"""Which layouts an engine can have for a model on a GPU."""

from __future__ import annotations

from collections.abc import Iterator
from typing import get_args

from fleetsim.engine.layout import Exchange, Layout, Overlap
from fleetsim.engine.model.mixers import Attention
from fleetsim.engine.model.shape import ModelShape
from fleetsim.errors import Problem

_COUNTS = {
    "tp": "give the number of GPUs that divide a layer",
    "pp": "give the number of stages",
    "dp": "give the number of ranks that share the experts",
    "dcp": "give the number of GPUs that divide the cached tokens",
}


def layout_problems(shape: ModelShape, layout: Layout) -> list[Problem]:
    """All that is wrong with a layout of this model."""
    wrong = [
        Problem(name, value, "an integer >= 1", remedy)
        for name, remedy in _COUNTS.items()
        if isinstance(value := getattr(layout, name), bool) or not isinstance(value, int) or value < 1
    ]
    if layout.exchange not in get_args(Exchange):
        rule = f"one of {', '.join(get_args(Exchange))}"
        wrong.append(Problem("expert_exchange", layout.exchange, rule, "take auto"))
    if layout.overlap not in get_args(Overlap):
        wrong.append(Problem("overlap", layout.overlap, f"one of {', '.join(get_args(Overlap))}", "take none"))
    if layout.overlap == "two_batch" and layout.exchange == "gather":
        rule = "two batches overlap where tokens are sent to their experts (all_to_all)"
        wrong.append(Problem("overlap", layout.overlap, rule, "take expert_exchange auto, or no overlap"))
    wrong_names = {p.path for p in wrong}
    return wrong + [p for p in _of_model(shape, layout, wrong_names) if p.path not in wrong_names]


def _of_model(shape: ModelShape, layout: Layout, wrong: set[str]) -> Iterator[Problem]:
    tp, pp, dcp = layout.tp, layout.pp, layout.dcp
    if "tp" not in wrong and shape.heads % tp:
        rule = f"a divisor of the {shape.heads} attention heads of {shape.name}"
        yield Problem("tp", tp, rule, "vLLM refuses it too: take a power of two")
    if "pp" not in wrong and pp > shape.layers:
        yield Problem("pp", pp, f"at most the {shape.layers} layers of {shape.name}", "use fewer stages")
    if wrong & {"tp", "dcp"} or dcp == 1:
        return
    copies = tp // max((m.kv_heads for _, m in shape.attentions if isinstance(m, Attention)), default=1)
    if tp % dcp or dcp > copies:
        rule = f"a divisor of tp {tp} and at most the {max(1, copies)} GPUs that hold copies of one head's cache"
        yield Problem("dcp", dcp, rule, "lower dcp, or raise tp")
