"""Makes of a kernel and the kinds of its arguments a graph of one op that serves every size: a `Specialisation`.

Code that calls kernels from outside of graphs begins here: direct calls, PyTorch, JAX, numba, ufuncs, tuning. A
specialisation depends on dtypes, ranks, parameters and the device; sizes are symbols, named as the signature names
them, so that what it calls `n` twice is one size, and checked at the call.
"""

from __future__ import annotations

import weakref
from collections.abc import Mapping, Sequence
from dataclasses import replace
from typing import Any, NoReturn

from ...dsl.contract.checks import parse_checks
from ...dsl.diagnostics.cached import cached
from ...dsl.diagnostics.dataclass import dataclass
from ...dsl.diagnostics.errors import InternalError
from ...dsl.diagnostics.forks import fork_lock
from ...dsl.diagnostics.places import user_place
from ...dsl.diagnostics.shield import shielded
from ...dsl.environment.compiling import compiling
from ...dsl.environment.knobs import Knobs, kept_at, knobs
from ...dsl.frontend.python.register import Kernel
from ...dsl.frontend.reads import Reads
from ...dsl.package.library import LibraryKernel, LoadedKernel, LoadedLibrary, loaded_kernel
from ...dsl.signature.axis_names import AxisNames, axis_names, open_sizes, output_sizes
from ...dsl.signature.bind import bind
from ...dsl.signature.dims import Expression, evaluate
from ...dsl.signature.parameters import bind_parameters, identity
from ...dsl.signature.schema import OpSchema, Role, TensorArgument
from ...dsl.signature.variadic import counted_inputs, counted_outputs
from ...dsl.types.dtype import DType
from ..driver.device import Entry
from ..driver.devices import CPU, Device, DeviceRef
from ..engine.model import Model
from ..engine.session import InferenceSession
from ..ir import Constraint, Node
from ..ops.movement import rebind
from ..ops.operands import broadcast
from ..ops.stage import require, stage
from ..passes.memory_plan import Plan
from ..staging.graph import Graph
from ..staging.value import BufferValue, Value
from ..types.dims import Dim
from ..types.tensor_type import BufferType, ShapedType, TensorType
from .spread import Spread, common_shape, joint_inputs

InputKind = tuple[DType, int]  # what a specialisation depends on of a tensor: its dtype and its rank
AnyKernel = Kernel | LibraryKernel
ArgumentKind = (
    InputKind | bool | int | float | complex
)  # of an argument; a number takes the dtype of the other operands


