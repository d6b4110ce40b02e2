"""Stages kernels of the user's: `custom` and `inplace_custom`.

See also `loading.load` (loading of libraries), `dsl.signature.bind` (the rules of signatures).
"""

from __future__ import annotations

from collections.abc import Iterable, Mapping
from typing import Any, NoReturn

from ...dsl.diagnostics.collecting import Broken
from ...dsl.diagnostics.errors import PackageError, brief, did_you_mean, shown_value
from ...dsl.diagnostics.places import user_place
from ...dsl.frontend.caller import Called
from ...dsl.package.library import LoadedKernel, loaded_kernel
from ...dsl.signature.parameters import bind_parameters
from ...dsl.signature.schema import OpSchema, Role
from ...dsl.signature.variadic import counted_inputs, counted_outputs
from ...dsl.types.dtype import DType
from ..arguments import list_of, wrong
from ..driver.devices import Device, DeviceRef
from ..ir import KernelSource
from ..staging.value import BufferValue, TensorValue, TensorValueLike, Value
from ..types.dims import StaticDim
from ..types.promotion import is_weak, weak_array
from ..types.tensor_type import TensorType
from .buffers import buffer_load
from .operands import same_device, tensor
from .stage import current, fail, op, stage
from .tuned import tuned


@op(dtypes={}, example='ops.custom("row_total", DeviceRef.CPU(), [x])')
def custom(
    name: str | Called,
    device: DeviceRef | Device,
    values: Iterable[TensorValueLike],
    out_types: Iterable[TensorType] | None = None,
    parameters: Mapping[str, bool | int | float | str | object] | None = None,
) -> list[TensorValue]:
    """Calls a registered kernel from the graph's custom extensions.

    Args:
        name: the name under which the kernel is registered, or the kernel itself.
        device: where it runs; all `values` lie there.
        values: one tensor for each input of the signature, in order; a buffer is read as it is at this point. Where an
            input has no axes (a scalar, `s: Float32`), a plain number does, and becomes a constant of the declared
            dtype. The tensors of a variadic argument are a list in its place; without other open arguments they may
            stand among the rest.
        out_types: one type for each output. May be left out where the signature derives the outputs from the inputs;
            when given, it is checked against the signature.
        parameters: the compile-time parameters by name; those with defaults may be left out.

    Raises:
        PackageError: EK0440, no library has an op of this name.
        GraphError, DTypeError: the call contradicts the signature; `values` lie on several devices; EK0442 the kernel
            changes an input in place (see `inplace_custom`).
    """
    return _call("custom", name, device, values, out_types, parameters)


@op(dtypes={}, example='ops.inplace_custom("axpy_into", DeviceRef.CPU(), [y, 2.0, x])')
def inplace_custom(
    name: str | Called,
    device: DeviceRef | Device,
    values: Iterable[TensorValueLike],
    out_types: Iterable[TensorType] | None = None,
    parameters: Mapping[str, bool | int | float | str | object] | None = None,
) -> list[TensorValue]:
    """Calls a registered kernel that changes buffers in place.

    As `custom`, with a `BufferValue` for each `MutableInputTensor` of the signature; other inputs take one too, and
    read it as it is at this point. What is staged before and after happens before and after.

    Raises:
        PackageError: EK0440, no library has an op of this name.
        GraphError, DTypeError: the call contradicts the signature; EK0460 something that is changed in place is no
            buffer, or no buffer is given; EK0463 a buffer is changed and stands for another argument, too.
    """
    return _call("inplace_custom", name, device, values, out_types, parameters)


def _call(
    caller: str,
    name: str | Called | LoadedKernel,
    device: DeviceRef | Device,
    values: Iterable[TensorValueLike],
    out_types: Iterable[TensorType] | None,
    parameters: Mapping[str, object] | None,
) -> list[TensorValue]:
    graph = current(caller)
    kernel = name if isinstance(name, LoadedKernel) else loaded_kernel(name) if isinstance(name, Called) else None
    if kernel is not None:
        name = kernel.schema.name
    if isinstance(name, Broken) and name.error is not None:
        raise name.error
    if not isinstance(name, str):
        wrong("name", name, "the name of an op, or a kernel")
    kernel = kernel or graph.kernels.find(name)
    if kernel is None:
        _fail_unknown(name, graph.kernels)
    target = DeviceRef.from_device(device)
    expected = None if out_types is None else list_of("out_types", out_types, "types", "EK0441")
    given = {} if parameters is None else _parameters(parameters)
    _check_out_types(name, expected, target)
    kernel, flat = _spelled_out(kernel, list_of("values", values, "tensors"), given, expected)
    if caller == "custom":
        _check_pure(name, kernel)
    else:
        _check_buffers(name, kernel.schema, flat)
    operands = _operands(name, kernel.schema, flat, given, expected, target, caller != "custom")
    return stage(kernel, operands, tuned(kernel, operands, given, target), target, expected)


def _parameters(parameters: object) -> dict[str, Any]:
    if not isinstance(parameters, Mapping) or not all(isinstance(name, str) for name in parameters):
        wrong("parameters", parameters, "a dict of values by name")
    return dict(parameters)


def _spelled_out(
    kernel: LoadedKernel, values: list[object], parameters: Mapping[str, object], expected: list[TensorType] | None
) -> tuple[LoadedKernel, list[Any]]:
    """The kernel for as many tensors as its variadic arguments get, and all tensors in one list."""
    schema, place = kernel.schema, user_place()
    if not schema.variadic:
        return kernel, values
    bound = bind_parameters(schema, parameters, place=place)
    counts, flat = counted_inputs(schema, values, bound, place)
    counts = counted_outputs(schema, counts, bound, None if expected is None else len(expected), place)
    return kernel.expanded(counts), flat


