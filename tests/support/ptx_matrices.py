"""The instructions of PTX by which the lanes of a warp read and multiply matrices: `ldmatrix`, `mma.sync`.

Which lane has which element follows the PTX ISA manual ("Matrix Fragments for mma.m16n8k16 with floating point type",
and its neighbours) in its own terms, independently of the compiler: `%laneid >> 2` is groupID, `%laneid % 4` is
threadID_in_group.
"""

from __future__ import annotations

from typing import Any

import ml_dtypes
import numpy as np
from support.ptx_group import Code, Group, Step, step
from support.ptx_numbers import Type, type_of
from support.ptx_parse import Immediate, Instruction, Tuple
from support.ptx_threads import address_of, load

Array = Any
GROUP, THREAD = np.arange(32) >> 2, np.arange(32) % 4


def _a(shape: str, i: int) -> tuple[Array, Array]:
    if shape == "m8n8k4":
        return GROUP, THREAD
    if shape == "m16n8k8":
        return GROUP + (8 if i in (1, 3) else 0), THREAD + (4 if i >= 2 else 0)
    if shape == "m16n8k16":
        first = 0 <= i < 2 or 4 <= i < 6
        return GROUP + (0 if first else 8), THREAD * 2 + (i & 1) + (8 if i >= 4 else 0)
    if shape == "m16n8k64":
        first = 0 <= i < 8 or 16 <= i < 24
        return GROUP + (0 if first else 8), THREAD * 8 + (i & 7) + (32 if i >= 16 else 0)
    assert shape == "m16n8k32"
    first = 0 <= i < 4 or 8 <= i < 12
    return GROUP + (0 if first else 8), THREAD * 4 + (i & 3) + (16 if i >= 8 else 0)


def _b(shape: str, i: int) -> tuple[Array, Array]:
    if shape == "m8n8k4":
        return THREAD, GROUP
    if shape == "m16n8k8":
        return THREAD + 4 * i, GROUP
    if shape == "m16n8k16":
        return THREAD * 2 + (i & 1) + (8 if i >= 2 else 0), GROUP
    if shape == "m16n8k64":
        return THREAD * 8 + (i & 7) + (32 if i >= 8 else 0), GROUP
    assert shape == "m16n8k32"
    return THREAD * 4 + (i & 3) + (16 if i >= 4 else 0), GROUP


def _c(shape: str, i: int) -> tuple[Array, Array]:
    return GROUP + (8 if i >= 2 else 0), THREAD * 2 + (i & 1)


SIZES = {"m8n8k4": (8, 8, 4), "m16n8k8": (16, 8, 8), "m16n8k16": (16, 8, 16), "m16n8k32": (16, 8, 32)}
SIZES["m16n8k64"] = (16, 8, 64)


def _parts(operand: Any) -> list[Any]:
    return list(operand.parts) if isinstance(operand, Tuple) else [operand]


def _elements(words: list[Array], kind: Type) -> list[Array]:
    """The elements of registers, the lowest bits first."""
    if kind.bits >= 32:
        return [kind.read(word) for word in words]
    narrow = np.uint16 if kind.bits == 16 else np.uint8
    each = 32 // kind.bits
    return [kind.read((word >> np.uint32(kind.bits * k)).astype(narrow)) for word in words for k in range(each)]


def _by_warps(group: Group, values: Array) -> Array:
    """One value a lane of each warp that is here: whole warps are."""
    lane = group.take(group.machine.special("laneid"))
    assert group.count % 32 == 0 and (lane.reshape(-1, 32) == np.arange(32)).all()
    return group.spread(values).reshape(-1, 32)


