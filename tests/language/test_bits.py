"""Rows on bits, saturating, widening and bounding rows: every element type, scalars and vectors, bit for bit."""

from __future__ import annotations

import re
from pathlib import Path
from typing import Any

import numpy as np
import pytest
from bits_references import FLOATS_OF, INTEGERS_OF
from kernel_harness import (
    FLOATS,
    INTS,
    UINTS,
    KernelFile,
    assert_same_bits,
    dtype_name,
    pairs_of,
    special_values,
)
from references import wrap

from einkorn.compiler.targets import lookup
from einkorn.compiler.targets.nvptx import assemble, find_ptxas
from einkorn.dsl import DType

WIDTHS = pytest.mark.parametrize("width", [1, 8], ids=["scalars", "vectors"])
WIDER = {1: 2, 2: 4, 4: 8}


@pytest.fixture(scope="module")
def kernels() -> KernelFile:
    return KernelFile(Path(__file__).parent / "bits_kernels.py")


@WIDTHS
@pytest.mark.parametrize("dtype", [*INTS, *UINTS], ids=dtype_name)
def test_integers(kernels: KernelFile, dtype: Any, width: int) -> None:
    x, y = pairs_of(special_values(dtype))
    z = np.random.default_rng(1).permutation(y)
    (values,) = kernels("integers", x, y, z, width=width)
    for got, (name, reference) in zip(values, INTEGERS_OF.items(), strict=True):
        wanted = wrap([reference(dtype(0).itemsize * 8, *map(int, t)) for t in zip(x, y, z, strict=True)], x.dtype)
        if name in ("add_sat", "sub_sat"):
            info = np.iinfo(dtype)
            exact = [reference(0, int(a), int(b), 0) for a, b in zip(x, y, strict=True)]
            wanted = np.array([min(max(v, info.min), info.max) for v in exact], dtype)
        assert_same_bits(got, wanted, name, (x, y, z))


@WIDTHS
@pytest.mark.parametrize("dtype", FLOATS, ids=dtype_name)
def test_floats(kernels: KernelFile, dtype: Any, width: int) -> None:
    x, y = pairs_of(special_values(dtype))
    z = np.random.default_rng(1).permutation(y)
    values, finite = kernels("floats", x, y, z, width=width)
    wide = [v.astype(np.float32) if v.dtype.itemsize == 2 else v for v in (x, y, z)]
    with np.errstate(all="ignore"):
        for got, to in zip(values[4:], (y, np.zeros_like(y)), strict=True):
            assert_same_bits(got, np.where(x == to, to, np.nextafter(x, to)), "nextafter", (x, to))
        for got, (name, reference) in zip(values[:4], FLOATS_OF.items(), strict=True):
            assert_same_bits(got, reference(*wide).astype(dtype), name, (x, y, z))
        assert_same_bits(finite, np.isfinite(x), "isfinite", (x,))
        # The sign of a NaN counts, too.
        assert (np.signbit(values[0]) == np.signbit(y)).all()


@WIDTHS
@pytest.mark.parametrize("dtype", [t for t in [*INTS, *UINTS] if t(0).itemsize < 8], ids=dtype_name)
def test_wide_products(kernels: KernelFile, dtype: Any, width: int) -> None:
    x, y = pairs_of(special_values(dtype))
    wide = np.dtype(f"{np.dtype(dtype).kind}{WIDER[np.dtype(dtype).itemsize]}")
    out = [(DType.from_numpy(wide), (2, len(x)))]
    (values,) = kernels("products", x, y, outs=out, width=width)
    assert_same_bits(values, np.stack([x.astype(wide) * y.astype(wide), x.astype(wide) * wide.type(3)]))


def test_what_is_known_at_compile_time(kernels: KernelFile) -> None:
    (got,) = kernels("known", np.zeros((1, 1), np.int64))
    assert got.tolist() == [
        *(10, 4, 0, 0, 1, 7, 10, 0, -1, 0, 2, 8),
        *(3, 63, 3, 1 << 62, -(1 << 63), 1 << 56, -(1 << 63)),
        *(8, 15, 6 << 30, 0, (1 << 63) - 1),
    ]


# *** the instructions ***


@pytest.mark.parametrize(
    ("dtype", "width", "target", "instructions"),
    [
        (np.int16, 16, "x86-64-v3", "vpaddsw vpsubsw vpmulhw vpabsw vpshufb vpmaxsw"),
        (np.uint16, 16, "x86-64-v3", "vpaddusw vpsubusw vpmulhuw vpavgw vpmaxuw vpshufb"),
        (np.uint8, 32, "x86-64-v3", "vpaddusb vpsubusb vpavgb vpminub vpshufb"),
        (np.int32, 16, "x86-64-v4", "vplzcntd vprolvd vprorvd vpshufb vpmuldq vpmaxsd"),
        (np.int16, 8, "x86-64-v2", "paddsw psubsw pmulhw pshufb"),
    ],
    ids=str,
)
def test_cpus_have_instructions(kernels: KernelFile, dtype: Any, width: int, target: str, instructions: str) -> None:
    types = [(DType.from_numpy(dtype), (4096,))] * 3
    text = kernels.compile("integers", types, target=target, width=width).asm
    used = set(re.findall(r"^\t([a-z]\w*)", text, re.MULTILINE))
    assert set(instructions.split()) <= used, used
    assert not used & {"popcntl", "lzcntl", "bsrl", "tzcntl", "bsfl", "vpextrd", "vpextrw", "pextrw"}  # lane by lane


@pytest.mark.parametrize(
    ("dtype", "target", "instructions"),
    [
        (np.int32, "sm_80", "popc.b32 brev.b32 prmt.b32 shf.l.wrap.b32"),
        (np.uint64, "sm_75", "popc.b64 brev.b64 mul.hi.u64"),
        (np.int8, "sm_90a", "popc.b32"),
        (np.int32, "gfx942", "v_bcnt_u32_b32 v_ffbh_u32_e32 v_bfrev_b32_e32 v_perm_b32 v_alignbit_b32 v_mul_hi_i32"),
        (np.uint16, "gfx1100", "v_bfrev_b32_e32"),
        (np.int64, "gfx90a", "v_bcnt_u32_b32"),
    ],
    ids=str,
)
def test_gpus_have_instructions(kernels: KernelFile, dtype: Any, target: str, instructions: str) -> None:
    artifact = kernels.compile("mixed", [(DType.from_numpy(dtype), (4096,))] * 3, target=target)
    used = set(re.findall(r"^\s*([a-z][\w.]*)", artifact.asm, re.MULTILINE))
    assert set(instructions.split()) <= used, sorted(used)
    if target.startswith("sm_") and find_ptxas() is not None:
        assert assemble(artifact.code.decode(), lookup(target))[:4] == b"\x7fELF"
