"""The instructions of PTX by which four warps multiply matrices: `wgmma.mma_async`, its fence, its groups.

What the bits of a description mean, and which lane has which element, follows the PTX ISA manual ("Asynchronous
Warpgroup Level Matrix Instructions") in its own terms, independently of the compiler. Products are computed where they
begin; a kernel that ends while one is under way is refused.
"""

from __future__ import annotations

import re
from typing import Any

import ml_dtypes
import numpy as np
from support.ptx_group import Code, Group, Step, step
from support.ptx_memory import BadAddress
from support.ptx_numbers import type_of
from support.ptx_parse import Immediate, Instruction, Tuple
from support.ptx_threads import load

Array = Any
SWIZZLE_BYTES = {1: 128, 2: 64, 3: 32}
TYPES: dict[str, Any] = {
    "f16": np.float16,
    "bf16": ml_dtypes.bfloat16,
    "tf32": np.float32,
    "s8": np.int8,
    "u8": np.uint8,
    "e4m3": ml_dtypes.float8_e4m3fn,
    "e5m2": ml_dtypes.float8_e5m2,
}
WHOLE_NUMBERS = {8, 24, *range(16, 257, 16)}  # the numbers of columns that products of integers may have
LANE, WARP = np.arange(128) % 32, np.arange(128) // 32


class Description:
    """A matrix in shared memory, as 64 bits describe it."""

    def __init__(self, ins: Instruction, bits: int) -> None:
        self.start = (bits & 0x3FFF) << 4
        self.leading = (bits >> 16 & 0x3FFF) << 4
        self.stride = (bits >> 32 & 0x3FFF) << 4
        mode = bits >> 62
        if mode not in SWIZZLE_BYTES:
            raise ins.fail("a matrix without a swizzle is not known")
        if bits >> 49 & 7:
            raise ins.fail("a pattern that does not begin at a multiple of its size is not known")
        self.swizzle = SWIZZLE_BYTES[mode]

    def addresses(self, outer: int, inner: int, turned: bool, size: int) -> Array:
        """Of each element along the outer axis (rows of a, columns of b) and the inner one, of `size` bytes each."""
        o, i = np.meshgrid(np.arange(outer), np.arange(inner), indexing="ij")
        row_elements = self.swizzle // size
        if turned:  # units of 8 rows of the inner axis are `stride` apart, panels of the outer axis `leading`
            place = o // row_elements * self.leading + o % row_elements * size
            place = place + i // 8 * self.stride + i % 8 * self.swizzle
        else:  # units of 8 rows of the outer axis; the inner axis stays within the swizzle
            place = o // 8 * self.stride + o % 8 * self.swizzle + i * size
        linear = self.start + place
        chunks = self.swizzle // 16
        return linear ^ ((linear >> 7 & (chunks - 1)) << 4)


def _whole(ins: Instruction, group: Group) -> int:
    """How many groups of four warps there are; all their threads have to be here."""
    numbers = np.asarray(group.numbers)
    in_block = numbers % group.machine.threads
    if group.count % 128 or np.any(in_block.reshape(-1, 128) - in_block.reshape(-1, 128)[:, :1] != np.arange(128)):
        raise ins.fail("the threads of four warps do not come here together")
    if np.any(in_block.reshape(-1, 128)[:, 0] % 128):
        raise ins.fail("four warps begin at a multiple of four")
    return group.count // 128


