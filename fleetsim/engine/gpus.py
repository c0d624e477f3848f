"""GPU data sheets: the hardware half of the roofline.

Peaks are dense (without sparsity) and as printed by the vendor; what an engine reaches of them is the business of
the curves of its operators (`fleetsim.engine.operators`). Memory is what a process sees (`torch.cuda.mem_get_info`),
because vLLM takes `gpu_memory_utilization` of that number and not of the one on the box.
"""

from __future__ import annotations

import difflib
from functools import lru_cache

from msgspec import Struct

from fleetsim.config.engine import EngineConfig
from fleetsim.errors import InputError, Problem
from fleetsim.records import replace

_GIB = 2**30


class GpuSpec(Struct, frozen=True):
    """One GPU.

    memory_bytes: visible to a process. memory_bytes_s: HBM or GDDR bandwidth. bf16_flop_s: dense bf16 and fp16.
    fp8_flop_s, fp4_flop_s: dense fp8 and fp4, None where the tensor cores have none. link_bytes_s: to its peers, per
    GPU, one direction: of NVLink and Infinity Fabric the data sheet's, of PCIe what collectives reach (PCIE_BYTES_S).
    node_gpus: GPUs that such links join in the usual server. card_bytes_s: between servers, per GPU, one direction;
    None = its usual network card (`nic_bytes_s`). source: where the peaks are printed.
    """

    name: str
    memory_bytes: float
    memory_bytes_s: float
    bf16_flop_s: float
    fp8_flop_s: float | None
    link_bytes_s: float
    source: str
    node_gpus: int = 8
    aliases: tuple[str, ...] = ()
    fp4_flop_s: float | None = None
    card_bytes_s: float | None = None

    @property
    def family(self) -> str:
        """Its architecture, by which it reaches more or less of its data sheet (`fleetsim.engine.operators.curves`)."""
        return _made_of(self)[0]

    @property
    def processors(self) -> int:
        """Streaming multiprocessors, or compute units."""
        return _made_of(self)[1]

    @property
    def pcie(self) -> bool:
        """Whether only PCIe joins it to its peers; `link_bytes_s` is then what collectives reach."""
        return self.link_bytes_s <= PCIE_BYTES_S

    @property
    def nic_bytes_s(self) -> float:
        """To GPUs that its links do not reach, per GPU, one direction: its network card, as the vendor prints it."""
        if self.card_bytes_s is not None:
            return self.card_bytes_s
        if self.node_gpus in _BRIDGED:
            return PCIE_BYTES_S
        return _SHARED_NIC if self.pcie else _NICS.get(self.name.partition("-")[0], _USUAL_NIC)

    def flop_s(self, computes: str) -> float:
        """Dense peak of fp8 or fp4 where the GPU has it, else that of bf16: the weights are unpacked on the way."""
        peak = {"fp8": self.fp8_flop_s, "fp4": self.fp4_flop_s}.get(computes)
        return self.bf16_flop_s if peak is None else peak


# Between GPUs that only PCIe joins, collectives reach a fraction of the slot's 32 (4.0) or 64 GB/s (5.0), because they
# cross the host's bridges and memory. NCCL's all-reduce: 8.6 to 9.3 GB/s for messages of 256 to 512 KiB and 16.4 for 2
# MiB and more over four GPUs (gardenlinux/gardenlinux issue 4556), 9 GB/s over four V100 on one switch (384 KiB, pull
# request 2 of haohervchb/sglang-V100). NCCL itself counts on 10 GB/s between sockets and 24 below one (PCIe 4.0,
# NVIDIA/nccl-tests issue 307). End to end, 9 to 16 GB/s fit published latencies of two such GPUs; 64 GB/s is 26 % too
# fast there.
PCIE_BYTES_S = 16e9
# One ConnectX-7 of 400 Gb/s for each GPU is usual (HGX H100, DGX GB200). DGX A100 has 200 Gb/s, HGX B300 and GB300
# NVL72 have 800 (ConnectX-8); PCIe cards share one card of 200 to 400 among two to four, which is taken as 100 each.
# Where a bridge joins two or four cards of a server, the others are reached over PCIe.
_USUAL_NIC, _SHARED_NIC = 50e9, 12.5e9
_NICS = {"A100": 25e9, "A800": 25e9, "B300": 100e9, "GB300": 100e9}
_BRIDGED = (2, 4)

