"""The instructions of PTX by which memory is copied next to the threads: `cp.async`, `cp.async.bulk`, `mbarrier`.

A copy is done as late as it may be: when its thread waits for it, or when a thread looks at the barrier that it arrives
at. So what reads too early reads what was there before.
"""

from __future__ import annotations

import functools
from collections.abc import Callable
from dataclasses import dataclass, field
from typing import Any

import numpy as np
from support.ptx_group import Code, Group, Step, step
from support.ptx_numbers import type_of
from support.ptx_parse import Immediate, Instruction
from support.ptx_tensor_copies import box_copy
from support.ptx_threads import address_of, load, of_peer, placed, store, whole_vector


@step("cp")
def _copy(ins: Instruction, code: Code) -> Step:
    if ins.parts[:1] != ("async",) or "mbarrier" in ins.parts:
        raise ins.fail("this copy is not known")
    if ins.parts[1:3] == ("bulk", "tensor"):
        return box_copy(ins, code)
    if "bulk" in ins.parts:
        return _bulk_copy(ins, code)
    if ins.parts[1] == "commit_group":
        return lambda group: group.machine.copies.commit(group.numbers)
    if ins.parts[1] == "wait_all":
        return lambda group: group.machine.copies.wait(group, None)
    if ins.parts[1] == "wait_group":
        if not isinstance(ins.operands[0], Immediate):
            raise ins.fail("the number of groups is a constant")
        pending = ins.operands[0].value
        return lambda group: group.machine.copies.wait(group, pending)
    to, source = (address_of(ins, operand, code) for operand in ins.operands[:2])
    size = ins.operands[2]
    if not isinstance(size, Immediate):
        raise ins.fail("the size is a constant")
    given = code.source(ins, ins.operands[3], type_of("u32")) if len(ins.operands) > 3 else None

    def run(group: Group) -> None:
        count = group.spread(given(group) if given else np.uint32(size.value))
        group.machine.copies.issue(ins, group, group.spread(to(group)), group.spread(source(group)), size.value, count)

    return placed(ins, run)


class Copies:
    """Asynchronous copies of all threads: they are done when their thread waits, and not before."""

    def __init__(self, threads: int) -> None:
        self.committed = np.zeros(threads, np.int64)
        self.pending: list[tuple[Instruction, Any, Any, Any, Any, int, Any]] = []

    def issue(self, ins: Instruction, group: Group, to: Any, source: Any, size: int, count: Any) -> None:
        for address in (to, source):
            whole_vector(address, size)
        threads = group.numbers
        self.pending.append((ins, threads, self.committed[threads], to, source, size, count))

    def commit(self, threads: Any) -> None:
        self.committed[threads] += 1

    def wait(self, group: Group, pending: int | None) -> None:
        """Ends the copies of these threads but for those of the newest groups."""
        waits = np.zeros(len(self.committed), np.bool_)
        waits[group.numbers] = True
        before = self.committed - (pending or 0)
        left = []
        for ins, threads, number, to, source, size, count in self.pending:
            due = waits[threads] & ((number < before[threads]) if pending is not None else True)
            if due.any():
                part = Group(group.machine, threads[due], int(due.sum()))
                placed(ins, lambda p, d=due, t=to, s=source, n=size, c=count: _bytes(p, t[d], s[d], n, c[d]))(part)  # type: ignore[misc]
            if not due.all():
                keep = ~due
                left.append((ins, threads[keep], number[keep], to[keep], source[keep], size, count[keep]))
        self.pending = left


def _bytes(group: Group, to: Any, source: Any, size: int, count: Any) -> None:
    """Copies bytes one by one; those behind `count` are zeros."""
    for k in range(size):
        value = np.zeros(group.count, np.uint8)
        given = count > k
        if given.any():
            value[given] = load(group.part(given), "global", source[given] + np.uint64(k), 8)
        store(group, "shared", to + np.uint64(k), value, 8)


