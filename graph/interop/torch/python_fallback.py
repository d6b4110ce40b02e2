"""Runs a kernel on PyTorch's tensors from Python: what every call can fall back to, and where errors have their texts.

See also `op`.
"""

from __future__ import annotations

import contextlib
import dataclasses
from collections.abc import Mapping, Sequence
from contextlib import AbstractContextManager
from typing import Any

import torch

from ....dsl.diagnostics.errors import EinkornError, GraphError
from ....dsl.diagnostics.places import user_place
from ....dsl.signature.bind import Binding, bind
from ....dsl.signature.schema import Form, OpSchema, Role, TensorArgument
from ...driver.devices import DeviceRef
from ...driver.streams import DeviceStream, stream_of
from ...engine.model import Model
from ..arranged import Order
from ..explained import named
from ..specialise import AnyKernel, Specialisation, specialise
from ..tuned import Bounds, choice
from .layouts import back, in_order, order_of_call
from .sizes import plain_shape, sized, sized_shape
from .tensors import DTYPES, TORCH_DTYPES, device_of, dtype_of, flat, memory_of, tensors_of

Results = Any  # a tensor, a list of them for a variadic output, a tuple of these for several outputs


@dataclasses.dataclass
class Arguments:
    """What a call brings: tensors and numbers for inputs, a list for a variadic one; outputs where they are given."""

    inputs: list[Any]
    outputs: list[Any] | None
    parameters: dict[str, Any]
    special: Specialisation | None = None  # that it was served by
    bounds: Bounds = ()  # the sizes for which that was chosen
    order: Order = ()  # in which its tensors lie in memory

    @property
    def tensors(self) -> list[torch.Tensor]:
        return [value for value in flat([*self.inputs, *(self.outputs or ())]) if isinstance(value, torch.Tensor)]


