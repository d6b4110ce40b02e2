"""Emits atomic operations on elements of tensors and on what pointers point at.

Each reads, computes and writes in one step that no other thread comes between, and gives what was there before.

See also `lowering.atomics` (how a target does it).
"""

from __future__ import annotations

from typing import Any

from ....dsl.types.dtype import DType, SIMDType
from ...ir.opcodes import SCOPES
from ...ir.program import Value
from ..conversion import coerce
from ..evaluator import Point, rule
from ..members.pointers import integer_offset, is_pointer, owner_of, writable
from ..members.spans import Span
from ..members.tensor_memory import span_of
from ..members.tensors import refuse_input, to_index
from ..ownership import report_access
from ..runtime_checks import guard_index
from ..target_refusals import refuse_host
from ..values.describe import describe
from ..values.tensors import KernelTensor, Stored, View

KINDS = ("add", "sub", "min", "max", "and", "or", "xor", "exchange")
BITWISE = ("and", "or", "xor")
ORDERINGS = {
    "": ("relaxed", "acquire", "release", "acq_rel", "seq_cst"),
    "load": ("relaxed", "acquire", "seq_cst"),
    "store": ("relaxed", "release", "seq_cst"),
    "fence": ("acquire", "release", "acq_rel", "seq_cst"),
}


def _place(call: Point, target: Any, index: Any, name: str, *, writes: bool) -> Span:
    """The element that is meant."""
    if is_pointer(target):
        if writes:
            writable(call, target)
        refuse_host(call, target)
        return Span(target, integer_offset(call, index, "index"))
    if not isinstance(target, KernelTensor):
        raise call.error("EK0208", f"{name} takes a tensor or a pointer, not {describe(target)}", "target")
    if writes:
        refuse_input(call, target)
    refuse_host(call, target)
    at = to_index(call, target, index)
    guard_index(call, target, at)
    report_access(call, target, at, "atomic")
    span = span_of(call, target, at) if isinstance(target, Stored | View) else None
    if span is None:
        raise call.error("EK0208", f"{name} takes a tensor in memory, not {describe(target)}", "target")
    return span


def _dtype(call: Point, span: Span, name: str, kind: str) -> DType:
    dtype = span.dtype
    if dtype is DType.bool or dtype.is_storage() or (kind in BITWISE and dtype.is_float()):
        words = "integers" if kind in BITWISE else "integers and floats of 8 to 64 bits"
        raise call.error("EK0204", f"{name} works on {words}, not on {dtype}", "target", got=str(dtype))
    return dtype


def ordering_of(call: Point, ordering: object, kind: str) -> str:
    allowed = ORDERINGS.get(kind, ORDERINGS[""])
    if not isinstance(ordering, str) or ordering not in allowed:
        words = ", ".join(f'"{word}"' for word in allowed)
        got = f'"{ordering}"' if isinstance(ordering, str) else describe(ordering)
        raise call.error("EK0224", f"ordering= is one of {words} here, not {got}", "ordering")
    return ordering


def scope_of(call: Point, scope: object) -> str:
    """Whose threads see an operation as one step."""
    if not isinstance(scope, str) or scope not in SCOPES:
        words = ", ".join(f'"{word}"' for word in SCOPES)
        got = f'"{scope}"' if isinstance(scope, str) else describe(scope)
        raise call.error("EK0224", f"scope= is one of {words}, not {got}", "scope")
    return scope


def _number(call: Point, value: object, dtype: DType, argument: str) -> Value:
    node = call.nodes.get(argument, call.node)
    return coerce(call.on(node), value, SIMDType(dtype), f"this memory holds {dtype}", owner_of(call))


def modify(
    call: Point, kind: str, name: str, target: object, index: object, value: object, ordering: object, scope: object
) -> Value:
    """One of `KINDS`; gives the value before."""
    span = _place(call, target, index, name, writes=True)
    dtype = _dtype(call, span, name, kind)
    number, order = _number(call, value, dtype, "value"), ordering_of(call, ordering, kind)
    operands = [number, span.pointer, span.offset]
    return call.builder.one("atomic", operands, SIMDType(dtype), kind=kind, ordering=order, scope=scope_of(call, scope))


def _register(kind: str) -> None:
    def apply(
        call: Point,
        target: object,
        index: object,
        value: object,
        ordering: object = "relaxed",
        scope: object = "device",
    ) -> Value:
        return modify(
            call, kind, f"atomic.{kind}{'_' * (kind in ('and', 'or'))}", target, index, value, ordering, scope
        )

    rule(f"atomic.{kind}")(apply)


for _kind in KINDS:
    _register(_kind)


@rule("atomic_add")
def atomic_add(call: Point, out: object, index: object, value: object) -> None:
    call.nodes = {**call.nodes, "target": call.nodes.get("out", call.node)}
    modify(call, "add", "atomic_add", out, index, value, "relaxed", "device")


@rule("atomic.compare_exchange")
def compare_exchange(
    call: Point,
    target: object,
    index: object,
    expected: object,
    desired: object,
    ordering: object = "relaxed",
    scope: object = "device",
) -> Value:
    span = _place(call, target, index, "atomic.compare_exchange", writes=True)
    dtype = _dtype(call, span, "atomic.compare_exchange", "")
    old, new = _number(call, expected, dtype, "expected"), _number(call, desired, dtype, "desired")
    order = ordering_of(call, ordering, "")
    operands = [old, new, span.pointer, span.offset]
    return call.builder.one(
        "atomic_compare_exchange", operands, SIMDType(dtype), ordering=order, scope=scope_of(call, scope)
    )


@rule("atomic.load")
def load(call: Point, target: Any, index: Any, ordering: object = "relaxed", scope: Any = "device") -> Value:
    span = _place(call, target, index, "atomic.load", writes=False)
    dtype = _dtype(call, span, "atomic.load", "")
    order = ordering_of(call, ordering, "load")
    return call.builder.one(
        "atomic_load", [span.pointer, span.offset], SIMDType(dtype), ordering=order, scope=scope_of(call, scope)
    )


@rule("atomic.store")
def store(
    call: Point, target: Any, index: Any, value: Any, ordering: object = "relaxed", scope: Any = "device"
) -> None:
    span = _place(call, target, index, "atomic.store", writes=True)
    dtype = _dtype(call, span, "atomic.store", "")
    number, order = _number(call, value, dtype, "value"), ordering_of(call, ordering, "store")
    call.builder.add("atomic_store", [number, span.pointer, span.offset], ordering=order, scope=scope_of(call, scope))