# *** barriers in shared memory, and bulk copies that arrive at them ***

BULK = 16  # bytes that addresses and sizes of bulk copies are multiples of
MOST_BYTES = (1 << 20) - 1  # that a barrier counts


@dataclass
class Barrier:
    """An mbarrier: so many arrivals end a phase, once as many bytes have come as were announced."""

    count: int
    pending: int
    bytes: int = 0
    phase: int = 0
    unseen: bool = False  # whether a phase has ended since a thread has looked
    copies: list[Callable[[], int]] = field(default_factory=list)


class Barriers:
    """The barriers of all blocks, by the block and the address."""

    def __init__(self) -> None:
        self._made: dict[tuple[int, int], Barrier] = {}

    def make(self, ins: Instruction, block: int, address: int, count: int) -> None:
        if address % 8 or not 0 < count < 1 << 20:
            raise ins.fail(f"a barrier at {address} for {count} arrivals")
        self._made[block, address] = Barrier(count, count)

    def at(self, ins: Instruction, block: int, address: int) -> Barrier:
        if (block, address) not in self._made:
            raise ins.fail(f"there is no barrier at {address} of block {block}")
        return self._made[block, address]

    def announce(self, ins: Instruction, barrier: Barrier, count: int) -> None:
        barrier.bytes += count
        if barrier.bytes > MOST_BYTES:
            raise ins.fail(f"{barrier.bytes} bytes are announced")

    def arrive(self, ins: Instruction, barrier: Barrier) -> None:
        self._turn(ins, barrier)
        barrier.pending -= 1

    def ended(self, ins: Instruction, barrier: Barrier, parity: int) -> bool:
        """Whether the phase of a parity has ended: that before the one under way, if all is as it should be."""
        self._turn(ins, barrier)
        barrier.unseen = False
        return barrier.phase % 2 != parity

    def _turn(self, ins: Instruction, barrier: Barrier) -> None:
        """Begins the next phase if all have arrived: what is under way has ended then."""
        if barrier.pending:
            return
        barrier.bytes -= sum(copy() for copy in barrier.copies)
        barrier.copies = []
        if barrier.bytes:
            raise ins.fail(f"all have arrived, and {barrier.bytes} announced bytes have not been copied")
        if barrier.unseen:  # a thread that waits for the one before sees the parity of this one
            raise ins.fail("more threads arrive than the phase waits for")
        barrier.phase, barrier.pending, barrier.unseen = barrier.phase + 1, barrier.count, True


def each_with_its_block(group: Group, *values: Any) -> list[tuple[int, ...]]:
    """The block of each thread with its numbers."""
    blocks = group.spread(group.take(group.machine.block_of))
    return [tuple(map(int, row)) for row in zip(blocks, *(group.spread(value) for value in values), strict=True)]


def each_at_its_block(group: Group, address: Any, *values: Any) -> list[tuple[int, ...]]:
    """The block of shared memory that an address of each thread is in, the address there, and its numbers."""
    blocks, places = of_peer(group, group.spread(address).astype(np.uint64))
    return [
        tuple(map(int, row))
        for row in zip(group.spread(blocks), places, *(group.spread(value) for value in values), strict=True)
    ]


