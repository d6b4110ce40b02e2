"""Masks, steps, gathers, pointers and atomics against NumPy, over element types and widths; and the instructions."""

from __future__ import annotations

import re
from pathlib import Path
from typing import Any

import ml_dtypes
import numpy as np
import pytest
from kernel_harness import ALL, FLOATS, INTS, UINTS, KernelFile, assert_same_bits, bfloat16, dtype_name, random_values
from references import extreme

from einkorn.compiler.targets import lookup
from einkorn.compiler.targets.nvptx import assemble, find_ptxas
from einkorn.dsl import DType

float8 = ml_dtypes.float8_e5m2
NUMBERS = [*INTS, *UINTS, *FLOATS]
ROWS = 5
CASES = [
    *((t, 8, np.int64) for t in [*ALL, float8]),
    *((np.float32, w, np.int32) for w in (2, 4, 16, 32)),
    *((np.uint8, 32, np.uint8), (np.float64, 4, np.uint32), (np.int16, 16, np.uint16), (bfloat16, 4, np.int8)),
]


@pytest.fixture(scope="module")
def kernels() -> KernelFile:
    return KernelFile(Path(__file__).parent / "memory_kernels.py")


def arrays(dtype: Any, *shape: int, seed: int = 0) -> np.ndarray[Any, Any]:
    return random_values(np.random.default_rng(seed), dtype, int(np.prod(shape))).reshape(shape)


def masks(*shape: int) -> np.ndarray[Any, Any]:
    collected = np.random.default_rng(7).integers(0, 2, shape).astype(np.bool_)
    collected[0], collected[1] = True, False
    return collected


@pytest.mark.parametrize(("dtype", "width", "index"), CASES, ids=str)
def test_reads(kernels: KernelFile, dtype: Any, width: int, index: Any) -> None:
    x, m = arrays(dtype, ROWS, 2 * width + 1), masks(ROWS, width)
    k = np.random.default_rng(8).integers(0, 2 * width, (ROWS, width)).astype(index)
    (got,) = kernels("reads", x, m, k, w=width)
    other = x[:, width : 2 * width]
    taken = np.take_along_axis(x, k.astype(np.int64), axis=1)
    wanted = [
        np.where(m, x[:, :width], np.zeros_like(other)),
        np.where(m, x[:, :width], other),
        np.where(m, x[:, 1 : 2 * width : 2], other),
        taken,
        np.where(m, taken, other),
        x[:, 3 : width + 3],
        np.where(m, taken, other),
        np.where(m, x[:, 1 : 2 * width : 2], other[:, :1]),
    ]
    for number, (one, want) in enumerate(zip(got, wanted, strict=True)):
        assert_same_bits(one, want, f"read {number}")


@pytest.mark.parametrize(("dtype", "width", "index"), CASES, ids=str)
def test_writes(kernels: KernelFile, dtype: Any, width: int, index: Any) -> None:
    w2 = 2 * width + 3
    o, x, m = arrays(dtype, 6, ROWS, w2, seed=3), arrays(dtype, ROWS, width), masks(ROWS, width)
    k = np.random.default_rng(8).integers(0, w2, (ROWS, width)).astype(index)
    wanted = o.copy()
    for i in range(ROWS):
        for j in range(width):
            if m[i, j]:
                wanted[0, i, 3 + j] = wanted[4, i, 3 + j] = x[i, j]
                wanted[1, i, 1 + 2 * j] = wanted[3, i, k[i, j]] = x[i, j]
            wanted[2, i, k[i, j]] = wanted[5, i, 1 + 2 * j] = x[i, j]
        wanted[5, i, 0] = x[i, 0]
    kernels("writes", o, x, m, k, w=width)
    assert_same_bits(o, wanted)


@pytest.mark.parametrize("dtype", [np.float32, np.bool_, np.float16, np.int8], ids=dtype_name)
def test_one_element(kernels: KernelFile, dtype: Any) -> None:
    o, x, m = arrays(dtype, 4, 9, seed=3), arrays(dtype, 9), masks(9)
    zero = np.zeros_like(x)
    wanted = np.stack([np.where(m, x, x[0]), np.where(m, x, zero), np.where(m, x, o[2]), np.where(m, x, o[3])])
    kernels("scalars", o, x, m)
    assert_same_bits(o, wanted)


