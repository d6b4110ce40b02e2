"""Stages ops: finds the graph that is being built, checks a call of a kernel, adds its node, places its errors.

Every op stands in the table `OPS`. Most are rows (see `rows`); those that fit no row are functions under `@op()`.
"""

from __future__ import annotations

import functools
from collections.abc import Callable, Mapping, Sequence
from dataclasses import field, replace
from typing import TYPE_CHECKING, Any, NoReturn, TypeVar

from ...dsl.diagnostics.dataclass import dataclass
from ...dsl.diagnostics.errors import EinkornError, GraphError, each_of
from ...dsl.diagnostics.extension_points import ExtensionPoint
from ...dsl.diagnostics.places import user_place
from ...dsl.environment.tracebacks import without_internals
from ...dsl.signature.bind import bind
from ...dsl.signature.parameters import bind_parameters
from ...dsl.types.dtype import DType
from ..driver.devices import DeviceRef
from ..ir import Constraint
from ..staging.graph import Graph, active_graph
from ..staging.sizes import stage_dim
from ..staging.value import TensorValue, Value
from ..types.dims import Dim, SymbolicDim
from ..types.tensor_type import TensorType

if TYPE_CHECKING:
    from ...dsl.package.library import LoadedKernel

F = TypeVar("F", bound=Callable[..., Any])


@dataclass(frozen=True, eq=False)
class BuiltinOp:
    """An op, as `einkorn.graph.ops` has it.

    Attributes:
        name: its name in `ops`, such as "add" or "random.normal".
        function: what users call.
        form: how it is staged: "elementwise", "reduction" or "along" (see `rows`), or "irregular", by code of its own.
        kernel: the family and the name of the kernel that a regular op stages.
        operands: which kinds of dtypes each tensor may have (see `operands.KINDS`), by argument.
        integers: the dtype in which integers and bools are computed, if it is not their own.
        sums: whether integers and bools give int64 or uint64, in which they are computed.
        bools: the dtype in which bools are computed, if it is not their own.
        methods: its names on `TensorValue`.
        example: a call, in which the tensors have the names of the arguments; of an irregular op.
        host_only: why no code for GPUs can be made of it; empty where it can.
        graphs_only: why tensors that have elements cannot be given to it; empty where they can.
    """

    name: str
    function: Callable[..., Any]
    form: str = "irregular"
    kernel: tuple[str, str] | None = None
    operands: Mapping[str, str] = field(default_factory=dict)
    integers: DType | None = None
    sums: bool = False
    bools: DType | None = None
    methods: tuple[str, ...] = ()
    example: str = ""
    host_only: str = ""
    graphs_only: str = ""


OPS: dict[str, BuiltinOp] = {}  # by name; whatever is in it is a function of `ops`, or of a module of it
# What ops do where no graph is built: `graph.eager`, when it is loaded, runs those of tensors that have elements.
OUTSIDE: ExtensionPoint[Callable[[str, tuple[object, ...], Mapping[str, object]], object]] = ExtensionPoint(
    "graph.eager.operators", "outside"
)
METHODS: dict[tuple[type[Value], str], Callable[..., object]] = {}  # what ops add to the classes of values


def op(
    *,
    dtypes: Mapping[str, str] | None = None,
    example: str = "",
    host_only: str = "",
    graphs_only: str = "",
    method: str | None = None,
    operator: str | None = None,
    namespace: str = "",
) -> Callable[[F], F]:
    """Makes a function an op: it runs inside a graph, and leaves nothing behind when it raises.

    Args:
        dtypes: for each argument that takes tensors the dtypes that they may have, a key of `operands.KINDS`; an
            argument with rules of its own is left out.
        example: a call such as "ops.gather(x, indices, axis=0)". Its tensors are those of the op's first case in
            `tests/graph/op_cases`, which runs it.
        host_only: why no code for GPUs can be made of it; empty where it can.
        graphs_only: why tensors that have elements cannot be given to it; empty where they can.
        method: the name under which `TensorValue` has it, too.
        operator: Python's method for the operator that stages it, such as "__add__". The reflected one follows.
        namespace: the module of `ops` that has it, such as "random" of `ops.random.normal`; `ops` itself when empty.
    """

    def declare(function: F) -> F:
        name = f"{namespace}.{function.__name__}" if namespace else function.__name__
        row = BuiltinOp(
            name, function, operands=dtypes or {}, example=example, host_only=host_only, graphs_only=graphs_only
        )
        return declared(row, method, operator)  # type: ignore[return-value]

    return declare


