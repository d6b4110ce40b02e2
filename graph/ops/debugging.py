"""Stages ops that show what a graph computes while it runs, and ops about its order and its devices.

See also `findings.reports` (how reports of native code become text).
"""

from __future__ import annotations

from ...dsl.diagnostics.errors import DTypeError
from ...dsl.diagnostics.places import user_place
from ...dsl.types.dtype import DType
from ..arguments import text_of
from ..driver.devices import DeviceRef
from ..staging.value import BufferValue, TensorValue, TensorValueLike, Value
from ..types.tensor_type import TensorType
from .operands import same_device, tensor
from .stage import add_method, builtin, current, fail, op, stage

__all__ = ["assert_same_device", "fence", "print"]

_FAMILY = "debugging"


@op(
    dtypes={"value": "storable"},
    example='ops.print(value, label="hidden")',
    host_only="it reads the tensor in code of the host",
)
def print(value: str | TensorValueLike | BufferValue, label: str = "debug_tensor") -> None:
    """Prints a tensor, what a buffer holds at this point, or a text, when the graph runs; on the host only.

    Prints come in the order in which they are staged, and keep their places among changes of buffers. Of a tensor with
    more than 1000 elements the ends of each axis are shown.

    Args:
        value: what is printed.
        label: what stands before a tensor.

    Raises:
        DTypeError: EK0403, something else; EK0478 a label that is not a text.
    """
    if isinstance(value, str):
        kernel = current("print").kernels.builtin(_FAMILY, "print_text")
        stage(kernel, [], {"text": str(value)}, DeviceRef.CPU())
        return
    shown = value if isinstance(value, BufferValue) else tensor("print", "value", value)
    if isinstance(shown, BufferValue):
        current("print").check_value("print", "value", shown, user_place())
    head = f"{text_of('label', label)}: {shown.dtype}"
    done = TensorType(DType.int8, [0], shown.device)
    builtin(_FAMILY, "print_tensor", [shown], {"head": head}, [done])


@add_method(TensorValue, "print")
def _print_tensor(value: TensorValue, label: str = "debug_tensor") -> None:
    """See `ops.print`."""
    print(value, label)


@add_method(BufferValue, "print")
def _print_buffer(value: BufferValue, label: str = "debug_buffer") -> None:
    """See `ops.print`."""
    print(value, label)


@op(dtypes={"x": "storable"}, example="ops.fence(x)")
def fence(x: TensorValueLike, *others: TensorValueLike) -> TensorValue | list[TensorValue]:
    """The same tensor, in memory of its own, with the ops around it kept apart; of several tensors a list.

    Prints and changes of buffers that were staged before happen before it is made, those that are staged later happen
    after, and no kernel is fused across it.

    Raises:
        DTypeError: EK0403 or EK0411, no tensor.
    """
    values = [tensor("fence", "x", x), *(tensor("fence", f"others[{k}]", each) for k, each in enumerate(others))]
    apart = [builtin(_FAMILY, "fence", [value], {}, [value.type])[0] for value in values]
    return apart if others else apart[0]


@op(example="ops.assert_same_device(x, weight=y) or x")
def assert_same_device(*values: TensorValue | BufferValue, **named_values: TensorValue | BufferValue) -> None:
    """Refuses tensors and buffers that lie on different devices.

    Raises:
        GraphError: EK0430, they do.
        DTypeError: EK0403, one is neither a tensor nor a buffer.
    """
    operands: dict[str, Value] = {}
    for argument, value in {**{f"values[{k}]": v for k, v in enumerate(values)}, **named_values}.items():
        if not isinstance(value, Value):
            text = f"argument '{argument}' is neither a tensor nor a buffer but {type(value).__name__}"
            fail("assert_same_device", text, code="EK0403", kind=DTypeError, argument=argument)
        operands[argument] = value
    same_device("assert_same_device", operands)