# Visible memory: PyTorch's own "total capacity" and vLLM's "total_gpu_memory" lines; it varies by a few dozen MiB with
# the driver. It is below the marketing capacity because ECC and the driver take their part first.
_GPUS = (
    GpuSpec(
        "A100-SXM-40GB", 39.39 * _GIB, 1.555e12, 312e12, None, 300e9, "NVIDIA A100 Tensor Core GPU data sheet",
        aliases=("A100-40", "A100-40GB", "A100-SXM4-40GB"),
    ),
    GpuSpec(
        "A100-SXM-80GB", 79.15 * _GIB, 2.039e12, 312e12, None, 300e9, "NVIDIA A100 Tensor Core GPU data sheet",
        aliases=("A100", "A100-80", "A100-80GB", "A100-SXM", "A100-SXM4-80GB"),
    ),
    GpuSpec(
        "A100-PCIe-80GB", 79.15 * _GIB, 1.935e12, 312e12, None, PCIE_BYTES_S,
        "NVIDIA A100 Tensor Core GPU data sheet (PCIe 80GB)", aliases=("A100-PCIe",),
    ),
    GpuSpec(
        "A100-PCIe-40GB", 39.39 * _GIB, 1.555e12, 312e12, None, PCIE_BYTES_S,
        "NVIDIA A100 Tensor Core GPU data sheet (PCIe 40GB)",
    ),
    GpuSpec(
        "A800-SXM", 79.15 * _GIB, 2.039e12, 312e12, None, 200e9,
        "NVIDIA A800: A100 SXM 80GB with NVLink cut to 400 GB/s (NVIDIA A800 Tensor Core GPU data sheet)",
        aliases=("A800", "A800-80GB"),
    ),
    GpuSpec(
        "H100-SXM", 79.11 * _GIB, 3.35e12, 989.4e12, 1978.9e12, 450e9, "NVIDIA H100 Tensor Core GPU data sheet (SXM5)",
        aliases=("H100", "H100-80GB", "H100-SXM5", "H100-SXM-80GB"),
    ),
    GpuSpec(
        "H100-PCIe", 79.11 * _GIB, 2.0e12, 756e12, 1513e12, PCIE_BYTES_S,
        "NVIDIA H100 Tensor Core GPU data sheet (PCIe)",
        aliases=("H100-PCIe-80GB",),
    ),
    # A bridge joins two of them.
    GpuSpec(
        "H100-NVL", 93.10 * _GIB, 3.9e12, 835.5e12, 1671e12, 300e9, "NVIDIA H100 NVL data sheet (94 GB, dense)",
        node_gpus=2, aliases=("H100-NVL-94GB",),
    ),
    # One per server; its own links join up to 32 of them, which is left out.
    GpuSpec(
        "GH200", 94.5 * _GIB, 4.0e12, 989.4e12, 1978.9e12, 450e9, "NVIDIA GH200 data sheet (96 GB HBM3)", node_gpus=1,
        aliases=("GH200-96GB", "GH200-480GB"),
    ),
    GpuSpec(
        "H200-SXM", 139.81 * _GIB, 4.8e12, 989.4e12, 1978.9e12, 450e9, "NVIDIA H200 Tensor Core GPU data sheet (SXM)",
        aliases=("H200", "H200-141GB", "H200-SXM-141GB"),
    ),
    # A bridge joins four of them.
    GpuSpec(
        "H200-NVL", 139.81 * _GIB, 4.8e12, 835.5e12, 1671e12, 450e9, "NVIDIA H200 data sheet (NVL, dense)",
        node_gpus=4, aliases=("H200-NVL-141GB",),
    ),
    GpuSpec(
        "H800-SXM", 79.11 * _GIB, 3.35e12, 989.4e12, 1978.9e12, 200e9,
        "NVIDIA H800: H100 SXM with NVLink cut to 400 GB/s (DeepSeek-V3 technical report, arXiv 2412.19437)",
        aliases=("H800",),
    ),
    GpuSpec(
        "H20-SXM", 95.0 * _GIB, 4.0e12, 148e12, 296e12, 450e9, "NVIDIA H20 product brief (HGX H20, 96 GB)",
        aliases=("H20", "H20-96GB"),
    ),
    GpuSpec(
        "H20-3e", 139.81 * _GIB, 4.8e12, 148e12, 296e12, 450e9, "NVIDIA H20-3e (HGX H20, 141 GB)",
        aliases=("H20-141GB",),
    ),
    GpuSpec(
        "B200-SXM", 178.35 * _GIB, 8.0e12, 2250e12, 4500e12, 900e9, "NVIDIA HGX B200 data sheet (dense, per GPU)",
        aliases=("B200", "B200-180GB"), fp4_flop_s=9000e12,
    ),
    # One NVLink domain of 72 GPUs; 189,471 MiB are visible.
    GpuSpec(
        "GB200", 185.03 * _GIB, 8.0e12, 2500e12, 5000e12, 900e9, "NVIDIA GB200 NVL72 data sheet (dense, per GPU)",
        node_gpus=72, aliases=("GB200-NVL72", "GB200-NVL4"), fp4_flop_s=10000e12,
    ),
    # 275,040 and 284,208 MiB on the box's display, less what the driver takes on a B200.
    GpuSpec(
        "B300-SXM", 267.8 * _GIB, 8.0e12, 2250e12, 4500e12, 900e9, "NVIDIA HGX B300 data sheet (dense, per GPU)",
        aliases=("B300", "B300-288GB", "B300-SXM6"), fp4_flop_s=13500e12,
    ),
    GpuSpec(
        "GB300", 276.8 * _GIB, 8.0e12, 2500e12, 5000e12, 900e9, "NVIDIA GB300 NVL72 data sheet (dense, per GPU)",
        node_gpus=72, aliases=("GB300-NVL72",), fp4_flop_s=15000e12,
    ),
    GpuSpec(
        "L4", 22.03 * _GIB, 0.3e12, 121e12, 242.5e12, PCIE_BYTES_S, "NVIDIA L4 data sheet (dense)",
    ),
    GpuSpec(
        "L20", 44.39 * _GIB, 0.864e12, 119.5e12, 239e12, PCIE_BYTES_S, "NVIDIA L20 product brief",
    ),
    GpuSpec(
        "A10G", 22.06 * _GIB, 0.6e12, 70e12, None, PCIE_BYTES_S, "NVIDIA A10G (AWS G5: 35 TFLOPS of FP32)",
    ),
    GpuSpec(
        "L40S", 44.39 * _GIB, 0.864e12, 362.05e12, 733e12, PCIE_BYTES_S, "NVIDIA L40S data sheet (no NVLink)",
        aliases=("L40S-48GB",),
    ),
    # GeForce multiplies 16 bits and fp8 at full rate only where it adds up in 16 bits; engines add up in 32.
    GpuSpec(
        "RTX-4090", 23.52 * _GIB, 1.008e12, 165.2e12, 330.3e12, PCIE_BYTES_S,
        "NVIDIA Ada GPU architecture whitepaper, V2.02 (dense, FP32 accumulate)",
        aliases=("RTX4090", "4090", "GeForce-RTX-4090"),
    ),
    GpuSpec(
        "RTX-5090", 31.36 * _GIB, 1.792e12, 209.5e12, 419e12, PCIE_BYTES_S,
        "NVIDIA RTX Blackwell GPU architecture whitepaper (dense, FP32 accumulate)",
        aliases=("RTX5090", "5090", "GeForce-RTX-5090"), fp4_flop_s=1676e12,
    ),
    GpuSpec(
        "RTX-6000-Ada", 47.4 * _GIB, 0.96e12, 364.2e12, 728.5e12, PCIE_BYTES_S, "NVIDIA RTX 6000 Ada data sheet",
        aliases=("RTX-6000-Ada-Generation",),
    ),
    GpuSpec(
        "RTX-PRO-6000", 94.97 * _GIB, 1.597e12, 503.8e12, 1007.6e12, PCIE_BYTES_S,
        "NVIDIA RTX PRO 6000 Blackwell Server Edition data sheet (dense)",
        aliases=("RTX-PRO-6000-Blackwell", "RTX-PRO-6000-Blackwell-Server-Edition", "RTXPRO6000"), fp4_flop_s=2015e12,
    ),
    GpuSpec(
        "MI300X", 191.98 * _GIB, 5.3e12, 1307.4e12, 2614.9e12, 448e9,
        "AMD Instinct MI300X data sheet (7 Infinity Fabric links of 64 GB/s each way)",
        aliases=("MI300X-192GB",),
    ),
    GpuSpec(
        "MI325X", 255.98 * _GIB, 6.0e12, 1307.4e12, 2614.9e12, 448e9, "AMD Instinct MI325X data sheet",
        aliases=("MI325X-256GB",),
    ),
    GpuSpec(
        "MI350X", 287.98 * _GIB, 8.0e12, 2306.9e12, 4613.7e12, 537.6e9, "AMD Instinct MI350X data sheet (dense)",
        aliases=("MI350X-288GB",), fp4_flop_s=9227.5e12,
    ),
    GpuSpec(
        "MI355X", 287.98 * _GIB, 8.0e12, 2516.6e12, 5033.2e12, 537.6e9, "AMD Instinct MI355X data sheet (dense)",
        aliases=("MI355X-288GB",), fp4_flop_s=10066.3e12,
    ),
)  # fmt: skip

