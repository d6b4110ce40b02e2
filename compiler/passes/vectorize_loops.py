"""Cuts loops over elements into vectors: several at a time, and under a mask what is left over.

LLVM makes vectors of a loop, and what is less than a round of them is left to a loop over single elements: up to 63
times the work of one `exp`. So a loop that makes neighbours of neighbours becomes two, of which LLVM makes vectors:

    for i in range(low, high):          whole = (high - low) // elements * elements
        out[i] = f(x[i])         =>     for i in range(low, low + whole):  out[i] = f(x[i])      # without a remainder
                                        for i in range(low + whole, high): out[i] = f(x[i])      # under a mask

That is done for AVX-512. AVX2 writes parts of vectors so slowly that LLVM's way is faster (by 2 % over rows of all
lengths, by up to 30 % on short ones), and has none of small elements.

A long function of one element (an `exp`, a `tan`) is a chain of operations that wait for each other. A CPU looks only
so far ahead, and finds too little to do in one chain; LLVM takes several vectors at a time in short loops only. So long
loops over elements take several where registers allow it.

A loop may carry whether a rare case occurred (see `inference.language.rare_cases`). LLVM would fill a vector with such
bools and take several of the numbers for it, so its vector length is set explicitly.

Short rows of a known length are written out by LLVM, and the loop around them becomes vectors: of an element of each
row. Rows of at most 8 elements are read as a whole and sorted into lanes. Of longer ones every lane is gathered by
itself, so that such rounds stay apart: there is enough to make vectors of in a row.
"""

from __future__ import annotations

from ...dsl.types.dtype import DType
from ..ir.opcodes import CAST, CONST, FOR, LOAD, PARALLEL, SPLAT, STORE, YIELD
from ..ir.operations import ROWS
from ..ir.program import Op, PointerType, Program, Region, walk
from ..ir.schedule import Cut, LoopHints
from ..targets import Target

MIN_INTERLEAVED = 16  # operations on an element; shorter loops take as many vectors at a time as LLVM would choose,
INTERLEAVED_VECTORS = 4  # which is so many
HALF = 8  # operations that convert a bfloat16
WRITTEN_OUT = 256  # operations at most of a loop that LLVM may write out round by round
MAX_STRIDE = 8  # elements from one round to the next that LLVM sorts into lanes; of what is farther it gathers each
REGISTERS = 32  # of 512 bits; CPUs with shorter vectors have half as many, which one chain fills


def vectorize_loops(program: Program, target: Target) -> None:
    """Says of each loop how LLVM makes vectors of it. Comes after `stream_loops`, which chooses how long they are."""
    for function in program.functions:
        _visit(function.body, target, target.vector_bits)


def _visit(region: Region, target: Target, vector_bits: int) -> None:
    for op in region.ops:
        if op.opcode is FOR and "hints" not in op.attrs:
            _plan(op, target, vector_bits)
        bits = op.attrs.get("vector_bits", target.vector_bits) if op.opcode is PARALLEL else vector_bits
        for inner in op.regions:
            _visit(inner, target, bits)


def _plan(loop: Op, target: Target, vector_bits: int) -> None:
    cut = cut_of(loop, target, vector_bits)
    if cut is not None:
        loop.attrs["cut"] = cut
        return
    vectors = lanes = 0
    if "elements" in loop.attrs:
        vectors = interleave_count(loop.regions[0], target)
        lanes = _vector_length(loop, target) if loop.results else 0
    rolled, apart = target.vectorizes and stays_rolled(loop), target.vectorizes and stays_apart(loop)
    if vectors or lanes or rolled or apart:
        loop.attrs["hints"] = LoopHints(rolled=rolled, apart=apart, lanes=lanes, vectors=vectors)