@dataclass(eq=False)
class Specialisation:
    """A kernel for arguments of known dtypes and ranks.

    Attributes:
        kernel: the kernel object, or the kernel of a library.
        loaded: its program as it was read for this, for as many tensors as its variadic arguments got.
        inputs: the type of each tensor that a caller passes: a `BufferType` where it is changed in place. A dim is a
            number, or a symbol that is named as in the signature; a name that stands twice is one size.
        outputs: the type of each output, with its dims made of those of the inputs, and of late ones.
        names: what the axes of the inputs are called, and which of them have to have computed sizes.
        parameters: the value of every compile-time parameter.
        device: where it runs, as graphs name it.
        where: the device itself, or its name if it is not open yet.
        graph: of one op, or of the op and its shape function.
        checks: what its code checks; None leaves it to the environment.
        spread: how the inputs that broadcast do so; None where their shapes are equal.
        sized: the names of the sizes that `out=` determines. The graph has an input without elements for each of them.
    """

    kernel: AnyKernel | LoadedKernel
    loaded: LoadedKernel
    inputs: tuple[ShapedType, ...]
    outputs: tuple[TensorType, ...]
    names: AxisNames
    parameters: dict[str, Any]
    device: DeviceRef
    where: DeviceRef | Device
    graph: Graph
    checks: str | None
    spread: Spread | None = None
    sized: tuple[str, ...] = ()

    def __post_init__(self) -> None:
        self.lock = fork_lock()
        self.door: Any = None  # what stands before the kernel for calls of this kind

    @property
    def schema(self) -> OpSchema:
        """The signature, with variadic arguments spelled out."""
        return self.loaded.schema

    @property
    def mutable(self) -> tuple[int, ...]:
        """The positions of the inputs that are changed in place."""
        return tuple(k for k, argument in enumerate(self.schema.inputs) if argument.role is Role.MUTABLE)

    @property
    def late(self) -> bool:
        """Whether sizes of outputs are computed from elements, so that the entry runs in stages."""
        return bool(self.schema.late)

    @property
    def symbols(self) -> dict[str, tuple[int, int]]:
        """Where the size of each symbol is read first: input and axis."""
        results: dict[str, tuple[int, int]] = {}
        for number, axes in enumerate(self.names.inputs):
            for axis, name in enumerate(axes):
                if isinstance(name, str):
                    results.setdefault(name, (number, axis))
        return results

    @property
    def constraints(self) -> tuple[Constraint, ...]:
        """What sizes have to fulfil beyond that equal names are equal sizes."""
        return self.graph.ir.constraints

    @cached
    def output_sizes(self) -> list[tuple[Expression, ...]]:
        """The size of each axis of each output in the dims language, over `symbols`, late dims and int parameters.

        `dims.evaluate(expression, values)` computes it of anything with the arithmetic of ints.
        """
        return output_sizes(self.schema, self.names)

    def output_shapes(
        self, shapes: Sequence[Sequence[Any]], sizes: Mapping[str, Any] | None = None
    ) -> list[tuple[Any, ...]]:
        """The shapes of the outputs for these of the inputs; sizes are ints or compute like them. `sizes` has those of
        `sized`.

        Raises:
            GraphError: the sizes contradict the signature; EK0314, they are late.
        """
        if self.spread is not None:
            joint = joint_inputs(self.schema)
            common = common_shape([tuple(shapes[k]) for k in joint])
            shapes = [common if k in joint and common is not None else shape for k, shape in enumerate(shapes)]
        if self.sized:
            values = {name: shapes[k][axis] for name, (k, axis) in self.symbols.items()} | self.names.integers
            values |= sizes or {}
            return [tuple(evaluate(size, values) for size in output) for output in self.output_sizes]
        specs = [(type.dtype, tuple(shape)) for type, shape in zip(self.inputs, shapes, strict=True)]
        binding = bind(self._typed, specs, self.parameters, place=user_place())
        return [tuple(shape) for _, shape in binding.outputs]

    @cached
    def _typed(self) -> OpSchema:
        """The signature, with the dtypes of outputs that only the caller determines."""
        dtypes = {argument.name: type.dtype for argument, type in zip(self.schema.outputs, self.outputs, strict=True)}
        known = {argument.dtype for argument in self.schema.inputs}
        arguments = tuple(
            replace(argument, dtype=dtypes[argument.name])
            if isinstance(argument, TensorArgument) and argument.name in dtypes and argument.dtype not in known
            else argument
            for argument in self.schema.arguments
        )
        return replace(self.schema, arguments=arguments)

    @property
    def is_loaded(self) -> bool:
        """Whether there is code for it yet."""
        return "_model" in self.__dict__

    @property
    def model(self) -> Model:
        """The graph, ready to run; compiled or found in the cache on first use, by one thread.

        Raises:
            CompileError: a mistake in the kernel.
        """
        model = self.__dict__.get("_model")
        if model is None:
            with self.lock:
                model = self.__dict__.get("_model")
                if model is None:
                    device = self.where if isinstance(self.where, Device) else self.where.to_device()
                    session = InferenceSession(devices=[device], checks=self.checks)
                    model = self.__dict__["_model"] = session.load(self.graph)
        result: Model = model
        return result

    @property
    def plan(self) -> Plan:
        """What lies behind each pointer and each dim slot of the entry."""
        return self.model.code.plan

    @property
    def entry(self) -> Entry:
        """The compiled function: `entry(context, pointers, dims)`."""
        return self.model.code.entry

    def __repr__(self) -> str:
        takes = ", ".join(f"{a.name}: {t}" for a, t in zip(self.schema.inputs, self.inputs, strict=True))
        return f"<{self.schema.name} for ({takes})>"


CHECKS = kept_at(Knobs.checks)  # the default of `checks=`, from the environment


class PreparedKernel:
    """A kernel's program, and a specialisation for each kind of call: for as long as the kernel's signature and what
    its functions read stay as they are."""

    def __init__(self, loaded: LoadedKernel) -> None:
        self.loaded = loaded
        self.known: dict[Any, Specialisation] = {}
        self.looks: dict[Any, Any] = {}  # what calls look like, and what they mean; see `repeated`
        self.elementwise: dict[object, bool] = {}  # by what calls look like
        self.fast_path: Any = None  # the doors of the kernel
        self.ufuncs: dict[bool, Any] = {}  # the kernel as a ufunc, with native loops and without
        self.checks: Any = None  # what the environment said of checks when these two were begun
        self.lock = fork_lock()

    def refresh_checks(self) -> None:
        """Drops the caches of calls with default checks when the default in the environment has changed."""
        kept, key = CHECKS
        if kept.get(key) is not self.checks:
            self.checks, self.looks, self.fast_path = kept.get(key), {}, None

    @property
    def schema(self) -> OpSchema:
        """The kernel's signature."""
        return self.loaded.schema

    @cached
    def joint(self) -> tuple[int, ...]:
        """The positions of the inputs that broadcast together, if the kernel is elementwise."""
        return joint_inputs(self.schema)

    @cached
    def open_sizes(self) -> dict[str, tuple[int, int]]:
        """The sizes that only `out=` determines: output and axis; see `signature.axis_names`."""
        return {} if self.schema.variadic else open_sizes(self.schema)

    @property
    def reads(self) -> Reads:
        """What the program was made of, once it is made: what has to be as it was for all of this to hold."""
        return self.loaded.reads


