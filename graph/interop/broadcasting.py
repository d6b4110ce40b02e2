"""Broadcasts calls of elementwise kernels where no specialisation does it, and says why other calls do not broadcast.

See also `spread` and `specialise` (how specialisations broadcast).
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import replace
from typing import Any

import numpy as np

from ...dsl.diagnostics.errors import EinkornError
from ...dsl.diagnostics.places import user_place
from ...dsl.package.library import LoadedKernel
from ...dsl.types.dtype import DType
from ..ops.constant import constant
from ..ops.movement import broadcast_to
from ..ops.operands import broadcast_shapes
from ..types.dims import Dim
from ..types.promotion import weak_array
from .binding import BoundCall
from .elementwise import trouble_of
from .explained import advised, explained_mismatch
from .kinds import NUMBER, NUMPY, Operand
from .specialise import AnyKernel, ArgumentKind, PreparedKernel, Specialisation, prepared, specialise, specialised
from .spread import Shape, Spread, common_shape, is_one_axis


def as_views(state: PreparedKernel, operands: list[Operand], memory: Sequence[Operand | None] | None) -> list[Operand]:
    """The operands, arrays of the host repeated as views where no specialisation does it.

    These are calls of kernels whose parameters are tuned, and calls with memory for a larger output than the inputs'.
    """
    joint = [operands[k] for k in state.joint]
    shapes = [operand.shape for operand in joint]
    common = common_shape(shapes)
    outs = [m.shape for m in memory or () if m is not None]
    larger = common is not None and any(shape != common and common_shape([common, shape]) == shape for shape in outs)
    tuned = state.loaded.tuning is not None and shapes.count(shapes[0]) < len(shapes)
    if common is None or not (larger or tuned) or any(o.kind not in (NUMPY, NUMBER) for o in joint):
        return operands
    target = common_shape([common, *outs])
    if target is None or (is_one_axis(state.schema) and len(target) != 1):
        return operands
    return [_repeated(operand, target) if k in state.joint else operand for k, operand in enumerate(operands)]


def _repeated(operand: Operand, shape: Shape) -> Operand:
    if operand.kind == NUMBER:  # it is repeated by the specialisation
        return operand
    return replace(operand, value=np.broadcast_to(operand.value, shape), shape=shape)


def mismatch(
    kernel: AnyKernel | LoadedKernel,
    state: PreparedKernel,
    given: BoundCall,
    operands: Sequence[Operand],
    kinds: Sequence[ArgumentKind],
    spread: Spread | None,
) -> EinkornError | None:
    """What contradicts the signature in a call that no specialisation serves."""
    schema, joint = state.schema, state.joint
    common = common_shape([operands[k].shape for k in joint]) if spread is not None else None
    single = is_one_axis(schema)
    if common is not None and (len(common) == 1 or not single):  # the shapes are right
        repeated = [replace(each, shape=common) if k in joint else each for k, each in enumerate(operands)]
        return explained_mismatch(schema, given, repeated)
    wrong = explained_mismatch(schema, given, operands)
    if wrong is None:
        return None
    trouble = ""
    if single and any(len(operands[k].shape) > 1 for k in joint):
        dtypes = [kinds[k][0] for k in joint if isinstance(kinds[k], tuple)]  # type: ignore[index]
        rows = [(dtypes[0], 1) if k in joint else kind for k, kind in enumerate(kinds)]
        try:
            trouble = trouble_of(specialised(kernel, state, rows, given.counts, given.parameters))
        except EinkornError:  # of dtypes, which the mismatch says
            return wrong
    return wrong if trouble else advised(wrong, schema, operands, "")


def check_elementwise(made: Specialisation, given: BoundCall, operands: Sequence[Operand]) -> None:
    """Refuses a call that would broadcast the arguments of a kernel that is not elementwise.

    Raises:
        GraphError: EK0311, EK0312 the shapes contradict the signature.
    """
    trouble = trouble_of(made)
    if trouble and (wrong := explained_mismatch(made.schema, given, operands)) is not None:
        raise advised(wrong, made.schema, operands, trouble)


def broadcast_shape(
    kernel: AnyKernel, shapes: Sequence[Shape], dtypes: Sequence[DType | None], parameters: Mapping[str, object]
) -> Shape | None:
    """The shape to which the inputs that broadcast are repeated; None for equal shapes, and where a call does not
    broadcast.

    Args:
        shapes: of each input; () for a number.
        dtypes: of each input; None for a number.
    """
    state = prepared(kernel)
    joint = state.joint
    if not joint or len(shapes) != len(state.schema.inputs):
        return None
    common = common_shape([shapes[k] for k in joint])
    if common is None or all(shapes[k] == common for k in joint) or (is_one_axis(state.schema) and len(common) != 1):
        return None
    known = next((dtypes[k] for k in joint if dtypes[k] is not None), None) or DType.float32
    kinds = [
        (dtype or known, len(common) if k in joint else len(shape))
        for k, (shape, dtype) in enumerate(zip(shapes, dtypes, strict=True))
    ]
    try:
        return None if trouble_of(specialise(kernel, kinds, parameters)) else common
    except EinkornError:  # the call says it
        return None


def broadcast_values(state: PreparedKernel, args: tuple[Any, ...], parameters: Mapping[str, object]) -> tuple[Any, ...]:
    """Values of a graph, or tensors of `einkorn.tensor`, of which those that broadcast get their common shape.

    Raises:
        GraphError: EK0420 their shapes do not broadcast.
    """
    schema, joint = state.schema, state.joint
    tensors = {k: args[k] for k in joint if hasattr(args[k], "shape") and isinstance(args[k].dtype, DType)}
    numbers = [k for k in joint if type(args[k]) in (bool, int, float, complex)]
    rank = max((len(value.shape) for value in tensors.values()), default=0)
    if not tensors or len(tensors) + len(numbers) < len(joint) or (is_one_axis(schema) and rank != 1):
        return args
    first = next(iter(tensors.values()))
    own = [getattr(value, "dtype", None) for value in args]
    kinds = [(dtype or first.dtype, rank if k in joint else 0) for k, dtype in enumerate(own)]
    try:
        if trouble_of(specialise(state.loaded, kinds, parameters)):
            return args
    except EinkornError:  # the call says it
        return args
    shape: tuple[Any, ...] = ()
    for k, value in tensors.items():
        shape = broadcast_shapes(schema.name, shape, tuple(map(Dim, value.shape)), schema.inputs[k].name)
    make = getattr(type(first), "constant", constant)  # of `einkorn.tensor`, or of the graph
    for k in numbers:
        declared = schema.inputs[k].dtype
        dtype = declared if isinstance(declared, DType) else first.dtype
        array = weak_array(args[k], dtype, f"op '{schema.name}'", schema.inputs[k].name, user_place())
        tensors[k] = make(array, dtype=dtype, device=first.device)
    return tuple(broadcast_to(tensors[k], shape) if k in tensors else value for k, value in enumerate(args))
