"""Refuses kernels that may end while a copy into shared memory is under way.

    t = copy_async ...                 may be under way: t
    g = copy_commit                    g is a group, which has t
    if c:
      copy_wait g {pending=0}          none
                                       where c does not hold: g. The kernel ends: EK0622

A thread's copies are awaited in their order: `wait(pending=n)` leaves the n newest groups, whichever group it is called
on. So what is under way is a list of groups, of which each place holds all commits that may have made it. A group
without copies has a place, and need not be awaited.
"""

from __future__ import annotations

from dataclasses import field

from ...dsl.diagnostics.dataclass import dataclass
from ...dsl.diagnostics.errors import CompileError
from ...dsl.diagnostics.places import Label
from ..ir.copy_opcodes import COPY_ASYNC, COPY_BOX, COPY_COMMIT, COPY_ROWS, COPY_WAIT
from ..ir.matrix_opcodes import PRODUCT_BEGUN, PRODUCT_WAIT
from ..ir.opcodes import LAUNCH
from ..ir.program import Op, Program, ProgramFunction, Region, walk
from ..targets import Target

_WORDS = {
    COPY_ASYNC: (
        "this copy",
        "begun here",
        ".wait() on what gpu.copy_async gives, or gpu.commit() and .wait() on the group",
    ),
    COPY_COMMIT: ("this group of copies", "made here", ".wait() on it"),
    PRODUCT_BEGUN: ("this product", "begun here", ".wait() on what gpu.dot_async gives"),
}
Ops = frozenset[Op]
_NONE: Ops = frozenset()
_BEGIN = (COPY_ASYNC, COPY_BOX, COPY_ROWS)
_COPIES = (*_BEGIN, COPY_COMMIT, COPY_WAIT)
_PRODUCTS = (PRODUCT_BEGUN, PRODUCT_WAIT)


@dataclass(frozen=True)
class _UnderWay:
    """What may be under way: copies in no group, groups by their age, the newest first, and all older groups."""

    open: Ops = _NONE
    groups: tuple[Ops, ...] = ()
    older: Ops = _NONE

    def joined(self, other: _UnderWay) -> _UnderWay:
        """What may be under way after one of two ways."""
        count = max(len(self.groups), len(other.groups))
        a, b = ((*way.groups, *(_NONE,) * (count - len(way.groups))) for way in (self, other))
        groups = tuple(x | y for x, y in zip(a, b, strict=True))
        return _UnderWay(self.open | other.open, groups, self.older | other.older)

    def all(self) -> Ops:
        return self.open.union(self.older, *self.groups)


@dataclass
class _Kernel:
    """The walk through one kernel.

    Attributes:
        most: how many groups a wait of it leaves at most.
        products: whether groups are of products, one product each; otherwise they are of copies.
    """

    most: int
    products: bool = False
    waits: list[Op] = field(default_factory=list)

    def region(self, region: Region, state: _UnderWay) -> _UnderWay:
        for op in region.ops:
            state = self.op(op, state)
        return state

    def op(self, op: Op, state: _UnderWay) -> _UnderWay:
        if op.opcode in _PRODUCTS:
            return self.product(op, state) if self.products else state
        if self.products and op.opcode in _COPIES:
            return state
        if op.opcode in _BEGIN:
            return _UnderWay(state.open | {op}, state.groups, state.older)
        if op.opcode is COPY_COMMIT:
            groups = (frozenset({op}) if state.open else _NONE, *state.groups)
            return _UnderWay(_NONE, groups[: self.most], state.older.union(*groups[self.most :]))
        if op.opcode is COPY_WAIT:
            left = _NONE if op.attrs["what"] == "copy" else state.open
            return _UnderWay(left, state.groups[: op.attrs["pending"]])
        if op.opcode.loops:
            return self.loop(op, state)
        ways = [self.region(region, state) for region in op.regions]
        for way in ways[1:]:
            ways[0] = ways[0].joined(way)
        return ways[0] if ways else state

    def product(self, op: Op, state: _UnderWay) -> _UnderWay:
        if op.opcode is PRODUCT_WAIT:
            return _UnderWay(_NONE, state.groups[: op.attrs["pending"]])
        groups = (frozenset({op}), *state.groups)
        return _UnderWay(_NONE, groups[: self.most], state.older.union(*groups[self.most :]))

    def loop(self, op: Op, state: _UnderWay) -> _UnderWay:
        """A `for` runs its region any number of times; a `while` ends behind its first one."""
        first, *rest = op.regions
        while True:
            behind = self.region(first, state)
            after = behind
            for region in rest:
                after = self.region(region, after)
            wider = state.joined(after)
            if wider == state:
                return behind if rest else state
            state = wider


def tokens(program: Program, target: Target) -> None:
    """Checks every kernel that copies asynchronously."""
    for function in program.functions:
        for op in walk(function.body):
            if op.opcode is LAUNCH:
                _check(op, function)


def _check(launch: Op, function: ProgramFunction) -> None:
    for kinds in (_COPIES, _PRODUCTS):
        ops = [op for op in walk(launch.regions[0]) if op.opcode in kinds]
        if not ops:
            continue
        waits = [op for op in ops if op.opcode in (COPY_WAIT, PRODUCT_WAIT)]
        kernel = _Kernel(max([op.attrs["pending"] for op in waits], default=0), kinds is _PRODUCTS)
        left = kernel.region(launch.regions[0], _UnderWay()).all()
        for op in ops:
            if op in left:
                raise _unawaited(op, waits, launch, function)


def _unawaited(op: Op, waits: list[Op], launch: Op, function: ProgramFunction) -> CompileError:
    """The error for a copy or a group that may be under way when its kernel ends."""
    what, begun, wait = _WORDS[_BEGIN[0] if op.opcode in _BEGIN else op.opcode]
    here, *callers = op.location.author()
    lines = [(wait.location.place.line, wait) for wait in waits if wait.location.place.file == here.file]
    behind = [wait for line, wait in sorted(lines, key=lambda pair: pair[0]) if line >= here.line]
    labels = []
    if behind:
        last = behind[-1]
        pending = last.attrs["pending"]
        label = f"leaves {pending} under way" if pending else "not every way through the kernel comes here"
        labels.append(Label(last.location.place, label, primary=False))
        note = f"the last wait behind it is at {last.location.place}"
    else:
        note = f"the kernel that is launched at {launch.location.place} ends without a wait behind it"
    return CompileError(
        f"{what} may be under way when its kernel ends",
        code="EK0622",
        place=here,
        labels=(Label(here, begun), *labels),
        notes=[note, *(f"called from {place}" for place in callers)],
        op=function.op or None,
        hint=f"call {wait} on every way",
    )
