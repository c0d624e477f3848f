"""GPU data sheets: the hardware half of the roofline.

Peaks are dense (without sparsity) and as printed by the vendor; what an engine reaches of them is the business of
the curves of its operators (`fleetsim.engine.operators`). Memory is what a process sees (`torch.cuda.mem_get_info`),
because vLLM takes `gpu_memory_utilization` of that number and not of the one on the box.
"""

from __future__ import annotations

import difflib
from collections.abc import Iterator
from functools import lru_cache

from msgspec import Struct

from fleetsim.config.engine import EngineConfig
from fleetsim.errors import InputError, Problem
from fleetsim.records import replace, table_rows

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

    @property
    def host_bytes_s(self) -> float:
        """To the host's memory, one direction, as large copies reach it."""
        return _HOST_LINKS.get(self.name.partition("-")[0], _PCIE_4 if self.family in _ON_PCIE_4 else _PCIE_5)

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

# Between GPU and host, one direction: PCIe 4.0 (32 GB/s) or 5.0 (64 GB/s) by the GPU's data sheet, or NVLink-C2C (450
# GB/s, of which two GPUs of a GB200 or GB300 share one). Copies of 2 MB reach 50 of an H100's 64 GB/s (vLLM's blog on
# its offloading connector, 8 January 2026, figures 3 and 4); that share is taken for all.
_REACHED = 50 / 64
_PCIE_4, _PCIE_5 = 32e9 * _REACHED, 64e9 * _REACHED
_ON_PCIE_4 = ("ampere", "ada")
_HOST_LINKS = {"GH200": 450e9 * _REACHED, "GB200": 225e9 * _REACHED, "GB300": 225e9 * _REACHED}

