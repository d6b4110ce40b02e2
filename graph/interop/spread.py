"""Computes how the shapes of a call broadcast: for each input which of its axes are repeated.

    add(matrix, row)      shapes (3, 4) and (4,): spread ((False, False), (False,))
    add(column, row)      shapes (3, 1) and (1, 4): spread ((False, True), (True, False))
    add(x, 1.0)           shapes (8,) and (): spread ((False,), ())

Leading axes that an input lacks are repeated, too. Equal shapes have no spread (None). The rules are NumPy's.

See also `elementwise` (whether a kernel is elementwise).
"""

from __future__ import annotations

from collections.abc import Sequence

from ...dsl.signature.dims import Axis, Pack
from ...dsl.signature.parse_dims import parse_dims
from ...dsl.signature.schema import Form, OpSchema, Role

Spread = tuple[tuple[bool, ...], ...]
Shape = tuple[int, ...]


def joint_inputs(schema: OpSchema) -> tuple[int, ...]:
    """The positions of the inputs that broadcast together: all but scalars, where their dims are all "*s", or all "n".

    Empty for other signatures.
    """
    tensors = [argument for argument in schema.tensors if argument.form is not Form.SCALAR]
    dims = {argument.dims for argument in tensors}
    plain = all(argument.form is Form.TENSOR and argument.role is not Role.MUTABLE for argument in tensors)
    if not plain or schema.late or len(dims) != 1 or not is_flat(dims.pop()):
        return ()
    return tuple(k for k, argument in enumerate(schema.inputs) if argument.form is not Form.SCALAR)


def is_flat(dims: str) -> bool:
    """Whether a dims text is one named axis, or one named pack of any number of axes."""
    items = parse_dims(dims)
    if len(items) != 1 or not isinstance(items[0], Axis | Pack) or items[0].name == "_":
        return False
    return isinstance(items[0], Axis) or items[0].count is None


def is_one_axis(schema: OpSchema) -> bool:
    """Whether each of the inputs that broadcast has exactly one axis."""
    return any(isinstance(parse_dims(schema.inputs[k].dims)[0], Axis) for k in joint_inputs(schema))


def common_shape(shapes: Sequence[Shape]) -> Shape | None:
    """The shape to which all of these broadcast; None where there is none."""
    longest = max(shapes, key=len)
    results = [*longest]
    for shape in shapes:
        offset = len(results) - len(shape)
        for axis, size in enumerate(shape, offset):
            if results[axis] == 1:
                results[axis] = size
            elif size not in (1, results[axis]):
                return None
    return tuple(results)


def spread_of(shapes: Sequence[Shape]) -> Spread | None:
    """The spread of inputs of these shapes; None where they are equal, or do not broadcast."""
    if not shapes or shapes.count(shapes[0]) == len(shapes):
        return None
    common = common_shape(shapes)
    if common is None:
        return None
    return tuple(
        tuple(size != wanted for size, wanted in zip(shape, common[len(common) - len(shape) :], strict=True))
        for shape in shapes
    )