# Architecture and processors, by how the name begins; the longest beginning counts. From the vendors' white papers.
_MADE_OF = {
    "A100": ("ampere", 108), "A800": ("ampere", 108), "H100": ("hopper", 132), "H100-PCIe": ("hopper", 114),
    "H200": ("hopper", 132), "H800": ("hopper", 132), "H20-": ("hopper", 78), "B200": ("blackwell", 148),
    "GB200": ("blackwell", 148), "B300": ("blackwell", 160), "GB300": ("blackwell", 160), "L40S": ("ada", 142),
    "L4": ("ada", 58), "L20": ("ada", 92), "RTX 6000 Ada": ("ada", 142), "A10G": ("ampere", 80),
    "RTX 4090": ("ada", 128), "RTX 5090": ("blackwell-rtx", 170), "RTX PRO 6000": ("blackwell-rtx", 188),
    "MI300X": ("cdna3", 304), "MI325X": ("cdna3", 304), "MI350X": ("cdna4", 256),
    "MI355X": ("cdna4", 256), "GH200": ("hopper", 132),
}  # fmt: skip


def _made_of(gpu: GpuSpec) -> tuple[str, int]:
    """Family and processors; of a GPU of one's own those of the NVIDIA GPUs with the same arithmetic."""
    named = _named(gpu.name)
    if named is not None:
        return named
    if gpu.fp4_flop_s is not None:
        return "blackwell", 148
    return ("hopper", 132) if gpu.fp8_flop_s is not None else ("ampere", 108)


