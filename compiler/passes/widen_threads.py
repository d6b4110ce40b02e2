"""Gives each thread of a `foreach` as many elements as 16 bytes hold, so that it reads and writes them at once.

    launch total / 256, 256 {elements}         launch total / 1024, 256
      i = block * 256 + thread                   if block * 1024 + 1024 <= total and aligned x, out:
      if i < total: out[i] = f(x[i])      =>       for k in [0, 4):  at = (block * 256 + thread) * 4 + k
                                                                     out[at] = f(x[at])         # written out
                                                 else:
                                                   for k in [0, 4):  at = block * 1024 + k * 256 + thread
                                                                     if at < total: out[at] = f(x[at])

The threads look at the addresses themselves: that costs a few operations on what is the same in all of them, and saves
a second kernel and a choice in host code. LLVM joins accesses side by side, that are known to be aligned.

Where so many elements are known to be there that the grid fills any GPU twice as often, a thread does that for two
groups, which are a block apart: it looks at the addresses once, and waits for both at the same time.

A position is taken apart once for all elements of a thread: where the last axis has a multiple of them, `i % n` is a
multiple too, and goes on by one, and `i // n` stays. Otherwise threads also process single elements.

A body may branch by a condition that is called `rare`. The thread first computes all of its elements without these
branches, and then tests once whether any of them needed one:

    y = f_without(x[at]), ...;  odd = condition(x[at]) or ...
    if odd: y = f(x[at]), ...
    out[at] = y, ...
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import field

from ...dsl.diagnostics.dataclass import dataclass
from ...dsl.types.dtype import BOOL, INT
from ..ir.builder import Builder
from ..ir.copying import Copier
from ..ir.native_opcodes import NATIVE_PURE
from ..ir.opcodes import ASSERT, CONST, GPU_ID, IF, LAUNCH, LOAD, NOTE, STORE, UDIV, UREM, YIELD
from ..ir.program import Op, PointerType, Program, ProgramFunction, Region, Value, captures, count_operations, walk
from ..ir.schedule import LoopHints
from ..targets import Target

BITS = 128  # of an access at most
MAX_OPERATIONS = 1024  # operations at most of all elements of a thread
MANY_BLOCKS = 2048  # blocks, from which on threads have two groups of elements
MIN_ELEMENTS = 16384  # elements that are not worth fewer threads


def widen_threads(program: Program, target: Target) -> None:
    """Widens every launch over elements that can be."""
    for function in program.functions:
        if any("elements" in op.attrs and op.opcode is LAUNCH for op in walk(function.body)):
            _visit(function, function.body)


def _visit(function: ProgramFunction, region: Region) -> None:
    ops, region.ops = region.ops, []
    builder = Builder(function.bounds)
    with builder.inside(region):
        for op in ops:
            if op.opcode is LAUNCH and op.attrs.pop("elements", False):
                result = _plan(op)
                if result is not None:
                    builder.location = op.location
                    _widen(builder, op, result)
            elif op.opcode is not LAUNCH:
                for inner in op.regions:
                    _visit(function, inner)
            region.ops.append(op)


@dataclass
class _Plan:
    """A launch over elements.

    Attributes:
        position, total: the number of a thread's element, and how many there are.
        body: what is done for one.
        width: how many a thread takes side by side.
        groups: how many of these it takes.
        pointers: what is read or written at the position, or at what is left of it by a divisor.
        divisors: of the position.
        same, own: what is done alike for all elements of a thread, and what is done for each.
    """

    position: Value
    total: Value
    body: Region
    width: int = 0
    groups: int = 1
    pointers: list[Value] = field(default_factory=list)
    divisors: list[Value] = field(default_factory=list)
    same: list[Op] = field(default_factory=list)
    own: list[Op] = field(default_factory=list)


def _plan(launch: Op) -> _Plan | None:
    """How a launch can be widened; None where it cannot."""
    test = launch.regions[0].ops[-2]
    compared = test.operands[0].maker if test.opcode is IF else None
    assert compared is not None and compared.name == "lt", "a launch over elements has another form"
    position, total = compared.operands
    plan = _Plan(position, total, test.regions[0])
    if plan.total.const is not None and plan.total.const < MIN_ELEMENTS:
        return None
    ops = plan.body.ops[:-1]
    if not all(
        op.opcode.lanewise or op.opcode in (ASSERT, LOAD, STORE, NOTE, NATIVE_PURE) or _is_rare(op) for op in ops
    ):
        return None
    outside = {value.serial for value in captures(launch.regions[0])}
    sizes, left = [], {plan.position.serial}
    for op in ops:
        if op.opcode in (UDIV, UREM) and op.operands[0] is plan.position:
            divisor = op.operands[1]
            if divisor.const is None and divisor.serial not in outside:
                return None
            if divisor.serial not in {d.serial for d in plan.divisors}:
                plan.divisors.append(divisor)
            if op.opcode is UREM:
                left.add(op.results[0].serial)
    for op in ops:
        if op.opcode in (LOAD, STORE) and (op.operands[-1].serial in left or _goes_along(op, left)):
            type = (op.results or op.operands)[0].simd
            if type.dtype.is_packed() or type.width > 1:
                return None
            pointer = op.operands[-2]
            if pointer.serial in outside and _is_global(pointer):
                sizes.append(max(type.dtype.bits, 8))
                plan.pointers += [pointer] if pointer not in plan.pointers else []
    plan.width = _width(sizes, plan.divisors, count_operations(plan.body))
    if plan.width == 1:
        return None
    _divide(plan, ops)
    return None if any(op.opcode is ASSERT for op in plan.own) else plan


def _is_rare(op: Op) -> bool:
    """Whether an operation is a branch for few elements that only computes."""
    if op.opcode is not IF or "rare" not in op.attrs:
        return False
    inner = (each for region in op.regions for each in region.ops)
    return all(each.opcode.lanewise or each.opcode in (CONST, NATIVE_PURE, YIELD) for each in inner)


def _goes_along(load: Op, left: set[int]) -> bool:
    """Whether an address is such a place and a multiple of 16 bytes more: a row of another tensor."""
    add = load.operands[-1].maker
    if load.opcode is not LOAD or add is None or add.name != "add" or not any(v.serial in left for v in add.operands):
        return False
    lanes = BITS // max(load.results[0].simd.dtype.bits, 8)
    others = [value for value in add.operands if value.serial not in left]
    return all(_is_multiple(value, lanes) for value in others) and len(others) == 1


def _is_multiple(value: Value, of: int) -> bool:
    """Whether a value is known to be a multiple of a number."""
    factors = value.maker.operands if value.maker is not None and value.maker.name == "mul" else [value]
    return any(factor.const is not None and factor.const % of == 0 for factor in factors)


def _is_global(pointer: Value) -> bool:
    return isinstance(pointer.type, PointerType) and pointer.type.space == "global"


def _width(sizes: list[int], divisors: list[Value], count: int) -> int:
    """How many elements of so many bits a thread takes."""
    width = BITS // max(sizes) if sizes else 1
    while width > 1 and (
        width * count > MAX_OPERATIONS or any(d.const is not None and d.const % width for d in divisors)
    ):
        width //= 2
    return width


def _widen(builder: Builder, launch: Op, plan: _Plan) -> None:
    """Makes the new body, and the grid in front of it."""
    size = launch.operands[3].const
    many = plan.total.const is not None and plan.total.const >= MANY_BLOCKS * size * plan.width
    plan.groups = 2 if many and 2 * plan.width * len(plan.own) <= MAX_OPERATIONS else 1
    each = size * plan.width * plan.groups
    blocks = builder.idiv(builder.iadd(plan.total, builder.int_(each - 1)), builder.int_(each))
    old = launch.regions[0]
    ids = {op.attrs["which"]: op.results[0] for op in old.ops if op.opcode is GPU_ID}
    region = Region([], [op for op in old.ops if op.opcode in (GPU_ID, CONST)])
    with builder.inside(region):
        block, thread = ids["block_idx.x"], ids["thread_idx.x"]
        first = builder.imul(block, builder.int_(each))
        condition = builder.compare("le", builder.iadd(first, builder.int_(each)), plan.total)
        alignments = [plan.width * max(pointer.dtype.bits, 8) // 8 for pointer in plan.pointers]
        for bytes in sorted(set(alignments)):
            pointers = [p for p, b in zip(plan.pointers, alignments, strict=True) if b == bytes]
            aligned = builder.one("aligned", pointers, BOOL, align=bytes)
            condition = builder.row("and_", [condition, aligned])
        for divisor in plan.divisors:
            if divisor.const is None:
                rest = builder.irem(divisor, builder.int_(plan.width))
                condition = builder.row("and_", [condition, builder.compare("eq", rest, builder.int_(0))])
        whole, single = Region(), Region()
        with builder.inside(whole):
            for pointer, bytes in zip(plan.pointers, alignments, strict=True):
                builder.add("assume_aligned", [pointer], align=bytes)
            vector = builder.iadd(builder.imul(block, builder.int_(size * plan.groups)), thread)
            vectors = [builder.iadd(vector, builder.int_(number * size)) for number in range(plan.groups)]
            if _may_leave_out(plan):
                _without_rare(builder, plan, vectors)
            else:
                for each_vector in vectors:
                    _whole(builder, plan, each_vector)
            builder.end()
        with builder.inside(single):
            _single(builder, plan, first, thread, size)
            builder.end()
        builder.add("if", [condition], regions=[whole, single])
        builder.end()
    launch.regions = [region]
    launch.operands[0] = blocks


def _whole(builder: Builder, plan: _Plan, vector: Value) -> None:
    """The elements of a thread, of which no other thread has any in between."""
    places = _Places(builder, plan, vector)
    rounds = builder.for_loop(builder.int_(0), builder.int_(plan.width))
    builder.region.ops[-1].attrs["hints"] = LoopHints(unrolled=True)
    with builder.inside(rounds):
        known = places.element(rounds.args[0])
        for op in plan.own:
            if not op.results or op.results[0].serial not in known:
                again(builder, op, known)
        builder.end()


class _Places:
    """The places of a thread's elements side by side, and what is done alike for all of them."""

    def __init__(self, builder: Builder, plan: _Plan, vector: Value) -> None:
        self.builder, self.plan = builder, plan
        width = builder.int_(plan.width)
        self.base = builder.imul(vector, width)
        self.parts: dict[int, tuple[Value, Value]] = {}
        for divisor in plan.divisors:
            groups = builder.idiv(divisor, width)
            within, before = builder.imul(builder.irem(vector, groups), width), builder.idiv(vector, groups)
            self.parts[divisor.serial] = within, before
        self.known: dict[int, Value] = {}
        for op in plan.same:
            if op.opcode is UDIV and op.operands[0] is plan.position:
                self.known[op.results[0].serial] = self.parts[op.operands[1].serial][1]
            else:
                again(builder, op, self.known)

    def element(self, k: Value) -> dict[int, Value]:
        """What is known of the element with this number: its position, and what is left of it by the divisors."""
        known = {**self.known, self.plan.position.serial: self.builder.iadd(self.base, k)}
        for op in self.plan.own:
            if op.opcode is UREM and op.operands[0] is self.plan.position:
                known[op.results[0].serial] = self.builder.iadd(self.parts[op.operands[1].serial][0], k)
        return known


