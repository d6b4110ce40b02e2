"""What all op constructors share: operands, promotion, broadcasting, and staging of kernel nodes.

An op constructor checks its arguments, stages casts and broadcasts as nodes of their own, and then one node for its
kernel. The kernels themselves take operands of one dtype and, where they are elementwise, of one shape.

Input: what a user passes. Output: staged nodes, or an error under the user's line. Non-goals: no op is defined here.
"""

from __future__ import annotations

import functools
from collections.abc import Callable, Iterable, Mapping, Sequence
from typing import TYPE_CHECKING, Any, NoReturn, TypeVar

from ...dsl.diagnostics.errors import DTypeError, EinkornError, GraphError, brief, each_of
from ...dsl.environment.tracebacks import without_internals
from ...dsl.signature.bind import bind
from ...dsl.signature.parameters import bind_parameters
from ...dsl.types.dtype import DType
from ..driver.device import DeviceRef
from ..ir import Constraint
from ..places import user_place
from ..staging.graph import Graph, active_graph, foreign_value
from ..staging.value import BufferValue, TensorValue, TensorValueLike, Value
from ..types.dims import Dim, Shape, StaticDim, SymbolicDim
from ..types.promotion import is_weak, promote, weak_array
from ..types.tensor_type import TensorType, shown

if TYPE_CHECKING:
    from ...dsl.package.library import LoadedKernel

F = TypeVar("F", bound=Callable[..., Any])
DimLike = int | str | Dim

HINT_FOR_SYMBOLS = "if the two are always equal, give them one name in the input types, or use ops.rebind"


def op(function: F) -> F:
    """Makes a function an op: it runs inside a graph, and leaves nothing behind when it raises."""

    @without_internals
    @functools.wraps(function)
    def staged(*args: Any, **kwargs: Any) -> Any:
        with current(function.__name__).transaction():
            try:
                return function(*args, **kwargs)
            except EinkornError as error:
                raise named(error, function.__name__) from error.__cause__

    return staged  # type: ignore[return-value]


def named(error: EinkornError, op: str, argument: str | None = None) -> EinkornError:
    """A mistake that was found where nobody knew for which op (in a dim, in a type), with op, argument and place."""
    for each in each_of(error):
        if each.op is None:
            each.op, each.message = op, f"{op}: {each.message}"
        each.argument = argument or each.argument
        each.place = each.place or user_place()
    error.op, error.place = error.op or op, error.place or user_place()
    return error


def current(name: str) -> Graph:
    """The graph being built, for the op `name`."""
    graph = active_graph()
    if graph is None:
        raise GraphError(
            f"{name}: no graph is being built here",
            code="EK0401",
            place=user_place(),
            op=name,
            hint="stage ops in Graph(..., forward=...) or under 'with Graph(...) as graph:'",
        )
    return graph


def fail(name: str, message: str, *, code: str, kind: type[EinkornError] = GraphError, **details: Any) -> NoReturn:
    """Raises an error of the op `name` under the user's line."""
    raise kind(f"{name}: {message}", code=code, place=user_place(), op=name, **details)


def require(name: str, kind: str, left: Dim, right: Dim, message: str, code: str = "EK0454") -> None:
    """Adds a condition on dims that is checked when the graph is called; see `Constraint`."""
    current(name).require(Constraint(kind, left, right, message, user_place(), name, code))


# --- operands ---


def tensor(name: str, argument: str, value: TensorValueLike) -> TensorValue:
    """A strong operand.

    Raises:
        DTypeError: EK0411 a plain number or array, EK0403 something else.
        GraphError: EK0402, a value of another graph.
    """
    value = _converted(value)
    if isinstance(value, TensorValue):
        graph = current(name)
        if value.graph is not graph:
            raise foreign_value(name, argument, value, graph, user_place())
        return value
    if _weak(value):
        fail(
            name,
            f"argument '{argument}' has to be a tensor, and {_shown(value)} takes its dtype from one",
            code="EK0411",
            kind=DTypeError,
            argument=argument,
            expected="TensorValue",
            got=type(value).__name__,
            hint="ops.constant(value, dtype, device) makes a tensor of it",
        )
    fail(
        name,
        f"argument '{argument}' is not a tensor but {type(value).__name__}",
        code="EK0403",
        kind=DTypeError,
        argument=argument,
        expected="TensorValue",
        got=type(value).__name__,
        hint="ops.constant([...], dtype, device) makes a tensor of a list"
        if isinstance(value, list)
        else "ops.buffer_load(x) gives what a buffer holds as a tensor"
        if isinstance(value, BufferValue)
        else None,
    )


