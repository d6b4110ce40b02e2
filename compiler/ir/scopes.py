"""Finds within which scope each value of a launch is equal, and under which conditions each operation stands.

    i = gpu_id {which=thread_idx.x}       none
    w = udiv i, 32                        warp
    b = gpu_id {which=block_idx.x}        block
    n = load %b1, 0                       grid, if no thread of the launch writes there; else none
    if w { ... }                          what is in it runs for whole warps, but not for whole blocks

A value is equal in a scope when all its threads that compute it get the same. What an `if` yields depends on its
condition, too; what a loop carries out on how many rounds each thread makes. Loops and private storage are gone through
until nothing changes. A role is a block of its own: that its warps are some of the block parts no threads in it.

See also `passes.uniformity`.
"""

from __future__ import annotations

import math
from collections.abc import Iterable

from ...dsl.diagnostics.dataclass import dataclass
from ...dsl.types.dtype import INT
from .lanes import Lanes, LinearForm
from .native_opcodes import POINTER_CAST
from .opcodes import FOR, GPU_ID, IF, OFFSET, PEER, SELECT, UDIV, UNIFORM, WHILE
from .operations import ROWS
from .program import Op, PointerType, Region, Scope, Value, walk

_COMPARISONS = frozenset(row.name for row in ROWS.values() if row.negated)


@dataclass(frozen=True)
class Control:
    """A condition that decides whether an operation runs, or how often; and those around it.

    Attributes:
        op: the branch or loop.
        cause: the value that decides.
        scope: where all conditions so far are equal.
    """

    op: Op | None = None
    cause: Value | None = None
    scope: Scope = Scope.grid
    outer: Control | None = None