def cut_of(loop: Op, target: Target, vector_bits: int) -> Cut | None:
    """How a loop is cut where vectors have so many bits; None where it is not."""
    low, high, step, *carried = loop.operands
    region = loop.regions[0]
    if target.vector_bits < 512 or step.const != 1:
        return None
    if carried and "elements" not in loop.attrs:
        return None
    if not all(_is_plain(op) for op in walk(region)) or not _neighbours(region):
        return None
    accesses = [op for op in region.ops if op.opcode in (LOAD, STORE)]
    sizes = [_bits(op) for op in accesses]
    if not all(sizes) or all(op.opcode is LOAD or op.operands[0].maker in accesses for op in accesses):
        return None  # elements that share bytes; a copy, for which there is a function
    lanes, registers = vector_bits // min(sizes), max(sizes) // min(sizes)
    work = sum(_work(op) for op in region.ops)
    if low.const is not None and high.const is not None and (high.const - low.const) % lanes <= lanes // 2:
        return None  # LLVM writes out what has a known number of rounds
    vectors = (
        max(INTERLEAVED_VECTORS // registers, 1) if work < MIN_INTERLEAVED else max(interleave_count(region, target), 1)
    )
    hinted = lanes if carried else 0
    return Cut(
        lanes * vectors, LoopHints(vectors=vectors, lanes=hinted), LoopHints(vectors=1, lanes=hinted, masked=True)
    )


def _is_plain(op: Op) -> bool:
    """Whether LLVM makes one operation on vectors of an operation on elements, or a few."""
    return (op.opcode.lanewise and not op.opcode.divides) or op.opcode in (LOAD, STORE, YIELD)


def _work(op: Op) -> int:
    """How many operations an operation becomes, nearly."""
    if op.opcode is CAST:
        dtypes = (op.operands[0].dtype, op.results[0].dtype)
        return (
            MIN_INTERLEAVED if any(dtype.is_storage() for dtype in dtypes) else HALF if DType.bfloat16 in dtypes else 1
        )
    return op.opcode.row is not None


def interleave_count(region: Region, target: Target) -> int:
    """How many vectors a long loop takes at a time: 4 or 2, or 0 where LLVM decides."""
    inside = [op.name for op in walk(region)]
    if target.vector_bits < 512 or sum(name in ROWS for name in inside) < MIN_INTERLEAVED:
        return 0
    if not {"for", "while"}.isdisjoint(inside):
        return 0
    return 4 if 4 * (_most_alive(region) + 1) <= REGISTERS else 2


def stays_rolled(loop: Op) -> bool:
    """Whether LLVM would write out a short loop whose rounds are long, and make less of it than of a loop."""
    low, high, step = loop.operands[:3]
    if low.const is None or high.const is None or step.const != 1:
        return False
    rounds: int = high.const - low.const
    return rounds * sum(1 for _ in walk(loop.regions[0])) > WRITTEN_OUT


def stays_apart(loop: Op) -> bool:
    """Whether the loops in a loop reach what is far away in its next round, and no neighbours: it would be gathered."""
    steps = {loop.regions[0].args[0].serial: 1}
    outside = {id(op) for op in loop.regions[0].ops}
    reached = set()
    for op in walk(loop.regions[0]):
        opcode = op.opcode
        if opcode is LOAD or opcode is STORE:
            if id(op) not in outside:
                step = abs(steps.get(op.operands[-1].serial, 0))
                if step == 1:
                    return False
                reached.add(step)
        elif opcode.name in ("add", "sub", "mul"):
            one, two = (steps.get(value.serial, 0) for value in op.operands)
            if opcode.name != "mul":
                steps[op.results[0].serial] = one + two if opcode.name == "add" else one - two
            elif one or two:
                number = op.operands[0 if two else 1].const
                steps[op.results[0].serial] = (one + two) * number if isinstance(number, int) else 0
    return max(reached, default=0) > MAX_STRIDE


def _vector_length(loop: Op, target: Target) -> int:
    """How long the vectors are of a loop that carries a bool, and is not cut."""
    bits = [value.dtype.bits for op in loop.regions[0].ops for value in op.results if value.dtype.is_float()]
    return target.vector_bits // max(bits) if bits else 0


def _most_alive(region: Region) -> int:
    """How many floats at most are still to be used, between two operations."""
    last = {value.serial: number for number, op in enumerate(region.ops) for value in op.operands}
    alive: set[int] = set()
    most = 0
    for number, op in enumerate(region.ops):
        alive = {serial for serial in alive if last[serial] > number}
        if op.opcode not in (CONST, SPLAT) and op.name != "neg":
            alive |= {v.serial for v in op.results if v.dtype.is_float() and last.get(v.serial, -1) > number}
        most = max(most, len(alive))
    return most


def _bits(access: Op) -> int:
    """The size in memory of what a load or a store goes to; 0 where elements share bytes."""
    dtype = (access.results or access.operands)[0].dtype
    return 0 if dtype.is_packed() else 8 * dtype.size_in_bytes


def _neighbours(region: Region) -> bool:
    """Whether every round writes the next elements, and reads the next ones or the same again."""
    steps: dict[int, int | None] = {region.args[0].serial: 1}  # by how much values grow each round; None: unknown
    for op in region.ops:
        by = [steps.get(value.serial, 0) for value in op.operands]
        if op.opcode in (LOAD, STORE):
            pointer = op.operands[-2].type
            if by[-1] not in ((1,) if op.opcode is STORE else (0, 1)) or not isinstance(pointer, PointerType):
                return False
            if not pointer.is_whole:  # it may point into what another one points into
                return False
        grows = None
        if not any(by) and None not in by:
            grows = 0
        elif op.name in ("add", "sub") and None not in by:
            first, second = by
            assert first is not None and second is not None
            grows = first + second if op.name == "add" else first - second
        steps.update((result.serial, grows) for result in op.results)
    return True
