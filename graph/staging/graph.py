"""Builds graphs: `Graph` collects the nodes that ops stage.

A graph is built in one of two ways, traced from a callable or under `with`:

    Graph("double", forward=lambda x: x + x, input_types=[TensorType(DType.float32, ["n"], DeviceRef.CPU())])

    with Graph("double", input_types=[...]) as graph:
        x = graph.inputs[0]
        graph.output(x + x)

Ops add to the innermost graph that is being built, in the current thread or task. Staging is transactional: an op that
raises has added nothing. After `output` the graph is finished and nothing can be added.

See also `ops`.
"""

from __future__ import annotations

import itertools
from collections.abc import Callable, Iterable, Iterator, Mapping, Sequence
from contextlib import contextmanager
from dataclasses import replace
from pathlib import Path
from typing import TYPE_CHECKING, Any

import numpy as np

from ...dsl.diagnostics.errors import GraphError, did_you_mean
from ...dsl.diagnostics.places import Place, user_place, user_trace
from ...dsl.diagnostics.rich import Rich
from ...dsl.environment.tracebacks import placed, without_internals
from ...dsl.package.library import LoadedLibrary as Library
from ...dsl.types.dtype import DType
from ..arguments import list_of, text_of, wrong
from ..driver.devices import DeviceRef
from ..ir import (
    Branch,
    Carried,
    ConstantTensor,
    Constraint,
    External,
    GraphIR,
    Item,
    KernelSource,
    Loop,
    Node,
    SizeStep,
    format_graph,
    has_effects,
)
from ..types.dims import Dim, Shape
from ..types.promotion import is_weak, literal_array
from ..types.tensor_type import BufferType, ShapedType, TensorType, shown
from .active import ACTIVE
from .bodies import Bodies, lost_value
from .debug import GRAPH_DEBUG
from .drawn import DrawnGraph
from .hoist import Needs, hoist_sizes, late_size
from .kernels import Extensions, KernelLibrary, extensions_of, open_kernels
from .removal import without
from .signature import check_outputs, input_types_of, output_types_of, parameters_of, refuse
from .sizes import stage_dim, stage_sizes
from .value import BufferValue, TensorValue, Value, foreign_value
from .weight import Weight

if TYPE_CHECKING:
    from ...dsl.package.library import LoadedKernel


def active_graph() -> Graph | None:
    """The innermost graph being built, or None."""
    graphs: tuple[Graph, ...] = ACTIVE.get()
    return graphs[-1] if graphs else None


class _Current:
    """`Graph.current`: the innermost graph being built."""

    def __get__(self, instance: object, owner: type) -> Graph:
        graph = active_graph()
        if graph is None:
            raise GraphError("no graph is being built here", code="EK0401", place=user_place())
        return graph


