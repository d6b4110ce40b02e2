"""Answers functions of NumPy that are called with tensors of a graph.

An operator between an array and a tensor is that of the tensor: NumPy calls its ufunc for it. Functions that are called
by their names (`np.exp(x)`, `np.concatenate([x, y])`) raise an error with the op to write.
"""

from __future__ import annotations

from collections.abc import Callable
from typing import Final, NoReturn

from ...dsl.diagnostics.errors import DTypeError, GraphError
from ...dsl.diagnostics.extension_points import ExtensionPoint
from ...dsl.diagnostics.places import user_place

OP_FOR: ExtensionPoint[Callable[[str], str | None]] = ExtensionPoint("graph.ops.other_names", "op_for")

# The method of the right operand for each ufunc that NumPy calls for an operator.
REFLECTED: Final = {
    "add": "__radd__",
    "bitwise_and": "__rand__",
    "bitwise_or": "__ror__",
    "bitwise_xor": "__rxor__",
    "divide": "__rtruediv__",
    "equal": "__eq__",
    "floor_divide": "__rfloordiv__",
    "greater": "__lt__",
    "greater_equal": "__le__",
    "left_shift": "__rlshift__",
    "less": "__gt__",
    "less_equal": "__ge__",
    "matmul": "__rmatmul__",
    "multiply": "__rmul__",
    "not_equal": "__ne__",
    "power": "__rpow__",
    "remainder": "__rmod__",
    "right_shift": "__rrshift__",
    "subtract": "__rsub__",
}

OF_MASKED_ARRAYS: Final = "_data"  # the attribute that numpy.ma reads of each operand


def operator_of(
    tensor: object, name: str, method: str, inputs: tuple[object, ...], options: dict[str, object]
) -> object:
    """What a ufunc gives of an array on the left and a tensor on the right, which is an operator between them.

    Raises:
        GraphError: EK0450, it is called in another way.
    """
    reflected = REFLECTED.get(name)
    places = options.pop("out", None)  # of `array += tensor`, which makes a tensor
    plain = method == "__call__" and not options and (places is None or places == (inputs[0],))
    if reflected is None or not plain or inputs[0] is tensor or inputs[1] is not tensor:
        refuse(name if method == "__call__" else f"{name}.{method}", tensor)
    return getattr(tensor, reflected)(inputs[0])


def refuse(name: str, tensor: object) -> NoReturn:
    """Raises the error of a function of NumPy that is called with a tensor of a graph."""
    op = OP_FOR.get()(name)
    raise GraphError(
        f"np.{name} takes arrays, and a tensor has no elements while its graph is built",
        code="EK0450",
        place=user_place(),
        op=f"np.{name}",
        got=str(getattr(tensor, "type", None)),
        hint=f"write ops.{op}(...)" if op else "use the functions of ops, or run the graph",
    )


def refuse_mask() -> NoReturn:
    """Raises the error of an operator between a masked array and a tensor, which numpy.ma computes."""
    raise DTypeError(
        "a tensor is combined with a masked array, and its mask would be lost",
        code="EK0477",
        place=user_place(),
        expected="an array without a mask",
        hint="choose a value for masked elements: x.filled(0)",
    )
