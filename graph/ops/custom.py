"""`custom`: a kernel of the user's, as a node like any other.

Input: a name, tensors, parameters. Output: the results of a kernel node, typed by its signature. Non-goals: loading of
libraries (see `extensions`) and the rules of signatures (see `dsl.signature`).
"""

from __future__ import annotations

from collections.abc import Iterable, Mapping
from typing import TYPE_CHECKING, Any, NoReturn

from ...dsl.errors import PackageError, did_you_mean
from ...dsl.schema import Role
from ..device import Device, DeviceRef
from ..ir import KernelSource
from ..type import TensorType
from ..value import TensorValue, TensorValueLike
from .staging import current, fail, op, same_device, stage, tensor

if TYPE_CHECKING:
    from ...dsl.library import LoadedKernel


@op
def custom(
    name: str,
    device: DeviceRef | Device,
    values: Iterable[TensorValueLike],
    out_types: Iterable[TensorType] | None = None,
    parameters: Mapping[str, bool | int | float | str | Any] | None = None,
) -> list[TensorValue]:
    """Calls a registered kernel from the graph's custom extensions.

    Args:
        name: the name under which the kernel is registered.
        device: where it runs; all `values` lie there.
        values: one tensor for each input of the signature, in order.
        out_types: one type for each output. May be left out where the signature tells the outputs from the inputs;
            when given, it is checked against the signature.
        parameters: the compile-time parameters by name; those with defaults may be left out.

    Raises:
        PackageError: EK0440, no library has an op of this name.
        GraphError, DTypeError: the call contradicts the signature; `values` lie on several devices; the kernel changes
            an input in place.
    """
    graph = current("custom")
    kernel = graph.kernels.find(name)
    if kernel is None:
        _fail_unknown(name, graph.kernels)
    target = DeviceRef.from_device(device)
    _check_pure(name, kernel)
    inputs = kernel.schema.inputs
    labelled = [(inputs[k].name if k < len(inputs) else f"values[{k}]", value) for k, value in enumerate(values)]
    operands = [tensor(name, label, value) for label, value in labelled]
    same_device(name, {label: value for (label, _), value in zip(labelled, operands, strict=True)}, target)
    expected = None if out_types is None else list(out_types)
    _check_out_types(name, expected, target)
    return stage(kernel, operands, parameters or {}, target, expected)


def _fail_unknown(name: str, kernels: KernelSource) -> NoReturn:
    known = sorted(kernels.names())
    searched = list(kernels.searched())
    shown = f"{', '.join(known[:10])}{', …' if len(known) > 10 else ''}"
    listed = f"they have {shown}" if known else "they have no ops"
    notes = [f"searched {', '.join(searched)}; {listed}"] if searched else ["the graph has no custom extensions"]
    fail(
        "custom",
        f"there is no op {name!r}",
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
    for argument in kernel.schema.inputs:
        if argument.role is Role.MUTABLE:
            fail(
                name,
                f"the kernel changes '{argument.name}' in place, and tensors of a graph never change",
                code="EK0442",
                argument=argument.name,
                expected="InputTensor",
                got="MutableInputTensor",
                hint="write the result to an OutputTensor",
            )


def _check_out_types(name: str, expected: list[TensorType] | None, device: DeviceRef) -> None:
    for position, type in enumerate(expected or ()):
        if not isinstance(type, TensorType):
            fail(
                name,
                f"out_types[{position}] is not a TensorType but {type!r}",
                code="EK0441",
                argument="out_types",
                expected="TensorType",
                got=type,
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
