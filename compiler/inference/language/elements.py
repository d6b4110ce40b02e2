"""Builds loops over elements, `foreach`, and stores.

`foreach` has three readings, chosen by what its outputs are: a loop that stores (the usual one), the single element
that a fused reader demands, or nothing else; see `tensors`.
"""

from __future__ import annotations

from collections.abc import Callable, Iterator, Sequence
from typing import Any

from ....dsl.diagnostics.errors import plural
from ....dsl.frontend import syntax as s
from ....dsl.types.dtype import INT, SIMDType
from ...ir.opcodes import FOR
from ...ir.program import Op, Region, Value
from ...ir.schedule import LoopHints
from .. import dispatch
from ..advice import body_takes, no_function, of_body
from ..conversion import coerce, widened_or_rounded
from ..evaluator import Evaluator, Point, rule
from ..members.table import method
from ..members.tensors import refuse_input, store_into, to_index, to_store, wrong_store
from ..ownership import begin_region, in_body
from ..values.compile_time import Bound, Closure, is_comptime_number
from ..values.describe import describe
from ..values.flow import ABSENT
from ..values.index import BodyIndex, NeedComponents, NeedPairs, same_dims, unravel
from ..values.tensors import Demand, KernelTensor
from .across import MAX_SHORT_ROW, TASK, Nest, in_blocks, rows_of_a_line
from .element_pairs import Pairs, shares_bytes
from .rare_cases import element_loop
from .turned import TiledLoop, tiles_of

GPU_BLOCK = 256
MOST_LANES = 1024
SHORT_ROW = 64  # elements, which are too small for several threads


# *** loops over elements ***


@rule("foreach")
def foreach(call: Point, out: object, body: object, simd_width: object = None) -> None:
    outputs = out if isinstance(out, tuple) else (out,)
    if not outputs:
        raise call.error("EK0208", "foreach has no tensor to store into", "out")
    for tensor in outputs:
        if not isinstance(tensor, KernelTensor):
            hint = "the output comes first: foreach(out, lambda i: ...)"
            if isinstance(tensor, Value | int):
                hint = "parallel_for(n, body) runs over numbers"
            raise call.error("EK0208", f"foreach stores into tensors, not into {describe(tensor)}", "out", hint=hint)
        if not same_dims(tensor.dims, outputs[0].dims):
            raise call.error("EK0219", "the outputs of one foreach need equal dims", "out")
    if isinstance(outputs[0], Demand):
        demanded(call, outputs, body)
        return
    check_body(call, body, 1, "one index, whatever the rank", "index")
    hints = None if simd_width is None else _vectors_of(call, simd_width)
    first = len(call.builder.region.ops)

    def values_at(index: BodyIndex) -> tuple[Value, ...]:
        values = element_values(call, outputs, body, index)
        calls = (_storing(call, body, number, len(values)) for number in range(len(values)))
        return tuple(to_store(c, t, index, v) for c, t, v in zip(calls, outputs, values, strict=True))

    store_elements(call, outputs, values_at)
    if hints is not None and not call.evaluator.target.has_grid:
        for loop in innermost(call.builder.region.ops[first:]):
            loop.attrs.setdefault("hints", hints)


def _vectors_of(call: Point, width: object) -> LoopHints:
    """What LLVM is notified of a loop whose vectors the author chose."""
    if not isinstance(width, int) or isinstance(width, bool) or not 1 <= width <= MOST_LANES or width & (width - 1):
        wanted = f"a power of two from 1 to {MOST_LANES} that is known at compile time"
        raise call.error("EK0846", f"simd_width is {wanted}, not {describe(width)}", "simd_width")
    return LoopHints(apart=True) if width == 1 else LoopHints(lanes=width, vectors=1)


def innermost(ops: Sequence[Op]) -> Iterator[Op]:
    """The loops that hold no other loop."""
    for op in ops:
        inside = [each for region in op.regions for each in innermost(region.ops)]
        if op.opcode is FOR and not inside:
            yield op
        yield from inside


@method(KernelTensor, "fill")
def fill(call: Point, owner: KernelTensor, value: object) -> None:
    """Stores one value in every element."""
    refuse_input(call, owner)
    if isinstance(owner, Demand):
        demanded(call, (owner,), Bound(owner, "fill", lambda point, index: value))
        return
    store_elements(call, (owner,), lambda index: (to_store(call, owner, index, value),))


