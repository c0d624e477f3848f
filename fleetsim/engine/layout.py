"""How the GPUs of one engine share a model: by tensors, stages, ranks, experts and contexts."""

from __future__ import annotations

from dataclasses import dataclass
from typing import Literal

from fleetsim.config.engine import EngineConfig

Exchange = Literal["auto", "gather", "all_to_all"]
Overlap = Literal["none", "two_batch"]


@dataclass(frozen=True, slots=True)
class Layout:
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
