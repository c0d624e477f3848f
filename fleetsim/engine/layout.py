"""How the GPUs of one engine share a model: by tensors, stages, ranks, experts and contexts."""

from __future__ import annotations

from collections.abc import Iterator
from typing import Literal, get_args

from msgspec import Struct

from fleetsim.config.engine import EngineConfig
from fleetsim.engine.model.mixers import Attention
from fleetsim.engine.model.shape import ModelShape
from fleetsim.errors import Problem

Exchange = Literal["auto", "gather", "all_to_all"]
Overlap = Literal["none", "two_batch"]


_COUNTS = {
    "tp": "give the number of GPUs that divide a layer",
    "pp": "give the number of stages",
    "dp": "give the number of ranks that share the experts",
    "dcp": "give the number of GPUs that divide the cached tokens",
}


class Layout(Struct, frozen=True):
    """One engine's GPUs.

    tp: GPUs that divide every layer. pp: stages that divide the layers among them. dp: ranks that share the routed
    experts of a mixture; this instance is one of them. dcp: GPUs, of the tp, that divide the cached tokens which they
    would else each hold a copy of. exchange: how tokens reach the experts of other ranks; auto = gather inside a
    server, all_to_all across servers.
    """

    tp: int = 1
    pp: int = 1
    dp: int = 1
    dcp: int = 1
    exchange: Exchange = "auto"
    overlap: Overlap = "none"

    @property
    def gpus(self) -> int:
        """GPUs of one instance."""
        return self.tp * self.pp

    @property
    def sharing(self) -> int:
        """GPUs that share the routed experts of a layer."""
        return self.tp * self.dp

    @property
    def text(self) -> str:
        """ "x8", "x16 (TP8 x PP2)", "x8 of 4 ranks"."""
        parts = f" (TP{self.tp} x PP{self.pp})" if self.pp > 1 else ""
        ranks = f" of {self.dp} ranks" if self.dp > 1 else ""
        context = f", cache divided by {self.dcp}" if self.dcp > 1 else ""
        halves = ", two batches overlap" if self.overlap == "two_batch" and self.dp > 1 else ""
        return f"x{self.gpus}{parts}{ranks}{context}{halves}"

    def gathers(self, node_gpus: int) -> bool:
        """Whether all ranks' tokens are gathered on every GPU, and not sent to their experts only."""
        if self.exchange != "auto":
            return self.exchange == "gather"
        return self.overlap == "none" and near(self.sharing, node_gpus) == self.sharing

    def stages(self, layers: int, engine: str) -> tuple[int, ...]:
        """Layers of each stage, as the engine divides them.

        What is left over goes, one layer each: in vLLM to the stages before the last (distributed/utils.py,
        `get_pp_indices`), in SGLang to the last ones (the same function), in TensorRT-LLM to the first ones
        (mapping.py, `pp_layers`).
        """
        each, over = divmod(layers, self.pp)
        last = {"vllm": self.pp - 1, "sglang": self.pp, "tensorrt-llm": over}[engine]
        return tuple(each + (last - over <= stage < last) for stage in range(self.pp))


def layout_of(engine: EngineConfig) -> Layout:
    """The layout that a scenario asks for, of the engines that decode."""
    apart = engine.disaggregation
    dp = engine.dp if apart is None else apart.decode_dp
    return Layout(engine.tp, engine.pp, dp, engine.dcp, engine.expert_exchange, engine.overlap)


def near(gpus: int, node_gpus: int, stride: int = 1) -> int:
    """How many of a group's GPUs share a server: its largest equal parts that fit.

    stride: the group has every stride-th GPU of the servers.
    """
    most = min(gpus, max(1, node_gpus // stride))
    return next(n for n in range(most, 0, -1) if gpus % n == 0)


def layout_problems(shape: ModelShape, layout: Layout) -> list[Problem]:
    """All that is wrong with a layout of this model."""
    wrong = [
        Problem(name, value, "must be an integer >= 1", remedy)
        for name, remedy in _COUNTS.items()
        if isinstance(value := getattr(layout, name), bool) or not isinstance(value, int) or value < 1
    ]
    if layout.exchange not in get_args(Exchange):
        rule = f"must be one of {', '.join(get_args(Exchange))}"
        wrong.append(Problem("expert_exchange", layout.exchange, rule, "take auto"))
    if layout.overlap not in get_args(Overlap):
        wrong.append(Problem("overlap", layout.overlap, f"must be one of {', '.join(get_args(Overlap))}", "take none"))
    if layout.overlap == "two_batch" and layout.exchange == "gather":
        rule = "two batches overlap where tokens are sent to their experts (all_to_all)"
        wrong.append(Problem("overlap", layout.overlap, rule, "take expert_exchange auto, or no overlap"))
    wrong_names = {p.path for p in wrong}
    return wrong + [p for p in _of_model(shape, layout, wrong_names) if p.path not in wrong_names]


def _of_model(shape: ModelShape, layout: Layout, wrong: set[str]) -> Iterator[Problem]:
    tp, pp, dcp = layout.tp, layout.pp, layout.dcp
    if "tp" not in wrong and shape.heads % tp:
        rule = f"must be a divisor of the {shape.heads} attention heads of {shape.name}"
        yield Problem("tp", tp, rule, "vLLM refuses it too: take a power of two")
    if "pp" not in wrong and pp > shape.layers:
        yield Problem("pp", pp, f"must be at most the {shape.layers} layers of {shape.name}", "use fewer stages")
    if wrong & {"tp", "dcp"} or dcp == 1:
        return
    copies = tp // max((m.kv_heads for _, m in shape.attentions if isinstance(m, Attention)), default=1)
    if tp % dcp or dcp > copies:
        rule = f"must be a divisor of tp {tp}, at most the {max(1, copies)} GPUs that hold copies of one head's cache"
        yield Problem("dcp", dcp, rule, "lower dcp, or raise tp")
