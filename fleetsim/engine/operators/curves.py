"""The few numbers that turn bytes and operations into seconds: per family of GPUs, precision and engine.

They are in `calibration/engine_curves.json`, written by `calibration/fit_engine.py`, which starts from measured kernels
and then fits all numbers together to published runs of whole engines. A GPU without measured kernels has the curves of
its nearest relative on its own data sheet. docs/accuracy.md shows the errors.
"""

from __future__ import annotations

import json
import math
from collections.abc import Mapping
from functools import cache
from pathlib import Path
from typing import Any, TypeVar

from msgspec import Struct

from fleetsim.engine.model.shape import ModelShape
from fleetsim.errors import InputError, Problem
from fleetsim.records import field_names


class GemmCurve(Struct, frozen=True):
    """n tokens times one weight matrix: start_s + ((bytes / rate)^knee + (operations / rate)^knee)^(1/knee).

    start_s: launch, and filling the GPU. bandwidth, compute: shares of the data sheet. wave: the product takes at least
    this part of the time that all processors need for one 128 x 128 tile each. knee: 1 adds the two times (nothing
    overlaps), infinity takes the longer.
    """

    start_s: float
    bandwidth: float
    compute: float
    wave: float
    knee: float


class ExpertCurve(Struct, frozen=True):
    """The routed experts of one layer: start_s (router, sorting, launches) + bytes / rate + operations / rate."""

    start_s: float
    bandwidth: float
    compute: float


class GroupedCurve(Struct, frozen=True):
    """Routed experts whose tokens were sent to them (DeepGEMM after DeepEP): start_s + the longer of bytes / rate and
    operations / rate."""

    start_s: float
    bandwidth: float
    compute: float


class DecodeCurve(Struct, frozen=True):
    """Attention of decodes: start_s, and the cache at a share of the bandwidth.

    bandwidth, bandwidth_fp8: of a cache in 16 and in 8 bits. compute: share of the bf16 peak, where many heads read one
    latent and operations bind. Contexts below some 200 tokens cost what 200 do, which is left out.
    """

    start_s: float
    bandwidth: float
    bandwidth_fp8: float
    compute: float


class AllReduceCurve(Struct, frozen=True):
    """One all-reduce: start_s, more by a share per doubling of the GPUs, and the message at a share of the link."""

    start_s: float
    per_doubling: float
    link: float


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
    prefill: float
    allreduce: AllReduceCurve


class Host(Struct, frozen=True):
    """What one engine adds to its kernels.

    iteration_s: scheduling, input preparation, sampling, output, as far as the GPU waits for them. layer_s: gaps and
    small kernels of one layer. sequence_s, prompt_token_s: per running sequence and per prompt token. experts,
    allreduce: its kernels' start over those measured alone. request_s: what a request to its server takes beside the
    engine, until the client has its first token.
    """

    iteration_s: float
    layer_s: float
    sequence_s: float
    prompt_token_s: float
    experts: float
    allreduce: float
    request_s: float


_Record = TypeVar("_Record", GemmCurve, ExpertCurve, GroupedCurve, DecodeCurve, AllReduceCurve, Host)


class Curves(Struct, frozen=True, eq=False):
    """All of them. passes: over a layer's hidden states, read or written by norms, residuals, rotations, conversions.
    uneven: how much longer the busiest of the GPUs that share experts takes for their operations. models: by their
    sizes, how much longer published ones take than their operators: "" always, more under an engine in some bits."""

    families: Mapping[str, GpuFamily]
    hosts: Mapping[str, Host]
    passes: float
    uneven: float
    models: Mapping[str, Mapping[str, float]]

    def factor_of(self, shape: ModelShape, engine: str, bits: int) -> float:
        """How much longer a model takes than its operators; 1 for one of which no run was published."""
        found = self.models.get(key_of(shape), {})
        return found.get("", 1.0) * found.get(f"{engine}/{bits}", 1.0)


def key_of(shape: ModelShape) -> str:
    """A model's sizes: what fine-tunes, releases and other names of one model share."""
    return f"{shape.layers} x {shape.hidden}, {shape.vocab}"


def curves_of(document: Mapping[str, Any]) -> Curves:
    """From the parsed JSON. Raises InputError naming what is missing, or no finite number of at least 0."""
    try:
        families = {
            name: GpuFamily(
                {kind: _record(GemmCurve, f"{name}.gemm.{kind}", row) for kind, row in f["gemm"].items()},
                {kind: _record(ExpertCurve, f"{name}.experts.{kind}", row) for kind, row in f["experts"].items()},
                {kind: _record(GroupedCurve, f"{name}.grouped.{kind}", row) for kind, row in f["grouped"].items()},
                _record(DecodeCurve, f"{name}.decode", f["decode"]),
                _record(DecodeCurve, f"{name}.latent", f["latent"]),
                _number(f"{name}.prefill", f["prefill"]),
                _record(AllReduceCurve, f"{name}.allreduce", f["allreduce"]),
            )
            for name, f in document["families"].items()
        }
        hosts = {name: _record(Host, f"hosts.{name}", row) for name, row in document["hosts"].items()}
        models = {
            key: {kind: _number(f"models.{key}.{kind}", factor) for kind, factor in row.items() if kind != "of"}
            for key, row in document["models"].items()
        }
        uneven = _number("uneven", document["uneven"])
        return Curves(families, hosts, _number("passes", document["passes"]), uneven, models)
    except (KeyError, TypeError, AttributeError) as error:
        raise _wrong("engine_curves", type(error).__name__, f"the keys that the fit writes ({error})") from error


def read_curves(path: Path) -> Curves:
    """From the file that calibration/fit_engine.py writes. Raises InputError when it is not that file."""
    try:
        document = json.loads(path.read_text(encoding="utf-8"))
    except (OSError, ValueError) as error:
        raise _wrong("engine_curves", str(path), f"readable JSON ({error})") from error
    return curves_of(document)


@cache
def shipped_curves() -> Curves:
    """Those that come with the package, read once."""
    from fleetsim.config.data_files import data_path

    return read_curves(data_path("calibration", "engine_curves.json"))


def _record(kind: type[_Record], where: str, row: Mapping[str, Any]) -> _Record:
    return kind(**{name: _number(f"{where}.{name}", row[name]) for name in field_names(kind)})


def _number(where: str, value: Any) -> float:
    if isinstance(value, bool) or not isinstance(value, int | float) or not math.isfinite(value) or value < 0:
        raise _wrong(f"engine_curves.{where}", value, "a finite number of at least 0")
    return float(value)


def _wrong(path: str, value: object, rule: str) -> InputError:
    return InputError([Problem(path, value, rule, "run calibration/fit_engine.py again")])
