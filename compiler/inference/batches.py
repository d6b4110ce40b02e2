"""Finds out whether a kernel computes the members of a batch independently: each row of "*b n" from its own row alone.

The kernel is evaluated for one member, whose index along the axes of the batch is a value of its own for each axis. A
loop over a batch (`foreach`, `rowwise`, …) is evaluated once, for that member. The members are independent if

- tensors with the batch are read and written at the member's index only,
- nothing is computed with that index, nor with the sizes of the batch,
- whatever else a member writes lies in storage of its own.

The library's functions over rows are known to compute rows independently: what they make of a row is an opaque value
here, and the functions that they are given are evaluated with it.

See also `graph.interop.elementwise` (which calls are split).
"""

from __future__ import annotations

import hashlib
import itertools
from collections.abc import Callable, Iterator, Sequence
from contextlib import contextmanager
from typing import Any

from ...dsl.contract.checks import parse_checks
from ...dsl.contract.unit import NodeSpec, Size, Slot
from ...dsl.diagnostics.dataclass import dataclass
from ...dsl.diagnostics.errors import CompileError, InternalError
from ...dsl.diagnostics.places import is_shipped
from ...dsl.types.dtype import INT, DType, SIMDType
from ..ir.builder import Builder
from ..ir.program import Op, PointerType, Region, Value, walk
from ..targets import Target
from . import dispatch
from .calls.folding import UNKNOWN
from .evaluator import Point, callable_
from .kernels import GroupEvaluator
from .recovery import Cascade
from .values.aggregates import replaced
from .values.compile_time import Closure
from .values.flow import Abandoned
from .values.index import BodyIndex, NeedComponents, NeedPairs, ravel, value_key
from .values.tensors import KernelTensor, NotElementwise


class Mixed(Exception):
    """Members may depend on each other; the text says why."""


@dataclass(frozen=True)
class BatchFacts:
    """Whether the members of a batch are computed independently.

    Attributes:
        trouble: why they may depend on each other; "" where they do not.
        member: a digest of what is computed for one member: equal for batches of other ranks where it is the same.
    """

    trouble: str
    member: str = ""


def batch_facts(
    node: NodeSpec,
    shapes: tuple[tuple[DType, tuple[Size, ...]], ...],
    target: Target,
    counts: tuple[tuple[int, ...], tuple[int, ...]],
) -> BatchFacts:
    """What is known of a batch of which the inputs and the outputs begin with so many axes; 0 for none."""
    prober = _BatchProber(node, shapes, target, counts)
    region = Region()
    try:
        with prober.evaluator.builder.inside(region):
            prober.run(0, prober.results())
        if prober.evaluator.errors:
            return BatchFacts("its elements cannot be computed for one member")
        return BatchFacts("", prober.batch.checked(region))
    except Mixed as error:
        return BatchFacts(str(error))
    except (Cascade, Abandoned, CompileError, InternalError, NotElementwise, NeedComponents, NeedPairs):
        return BatchFacts("its elements cannot be computed for one member")


