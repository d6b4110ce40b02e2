"""Emits reports of which call of a parallel body accesses which element: `checks="all"` finds data races with them.

Accesses to what the kernel may change are reported with the element and the call; so is the begin of each loop. The
runtime compares them (see `graph.findings.data_races`): calls run in any order, so two calls that access one element,
of which one writes it, race. A call owns the elements whose index contains the index that it was called with. Reports
are taken out again for tensors of which each call accesses its own elements alone, and for those that are only read
or only updated by atomic operations.

Not reported: accesses through pointers and grids that run on a CPU.
"""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

from ...dsl.diagnostics.places import is_shipped
from ...dsl.signature.schema import Role
from ..ir.builder import Builder
from ..ir.opcodes import PRINT
from ..ir.program import Region, Value
from .evaluator import Evaluator, Point
from .runtime_checks import add_report
from .values.index import BodyIndex, NeedComponents, same_dims, value_key
from .values.tensors import KernelTensor, Stored, View

BEGIN = "parallel"  # the kind of a site where a parallel loop begins
ACCESS = "access"  # the kind of a site where a call of its body accesses an element


def in_body(call: Point, index: BodyIndex, body: Callable[[], Any]) -> Any:
    """Evaluates a call of a parallel body with this index.

    A body within another belongs to the call of the outer one. Loops of the library are left out: it cuts rows and
    ranges into tasks whose elements are apart.
    """
    evaluator = call.evaluator
    if evaluator.owner is not None or evaluator.level != "parallel" or is_shipped(call.frame.file):
        return body()
    with evaluator.scope(owner=index):
        return body()


def begin_region(call: Point, region: Region, site_count: int) -> None:
    """Reports that a parallel loop begins, if accesses in its region, whose sites are those from a number on, are."""
    sites = call.evaluator.sites
    details = {n: dict(sites[n].details) for n in range(site_count, len(sites)) if sites[n].kind == ACCESS}
    of_tensors: dict[str, list[dict[str, Any]]] = {}
    for access in details.values():
        of_tensors.setdefault(access["tensor"], []).append(access)
    racing = {
        tensor
        for tensor, accesses in of_tensors.items()
        if not all(access["owned"] for access in accesses)
        and len({access["access"] for access in accesses} | {"read"}) > 1
    }
    _drop(region, {n for n, access in details.items() if access["tensor"] not in racing})
    if racing:
        add_report(call, BEGIN, {})


def _drop(region: Region, sites: set[int]) -> None:
    """Takes the reports of these sites out of a region."""
    region.ops = [op for op in region.ops if op.opcode is not PRINT or op.attrs["site"] not in sites]
    for op in region.ops:
        for inner in op.regions:
            _drop(inner, sites)


def is_reported(evaluator: Evaluator, tensor: KernelTensor) -> bool:
    """Whether accesses to elements of this tensor are reported here, where the call of the body does not own them."""
    if evaluator.owner is None or evaluator.checks.level != "all" or evaluator.level != "parallel":
        return False
    while isinstance(tensor, View):
        tensor = tensor.base
    return tensor.role is not Role.INPUT and isinstance(tensor, Stored) and not tensor.in_stack


def report_access(
    call: Point, tensor: KernelTensor, index: BodyIndex, kind: str, width: int = 1, value: Value | None = None
) -> None:
    """Reports that `width` elements from the index on are accessed: a `read`, `atomic`, or `write` of a value."""
    if not is_reported(call.evaluator, tensor):
        return
    owner, builder = call.evaluator.owner, call.builder
    while isinstance(tensor, View):
        index = BodyIndex(tensor.base.dims, components=tensor.mapping(builder, index.components(builder)))
        tensor = tensor.base
    owned = _owns(builder, owner, index, width)
    if not same_dims(index.dims, tensor.dims):
        index = BodyIndex(tensor.dims, components=index.components(builder))
    details = {
        "tensor": tensor.name,
        "access": kind,
        "position": index.position(builder),
        "shape": tensor.dims,
        "width": width,
        "call": owner.position(builder),
        "owned": owned,
        "value": value if value is not None and value.simd.is_scalar and not value.dtype.is_storage() else None,
    }
    add_report(call, ACCESS, details)


def _owns(builder: Builder, owner: BodyIndex, index: BodyIndex, width: int) -> bool:
    """Whether no other call of the body can have an index with these components."""
    if index is owner:
        return width == 1
    if owner.linear is not None and index.linear is not None and same_dims(owner.dims, index.dims):
        return width == 1 and value_key(owner.linear) == value_key(index.linear)
    try:
        own = [value_key(part) for part in owner.components(builder)]
    except NeedComponents:
        return False
    parts = [value_key(part) for part in index.components(builder)]
    return bool(own) and set(own) <= set(parts if width == 1 else parts[:-1])


def loop_index(total: Value, number: Value) -> BodyIndex:
    """The index of the body's call with this number."""
    return BodyIndex((total,), linear=number)
