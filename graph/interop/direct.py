"""Calls kernels like functions: `add_one(x)`.

A call is sorted (`binding`), its arguments are distinguished (`kinds`), a specialisation is found for their dtypes and
ranks (`specialise`), and its model runs it. Outputs come back as what the caller passed. Within a graph that is being
built, a call with its values stages the op instead.
"""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from dataclasses import replace
from typing import Any

import numpy as np

from ...dsl.diagnostics.errors import DTypeError, EinkornError, GraphError
from ...dsl.diagnostics.extension_points import ExtensionPoint
from ...dsl.diagnostics.places import user_place
from ...dsl.environment.tracebacks import placed
from ...dsl.package.library import LoadedKernel
from ...dsl.signature.axis_names import open_sizes
from ...dsl.signature.schema import Form, OpSchema, Role
from ...dsl.types.dtype import DType
from ..driver.buffer import Buffer
from ..driver.devices import CPU, Device
from ..ops.custom import custom, inplace_custom
from ..staging.value import Value
from ..types.promotion import weak_array
from .arranged import Arranged, arranged
from .binding import OUT, BoundCall, bind_call
from .explained import explained
from .fast_path import serve
from .kinds import NUMBER, Operand, as_kind, device_of_call, kind_of_results, library_of, operand_of
from .outputs import OutputPlace, check_apart, check_rank, checked, filled, memory_of
from .repeated import MISS, keep, look_of
from .specialise import AnyKernel, ArgumentKind, PreparedKernel, Specialisation, prepared, specialised
from .spread import spread_of

# Libraries whose tensors reach kernels by ops that are registered with them: what calls them so.
LIBRARIES: dict[str, ExtensionPoint[Callable[..., Any]]] = {
    "torch": ExtensionPoint("graph.interop.torch.callers", "call"),
    "jax": ExtensionPoint("graph.interop.jax", "call"),
}
TROUBLE_OF: ExtensionPoint[Callable[[Specialisation], Any]] = ExtensionPoint("graph.interop.elementwise", "trouble_of")
TUNED: ExtensionPoint[Callable[..., Any]] = ExtensionPoint("graph.interop.tuned", "tuned")
BROADCASTING: ExtensionPoint[Any] = ExtensionPoint("graph.interop.broadcasting")  # loaded when shapes differ
OWN = (np.ndarray, np.generic, Buffer, bool, int, float, str, type(None))
HOOK = "__einkorn_call__"  # of a class whose objects know themselves what a call with them is


@placed
def call(kernel: AnyKernel, args: tuple[object, ...], kwargs: Mapping[str, object]) -> Any:
    """What `kernel(*args, **kwargs)` means.

    Raises:
        GraphError, DTypeError, DeviceError: the call contradicts the signature.
        CompileError: a mistake in the kernel.
        KernelError: the kernel stopped itself.
    """
    state = prepared(kernel)
    state.refresh_checks()
    laid = arranged(state.joint, args, kwargs) if state.joint else None
    if laid is None or not _is_elementwise(kernel, state, laid):
        result = _answer(kernel, state, args, kwargs)
        serve(kernel, state, args, kwargs)
        return result
    try:
        result = laid.restored(_answer(kernel, state, laid.args, laid.kwargs), kwargs.get(OUT))
    except (DTypeError, GraphError):  # nothing has run: the error is one of the call as it is written
        return _answer(kernel, state, args, kwargs)
    serve(kernel, state, args, kwargs, laid)
    return result


def _is_elementwise(kernel: AnyKernel, state: PreparedKernel, laid: Arranged) -> bool:
    """Whether the kernel computes the same with the axes in another order."""
    look = look_of(laid.args, laid.kwargs, state.joint)
    known = state.elementwise.get(look) if look is not None else None
    if known is None:
        try:
            given = bind_call(state.schema, laid.args, laid.kwargs)
            operands = _operands(state.schema, given)
            result = _specialised(kernel, state, given, operands, CPU(), None)
        except EinkornError:  # the call says it
            return False
        known = not TROUBLE_OF.get()(result)
        if look is not None:
            state.elementwise[look] = known
    return known