class Batch:
    """The member that is evaluated, as loops and functions over rows see it (`Evaluator.batch`).

    Attributes:
        dims, index: the sizes of the batch, and the member's index in it.
        trusted: whether a function of the library runs that computes rows independently.
    """

    def __init__(self, builder: Builder, dims: tuple[Value, ...]) -> None:
        self.dims = dims
        self.index = tuple(builder.counter(Value(INT), None, dim) for dim in dims)
        self.keys = [value_key(part) for part in self.index]
        self.trusted = False
        self.inside = False
        self.written: list[Value] = []  # pointers to tensors that are written at the member's index
        self.members: list[Region] = []  # what is computed for the member
        self.functions: list[str] = []  # of the library that were left out

    # *** loops ***

    def each(self, call: Point, outputs: Sequence[Any], element: Callable[[BodyIndex], Any]) -> bool:
        """Evaluates a loop over the elements of tensors for the member; whether it is a loop over the batch."""
        if not self._begins(outputs[0]):
            return False
        dims = outputs[0].dims
        with self._member(call):
            element(BodyIndex(dims, components=(*self.index, *self._own(call, dims[len(self.dims) :]))))
        return True

    def call(self, call: Point, closure: Closure, args: list[Any], keywords: dict[str, Any]) -> Any:
        """What a function of the library over rows gives; `UNKNOWN` for any other."""
        work = _OVER_ROWS.get(closure.name)
        if work is None or self.inside or self.trusted or not is_shipped(closure.frame.file):
            return UNKNOWN
        given = dict(zip((p.name for p in closure.function.params), args, strict=False)) | keywords
        return work(self, call, closure, given)

    def _begins(self, tensor: object) -> bool:
        return isinstance(tensor, _Member) and not self.inside and not self.trusted

    @contextmanager
    def _member(self, call: Point) -> Iterator[None]:
        region = Region()
        self.inside = True
        try:
            with call.evaluator.scope(level="parallel"), call.builder.inside(region):
                yield
        finally:
            self.inside = False
        self.members.append(region)

    def _own(self, call: Point, dims: Sequence[Value]) -> tuple[Value, ...]:
        """An index along the axes of a member."""
        return tuple(call.builder.counter(Value(INT), None, dim) for dim in dims)

    # *** functions of the library ***

    def _whole_rows(self, closure: Closure, tensors: Sequence[Any], axis: Any) -> bool:
        """Whether all tensors have the batch, and rows lie along an axis of a member."""
        if not all(self._begins(tensor) for tensor in tensors) or type(axis) is not int:
            return False
        if len(ranks := {tensor.rank for tensor in tensors}) != 1:
            return False
        (rank,) = ranks
        self.functions.append(f"{closure.name} {axis % rank - rank}")
        return bool(axis % rank >= len(self.dims))

    def _rowwise(self, call: Point, closure: Closure, given: dict[str, object]) -> Any:
        xs, axis = _items(given.get("x")), given.get("axis", -1)
        if not self._whole_rows(closure, [x for x in xs if not (isinstance(x, _Shared) and x.rank == 1)], axis):
            return UNKNOWN
        values = self._opaque(call, closure, given)
        self._elements(call, given.get("of"), xs)
        rank = xs[0].rank
        rest = [dim for k, dim in enumerate(xs[0].dims) if k != axis % rank][len(self.dims) :]
        with self._member(call):
            dispatch.call(call, given["body"], [(*self.index, *self._own(call, rest)), *values], {})
        return None

    def _opaque(self, call: Point, closure: Closure, given: dict[str, object]) -> list[Any]:
        """Values of the types that the body of `rowwise` is called with."""
        seen: list[list[object]] = []
        self.trusted = True
        try:
            with call.builder.inside(Region()):
                dispatch.call(call, closure, [], given | {"body": _RowwiseBody(seen)})
        finally:
            self.trusted = False
        if not seen:
            raise Mixed(f"{closure.name} does not call its body")
        return [replaced(value, _fresh) for value in seen[0][1:]]

    def _along_rows(self, call: Point, closure: Closure, given: dict[str, object]) -> Any:
        """`scan`, `sort`, and their kin, which store what they make of a row into the same row."""
        outs = [out for name in ("out", "values", "places") for out in _items(given.get(name)) if out is not None]
        xs = _items(given.get("x"))
        if not self._whole_rows(closure, [*outs, *xs], given.get("axis", -1)):
            return UNKNOWN
        self._elements(call, given.get("of"), xs)
        self._elements(call, given.get("key"), xs)
        return None

    def _stencil(self, call: Point, closure: Closure, given: dict[str, object]) -> Any:
        out, x, reach = given.get("out"), given.get("x"), given.get("reach")
        axes = len(reach) if isinstance(reach, tuple) else 0
        if not axes or not self._whole_rows(closure, [out, x], -axes):
            return UNKNOWN
        assert isinstance(x, KernelTensor)
        near = _Near(SIMDType(x.dtype))
        index = (*self.index, *self._own(call, x.dims[len(self.dims) :]))
        with self._member(call):
            dispatch.call(call, given["body"], [near, index], {})
        return None

    def _elements(self, call: Point, function: Any, xs: Sequence[Any]) -> None:
        """Evaluates a function of one element of each tensor."""
        if function is not None:
            with self._member(call):
                dispatch.call(call, function, [Value(SIMDType(x.dtype)) for x in xs], {})

    # *** what was evaluated ***

    def checked(self, region: Region) -> str:
        """The digest of what is computed for the member.

        Raises:
            Mixed: members may depend on each other.
        """
        regions = [region, *self.members]
        used = {operand for each in regions for op in walk(each) for operand in op.operands}
        if not used.isdisjoint(self.index):
            raise Mixed("it computes with the index of the batch")
        if not used.isdisjoint(dim for dim in self.dims if dim.const is None):
            raise Mixed("it computes with sizes of the batch")
        for each in regions:
            own = {result for op in walk(each) if op.opcode.allocates for result in op.results}
            for op in walk(each):
                if op.opcode.writes and not all(_root(p) in own for p in _pointers(op) if _root(p) not in self.written):
                    raise Mixed("members write into storage that they share")
        text = "\n".join([*self.functions, *_described(regions)])
        return hashlib.sha256(text.encode()).hexdigest()


_OVER_ROWS: dict[str, Callable[[Batch, Point, Closure, dict[str, object]], object]] = {
    "rowwise": Batch._rowwise,
    "scan": Batch._along_rows,
    "sort": Batch._along_rows,
    "argsort": Batch._along_rows,
    "top_k": Batch._along_rows,
    "stencil": Batch._stencil,
}


@dataclass(frozen=True, eq=False)
class _RowwiseBody:
    """Stands for the body of `rowwise`, and keeps what it is called with."""

    seen: list[list[object]]


@dataclass(frozen=True, eq=False)
class _Near:
    """Stands for what a stencil reads with: any element of the member."""

    type: SIMDType