class Scopes:
    """What is known of one launch whose warps have so many threads."""

    def __init__(self, launch: Op, warp: int) -> None:
        x, y, z = (value.const for value in launch.operands[3:6])
        self.lanes = Lanes((x, y, z), warp)
        self.clustered = launch.attrs.get("cluster", (1, 1, 1)) != (1, 1, 1)
        self.equal: dict[int, Scope] = {}  # by serial; in the whole grid where nothing is said
        self.blame: dict[int, Value | Op] = {}  # by serial: the operand that is to blame, or the operation itself
        self.forms: dict[int, LinearForm] = {}
        self.waiting: list[tuple[Op, Control]] = []  # what threads have to come to together
        self.written, self.anywhere = _written(launch.regions[0])
        self.changed = True
        while self.changed:
            self.changed = False
            self.waiting.clear()
            self._region(launch.regions[0], Control())

    def of(self, value: Value) -> Scope:
        """The widest scope within which a value is equal."""
        return self.equal.get(value.serial, Scope.grid)

    def source(self, value: Value) -> tuple[list[Value], Op | None]:
        """The values from one that differs to where the difference comes from, and the operation that makes it."""
        chain = [value]
        while isinstance(entry := self.blame.get(chain[-1].serial), Value):
            chain.append(entry)
        return chain, entry

    def _least(self, values: Iterable[Value]) -> tuple[Scope, Value | None]:
        """The narrowest scope of several values, and whose it is."""
        worst = min(values, key=self.of, default=None)
        return (Scope.grid, None) if worst is None else (self.of(worst), worst)

    def _set(self, value: Value, scope: Scope, blame: Value | Op | None) -> None:
        """Narrows the scope of a value."""
        scope = self._widened(scope)
        if scope < self.of(value):
            assert blame is not None
            self.equal[value.serial] = scope
            self.blame[value.serial] = blame
            self.changed = True

    def _widened(self, scope: Scope) -> Scope:
        """A scope, or a wider one that has no more threads."""
        scope = self.lanes.widened(scope)
        return Scope.cluster if scope is Scope.block and not self.clustered else scope

    # operations

    def _region(self, region: Region, control: Control) -> None:
        for op in region.ops:
            if op.opcode is IF:
                self._if(op, control)
            elif op.opcode is FOR:
                self._for(op, control)
            elif op.opcode is WHILE:
                self._while(op, control)
            elif not op.opcode.ends:
                self._plain(op, control)

    def _plain(self, op: Op, control: Control) -> None:
        if op.convergent:
            self.waiting.append((op, control))
        if op.opcode.writes:
            self._write(op, control)
        scope, worst = self._least(op.operands)
        blame: Value | Op | None = worst
        if op.opcode is UNIFORM:
            scope = max(scope, op.uniform)
        elif op.opcode.waits:
            scope, blame = op.uniform, None
        elif op.opcode is GPU_ID:
            scope = self._index(op)
        elif op.opcode.allocates:
            scope = Scope.grid
        elif op.opcode.reads and op.uniform:
            scope, blame = self._read(op, scope, worst)
        else:
            if op.uniform < scope:
                scope, blame = op.uniform, None
            self._form(op)
            scope = max(scope, self._of_form(op))
        for result in op.results:
            self._set(result, scope, op if blame is None else blame)

    def _if(self, op: Op, control: Control) -> None:
        condition = op.operands[0]
        inner = control if "role" in op.attrs else self._within(control, op, condition)
        for region in op.regions:
            self._region(region, inner)
        for result, then, otherwise in zip(op.results, *(r.ops[-1].operands for r in op.regions), strict=True):
            if then is not otherwise:
                self._set(result, *self._least((then, otherwise, condition)))

    def _for(self, op: Op, control: Control) -> None:
        low, high, step, *start = op.operands
        region = op.regions[0]
        index, *carried = region.args
        _, decides = self._least((low, high, step))
        assert decides is not None
        forms = [self.form(value) for value in (low, high, step)]
        same = None not in forms and self.lanes.same_rounds(*forms)  # type: ignore[arg-type]
        inner = control if same else self._within(control, op, decides)
        self._set(index, *self._least((low, step)))
        if forms[0] is not None and forms[2] is not None and self.of(index) >= Scope.warp:
            steps = math.gcd(forms[0].divisor, forms[2].divisor)
            self.forms[index.serial] = LinearForm(multiple=steps, scope=self.of(index))
        for argument, value in zip(carried, start, strict=True):
            self._set(argument, *self._least((value,)))
        self._region(region, inner)
        for argument, result, value in zip(carried, op.results, region.ops[-1].operands, strict=True):
            self._set(argument, *self._least((value,)))
            self._set(result, *self._least((argument, *([] if same else [decides]))))

    def _while(self, op: Op, control: Control) -> None:
        before, after = op.regions
        condition, *leaving = before.ops[-1].operands
        inner = self._within(control, op, condition)
        for argument, value in zip(before.args, op.operands, strict=True):
            self._set(argument, *self._least((value,)))
        self._region(before, inner)
        for argument, result, value in zip(after.args, op.results, leaving, strict=True):
            self._set(argument, *self._least((value,)))
            self._set(result, *self._least((value, condition)))
        self._region(after, inner)
        for argument, value in zip(before.args, after.ops[-1].operands, strict=True):
            self._set(argument, *self._least((value,)))

    def _within(self, control: Control, op: Op, condition: Value) -> Control:
        scope = self.of(condition)
        return Control(op, condition, scope, control) if scope < control.scope else control

    def _index(self, op: Op) -> Scope:
        """The scope of an index of the thread; those of a warp are in order, so that some are equal in it."""
        what, _, axis = op.attrs["which"].partition(".")
        if what != "thread_idx":
            return op.uniform
        number = "xyz".index(axis)
        self.forms[op.results[0].serial] = LinearForm(axes=tuple(int(k == number) for k in range(3)))  # type: ignore[arg-type]
        return self.lanes.of_axis(number)

    # numbers that follow the threads

    def form(self, value: Value) -> LinearForm | None:
        """How a number depends on the threads; None where that is unknown."""
        if value.type != INT:
            return None
        if value.const is not None:
            return LinearForm(constant=int(value.const))
        entry = self.forms.get(value.serial)
        if entry is None or (not any(entry.axes) and self.of(value) < entry.scope):
            scope = self.of(value)
            return LinearForm(multiple=1, scope=scope) if scope >= Scope.warp else None
        return entry

    def _form(self, op: Op) -> None:
        """Notes the form of a sum, a difference or a product."""
        if op.name not in ("add", "sub", "mul") or op.results[0].type != INT:
            return
        a, b = (self.form(value) for value in op.operands)
        form = None
        if a is not None and b is not None:
            form = a.times(b) if op.name == "mul" else a.plus(b, 1 if op.name == "add" else -1)
        self.forms.pop(op.results[0].serial, None)
        if form is not None:
            self.forms[op.results[0].serial] = form

    def _of_form(self, op: Op) -> Scope:
        """The scope in which a quotient or a comparison is equal because of what warps are; none if it is not."""
        if len(op.operands) != 2 or op.operands[0].type != INT:
            return Scope.none
        a, b = (self.form(value) for value in op.operands)
        if a is None or b is None:
            return Scope.none
        if op.name in _COMPARISONS:
            return self.lanes.compared(op.name, a, b)
        if op.opcode is UDIV or op.name in ("floordiv", "shr"):
            divisor = op.operands[1].const
            if isinstance(divisor, int) and divisor >= 0:
                return self.lanes.quotient(a, 1 << divisor if op.name == "shr" and divisor < 63 else divisor)
        return Scope.none

    # memory

    def _read(self, op: Op, scope: Scope, blame: Value | None) -> tuple[Scope, Value | Op | None]:
        """The scope of what is read: that of the address, and less where threads write."""
        for root in _pointed(op):
            if root is not None and _is_private(root):
                own = self.of(root)
                scope, blame = min((scope, blame), (own, root), key=lambda pair: pair[0])
            elif self.anywhere or (root is None and self.written) or (root is not None and root.serial in self.written):
                return Scope.none, op
        return scope, blame

    def _write(self, op: Op, control: Control) -> None:
        """What is stored into a thread's own storage is what is read from it; the scope of a pointer says which."""
        scope, blame = self._least(op.operands)  # a pointer's scope is that of what is read through it
        if control.scope < scope:
            scope, blame = control.scope, control.cause
        for root in _pointed(op):
            if root is not None and _is_private(root):
                self._set(root, min(scope, op.uniform), op if blame is None else blame)


