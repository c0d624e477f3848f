"""What one token costs a trainer, whatever the GPU: operations, numbers that are moved, numbers that are sent."""

from __future__ import annotations

from functools import cache

from fleetsim.dataclass import dataclass
from fleetsim.engine.model.mixers import Attention
from fleetsim.engine.model.mlps import Dense, Mixture
from fleetsim.engine.model.shape import Block, ModelShape
from fleetsim.engine.model.states import StateMixer

# Copies of the hidden state that a layer reads or writes once: its norms, residuals, and the inputs of its products.
_HIDDEN_COPIES = 8
# A routed token is sent to its experts and back, and each copy is sorted and unsorted.
_ROUTED_COPIES = 4


@dataclass(frozen=True, slots=True)
class Work:
    """A forward pass of one token, summed over all layers; a backward pass is told by what it is a multiple of.

    trunk_flop: products with weights that every token visits, the LM head included. expert_flop: with the routed
    experts it visits. pair_flop: attention, per pair of tokens that see each other. moved: numbers that pass through
    memory once. head_moved: numbers of the logits. routed: numbers sent to experts on other GPUs, one way. reduced:
    numbers that tensor parallelism adds up. layers: all of them.
    """

    trunk_flop: float
    expert_flop: float
    pair_flop: float
    moved: float
    head_moved: float
    routed: float
    reduced: float
    layers: int

    def attention_flop(self, token_length: float) -> float:
        """Attention per token of sequences whose token-weighted mean length this is; half of the pairs are causal."""
        return self.pair_flop * token_length / 2


@cache
def work_of(shape: ModelShape) -> Work:
    """The forward pass of one token of this model."""
    layers = sum(b.count for b in shape.blocks)
    states = sum(2 * 2 * n * m.matrix for n, m in shape.states)
    trunk = 2 * (shape.active_trunk_params - shape.active_routed_params + shape.embedding_params) + states
    routed = sum(n * m.per_token * (m.latent or shape.hidden) for n, m in shape.mixtures)
    return Work(
        trunk_flop=trunk,
        expert_flop=2 * shape.active_routed_params,
        pair_flop=shape.prefill_pair_flop,
        moved=sum(b.count * _moved(b, shape.hidden) for b in shape.blocks),
        head_moved=shape.vocab,
        routed=routed,
        reduced=2 * layers * shape.hidden,
        layers=layers,
    )


def _moved(block: Block, hidden: int) -> float:
    """Numbers of one layer: the hidden state, what the mixer makes, what the MLP makes for each expert it visits."""
    total = _HIDDEN_COPIES * hidden
    if block.mixer is not None:
        kind = block.mixer
        total += sum(g.n for g in kind.gemms(hidden))
        total += kind.heads * kind.head_dim if isinstance(kind, Attention) else 0
        total += 2 * hidden if isinstance(kind, StateMixer) else 0
    if isinstance(block.mlp, Dense):
        total += (2 + block.mlp.gated) * block.mlp.width
    elif isinstance(block.mlp, Mixture):
        m = block.mlp
        total += (2 + m.gated) * m.peak_width + _ROUTED_COPIES * m.per_token * (m.latent or hidden)
    return float(total)
