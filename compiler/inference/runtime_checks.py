"""Emits run-time checks where an access could leave its tensor, a divisor could be zero, or a NaN is stored.

A check is an `assert` operation with a site that says what to report, so that every later phase treats it like one of
the author's. An access has one unless `ranges` proves that it lies inside. Under `safe`, checks of indices carry the
attribute `hoist`, which says how many elements are touched: `hoist` does them once before a loop where it can.

See also `passes.hoist_checks` (what a check costs in a loop), `graph.findings.reports` (how a report becomes an error).
"""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any

from ...dsl.contract.exchange import Exchange
from ...dsl.diagnostics.places import Place, is_shipped
from ...dsl.frontend import syntax as s
from ...dsl.types.dtype import BOOL, INT, DType, SIMDType
from ..ir.builder import Builder
from ..ir.opcodes import IF
from ..ir.program import PointerType, Site, Value
from .call_trace import trace_calls
from .evaluator import Point
from .target_refusals import is_host_code, is_host_storage
from .values.compile_time import Frame
from .values.index import BodyIndex, same_dims, value_key
from .values.tensors import KernelTensor, Stored, View


def guard_index(call: Point, tensor: KernelTensor, index: BodyIndex, width: int = 1) -> None:
    """Checks that `index`, and the `width - 1` elements behind it, lie in the tensor."""
    if call.evaluator.checks.level == "off":
        return
    if isinstance(tensor, View):
        tensor.guard(call)
    if not index.unchecked and width == 1 and same_dims(index.dims, tensor.dims):
        return  # `foreach` made it
    index.unchecked = False
    if index.is_position and same_dims(index.dims, tensor.dims):
        guard_part(call, call.builder.product(tensor.dims), index.position(call.builder), tensor, None, width)
        return
    if tensor.rank == 0 and width > 1:
        guard_part(call, call.builder.int_(1), call.builder.int_(0), tensor, None, width)
    last = tensor.rank - 1
    for axis, part in enumerate(index.components(call.builder)):
        guard_part(call, tensor.dims[axis], part, tensor, axis, width if axis == last else 1)


def guard_part(call: Point, extent: Value, part: Value, tensor: KernelTensor, axis: int | None, width: int = 1) -> None:
    """Checks one part of an index; `axis` is None for a position over all axes."""
    evaluator, builder = call.evaluator, call.builder
    key = ("guarded", value_key(part), value_key(extent), width)
    if evaluator.checks.level == "off" or builder.remembered(key):
        return
    if is_host_code(evaluator) and not is_host_storage(tensor):
        return  # on the host, an access is an error anyhow, and a slice is checked where it is read
    if evaluator.checks.level == "safe" and is_shipped(call.frame.file) and not _for_a_fold(call.frame):
        counted = all(evaluator.ranges.is_counted(value) for value in (part, extent))
        if counted or not _from_memory(part):
            return  # the library is trusted with its loops; a proof would take time
    if evaluator.ranges.is_inside(part, extent, width):
        builder.remember(key, True)
        return
    node, accessed = call.index_part(axis, tensor.rank), builder.location
    call.on(node).locate()
    holds = _is_inside(call, part, extent, width)
    where = f"axis {axis} of '{tensor.name}'" if axis is not None else f"'{tensor.name}'"
    size = "whose size is " if axis is not None else "which has as many elements as "
    message: list[Any] = ["index ", part, f" is out of bounds for {where}, {size}", extent]
    if width > 1:
        message[2:2] = [f" with the {width - 1} elements behind it"]
    details = {"tensor": tensor.name, "axis": axis, "index": part, "extent": extent}
    _check_bounds(call, tensor, node, holds, message, details, width=width)
    evaluator.ranges.inside(part, extent)
    builder.remember(key, True)
    builder.location = accessed