@callable_(_RowwiseBody)
def _call_body(call: Point, body: _RowwiseBody, args: list[Any], keywords: dict[str, Any]) -> None:
    body.seen.append(args)


@callable_(_Near)
def _call_near(call: Point, near: _Near, args: list[Any], keywords: dict[str, Any]) -> Value:
    return Value(near.type)


class _Member(KernelTensor):
    """A tensor with the batch, which is accessed at the member's index only."""

    def __init__(self, batch: Batch, *args: Any, **kwargs: Any) -> None:
        super().__init__(*args, **kwargs)
        self.batch = batch
        self.pointer = Value(PointerType(self.dtype))

    def _offset(self, builder: Builder, index: BodyIndex) -> Value:
        if self.batch.trusted:
            return builder.int_(0)
        count = len(self.batch.index)
        parts = index.components(builder)
        if [value_key(part) for part in parts[:count]] != self.batch.keys:
            raise Mixed(f"it accesses elements of '{self.name}' that are not of the member that it computes")
        return ravel(builder, parts[count:], self.dims[count:])

    def load(self, builder: Builder, index: BodyIndex, width: int = 1) -> Value:
        return builder.one("load", [self.pointer, self._offset(builder, index)], SIMDType(self.dtype, width))

    def store(self, builder: Builder, index: BodyIndex, value: Value) -> None:
        builder.add("store", [value, self.pointer, self._offset(builder, index)])


class _Shared(KernelTensor):
    """A tensor without the batch, which all members read."""

    def __init__(self, *args: Any, **kwargs: Any) -> None:
        super().__init__(*args, **kwargs)
        self.pointer = Value(PointerType(self.dtype))

    def load(self, builder: Builder, index: BodyIndex, width: int = 1) -> Value:
        offset = ravel(builder, index.components(builder), self.dims)
        return builder.one("load", [self.pointer, offset], SIMDType(self.dtype, width))


class _BatchProber(GroupEvaluator):
    """Evaluates one node for one member of a batch."""

    def __init__(
        self,
        node: NodeSpec,
        shapes: tuple[tuple[DType, tuple[Size, ...]], ...],
        target: Target,
        counts: tuple[tuple[int, ...], tuple[int, ...]],
    ) -> None:
        super().__init__((node,), target, [], parse_checks("off"))
        self.shapes = shapes
        self.counts = counts
        for _, shape in (*shapes, *node.outputs):
            for size in shape:
                if isinstance(size, Slot):
                    self.slots.setdefault(size.index, Value(INT))
        self.batch = Batch(self.evaluator.builder, self.dims(node.outputs[0][1][: counts[1][0]]))
        self.evaluator.batch = self.batch
        self.operands: dict[int, KernelTensor] = {}

    def operand(self, node: int, number: int) -> KernelTensor:
        if number not in self.operands:
            argument = self.nodes[0].kernel.schema.inputs[number]
            dtype, shape = self.shapes[number]
            fields = self.tensor_fields(0, argument, shape, dtype)
            whole = self.counts[0][number]
            self.operands[number] = _Member(self.batch, **fields) if whole else _Shared(**fields)
        return self.operands[number]

    def results(self) -> list[KernelTensor]:
        """The outputs."""
        spec = self.nodes[0]
        collected: list[KernelTensor] = []
        for argument, (dtype, shape) in zip(spec.kernel.schema.outputs, spec.outputs, strict=True):
            made = _Member(self.batch, **self.tensor_fields(0, argument, shape, dtype))
            self.batch.written.append(made.pointer)
            collected.append(made)
        return collected


def _items(value: object) -> tuple[Any, ...]:
    return value if isinstance(value, tuple) else (value,)


def _fresh(key: object, number: object) -> Any:
    """A number of the same type of which nothing is known."""
    if not isinstance(number, Value):
        return number
    made = Value(number.type, weak=number.weak)
    made.sums = number.sums
    return made


def _pointers(op: Op) -> list[Value]:
    return [operand for operand in op.operands if isinstance(operand.type, PointerType)]


def _root(pointer: Value) -> Value:
    """The storage that a pointer points into."""
    while pointer.maker is not None and pointer.maker.opcode.name == "offset":
        pointer = pointer.maker.operands[0]
    return pointer


def _described(regions: Sequence[Region]) -> Iterator[str]:
    """The operations, with values numbered as they come."""
    numbers: dict[int, int] = {}
    count = itertools.count()

    def number(value: Value) -> int:
        if value.serial not in numbers:
            numbers[value.serial] = next(count)
        return numbers[value.serial]

    for region in regions:
        for op in walk(region):
            values = " ".join(str(number(value)) for value in (*op.operands, *op.results))
            attrs = " ".join(f"{key}={op.attrs[key]}" for key in sorted(op.attrs) if key != "site")
            yield f"{op.opcode.name} {values} {attrs} {[str(result.type) for result in op.results]}"