@step("mma")
def _multiply(ins: Instruction, code: Code) -> Step:
    if "block_scale" in ins.parts:
        return _multiply_scaled(ins, code)
    *how, shape, left, right, of_d, of_a, of_b, of_c = ins.parts
    if how != ["sync", "aligned"] or (left, right) != ("row", "col") or shape not in SIZES or of_a != of_b:
        raise ins.fail("this form of mma is not known")
    kinds = [type_of("b32" if name in NARROW else name) for name in (of_a, of_b, of_c)]
    if of_d != of_c:
        raise ins.fail("the sums have two types")
    m, n, k = SIZES[shape]
    integer = of_c == "s32"
    words = [type_of("f64" if kind.bits == 64 else "b32") for kind in kinds]
    sources = [
        [code.source(ins, part, word if kind.bits != 32 or kind.name == "tf32" else kind) for part in _parts(operand)]
        for operand, kind, word in zip(ins.operands[1:], kinds, words, strict=True)
    ]
    targets = [code.target(ins, part, kinds[2]) for part in _parts(ins.operands[0])]
    wide = np.int64 if integer else np.float64

    def matrix(group: Group, number: int, size: tuple[int, int], places: Any) -> Array:
        values = [source(group) for source in sources[number]]
        kind = kinds[number]
        if number < 2 and kind.name == "tf32":
            values = [(v & np.uint32(0xFFFFE000)).view(np.float32) for v in map(np.asarray, values)]
        elif number < 2 and of_a in NARROW:
            values = [each for value in values for each in _narrow(value, of_a)]
        elif number < 2 and kind.bits < 32:
            values = _elements(values, kind)
        count = len(values)
        assert count * 32 == size[0] * size[1], "a fragment has other elements than its matrix"
        made = np.zeros((group.count // 32, *size), wide)
        for i, value in enumerate(values):
            rows, columns = places(shape, i)
            made[:, rows, columns] = _by_warps(group, value).astype(wide)
        return made

    def run(group: Group) -> None:
        a, b = matrix(group, 0, (m, k), _a), matrix(group, 1, (k, n), _b)
        result = matrix(group, 2, (m, n), _c) + a @ b
        narrow = np.int32 if integer else np.float32 if of_c == "f32" else np.float64
        for i, to in enumerate(targets):
            rows, columns = _c(shape, i)
            to(group, result[:, rows, columns].astype(narrow).reshape(-1))

    return run


NARROW: dict[str, Any] = {
    "e4m3": ml_dtypes.float8_e4m3fn,
    "e5m2": ml_dtypes.float8_e5m2,
    "e2m1": ml_dtypes.float4_e2m1fn,
    "ue8m0": ml_dtypes.float8_e8m0fnu,
    "ue4m3": ml_dtypes.float8_e4m3fn,
}
# The kinds with what the manual's table of valid combinations says: scales of a row of a, shape, dtypes of both.
SCALED = {
    ("kind__mxf8f6f4", "scale_vec__1X"): (1, "m16n8k32", ("e4m3", "e5m2"), "ue8m0"),
    ("kind__mxf4", "scale_vec__2X"): (2, "m16n8k64", ("e2m1",), "ue8m0"),
    ("kind__mxf4nvf4", "scale_vec__4X"): (4, "m16n8k64", ("e2m1",), "ue4m3"),
}


def _narrow(word: Array, name: str) -> list[Array]:
    """The elements of a register of 32 bits, the lowest bits first."""
    dtype, bits = NARROW[name], 4 if name == "e2m1" else 8
    parts = [(word >> np.uint32(bits * k) & np.uint32((1 << bits) - 1)).astype(np.uint8) for k in range(32 // bits)]
    return [part.view(dtype).astype(np.float64) for part in parts]


def _selected(ins: Instruction, operand: Any, steps: int, threads: int) -> tuple[int, int]:
    """The byte and the thread that a tuple of constants selects."""
    parts = _parts(operand)
    if len(parts) != 2 or not all(isinstance(part, Immediate) for part in parts):
        raise ins.fail("{byte-id, thread-id} are two constants")
    byte, thread = (part.value for part in parts)
    if byte not in range(0, 4, steps) or thread not in range(threads):
        raise ins.fail(f"{{{byte}, {thread}}} selects no scales")
    return byte, thread


def _multiply_scaled(ins: Instruction, code: Code) -> Step:
    """D = (A * scale_A) * (B * scale_B) + C, as "Block Scaling for mma.sync" has it: of the four threads of a quad, two
    bring the scales of rows groupID and groupID + 8 of A, one those of column groupID of B."""
    *how, of_d, left, right, of_c, of_scale = ins.parts
    known = SCALED.get((how[5], how[7])) if len(how) == 8 else None
    if known is None or how[:2] + how[3:5] + [how[6]] != ["sync", "aligned", "row", "col", "block_scale"]:
        raise ins.fail("this form of mma is not known")
    count, shape, dtypes, scale = known
    if (how[2], of_scale, of_d, of_c) != (shape, scale, "f32", "f32") or {left, right} - set(dtypes):
        raise ins.fail("these dtypes are not multiplied with scales")
    m, n, k = SIZES[shape]
    word, single = type_of("b32"), type_of("f32")
    a, b, c = (
        [code.source(ins, part, kind) for part in _parts(operand)]
        for operand, kind in zip(ins.operands[1:4], (word, word, single), strict=True)
    )
    data = [code.source(ins, _parts(ins.operands[at])[0], word) for at in (4, 6)]
    selected = [_selected(ins, ins.operands[at], count, threads) for at, threads in ((5, 2), (7, 4))]
    targets = [code.target(ins, part, single) for part in _parts(ins.operands[0])]

    def matrix(group: Group, values: list[Array], size: tuple[int, int], places: Any) -> Array:
        made = np.zeros((group.count // 32, *size))
        assert len(values) * 32 == size[0] * size[1], "a fragment has other elements than its matrix"
        for i, value in enumerate(values):
            rows, columns = places(shape, i)
            made[:, rows, columns] = _by_warps(group, value)
        return made

    def factors(group: Group) -> tuple[Array, Array]:
        bytes = [[_by_warps(group, each) for each in _narrow(source(group), scale)] for source in data]
        (byte_a, pair), (byte_b, thread) = selected
        of_a = np.zeros((group.count // 32, m, count))
        of_b = np.zeros((group.count // 32, count, n))
        for j in range(count):
            for half in range(2):
                of_a[:, 8 * half : 8 * half + 8, j] = bytes[0][byte_a + j][:, 2 * pair + half :: 4]
            of_b[:, j, :] = bytes[1][byte_b + j][:, thread::4]
        return of_a.repeat(k // count, 2), of_b.repeat(k // count, 1)

    def run(group: Group) -> None:
        of_a, of_b = factors(group)
        of_left = matrix(group, [each for source in a for each in _narrow(source(group), left)], (m, k), _a)
        of_right = matrix(group, [each for source in b for each in _narrow(source(group), right)], (k, n), _b)
        sums = matrix(group, [source(group) for source in c], (m, n), _c)
        result = sums + (of_left * of_a) @ (of_right * of_b)
        for i, to in enumerate(targets):
            rows, columns = _c(shape, i)
            to(group, result[:, rows, columns].astype(np.float32).reshape(-1))

    return run


@step("ldmatrix")
def _load_matrices(ins: Instruction, code: Code) -> Step:
    """`ldmatrix.sync.aligned.m8n8.x4{.trans}.shared.b16`: lane 8 * j + r brings the address of row r of matrix j."""
    if [part for part in ins.parts if part not in ("trans", "x1", "x2", "x4", "shared", "shared__cta")] != [
        *("sync", "aligned", "m8n8", "b16")
    ]:
        raise ins.fail("this form of ldmatrix is not known")
    targets = [code.target(ins, part, type_of("b32")) for part in _parts(ins.operands[0])]
    address, turned = address_of(ins, ins.operands[1], code), "trans" in ins.parts

    def run(group: Group) -> None:
        at = _by_warps(group, address(group))
        if np.any(at & at.dtype.type(15)):
            raise ins.fail("the address of a row is not a multiple of 16")
        warps = group.count // 32
        halves = np.zeros((warps, 32, 8), np.uint16)  # row by row
        for k in range(8):
            step_of = (at + at.dtype.type(2 * k)).reshape(-1)
            halves[:, :, k] = load(group, "shared", step_of, 16).reshape(warps, 32)
        for j, to in enumerate(targets):
            matrix = halves[:, 8 * j : 8 * j + 8, :]
            matrix = matrix.transpose(0, 2, 1) if turned else matrix
            low, high = (matrix[:, GROUP, 2 * THREAD + k].astype(np.uint32) for k in (0, 1))
            to(group, (low | (high << np.uint32(16))).reshape(-1))

    return run