class Graph(DrawnGraph, Rich):
    """A dataflow program over tensors.

    Args:
        name: for messages and prints.
        forward: called at once with the inputs, then `args` and `kwargs`; what it returns (a value, or an iterable of
            values) becomes the output. Left out, the graph is a context manager.
        input_types: the types of the inputs; their dims are sizes or names, and one name is one size everywhere. An
            input of a `BufferType` is memory of the caller's that the graph may change.
        path, module: not supported; they keep the documented order of arguments.
        custom_extensions: folders of kernel files, single files, packages, or kernels themselves, for `ops.custom`.
        kernel_library: an already loaded library, for the same purpose.
        output_types: what the outputs have to be; checked when they are set.

    Attributes:
        output_texts: for outputs that stand for texts, by their number, the texts that their elements are places in;
            from ONNX models, see `from_onnx`.

    Raises:
        GraphError: an input type is invalid, or has a computed dim; or whatever an op in `forward` raises.
        PackageError: a custom extension cannot be loaded.
    """

    current = _Current()
    debug = GRAPH_DEBUG  # settings for all graphs

    @without_internals
    def __init__(
        self,
        name: str = "graph",
        forward: Callable[..., object] | None = None,
        input_types: Iterable[ShapedType] = (),
        path: None = None,
        *args: Any,
        custom_extensions: Extensions = (),
        kernel_library: KernelLibrary | Library | None = None,
        output_types: Iterable[ShapedType] | None = None,
        module: None = None,
        **kwargs: Any,
    ) -> None:
        if path is not None or module is not None:
            argument = "path" if path is not None else "module"
            text = "a graph cannot be loaded from a file or from an existing module"
            refuse(text, code="EK0408", argument=argument)
        if forward is None and (args or kwargs):
            refuse("extra arguments are for 'forward', and there is none", code="EK0408", argument="forward")
        self.name = text_of("name", name)
        if forward is not None and not callable(forward):
            wrong("forward", forward, "a function")
        types = input_types_of(name, input_types)
        self._extensions = extensions_of(custom_extensions)
        if kernel_library is not None and not isinstance(kernel_library, KernelLibrary | Library):
            wrong("kernel_library", kernel_library, "a KernelLibrary", hint="pass paths as custom_extensions=[...]")
        self._library = kernel_library
        self.kernels: KernelSource = self._open(kernel_library)
        self._input_types = types
        self._dim_names = frozenset(dim for type in types for dim in type.shape.parameters)
        self._types: list[ShapedType] = list(types)
        self._nodes: list[Item] = []
        self._constraints: list[Constraint] = []
        self._steps: list[SizeStep] = []
        self._weights: list[tuple[Weight, TensorValue]] = []  # what was added as a weight, and its value
        self._named_weights: dict[str, int] = {}  # numbers of their nodes
        self.unused: list[int] = []  # values that the finished graph does without
        self._title = ""  # begins the messages of conditions
        self.draws: Any = None  # the seed and the count of random ops; see `ops.draws`
        self.bodies = Bodies(self._nodes, self._types)
        self._subgraphs: dict[str, Graph] = {}
        self._wanted = None if output_types is None else output_types_of(output_types)
        self.output_texts: dict[int, tuple[str, ...]] = {}
        self._ir: GraphIR | None = None
        self._names: tuple[str, ...] = ()
        self._inputs = [self._value(number, type) for number, type in enumerate(types)]
        if forward is not None:
            self._trace(forward, args, kwargs)

    def _value(self, number: int, type: ShapedType) -> TensorValue | BufferValue:
        return BufferValue(self, number, type) if isinstance(type, BufferType) else TensorValue(self, number, type)

    def _has_effects(self) -> bool:
        return any(isinstance(node, Node) and has_effects(node) for node in self._nodes)

    @placed
    def _open(self, library: KernelLibrary | Library | None) -> KernelSource:
        return open_kernels(self._extensions, library)

    def _trace(self, forward: Callable[..., Any], args: tuple[object, ...], kwargs: dict[str, Any]) -> None:
        self._names = parameters_of(forward)[: len(self._inputs)]
        with self:
            result = forward(*self._inputs, *args, **kwargs)
            if self._ir is not None and result is None:
                return
            if result is None and self._has_effects():
                result = ()
            if result is None:
                refuse(
                    f"graph {self.name!r}: 'forward' returned nothing",
                    code="EK0405",
                    argument="forward",
                    hint="return the output values, or call graph.output(...) in it",
                )
            several = isinstance(result, list | tuple | Iterator) and not isinstance(result, Shape)
            self.output(*(result if several else [result]))

    # --- what is known ---

    @property
    def inputs(self) -> Sequence[Any]:
        """One value for each input type: a `TensorValue`, or a `BufferValue` where the type is a `BufferType`."""
        return tuple(self._inputs)

    @property
    def output_types(self) -> list[ShapedType]:
        """The types of the outputs; GraphError before `output` was called."""
        return list(self.ir.output_types)

    @property
    def weights(self) -> dict[str, np.ndarray[Any, Any] | None]:
        """The weights of the graph by name, with the elements that came with them: such as those of a model of ONNX.
        None where `load(weights_registry=...)` has to bring them."""
        return {node.name: node.data for node in self._nodes if isinstance(node, External)}

    @property
    def kernel_libraries_paths(self) -> list[Path]:
        """The paths of the custom extensions, and of the kernel library."""
        known = self._library.library_paths() if isinstance(self._library, KernelLibrary) else []
        return [*known, *(each if isinstance(each, Path) else Path(each.path) for each in self._extensions)]

    @property
    def ir(self) -> GraphIR:
        """The finished graph.

        Raises:
            GraphError: `output` was not called yet.
        """
        if self._ir is None:
            refuse(
                f"graph {self.name!r} has no output yet",
                code="EK0405",
                hint="end the 'with' block with graph.output(...)",
            )
        return self._ir

    def __str__(self) -> str:
        if self._ir is not None:
            return str(self._ir)
        return format_graph(self.name, self._input_types, self._nodes, None, self._constraints, self._steps)

    def __repr__(self) -> str:
        state = "being built" if self._ir is None else f"{len(self._ir.outputs)} outputs"
        return f"Graph({self.name!r}, {len(self._inputs)} inputs, {len(self._nodes)} nodes, {state})"

    # --- building ---

    def __enter__(self) -> Graph:
        ACTIVE.set((*ACTIVE.get(), self))
        return self

    def __exit__(self, *_: object) -> None:
        ACTIVE.set(ACTIVE.get()[:-1])

    def name_inputs(self, names: Iterable[str]) -> None:
        """Sets the names of the inputs, under which a model takes them; they are those of `forward` otherwise."""
        self._check_open("name_inputs", user_place())
        given = [text_of(f"names[{k}]", name) for k, name in enumerate(list_of("names", names, "names", "EK0406"))]
        if len(given) != len(self._inputs) or len(set(given)) != len(given):
            wrong("names", given, f"{len(self._inputs)} names, each once")
        self._names = tuple(given)

    def output(self, *outputs: object) -> None:
        """Sets the outputs and finishes the graph. Numbers and arrays become constants. A graph that changes a buffer
        may have no outputs.

        Raises:
            GraphError: there are none, one is not a value of this graph, or `output` was called before.
        """
        place = user_place()
        self._check_open("output", place)
        self.bodies.refuse("output", "the graph is finished", place, "return the values of a body from its function")
        if not outputs and not self._has_effects():
            refuse(f"graph {self.name!r}: a graph needs at least one output", code="EK0405")
        with self.transaction():
            numbers = tuple(self._output_number(position, value, place) for position, value in enumerate(outputs))
        check_outputs(self.name, [self._types[number] for number in numbers], self._wanted, place)
        parts = (tuple(self._nodes), numbers, tuple(self._constraints), tuple(self._steps))
        ir = without(GraphIR(self.name, self._input_types, *parts, names=self._names), self.unused)
        self._ir = hoist_sizes(ir, self.kernels.builtin("control_flow", "copy")) if self._steps else ir

    def _output_number(self, position: int, value: object, place: Place | None) -> int:
        if isinstance(value, TensorValue):
            self.check_value("output", str(position), value, place)
            if isinstance(self.maker(value.number), Loop):  # what a loop gives lies where its last round left it
                kernel = self.kernels.builtin("control_flow", "copy")
                return self.stage(kernel, [value], {}, [value.type], place)[0].number
            return value.number
        if is_weak(value):
            return self.stage_constant(literal_array(value, None, "output", place), DeviceRef.CPU(), place).number
        if isinstance(value, Dim):
            return stage_dim(self, value, DeviceRef.CPU(), place).number
        if isinstance(value, Shape):
            return stage_sizes(self, value, DeviceRef.CPU(), place).number
        raise GraphError(
            f"graph {self.name!r}: output {position} is not a value but {type(value).__name__}",
            code="EK0405",
            place=place,
            expected="TensorValue",
            got=type(value).__name__,
            hint=_hint_for_output(value),
        )

    def add_weight(self, weight: Weight, force_initial_weight_on_host: bool = True) -> TensorValue:
        """The value of a weight in this graph, which has it from now on.

        Args:
            weight: what stands for it outside of graphs. Adding it again gives the same value, and so does an equal
                one: of the same name, type and alignment.
            force_initial_weight_on_host: keeps the documented form; a weight lies where its type says from the start.

        Raises:
            GraphError: EK0432, another weight of the graph has its name; EK0404 the graph is finished.
        """
        for added, value in self._weights:
            if added is weight:
                return value
        place = user_place()
        if not isinstance(weight, Weight):
            wrong("weight", weight, "a Weight", code="EK0432", hint="einkorn.graph.Weight(name, dtype, shape, device)")
        self._check_open("add_weight", place)
        with self.transaction():
            value = self.stage_weight(weight.name, weight.type, weight.align or 1, place)
            self._weights.append((weight, value))
        return value

    def add_subgraph(
        self,
        name: str,
        forward: Callable[..., object] | None = None,
        input_types: Iterable[ShapedType] = (),
        path: None = None,
        custom_extensions: Extensions = (),
        devices: Iterable[DeviceRef] = (),
    ) -> Graph:
        """A graph of its own that `ops.call` puts into this one, as often as wanted.

        It has the kernels and the dims of this graph. A dim that its input types name takes its size from the
        arguments of each call.

        Args:
            name: unique among the subgraphs of this graph.
            forward, input_types, custom_extensions: as of `Graph`.
            path: not supported; it keeps the documented order of arguments.
            devices: keeps the documented form: its types say where its values lie.

        Raises:
            GraphError: EK0408 the graph has a subgraph of this name; or whatever an op in `forward` raises.
        """
        if path is not None:
            refuse("a subgraph cannot be loaded from a file", code="EK0408", argument="path")
        if text_of("name", name) in self._subgraphs:
            refuse(f"graph {self.name!r} has a subgraph {name!r} already", code="EK0408", argument="name", got=name)
        for position, device in enumerate(list_of("devices", devices, "devices")):
            if not isinstance(device, DeviceRef):
                wrong(f"devices[{position}]", device, "a DeviceRef")
        further = extensions_of(custom_extensions)
        paths: Any = [*self._extensions, *(each for each in further if each not in self._extensions)]
        made = Graph(name, input_types=input_types, custom_extensions=paths, kernel_library=self._library)
        made._dim_names |= self._dim_names
        if forward is not None:
            if not callable(forward):
                wrong("forward", forward, "a function")
            made._trace(forward, (), {})
        self._subgraphs[name] = made
        return made

    # --- for ops ---

    @contextmanager
    def transaction(self) -> Iterator[None]:
        """Undoes what was staged inside when the block raises."""
        lists: tuple[list[Any], ...] = (
            self._nodes,
            self._types,
            self._constraints,
            self._steps,
            self._weights,
            self.unused,
        )
        staged = (*lists, self.bodies.closed)
        marks = [len(part) for part in staged]
        names, draws = self._dim_names, self.draws
        try:
            yield
        except BaseException:
            for part, mark in zip(staged, marks, strict=True):
                del part[mark:]
            self._dim_names, self.draws = names, draws
            raise

    def stage(
        self,
        kernel: LoadedKernel,
        operands: Iterable[Value],
        parameters: Mapping[str, object],
        out_types: Iterable[ShapedType],
        place: Place | None,
    ) -> list[Value]:
        """Adds a call of `kernel`. The caller has checked it against the schema.

        Raises:
            GraphError: the graph is finished, or an operand belongs to another.
        """
        name = kernel.schema.name
        self._check_open(name, place)
        place = user_trace() if GRAPH_DEBUG.source_tracebacks else place
        operands = tuple(operands)
        for argument, value in zip(kernel.schema.inputs, operands, strict=True):
            self.check_value(name, argument.name, value, place)
        types = tuple(out_types)
        self._check_dims_known(name, types, place)
        numbers = tuple(value.number for value in operands)  # a weight that is new here gets its number now
        first = len(self._types)
        results = tuple(range(first, first + len(types)))
        node = Node(kernel, tuple(parameters.items()), numbers, types, results, place)
        self._nodes.append(node)
        self._types.extend(types)
        return [self._value(number, type) for number, type in zip(results, types, strict=True)]

    def stage_constant(self, array: np.ndarray[Any, Any], device: DeviceRef, place: Place | None) -> TensorValue:
        """Adds a constant. The array becomes the graph's own and read-only; pass a copy."""
        self._check_open("constant", place)
        array = np.ascontiguousarray(array).reshape(array.shape)  # NumPy makes rank 0 into rank 1
        array.flags.writeable = False
        type = TensorType(DType.from_numpy(array.dtype), array.shape, device)
        value = TensorValue(self, len(self._types), type)
        self._nodes.append(ConstantTensor(array, type, value.number, place))
        self._types.append(type)
        return value

    def stage_weight(
        self,
        name: str,
        type: TensorType,
        align: int,
        place: Place | None,
        data: np.ndarray[Any, Any] | None = None,
    ) -> TensorValue:
        """Adds a weight; the one that the graph has under this name and type, if there is one. `data` are the elements
        that it has where no others are given.

        Raises:
            GraphError: EK0432, the graph has a weight of this name and of another type.
        """
        number = self._named_weights.get(name, len(self._nodes))
        node = self._nodes[number] if number < len(self._nodes) else None  # an error may have taken it back
        if isinstance(node, External) and node.name == name:
            if node.type == type and node.align == align:
                return TensorValue(self, node.result, type)
            raise GraphError(
                f"weight {name!r} is {type}, and graph {self.name!r} has one of this name that is {node.type}",
                code="EK0432",
                place=place,
                argument="name",
                expected=str(node.type),
                got=str(type),
                notes=[f"the first one was added at {node.place}"] if node.place else [],
            )
        self._check_open("weight", place)
        value = TensorValue(self, len(self._types), type)
        self._named_weights[name] = len(self._nodes)
        self._nodes.append(External(name, type, value.number, align, place, data))
        self._types.append(type)
        return value

    def stage_control(
        self,
        make: Callable[[tuple[TensorType, ...], tuple[int, ...], Place | None], Carried | Branch | Loop],
        types: Iterable[TensorType],
        place: Place | None,
    ) -> list[TensorValue]:
        """Adds what `make` makes of the types and numbers of its results. The caller has checked the rest."""
        types = tuple(types)
        first = len(self._types)
        node = make(types, tuple(range(first, first + len(types))), place)
        self._nodes.append(node)
        self._types.extend(types)
        return [TensorValue(self, number, type) for number, type in zip(node.results, types, strict=True)]

    @property
    def next_node(self) -> int:
        """The number of the node that is staged next."""
        return len(self._nodes)

    @property
    def next_value(self) -> int:
        """The number of the value that is staged next."""
        return len(self._types)

    def maker(self, number: int) -> Item | None:
        """The node that makes a value; None for an input."""
        return next((node for node in reversed(self._nodes) if number in node.results), None)

    def value(self, number: int) -> TensorValue | BufferValue:
        """The value of this number."""
        return self._value(number, self._types[number])

    def check_value(self, op: str, argument: str, value: Value, place: Place | None) -> None:
        """Refuses a value that the op cannot use.

        Raises:
            GraphError: EK0402 it belongs to another graph, EK0446 to a body of control flow that has ended.
        """
        if value.graph is not self:
            raise foreign_value(op, argument, value, self, place)
        body = self.bodies.lost_in(value.number)
        if body is not None and not isinstance(self.maker(value.number), External):
            raise lost_value(op, argument, body, place)

    def has_dim(self, name: str) -> bool:
        """Whether a dim of this name has a size: from an input, or computed on the way."""
        return name in self._dim_names

    def has_size(self, dim: Dim) -> bool:
        """Whether a dim is made of numbers and of names that have sizes."""
        return self._dim_names.issuperset(dim.parameters)

    def unused_dim(self, name: str) -> Dim:
        """A dim with a name like this one that the graph does not know yet."""
        names = itertools.chain([name], (f"{name}_{k}" for k in itertools.count(2)))
        return Dim(next(n for n in names if n not in self._dim_names))

    def define_dims(self, value: Value, names: Iterable[str], op: str, place: Place | None) -> None:
        """Says that the elements of a value are the sizes of these dims. In a body of control flow they are computed
        before it.

        Raises:
            GraphError: EK0448, in a body they depend on what a loop carries or on a buffer.
        """
        obstacle = self._obstacle(value)
        if obstacle is not None:
            raise late_size(op, obstacle, self.bodies.open[-1].name, place)
        step = SizeStep(value.number, tuple(names), op, place)
        self._steps.append(step)
        self._dim_names = self._dim_names | set(step.names)

    def changes_in_body(self, value: Value) -> bool:
        """Whether a value cannot be computed before the bodies of control flow that are being staged."""
        return self._obstacle(value) is not None

    def _obstacle(self, value: Value) -> Carried | Node | None:
        """Why a value cannot be computed before the bodies that are being staged; None where it can."""
        if not self.bodies.open:
            return None
        needs = Needs(self._types, self._nodes, self._steps, self.unused)
        return needs.obstacle(needs.of([value.number], self.bodies.open[0].first_node))

    def require(self, constraint: Constraint) -> None:
        """Adds a condition on run-time dims. In an arm of a branch it is checked where the arm runs, and only then."""
        self._check_open(constraint.op or "rebind", constraint.place)
        if self._title:
            constraint = replace(constraint, message=f"{self._title}: {constraint.message}")
        if any(body.may_not_run for body in self.bodies.open):
            self._check_in_arm(constraint)
            return
        kind, difference = constraint.kind, constraint.left - constraint.right
        if not any(c.kind == kind and c.left - c.right == difference for c in self._constraints):
            self._constraints.append(constraint)

    def _check_in_arm(self, constraint: Constraint) -> None:
        device = self._types[0].device if self._types else DeviceRef.CPU()
        sizes = [stage_dim(self, dim, device, constraint.place) for dim in (constraint.left, constraint.right)]
        parameters = {"kind": constraint.kind, "text": f"{constraint.message} ({constraint.condition})"}
        done = TensorType(DType.int64, [1], device)
        self.stage(self.kernels.builtin("creation", "require_sizes"), sizes, parameters, [done], constraint.place)

    @contextmanager
    def on_behalf_of(self, title: str) -> Iterator[None]:
        """Begins the messages of the conditions that are added inside with a title: a node of a model, for example."""
        outer, self._title = self._title, title
        try:
            yield
        finally:
            self._title = outer

    def _check_dims_known(self, op: str, types: Iterable[ShapedType], place: Place | None) -> None:
        known = self._dim_names
        for type in types:
            for name in type.shape.parameters:
                if name not in known:
                    listed = f"the inputs have {', '.join(sorted(known))}" if known else "the inputs have none"
                    raise GraphError(
                        f"{op}: nothing determines the size of dim {name!r} of the result {shown(type.shape)}",
                        code="EK0431",
                        place=place,
                        op=op,
                        expected=sorted(known),
                        got=name,
                        notes=[f"a named dim takes its size from an input of the graph; {listed}"],
                        hint=did_you_mean(name, known),
                    )

    def _check_open(self, op: str, place: Place | None) -> None:
        if self._ir is not None:
            raise GraphError(
                f"{op}: graph {self.name!r} is finished, its output is set", code="EK0404", place=place, op=op
            )


def _hint_for_output(value: object) -> str | None:
    """What to give back in the place of something that is not a tensor."""
    if isinstance(value, BufferValue):
        return "return its contents: ops.buffer_load(x)"
    several = isinstance(value, list | tuple) and value and all(isinstance(each, TensorValue) for each in value)
    return "an op with several results returns a list: return its items, *values" if several else None
