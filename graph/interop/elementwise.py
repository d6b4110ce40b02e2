"""Says which kernels are elementwise: an element of an output is made of the inputs' elements at its place alone.

Such a kernel may be called on any piece of its arrays, under any number of further axes. NumPy's ufuncs and the
batching of JAX and PyTorch rest on that. Of other kernels it may hold for the axes of a batch, `*b` in "*b n": the
author promises that, or the compiler finds it.

See also `compiler.inference.facts` and `compiler.inference.batches` (how that is found).
"""

from __future__ import annotations

from collections.abc import Callable, Sequence

from ...dsl.signature.dims import Pack
from ...dsl.signature.parse_dims import parse_dims
from ...dsl.signature.schema import Form, OpSchema, Role
from ..driver.devices import Device, placed_on
from ..ir import Node
from ..loading.compile import batch_facts, element_facts
from .specialise import Specialisation
from .spread import is_flat


def adds_axis(made: Specialisation) -> bool:
    """Whether the kernel takes a further axis before those that all its tensors begin with, and means the same."""
    firsts = {parse_dims(a.dims)[:1] for a in made.schema.tensors if a.form is not Form.SCALAR}
    if len(firsts) != 1:
        return False
    first = firsts.pop()
    flat = bool(first) and isinstance(first[0], Pack) and first[0].count is None and first[0].name != "_"
    return flat and not made.late and not made.mutable and not trouble_of(made)


def batch_axes(made: Specialisation, ranks: Sequence[int]) -> tuple[int, ...] | None:
    """How many axes of a batch each input begins with, for inputs of these ranks, where members of the batch are
    computed independently: as the author promises or the compiler finds. None for any other kernel."""
    schema = made.schema
    if schema.batch:
        return promised_axes(schema, ranks)
    name = _leading_pack(schema)
    result = _axes_of(schema, name, ranks) if name else None
    return result if result and any(result) and not _batch_facts(made, result)[0] else None


def same_member(made: Specialisation, other: Specialisation, axes: Sequence[int], added: int) -> bool:
    """Whether a kernel of which `batch_axes` gave these computes a member as for a batch with so many axes more."""
    if made.schema.batch:
        return True
    wide = tuple(count + added if count else 0 for count in axes)
    return _batch_facts(other, wide) == _batch_facts(made, tuple(axes))


def promised_axes(schema: OpSchema, ranks: Sequence[int]) -> tuple[int, ...] | None:
    """How many axes of a promised batch each input begins with; None where none is promised."""
    return _axes_of(schema, schema.batch, ranks) if schema.batch else None


def _axes_of(schema: OpSchema, name: str, ranks: Sequence[int]) -> tuple[int, ...] | None:
    if schema.mutable or schema.late or len(ranks) != len(schema.inputs):
        return None
    results = []
    for argument, rank in zip(schema.inputs, ranks, strict=True):
        items = parse_dims(argument.dims)
        results.append(rank - len(items) + 1 if items[:1] == (Pack(name),) else 0)
    return tuple(results)


def _leading_pack(schema: OpSchema) -> str:
    """The name of the pack that all outputs, and some inputs, begin with, and no other dims hold."""
    names = set()
    for argument in schema.tensors:
        items = parse_dims(argument.dims)
        first = items[0] if items else None
        pack = first.name if isinstance(first, Pack) and first.count is None and first.name != "_" else ""
        if argument.form is Form.VARIADIC or any(isinstance(item, Pack) for item in items[1 if pack else 0 :]):
            return ""
        if pack or argument.role is Role.OUTPUT:
            names.add(pack)
    return names.pop() if len(names) == 1 else ""


def trouble_of(made: Specialisation) -> str:
    """Why the kernel is not elementwise; "" when it is."""
    return _element_facts(made)[0]


def operation_of(made: Specialisation) -> str:
    """The name of the opcode, where the kernel applies one to an element of each of two inputs and does no more."""
    return _element_facts(made)[1]


def _element_facts(made: Specialisation) -> tuple[str, str]:
    """Both; computed once for a specialisation."""
    return _kept(made, "_element_facts", lambda node: element_facts(made.graph.ir, node))


def _batch_facts(made: Specialisation, axes: tuple[int, ...]) -> tuple[str, str]:
    """Why members of the batch may depend on each other, and what is computed for one; computed once."""
    count = max(axes)
    outputs = (count,) * len(made.schema.outputs)
    return _kept(made, f"_batch_facts_{axes}", lambda node: batch_facts(made.graph.ir, node, (axes, outputs)))


def _kept(made: Specialisation, key: str, find: Callable[[Node], tuple[str, str]]) -> tuple[str, str]:
    known: tuple[str, str] | None = made.__dict__.get(key)
    if known is None:
        nodes = (node for node in made.graph.ir.nodes if isinstance(node, Node))
        node = next(node for node in nodes if node.kernel.schema.name == made.schema.name)
        with placed_on([made.where] if isinstance(made.where, Device) else []):
            known = made.__dict__[key] = find(node)
    return known


def signature_trouble(schema: OpSchema) -> str:
    """What in the signature keeps a kernel from being called on a row of elements for each tensor; "" when nothing."""
    for argument in schema.tensors:
        if argument.form is Form.VARIADIC:
            return f"'{argument.name}' stands for any number of tensors"
        if argument.form is Form.SCALAR:
            return f"'{argument.name}' is one number for all elements"
        if argument.role is Role.MUTABLE:
            return f"it changes '{argument.name}' in place"
    shapes = {argument.dims for argument in schema.tensors}
    if schema.late:
        return "sizes of its outputs are computed from elements"
    if not schema.inputs:
        return "it has no input"
    if len(shapes) != 1:
        return f"its tensors have different dims: {', '.join(sorted(repr(dims) for dims in shapes))}"
    if not is_flat(shapes.pop()):
        return f'its tensors have the dims "{schema.inputs[0].dims}" and not "*s" or "n"'
    return ""
