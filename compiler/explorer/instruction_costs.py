"""What an instruction of a GPU's machine code moves and computes, by its name: of NVIDIA's (nvdisasm) and of AMD's."""

from __future__ import annotations

import re
from typing import Final

from ...dsl.diagnostics.dataclass import dataclass


@dataclass(frozen=True)
class Cost:
    """What a thread's part of an instruction does.

    Fields:
        memory, shared: bytes of global and of shared memory.
        floats: operations of float32; a fused one is two.
        products: operations of a matrix unit, and of what dtype.
        special: whether a unit for special functions computes it, which has an eighth or a quarter of the lanes.
    """

    memory: int = 0
    shared: int = 0
    floats: float = 0
    products: float = 0
    dtype: str = ""
    special: bool = False


NOTHING: Final = Cost()
_SHAPES: Final = {
    "16816": (16, 8, 16),
    "1688": (16, 8, 8),
    "16832": (16, 8, 32),
    "884": (8, 8, 4),
    "16864": (16, 8, 64),
}
_GROUP: Final = re.compile(r"(\d+)x(\d+)x(\d+)")
_FLOATS: Final = {
    "FFMA": 2,
    "FFMA2": 4,
    "FADD": 1,
    "FADD2": 2,
    "FMUL": 1,
    "FMUL2": 2,
    "HFMA2": 4,
    "HADD2": 2,
    "HMUL2": 2,
}
_TYPES: Final = {"HMMA": "float16", "IMMA": "int8", "DMMA": "float64", "QMMA": "float8_e4m3fn"}


def nvidia(name: str) -> Cost:
    """The cost of an instruction of NVIDIA's, by its name with suffixes."""
    opcode, *suffixes = name.split(".")
    if opcode in ("LDG", "STG", "LDGSTS", "ATOMG", "RED", "ATOM"):
        return Cost(memory=_bytes(suffixes))
    if opcode in ("LDS", "STS", "ATOMS"):
        return Cost(shared=_bytes(suffixes))
    if opcode in ("LDSM", "STSM"):
        return Cost(shared=4 * int(suffixes[-1]) if suffixes and suffixes[-1].isdigit() else 4)
    if opcode in _FLOATS:
        return Cost(floats=_FLOATS[opcode])
    if opcode == "MUFU":
        return Cost(special=True)
    kind = _TYPES.get(opcode) or _TYPES.get(opcode.replace("GMMA", "MMA"))
    if kind is None:
        return NOTHING
    wide = _GROUP.search(name)
    m, n, k = (int(part) for part in wide.groups()) if wide else _SHAPES.get(suffixes[0] if suffixes else "", (0, 0, 0))
    threads = 128 if opcode.endswith("GMMA") else 32
    return Cost(products=2 * m * n * k / threads, dtype="tf32" if "TF32" in suffixes else kind)


def _bytes(suffixes: list[str]) -> int:
    for part in suffixes:
        if part in ("64", "128", "256"):
            return int(part) // 8
        if part in ("U8", "S8"):
            return 1
        if part in ("U16", "S16"):
            return 2
    return 4


_WIDTH: Final = re.compile(r"_(?:b|u|i)?(8|16|32|64|96|128)(?:_|$)")
_MATRIX: Final = re.compile(r"v_(mfma|wmma|swmmac)_\w*?(\d+)x(\d+)x(\d+)(?:_\d+b)?_(\w+)")
_KINDS: Final = {"f16": "float16", "bf16": "bfloat16", "i8": "int8", "iu8": "int8", "xf32": "tf32", "f32": "float32"}
_SPECIAL: Final = re.compile(r"v_(exp|log|rcp|rsq|sqrt|sin|cos)_f(16|32)")


def amd(name: str, lanes: int) -> Cost:
    """The cost of an instruction of AMD's, by its name."""
    if name.startswith(("global_", "buffer_", "flat_")):
        words = re.search(r"dword(?:x(\d))?$", name)
        return Cost(memory=4 * int(words[1] or 1) if words else _amd_bytes(name))
    if name.startswith("ds_") and not name.startswith(("ds_bpermute", "ds_swizzle")):
        pair = 2 if re.match(r"ds_(read|write|load|store)_?2", name) or "_2addr_" in name else 1
        return Cost(shared=pair * _amd_bytes(name))
    if matrix := _MATRIX.match(name):
        m, n, k = int(matrix[2]), int(matrix[3]), int(matrix[4])
        last = matrix[5].split("_")[-1]
        kind = _KINDS.get(last, "float64" if last == "f64" else "float8_e4m3fn")
        return Cost(products=2 * m * n * k / lanes, dtype=kind)
    if _SPECIAL.match(name):
        return Cost(special=True)
    if re.match(r"v_(pk_|dual_)?(fma|fmac|mac|add|sub|mul|fmaak|fmamk|mad)\w*_f(16|32)", name):
        each = 2 if re.search(r"fma|mac|mad", name) else 1
        return Cost(floats=each * (2 if name.startswith("v_pk_") else 1))
    return NOTHING


def _amd_bytes(name: str) -> int:
    width = _WIDTH.search(name.replace("dwordx", "b"))
    if width:
        return int(width[1]) // 8
    return {"byte": 1, "short": 2, "ubyte": 1, "sbyte": 1, "ushort": 2}.get(name.split("_")[-1], 4)