def _answer(kernel: AnyKernel, state: PreparedKernel, args: tuple[object, ...], kwargs: Mapping[str, object]) -> Any:
    look = look_of(args, kwargs, state.joint)
    if look is not None:
        known = state.looks.get(look)
        if known is not None:
            result = known.run(args, kwargs.get(OUT))
            if result is not MISS:
                return result
    given = bind_call(state.schema, args, kwargs)
    for value in args:
        hook = getattr(type(value), HOOK, None)
        if hook is not None:
            _refuse_out(state.schema, given, f"is called with {type(value).__name__}s, which out= does not write")
            return hook(kernel, _repeated(state, args, given), kwargs)
    if any(isinstance(value, Value) for value in given.values):
        return _staged(kernel, state.schema, _repeated(state, args, given), given)
    return called(kernel, state, given, look)


def called(
    kernel: AnyKernel | LoadedKernel,
    state: PreparedKernel,
    given: BoundCall,
    look: object = None,
    made: Callable[[Specialisation], Specialisation] | None = None,
) -> Any:
    """A call with tensors and numbers, in order; what it means is kept under what it looks like.

    `made` says what runs it, given the specialisation that would.
    """
    schema = state.schema
    library = _library(given)
    if library is not None:
        return library(kernel, given.values, given.parameters, given.out)
    op, names, operands = schema.name, _names(schema, given.counts), _operands(schema, given)
    memory = None if given.out is None else memory_of(op, given.out)
    device = _device_of(schema, names, operands, memory)
    if state.joint and (memory is not None or state.loaded.is_tuned):
        operands = BROADCASTING.get().as_views(state, operands, memory)
    value = _specialised(kernel, state, given, operands, device, memory)
    if made is not None:
        value = made(value)
    elif state.loaded.is_tuned and value.spread is None:
        values = [_value(value, number, operand) for number, operand in enumerate(operands)]
        given = replace(given, parameters=TUNED.get()(value, state.loaded, given, values))
        value = _specialised(kernel, state, given, operands, device, memory)
    result = run(value, operands, memory, given.out)
    if look is not None and not state.loaded.is_tuned and not value.sized:
        keep(state.looks, look, value, given.values, kind_of_results(operands))
    return result


def _device_of(
    schema: OpSchema, names: Sequence[str], operands: Sequence[Operand], memory: Sequence[Operand | None] | None
) -> Device:
    """Where a call runs: where its tensors lie; the memory of its outputs, where no tensor is an input."""
    if memory is None or any(operand.device is not None for operand in operands):
        return device_of_call(schema.name, names, operands)
    outputs = [operand for operand in memory if operand is not None]
    return device_of_call(schema.name, ["out"] * len(outputs), outputs)


def _operands(schema: OpSchema, given: BoundCall) -> list[Operand]:
    names = _names(schema, given.counts)
    return [operand_of(value, schema.name, name) for value, name in zip(given.values, names, strict=False)]


def _library(given: BoundCall) -> Callable[..., Any] | None:
    """What calls kernels with tensors of another library, if there is one for any of these."""
    memory = given.out if isinstance(given.out, tuple | list) else (given.out,)
    for value in (*given.values, *memory):
        if not isinstance(value, OWN):
            library = LIBRARIES.get(library_of(value))
            if library is not None:
                return library.get()
    return None


def _names(schema: OpSchema, counts: Mapping[str, int]) -> list[str]:
    """The names of the tensors that go in, those of variadic arguments one by one."""
    names: list[str] = []
    for argument in schema.inputs:
        several = argument.form is Form.VARIADIC
        names += [f"{argument.name}[{k}]" for k in range(counts[argument.name])] if several else [argument.name]
    return names


# *** tensors ***