def guard_lanes(call: Point, tensor: KernelTensor, numbers: Value, mask: Value | None) -> None:
    """Checks a vector of indices on the last axis, those of its lanes that the mask names."""
    builder, type = call.builder, numbers.type
    if call.evaluator.checks.level == "off" or (is_host_code(call.evaluator) and not is_host_storage(tensor)):
        return
    assert isinstance(type, SIMDType)
    axis = tensor.rank - 1
    extent = tensor.dims[axis]

    def lanes(value: Value) -> Value:
        return value if type.is_scalar else builder.one("splat", [value], type)

    call.locate()
    low = builder.row("ge", [numbers, lanes(builder.int_(0))])
    good = builder.row("and_", [low, builder.row("lt", [numbers, lanes(extent)])])
    if mask is not None:
        good = builder.row("or_", [good, builder.row("invert", [mask])])
    wrong = numbers
    if not type.is_scalar:  # the first that is wrong
        count = builder.one("lanes", [builder.int_(k) for k in range(type.width)], type)
        last = builder.const(type.width - 1, type)
        first = builder.one("reduce", [builder.one("select", [good, last, count], type)], INT, row="min")
        wrong = builder.one("extract_at", [numbers, first], INT)
    message = ["index ", wrong, f" is out of bounds for axis {axis} of '{tensor.name}', whose size is ", extent]
    details = {"tensor": tensor.name, "axis": axis, "index": wrong, "extent": extent}
    node = call.nodes.get("index", call.node)
    _check_bounds(call, tensor, node, all_lanes(builder, good), message, details)


def guard_start(call: Point, start: Value, tensor: KernelTensor, axis: int) -> None:
    """Checks that a slice does not begin before the tensor."""
    evaluator, builder = call.evaluator, call.builder
    key = ("begins", value_key(start))
    if evaluator.checks.level == "off" or builder.remembered(key) or evaluator.ranges.is_at_least(start, 0):
        return
    if is_host_code(evaluator) and not is_host_storage(tensor):
        return
    call.locate()
    holds = builder.compare("ge", start, builder.int_(0))
    message = [f"the slice on axis {axis} of '{tensor.name}' starts at ", start]
    details = {"tensor": tensor.name, "axis": axis, "index": start, "extent": tensor.dims[axis]}
    node = call.nodes.get("index", call.node)
    _check_bounds(call, tensor, node, holds, message, details, width=0)
    builder.remember(key, True)


def _is_inside(call: Point, part: Value, extent: Value, width: int) -> Value:
    builder = call.builder
    low = builder.compare("ge", part, builder.int_(0))
    room = builder.isub(extent, builder.int_(width - 1))
    return builder.row("and_", [low, builder.compare("lt", part, room)])


def _from_memory(value: Value, depth: int = 0) -> bool:
    """Whether a value depends on an element that was read, as far as can be seen in a few steps."""
    op = value.maker
    if op is None or depth > 12:
        return False
    if op.opcode.reads:
        return True
    operands = list(op.operands)
    if op.opcode is IF:
        number = next(n for n, result in enumerate(op.results) if result is value)
        operands = [region.ops[-1].operands[number] for region in op.regions]
    return any(_from_memory(operand, depth + 1) for operand in operands)


def _for_a_fold(frame: Frame) -> bool:
    """Whether the library reads here what a `fold` of the author's requests: a monoid may have one of its own."""
    at = frame.caller
    while at is not None:
        if at.function == "fold" and not is_shipped(at.place.file):
            return True
        at = at.caller
    return False


def guard_divisor(here: Point, divisor: Value, symbol: str) -> None:
    """Under `all`: an integer is not divided by zero. (Otherwise that gives 0.)"""
    builder = here.builder
    if (
        here.evaluator.checks.level != "all"
        or not isinstance(divisor.type, SIMDType)
        or not divisor.dtype.is_integral()
    ):
        return
    shipped = is_shipped(here.frame.file)
    if divisor.type == INT and (
        here.evaluator.ranges.is_at_least(divisor, 1) or (shipped and here.evaluator.ranges.is_counted(divisor))
    ):
        return  # the library divides by sizes that may be 0, and means the 0 that comes out
    if is_host_code(here.evaluator) or divisor.const is not None:
        return
    key = ("divides", value_key(divisor))
    if builder.remembered(key):
        return
    here.locate()
    zero = builder.const(0, divisor.type)
    holds = builder.row("ne", [divisor, zero])
    if not divisor.type.is_scalar:
        holds = all_lanes(builder, holds)
    add_check(here, "division", holds, [f"'{symbol}' divides an integer by zero"], {}, [])
    builder.remember(key, True)


def guard_alignment(call: Point, pointer: Value, offset: Value, align: int | None, mask: Value | None) -> None:
    """Under `all`: the address of an access with `align=` is a multiple of it, unless the mask names no lane."""
    builder = call.builder
    if align is None or align == 1 or call.evaluator.checks.level != "all" or is_host_code(call.evaluator):
        return
    call.locate()
    assert isinstance(pointer.type, PointerType)
    place = builder.advance(pointer, offset, pointer.type.access or "read-write")
    holds = builder.one("aligned", [place], BOOL, align=align)
    if mask is not None:
        none = builder.row("invert", [mask])
        holds = builder.row("or_", [holds, all_lanes(builder, none)])
    message = ["the address of element ", offset, f" is not a multiple of {align} bytes, which align={align} promises"]
    add_check(call, "alignment", holds, message, {}, [])