# Visible memory: PyTorch's own "total capacity" and vLLM's "total_gpu_memory" lines; it varies by a few dozen MiB with
# the driver. It is below the marketing capacity because ECC and the driver take their part first.
# name | GiB of memory | its TB/s | TFLOP/s of bf16 | fp8 | fp4 | GB/s to a peer | GPUs so joined | aliases | source
_TABLE = """
A100-SXM-40GB | 39.39 | 1.555 | 312 | | | 300 | 8 | A100-40, A100-40GB, A100-SXM4-40GB | NVIDIA A100 Tensor Core GPU
    data sheet
A100-SXM-80GB | 79.15 | 2.039 | 312 | | | 300 | 8 | A100, A100-80, A100-80GB, A100-SXM, A100-SXM4-80GB | NVIDIA A100
    Tensor Core GPU data sheet
A100-PCIe-80GB | 79.15 | 1.935 | 312 | | | PCIe | 8 | A100-PCIe | NVIDIA A100 Tensor Core GPU data sheet (PCIe 80GB)
A100-PCIe-40GB | 39.39 | 1.555 | 312 | | | PCIe | 8 | | NVIDIA A100 Tensor Core GPU data sheet (PCIe 40GB)
A800-SXM | 79.15 | 2.039 | 312 | | | 200 | 8 | A800, A800-80GB | NVIDIA A800: A100 SXM 80GB with NVLink cut to 400
    GB/s (NVIDIA A800 Tensor Core GPU data sheet)
H100-SXM | 79.11 | 3.35 | 989.4 | 1978.9 | | 450 | 8 | H100, H100-80GB, H100-SXM5, H100-SXM-80GB | NVIDIA H100 Tensor
    Core GPU data sheet (SXM5)
H100-PCIe | 79.11 | 2 | 756 | 1513 | | PCIe | 8 | H100-PCIe-80GB | NVIDIA H100 Tensor Core GPU data sheet (PCIe)
# A bridge joins two of them.
H100-NVL | 93.1 | 3.9 | 835.5 | 1671 | | 300 | 2 | H100-NVL-94GB | NVIDIA H100 NVL data sheet (94 GB, dense)
# One per server; its own links join up to 32 of them, which is left out.
GH200 | 94.5 | 4 | 989.4 | 1978.9 | | 450 | 1 | GH200-96GB, GH200-480GB | NVIDIA GH200 data sheet (96 GB HBM3)
H200-SXM | 139.81 | 4.8 | 989.4 | 1978.9 | | 450 | 8 | H200, H200-141GB, H200-SXM-141GB | NVIDIA H200 Tensor Core GPU
    data sheet (SXM)
# A bridge joins four of them.
H200-NVL | 139.81 | 4.8 | 835.5 | 1671 | | 450 | 4 | H200-NVL-141GB | NVIDIA H200 data sheet (NVL, dense)
H800-SXM | 79.11 | 3.35 | 989.4 | 1978.9 | | 200 | 8 | H800 | NVIDIA H800: H100 SXM with NVLink cut to 400 GB/s
    (DeepSeek-V3 technical report, arXiv 2412.19437)
H20-SXM | 95 | 4 | 148 | 296 | | 450 | 8 | H20, H20-96GB | NVIDIA H20 product brief (HGX H20, 96 GB)
H20-3e | 139.81 | 4.8 | 148 | 296 | | 450 | 8 | H20-141GB | NVIDIA H20-3e (HGX H20, 141 GB)
B200-SXM | 178.35 | 8 | 2250 | 4500 | 9000 | 900 | 8 | B200, B200-180GB | NVIDIA HGX B200 data sheet (dense, per GPU)
# One NVLink domain of 72 GPUs; 189,471 MiB are visible.
GB200 | 185.03 | 8 | 2500 | 5000 | 10000 | 900 | 72 | GB200-NVL72, GB200-NVL4 | NVIDIA GB200 NVL72 data sheet (dense,
    per GPU)
# 275,040 and 284,208 MiB on the box's display, less what the driver takes on a B200.
B300-SXM | 267.8 | 8 | 2250 | 4500 | 13500 | 900 | 8 | B300, B300-288GB, B300-SXM6 | NVIDIA HGX B300 data sheet
    (dense, per GPU)
GB300 | 276.8 | 8 | 2500 | 5000 | 15000 | 900 | 72 | GB300-NVL72 | NVIDIA GB300 NVL72 data sheet (dense, per GPU)
L4 | 22.03 | 0.3 | 121 | 242.5 | | PCIe | 8 | | NVIDIA L4 data sheet (dense)
L20 | 44.39 | 0.864 | 119.5 | 239 | | PCIe | 8 | | NVIDIA L20 product brief
A10G | 22.06 | 0.6 | 70 | | | PCIe | 8 | | NVIDIA A10G (AWS G5: 35 TFLOPS of FP32)
L40S | 44.39 | 0.864 | 362.05 | 733 | | PCIe | 8 | L40S-48GB | NVIDIA L40S data sheet (no NVLink)
# GeForce multiplies 16 bits and fp8 at full rate only where it adds up in 16 bits; engines add up in 32.
RTX-4090 | 23.52 | 1.008 | 165.2 | 330.3 | | PCIe | 8 | RTX4090, 4090, GeForce-RTX-4090 | NVIDIA Ada GPU architecture
    whitepaper, V2.02 (dense, FP32 accumulate)
RTX-5090 | 31.36 | 1.792 | 209.5 | 419 | 1676 | PCIe | 8 | RTX5090, 5090, GeForce-RTX-5090 | NVIDIA RTX Blackwell GPU
    architecture whitepaper (dense, FP32 accumulate)
RTX-6000-Ada | 47.4 | 0.96 | 364.2 | 728.5 | | PCIe | 8 | RTX-6000-Ada-Generation | NVIDIA RTX 6000 Ada data sheet
RTX-PRO-6000 | 94.97 | 1.597 | 503.8 | 1007.6 | 2015 | PCIe | 8 | RTX-PRO-6000-Blackwell,
    RTX-PRO-6000-Blackwell-Server-Edition, RTXPRO6000 | NVIDIA RTX PRO 6000 Blackwell Server Edition data sheet
    (dense)
MI300X | 191.98 | 5.3 | 1307.4 | 2614.9 | | 448 | 8 | MI300X-192GB | AMD Instinct MI300X data sheet (7 Infinity Fabric
    links of 64 GB/s each way)
MI325X | 255.98 | 6 | 1307.4 | 2614.9 | | 448 | 8 | MI325X-256GB | AMD Instinct MI325X data sheet
MI350X | 287.98 | 8 | 2306.9 | 4613.7 | 9227.5 | 537.6 | 8 | MI350X-288GB | AMD Instinct MI350X data sheet (dense)
MI355X | 287.98 | 8 | 2516.6 | 5033.2 | 10066.3 | 537.6 | 8 | MI355X-288GB | AMD Instinct MI355X data sheet (dense)
"""


def _read(table: str) -> Iterator[GpuSpec]:
    for name, gib, *rates, link, joined, aliases, source in table_rows(table):
        memory_bytes_s, bf16, fp8, fp4 = (float(f"{rate}e12") if rate else None for rate in rates)
        assert memory_bytes_s is not None
        assert bf16 is not None
        yield GpuSpec(
            name, float(gib) * _GIB, memory_bytes_s, bf16, fp8,
            PCIE_BYTES_S if link == "PCIe" else float(f"{link}e9"), source, int(joined),
            tuple(filter(None, aliases.split(", "))), fp4,
        )  # fmt: skip


_GPUS = tuple(_read(_TABLE))

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
        raise InputError([Problem("gpu", gpu, "must be a GPU's name", f"known: {', '.join(sorted(GPUS))}")])
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
