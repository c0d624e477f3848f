"""The few numbers that turn bytes and operations into seconds: per family of GPUs, precision and engine.

They are in `calibration/engine_curves.json`, written by `calibration/fit_engine.py`, which starts from measured kernels
and then fits all numbers together to published runs of whole engines. A GPU without measured kernels has the curves of
its nearest relative on its own data sheet. docs/accuracy.md shows the errors.
"""

from __future__ import annotations

import json
from collections.abc import Mapping
from functools import cache
from pathlib import Path
from typing import Any

from msgspec import Struct

from fleetsim.config.data_files import NotNegative, data_path, fitted
from fleetsim.engine.model.shape import ModelShape

_FIT = "calibration/fit_engine.py"


class GemmCurve(Struct, frozen=True):
    """n tokens times one weight matrix: start_s + ((bytes / rate)^knee + (operations / rate)^knee)^(1/knee).

    start_s: launch, and filling the GPU. bandwidth, compute: shares of the data sheet. wave: the product takes at least
    this part of the time that all processors need for one 128 x 128 tile each. knee: 1 adds the two times (nothing
    overlaps), infinity takes the longer.
    """

    start_s: NotNegative
    bandwidth: NotNegative
    compute: NotNegative
    wave: NotNegative
    knee: NotNegative


class ExpertCurve(Struct, frozen=True):
    """The routed experts of one layer: start_s (router, sorting, launches) + bytes / rate + operations / rate."""

    start_s: NotNegative
    bandwidth: NotNegative
    compute: NotNegative


class GroupedCurve(Struct, frozen=True):
    """Routed experts whose tokens were sent to them (DeepGEMM after DeepEP): start_s + the longer of bytes / rate and
    operations / rate."""

    start_s: NotNegative
    bandwidth: NotNegative
    compute: NotNegative


class DecodeCurve(Struct, frozen=True):
    """Attention of decodes: start_s, and the cache at a share of the bandwidth.

    bandwidth, bandwidth_fp8: of a cache in 16 and in 8 bits. compute: share of the bf16 peak, where many heads read one
    latent and operations bind. Contexts below some 200 tokens cost what 200 do, which is left out.
    """

    start_s: NotNegative
    bandwidth: NotNegative
    bandwidth_fp8: NotNegative
    compute: NotNegative


class AllReduceCurve(Struct, frozen=True):
    """One all-reduce: start_s, more by a share per doubling of the GPUs, and the message at a share of the link."""

    start_s: NotNegative
    per_doubling: NotNegative
    link: NotNegative


class GpuFamily(Struct, frozen=True):
    """What GPUs of one architecture reach of their data sheets.

    gemm, experts: by the type that the GPU multiplies in: bfloat16, fp8, fp4, and weights (stored small, unpacked on
    the way and multiplied in 16 bits). grouped: of experts in 8 bits that get their tokens by an exchange of few or of
    many tokens; none where nobody measured it. prefill: share of the bf16 peak in the attention of prompts.
    """

    gemm: Mapping[str, GemmCurve]
    experts: Mapping[str, ExpertCurve]
    grouped: Mapping[str, GroupedCurve]
    decode: DecodeCurve
    latent: DecodeCurve
    prefill: NotNegative
    allreduce: AllReduceCurve


class Host(Struct, frozen=True):
    """What one engine adds to its kernels.

    iteration_s: scheduling, input preparation, sampling, output, as far as the GPU waits for them. layer_s: gaps and
    small kernels of one layer. sequence_s, prompt_token_s: per running sequence and per prompt token. experts,
    allreduce: its kernels' start over those measured alone. request_s: what a request to its server takes beside the
    engine, until the client has its first token.
    """

    iteration_s: NotNegative
    layer_s: NotNegative
    sequence_s: NotNegative
    prompt_token_s: NotNegative
    experts: NotNegative
    allreduce: NotNegative
    request_s: NotNegative


class Curves(Struct, frozen=True, eq=False):
    """All of them. passes: over a layer's hidden states, read or written by norms, residuals, rotations, conversions.
    uneven: how much longer the busiest of the GPUs that share experts takes for their operations. models: by their
    sizes, how much longer published ones take than their operators: "" always, more under an engine in some bits."""

    families: Mapping[str, GpuFamily]
    hosts: Mapping[str, Host]
    passes: NotNegative
    uneven: NotNegative
    models: Mapping[str, Mapping[str, NotNegative | str]]

    def factor_of(self, shape: ModelShape, engine: str, bits: int) -> float:
        """How much longer a model takes than its operators; 1 for one of which no run was published."""
        found = self.models.get(key_of(shape), {})
        return float(found.get("", 1.0)) * float(found.get(f"{engine}/{bits}", 1.0))


def key_of(shape: ModelShape) -> str:
    """A model's sizes: what fine-tunes, releases and other names of one model share."""
    return f"{shape.layers} x {shape.hidden}, {shape.vocab}"


def curves_of(document: Mapping[str, Any]) -> Curves:
    """From the parsed JSON. Raises InputError naming what is missing, or no number of at least 0."""
    return fitted(Curves, json.dumps(document), "engine_curves", _FIT)


def read_curves(path: Path) -> Curves:
    """From the file that calibration/fit_engine.py writes. Raises InputError when it is not that file."""
    return fitted(Curves, path, "engine_curves", _FIT)


@cache
def shipped_curves() -> Curves:
    """Those that come with the package, read once."""
    return read_curves(data_path("calibration", "engine_curves.json"))
