"""How NeMo-RL trains a batch. Sources: `nemo_rl.py`."""

from __future__ import annotations

from fleetsim.frameworks import recipe
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
        recipe.counts(
            draft, {k: f"policy.dtensor_cfg.{w}_parallel_size" for k, w in (("tp", "tensor"), ("cp", "context"))}
        )
    section = "megatron_cfg" if megatron.value else "dtensor_cfg"
    recipe.flags(
        draft,
        {
            "recompute": (f"policy.{section}.activation_checkpointing", False),
            "packing": ("policy.sequence_packing.enabled", True),
        },
    )
