"""Keys of a config.json that the reader does not use: those that change nothing here, and those that may."""

from __future__ import annotations

import re

from fleetsim.engine.model.hf.fields import Fields

# Words in the name of a key that may change what a layer holds, reads or multiplies.
_STRUCTURE = re.compile(
    r"attn|attention|window|sliding|chunk|moe|expert|kv_|_kv|head|layer|latent|lora|sparse|index|topk|top_k|ssm|mamba|"
    r"linear|compress|share|mlp|ffn|block|hybrid|state_|conv|dim\b|_dim_|cla\b|per_layer|memory|engram|width|laurel|altup"
)
# Rotary angles, norms, activations, routing rules, capacities of training, multi-token prediction, generation, vision:
# none changes the weights that a token of text is multiplied with, or its cache.
_HARMLESS = re.compile(
    r".*(rope|rotary|norm|dropout|bias_update|aux_loss|token_id|token_index|_capacity|jitter|z_loss|eps|epsilon|beta|"
    r"_scale|scaling|alpha|softcap\w*|logits?|init\w*|mtp|nextn|vision|audio|video|image|img)\w*|"
    r"architectures|auto_map|hidden_act\w*|.*_hidden_act|num_nextn_predict_layers|chunk_size|chunk_size_feed_forward|"
    r"add_cross_attention|cross_attention_hidden_size|output_attentions|output_hidden_states|pruned_heads|tie_\w+|"
    r"top_k|top_p|num_beam\w*|ep_size|n_group|topk_group|topk_method|num_expert_group|use_grouped_topk|num_hash_layers|"
    r"moe_layers?_(router|dtype)|moe_router_\w+|moe_renormalize|shared_moe_mode|moe_shared_expert_overlap|qk_head_dim|"
    r"use_mixed_mlp_moe|use_moe_router_bias|use_bidirectional_attention|use_mamba_kernels|use_conv_bias|use_cache|"
    r"query_pre_attn_scalar|mamba_(proj_bias|hidden_act|ssm_dtype|chunk_size|dt_\w+|expand|d_\w+)|mamba_ssm_cache_dtype|"
    r"time_step_\w+|expand|hc_\w+|index_share_for_mtp_iteration|index_skip_topk_offset|index_topk_freq|indexer_rope\w*|"
    r"index_topk_pattern|attn_res_block_size|latent_moe_use_norm|sliding_window_size|max_window_layers|ignore_index|"
    r"dual_chunk_attention_config|attention_chunk_size|swa_rope_theta|vocab_size_per_layer_input|linear_num_\w+|"
    r"add_\w+_sink_bias|attention_value\w*|attn_implementation|_attn_\w+|no_rope_layer\w*|moe_intermediate_size|"
    r"decoder_sparse_step|intermediate_size\w*|num_global_key_value_heads|num_key_value_heads|head_dim|"
    r"layernorm_\w+|norm_topk_prob|n_groups|conv_kernel|router_\w+|unused_\w+|use_mla|mlp_only_layers|use_\w*flash\w*|"
    r"num_experts_per_tok(en)?|experts_per_token|full_attention_interval|shared_intermediate_size|layer_types|"
    r"sliding_window|mlp_layer_types|moe_layer_freq|first_k_dense_replace|interleave_moe_layer_step|expert_dtype"
)


def refuse_unknown(fields: Fields) -> None:
    """A problem for each key that looks like one of attention or mixtures, is set, and was not read."""
    for key, value in fields.config.items():
        if key in fields.used or not value or not isinstance(key, str):
            continue
        if _STRUCTURE.search(key) and not _HARMLESS.fullmatch(key):
            shown = value if isinstance(value, str | int | float) else type(value).__name__
            rule = "a field that is known: it may change the attention or the experts"
            fields.wrong(key, shown, rule, "give a measured profile of this model, or remove the field if it does not")
