"""Says which kernels are elementwise: an element of an output is made of the inputs' elements at its place alone.

Such a kernel may be called on any piece of its arrays, under any number of further axes. NumPy's ufuncs and the
batching of JAX and PyTorch rest on that. Of other kernels the author may promise it for the axes of a batch.

See also `compiler.inference.facts` (how that is found).
"""

from __future__ import annotations

from collections.abc import Sequence

from ...dsl.signature.dims import Pack
from ...dsl.signature.parse_dims import parse_dims
from ...dsl.signature.schema import Form, OpSchema, Role
from ..driver.devices import Device, placed_on
from ..ir import Node
from ..loading.compile import element_facts
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


def batch_axes(schema: OpSchema, ranks: Sequence[int]) -> tuple[int, ...] | None:
    """How many axes of its batch each input begins with, for inputs of these ranks; None where no batch is promised."""
    if not schema.batch or schema.mutable or schema.late or len(ranks) != len(schema.inputs):
        return None
    found = []
    for argument, rank in zip(schema.inputs, ranks, strict=True):
        items = parse_dims(argument.dims)
        found.append(rank - len(items) + 1 if items[:1] == (Pack(schema.batch),) else 0)
    return tuple(found)


def trouble_of(made: Specialisation) -> str:
    """Why the kernel is not elementwise; "" when it is."""
    return _element_facts(made)[0]


def operation_of(made: Specialisation) -> str:
    """The name of the opcode, where the kernel applies one to an element of each of two inputs and does no more."""
    return _element_facts(made)[1]


def _element_facts(made: Specialisation) -> tuple[str, str]:
    """Both; computed once for a specialisation."""
    known: tuple[str, str] | None = made.__dict__.get("_element_facts")
    if known is None:
        nodes = (node for node in made.graph.ir.nodes if isinstance(node, Node))
        node = next(node for node in nodes if node.kernel.schema.name == made.schema.name)
        with placed_on([made.where] if isinstance(made.where, Device) else []):
            known = made.__dict__["_element_facts"] = element_facts(made.graph.ir, node)
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
