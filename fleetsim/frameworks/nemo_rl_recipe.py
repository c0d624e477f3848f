"""How NeMo-RL trains a batch. Sources: `nemo_rl.py`."""

from __future__ import annotations

from fleetsim.frameworks import recipe, roles
from fleetsim.frameworks.draft import Draft
from fleetsim.frameworks.reading import one_of


def put_recipe(draft: Draft) -> None:
    """The update: policy.dtensor_cfg (FSDP2), or policy.megatron_cfg where that is on."""
    megatron = draft.flag("policy.megatron_cfg.enabled", default=False)
    back = one_of(
        {
            "megatron": {"policy.megatron_cfg.enabled": True, "policy.dtensor_cfg.enabled": False},
            "fsdp": {"policy.megatron_cfg.enabled": False, "policy.dtensor_cfg.enabled": True},
        }
    )
    if megatron.given:
        draft.put("trainer.recipe.backend", "megatron" if megatron.value else "fsdp", megatron, back=back, unless=None)
    else:
        draft.could("trainer.recipe.backend", None, back, None)
    if megatron.value:
        ranks = {"tp": "tensor_model", "pp": "pipeline_model", "cp": "context", "ep": "expert_model"}
        recipe.counts(draft, {k: f"policy.megatron_cfg.{word}_parallel_size" for k, word in ranks.items()})
        recipe.words(draft, "offload", {"true": "adam"}, "policy.megatron_cfg.optimizer.optimizer_cpu_offload")
    else:
        words = {"tp": "tensor", "cp": "context", "ep": "expert"}
        recipe.counts(draft, {k: f"policy.dtensor_cfg.{word}_parallel_size" for k, word in words.items()})
        recipe.words(draft, "offload", {"true": "adam"}, "policy.dtensor_cfg.cpu_offload")
    section = "megatron_cfg" if megatron.value else "dtensor_cfg"
    recipe.flags(
        draft,
        {
            "recompute": (f"policy.{section}.activation_checkpointing", False),
            "packing": ("policy.sequence_packing.enabled", True),
        },
    )
    lora = "policy.megatron_cfg.peft" if megatron.value else "policy.dtensor_cfg.lora_cfg"
    roles.adapters(draft, draft.flag(f"{lora}.enabled", default=False))
    if megatron.value and draft.flag("policy.megatron_cfg.fp8_cfg.enabled", default=False).value:
        recipe.words(draft, "precision", {"true": "fp8"}, "policy.megatron_cfg.fp8_cfg.enabled")
    quantized = draft.maybe_text("policy.quant_cfg")
    if quantized is not None:
        why = f"{quantized}: imitated in 16 bits, which takes longer"
        draft.assume("trainer.recipe.precision", "bf16", why, "--set trainer.fixed_s=SECONDS, from your own logs")
    draft.settings.see("policy.megatron_cfg" if not megatron.value else "policy.dtensor_cfg")
