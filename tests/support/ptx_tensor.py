"""The instructions of PTX by which products lie in tensor memory: `tcgen05`.

What the bits of descriptions mean, and which lane has which element, follows the PTX ISA manual ("TensorCore 5th
Generation Family Instructions") in its own terms, independently of the compiler. A product is computed when a thread
finds that it has ended, of what its operands are then; a kernel that ends before that is refused.
"""

from __future__ import annotations

import re
from collections.abc import Callable
from dataclasses import dataclass, field
from typing import Any

import ml_dtypes
import numpy as np
from support.ptx_copies import each_with_its_block
from support.ptx_group import Code, Group, Step, step
from support.ptx_memory import BadAddress
from support.ptx_numbers import type_of
from support.ptx_parse import Address, Immediate, Instruction, Tuple
from support.ptx_threads import address_of, load, store

Array = Any
LANES, COLUMNS = 128, 512
SWIZZLE_BYTES = {2: 128, 4: 64, 6: 32}
FORMATS: dict[str, dict[int, Any]] = {
    "f16": {0: np.float16, 1: ml_dtypes.bfloat16},
    "tf32": {2: np.float32},
    "i8": {0: np.uint8, 1: np.int8},
    "f8f6f4": {0: ml_dtypes.float8_e4m3fn, 1: ml_dtypes.float8_e5m2},
    "mxf8f6f4": {0: ml_dtypes.float8_e4m3fn, 1: ml_dtypes.float8_e5m2},
    "mxf4": {1: ml_dtypes.float4_e2m1fn},
    "mxf4nvf4": {1: ml_dtypes.float4_e2m1fn},
}
SCALE_VECTORS = {("mxf8f6f4", 1), ("mxf4", 2), ("mxf4nvf4", 4)}  # how many scales of a row an instruction takes
SCALE_FORMATS: tuple[Any, Any] = ml_dtypes.float8_e4m3fn, ml_dtypes.float8_e8m0fnu


@dataclass
class Block:
    """Tensor memory of a block, which columns it has taken, and the products that have not ended."""

    cells: Array = field(default_factory=lambda: np.zeros((LANES, COLUMNS), np.uint32))
    columns: int = 0
    begun: list[Callable[[], None]] = field(default_factory=list)
    committed: int = 0


class TensorMemory:
    """The tensor memory of all blocks."""

    def __init__(self) -> None:
        self._blocks: dict[int, Block] = {}

    def of(self, block: int) -> Block:
        return self._blocks.setdefault(block, Block())

    def ended(self, ins: Instruction, blocks: Any) -> None:
        """Threads of blocks end."""
        for block in {int(number) for number in blocks}:
            state = self.of(block)
            if state.begun or state.committed:
                raise ins.fail("a product may be under way")
            if state.columns:
                raise ins.fail("tensor memory is not given back")


