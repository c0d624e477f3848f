"""Which MLP or mixture of experts each layer of a config.json has."""

from __future__ import annotations

from fleetsim.engine.model.hf.fields import Fields
from fleetsim.engine.model.mlps import Dense, Mixture, Mlp

NO_GATE = {"gpt_neox", "phi", "starcoder2", "falcon", "nemotron", "nemotron_h"}
_GATED_SHARED = ("qwen2_moe", "qwen3_next", "qwen3_5")
_EXPERTS = ("num_experts", "num_local_experts", "n_routed_experts", "moe_num_experts")
_PER_TOKEN = (
    "num_experts_per_tok", "num_experts_per_token", "experts_per_token", "moe_k", "moe_topk", "top_k_experts",
)  # fmt: skip


def read_mlps(fields: Fields, layers: int) -> list[Mlp]:
    """The MLP of each layer, in order."""
    experts = fields.count(*_EXPERTS, default=0, least=0)
    width = fields.count("intermediate_size_mlp", "dense_intermediate_size", default=0)
    expert_default = fields.count("intermediate_size", default=0 if experts else None)
    dense = Dense(width or expert_default, gated_mlp(fields), fields.flag("mlp_bias", default=False))
    if fields.family.startswith("gemma4") and not fields.flag("enable_moe_block", default=False):
        experts = 0
    if not experts:
        return [dense] * layers
    mixture = read_mixture(fields, experts, expert_default)
    is_dense = _dense_layers(fields, layers)
    return [dense if is_dense[i] else mixture for i in range(layers)]


def gated_mlp(fields: Fields) -> bool:
    """Whether its MLPs have a gate beside the way up."""
    act = fields.get("mlp_hidden_act")
    return fields.family not in NO_GATE and act != "relu2"


def read_mixture(fields: Fields, experts: int, intermediate: int) -> Mixture:
    """The mixture of experts. intermediate: the width of an expert where it has no key of its own."""
    width = fields.count("moe_intermediate_size", "expert_intermediate_size", default=intermediate or None)
    per_token = fields.count(*_PER_TOKEN)
    if not fields.problems and per_token > experts:
        fields.wrong("num_experts_per_tok", per_token, f"at most the number of experts ({experts})", "check both")
    shared = _shared_width(fields, width, intermediate)
    return Mixture(
        experts,
        per_token,
        width,
        shared,
        shared_gate=shared > 0 and fields.family.startswith(_GATED_SHARED),
        gated=gated_mlp(fields),
        bias=fields.family.startswith("gpt_oss"),
        latent=fields.count("moe_latent_size", "routed_expert_hidden_size", default=0, least=0),
    )


def _shared_width(fields: Fields, width: int, intermediate: int) -> int:
    """Width of the experts that every token visits, summed. Llama 4 has one of the routed width and no key for it."""
    if fields.family.startswith("llama4"):
        return width
    if fields.family.startswith("gemma4"):  # the dense MLP stands beside the mixture
        return intermediate
    count = fields.count(
        "n_shared_experts", "num_shared_experts", "num_shared_expert", "moe_num_shared_experts", default=0, least=0
    )
    own = fields.count(
        "shared_expert_intermediate_size", "moe_shared_expert_intermediate_size", "share_expert_dim",
        "shared_intermediate_size", default=-1, least=0,
    )  # fmt: skip
    return count * width if own < 0 else own


def _dense_layers(fields: Fields, layers: int) -> list[bool]:
    """Layers of a mixture that keep a dense MLP, by whichever of the keys a family has."""
    kinds = fields.listed("mlp_layer_types", layers)
    if kinds is not None:
        return [kind == "dense" for kind in kinds]
    if isinstance(fields.get("moe_layer_freq"), list):
        frequency = fields.listed("moe_layer_freq", layers) or [1] * layers
        return [not bool(f) for f in frequency]
    only = fields.get("mlp_only_layers") or []
    if not isinstance(only, list) or not all(isinstance(i, int) for i in only):
        fields.wrong("mlp_only_layers", only, "a list of layer numbers")
        only = []
    step = fields.count("decoder_sparse_step", "interleave_moe_layer_step", "moe_layer_interval", default=1)
    step = max(step, fields.count("moe_layer_freq", default=1))
    first = fields.count("first_k_dense_replace", "moe_layer_start_index", default=0, least=0)
    last = fields.count("moe_layer_end_index", default=layers, least=0)
    return [i < first or i > last or i in only or (i + 1) % step != 0 for i in range(layers)]