@step("wgmma")
def _multiply(ins: Instruction, code: Code) -> Step:
    if ins.parts[0] != "mma_async":
        return _order(ins)
    kind = ins.parts[-1]
    if kind not in TYPES:
        raise ins.fail("this product is not known")
    dtype, integer, wide = np.dtype(TYPES[kind]), kind in ("s8", "u8"), type_of("b64")
    depth, acc = 32 // dtype.itemsize, type_of("s32" if integer else "f32")
    found = re.fullmatch(rf"m64n(\d+)k{depth}", ins.parts[3])
    if ins.parts[1:3] != ("sync", "aligned") or found is None or ins.parts[4:] != (acc.name, kind, kind):
        raise ins.fail("this product is not known")
    n, held = int(found[1]), isinstance(ins.operands[1], Tuple)
    into = ins.operands[0].parts  # type: ignore[union-attr]
    if n % 8 or not 8 <= n <= 256 or len(into) != n // 2 or (integer and n not in WHOLE_NUMBERS):
        raise ins.fail(f"{len(into)} registers for {n} columns")
    turned = _orders(ins, integer, dtype.itemsize == 2, 1 if held else 2)
    if held and dtype.itemsize != 2:
        raise ins.fail("fragments of these elements are not known")
    sums = [(code.source(ins, one, acc), code.target(ins, one, acc)) for one in into]
    narrow, exact = (np.int32, np.int64) if integer else (np.float32, np.float64)
    words = [code.source(ins, one, type_of("b32")) for one in ins.operands[1].parts] if held else []  # type: ignore[union-attr]
    a = None if held else code.source(ins, ins.operands[1], wide)
    b, adds = code.source(ins, ins.operands[2], wide), code.source(ins, ins.operands[3], type_of("pred"))

    def run(group: Group) -> None:
        count = _whole(ins, group)
        group.machine.products.begin(ins, group)
        right = _read(ins, group, b(group), n, turned[-1], dtype)
        left = _fragments(group, words, dtype) if a is None else _read(ins, group, a(group), 64, turned[0], dtype)
        if kind == "tf32":
            left, right = ((one.view(np.uint32) & np.uint32(0xFFFFE000)).view(np.float32) for one in (left, right))
        result = left.astype(exact) @ right.astype(exact).swapaxes(-1, -2)
        before = group.spread(adds(group))
        for number, (source, to) in enumerate(sums):
            row = 16 * WARP + LANE // 4 + 8 * (number // 2 % 2)
            column = 8 * (number // 4) + LANE % 4 * 2 + number % 2
            own = result[:, row, column].reshape(count * 128)
            old = np.where(before, source(group), narrow(0)).astype(exact) if before.any() else exact(0)
            to(group, (own + old).astype(narrow))

    return run


def _orders(ins: Instruction, integer: bool, halves: bool, in_memory: int) -> list[bool]:
    """Whether operands in memory lie across the inner axis, as the last numbers of an instruction say.

    Only elements of 16 bits have such numbers; those before them, that operands are not negated, integers have not.
    """
    numbers = [operand.value for operand in ins.operands[4:] if isinstance(operand, Immediate)]
    signs = [] if integer else [1, 1]
    if numbers[: len(signs)] != signs or len(numbers) != len(signs) + (in_memory if halves else 0):
        raise ins.fail("operands are not negated here, and only those of 16 bits lie across the inner axis")
    return [bool(number) for number in numbers[len(signs) :]] or [False] * in_memory


def _read(ins: Instruction, group: Group, bits: Array, outer: int, turned: bool, dtype: Any) -> Array:
    """A matrix of each group of warps: the outer axis, then the inner one."""
    described = group.spread(bits).reshape(-1, 128)
    if np.any(described != described[:, :1]):
        raise ins.fail("the threads of four warps describe different matrices")
    size, inner = dtype.itemsize, 32 // dtype.itemsize
    result = np.zeros((len(described), outer, inner), f"u{size}")
    for number, one in enumerate(described[:, 0]):
        places = Description(ins, int(one)).addresses(outer, inner, turned, size).reshape(-1).astype(np.uint64)
        thread = np.repeat(np.asarray(group.numbers)[128 * number], len(places))
        reader = Group(group.machine, thread, len(places))
        try:
            result[number] = load(reader, "shared", places, 8 * size).reshape(outer, inner)
        except BadAddress as error:
            raise ins.fail(str(error)) from None
    return result.view(dtype)


def _fragments(group: Group, words: list[Any], dtype: Any) -> Array:
    """The matrix that registers hold: a0, a1 of the first row, a2, a3 of the other one, then the same 8 further on."""
    result = np.zeros((group.count // 128, 64, 16), np.uint16)
    for number, word in enumerate(words):
        bits = np.asarray(group.spread(word(group))).reshape(-1, 128)
        for half in range(2):
            row = 16 * WARP + LANE // 4 + 8 * (number % 2)
            column = LANE % 4 * 2 + half + 8 * (number // 2)
            result[:, row, column] = (bits >> np.uint32(16 * half)).astype(np.uint16)
    return result.view(dtype)


class Products:
    """Which threads have a fence before their products, and how many groups of products are under way."""

    def __init__(self, threads: int) -> None:
        self.fenced = np.zeros(threads, np.bool_)
        self.begun = np.zeros(threads, np.bool_)
        self.groups = np.zeros(threads, np.int64)

    def begin(self, ins: Instruction, group: Group) -> None:
        if not self.fenced[group.numbers].all():
            raise ins.fail("there is no wgmma.fence before it")
        self.begun[group.numbers] = True

    def ended(self, ins: Instruction, threads: Any) -> None:
        """Threads end."""
        if self.begun[threads].any() or self.groups[threads].any():
            raise ins.fail("a product may be under way")


def _order(ins: Instruction) -> Step:
    """The fence, the end of a group of products, and the wait for all groups but the newest ones."""
    kind, rest = ins.parts[0], ins.parts[1:]
    pending = ins.operands[0].value if ins.operands and isinstance(ins.operands[0], Immediate) else 0
    if rest != ("sync", "aligned") or kind not in ("fence", "commit_group", "wait_group"):
        raise ins.fail("this form is not known")

    def run(group: Group) -> None:
        _whole(ins, group)
        products, threads = group.machine.products, group.numbers
        if kind == "fence":
            products.fenced[threads] = True
        elif kind == "commit_group":
            products.groups[threads] += products.begun[threads]
            products.begun[threads] = False
        else:
            products.groups[threads] = np.minimum(products.groups[threads], pending)

    return run
