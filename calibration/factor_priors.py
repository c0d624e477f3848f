"""What is known of the roofline's efficiency factors before `fit_roofline.py` fits them."""

from __future__ import annotations

from dataclasses import dataclass, fields

from fleetsim.engine.factors import RooflineFactors


@dataclass(frozen=True, slots=True)
class Prior:
    """What is known of a factor before the fit: value, bounds, standard deviation of its logarithm, and from where."""

    value: float
    low: float
    high: float
    sigma: float
    source: str


PRIORS: dict[str, Prior] = {
    "memory_efficiency": Prior(
        0.85, 0.6, 0.95, 0.1, "weight reads of 2.6 to 2.8 TB/s under Nsight and a triad of 3.1 TB/s on H100 SXM (3.35)"
    ),
    "grouped_cache_efficiency": Prior(
        0.7, 0.4, 0.95, 0.2, "0.42 to 0.57 under Nsight in one report (70B, TP 8), up to 0.9 if it read like weights"
    ),
    "compute_efficiency": Prior(
        0.65, 0.4, 0.85, 0.15, "prefill MFU 0.65 in inference-sim's hardware_config.json; best square GEMMs reach 0.8"
    ),
    "link_efficiency": Prior(
        0.2,
        0.05,
        0.7,
        0.5,
        "0.13 (16 to 18 us per MB over two H100s, sgl-project/sglang pull request 2904) with a copy "
        "that captured graphs avoid",
    ),
    "iteration_s": Prior(500e-6, 100e-6, 5e-3, 0.7, "overhead of 500 us in inference-sim's hardware_config.json"),
    "layer_s": Prior(30e-6, 5e-6, 150e-6, 0.5, "20 us in the same file to ten small kernels of 4 us each"),
    "sequence_s": Prior(5e-6, 0.1e-6, 50e-6, 1.0, "Python work per request in scheduler and output processing"),
    "allreduce_s": Prior(
        6e-6, 3e-6, 20e-6, 0.4, "3.7 us (best kernel) to 8.7 us (vLLM's) for 512 bytes, two H100s, same pull request"
    ),
}
NAMES = tuple(field.name for field in fields(RooflineFactors))