def all_lanes(builder: Builder, mask: Value) -> Value:
    """Whether every lane of a mask is true."""
    assert isinstance(mask.type, SIMDType)
    return mask if mask.type.is_scalar else builder.one("reduce", [mask], BOOL, row="and_")


def guard_number(call: Point, tensor: KernelTensor, index: BodyIndex, value: Value) -> None:
    """Under `+nan` or `+inf`: an element that an op stores into an output is a number."""
    evaluator, builder = call.evaluator, call.builder
    finds = evaluator.checks.finds
    if not finds or not value.dtype.is_float() or not value.dtype.format.has_nan:
        return
    while isinstance(tensor, View):
        components = tensor.mapping(builder, index.components(builder))
        tensor = tensor.base
        index = BodyIndex(tensor.dims, components=components)
    if not isinstance(tensor, Stored) or tensor.in_stack:
        return
    call.locate()
    number = value
    if value.dtype.is_storage():
        assert isinstance(value.type, SIMDType)
        number = builder.one("cast", [value], value.type.with_dtype(DType.float32))
    bad = builder.row("isnan", [number])
    if finds == "inf":
        bad = builder.row("or_", [bad, builder.row("isinf", [number])])
    holds = builder.row("invert", [bad])
    # The position alone: taking it apart into an index is done for the one that is reported, in Python.
    message: list[object] = [value, f" is stored into '{tensor.name}'"]
    details = {"tensor": tensor.name, "position": index.position(builder), "shape": tensor.dims, "value": value}
    add_check(call, "nan", holds, message, details, [])


def _check_bounds(
    call: Point,
    tensor: KernelTensor,
    node: s.SyntaxNode,
    holds: Value,
    message: Sequence[object],
    details: dict[str, Any],
    *,
    width: int | None = None,
) -> None:
    hoist = width if call.evaluator.checks.level == "safe" else None
    add_check(call.on(node), "bounds", holds, message, details, tensor.declaration(), hoist=hoist)


def add_check(
    here: Point,
    kind: str,
    holds: Value,
    message: Sequence[object],
    details: dict[str, Any],
    notes: Sequence[tuple[str, Place]],
    *,
    hoist: int | None = None,
) -> None:
    """The operation and its site. Run-time values among `message` and `details` are handed to the report."""
    values = _add_site(here, kind, message, details, notes)
    attrs: dict[str, Any] = {} if hoist is None else {"hoist": hoist}
    here.builder.add("assert", [holds, *values], site=len(here.evaluator.sites) - 1, **attrs)


def add_report(here: Point, kind: str, details: dict[str, Any]) -> None:
    """A report that is not a failure, with these details; run-time values among them are handed to it."""
    values = _add_site(here, kind, (), details, ())
    here.builder.add("print", values, site=len(here.evaluator.sites) - 1)


def add_exchange(here: Point, kind: Exchange, what: str, operands: Sequence[Value]) -> None:
    """An exchange of bytes between ranks. What its slot is for is the text of its site."""
    _add_site(here, "exchange", (what,), {}, ())
    here.builder.add("exchange", operands, kind=int(kind), site=len(here.evaluator.sites) - 1)


def _add_site(
    here: Point, kind: str, message: Sequence[Any], details: dict[str, Any], notes: Sequence[tuple[str, Place]]
) -> list[Value]:
    """Adds a site; returns the run-time values of its report."""
    values: list[Value] = []
    numbers: dict[int, int] = {}

    def number(value: Value) -> int:
        if value.serial not in numbers:
            numbers[value.serial] = len(values)
            values.append(value)
        return numbers[value.serial]

    def detail(value: object) -> Any:
        if isinstance(value, tuple):
            return [detail(item) for item in value]
        return {"value": number(value), "dtype": value.dtype.name} if isinstance(value, Value) else value

    parts: list[str | tuple[str, str]] = []
    for part in message:
        if isinstance(part, Value):
            values.append(part)  # the report takes the values of its text in order
            numbers.setdefault(part.serial, len(values) - 1)
            parts.append(("", part.dtype.name))
        else:
            parts.append(part)
    resolved = tuple((name, detail(value)) for name, value in details.items())
    place, calls = trace_calls(here.frame, here.node)
    here.evaluator.sites.append(Site(kind, tuple(parts), place, here.evaluator.op, resolved, (*notes, *calls)))
    return values