def _written(region: Region) -> tuple[set[int], bool]:
    """The buffers that a launch writes, by the serials of their pointers; and whether it may write any other."""
    written: set[int] = set()
    anywhere = False
    for op in walk(region):
        if op.opcode.writes:
            roots = list(_pointed(op))
            written.update(root.serial for root in roots if root is not None)
            anywhere |= None in roots
    return written, anywhere


def _pointed(op: Op) -> Iterable[Value | None]:
    """The buffers and storage that an operation's pointers point into; None where that is unknown."""
    for value in op.operands:
        if isinstance(value.type, PointerType):
            yield from _roots(value)


def _roots(pointer: Value) -> Iterable[Value | None]:
    maker = pointer.maker
    if maker is None:
        yield pointer if isinstance(pointer.type, PointerType) and pointer.type.is_whole else None
    elif maker.opcode in (OFFSET, POINTER_CAST):
        yield from _roots(maker.operands[0])
    elif maker.opcode is PEER:
        yield None  # another block's memory, which may be this one's
    elif maker.opcode is SELECT:
        for value in maker.operands[1:]:
            yield from _roots(value)
    else:
        yield None if maker.regions else pointer


def _is_private(root: Value) -> bool:
    """Whether storage is one thread's own."""
    return isinstance(root.type, PointerType) and root.type.space == "stack"