def _may_leave_out(plan: _Plan) -> bool:
    """Whether there are rare branches, and elements may be computed before any is stored."""
    stores = [op for op in plan.own if op.opcode is STORE]
    written = {op.operands[-2].serial for op in stores}
    loads = [op for op in plan.own if op.opcode is LOAD and op.operands[-2].serial in written]
    apart = all(op.operands[-1] is plan.position for op in loads)
    first = next((n for n, op in enumerate(plan.own) if op.opcode is STORE), 0)
    in_front = all(op.opcode is not LOAD for op in plan.own[first:])
    return any(op.opcode is IF for op in plan.own) and bool(stores) and apart and in_front


def _without_rare(builder: Builder, plan: _Plan, vectors: Sequence[Value]) -> None:
    """The elements without their rare branches, or all of them with these where one needs its branch."""
    places = [_Places(builder, plan, vector) for vector in vectors]
    elements = [(each, builder.int_(k)) for each in places for k in range(plan.width)]
    odd = builder.const(False, BOOL)
    mostly, stores = [], []
    for place, k in elements:
        known = place.element(k)
        for op in plan.own:
            if op.opcode is STORE:
                stores.append((op, dict(known)))
                mostly.append(known.get(op.operands[0].serial, op.operands[0]))
            elif op.opcode is IF:
                condition = known.get(op.operands[0].serial, op.operands[0])
                odd = condition if odd.const is False else builder.row("or_", [odd, condition])
                _other(builder, op, known)
            elif not op.results or op.results[0].serial not in known:
                again(builder, op, known)
    rarely, otherwise = Region(), Region()
    with builder.inside(rarely):
        results = []
        for place, k in elements:
            known = place.element(k)
            for op in plan.own:
                if op.opcode is STORE:
                    results.append(known.get(op.operands[0].serial, op.operands[0]))
                elif op.opcode is not NOTE and op.results[0].serial not in known:
                    again(builder, op, known)
        builder.end(results)
    with builder.inside(otherwise):
        builder.end(mostly)
    chosen = builder.add("if", [odd], [value.type for value in mostly], regions=[rarely, otherwise])
    for (op, known), value in zip(stores, chosen, strict=True):
        again(builder, op, {**known, op.operands[0].serial: value})


