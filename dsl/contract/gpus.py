"""Facts about GPUs by the name of their architecture: what a device holds at once, and its published peak figures.

    RESIDENT["sm_90"].multiprocessors     132
    peaks_of("sm_90a").memory             3.35e12 bytes a second

The peaks are those of the largest common device of an architecture, without sparsity. They are limits: no kernel
reaches them. What no maker publishes is 0, and nothing is estimated from it.

See also `compiler.targets` (what code may use), `graph.profiling.roofline` and `compiler.explorer.steady_loops` (the
estimates).
"""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import field
from typing import Final

from ..diagnostics.dataclass import dataclass
from ..diagnostics.errors import TargetError, did_you_mean

KIB: Final = 1024


@dataclass(frozen=True)
class Resident:
    """What the largest device of an architecture holds at once.

    Fields:
        multiprocessors: how many there are; compute units of AMD.
        threads, blocks, shared_memory, registers: of one multiprocessor; bytes of shared memory, of which some devices
            reserve 1 KiB for every block; registers of 32 bits; 0 if that is not a limit.
    """

    multiprocessors: int
    threads: int
    blocks: int
    shared_memory: int
    registers: int

    def blocks_at_once(self, threads: int, shared: int = 0, registers: int = 0, lanes: int = 32) -> tuple[int, str]:
        """How many blocks one multiprocessor holds, and what ends it: `threads`, `blocks`, `shared memory` or
        `registers`.

        Args:
            threads, shared: those of a block, and its bytes of shared memory.
            registers: those of a thread, 0 where that is unknown.
            lanes: threads of a warp.
        """
        warps = -(-threads // lanes)
        fits = {"threads": self.threads // max(warps * lanes, 1)}
        if self.blocks:
            fits["blocks"] = self.blocks
        if shared and self.shared_memory:
            fits["shared memory"] = self.shared_memory // shared
        if registers and self.registers:
            fits["registers"] = self.registers // (warps * lanes * -(-registers // 8) * 8)
        ends = min(fits, key=lambda name: fits[name])
        return fits[ends], ends


_REGISTERS: Final = 1 << 16  # of a multiprocessor of NVIDIA's


def _nvidia(multiprocessors: int, threads: int, blocks: int, shared: int) -> Resident:
    return Resident(multiprocessors, threads, blocks, shared * KIB, _REGISTERS)


RESIDENT: Final[Mapping[str, Resident]] = {
    "sm_75": _nvidia(72, 1024, 16, 64),
    "sm_80": _nvidia(108, 2048, 32, 164),
    "sm_86": _nvidia(84, 1536, 16, 100),
    "sm_87": _nvidia(16, 1536, 16, 164),
    "sm_89": _nvidia(142, 1536, 24, 100),
    "sm_90": _nvidia(132, 2048, 32, 228),
    "sm_100": _nvidia(148, 2048, 32, 228),
    "sm_103": _nvidia(148, 2048, 32, 228),
    "sm_110": _nvidia(20, 1536, 24, 228),
    "sm_120": _nvidia(188, 1536, 24, 100),
    "sm_121": _nvidia(48, 1536, 24, 100),
    "gfx908": Resident(120, 2560, 0, 64 * KIB, 1 << 17),
    "gfx90a": Resident(110, 2048, 0, 64 * KIB, 1 << 17),
    "gfx942": Resident(304, 2048, 0, 64 * KIB, 1 << 17),
    "gfx950": Resident(256, 2048, 0, 160 * KIB, 1 << 17),
    "gfx1030": Resident(80, 1024, 0, 64 * KIB, 1 << 16),
    "gfx1100": Resident(96, 1024, 0, 64 * KIB, 3 << 15),
    "gfx1101": Resident(60, 1024, 0, 64 * KIB, 3 << 15),
    "gfx1151": Resident(40, 1024, 0, 64 * KIB, 3 << 15),
    "gfx1200": Resident(32, 1024, 0, 64 * KIB, 3 << 15),
    "gfx1201": Resident(64, 1024, 0, 64 * KIB, 3 << 15),
}


@dataclass(frozen=True)
class Peaks:
    """The published peak figures of a device, of all of it.

    Fields:
        device, source: the device that is meant, and the publications that the figures are from.
        clock: in Hz, the one that the peaks are stated for.
        memory, cache: bytes a second of the memory of the device, and of the cache that all multiprocessors share.
        float32, float64: operations a second outside of matrix units; a multiplication with an addition is two.
        products: operations a second of matrix units, by the dtype of the operands; `tf32` is float32 rounded to that.
        latency: seconds until an access to the device's memory is answered.
        lanes: threads of a warp.
        shared: bytes that the shared memory of a multiprocessor moves a clock.
    """

    device: str
    source: str
    clock: float
    memory: float
    cache: float
    float32: float
    float64: float
    products: Mapping[str, float] = field(hash=False)
    latency: float
    lanes: int = 32
    shared: int = 128


def _products(
    half: float, byte: float = 0, tf32: float = 0, float64: float = 0, float32: float = 0
) -> dict[str, float]:
    """Peaks of matrix units, given in tera: 16-bit floats, 8-bit floats and integers, tf32, float64, float32."""
    known = {"float16": half, "bfloat16": half, "int8": byte, "uint8": byte, "tf32": tf32, "float64": float64}
    known |= dict.fromkeys(("float8_e4m3fn", "float8_e5m2", "float8_e4m3fnuz", "float8_e5m2fnuz"), byte)
    return {name: value * 1e12 for name, value in (known | {"float32": float32}).items() if value}


_HOPPER_LATENCY: Final = "Luo et al. 2024, arXiv:2402.13499 (latency, in clocks)"
_ASSUMED: Final = "latency assumed"

PEAKS: Final[Mapping[str, Peaks]] = {
    "sm_80": Peaks(
        "A100 SXM 80 GB",
        f"NVIDIA A100 data sheet, GA100 white paper (cache: 5120 bytes a clock); {_HOPPER_LATENCY}",
        1.41e9, 2.039e12, 5120 * 1.41e9, 19.5e12, 9.7e12,
        {**_products(312, 0, 156, 19.5), "int8": 624e12, "uint8": 624e12}, 466 / 1.41e9,
    ),
    "sm_86": Peaks(
        "A40", f"NVIDIA A40 data sheet; {_ASSUMED}", 1.74e9, 0.696e12, 0, 37.4e12, 0.58e12,
        {**_products(149.7, 0, 74.8), "int8": 299.3e12, "uint8": 299.3e12}, 500e-9,
    ),
    "sm_89": Peaks(
        "L40S", f"NVIDIA L40S data sheet; {_HOPPER_LATENCY}, of an RTX 4090", 2.52e9, 0.864e12, 0, 91.6e12, 1.43e12,
        _products(362, 733, 183), 542 / 2.52e9,
    ),
    "sm_90": Peaks(
        "H100 SXM",
        f"NVIDIA H100 data sheet; cache as of the A100, 5120 bytes a clock; {_HOPPER_LATENCY}",
        1.83e9, 3.35e12, 5120 * 1.83e9, 67e12, 34e12, _products(989.4, 1978.9, 494.7, 67), 479 / 1.83e9,
    ),
    "sm_100": Peaks(
        "B200", f"NVIDIA HGX B200 data sheet; {_ASSUMED}", 1.97e9, 8e12, 0, 75e12, 37e12,
        _products(2250, 4500, 1125, 37), 450e-9,
    ),
    "gfx90a": Peaks(
        "MI250X, one of its two dies",
        f"AMD Instinct MI250X data sheet, CDNA 2 white paper (cache: 4096 bytes a clock); {_ASSUMED}",
        1.7e9, 1.638e12, 4096 * 1.7e9, 23.9e12, 23.9e12,
        {**_products(191.5, 0, 0, 47.9, 47.9), "int8": 191.5e12, "uint8": 191.5e12}, 600e-9, 64,
    ),
    "gfx942": Peaks(
        "MI300X",
        f"AMD Instinct MI300X data sheet, CDNA 3 white paper (cache: 17.2 TB/s of the last one); {_ASSUMED}",
        2.1e9, 5.3e12, 17.2e12, 163.4e12, 81.7e12, _products(1307.4, 2614.9, 653.7, 163.4, 163.4), 700e-9, 64,
    ),
    "gfx950": Peaks(
        "MI355X", f"AMD Instinct MI355X data sheet; {_ASSUMED}", 2.4e9, 8e12, 0, 157.3e12, 78.6e12,
        _products(2516.6, 5033.2, 0, 78.6, 157.3), 700e-9, 64,
    ),
    "gfx1100": Peaks(
        "Radeon RX 7900 XTX", f"AMD's page of the device; {_ASSUMED}", 2.5e9, 0.96e12, 3.5e12, 61.4e12, 1.92e12,
        {**_products(122.8), "int8": 122.8e12, "uint8": 122.8e12}, 500e-9,
    ),
    "gfx1201": Peaks(
        "Radeon RX 9070 XT", f"AMD's page of the device; {_ASSUMED}", 2.97e9, 0.64e12, 0, 48.7e12, 0.76e12,
        _products(195, 389), 500e-9,
    ),
}  # fmt: skip


def architecture_of(name: str) -> str:
    """The architecture in the name of a target: `sm_90` of `sm_90a`, `sim:sm_90a:checked` and `sm_90`."""
    parts = name.split(":")
    own = parts[1] if parts[0] == "sim" and len(parts) > 1 else parts[0]
    return own.removesuffix("a") if own.startswith("sm_") else own


def has_peaks(name: str) -> bool:
    """Whether peak figures of the device of a target are known."""
    return architecture_of(name) in PEAKS


def peaks_of(name: str) -> Peaks:
    """The peaks of the device of a target.

    Raises:
        TargetError: EK0601 no figures of such a device are known.
    """
    known = PEAKS.get(architecture_of(name))
    if known is None:
        raise TargetError(
            f"no peak figures of a device of {name} are known",
            code="EK0601",
            expected=", ".join(PEAKS),
            got=name,
            hint=did_you_mean(name, PEAKS) or "name one of these architectures",
        )
    return known


def resident_of(name: str) -> Resident:
    """What a device of a target holds at once; it has to be one of `RESIDENT`."""
    return RESIDENT[architecture_of(name)]