class PythonFallback:
    """A kernel, as PyTorch calls it from Python."""

    def __init__(self, kernel: AnyKernel) -> None:
        self.kernel = kernel

    @property
    def has_backward(self) -> bool:
        """Whether something computes gradients."""
        return self.kernel.gradient is not None

    @property
    def schema(self) -> OpSchema:
        return self.kernel.schema

    # *** the arguments of a call ***

    def function_arguments(self, values: Sequence[object], parameters: Mapping[str, object]) -> Arguments:
        """The arguments of a call that makes its outputs."""
        return Arguments(list(values), None, self.parameters(parameters))

    def into_arguments(self, values: Sequence[object], parameters: Mapping[str, object]) -> Arguments:
        """The arguments of a call that is given its outputs, all in the order of the signature."""
        pairs = list(zip(self.schema.tensors, values, strict=True))
        inputs = [value for argument, value in pairs if argument.role is not Role.OUTPUT]
        outputs = [value for argument, value in pairs if argument.role is Role.OUTPUT]
        return Arguments(inputs, outputs, self.parameters(parameters))

    def parameters(self, given: Mapping[str, object]) -> dict[str, Any]:
        """Parameters as kernels take them; None stands for a default that schemas cannot write."""
        kinds = {p.name: p.kind for p in self.schema.parameters}
        values = {name: value for name, value in given.items() if value is not None}
        for name, value in values.items():
            if kinds.get(name) == "dtype":
                values[name] = DTYPES.get(value, value)
        return values

    # *** types alone ***

    def fake(self, call: Arguments) -> Results:
        """The outputs of a call with fake tensors; or nothing, where they are given."""
        special = self.specialisation(call)
        bound = self._check_shapes(special, call)
        if call.outputs is not None:
            return None
        device = next((t.device for t in call.tensors), torch.device("cpu"))
        order = order_of_call(special, flat(call.inputs))
        made = [
            torch.empty_permuted(plain_shape(shape), order, dtype=TORCH_DTYPES[dtype], device=device)
            if order
            else torch.empty(plain_shape(shape), dtype=TORCH_DTYPES[dtype], device=device)
            for dtype, shape in bound.outputs
        ]
        return self._grouped(special.schema, made)

    def _grouped(self, schema: OpSchema, made: Sequence[torch.Tensor]) -> Results:
        """The outputs as the op gives them."""
        results: list[Any] = []
        groups: dict[str, list[torch.Tensor]] = {a.name: [] for a in self.schema.outputs if a.form is Form.VARIADIC}
        spelled = list(zip(schema.outputs, made, strict=True))
        for argument in self.schema.outputs:
            if argument.form is Form.VARIADIC:
                groups[argument.name] = [t for a, t in spelled if a.group == argument.name]
                results.append(groups[argument.name])
            else:
                results.append(next(t for a, t in spelled if a.name == argument.name))
        return None if not results else results[0] if len(results) == 1 else tuple(results)

    # *** elements ***

    def specialisation(self, call: Arguments) -> Specialisation:
        """The kernel for tensors of these dtypes and ranks.

        Raises:
            GraphError, DTypeError, DeviceError: the signature does not take them.
        """
        op = self.schema.name
        given = [*zip(self.schema.inputs, call.inputs, strict=True)]
        if call.outputs is not None:
            given += zip(self.schema.outputs, call.outputs, strict=True)
        device = device_of([(a.name, tensor) for a, value in given for tensor in tensors_of(value)], op)
        kinds = [self._kinds(a, v) for a, v in zip(self.schema.inputs, call.inputs, strict=True)]
        outputs = None
        if call.outputs is not None:
            outputs = [dtype_of(t, op, "out") for t in flat(call.outputs)]
        return specialise(self.kernel, kinds, call.parameters, device, outputs=outputs)

    def _kinds(self, argument: TensorArgument, value: object) -> Any:
        if isinstance(value, list | tuple):
            return [self._kinds(argument, each) for each in value]
        if isinstance(value, torch.Tensor):
            return dtype_of(value, self.schema.name, argument.name), value.dim()
        return value

    def run(self, call: Arguments) -> Results:
        """The outputs of a call; or nothing, where they are given.

        Raises:
            GraphError, DTypeError, DeviceError: the arguments contradict the signature.
            KernelError: the kernel stopped itself.
        """
        special, call.bounds = self._tuned(self.specialisation(call), call)
        call.special = special
        try:
            return self._run(special, call)
        except EinkornError as error:
            raise named(error, special.schema) from error.__cause__

    def _tuned(self, special: Specialisation, call: Arguments) -> tuple[Specialisation, Bounds]:
        """What runs a call, with the parameters that tuning found. PyTorch passes defaults, too: a parameter with the
        value of its default counts as left out."""
        if not special.loaded.is_tuned:
            return special, ()
        defaults = {p.name: p.default for p in self.schema.parameters if not p.required}
        passed = [name for name, value in call.parameters.items() if name not in defaults or defaults[name] != value]
        return choice(special, [getattr(value, "shape", ()) for value in flat(call.inputs)], passed)

    def _run(self, special: Specialisation, call: Arguments) -> Results:
        given = flat(call.inputs)
        values = [memory_of(v) if isinstance(v, torch.Tensor) else v for v in given]
        order = order_of_call(special, values)
        if order:
            call.order = order
            values = in_order(values, special, order)
        shapes = [tuple(v.shape) if isinstance(v, torch.Tensor) else () for v in values]
        if special.device != DeviceRef.CPU():  # where nothing has gaps; what is changed in place stays where it is
            values = [v if k in special.mutable else _whole(v) for k, v in enumerate(values)]
        with on_current_stream(special.device):
            made = self._made(special, call, values, shapes, order)
        for position in special.mutable:
            if not given[position].is_inference():
                torch.autograd.graph.increment_version(given[position])
        if call.outputs is None:
            return self._grouped(special.schema, made)
        for tensor in made:
            if not tensor.is_inference():
                torch.autograd.graph.increment_version(tensor)
        return None

    def _made(
        self,
        special: Specialisation,
        call: Arguments,
        values: list[object],
        shapes: list[tuple[int, ...]],
        order: Order,
    ) -> list[torch.Tensor]:
        given = call.outputs is not None
        if call.outputs is None and special.late:
            return [torch.from_dlpack(buffer) for buffer in special.model.execute(*values)]
        if call.outputs is None:
            device = next((v.device for v in values if isinstance(v, torch.Tensor)), torch.device("cpu"))
            pairs = zip(special.outputs, special.output_shapes(shapes), strict=True)
            made = [torch.empty(shape, dtype=TORCH_DTYPES[type.dtype], device=device) for type, shape in pairs]
        else:
            made = flat(call.outputs)
        try:
            run_model(special.model, values, [t.permute(order) for t in made] if given and order else made)
        except GraphError as error:
            if call.outputs is not None and error.code == "EK0454":
                self._check_shapes(special, call)
            raise
        return [tensor.permute(back(order)) for tensor in made] if order and not given else made

    def _check_shapes(self, special: Specialisation, call: Arguments) -> Binding:
        """What names in the signature mean for the tensors of a call, those of outputs among them.

        Raises:
            GraphError: they contradict each other.
        """
        values = flat(call.inputs)
        shapes = [sized_shape(v.shape) if isinstance(v, torch.Tensor) else () for v in values]
        specs = [(type.dtype, shape) for type, shape in zip(special.inputs, shapes, strict=True)]
        wanted, late = None, {}
        if call.outputs is not None:
            types = zip(special.outputs, flat(call.outputs), strict=True)
            wanted = [(type.dtype, sized_shape(tensor.shape)) for type, tensor in types]
        elif special.late:
            late = {name: sized(torch.library.get_ctx().new_dynamic_size()) for name in special.schema.late}
        place = user_place()
        return bind(special.schema, specs, special.parameters, expected_outputs=wanted, late=late, place=place)

    # *** gradients ***

    def check_gradients(self, call: Arguments) -> None:
        """Refuses to lose a gradient: of an op without backward, and of one that is given its outputs.

        Raises:
            GraphError: EK0881.
        """
        given = call.outputs is not None
        if (self.has_backward and not given) or not torch.is_grad_enabled():
            return
        schema = self.schema
        if not any(_has_gradients(schema, a) for a in (*schema.outputs, *schema.mutable)):
            return
        names = [argument.name for argument in (*schema.inputs, *schema.outputs)]
        for name, value in zip(names, [*call.inputs, *(call.outputs or ())], strict=False):
            if any(tensor.requires_grad for tensor in tensors_of(value)):
                why = "no gradient flows into outputs that are given" if given else "the op has no backward"
                short = schema.name.rpartition("::")[2]
                way = "call it without out=" if given else f"define one by @{short}.backward"
                raise GraphError(
                    f"op {schema.name!r}: argument {name!r} requires a gradient, and {why}",
                    code="EK0881",
                    place=user_place(),
                    op=schema.name,
                    argument=name,
                    expected="a tensor that requires no gradient",
                    got="requires_grad=True",
                    hint=f"{way}, or call it under torch.no_grad() or with {name}.detach()",
                )