def _other(builder: Builder, branch: Op, known: dict[int, Value]) -> None:
    """What a branch gives where its condition does not hold."""
    *ops, end = branch.regions[1].ops
    for op in ops:
        again(builder, op, known)
    for result, value in zip(branch.results, end.operands, strict=True):
        known[result.serial] = known.get(value.serial, value)


def _divide(plan: _Plan, ops: Sequence[Op]) -> None:
    """Divides what is done: the elements of a thread have the same quotients."""
    stored = {op.operands[-2].serial for op in ops if op.opcode is STORE}
    varying = {plan.position.serial}
    for op in ops:
        used = [*op.operands, *(value for region in op.regions for value in captures(region))]
        alike = not any(value.serial in varying for value in used) and op.opcode not in (STORE, NOTE)
        is_quotient = op.opcode is UDIV and op.operands[0] is plan.position
        if is_quotient or (alike and not (op.opcode is LOAD and op.operands[-2].serial in stored)):
            plan.same.append(op)
        else:
            plan.own.append(op)
            varying |= {value.serial for value in op.results}


def again(builder: Builder, op: Op, known: dict[int, Value]) -> None:
    """An operation once more."""
    builder.location = op.location
    if op.regions:
        copier = Copier()
        copier.values = known
        copier.copy(op, builder.region)
        return
    operands = [known.get(value.serial, value) for value in op.operands]
    results = builder.add(op.name, operands, [value.type for value in op.results], **op.attrs)
    for old, new in zip(op.results, results, strict=True):
        new.const = old.const
        known[old.serial] = new


def _single(builder: Builder, plan: _Plan, first: Value, thread: Value, size: int) -> None:
    """The elements one by one, so that neighbours are those of neighbouring threads."""
    rounds = builder.for_loop(builder.int_(0), builder.int_(plan.width * plan.groups))
    builder.region.ops[-1].attrs["hints"] = LoopHints(rolled=True)
    with builder.inside(rounds):
        start = builder.iadd(first, builder.imul(rounds.args[0], builder.int_(size)))
        at = builder.one("add", [start, thread], INT, nsw=True).maker
        assert at is not None
        at.results = [plan.position]
        plan.position.maker = at
        nothing = Region()
        with builder.inside(nothing):
            builder.end()
        inside = builder.compare("lt", plan.position, plan.total)
        builder.add("if", [inside], regions=[plan.body, nothing])
        builder.end()
