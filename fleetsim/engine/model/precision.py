"""The precisions that weights are stored in: how large a number is, and which type the GPU multiplies it in."""

from __future__ import annotations

from msgspec import Struct

from fleetsim.errors import InputError, Problem
from fleetsim.records import replace


class Precision(Struct, frozen=True):
    """One way to store weights.

    weight_bytes: per number, scales included. computes: type of the multiplication, bfloat16, fp8 or fp4; a GPU without
    it multiplies in bfloat16 and unpacks the weights on the way (`GpuSpec.flop_s`). bits: of one number. aliases: other
    spellings. text: what it is, in words.
    """

    name: str
    weight_bytes: float
    computes: str
    bits: int
    aliases: tuple[str, ...] = ()
    text: str = ""


# Scales: NVFP4 has one fp8 number for each 16 weights, MXFP4 one of 8 bits for each 32; 4-bit integers of GPTQ, AWQ and
# compressed-tensors have 16 bits for each 128 in the usual checkpoint. Those of fp8 (one for each 128 x 128) are below
# 0.1 % and are left out.
_PRECISIONS = (
    Precision("bfloat16", 2, "bfloat16", 16, ("bf16",), "16-bit weights"),
    Precision("float16", 2, "bfloat16", 16, ("fp16", "half"), "16-bit weights"),
    Precision("fp8", 1, "fp8", 8, ("float8", "e4m3", "fp8_e4m3"), "8-bit floating point, weights and activations"),
    Precision("nvfp4", 0.5 + 1 / 16, "fp4", 4, ("fp4",), "4-bit floating point in groups of 16 (NVIDIA)"),
    Precision("mxfp4", 0.5 + 1 / 32, "fp4", 4, (), "4-bit floating point in groups of 32 (OCP microscaling)"),
    Precision("int4", 0.5 + 2 / 128, "bfloat16", 4, ("w4a16",), "4-bit integer weights, multiplied in 16 bits"),
    Precision("int4g32", 0.5 + 2 / 32, "bfloat16", 4, (), "4-bit integer weights in groups of 32"),
)
PRECISIONS: dict[str, Precision] = {p.name: p for p in _PRECISIONS}
_BY_NAME = {name: p for p in _PRECISIONS for name in (p.name, *p.aliases)}
# What the KV cache may be stored in, and bytes of one number.
KV_BYTES = {"bfloat16": 2.0, "float16": 2.0, "fp8": 1.0}


def kv_precision_of(name: str) -> str:
    """The type of a KV cache by its name or alias. Raises InputError with all that are known."""
    found = _BY_NAME.get(name.strip().lower()) if isinstance(name, str) else None
    if found is None or found.name not in KV_BYTES:
        raise InputError([Problem("kv_dtype", name, f"must be one of auto, {', '.join(KV_BYTES)}", "take auto or fp8")])
    return found.name


def precision_of(name: str) -> Precision:
    """The record of a name or alias, in any case. Raises InputError with all that are known."""
    found = _BY_NAME.get(name.strip().lower()) if isinstance(name, str) else None
    if found is None:
        rule = f"must be one of auto, {', '.join(PRECISIONS)}"
        raise InputError([Problem("dtype", name, rule, "take auto, or bfloat16 for 16 bits; float32 is not served")])
    return found


class Parts(Struct, frozen=True):
    """In which precision each part of a checkpoint is stored, by name of `PRECISIONS`.

    attention: all mixers. mlp: dense MLPs, shared experts and routers. expert: routed experts. head: embedding and LM
    head.
    """

    attention: str = "bfloat16"
    mlp: str = "bfloat16"
    expert: str = "bfloat16"
    head: str = "bfloat16"

    @property
    def smallest(self) -> str:
        """The precision that names the checkpoint: the smallest of its layers."""
        return min((self.expert, self.mlp, self.attention), key=lambda name: PRECISIONS[name].weight_bytes)

    def text(self, experts: bool) -> str:
        """ "fp8 weights", or "attention in bfloat16, experts in mxfp4". experts: whether the model has some."""
        named = {"attention": self.attention, "MLPs": self.mlp} | ({"experts": self.expert} if experts else {})
        if len(set(named.values())) == 1:
            return f"{self.attention} weights"
        return "weights: " + ", ".join(f"{part} in {dtype}" for part, dtype in named.items())


# Asked for in 4 bits of one kind, a checkpoint whose experts have 4 bits of another is taken as it is.
_ITSELF = {("nvfp4", "mxfp4"), ("int4", "int4g32")}
# All in bfloat16.
WIDE = Parts()


def usual_parts(dtype: str, own: Parts, *, experts: bool, latent: bool) -> Parts:
    """What checkpoints of a wished precision usually quantize, given what this one has.

    own: parts of the checkpoint at hand; its 16-bit type is what stays unquantized. experts, latent: whether the model
    is a mixture, and whether it has latent attention. Embeddings and LM head always stay in 16 bits. Sources: NVIDIA's
    nvfp4 checkpoints of mixtures leave attention out, in 16 bits even where the maker's is in fp8
    (hf_quant_config.json of nvidia/DeepSeek-R1-0528-NVFP4 and nvidia/MiniMax-M2.5-NVFP4); openai/gpt-oss (mxfp4) and
    moonshotai/Kimi-K2.5 (int4) quantize routed experts only.
    """
    wide = own.head if PRECISIONS[own.head].bits == 16 else "bfloat16"
    if PRECISIONS[dtype].bits == 16:
        return Parts(dtype, dtype, dtype, dtype)
    whole = Parts(dtype, dtype, dtype, wide)
    if (dtype, own.expert) in _ITSELF:
        return own
    if dtype == "nvfp4" and experts:
        return replace(whole, attention=wide)
    if experts and (dtype == "mxfp4" or (dtype.startswith("int4") and latent)):
        return replace(whole, attention=own.attention, mlp=own.mlp)
    return whole
