"""Puts the kernels of libraries that a session brings in the place of a graph's custom ops of the same names, and of
built-in ops that they override.

So a graph that was staged from sources runs the ready-made code of a package, or another version of its kernels, with
the same signatures.
"""

from __future__ import annotations

from collections.abc import Iterable, Sequence
from dataclasses import replace
from typing import Any

from ...dsl.diagnostics.errors import PackageError
from ...dsl.diagnostics.places import shown_path, user_place
from ...dsl.package.library import LoadedKernel
from ...dsl.signature.bind import bind
from ...dsl.signature.schema import OpSchema
from ..ir import GraphIR, Item, Node
from ..staging.kernels import KernelLibrary, Kernels, in_place_of

SHAPE = ".shape"  # ends the name of the kernel that computes an op's late sizes


def with_extensions(ir: GraphIR, libraries: Iterable[KernelLibrary]) -> GraphIR:
    """The graph with kernels of these libraries; where several have one, those of the last.

    Raises:
        PackageError: EK0439, a kernel has another signature than the one that the graph was staged with.
    """
    sources = [Kernels(library.libraries) for library in libraries if library.libraries]
    if not sources:
        return ir
    names = {name for source in sources for name in source.names()}
    return replace(ir, nodes=tuple(_with_kernel(node, ir, sources[::-1], names) for node in ir.nodes))


def _with_kernel(node: Item, ir: GraphIR, sources: Sequence[Kernels], names: set[str]) -> Item:
    if not isinstance(node, Node):
        return node
    if node.kernel.shipped:
        return _overridden(node, ir, sources) if node.name in names else node
    op = node.name.removesuffix(SHAPE) if node.name not in names else node.name
    if op not in names:
        return node
    first: LoadedKernel | None = next(kernel for source in sources if (kernel := source.find(op)) is not None)
    assert first is not None
    first = first.expanded(dict(node.kernel.schema.counts)) if first.schema.variadic else first
    made = first if op == node.name else first.shape  # a shape function is a node of its own
    if made is None or _signature(made.schema) != _signature(node.kernel.schema):
        raise PackageError(
            f"op '{op}' of {shown_path(first.origin)} has another signature than the one of"
            f" {shown_path(node.kernel.origin)}, with which the graph was staged",
            code="EK0439",
            place=user_place(),
            op=op,
            expected=node.kernel.origin,
            got=first.origin,
            notes=[f"op '{op}' is staged at {node.place}"] if node.place else [],
        )
    return replace(node, kernel=made)


def _overridden(node: Node, ir: GraphIR, sources: Sequence[Kernels]) -> Node:
    """A built-in op with the kernel that overrides it, if there is one for its dtypes."""
    first = next(kernel for source in sources if (kernel := source.find(node.name)) is not None)
    if not first.schema.override or first.schema.name != node.name:
        return node
    first = in_place_of(first, node.kernel)
    inputs = [(ir.types[value].dtype, tuple(ir.types[value].shape)) for value in node.operands]
    outputs = [(type.dtype, tuple(type.shape)) for type in node.out_types]
    if not first.schema.takes([dtype for dtype, _ in inputs], [dtype for dtype, _ in outputs]):
        return node
    bind(first.schema, inputs, dict(node.parameters), expected_outputs=outputs, place=node.place)
    return replace(node, kernel=first)


def _signature(schema: OpSchema) -> Any:
    """What calls depend on."""
    inputs = [(argument.name, argument.role, argument.dtype, argument.dims) for argument in schema.inputs]
    outputs = [(argument.name, argument.role, argument.dtype, argument.dims) for argument in schema.outputs]
    return inputs, outputs, [(p.name, p.kind) for p in schema.parameters], schema.counts