def tensors(name: str, dtype: DType | None = None, **operands: TensorValueLike) -> list[TensorValue]:
    """Operands in one dtype on one device: the promoted one, or `dtype`. Weak ones become constants.

    Raises:
        DTypeError: all are weak, or the dtypes do not go together.
        GraphError: a weak value does not fit, or devices differ.
    """
    values = {argument: _converted(value) for argument, value in operands.items()}
    strong = [tensor(name, argument, value) for argument, value in values.items() if not _weak(value)]
    if not strong:
        tensor(name, *next(iter(values.items())))
    common = dtype or promote([value.dtype for value in strong], name, user_place())
    same_device(name, {a: v for a, v in values.items() if isinstance(v, TensorValue)})
    graph = current(name)
    result = []
    for argument, value in values.items():
        if isinstance(value, TensorValue):
            result.append(cast_to(value, common))
            continue
        number = int(value) if isinstance(value, StaticDim) else value
        array = weak_array(number, common, name, argument, user_place())
        result.append(graph.stage_constant(array, strong[0].device, user_place()))
    return result


def same_device(name: str, operands: Mapping[str, Value], device: DeviceRef | None = None) -> None:
    """Nothing moves by itself: raises GraphError EK0430 when operands lie on different devices."""
    items = list(operands.items())
    first = device or (items[0][1].device if items else None)
    for argument, value in items:
        if value.device != first:
            expected = "the op runs" if device else f"argument '{items[0][0]}' lies"
            fail(
                name,
                f"argument '{argument}' lies on {value.device}, and {expected} on {first}",
                code="EK0430",
                argument=argument,
                expected=str(first),
                got=str(value.device),
                hint=f"move it with .to({first!r})",
            )


def check_kind(name: str, argument: str, value: TensorValue, kinds: str) -> None:
    """Raises DTypeError EK0413 unless the dtype is one of `kinds`: "float", "numeric", "bool" or "any".

    Storage types are none of them: they are moved, chosen and cast, and nothing else.
    """
    dtype = value.dtype
    right = (
        not dtype.is_storage()
        and {
            "float": dtype.is_float(),
            "numeric": dtype is not DType.bool,
            "integral": dtype.is_integral(),
            "bool": dtype is DType.bool,
            "any": True,
        }[kinds]
    )
    if not right:
        wanted = {"float": "floating-point", "numeric": "numeric", "integral": "integer", "bool": "bool"}
        wanted["any"] = "of a type that computes"
        cast = {"float": "ops.cast(x, DType.float32)", "bool": "a comparison, such as x != 0, gives one"}
        if dtype.is_storage() and dtype.is_float():
            cast |= {"numeric": cast["float"], "any": cast["float"]}
        fail(
            name,
            f"argument '{argument}' has to be {wanted[kinds]}, and is {dtype}",
            code="EK0413",
            kind=DTypeError,
            argument=argument,
            expected=wanted[kinds],
            got=str(dtype),
            hint=cast.get(kinds, "ops.cast(x, DType.int32)"),
        )


def _converted(value: Any) -> Any:
    return value.__tensorvalue__() if hasattr(value, "__tensorvalue__") else value


def _weak(value: Any) -> bool:
    return isinstance(value, StaticDim) or is_weak(value)


def _shown(value: Any) -> str:
    return f"the plain number {brief(value)}" if not hasattr(value, "shape") else f"a plain array of {value.dtype}"


# --- casts and broadcasts ---


def cast_to(value: TensorValue, dtype: DType) -> TensorValue:
    """`value` in another dtype; no node when it has it."""
    if value.dtype is dtype:
        return value
    out = value.type.with_dtype(dtype)
    return builtin("elementwise", "cast", [value], {"dtype": dtype}, [out])[0]


def broadcast(name: str, operands: Mapping[str, TensorValue]) -> list[TensorValue]:
    """Operands in their common shape, aligned from the last axis; each pair of sizes equal, 1 or absent.

    Raises:
        GraphError: EK0420, two sizes that are neither equal nor 1.
    """
    items = list(operands.items())
    shape: tuple[Dim, ...] = tuple(items[0][1].shape)
    for argument, value in items[1:]:
        shape = broadcast_shapes(name, shape, tuple(value.shape), argument)
    return [expand(value, shape) for _, value in items]