_lock = fork_lock()
_of_loaded: weakref.WeakKeyDictionary[LoadedKernel, PreparedKernel] = weakref.WeakKeyDictionary()
MAX_PROGRAMS = 16  # of one kernel, made with other constants and helpers, that are kept


def prepared(kernel: AnyKernel | LoadedKernel) -> PreparedKernel:
    """What is kept for a kernel; what was kept before, when its constants and helpers are again what they were."""
    loaded = kernel if isinstance(kernel, LoadedKernel) else loaded_kernel(kernel)
    if not isinstance(kernel, Kernel):
        entry = _of_loaded.get(loaded)
        if entry is None:
            with _lock:
                entry = _of_loaded.setdefault(loaded, PreparedKernel(loaded))
        return entry
    state: ProgramHistory | None = kernel.calls
    if state is None or state.now.loaded is not loaded:
        with _lock:
            state = kernel.calls
            if state is None:
                state = kernel.calls = ProgramHistory(PreparedKernel(loaded))
            elif state.now.loaded is not loaded:
                state.show(loaded)
    return state.now


def made_for(kernel: AnyKernel) -> list[Specialisation]:
    """The specialisations of a kernel as it is now; nothing is looked up, and nothing is made."""
    if isinstance(kernel, LibraryKernel):
        return list(prepared(kernel).known.values())
    state: ProgramHistory | None = kernel.calls
    return [] if state is None else list(state.now.known.values())


class ProgramHistory:
    """The programs that a kernel object has had, the present one and those before."""

    def __init__(self, now: PreparedKernel) -> None:
        self.now = now
        self.before: list[PreparedKernel] = []

    def show(self, loaded: LoadedKernel) -> None:
        """Another program is the present one; it may be one that was there before."""
        self.before = [*(each for each in self.before if each is not self.now), self.now][-MAX_PROGRAMS:]
        known = next((each for each in self.before if _same(each.loaded, loaded)), None)
        if known is None:
            self.now = PreparedKernel(loaded)
        else:
            known.loaded = loaded
            self.now = known


def _same(one: LoadedKernel, other: LoadedKernel) -> bool:
    return one.schema == other.schema and one.digest == other.digest


def specialise(
    kernel: AnyKernel | LoadedKernel,
    arguments: Sequence[ArgumentKind | Sequence[ArgumentKind]],
    parameters: Mapping[str, object] | None = None,
    device: DeviceRef | Device | None = None,
    *,
    checks: str | None = None,
    outputs: Sequence[DType | None] | None = None,
    spread: Spread | None = None,
) -> Specialisation:
    """A kernel for arguments of these kinds.

    Args:
        kernel: what `@register` gives, or a kernel of a library.
        arguments: (dtype, rank) for each input of the signature, in order; a Python number where it takes one without
            axes: that is weak, and gets the dtype of the argument's declaration or type variable, else bool, int64 or
            float32. A list of these for a variadic argument.
        parameters: compile-time parameters by name; those with defaults may be left out.
        device: where it runs; the host when left out.
        checks: what its code checks, as for sessions.
        outputs: dtypes of outputs that nothing else determines.
        spread: how inputs of different shapes broadcast; the kernel has to be elementwise.

    Raises:
        GraphError, DTypeError: the arguments contradict the signature; see `dsl.signature.bind.bind`.
    """
    state = prepared(kernel)
    place = user_place()
    bound = bind_parameters(state.schema, parameters or {}, place=place)
    listed = [list(map(_One, given)) if isinstance(given, list) else _One(given) for given in arguments]
    counts, flat = counted_inputs(state.schema, listed, bound, place)
    return specialised(kernel, state, [one.given for one in flat], counts, bound, device, checks, outputs, spread)


class _One:
    """A kind as one thing, where lists count."""

    def __init__(self, given: object) -> None:
        self.given = given