def run_model(model: Model, values: Sequence[object], outputs: Sequence[torch.Tensor]) -> None:
    """Runs a model on tensors, into others; those whose memory is not in order, or not theirs, are copied to."""
    memory = [t if _is_plain(t) else torch.empty_like(t, memory_format=torch.contiguous_format) for t in outputs]
    model.execute(*values, out=[tensor.detach() for tensor in memory])
    for tensor, written in zip(outputs, memory, strict=True):
        if tensor is not written:
            tensor.copy_(written)


def _is_plain(tensor: torch.Tensor) -> bool:
    return bool(tensor.is_contiguous() and not tensor.is_neg())


def _whole(value: object) -> Any:
    return value.contiguous() if isinstance(value, torch.Tensor) else value


def on_current_stream(device: DeviceRef) -> AbstractContextManager[Any]:
    """Sends what kernels do to the stream that PyTorch works on."""
    if device == DeviceRef.CPU():
        return contextlib.nullcontext()
    handle, driver = torch.cuda.current_stream(device.id).cuda_stream, device.to_device().driver
    entry = _streams.get((driver, handle))
    if entry is None:
        entry = _streams[driver, handle] = stream_of(driver, handle)
    return entry


_streams: dict[tuple[object, int], DeviceStream] = {}


def _has_gradients(schema: OpSchema, argument: TensorArgument) -> bool:
    return any(dtype.is_float() or dtype.is_complex() for dtype in schema.allowed(argument.dtype))