@step("mbarrier")
def _barrier(ins: Instruction, code: Code) -> Step:
    kind, word = ins.parts[0], type_of("u32")
    announces = ins.parts[:2] == ("arrive", "expect_tx")
    known = {
        "init": ("shared__cta", "b64"),
        "expect_tx": ("relaxed", "cta", "shared__cta", "b64"),
        "arrive": (*("expect_tx",) * announces, "release", "cta", "shared__cta", "b64"),
        "try_wait": ("parity", "shared__cta", "b64"),
    }
    in_clusters = {
        "arrive": (*("expect_tx",) * announces, "release", "cluster", "shared__cluster", "b64"),
        "try_wait": ("parity", "acquire", "cluster", "shared__cta", "b64"),
    }
    if ins.parts[1:] not in (known.get(kind), in_clusters.get(kind)) or (
        kind == "arrive" and ins.operands[0] is not None
    ):
        raise ins.fail("this form is not known")
    gives = kind in ("try_wait", "arrive")
    address = address_of(ins, ins.operands[1 if gives else 0], code)
    if kind == "arrive" and not announces:
        return lambda group: _each_arrives(ins, group, address(group))
    number = code.source(ins, ins.operands[-1], word)
    if kind == "try_wait":
        to = code.target(ins, ins.operands[0], type_of("pred"))

        def look(group: Group) -> None:
            barriers, looks = group.machine.barriers, each_with_its_block(group, address(group), number(group))
            found = {key: barriers.ended(ins, barriers.at(ins, *key[:2]), key[2]) for key in dict.fromkeys(looks)}
            to(group, np.array([found[key] for key in looks], np.bool_))  # type: ignore[index]

        return look

    def run(group: Group) -> None:
        barriers = group.machine.barriers
        for block, at, count in each_at_its_block(group, address(group), number(group)):
            if kind == "init":
                barriers.make(ins, block, at, count)
            else:
                barriers.announce(ins, barriers.at(ins, block, at), count)
            if announces:
                barriers.arrive(ins, barriers.at(ins, block, at))

    return run


def _each_arrives(ins: Instruction, group: Group, address: Any) -> None:
    barriers = group.machine.barriers
    for block, at in each_at_its_block(group, address):
        barriers.arrive(ins, barriers.at(ins, block, at))


def _bulk_copy(ins: Instruction, code: Code) -> Step:
    """`cp.async.bulk.shared::cluster.global.mbarrier::complete_tx::bytes [to], [source], size, [barrier]`."""
    if ins.parts[2:] != ("shared__cluster", "global", "mbarrier__complete_tx__bytes"):
        raise ins.fail("this bulk copy is not known")
    to, source, barrier = (address_of(ins, ins.operands[k], code) for k in (0, 1, 3))
    size = code.source(ins, ins.operands[2], type_of("u32"))

    def run(group: Group) -> None:
        barriers = group.machine.barriers
        rows = each_with_its_block(group, to(group), source(group), size(group), barrier(group))
        for thread, (block, there, here, count, at) in zip(group.numbers, rows, strict=True):
            if there % BULK or here % BULK or count % BULK or not count:
                raise ins.fail(f"{count} bytes from {here:#x} to {there:#x} are not multiples of {BULK}")

            moved = functools.partial(_words, ins, Group(group.machine, np.array([thread]), 1), there, here, count)
            barriers.at(ins, block, at).copies.append(moved)

    return run


def _words(ins: Instruction, group: Group, to: int, source: int, count: int) -> int:
    """Copies bytes, eight at a time, and gives their number."""

    def run(one: Group) -> None:
        for k in range(0, count, 8):
            value = load(one, "global", np.array([source + k], np.uint64), 64)
            store(one, "shared", np.array([to + k], np.uint64), value, 64)

    placed(ins, run)(group)
    return count


@step("setmaxnreg")
def _set_registers(ins: Instruction, code: Code) -> Step:
    """`setmaxnreg.inc|dec.sync.aligned.u32 n`: four warps get more registers, or give some back."""
    count = ins.operands[0]
    known = ins.parts[:1] in (("inc",), ("dec",)) and ins.parts[1:] == ("sync", "aligned", "u32")
    if not known or not isinstance(count, Immediate) or count.value not in range(24, 257, 8):
        raise ins.fail("this form is not known")

    def run(group: Group) -> None:
        machine = group.machine
        fours = np.unique(group.spread(group.take(machine.warp_of)) // 4)
        for four in fours:
            before = machine.registers.setdefault(int(four), code.kernel.most_registers)
            if (count.value > before) != (ins.parts[0] == "inc"):
                raise ins.fail(f"four warps have {before} registers for each thread")
            machine.registers[int(four)] = count.value

    return run