def specialised(
    kernel: AnyKernel | LoadedKernel,
    state: PreparedKernel,
    arguments: Sequence[ArgumentKind],
    counts: dict[str, int],
    bound: dict[str, object],
    device: DeviceRef | Device | None = None,
    checks: str | None = None,
    outputs: Sequence[DType | None] | None = None,
    spread: Spread | None = None,
) -> Specialisation:
    """As `specialise`, with the tensors of variadic arguments one by one, so many of each, and all parameters."""
    loaded = state.loaded
    if state.schema.variadic:
        expected = None if outputs is None else len(outputs)
        counts = counted_outputs(state.schema, counts, bound, expected, user_place())
        loaded = loaded.expanded(counts)
    kinds = _kinds(loaded.schema, arguments, bound, outputs)
    where = CPU() if device is None or device == _HOST else device
    level = str(parse_checks(checks)) if checks is not None else knobs.checks
    output_dtypes = None if outputs is None else tuple(outputs)
    named = tuple((name, identity(value)) for name, value in bound.items())
    key = (tuple(counts.items()), kinds, named, where, level, output_dtypes, spread)
    entry = state.known.get(key)
    if entry is None:
        with state.lock:
            entry = state.known.get(key)
            if entry is None:
                entry = state.known[key] = _made(kernel, loaded, kinds, bound, where, checks, output_dtypes, spread)
    return entry


def with_parameters(made: Specialisation, parameters: Mapping[str, object]) -> Specialisation:
    """The same kernel for the same kinds of arguments, with other values of parameters."""
    kinds = [(type.dtype, type.rank) for type in made.inputs]
    counts, bound = dict(made.schema.counts), {**made.parameters, **parameters}
    return specialised(made.kernel, prepared(made.kernel), kinds, counts, bound, made.where, made.checks)


# *** dtypes ***

_HOST = DeviceRef.CPU()
_DEFAULTS = (DType.bool, DType.int64, DType.float32, DType.complex64)  # of Python's numbers, from the lowest category


def _kinds(
    schema: OpSchema, arguments: Sequence[Any], parameters: Mapping[str, Any], outputs: Sequence[DType | None] | None
) -> tuple[InputKind, ...]:
    """The dtype and rank of each argument; numbers get the dtype of the other operands."""
    known: dict[Any, DType] = {n: parameters[n.lower()] for n, _ in schema.typevars if n.lower() in parameters}
    for argument, dtype in zip(schema.outputs, outputs or (), strict=False):
        if dtype is not None:
            known.setdefault(argument.dtype, dtype)
    weak: dict[Any, int] = {}
    pairs = list(zip(schema.inputs, arguments, strict=False))
    for argument, given in pairs:
        if isinstance(given, tuple):
            known.setdefault(argument.dtype, given[0])
        else:
            weak[argument.dtype] = max(weak.get(argument.dtype, 0), _category(given))
    results: list[InputKind] = []
    for argument, given in pairs:
        if isinstance(given, tuple):
            results.append(given)
        elif isinstance(argument.dtype, DType):
            results.append((argument.dtype, 0))
        else:
            results.append((known.get(argument.dtype, _DEFAULTS[weak[argument.dtype]]), 0))
    results += [given if isinstance(given, tuple) else (DType.float32, 0) for given in arguments[len(pairs) :]]
    return tuple(results)


def _category(number: bool | int | float | complex) -> int:
    return 0 if isinstance(number, bool) else 1 if isinstance(number, int) else 2 if isinstance(number, float) else 3


# *** graphs of one op ***


@compiling
def _made(
    kernel: AnyKernel | LoadedKernel,
    loaded: LoadedKernel,
    kinds: Sequence[InputKind],
    parameters: dict[str, object],
    where: DeviceRef | Device,
    checks: str | None,
    outputs: tuple[DType | None, ...] | None,
    spread: Spread | None,
) -> Specialisation:
    schema, device = loaded.schema, DeviceRef.from_device(where)
    names = _axis_names(schema, kinds, parameters, spread)
    types: list[ShapedType] = []
    for argument, (dtype, _), axes in zip(schema.inputs, kinds, names.inputs, strict=True):
        made = BufferType if argument.role is Role.MUTABLE else TensorType
        types.append(made(dtype, axes, device))
    library = LoadedLibrary(loaded.origin, {schema.name: loaded})
    sized = tuple(open_sizes(schema)) if outputs is not None and not schema.counts else ()
    carriers = [TensorType(DType.bool, [name, 0], device) for name in sized]
    graph = Graph(schema.name, input_types=[*types, *carriers], kernel_library=library)
    graph.name_inputs([*(argument.name for argument in schema.inputs), *(f"size_of_{name}" for name in sized)])
    with shielded(), graph:
        values = [_operand(graph, names, k) for k in range(len(types))]
        if spread is not None:
            joint = joint_inputs(schema)
            repeated = broadcast(schema.name, {schema.inputs[k].name: values[k] for k in joint})  # type: ignore[misc]
            values = [repeated[joint.index(k)] if k in joint else value for k, value in enumerate(values)]
        results = stage(loaded, values, parameters, device, _expected(graph, schema, names, outputs, device, sized))
        graph.output(*results)
    _forget_places(graph)
    return Specialisation(
        kernel, loaded, tuple(types), tuple(r.type for r in results), names, parameters, device, where, graph, checks,
        spread, sized,
    )  # fmt: skip