def _specialised(
    kernel: AnyKernel | LoadedKernel,
    state: PreparedKernel,
    given: BoundCall,
    operands: Sequence[Operand],
    device: Device,
    memory: Sequence[Operand | None] | None,
) -> Specialisation:
    """The specialisation for these arguments, or what is wrong with their sizes or dtypes."""
    known = {a.dtype for a, o in zip(state.schema.inputs, operands, strict=False) if o.kind != NUMBER}
    kinds = [
        kind_of(operand, number < len(state.schema.inputs) and state.schema.inputs[number].dtype in known)
        for number, operand in enumerate(operands)
    ]
    outputs = None if memory is None else _dtypes_of_memory(state, operands, memory)
    spread = spread_of([operands[k].shape for k in state.joint])
    try:
        result = specialised(kernel, state, kinds, given.counts, given.parameters, device, None, outputs, spread)
    except EinkornError as error:
        raise BROADCASTING.get().mismatch(kernel, state, given, operands, kinds, spread) or error from None
    if spread is not None:
        BROADCASTING.get().check_elementwise(result, given, operands)
    return result


def _dtypes_of_memory(
    state: PreparedKernel, operands: Sequence[Operand], memory: Sequence[Operand | None]
) -> list[DType | None] | None:
    """The dtypes of the outputs, where only `out=` determines them or sizes; None where it is not needed."""
    if state.open_sizes and None not in memory and len(memory) == len(state.schema.outputs):
        known: dict[Any, DType | None] = {a.dtype: o.dtype for a, o in zip(state.schema.inputs, operands, strict=False)}
        pairs = [(a.dtype, None if m is None else m.dtype) for a, m in zip(state.schema.outputs, memory, strict=True)]
        return [dtype if isinstance(dtype, DType) else known.get(dtype) or given for dtype, given in pairs]
    return [None if m is None else m.dtype for m in memory] if _open(state.schema) else None


def _sizes(made: Specialisation, memory: Sequence[Operand | None] | None) -> dict[str, int]:
    """The sizes that `out=` determines.

    Raises:
        GraphError: EK0853 the memory of an output has another number of axes.
    """
    results: dict[str, int] = {}
    for name, (number, axis) in open_sizes(made.schema).items() if made.sized else ():
        operand = (memory or ())[number]
        assert operand is not None
        check_rank(made.schema.name, made.schema.outputs[number].name, operand, made.outputs[number].rank)
        results[name] = operand.shape[axis]
    return results


def _carriers(made: Specialisation, sizes: Mapping[str, int]) -> list[Any]:
    """The arrays without elements that give a model the sizes of `out=`."""
    arrays = [np.empty((sizes[name], 0), np.bool_) for name in made.sized]
    return arrays if made.where == CPU() else [Buffer.from_numpy(array).to(made.where) for array in arrays]


def kind_of(operand: Operand, dtype_known: bool = False) -> ArgumentKind:
    """What a specialisation depends on of an argument. A number takes the dtype of the signature or of the tensors; one
    of NumPy's without a tensor operand keeps its own."""
    if operand.dtype is None:
        number: ArgumentKind = operand.value
        return number
    return operand.value.item() if operand.kind == NUMBER and dtype_known else (operand.dtype, len(operand.shape))


def _open(schema: OpSchema) -> bool:
    """Whether only `out=` determines the dtypes of some outputs."""
    known = {argument.dtype for argument in schema.inputs}
    known |= {name for name, _ in schema.typevars if any(p.name == name.lower() for p in schema.parameters)}
    return any(isinstance(argument.dtype, str) and argument.dtype not in known for argument in schema.outputs)


def run(
    made: Specialisation,
    operands: Sequence[Operand],
    memory: Sequence[Operand | None] | None = None,
    out: object = None,
) -> Any:
    """Runs a specialisation, and gives its outputs as the caller's kind."""
    sizes = _sizes(made, memory)
    places = None if memory is None else _places(made, operands, memory, sizes)
    values = [_value(made, number, operand) for number, operand in enumerate(operands)] + _carriers(made, sizes)
    try:
        results = made.model(*values) if places is None else made.model(*values, out=[p and p.memory for p in places])
    except EinkornError as error:
        raise explained(error, made, operands) from error.__cause__
    if places is None:
        kind = kind_of_results(operands)
        return _grouped(made, [as_kind(buffer, kind) for buffer in results])
    for place in places:
        if place is not None:
            filled(place)
    if all(place is not None for place in places):
        return out
    kind = kind_of_results(operands)
    given = [as_kind(b, kind) if p is None else p.operand.given for p, b in zip(places, results, strict=True)]
    return _grouped(made, given)