def _operands(
    name: str,
    schema: OpSchema,
    values: list[Any],
    parameters: Mapping[str, Any],
    expected: list[TensorType] | None,
    device: DeviceRef,
    inplace: bool,
) -> list[Value]:
    """One value for each input. A plain number becomes a constant where the signature takes a tensor without axes."""
    inputs = schema.inputs
    labels = [inputs[k].name if k < len(inputs) else f"values[{k}]" for k in range(len(values))]
    numbers = {k for k, value in enumerate(values[: len(inputs)]) if not inputs[k].dims.strip() and _is_number(value)}
    operands: dict[int, Value] = {}
    for k, value in enumerate(values):
        if isinstance(value, BufferValue):
            operands[k] = value if inplace else buffer_load(value)
        elif k not in numbers:
            operands[k] = tensor(name, labels[k], value)
    same_device(name, {labels[k]: value for k, value in operands.items()}, device)
    known: dict[Any, DType] = {
        name: parameters[name.lower()] for name, _ in schema.typevars if name.lower() in parameters
    }
    known |= {argument.dtype: type.dtype for argument, type in zip(schema.outputs, expected or (), strict=False)}
    known |= {inputs[k].dtype: value.dtype for k, value in reversed(operands.items()) if k < len(inputs)}
    for k in sorted(numbers):
        declared = inputs[k].dtype
        dtype = declared if isinstance(declared, DType) else known.get(declared)
        if dtype is None:
            tensor(name, labels[k], values[k])  # refused: its dtype is unknown
        else:
            array = weak_array(_plain(values[k]), dtype, name, labels[k], user_place())
            operands[k] = current(name).stage_constant(array, device, user_place())
    return [operands[k] for k in range(len(values))]


def _is_number(value: object) -> bool:
    return isinstance(value, StaticDim) or (is_weak(value) and getattr(value, "ndim", 0) == 0)


def _plain(value: Any) -> Any:
    return int(value) if isinstance(value, StaticDim) else value


def _fail_unknown(name: str, kernels: KernelSource) -> NoReturn:
    known = sorted(kernels.names())
    searched = list(kernels.searched())
    shown = f"{', '.join(known[:10])}{', …' if len(known) > 10 else ''}"
    listed = f"they have {shown}" if known else "they have no ops"
    notes = [f"searched {', '.join(searched)}; {listed}"] if searched else ["the graph has no custom extensions"]
    fail(
        "custom",
        f"there is no op {brief(name)}",
        code="EK0440",
        kind=PackageError,
        argument="name",
        expected=known,
        got=name,
        notes=notes,
        hint=did_you_mean(name, known)
        or (None if searched else "pass Graph(..., custom_extensions=['kernels/']) with the folder that has it"),
    )


def _check_pure(name: str, kernel: LoadedKernel) -> None:
    for argument in kernel.schema.mutable:
        fail(
            name,
            f"the kernel changes '{argument.name}' in place, and tensors of a graph never change",
            code="EK0442",
            argument=argument.name,
            expected="InputTensor",
            got="MutableInputTensor",
            hint="call it with ops.inplace_custom and a buffer: an input of a BufferType, or ops.buffer_create(type)",
        )


def _check_buffers(name: str, schema: OpSchema, values: list[object]) -> None:
    """What is changed is a buffer, and no other argument of the call."""
    pairs = list(zip(schema.inputs, values, strict=False))
    for argument, value in pairs:
        if argument.role is Role.MUTABLE and not isinstance(value, BufferValue):
            fail(
                name,
                f"argument '{argument.name}' is changed in place, and {_kind(value)} cannot be",
                code="EK0460",
                argument=argument.name,
                expected="BufferValue",
                got=type(value).__name__,
                hint="take it as an input of a BufferType, or make one with ops.buffer_create(type)",
            )
        shared = [a.name for a, v in pairs if a is not argument and v is value]
        if argument.role is Role.MUTABLE and shared:
            fail(
                name,
                f"argument '{argument.name}' is changed in place, and is also argument '{shared[0]}'",
                code="EK0463",
                argument=argument.name,
                expected="a buffer of its own",
                got=repr(value),
                hint="pass what it holds: ops.buffer_load(x)",
            )
    if not any(isinstance(value, BufferValue) for value in values):
        hint = "call it with ops.custom" if not schema.mutable else None
        text = "none of the values is a buffer"
        fail(name, text, code="EK0460", argument="values", expected="BufferValue", hint=hint)


def _kind(value: object) -> str:
    return "a tensor" if isinstance(value, TensorValue) else f"a {type(value).__name__}"


def _check_out_types(name: str, expected: list[TensorType] | None, device: DeviceRef) -> None:
    for position, type in enumerate(expected or ()):
        if not isinstance(type, TensorType):
            fail(
                name,
                f"out_types[{position}] is not a TensorType but {shown_value(type)}",
                code="EK0441",
                argument="out_types",
                expected="TensorType",
                got=shown_value(type),
            )
        if type.device != device:
            fail(
                name,
                f"out_types[{position}] lies on {type.device}, and the op runs on {device}",
                code="EK0430",
                argument="out_types",
                expected=str(device),
                got=str(type.device),
            )