@pytest.mark.parametrize("dtype", [np.float32, np.bool_, bfloat16, np.uint8], ids=dtype_name)
def test_slices(kernels: KernelFile, dtype: Any) -> None:
    o, x, m = arrays(dtype, 3, 8, 8, seed=3), arrays(dtype, 8, 8), masks(8)
    wanted = o.copy()
    wanted[0] = x.T
    wanted[1] = np.where(m[:, None], x, x[::-1])
    for c in range(8):
        wanted[2, c, ::2] = x[c, ::2][::-1]
        wanted[2, c, 1::4] = x[c, 1::4]
        wanted[2, 7 - c, 3] = x[3, c]
    kernels("views", o, x, m)
    assert_same_bits(o, wanted)


@pytest.mark.parametrize("dtype", [np.float32, np.int8, np.uint64, np.float16], ids=dtype_name)
def test_pointers(kernels: KernelFile, dtype: Any) -> None:
    x = np.arange(33).reshape(3, 11).astype(dtype)
    (got,) = kernels("walks", x)
    sums = x.astype(np.int64).sum(axis=1)
    wanted = [sums, [x[0, 1] + x[0, 2], x[1, 2] + x[1, 0], x[2, 1] + x[2, 2]], x[:, 10], x[:, 9], [6] * 3, x[:, 4]]
    assert_same_bits(got, np.array(wanted).astype(np.int64).astype(dtype))


@pytest.mark.parametrize("dtype", [*ALL, float8, ml_dtypes.float4_e2m1fn], ids=dtype_name)
def test_storage(kernels: KernelFile, dtype: Any) -> None:
    x = (
        arrays(dtype, 3, 16)
        if np.dtype(dtype) != ml_dtypes.float4_e2m1fn
        else np.arange(48).reshape(3, 16).astype(dtype)
    )
    (got,) = kernels("stacks", x)
    a = x.reshape(3, 2, 2, 4)
    wanted = [np.concatenate([a[:, 0, 1], a[:, 1, 0]], axis=1), np.concatenate([a[:, 0, 0], a[:, 1, 0]], axis=1)]
    assert_same_bits(got, np.stack(wanted, axis=1))


def test_pointers_next_to_their_tensor(kernels: KernelFile) -> None:
    o = np.arange(10, dtype=np.float32)
    kernels("alias", o)
    assert o.tolist() == ((np.arange(10) + 1) * 2 + 3).tolist()


def test_pointers_are_returned_out_of_loops(kernels: KernelFile) -> None:
    x = np.array([[1, 2, 5, 7], [9, 1, 1, 1], [0, 3, 2, 1], [1, 2, 3, 4]], np.int16)
    wide = np.zeros((5, 5), np.int16)  # a row more: the pointer may stand at the end
    wide[:4, :4] = x
    assert kernels("returned", wide)[0][:4].tolist() == [[5, 7], [9, 1], [0, 3], [4, 0]]


# *** atomics ***


@pytest.mark.parametrize("dtype", NUMBERS, ids=dtype_name)
def test_atomics(kernels: KernelFile, dtype: Any) -> None:
    n = 64
    o, x = arrays(dtype, 13, n, seed=3), arrays(dtype, n)
    o[5, ::3] = x[0]
    before = o.copy()
    (old,) = kernels("atomics", o, x)
    wide = np.float32 if np.dtype(dtype).itemsize == 2 and np.dtype(dtype).kind not in "iu" else dtype
    least, most = (np.minimum, np.maximum) if np.dtype(dtype).kind in "iu" else (extreme(True), extreme(False))

    def both(row: int, op: Any, value: Any = x) -> Any:
        with np.errstate(all="ignore"):
            return op(before[row].astype(wide), value.astype(wide)).astype(dtype)

    bits = f"u{np.dtype(dtype).itemsize}"
    three = np.full_like(x, 3)
    wanted = [both(0, np.add), both(1, np.subtract), both(2, least), both(3, most), x]
    wanted += [np.where(before[5].view(bits) == x[:1].view(bits), x, before[5]), x, before[7], before[8], x]
    wanted += [both(10, np.add), both(11, most, three), x]
    for row, want in enumerate(wanted):
        assert_same_bits(o[row], want, f"after {row}")
    read = [*before[:8], x, x, x, before[11], x]
    for row, want in enumerate(read):
        assert_same_bits(old[row], want, f"before {row}")