class Matrix:
    """A matrix in shared memory, as 64 bits describe it."""

    def __init__(self, ins: Instruction, bits: int) -> None:
        self.start = (bits & 0x3FFF) << 4
        self.leading = (bits >> 16 & 0x3FFF) << 4
        self.stride = (bits >> 32 & 0x3FFF) << 4
        mode = bits >> 61 & 7
        if bits >> 46 & 7 != 1 or bits >> 52 & 0x1FF:
            raise ins.fail("the constants of a description are others")
        if bits >> 49 & 7 or mode not in SWIZZLE_BYTES:
            raise ins.fail("a matrix without a swizzle, or one that begins within its pattern, is not known")
        self.swizzle = SWIZZLE_BYTES[mode]

    def addresses(self, outer: int, inner: int, turned: bool, size: int) -> Array:
        """Of each element along the outer axis (rows of a, columns of b) and the inner one, of `size` bytes each."""
        o, i = np.meshgrid(np.arange(outer), np.arange(inner), indexing="ij")
        if turned:  # the outer axis goes along the rows of a swizzle, of which eight are one unit
            within = self.swizzle // size
            place = o % within * size + o // within * self.leading + i % 8 * self.swizzle + i // 8 * self.stride
        else:
            place = i * size + o % 8 * self.swizzle + o // 8 * self.stride
        linear = self.start + place
        return linear ^ ((linear >> 7 & (self.swizzle // 16 - 1)) << 4)


@step("tcgen05")
def _tensor(ins: Instruction, code: Code) -> Step:
    kinds = {"alloc": _allocate, "dealloc": _give_back, "mma": _multiply, "commit": _commit, "ld": _load, "st": _store}
    if ins.parts[0] in kinds:
        return kinds[ins.parts[0]](ins, code)
    known = {
        ("relinquish_alloc_permit", "cta_group__1", "sync", "aligned"),
        ("fence__before_thread_sync",),
        ("fence__after_thread_sync",),
        ("wait__ld", "sync", "aligned"),
        ("wait__st", "sync", "aligned"),
    }
    if ins.parts not in known:
        raise ins.fail("this form is not known")
    return lambda group: None


def _columns(ins: Instruction) -> int:
    operand = ins.operands[1]
    if not isinstance(operand, Immediate) or operand.value not in (32, 64, 128, 256, 512):
        raise ins.fail("columns are a power of two from 32 to 512")
    return operand.value


def _allocate(ins: Instruction, code: Code) -> Step:
    if ins.parts[1:] != ("cta_group__1", "sync", "aligned", "shared__cta", "b32"):
        raise ins.fail("this form is not known")
    address, columns = address_of(ins, ins.operands[0], code), _columns(ins)

    def run(group: Group) -> None:
        for block in dict.fromkeys(block for block, _ in each_with_its_block(group, address(group))):
            state = group.machine.tensor.of(block)
            if state.columns:
                raise ins.fail("a block takes tensor memory twice")
            state.columns = columns
            state.cells[:] = 0x7FC12345  # neither 0 nor a number
        store(group, "shared", address(group), np.uint32(0), 32)

    return run


def _give_back(ins: Instruction, code: Code) -> Step:
    first, columns = code.source(ins, ins.operands[0], type_of("b32")), _columns(ins)

    def run(group: Group) -> None:
        for block, at in dict.fromkeys(each_with_its_block(group, first(group))):
            state = group.machine.tensor.of(block)
            if state.columns != columns or at:
                raise ins.fail("other tensor memory is given back than was taken")
            state.columns = 0

    return run


def _multiply(ins: Instruction, code: Code) -> Step:
    kind, vector = ins.parts[2].removeprefix("kind__"), _scale_vector(ins)
    if ins.parts[:2] != ("mma", "cta_group__1") or kind not in FORMATS or not isinstance(ins.operands[0], Address):
        raise ins.fail("this product is not known")
    if (kind, vector) not in SCALE_VECTORS and (vector or kind.startswith("mx")):
        raise ins.fail("these scales are not known")
    into = address_of(ins, ins.operands[0], code)
    a, b = (code.source(ins, operand, type_of("b64")) for operand in ins.operands[1:3])
    what, adds = code.source(ins, ins.operands[3], type_of("b32")), code.source(ins, ins.operands[-1], type_of("pred"))
    scales = [address_of(ins, operand, code) for operand in ins.operands[4:-1]]

    def run(group: Group) -> None:
        places = [place(group) for place in scales]
        given = each_with_its_block(group, into(group), a(group), b(group), what(group), adds(group), *places)
        if len({block for block, *_ in given}) != len(given):
            raise ins.fail("two threads of a block begin the same product")
        for thread, (block, at, left, right, bits, add, *factors) in zip(group.numbers, given, strict=True):
            reader = Group(group.machine, np.array([thread]), 1)
            product = _Product(ins, kind, bits, vector)
            state = group.machine.tensor.of(block)
            product.check(state, at, factors)
            work = at, left, right, add, factors
            state.begun.append(lambda p=product, g=reader, s=state, w=work: p.run(g, s, *w))

    return run


def _scale_vector(ins: Instruction) -> int:
    """How many scales of a row a product takes; 0 without scales."""
    rest = ins.parts[3:]
    if not rest:
        return 0
    found = re.fullmatch(r"scale_vec__(\d)X", rest[-1])
    if len(rest) != 2 or rest[0] != "block_scale" or found is None or len(ins.operands) != 7:
        raise ins.fail("this product is not known")
    return int(found[1])


class _Product:
    """What 32 bits say of a product."""

    def __init__(self, ins: Instruction, kind: str, bits: int, vector: int = 0) -> None:
        self.ins, self.kind, self.vector = ins, kind, vector
        integer = kind == "i8"
        formats = bits >> 7 & 7, bits >> 10 & 7
        if bits & 0xF or bits >> 13 & 3 or formats[0] != formats[1] or bits >> 31:
            raise ins.fail("sparse, saturated, negated or mixed operands, and other depths, are not known")
        self.scale, self.first = np.dtype(SCALE_FORMATS[bits >> 23 & 1]), (bits >> 29 & 3, bits >> 4 & 3)
        if vector == 0 and (bits >> 23 & 1 or bits >> 29 or bits >> 4 & 3 != (2 if integer else 1)):
            raise ins.fail("these formats of sums are not known")
        if formats[0] not in FORMATS[kind] or (vector and (bits >> 6 & 1 or any(k % vector for k in self.first))):
            raise ins.fail("these formats are not known")
        if (vector == 4 and self.scale != SCALE_FORMATS[0]) or (vector in (1, 2) and self.scale != SCALE_FORMATS[1]):
            raise ins.fail("these formats of scales are not known")
        self.dtype = np.dtype(FORMATS[kind][formats[0]])
        self.turned = bool(bits >> 15 & 1), bool(bits >> 16 & 1)
        self.columns, rows = (bits >> 17 & 0x3F) << 3, (bits >> 24 & 0x1F) << 4
        if rows != LANES or self.columns % 16 or not 16 <= self.columns <= 256:
            raise ins.fail(f"{rows} rows and {self.columns} columns are not known")
        self.narrow, self.wide = (np.int32, np.int64) if integer else (np.float32, np.float64)

    def check(self, state: Block, at: int, factors: list[int]) -> None:
        counts = self.columns, *(-(-rows // 32) for rows in (LANES, self.columns))
        for first, count in zip((at, *factors), counts, strict=False):
            if first >> 16 or (first & 0xFFFF) + count > state.columns:
                raise self.ins.fail(f"columns from {first} on are not those of this block")

    def run(self, reader: Group, state: Block, at: int, left: int, right: int, add: int, factors: list[int]) -> None:
        a = self._read(reader, left, LANES, self.turned[0])
        b = self._read(reader, right, self.columns, self.turned[1])
        if self.vector:
            a, b = (
                each * self._scales(state, each, *of) for each, *of in zip((a, b), factors, self.first, strict=True)
            )
        cells = state.cells[:, at : at + self.columns]
        before = cells.view(self.narrow).astype(self.wide) if add else self.wide(0)
        cells[:] = (before + a @ b.T).astype(self.narrow).view(np.uint32)

    def _scales(self, state: Block, matrix: Array, at: int, first: int) -> Array:
        """The scale of each element: row r has its own in the word of lane r % 32 of column r // 32, which the lanes of
        all four warps have alike, from byte `first` on."""
        rows, depth = matrix.shape
        columns = state.cells[:, at : at + -(-rows // 32)]
        if any((columns[:32] != columns[lane : lane + 32]).any() for lane in (32, 64, 96)):
            raise self.ins.fail("the lanes of the four warps have other scales")
        bytes = np.ascontiguousarray(columns[:32].T.reshape(-1)[:rows]).view(np.uint8).reshape(rows, 4)
        taken = np.ascontiguousarray(bytes[:, first : first + self.vector]).view(self.scale)
        return taken.astype(np.float64).repeat(depth // self.vector, 1)

    def _read(self, reader: Group, bits: int, outer: int, turned: bool) -> Array:
        size = self.dtype.itemsize
        places = Matrix(self.ins, bits).addresses(outer, 32 // size, turned, size)
        flat = places.reshape(-1).astype(np.uint64)
        group = Group(reader.machine, np.repeat(reader.numbers, len(flat)), len(flat))
        try:
            found = load(group, "shared", flat, 8 * size).reshape(places.shape)
        except BadAddress as error:
            raise self.ins.fail(str(error)) from None
        if self.kind == "tf32":
            found = found & np.uint32(0xFFFFE000)
        if self.kind.startswith("mxf4"):
            found = np.stack([found & 15, found >> 4], -1).reshape(outer, -1).astype(np.uint8)
        return np.ascontiguousarray(found).view(self.dtype).astype(self.wide)


def _commit(ins: Instruction, code: Code) -> Step:
    if ins.parts[1:] != ("cta_group__1", "mbarrier__arrive__one", "shared__cluster", "b64"):
        raise ins.fail("this form is not known")
    address = address_of(ins, ins.operands[0], code)

    def run(group: Group) -> None:
        for block, at in each_with_its_block(group, address(group)):
            state, barriers = group.machine.tensor.of(block), group.machine.barriers
            products, state.begun = state.begun, []
            state.committed += 1

            def end(products: Any = products, state: Block = state) -> int:
                for product in products:
                    product()
                state.committed -= 1
                return 0

            barrier = barriers.at(ins, block, at)
            barrier.copies.append(end)
            barriers.arrive(ins, barrier)

    return run


def _load(ins: Instruction, code: Code) -> Step:
    """16 lanes of tensor memory of each warp: thread t gets two columns of lane t / 4, then of the lane 8 below."""
    found = re.fullmatch(r"x(\d+)", ins.parts[4])
    if ins.parts[1:4] != ("sync", "aligned", "16x256b") or found is None or ins.parts[5:] != ("b32",):
        raise ins.fail("this form is not known")
    assert isinstance(ins.operands[0], Tuple)
    targets = [code.target(ins, part, type_of("b32")) for part in ins.operands[0].parts]
    if len(targets) != 4 * int(found[1]):
        raise ins.fail(f"{len(targets)} registers")
    address = address_of(ins, ins.operands[1], code)

    def run(group: Group) -> None:
        machine = group.machine
        thread = np.asarray(group.numbers) % machine.threads
        made = [np.zeros(group.count, np.uint32) for _ in targets]
        for number, (block, at) in enumerate(each_with_its_block(group, address(group))):
            lane, column, own = at >> 16, at & 0xFFFF, int(thread[number])
            state = machine.tensor.of(block)
            if lane // 32 != own // 32 % 4 or lane % 16 or column + 8 * int(found[1]) > state.columns:
                raise ins.fail(f"a warp does not read lane {lane}, column {column}")
            for k in range(len(targets)):
                row = lane + own % 32 // 4 + 8 * (k // 2 % 2)
                made[k][number] = state.cells[row, column + 8 * (k // 4) + own % 4 * 2 + k % 2]
        for to, values in zip(targets, made, strict=True):
            to(group, values)

    return run


def _store(ins: Instruction, code: Code) -> Step:
    """A word of each thread to its lane of tensor memory, for each of some columns."""
    found = re.fullmatch(r"x(\d+)", ins.parts[4])
    if ins.parts[1:4] != ("sync", "aligned", "32x32b") or found is None or ins.parts[5:] != ("b32",):
        raise ins.fail("this form is not known")
    given = ins.operands[1]
    parts = given.parts if isinstance(given, Tuple) else (given,)
    sources = [code.source(ins, part, type_of("b32")) for part in parts]
    if len(sources) != int(found[1]):
        raise ins.fail(f"{len(sources)} registers")
    address = address_of(ins, ins.operands[0], code)

    def run(group: Group) -> None:
        machine = group.machine
        thread = np.asarray(group.numbers) % machine.threads
        values = [source(group) for source in sources]
        for number, (block, at) in enumerate(each_with_its_block(group, address(group))):
            lane, column, own = at >> 16, at & 0xFFFF, int(thread[number])
            state = machine.tensor.of(block)
            if lane != own // 32 % 4 * 32 or column + len(values) > state.columns:
                raise ins.fail(f"a warp does not write lane {lane}, column {column}")
            state.cells[lane + own % 32, column : column + len(values)] = [each[number] for each in values]

    return run
