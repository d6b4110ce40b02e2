"""Runs PTX: a kernel as a grid of threads over NumPy arrays, all threads at the same place at once.

    memory = Memory()
    run(text, "vector_add", grid=(4,), block=(128,), arguments=[memory.lend(x), memory.lend(y), n], memory=memory)

Threads that stand at the lowest place in the text go first, so that those that parted join again. A barrier
waits for every thread of its block, and an operation of a warp for every lane of its mask: what would hang is an error,
as are accesses outside of memory, with the line of the text, the block and the thread.

What is not known is a `PtxError` with its line.
"""

from __future__ import annotations

import functools
from collections.abc import Callable, Sequence
from dataclasses import dataclass, replace
from typing import Any

import numpy as np
from support import ptx_arithmetic, ptx_copies, ptx_groups, ptx_matrices, ptx_tensor, ptx_threads
from support.ptx_group import STEPS, Code, Group, Source, Step, written
from support.ptx_memory import PARAMETER_BYTES, Memory, Slabs
from support.ptx_numbers import type_of
from support.ptx_parse import (
    Address,
    Immediate,
    Instruction,
    Kernel,
    Module,
    Operand,
    PtxError,
    Register,
    Symbol,
    Trapped,
    Tuple,
    Variable,
    parse,
)

__all__ = ["Memory", "PtxError", "Trapped", "run"]

assert (
    ptx_arithmetic and ptx_copies and ptx_groups and ptx_matrices and ptx_tensor and ptx_threads
)  # their instructions are registered

THREADS = 8192  # that run at once, in whole blocks
LOCAL_BYTES = 1 << 26
TURNS = 2_000_000  # blocks of instructions after which a kernel counts as endless
FAIRNESS = 16  # every so many turns others go first, the farthest, then those before: they may hold what is awaited


@functools.lru_cache(64)
def module_of(text: str) -> Module:
    return parse(text)