def broadcast_shapes(name: str, left: Sequence[Dim], right: Sequence[Dim], argument: str) -> tuple[Dim, ...]:
    """The common shape of two."""
    rank = max(len(left), len(right))
    one = StaticDim(1)
    padded_left = (*[one] * (rank - len(left)), *left)
    padded_right = (*[one] * (rank - len(right)), *right)
    result = []
    for axis, (a, b) in enumerate(zip(padded_left, padded_right, strict=True)):
        if a != b and a != one and b != one:
            static = isinstance(a, StaticDim) and isinstance(b, StaticDim)
            fail(
                name,
                f"shapes {shown(left)} and {shown(right)} do not broadcast: {a} and {b} on axis {axis - rank}",
                code="EK0420",
                argument=argument,
                expected=f"{a} or 1",
                got=str(b),
                hint=None if static else HINT_FOR_SYMBOLS,
            )
        result.append(b if a == one else a)
    return tuple(result)


def expand(value: TensorValue, shape: Sequence[Dim]) -> TensorValue:
    """`value` broadcast to a shape that it is known to fit; no node when it has it."""
    if tuple(value.shape) == tuple(shape):
        return value
    return builtin("movement", "broadcast_to", [value], {}, [value.type.with_shape(shape)])[0]


def as_shape(value: TensorValue, shape: Iterable[DimLike]) -> TensorValue:
    """`value` reshaped to a shape of as many elements; no node when it has it."""
    target = Shape(shape)
    if tuple(value.shape) == tuple(target):
        return value
    return builtin("movement", "reshape", [value], {}, [value.type.with_shape(target)])[0]


# --- kernel nodes ---


def builtin(
    family: str,
    kernel: str,
    operands: Sequence[Value],
    parameters: Mapping[str, Any] | None = None,
    expected: Sequence[TensorType] | None = None,
) -> list[TensorValue]:
    """Stages a kernel that ships with the package."""
    loaded = current(kernel).kernels.builtin(family, kernel)
    return stage(loaded, operands, parameters or {}, operands[0].device, expected)


def stage(
    kernel: LoadedKernel,
    operands: Sequence[Value],
    parameters: Mapping[str, Any],
    device: DeviceRef,
    expected: Sequence[TensorType] | None = None,
) -> list[TensorValue]:
    """Stages a call of `kernel` after checking it against the signature, which also gives the output types.

    Raises:
        GraphError, DTypeError: the call contradicts the signature; see `dsl.signature.bind.bind`.
    """
    place = user_place()
    schema = kernel.schema
    graph = current(schema.name)
    late = {name: graph.unused_dim(f"{schema.name.rpartition('::')[2]}_{name}") for name in schema.late}
    try:
        binding = bind(
            schema,
            [(value.dtype, tuple(value.shape)) for value in operands],
            parameters,
            expected_outputs=None if expected is None else [(type.dtype, tuple(type.shape)) for type in expected],
            late=late,
            place=place,
        )
        out_types = [TensorType(dtype, shape, device) for dtype, shape in binding.outputs]  # type: ignore[arg-type]
    except EinkornError as error:  # a size that cannot be; built-in ops have names of their own
        raise (error if kernel.shipped else named(error, schema.name)) from None
    bound = bind_parameters(schema, parameters, place=place)
    if late:
        _stage_sizes(kernel, operands, bound, device, {name: Dim(binding.dims[name]) for name in late}, late)  # type: ignore[arg-type]
    return [value.tensor for value in graph.stage(kernel, operands, bound, out_types, place)]


def _stage_sizes(
    kernel: LoadedKernel,
    operands: Sequence[Value],
    parameters: Mapping[str, Any],
    device: DeviceRef,
    wanted: Mapping[str, Dim],
    fresh: Mapping[str, Dim],
) -> None:
    """Stages an op's shape function. A dim that is new in the graph gets its size there; one that has a size already
    has to have that one, which is checked when the graph runs."""
    name, place = kernel.schema.name, user_place()
    graph = current(name)
    assert kernel.shape is not None
    known = {n for n, dim in wanted.items() if not isinstance(dim, SymbolicDim) or graph.knows_dim(dim.name)}
    defined = [str(fresh[n] if n in known else dim) for n, dim in wanted.items()]
    sizes = TensorType(DType.int64, [len(defined)], device)
    value = graph.stage(kernel.shape, operands, parameters, [sizes], place)[0]
    graph.define_dims(value, defined, name, place)
    for n in known:
        message = f"{name}: its shape function gives another size for {n!r} than out_types, which say {wanted[n]}"
        require(name, "equal", fresh[n], wanted[n], message)