def _places(
    made: Specialisation, operands: Sequence[Operand], memory: Sequence[Operand | None], sizes: Mapping[str, int]
) -> list[OutputPlace | None]:
    """The memory of `out=`, checked against what the call gives."""
    schema = made.schema
    shapes: list[tuple[int, ...] | None] = [None] * len(made.outputs)
    if not made.late:
        shapes = [*made.output_shapes([operand.shape for operand in operands], sizes)]
    wanted = [(type.dtype, shape) for type, shape in zip(made.outputs, shapes, strict=True)]
    device = _device_of(schema, [a.name for a in schema.inputs], operands, memory)
    places = checked(schema.name, [a.name for a in schema.outputs], memory, wanted, device)
    check_apart(schema.name, [a.name for a in schema.inputs], operands, places)
    return places


def _value(made: Specialisation, number: int, operand: Operand) -> Any:
    """What the model takes for an argument."""
    argument = made.schema.inputs[number]
    if operand.kind != NUMBER:
        return operand.value
    if argument.role is Role.MUTABLE:
        raise DTypeError(
            f"op '{made.schema.name}' changes '{argument.name}' in place, and {operand.given!r} is not memory",
            code="EK0850",
            place=user_place(),
            op=made.schema.name,
            argument=argument.name,
            expected="an array, a Buffer or a tensor",
            got=type(operand.given).__name__,
        )
    value = operand.given if operand.dtype is None else operand.value
    dtype = made.inputs[number].dtype
    array = weak_array(value, dtype, f"op '{made.schema.name}'", argument.name, user_place())
    return array if made.where == CPU() else Buffer.from_numpy(array).to(made.where)


def _grouped(made: Specialisation, results: list[Any]) -> Any:
    """Outputs as they are returned: one alone, several as a tuple, those of a variadic argument as a list."""
    grouped: dict[str, Any] = {}
    for argument, result in zip(made.schema.outputs, results, strict=True):
        if argument.group:
            grouped.setdefault(argument.group, []).append(result)
        else:
            grouped[argument.name] = result
    for argument in made.kernel.schema.outputs:
        if argument.form is Form.VARIADIC:
            grouped.setdefault(argument.name, [])
    given = tuple(grouped.values())
    return None if not given else given[0] if len(given) == 1 else given


def _refuse_out(schema: OpSchema, given: BoundCall, why: str) -> None:
    if given.out is not None:
        raise GraphError(
            f"op '{schema.name}' {why}",
            code="EK0853",
            place=user_place(),
            op=schema.name,
            argument="out",
            hint="take the op's result",
        )


# *** values of graphs ***


def _repeated(state: PreparedKernel, args: tuple[object, ...], given: BoundCall) -> tuple[Any, ...]:
    """The values of graphs, or tensors of `einkorn.tensor`, of a call; those that broadcast in their common shape."""
    values = [args[k] for k in state.joint] if len(args) == len(state.schema.inputs) else []
    shapes = [tuple(getattr(value, "shape", ())) for value in values]
    if not shapes or shapes.count(shapes[0]) == len(shapes):
        return args
    result: tuple[Any, ...] = BROADCASTING.get().broadcast_values(state, args, given.parameters)
    return result


def _staged(kernel: AnyKernel, schema: OpSchema, args: tuple[Any, ...], given: BoundCall) -> Any:
    """The op in the graph that is being built; its results as a call gives them."""
    _refuse_out(schema, given, "is staged in a graph, where nothing is written in place")
    device = next(value for value in given.values if isinstance(value, Value)).device
    stage = inplace_custom if schema.mutable else custom
    results: list[Any] = list(stage(kernel, device, list(args), parameters=given.parameters))
    outputs: list[Any] = []
    for argument in schema.outputs:
        if argument.form is not Form.VARIADIC:
            outputs.append(results.pop(0))
            continue
        rest = sum(1 for other in schema.outputs[schema.outputs.index(argument) + 1 :])
        outputs.append(results[: len(results) - rest])
        del results[: len(results) - rest]
    return None if not outputs else outputs[0] if len(outputs) == 1 else tuple(outputs)