def _axis_names(
    schema: OpSchema, kinds: Sequence[InputKind], parameters: dict[str, object], spread: Spread | None
) -> AxisNames:
    """The names of the axes of the inputs; axes that are repeated have size 1."""
    ranks = [rank for _, rank in kinds]
    if spread is None:
        names = axis_names(schema, ranks, parameters)
        return names if names is not None else _refuse(schema, kinds, parameters)
    most, joint = max(map(len, spread)), joint_inputs(schema)
    common = [(dtype, most if k in joint else rank) for k, (dtype, rank) in enumerate(kinds)]
    names = axis_names(schema, [rank for _, rank in common], parameters)
    if names is None:
        _refuse(schema, kinds, parameters)
    for k, axes in zip(joint, spread, strict=True):
        own = names.inputs[k][most - len(axes) :]
        names.inputs[k] = tuple(1 if repeated else name for name, repeated in zip(own, axes, strict=True))
    return names


def _forget_places(graph: Graph) -> None:
    """Takes out where the op was staged: it serves calls from everywhere."""
    ir = graph.ir
    nodes = tuple(replace(node, place=None) if isinstance(node, Node) else node for node in ir.nodes)
    graph._ir = replace(ir, nodes=nodes, steps=tuple(replace(step, place=None) for step in ir.steps))


def _operand(graph: Graph, names: AxisNames, number: int) -> Value:
    """An input of the graph; under the sizes that the signature computes for it, which are checked at the call."""
    value: Value = graph.inputs[number]
    wanted = {axis: expression for (k, axis), expression in names.computed.items() if k == number}
    if not wanted:
        return value
    sizes = _sizes(graph, names)
    shape = [Dim(evaluate(wanted[axis], sizes)) if axis in wanted else dim for axis, dim in enumerate(value.shape)]
    if not isinstance(value, BufferValue):
        return rebind(value.tensor, shape)
    for axis in wanted:
        text = f"axis {axis} has to have size {wanted[axis]}"
        require(graph.name, "equal", value.shape[axis], shape[axis], text)
    return BufferValue(graph, value.number, BufferType(value.dtype, shape, value.device))


def _sizes(graph: Graph, names: AxisNames) -> dict[str, Any]:
    """What expressions of the signature may name: dims of the inputs, and int parameters."""
    dims = {name: Dim(name) for axes in names.inputs for name in axes if isinstance(name, str)}
    return {**dims, **names.integers}


def _expected(
    graph: Graph,
    schema: OpSchema,
    names: AxisNames,
    dtypes: tuple[DType | None, ...] | None,
    device: DeviceRef,
    sized: Sequence[str],
) -> list[TensorType] | None:
    """The types of the outputs, where only the caller determines their dtypes or sizes."""
    if dtypes is None or any(dtype is None for dtype in dtypes):
        return None
    late = {name: graph.unused_dim(f"{schema.name.rpartition('::')[2]}_{name}") for name in schema.late}
    sizes = _sizes(graph, names) | late | {name: Dim(name) for name in sized}
    shapes = [[Dim(evaluate(e, sizes)) for e in output] for output in output_sizes(schema, names)]
    return [TensorType(dtype, shape, device) for dtype, shape in zip(dtypes, shapes, strict=True) if dtype is not None]


def _refuse(schema: OpSchema, kinds: Sequence[InputKind], parameters: Mapping[str, object]) -> NoReturn:
    """Raises what is wrong with these ranks."""
    specs = [(dtype, (Dim("size"),) * rank) for dtype, rank in kinds]
    bind(schema, specs, parameters, place=user_place())
    raise InternalError(f"op '{schema.name}': no names are found for axes of these ranks", code="EK0901")