def store_elements(call: Point, outputs: tuple[Any, ...], values_at: Callable[[BodyIndex], tuple[Value, ...]]) -> None:
    """The loop that stores what `values_at` gives for each index."""

    def element(index: BodyIndex) -> None:
        for tensor, value in zip(outputs, in_body(call, index, lambda: values_at(index)), strict=True):
            tensor.store(call.builder, index, value)

    if call.evaluator.batch is not None and call.evaluator.batch.each(call, outputs, element):
        return
    shared = shares_bytes(outputs)

    def flat() -> None:
        flat_loop(call, dims, element)

    def nested() -> None:
        nested_loop(call, dims, element)

    def paired() -> None:
        pairs = Pairs(call.evaluator, outputs, values_at, divisible=shared)
        spread(call, pairs.pairs, pairs.chunk, pairs.thread, None)

    dims, site_count = outputs[0].dims, len(call.evaluator.sites)
    make = paired if shared else flat
    while True:
        try:
            make()
            return
        except NeedPairs:
            make = paired
        except NeedComponents:
            make = nested
        del call.evaluator.sites[site_count:]


def check_body(call: Point, body: Any, given: int, what: str, names: str) -> None:
    """Refuses a body that is not a function, or does not take what it is called with."""
    node = call.nodes.get("body", call.node)
    if isinstance(body, Value | KernelTensor) or is_comptime_number(body):
        hint = no_function(node, call.frame, names) if given == 1 else None
        raise call.error("EK0207", f"{describe(body)} cannot be called", "body", hint=hint)
    wrong = body_takes(body, given, what)
    if wrong is not None:
        hint = of_body(body, names)
        raise call.error("EK0208", wrong, "body", expected=given, got=len(body.function.params), hint=hint)


def _storing(call: Point, body: Any, number: int, count: int) -> Point:
    """The call as the store of a body's value sees it: the value stands in the body."""
    inner = call.on(call.node)
    target = call.nodes.get("out", call.node)
    function = body.function if isinstance(body, Closure) else None
    value: s.Expr | None = None
    if isinstance(function, s.Lambda):
        value = function.body
    elif isinstance(function, s.Function) and function.body and isinstance(function.body[-1], s.Return):
        value = function.body[-1].value
    if isinstance(value, s.Tuple) and len(value.items) == count > 1:
        value = value.items[number]
        target = target.items[number] if isinstance(target, s.Tuple) and len(target.items) == count else target
    inner.nodes = {**inner.nodes, "target": target}
    if value is not None and body.frame.file == call.frame.file:
        inner.nodes = {**inner.nodes, "value": value}
    return inner


def element_values(call: Point, outputs: tuple[object, ...], body: object, index: BodyIndex) -> tuple[Any, ...]:
    """What the body gives at an index: one value for each output."""
    value = dispatch.call(call, body, [index], {})
    values = value if isinstance(value, tuple) else (value,)
    if value is ABSENT:
        values = (ABSENT,) * len(outputs)
    if len(values) != len(outputs) or value is None:
        given = "no value" if value is None else plural(len(values), "value")
        text = f"the body of foreach gives {given} for {plural(len(outputs), 'output')}"
        hint = "return what each element is; a body that stores for itself is one of parallel_for"
        raise call.error("EK0208", text, "body", hint=hint if value is None else None)
    return values


def demanded(call: Point, outputs: tuple[Any, ...], body: Any) -> None:
    """One element is wanted, not the loop: compute it here."""
    values = element_values(call, outputs, body, outputs[0].index)
    for number, (tensor, value) in enumerate(zip(outputs, values, strict=True)):
        storing = _storing(call, body, number, len(values))
        value = widened_or_rounded(storing, value, tensor.dtype)
        if isinstance(value, Value) and value.weak is None and value.dtype is not tensor.dtype:
            raise wrong_store(storing, tensor, value)
        node = storing.nodes.get("value", call.node)
        tensor.value = coerce(call.on(node), value, SIMDType(tensor.dtype))


def flat_loop(call: Point, dims: tuple[Value, ...], element: Callable[[BodyIndex], None]) -> None:
    """One loop over positions; code that needs components raises NeedComponents."""

    def chunk(low: Value, high: Value) -> None:
        element_loop(call, low, high, lambda position: element(BodyIndex(dims, linear=position, flat=True)))

    def thread(position: Value) -> None:
        element(BodyIndex(dims, linear=position))

    spread(call, call.builder.product(dims), chunk, thread, None)