def declared(row: BuiltinOp, method: str | None, operator: str | None) -> Callable[..., Any]:
    """Adds an op to the tables; gives what users call."""
    name, function = row.name, row.function

    @without_internals
    @functools.wraps(function)
    def staged(*args: object, **kwargs: object) -> Any:
        outside = OUTSIDE.get_if_loaded()
        if outside is not None and active_graph() is None:
            result = outside(name, args, kwargs)
            if result is not NotImplemented:
                return result
        with current(name).transaction():
            try:
                return function(*args, **kwargs)
            except EinkornError as error:
                raise named(error, name) from error.__cause__

    methods = [each for each in (method, operator) if each is not None]
    for each in methods:
        add_method(TensorValue, each)(staged)
    if operator is not None and (mirrored := REFLECTED.get(operator)) is not None:
        methods.append(mirrored)
        add_method(TensorValue, mirrored)(lambda value, other: staged(other, value))
    OPS[name] = replace(row, function=staged, methods=tuple(methods))
    return staged


REFLECTED = {
    f"__{name}__": f"__r{name}__"
    for name in (
        "add",
        "sub",
        "mul",
        "truediv",
        "floordiv",
        "mod",
        "pow",
        "matmul",
        "and",
        "or",
        "xor",
        "lshift",
        "rshift",
    )
}


def add_method(owner: type[Value], name: str) -> Callable[[F], F]:
    """Makes a function a method of values. `staging.value` declares it for type checkers; a test compares the two."""

    def add(function: F) -> F:
        METHODS[owner, name] = function
        setattr(owner, name, function)
        return function

    return add


def named(error: EinkornError, op: str, argument: str | None = None) -> EinkornError:
    """Adds op, argument and place to an error found without them (in a dim, in a type)."""
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


def builtin(
    family: str,
    kernel: str,
    operands: Sequence[Value],
    parameters: Mapping[str, Any] | None = None,
    expected: Sequence[TensorType] | None = None,
) -> list[TensorValue]:
    """Stages a kernel that ships with the package, or the one that overrides it."""
    given = [value.dtype for value in operands]
    made = None if expected is None else [type.dtype for type in expected]
    loaded = current(kernel).kernels.chosen(family, kernel, given, made)
    return stage(loaded, operands, parameters or {}, operands[0].device, expected)


def stage(
    kernel: LoadedKernel,
    operands: Sequence[Value],
    parameters: Mapping[str, object],
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
    parameters: Mapping[str, object],
    device: DeviceRef,
    wanted: Mapping[str, Dim],
    fresh: Mapping[str, Dim],
) -> None:
    """Stages an op's shape function, which computes the sizes of the wanted dims."""
    name = kernel.schema.name
    assert kernel.shape is not None
    sizes = TensorType(DType.int64, [len(wanted)], device)
    value = current(name).stage(kernel.shape, operands, parameters, [sizes], user_place())[0]
    messages = [
        f"{name}: its shape function returns another size for {n!r} than out_types, which say {dim}"
        for n, dim in wanted.items()
    ]
    _define_sizes(name, value, list(wanted.values()), list(fresh.values()), messages)


def define_sizes(name: str, value: Value, wanted: Sequence[Dim], messages: Sequence[str]) -> None:
    """Says that the elements of an int64 tensor of one axis are the sizes of the wanted dims.

    A dim that is new in the graph gets its size there. One that has a size already has to have that one, which is
    checked when the graph runs; with a message for each dim. In a body of control flow a kernel checks sizes that
    change from round to round.
    """
    graph = current(name)
    names = [graph.unused_dim(f"{name}_size_{k}") for k in range(len(wanted))]
    _define_sizes(name, value, wanted, names, messages)


def _define_sizes(
    name: str, value: Value, wanted: Sequence[Dim], fresh: Sequence[Dim], messages: Sequence[str]
) -> None:
    graph = current(name)
    new = [isinstance(dim, SymbolicDim) and not graph.has_dim(dim.name) for dim in wanted]
    if all(map(graph.has_size, wanted)) and graph.changes_in_body(value):
        for k, (dim, message) in enumerate(zip(wanted, messages, strict=True)):
            one, number = (TensorType(DType.int64, shape, value.device) for shape in ([1], []))
            part = builtin("movement", "slice", [value], {"starts": (k,), "steps": (1,)}, [one])
            size = builtin("movement", "reshape", part, expected=[number])[0]
            stated = stage_dim(graph, dim, value.device, user_place())
            builtin("creation", "require_sizes", [size, stated], {"kind": "equal", "text": message}, [one])
        return
    defined = [str(dim if is_new else other) for dim, other, is_new in zip(wanted, fresh, new, strict=True)]
    graph.define_dims(value, defined, name, user_place())
    for dim, other, is_new, message in zip(wanted, fresh, new, messages, strict=True):
        if not is_new:
            require(name, "equal", other, dim, message)