def run(
    text: str,
    symbol: str,
    *,
    grid: Sequence[int],
    block: Sequence[int],
    arguments: Sequence[int],
    memory: Memory,
    shared: int = 0,
    cluster: Sequence[int] = (1, 1, 1),
) -> None:
    """Runs a kernel to its end.

    Raises:
        PtxError: the text, the launch or what a thread does is wrong or not known.
    """
    module = module_of(text)
    if symbol not in module.kernels:
        raise PtxError(f"no kernel is called {symbol}; there are {', '.join(module.kernels)}")
    kernel = module.kernels[symbol]
    sizes = [tuple((*map(int, size), 1, 1, 1)[:3]) for size in (grid, block, cluster)]
    if kernel.block_size is not None and kernel.block_size != sizes[1]:
        raise PtxError(f"{symbol} wants blocks of {kernel.block_size} threads, and got {sizes[1]}")
    if any(blocks % one for blocks, one in zip(sizes[0], sizes[2], strict=True)):
        raise PtxError(f"{symbol}: a grid of {sizes[0]} blocks is not one of clusters of {sizes[2]}")
    compiled = _compiled(text, symbol)
    parameters = _parameters(kernel, arguments)
    blocks = int(np.prod(sizes[0], dtype=np.int64))
    threads = int(np.prod(sizes[1], dtype=np.int64))
    together = max(min(THREADS // threads, LOCAL_BYTES // (threads * max(compiled.local_bytes, 1))), 1)
    together = max(together // int(np.prod(sizes[2])), 1) * int(np.prod(sizes[2]))
    together = blocks if sizes[2][1] * sizes[2][2] > 1 else together
    constants = [memory.lend(data) for data in compiled.constants]
    try:
        for first in range(0, blocks, together):
            numbers = np.arange(first, min(first + together, blocks))
            Machine(compiled, memory, parameters, sizes, numbers, shared).run()
    finally:
        for address in constants:
            memory.take_back(address)


def _parameters(kernel: Kernel, arguments: Sequence[int]) -> dict[str, bytes]:
    if len(arguments) != len(kernel.parameters):
        raise PtxError(f"{kernel.name} takes {len(kernel.parameters)} arguments, and got {len(arguments)}")
    return {
        parameter.name: (int(value) & ((1 << 8 * parameter.size) - 1)).to_bytes(parameter.size, "little")
        for parameter, value in zip(kernel.parameters, arguments, strict=True)
    }


# *** code ***


@dataclass
class CompiledBlock:
    """The steps of a block of instructions.

    Attributes:
        reads: registers that it takes from before.
        keeps: registers that others take from it.
        steps: what its instructions do, but for the last one if it ends the block.
        end: the last instruction, if it is a branch, a return or a barrier.
        guard: whether each thread takes the end; None where all do.
        members: the lanes that its first instruction waits for.
    """

    reads: list[str]
    keeps: list[str]
    steps: list[Step]
    end: Instruction | None
    guard: Source | None
    members: Source | None
    first: Instruction


@dataclass
class Compiled:
    kernel: Kernel
    code: Code
    constants: list[Any]
    shared_bytes: int
    local_bytes: int
    live: frozenset[str]
    blocks: list[CompiledBlock | None]

    def block(self, number: int) -> CompiledBlock:
        """A block, made when it is needed first."""
        result = self.blocks[number]
        if result is None:
            result = self.blocks[number] = _compile_block(self, number)
        return result


@functools.lru_cache(256)
def _compiled(text: str, symbol: str) -> Compiled:
    module = module_of(text)
    kernel = module.kernels[symbol]
    used = {name for block in kernel.blocks for ins in block.instructions for name in _symbols(ins)}
    variables = {name: v for name, v in {**module.variables, **kernel.variables}.items() if name in used}
    addresses: dict[str, int] = {}
    constants = []
    ends = {"shared": 0, "local": 0}
    for variable in sorted(variables.values(), key=lambda v: v.external):
        if variable.space in ends:
            start = -(-ends[variable.space] // variable.align) * variable.align
            addresses[variable.name] = start
            ends[variable.space] = start + variable.size
        else:
            constants.append(_aligned(variable))
            addresses[variable.name] = int(constants[-1].ctypes.data)
    for number, parameter in enumerate(kernel.parameters):
        if parameter.size > 8:
            addresses[parameter.name] = number * PARAMETER_BYTES
    live = frozenset(name for block in kernel.blocks for name in _reads(block.instructions))
    code = Code(kernel, variables, addresses)
    return Compiled(kernel, code, constants, ends["shared"], ends["local"], live, [None] * len(kernel.blocks))


def _aligned(variable: Variable) -> Any:
    """The bytes of a variable at a multiple of its alignment."""
    raw = np.zeros(variable.size + variable.align, np.uint8)
    start = -int(raw.ctypes.data) % variable.align
    data = raw[start : start + variable.size]
    data[:] = np.frombuffer(variable.data, np.uint8)
    return data


def _symbols(ins: Instruction) -> list[str]:
    collected: list[str] = []
    for operand in ins.operands:
        if isinstance(operand, Symbol):
            collected.append(operand.name)
        elif isinstance(operand, Address) and isinstance(operand.base, str):
            collected.append(operand.base)
    return collected


def _outputs(ins: Instruction) -> list[str]:
    """The registers that an instruction writes."""
    if ins.name == "wgmma":
        return written(ins.operands[0]) if ins.parts[0] == "mma_async" else []
    if ins.name == "tcgen05":
        return written(ins.operands[0]) if ins.parts[0] == "ld" else []
    if ins.name == "mbarrier":
        return written(ins.operands[0]) if ins.parts[0] == "try_wait" else []
    if (
        ins.ends
        or not ins.operands
        or ins.name in ("st", "red", "cp", "fence", "membar", "prefetch", "bar", "setmaxnreg")
    ):
        return []
    return written(ins.operands[0])


def _inputs(ins: Instruction) -> list[str]:
    """The registers that an instruction reads; what it writes under a guard is read, too."""
    outputs = _outputs(ins)
    collected = [] if ins.guard is None else [ins.guard.name, *outputs]

    def registers(operand: Operand) -> None:
        if isinstance(operand, Register):
            collected.append(operand.name)
        elif isinstance(operand, Tuple):
            for part in operand.parts:
                registers(part)
        elif isinstance(operand, Address) and isinstance(operand.base, Register):
            collected.append(operand.base.name)

    added = ins.name == "wgmma"  # its first operand is read and written
    for operand in ins.operands[1:] if outputs and not added else ins.operands:
        registers(operand)
    return collected


def _reads(instructions: Sequence[Instruction]) -> list[str]:
    """The registers that instructions take from before."""
    collected: dict[str, None] = {}
    known: set[str] = set()
    for ins in instructions:
        collected.update(dict.fromkeys(name for name in _inputs(ins) if name not in known))
        known.update(_outputs(ins))
    return list(collected)


def _compile_block(compiled: Compiled, number: int) -> CompiledBlock:
    instructions = compiled.kernel.blocks[number].instructions
    code = compiled.code
    end = instructions[-1] if instructions and instructions[-1].ends else None
    steps = [_step(ins, code) for ins in (instructions[:-1] if end else instructions)]
    outputs = {name for ins in instructions for name in _outputs(ins)}
    guard = code.source(end, end.guard, type_of("pred")) if end and end.guard else None
    if guard is not None and end is not None and end.negated:
        plain = guard
        guard = lambda group: ~plain(group)  # noqa: E731
    return CompiledBlock(
        _reads(instructions),
        sorted(outputs & compiled.live),
        steps,
        end,
        guard,
        ptx_threads.members(instructions[0], code) if instructions else None,
        instructions[0] if instructions else Instruction(0, "", "", (), ()),
    )


def _step(ins: Instruction, code: Code) -> Step:
    if ins.name not in STEPS:
        raise ins.fail("the instruction is not known")
    plain = STEPS[ins.name](ins, code)
    if ins.guard is None:
        return plain
    guard = code.source(ins, ins.guard, type_of("pred"))
    outputs = _outputs(ins)

    def guarded(group: Group) -> None:
        mask = group.spread(guard(group)) ^ ins.negated
        if mask.all():
            plain(group)
        elif mask.any():
            part = group.part(mask)
            plain(part)
            for name in outputs:
                whole = np.array(group.spread(group.values[name]))
                whole[mask] = part.values[name]
                group.values[name] = whole

    return guarded


# *** threads ***


class Machine:
    """The threads of some blocks of a launch."""

    def __init__(
        self,
        compiled: Compiled,
        memory: Memory,
        parameters: dict[str, bytes],
        sizes: Sequence[Sequence[int]],
        blocks: Any,
        dynamic: int,
    ) -> None:
        self.compiled, self.memory, self.parameters = compiled, memory, parameters
        self.grid, self.block, self.cluster = sizes
        self.block_numbers = blocks
        self.threads = int(np.prod(self.block))
        self.count = len(blocks) * self.threads
        self.all_threads = np.arange(self.count)
        self.block_of = self.all_threads // self.threads
        self.in_block = self.all_threads % self.threads
        self.warps_per_block = -(-self.threads // 32)
        self.warps = len(blocks) * self.warps_per_block
        self.warp_of = self.block_of * self.warps_per_block + self.in_block // 32
        self.shared_size = compiled.shared_bytes + dynamic
        self.dynamic = dynamic
        self.peers = self._peers()
        self.shared = Slabs("shared", len(blocks), self.shared_size)
        self.local = Slabs("local", self.count, compiled.local_bytes)
        self.copies = ptx_copies.Copies(self.count)
        self.barriers = ptx_copies.Barriers()
        self.registers: dict[int, int] = {}  # of four warps, where they moved some
        self.products = ptx_groups.Products(self.count)
        self.tensor = ptx_tensor.TensorMemory()
        self._specials: dict[str, Any] = {}
        self._registers: dict[str, Any] = {}
        self._lent: set[str] = set()
        self._waiting: list[tuple[Instruction, Any, int]] = []  # a barrier, threads at it, the block behind
        self._arrived: list[tuple[Instruction, Any]] = []  # threads that came and did not wait
        self._parked: dict[int, Any] = {}

    def _peers(self) -> Any:
        """For each block that runs, those of its cluster by their ranks; -1 for one that does not run."""
        number = {int(block): k for k, block in enumerate(self.block_numbers)}
        x, y, _ = self.grid
        collected = np.full((len(number), int(np.prod(self.cluster))), -1)
        for block, k in number.items():
            at = (block % x, block // x % y, block // x // y)
            first = [place - place % size for place, size in zip(at, self.cluster, strict=True)]
            for rank in range(collected.shape[1]):
                axes = (rank % self.cluster[0], rank // self.cluster[0] % self.cluster[1])
                more = (*axes, rank // self.cluster[0] // self.cluster[1])
                px, py, pz = (a + b for a, b in zip(first, more, strict=True))
                collected[k, rank] = number.get(px + x * (py + y * pz), -1)
        return collected

    def name_of(self, thread: int) -> str:
        """A thread in words."""
        names = [tuple(int(self.special(f"{what}.{axis}")[thread]) for axis in "xyz") for what in ("ctaid", "tid")]
        return f"block {names[0]}, thread {names[1]}"

    def thread_in_warp(self, warp: Any, lane: Any) -> Any:
        """The threads with these lanes, or -1."""
        place = warp % self.warps_per_block * 32 + lane
        return np.where(place < self.threads, warp // self.warps_per_block * self.threads + place, -1)

    def special(self, name: str) -> Any:
        """The values of a register that the hardware fills."""
        if name not in self._specials:
            self._specials[name] = self._special(name)
        return self._specials[name]

    def _special(self, name: str) -> Any:
        what, _, axis = name.partition(".")
        at = "xyz".index(axis) if axis in ("x", "y", "z") else 0
        sizes = {"ntid": self.block, "nctaid": self.grid, "cluster_nctaid": self.cluster}
        clusters = [blocks // one for blocks, one in zip(self.grid, self.cluster, strict=True)]
        sizes["nclusterid"] = clusters
        if what in sizes:
            return np.uint32(sizes[what][at])
        lane = self.in_block % 32
        masks = {"eq": lambda n: 1 << n, "lt": lambda n: (1 << n) - 1, "le": lambda n: (2 << n) - 1}
        masks |= {"gt": lambda n: -(2 << n), "ge": lambda n: -(1 << n)}
        if what.startswith("lanemask_"):
            return np.array([masks[what[-2:]](int(n)) & 0xFFFFFFFF for n in lane], np.uint32)
        block = [_coordinate(self.block_numbers, self.grid, k)[self.block_of] for k in range(3)]
        rank, size = np.zeros(self.count, np.int64), 1
        for k in range(3):
            rank, size = rank + block[k] % self.cluster[k] * size, size * self.cluster[k]
        result: dict[str, Callable[[], Any]] = {
            "tid": lambda: _coordinate(self.in_block, self.block, at),
            "ctaid": lambda: block[at],
            "clusterid": lambda: block[at] // self.cluster[at],
            "cluster_ctaid": lambda: block[at] % self.cluster[at],
            "cluster_ctarank": lambda: rank,
            "cluster_nctarank": lambda: np.uint32(size),
            "laneid": lambda: lane,
            "warpid": lambda: self.in_block // 32,
            "nwarpid": lambda: np.uint32(64),
            "smid": lambda: np.uint32(0),
            "nsmid": lambda: np.uint32(1),
            "gridid": lambda: np.uint64(1),
            "clock": lambda: np.uint32(0),
            "clock64": lambda: np.uint64(0),
            "globaltimer": lambda: np.uint64(0),
            "dynamic_smem_size": lambda: np.uint32(self.dynamic),
            "total_smem_size": lambda: np.uint32(self.shared_size),
            "is_explicit_cluster": lambda: np.bool_(size > 1),
        }
        if what not in result:
            raise PtxError(f"register %{name} is not known")
        value = result[what]()
        return value.astype(np.uint32) if np.ndim(value) else value

    # *** turns ***

    def run(self) -> None:
        """Runs all threads to their end."""
        groups: dict[int, Any] = {0: self.all_threads}
        with np.errstate(all="ignore"):
            for turn in range(TURNS):
                if not groups:
                    groups = self._released()
                    if not groups:
                        return
                elif self._waiting and turn % FAIRNESS == 0:  # those that run may wait in loops for those at barriers
                    for number, some in self._released(idle=False).items():
                        before = groups.get(number)
                        groups[number] = some if before is None else np.sort(np.concatenate([before, some]))
                others = sorted(groups) if turn % FAIRNESS == FAIRNESS - 1 else [min(groups)]
                number = others[-1 - turn // FAIRNESS % len(others)]
                threads = groups.pop(number)
                if number in self._parked:
                    threads = np.sort(np.concatenate([threads, self._parked.pop(number)]))
                for next_number, some in self._turn(number, threads):
                    if len(some):
                        before = groups.get(next_number)
                        groups[next_number] = some if before is None else np.sort(np.concatenate([before, some]))
        raise PtxError(
            f"{self.compiled.kernel.name} does not end: {self.name_of(int(threads[0]))} is at line {self._line(number)}"
        )

    def _line(self, number: int) -> int:
        return self.compiled.block(number).first.line

    def _turn(self, number: int, threads: Any) -> list[tuple[int, Any]]:
        """One block of instructions for some threads: where they go on."""
        if number >= len(self.compiled.blocks):
            return []
        block = self.compiled.block(number)
        group = self._group(block, threads)
        if block.members is not None:
            present = self._present(block, group)
            if not present.all():
                self._parked[number] = threads[~present]
                threads = threads[present]
                if not len(threads):
                    return []
                group = self._group(block, threads)
        for take in block.steps:
            take(group)
        for name in block.keeps:
            self._keep(name, group)
        return self._end(block, number, group, threads)

    def _group(self, block: CompiledBlock, threads: Any) -> Group:
        whole = len(threads) == self.count
        group = Group(self, None if whole else threads, len(threads))
        for name in block.reads:
            value = self._registers.get(name)
            if value is None:
                value = self.compiled.code.constant(0, self.compiled.code.width(name))
            group.values[name] = group.take(value)
        return group

    def _keep(self, name: str, group: Group) -> None:
        """Stores a register of a group for those that come later."""
        value = group.values[name]
        if group.threads is None:
            self._registers[name] = value
            self._lent.add(name)
            return
        whole = self._registers.get(name)
        if whole is None or np.ndim(whole) == 0:
            whole = np.full(self.count, 0 if whole is None else whole, value.dtype)
        elif name in self._lent:
            whole = np.array(whole)
        self._lent.discard(name)
        whole[group.threads] = value
        self._registers[name] = whole

    def _end(self, block: CompiledBlock, number: int, group: Group, threads: Any) -> list[tuple[int, Any]]:
        """Where the threads go after a block."""
        ins = block.end
        if ins is None:
            return [(number + 1, threads)] if number + 1 < len(self.compiled.blocks) else []
        stay = threads[:0]
        if block.guard is not None:
            taken = group.spread(block.guard(group))
            threads, stay = threads[taken], threads[~taken]
        goes: list[tuple[int, Any]] = [(number + 1, stay)]
        if not len(threads):
            return goes
        if ins.name == "bra":
            goes.append((self._label(ins, ins.operands[-1]), threads))
        elif ins.name in ("ret", "exit"):
            self.products.ended(ins, threads)
            self.tensor.ended(ins, self.block_of[threads[threads % self.threads == 0]])
        elif ins.name == "trap":
            raise Trapped(str(ins.fail(f"{self.name_of(int(threads[0]))} fails")))
        elif ins.name == "brx":
            raise ins.fail("branches by tables are not known")
        elif ins.barrier:
            for one, some in self._numbered(ins, group, threads):
                goes += self._barrier(one, some, number + 1)
        return goes

    def _numbered(self, ins: Instruction, group: Group, threads: Any) -> list[tuple[Instruction, Any]]:
        """A barrier whose number is in a register, as one with a constant for the threads that have each number."""
        if not ins.operands or not isinstance(ins.operands[0], Register):
            return [(ins, threads)]
        read = self.compiled.code.source(ins, ins.operands[0], type_of("u32"))
        every = np.zeros(self.count, np.int64)
        every[slice(None) if group.threads is None else group.threads] = group.spread(read(group))
        numbers, rest = every[threads], ins.operands[1:]
        return [(replace(ins, operands=(Immediate(int(n)), *rest)), threads[numbers == n]) for n in np.unique(numbers)]

    def _label(self, ins: Instruction, operand: Operand) -> int:
        if not isinstance(operand, Symbol) or operand.name not in self.compiled.kernel.labels:
            raise ins.fail(f"{operand} is not a label")
        return self.compiled.kernel.labels[operand.name]

    # *** threads that wait ***

    def _present(self, block: CompiledBlock, group: Group) -> Any:
        """Whether all lanes that the masks name have come, for each thread."""
        assert block.members is not None
        mask = group.spread(block.members(group))
        here = np.zeros(self.warps, np.uint32)
        lane = group.take(self.special("laneid"))
        np.bitwise_or.at(here, group.take(self.warp_of), np.uint32(1) << lane)
        if not ((mask >> lane) & np.uint32(1)).all():
            bad = int(np.argmin((mask >> lane) & np.uint32(1)))
            raise block.first.fail(
                f"{self.name_of(int(group.numbers[bad]))} is not in its own mask {int(mask[bad]):#x}"
            )
        present = (mask & ~here[group.take(self.warp_of)]) == 0
        if block.first.name in ("wgmma", "setmaxnreg"):  # four warps wait for each other
            each = -(-self.threads // 128)  # groups of a block, of which the last one may have fewer warps
            missing = np.ones(each * len(self.block_numbers), np.int64) * 128
            in_block = group.take(self.all_threads) % self.threads // 128
            fours = group.take(self.block_of) * each + in_block
            np.subtract.at(missing, fours, 1)
            present = present & (missing[fours] == 0)
        return present

    def _barrier(self, ins: Instruction, threads: Any, behind: int) -> list[tuple[int, Any]]:
        if "red" in ins.parts or (ins.name == "bar" and "cta" in ins.parts and "sync" not in ins.parts):
            raise ins.fail("this barrier is not known")
        if "arrive" in ins.parts:
            if "cluster" not in ins.parts:
                self._arrived.append((ins, threads))
            return [(behind, threads)]
        self._waiting.append((ins, threads, behind))
        return []

    def _released(self, idle: bool = True) -> dict[int, Any]:
        """The threads whose barriers are complete, by where they go on; an error if there are none and some wait, and
        all threads are idle."""
        groups: dict[int, Any] = {}
        left = []
        for ins, threads, behind in self._waiting:
            whole = self._complete(ins)[threads]
            if whole.any():
                before = groups.get(behind)
                some = threads[whole]
                groups[behind] = some if before is None else np.sort(np.concatenate([before, some]))
            if not whole.all():
                left.append((ins, threads[~whole], behind))
        if idle and not groups and (left or self._parked):
            raise self._hang(left)
        released = list(groups.values())
        gone = np.zeros(self.count, np.bool_)
        for threads in released:
            gone[self._scope_of(threads)] = True
        self._arrived = [(ins, threads[~gone[threads]]) for ins, threads in self._arrived]
        self._waiting = left
        return groups

    def _scope_of(self, threads: Any) -> Any:
        """All threads of the blocks of some."""
        blocks = np.zeros(len(self.block_numbers), np.bool_)
        blocks[self.block_of[threads]] = True
        return np.flatnonzero(blocks[self.block_of])

    def _complete(self, ins: Instruction) -> Any:
        """Of each thread, whether its block has come to the barrier of an instruction."""
        if "cluster" in ins.parts:
            came = np.zeros(self.count, np.bool_)
            for other, threads, _ in self._waiting:
                came[threads] |= "cluster" in other.parts
            size = int(np.prod(self.cluster)) * self.threads
            cluster = np.unique(
                np.stack([np.broadcast_to(self.special(f"clusterid.{axis}"), (self.count,)) for axis in "xyz"]),
                axis=1,
                return_inverse=True,
            )[1].reshape(-1)
            return (np.bincount(cluster[came], minlength=int(cluster.max()) + 1) == size)[cluster]
        came = np.zeros(len(self.block_numbers), np.int64)
        for other, threads in [*((i, t) for i, t, _ in self._waiting), *self._arrived]:
            if "cluster" not in other.parts and _barrier_number(other) == _barrier_number(ins):
                came += np.bincount(self.block_of[threads], minlength=len(came))
        return (came == _barrier_threads(ins, self.threads))[self.block_of]

    def _hang(self, left: list[tuple[Instruction, Any, int]]) -> PtxError:
        if left:
            ins, threads, _ = left[0]
            block = self.block_of[threads[0]]
            count = int((self.block_of[threads] == block).sum())
            return ins.fail(
                f"{count} of {self.threads} threads of the block wait here for ever, "
                f"{self.name_of(int(threads[0]))} among them: the others have ended or wait elsewhere"
            )
        number, threads = next(iter(self._parked.items()))
        block_code = self.compiled.block(number)
        return block_code.first.fail(
            f"{self.name_of(int(threads[0]))} waits for lanes of its mask that have ended or wait elsewhere"
        )


def _barrier_number(ins: Instruction) -> int:
    operand = ins.operands[0] if ins.operands else Immediate(0)
    if not isinstance(operand, Immediate):
        raise ins.fail("the number of a barrier is a constant")
    return operand.value


def _barrier_threads(ins: Instruction, all_threads: int) -> int:
    if len(ins.operands) < 2:
        return all_threads
    if not isinstance(ins.operands[1], Immediate):
        raise ins.fail("the number of threads of a barrier is a constant")
    return ins.operands[1].value


def _coordinate(number: Any, sizes: Sequence[int], axis: int) -> Any:
    """One coordinate of a number that counts x first."""
    return number // int(np.prod(sizes[:axis], dtype=np.int64)) % sizes[axis]