def nested_loop(call: Point, dims: tuple[Value, ...], element: Callable[[BodyIndex], None]) -> None:
    """A loop over rows around one over the last axis. Short rows stay whole; of others any positions can be a task."""
    builder, nests = call.builder, list[Nest]()
    *outer, inner = dims

    def columns(row: Value, start: Value, stop: Value) -> None:
        leading = unravel(builder, row, tuple(outer))
        loop = builder.for_loop(start, stop)
        builder.counter(loop.args[0], None, inner)
        with builder.inside(loop):
            element(BodyIndex(dims, components=(*leading, loop.args[0])))
            builder.end()
        nests.append(Nest(leading, loop.args[0], loop))
        if inner.const is not None:
            builder.region.ops[-1].attrs["axis"] = inner.const

    def rows(low: Value, high: Value, ends: Callable[[Value], tuple[Value, Value]]) -> None:
        loop = builder.for_loop(low, high)
        with builder.inside(loop):
            columns(loop.args[0], *ends(loop.args[0]))
            builder.end()

    def whole(low: Value, high: Value) -> None:
        rows(low, high, lambda row: (builder.int_(0), inner))

    def chunk(low: Value, high: Value) -> None:
        def ends(row: Value) -> tuple[Value, Value]:
            base = builder.imul(row, inner)
            start = builder.one("max", [builder.isub(low, base), builder.int_(0)], INT)
            return start, builder.one("min", [builder.isub(high, base), inner], INT)

        first = builder.idiv(low, inner)
        rows(first, builder.idiv(builder.iadd(high, builder.isub(inner, builder.int_(1))), inner), ends)

    def thread(position: Value) -> None:
        element(BodyIndex(dims, linear=position, divisible=True))

    if not call.evaluator.target.has_grid and inner.const is not None and 1 < inner.const <= SHORT_ROW:
        spread(call, builder.product(outer), whole, thread, None, each=inner.const)
    else:
        spread(call, builder.product(dims), chunk, thread, None)
    if nests and call.evaluator.level == "host" and (inner.const is None or inner.const > MAX_SHORT_ROW):
        by_blocks(call, dims, nests[-1], element, thread)


def by_blocks(
    call: Point,
    dims: tuple[Value, ...],
    nest: Nest,
    element: Callable[[BodyIndex], None],
    thread: Callable[[Value], None],
) -> None:
    """Replaces a nest that reads across memory by one that goes through tiles, or blocks of rows."""
    evaluator, builder = call.evaluator, call.builder
    tiles = tiles_of(evaluator, nest.leading, nest.column, nest.region, dims)
    height = 0 if tiles is not None else rows_of_a_line(evaluator, nest)
    if tiles is not None:
        builder.region.ops.pop()
        loop = TiledLoop(evaluator, dims, tiles, element)
        spread(call, loop.total, loop.chunk, thread, None, each=loop.elements)
    elif height:
        builder.region.ops.pop()
        total, block = in_blocks(evaluator, dims, height, element)
        spread(call, total, block, thread, None, each=height * TASK)


def spread(
    call: Point,
    total: Value,
    chunk: Callable[[Value, Value], None],
    thread: Callable[[Value], None],
    grain: Value | None,
    *,
    each: int = 1,
) -> None:
    """Work on [0, total): ranges for the cores of a CPU, or a GPU thread for each number, which is `each` elements."""
    evaluator, builder = call.evaluator, call.builder
    if evaluator.level != "host":  # already within parallel work: in order
        chunk(builder.int_(0), total)
        return
    region = Region()
    if evaluator.target.has_grid:
        with evaluator.scope(level="device"), builder.inside(region):
            _gpu_thread(evaluator, total, thread)
        one = builder.int_(1)
        block = builder.int_(GPU_BLOCK)
        blocks = builder.idiv(builder.iadd(total, builder.int_(GPU_BLOCK - 1)), block)
        call.locate()
        builder.add("launch", [blocks, one, one, block, one, one, builder.int_(0)], regions=[region], elements=True)
        return
    low, high = builder.counter(Value(INT)), builder.counter(Value(INT), high=total, closed=True)
    region.args, site_count = [low, high], len(evaluator.sites)
    with evaluator.scope(level="parallel"), builder.inside(region):
        chunk(low, high)
        builder.end()
    call.locate()
    begin_region(call, region, site_count)
    if grain is not None:
        builder.add("parallel", [total, grain], regions=[region])
    else:  # see `passes.choose_grains`
        builder.add("parallel", [total, builder.int_(1)], regions=[region], unit=each)


def _gpu_thread(evaluator: Evaluator, total: Value, thread: Callable[[Value], None]) -> None:
    """`if (block_idx * 256 + thread_idx) < total: thread(...)`."""
    builder = evaluator.builder
    block = builder.one("gpu_id", [], INT, which="block_idx.x")
    lane = builder.one("gpu_id", [], INT, which="thread_idx.x")
    position = builder.iadd(builder.imul(block, builder.int_(GPU_BLOCK)), lane)
    inside = Region()
    with builder.inside(inside):
        builder.counter(position, None, total)
        thread(position)
        builder.end()
    nothing = Region()
    with builder.inside(nothing):
        builder.end()
    builder.add("if", [builder.compare("lt", position, total)], regions=[inside, nothing])
    builder.end()


# *** elements ***


@rule("store")
def store(call: Point, out: Any, index: Any, value: Any) -> None:
    if not isinstance(out, KernelTensor):
        raise call.error("EK0208", f"store takes a tensor, not {describe(out)}", "out")
    call.nodes = {**call.nodes, "target": call.nodes.get("out", call.node)}
    store_into(call, out, to_index(call, out, index), value)
