"""Computes products that four warps compute together, of operands in shared memory and in lanes.

Where elements lie is written from NVIDIA's PTX ISA manual ("Register Fragments and Shared Memory Matrix Layouts" of
`wgmma`), apart from the code that says where hardware reads.
"""

from __future__ import annotations

from collections.abc import Sequence

import numpy as np

from ..ir.program import Op
from ..targets.products import BY_NAME
from .machine import Evaluate, Machine, Meeting, evaluates
from .matrices import Array, as_tf32, of_halves
from .pointers import InterpretedPointer, load

THREADS = np.arange(128)
ROW = 16 * (THREADS // 32) + THREADS % 32 // 4  # the first row of a thread, of 64; the other one is 8 further down
PAIR = 2 * (THREADS % 4)  # its first column, of eight


def places(sizes: tuple[int, int], how: Sequence[int], at: int, bytes_of: int) -> Array:
    """Where the elements of a matrix lie, in bytes from the operand's beginning: outer axis, inner axis."""
    width, panels, eight, across = how
    outer, inner = np.meshgrid(np.arange(sizes[0]), np.arange(sizes[1]), indexing="ij")
    row, column = (inner, outer) if across else (outer, inner)
    apart = panels if across else 0  # along the inner axis an instruction stays within a panel
    neighbours = width // bytes_of
    place = at + column // neighbours * apart + column % neighbours * bytes_of + row // 8 * eight + row % 8 * width
    return np.asarray(place ^ (place >> 3 & (width - 16)))


@evaluates("multiply_groups")
def _multiply_groups(op: Op, machine: Machine) -> Evaluate:
    row, attrs = BY_NAME[op.attrs["row"]], op.attrs
    columns, held, steps = attrs["columns"], attrs["held"], len(attrs["right_at"])
    depth = row.shape[2]
    widths = [value.simd.width for value in op.results]
    tall = 2 * sum(widths) // columns
    wide = np.float64 if row.acc.is_float() else np.int64

    def left(brought: dict[int, tuple[object, ...]], i: int, step: int) -> Array:
        if not held:
            return _matrix(machine, op, brought[0][2:4], 64, "left", i * steps + step)
        made = np.zeros((64, depth))
        for lane, values in brought.items():
            words = np.asarray(values[2 + i * steps + step]).reshape(4, 2).astype(np.float64)
            for word in range(4):  # two rows, then the same further along the inner axis
                first = PAIR[lane] + 8 * (word // 2)
                made[ROW[lane] + 8 * (word % 2), first : first + 2] = words[word]
        return made

    def combine(given: dict[int, object]) -> dict[int, object]:
        brought = {lane: values for lane, values in given.items() if isinstance(values, tuple)}
        first = 2 + (held or 2)
        right = [_matrix(machine, op, brought[0][:2], columns, "right", k) for k in range(steps)]
        results = {lane: np.zeros((2 * tall, columns // 4), wide) for lane in brought}
        for i in range(tall):
            total = np.zeros((64, columns), wide)
            for step in range(steps):
                total += left(brought, i, step) @ right[step].T
            for lane in brought:
                for k in range(2):
                    taken = total[ROW[lane] + 8 * k].reshape(-1, 8)[:, PAIR[lane] : PAIR[lane] + 2]
                    results[lane][2 * i + k] = taken.reshape(-1)
        return {lane: _added(op, product.reshape(-1), brought[lane][first:]) for lane, product in results.items()}

    return lambda *operands: Meeting(op, operands, combine)


@evaluates("tensor_memory")
def _tensor_memory(op: Op, machine: Machine) -> Evaluate:
    return lambda barriers: None  # sums are values here


@evaluates("multiply_tensor")
def _multiply_tensor(op: Op, machine: Machine) -> Evaluate:
    """Of 128 rows at a time, of which a warp has 32: a thread every eighth one."""
    attrs, columns = op.attrs, op.attrs["columns"]
    steps = len(attrs["right_at"])
    first = 32 * (THREADS // 32) + THREADS % 32 // 4

    def combine(given: dict[int, object]) -> dict[int, object]:
        brought = {lane: values for lane, values in given.items() if isinstance(values, tuple)}
        right = [_matrix(machine, op, brought[0][:2], columns, "right", k) for k in range(steps)]
        blocks = len(attrs["left_at"]) // steps
        factors = _factors(op, brought, blocks)
        right = [each * factors[-1][:columns, k] for k, each in enumerate(right)] if factors else right
        sums = []
        for block in range(blocks):
            places = range(block * steps, block * steps + steps)
            left = [_matrix(machine, op, brought[0][2:4], 128, "left", k) for k in places]
            left = [each * factors[block][:, k] for k, each in enumerate(left)] if factors else left
            sums.append(np.sum([a @ b.T for a, b in zip(left, right, strict=True)], axis=0))
        made: dict[int, object] = {}
        for lane, values in brought.items():
            rows = [total[first[lane] + 8 * k].reshape(-1, 8) for total in sums for k in range(4)]
            product = np.concatenate([each[:, PAIR[lane] : PAIR[lane] + 2].reshape(-1) for each in rows])
            made[lane] = _added(op, product, values[4 : 4 + len(op.results)])
        return made

    return lambda *operands: Meeting(op, operands, combine)


def _factors(op: Op, brought: dict[int, tuple[object, ...]], blocks: int) -> list[Array]:
    """The scales of each 128 rows of a, then of b, for each element of each step: rows, steps, the inner axis. A lane
    brings words of four neighbours; those of rows 32 apart follow each other. None where there are none."""
    row, steps, first = BY_NAME[op.attrs["row"]], len(op.attrs["right_at"]), 4 + len(op.results)
    if row.scale is None:
        return []
    words = np.array([brought[lane][first:] for lane in range(32)]).astype(np.float64)  # lanes, words, four scales
    count, made = steps * row.scales // 4, list[Array]()
    for taken in (*[4 * count] * blocks, words.shape[1] - 4 * count * blocks):
        part, words = words[:, :taken], words[:, taken:]
        rows = part.reshape(32, count, -1, 4).transpose(2, 0, 1, 3).reshape(-1, steps, row.scales)
        made.append(rows.repeat(row.block, 2))
    return made


def _added(op: Op, product: Array, sums: Sequence[object]) -> object:
    """What one lane gets: its elements of the product added to its sums, as vectors of the operation's results."""
    dtype, widths = BY_NAME[op.attrs["row"]].acc, [value.simd.width for value in op.results]
    before = np.concatenate([np.atleast_1d(np.asarray(value)) for value in sums])
    parts = np.split((product + before).astype(dtype.to_numpy()), np.cumsum(widths)[:-1])
    results = [part if width > 1 else part[0] for part, width in zip(parts, widths, strict=True)]
    return tuple(results) if len(results) > 1 else results[0]


def _matrix(machine: Machine, op: Op, side: Sequence[object], count: int, name: str, step: int) -> Array:
    """An operand of one instruction, from shared memory."""
    row, (pointer, offset) = BY_NAME[op.attrs["row"]], side
    assert isinstance(pointer, InterpretedPointer) and isinstance(offset, np.integer)
    stored = row.of_bytes
    size = stored.a.bits // 8
    at = op.attrs[f"{name}_at"][step]
    indices = places((count, stored.shape[2]), op.attrs[name], at, size) // size + int(offset)
    elements = [load(pointer, int(index), 1, machine.op, op.location) for index in indices.reshape(-1)]
    made = np.array(elements).reshape(indices.shape)
    if stored is not row:
        return of_halves(made, 1, row)
    made = made.astype(np.float64 if row.acc.is_float() else np.int64)
    return as_tf32(made) if row.precision == "tf32" else made


@evaluates("product_begun")
def _begun(op: Op, machine: Machine) -> Evaluate:
    return lambda: None  # products are done at once


@evaluates("product_wait")
def _wait(op: Op, machine: Machine) -> Evaluate:
    return lambda *sums: sums if len(sums) > 1 else sums[0] if sums else None