@lru_cache  # an engine's roofline asks for it a hundred times
def _named(name: str) -> tuple[str, int] | None:
    name = name.lower().replace("-", " ")
    starts = [start for start in _MADE_OF if name.startswith(start.lower().replace("-", " "))]
    return _MADE_OF[max(starts, key=len)] if starts else None


GPUS: dict[str, GpuSpec] = {gpu.name: gpu for gpu in _GPUS}
_BY_KEY = {key.lower(): gpu for gpu in _GPUS for key in (gpu.name, *gpu.aliases)}


def gpu_spec(gpu: str | GpuSpec) -> GpuSpec:
    """The data sheet for a name or alias, in any case ("h100" is H100-SXM); a GpuSpec passes through.

    Raises InputError with the nearest known name otherwise.
    """
    if isinstance(gpu, GpuSpec):
        return gpu
    if not isinstance(gpu, str):
        raise InputError([Problem("gpu", gpu, "a GPU's name", f"known: {', '.join(sorted(GPUS))}")])
    key = gpu.strip().lower().replace("_", "-").replace(" ", "-").removeprefix("nvidia-").removeprefix("amd-")
    found = _BY_KEY.get(key)
    if found is not None:
        return found
    near = difflib.get_close_matches(key, _BY_KEY, n=1)
    hint = f"did you mean {_BY_KEY[near[0]].name}? " if near else ""
    sheet = f"{{name: {gpu}, memory_gib: ..., memory_tb_s: ..., bf16_tflop_s: ...}}"
    known = f"{hint}known: {', '.join(sorted(GPUS))}; for another, in a scenario: engine.gpu_sheet: {sheet}"
    raise InputError([Problem("gpu", gpu, "must be a GPU whose data sheet is built in", known)])


def gpu_of(engine: EngineConfig) -> GpuSpec:
    """The data sheet of a scenario's GPU: its own where it has one of that name, else a built-in one; with its network.

    Raises InputError as `gpu_spec` does.
    """
    sheet, card = engine.gpu_sheet, None if engine.nic_gb_s is None else engine.nic_gb_s * 1e9
    if sheet is None or sheet.name != engine.gpu:
        known = gpu_spec(engine.gpu)
        return known if card is None else replace(known, card_bytes_s=card)
    fp8, fp4 = ((None if peak is None else peak * 1e12) for peak in (sheet.fp8_tflop_s, sheet.fp4_tflop_s))
    return GpuSpec(
        sheet.name, sheet.memory_gib * _GIB, sheet.memory_tb_s * 1e12, sheet.bf16_tflop_s * 1e12, fp8,
        sheet.link_gb_s * 1e9, "engine.gpu_sheet", sheet.node_gpus, fp4_flop_s=fp4, card_bytes_s=card,
    )  # fmt: skip
