"""Says which kernels are elementwise: an element of an output is made of the inputs' elements at its place alone.

Such a kernel may be called on any piece of its arrays, under any number of further axes. NumPy's ufuncs and the
batching of JAX and PyTorch rest on that.

Input: a specialisation. Output: answers, with a reason for no. Non-goals: how that is found (see
`compiler.inference.facts`).
"""

from __future__ import annotations

from ...dsl.signature.dims import Axis, Pack
from ...dsl.signature.parse_dims import parse_dims
from ...dsl.signature.schema import Form, OpSchema, Role
from ..engine.compile import not_elementwise
from ..ir import Node
from .specialise import Specialisation


def adds_axis(made: Specialisation) -> bool:
    """Whether the kernel takes a further axis before those that all its tensors begin with, and means the same."""
    firsts = {parse_dims(a.dims)[:1] for a in made.schema.tensors if a.form is not Form.SCALAR}
    if len(firsts) != 1:
        return False
    first = firsts.pop()
    flat = bool(first) and isinstance(first[0], Pack) and first[0].count is None and first[0].name != "_"
    return flat and not made.late and not made.mutable and not trouble_of(made)


def trouble_of(made: Specialisation) -> str:
    """Why the kernel is not elementwise; "" when it is."""
    node = next(n for n in made.graph.ir.nodes if isinstance(n, Node) and n.kernel.schema.name == made.schema.name)
    return not_elementwise(made.graph.ir, node)


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
    items = parse_dims(shapes.pop())
    flat = len(items) == 1 and isinstance(items[0], Axis | Pack) and items[0].name != "_"
    if not flat or (isinstance(items[0], Pack) and items[0].count is not None):
        return f'its tensors have the dims "{schema.inputs[0].dims}" and not "*s" or "n"'
    return ""