@pytest.mark.parametrize("dtype", [*INTS, *UINTS], ids=dtype_name)
def test_atomic_bits(kernels: KernelFile, dtype: Any) -> None:
    o, x = arrays(dtype, 3, 64, seed=3), arrays(dtype, 64)
    before = o.copy()
    (old,) = kernels("atomic_bits", o, x)
    assert_same_bits(old, before)
    assert_same_bits(o, np.stack([before[0] & x, before[1] | x, before[2] ^ x]))


# *** the instructions ***


@pytest.mark.parametrize(
    ("op", "dtype", "index", "width", "target", "instructions"),
    [
        ("gathered", "float32", "int32", 8, "x86-64-v3", "vgatherdps"),
        ("gathered", "float64", "int64", 4, "x86-64-v3", "vgatherqpd"),
        ("gathered", "int32", "int32", 16, "x86-64-v4", "vpgatherdd"),
        ("gathered", "int64", "int32", 8, "x86-64-v4", "vpgatherdq"),
        ("scattered", "float32", "int32", 16, "x86-64-v4", "vscatterdps vmovups"),
        ("scattered", "float64", "int64", 8, "x86-64-v4", "vscatterqpd vmovupd"),
        ("scattered", "float32", "int32", 8, "x86-64-v3", "vmaskmovps"),
    ],
)
def test_cpus_have_instructions(
    kernels: KernelFile, op: str, dtype: str, index: str, width: int, target: str, instructions: str
) -> None:
    sizes = {"gathered": [(DType[dtype], (64,)), (DType[index], (4096,)), (DType.bool, (4096,))]}
    sizes["scattered"] = [
        (DType[dtype], (64,)),
        (DType[dtype], (4096,)),
        (DType[index], (4096,)),
        (DType.bool, (4096,)),
    ]
    text = kernels.compile(op, sizes[op], target=target, w=width).asm
    used = re.findall(r"^\t([a-z]\w*)", text, re.MULTILINE)
    assert set(instructions.split()) <= set(used), used
    if "scatter" in instructions or "gather" in instructions:
        assert not {one for one in used if re.match("v?p(extr|insr)[bwdq]|v(extract|insert)ps", one)}, (
            used
        )  # lane by lane


def test_atomics_are_instructions(kernels: KernelFile) -> None:
    types = [(DType.int32, (13, 64)), (DType.int32, (64,))]
    text = kernels.compile("atomics", types, target="x86-64-v2").asm
    assert "lock" in text and "xaddl" in text and "xchgl" in text and "cmpxchgl" in text
    small = [(DType.uint8, (13, 64)), (DType.uint8, (64,))]
    assert "xaddb" in kernels.compile("atomics", small, target="x86-64-v2").asm
    assert "callq" not in loop_of(kernels.compile("atomics", types, target="x86-64-v3").asm)


def loop_of(assembly: str) -> str:
    """The part of a text that holds the atomic operations."""
    return assembly[assembly.index("lock") : assembly.rindex("lock")]


@pytest.mark.parametrize(
    ("dtype", "target"),
    [
        *((DType.float32, t) for t in ("sm_75", "sm_90a", "gfx90a", "gfx1100")),
        *((t, "sm_80") for t in (DType.float16, DType.uint8, DType.int64)),
        *((t, "gfx942") for t in (DType.bfloat16, DType.int8, DType.float64)),
    ],
    ids=str,
)
def test_gpus_compile_accesses(kernels: KernelFile, dtype: DType, target: str) -> None:
    types = [(dtype, (100, 8)), (dtype, (100, 8)), (DType.bool, (100, 8)), (DType.int64, (100, 8))]
    artifact = kernels.compile("on_gpus", types, target=target)
    if target.startswith("sm_"):
        assert "atom." in artifact.asm and "prefetch.global.L2" in artifact.asm
        if find_ptxas() is not None:
            assert assemble(artifact.code.decode(), lookup(target))[:4] == b"\x7fELF"
    else:
        assert "atomic" in artifact.asm


@pytest.mark.parametrize("target", ["x86-64-v2", "aarch64"])
def test_cpus_without_masks_need_no_library(kernels: KernelFile, target: str) -> None:
    types = [(DType.bfloat16, (9, 8)), (DType.bfloat16, (9, 8)), (DType.bool, (9, 8)), (DType.int64, (9, 8))]
    assert set(kernels.compile("on_gpus", types, target=target).compiled.undefined) <= {"memset", "memcpy"}
