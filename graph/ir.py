"""The graph's intermediate representation: an immutable list of nodes over numbered values.

Values are numbered from 0: the inputs first, then the results of each node in the order in which nodes were staged, so
a node's operands always have smaller numbers than its results. A node is a `ConstantTensor`, which holds its data, an
`External`, whose data comes when a model is loaded and is held by it, or a `Node`: a call of a kernel, built-in or
custom, with its operands, parameters and result types. Whatever happens at run time is a kernel. Control flow says
which of them run and how often: a `Branch` or a `Loop` stands right behind the nodes of its bodies, which are ranges of
the same list, and a body may hold others. So code that looks at all nodes sees those of the bodies, too; `Regions`
maps nodes to bodies.

A graph prints as one line a node:

    graph scale(%0: Tensor[float32, (rows, 10), cpu:0]) {
      %1 = constant 2.0 : Tensor[float32, (), cpu:0]
      %2 = broadcast_to(%1) : Tensor[float32, (rows, 10), cpu:0]
      %3 = mul(%0, %2) : Tensor[float32, (rows, 10), cpu:0]
      output %3
    }

A body stands in the braces of its node, and ends by giving its values back:

      %5 = cond(%1) : Tensor[float32, (), cpu:0] {
        %3 = exp(%0) : Tensor[float32, (), cpu:0]
        yield %3
      } else {
        %4 = negate(%0) : Tensor[float32, (), cpu:0]
        yield %4
      }
"""

from __future__ import annotations

import json
import operator
from collections.abc import Callable, Iterable, Iterator, Mapping, Sequence
from typing import TYPE_CHECKING, Any, ClassVar, Final, Protocol

import numpy as np

from ..dsl.diagnostics.cached import cached
from ..dsl.diagnostics.dataclass import dataclass
from ..dsl.diagnostics.errors import GraphError
from ..dsl.diagnostics.places import Place, user_place
from ..dsl.types.dtype import DType
from .driver.devices import DeviceRef
from .types.dims import Dim
from .types.strides import Pattern
from .types.tensor_type import BufferType, ShapedType, TensorType

if TYPE_CHECKING:
    from ..dsl.package.library import LoadedKernel

SHOWN_ELEMENTS = 8  # a printed constant shows at most so many


class KernelSource(Protocol):
    """Where a graph finds its kernels."""

    def builtin(self, family: str, name: str) -> LoadedKernel:
        """A kernel of the shipped library file `family`; raises PackageError when there is none."""
        ...

    def chosen(self, family: str, name: str, inputs: Sequence[DType], outputs: Sequence[DType] | None) -> LoadedKernel:
        """The kernel for operands of these dtypes: one that overrides the shipped one, or that."""
        ...

    def find(self, name: str) -> LoadedKernel | None:
        """A custom op of this name, or None."""
        ...

    def names(self) -> Iterable[str]:
        """The names for `find`."""
        ...

    def searched(self) -> Iterable[str]:
        """The paths that `find` looks at, as the user gave them."""
        ...


@dataclass(frozen=True, eq=False)
class Node:
    """A call of a kernel.

    Attributes:
        kernel: what is called.
        parameters: (name, value) in the order of the schema, defaults filled in.
        operands: the numbers of the values passed, in the order of `schema.inputs`.
        out_types: one type a result, in the order of `schema.outputs`.
        results: the numbers of the values made.
        place: the user's line that staged the node.
        made_by: the pass over graphs that made the node, or changed it last.
    """

    kernel: LoadedKernel
    parameters: tuple[tuple[str, Any], ...]
    operands: tuple[int, ...]
    out_types: tuple[ShapedType, ...]
    results: tuple[int, ...]
    place: Place | None = None
    made_by: str = ""

    @property
    def name(self) -> str:
        """The name of the op."""
        return self.kernel.schema.name

    @property
    def move(self) -> str:
        """How an op that computes nothing takes elements of its operands: a key of `schema.MOVES`; "" of others."""
        move = self.kernel.schema.move
        is_whole = move != "permute" or sorted(self.order) == list(range(self.out_types[0].rank))
        return move if is_whole else ""

    @property
    def is_store(self) -> bool:
        """Whether the op only stores its second operand in its first one, a buffer, or in a slice of that."""
        return bool(self.kernel.schema.mutable) and self.move in ("copy", "slice")

    @property
    def order(self) -> tuple[int, ...]:
        """The axes of a permute's operand in the order of its result."""
        order: tuple[int, ...] = dict(self.parameters)["order"]
        return order

    def __str__(self) -> str:
        results = ", ".join(f"%{value}" for value in self.results)
        operands = ", ".join(f"%{value}" for value in self.operands)
        listed = ", ".join(f"{name} = {_literal(value)}" for name, value in self.parameters)
        types = ", ".join(str(type) for type in self.out_types)
        counts = ", ".join(f"{name} = {count}" for name, count in self.kernel.schema.counts)
        called = f"{self.name}[{counts}]" if counts else self.name
        return f"{results} = {called}({operands}) {f'{{{listed}}} ' if listed else ''}: {types}"


@dataclass(frozen=True, eq=False)
class ConstantTensor:
    """A tensor known while the graph is built. `array` is contiguous, read-only and the graph's own."""

    array: np.ndarray[Any, Any]
    type: TensorType
    result: int
    place: Place | None = None

    @property
    def results(self) -> tuple[int, ...]:
        return (self.result,)

    @property
    def out_types(self) -> tuple[TensorType, ...]:
        return (self.type,)

    def __str__(self) -> str:
        return f"%{self.result} = constant {shown_array(self.array)} : {self.type}"


@dataclass(frozen=True, eq=False)
class External:
    """A weight: an input that a model holds. Which memory it is, is said when the graph is loaded.

    Attributes:
        name: what the registry of weights calls it.
        align: its address is a multiple of so many bytes.
        data: its elements by default.
    """

    name: str
    type: TensorType
    result: int
    align: int = 1
    place: Place | None = None
    data: np.ndarray[Any, Any] | None = None

    @property
    def results(self) -> tuple[int, ...]:
        return (self.result,)

    @property
    def out_types(self) -> tuple[TensorType, ...]:
        return (self.type,)

    def __str__(self) -> str:
        aligned = f" {{align = {self.align}}}" if self.align != 1 else ""
        return f"%{self.result} = weight {_literal(self.name)}{aligned} : {self.type}"


@dataclass(frozen=True, eq=False)
class PreparedValue(External):
    """A value that is computed from weights and constants when a model is loaded.

    Attributes:
        part: the graph that computes it, without inputs. Its weights are those of the model, by their names.
    """

    part: GraphIR | None = None

    def __str__(self) -> str:
        return f"%{self.result} = prepared {_literal(self.name)} : {self.type}"


Held = ConstantTensor | External  # what lies in memory as long as the model lives


@dataclass(frozen=True)
class Body:
    """A part of a graph that runs when control flow says so.

    Attributes:
        first, end: its nodes are those from number `first` to before `end`.
        outputs: the numbers of the values that it gives back.
    """

    first: int
    end: int
    outputs: tuple[int, ...]


@dataclass(frozen=True, eq=False)
class Carried:
    """What a loop carries from round to round, as its bodies see it. It stands right before the nodes of its loop."""

    out_types: tuple[TensorType, ...]
    results: tuple[int, ...]
    place: Place | None = None

    def __str__(self) -> str:
        return f"{_values(self.results)} = carried : {', '.join(map(str, self.out_types))}"


@dataclass(frozen=True, eq=False)
class Branch:
    """Runs one of two bodies.

    Attributes:
        condition: the number of a bool of rank 0: the first body runs when it is true.
        bodies: both give back values of the types of the results.
        out_types, results, place: as of a `Node`.
    """

    condition: int
    bodies: tuple[Body, Body]
    out_types: tuple[TensorType, ...]
    results: tuple[int, ...]
    place: Place | None = None
    name: ClassVar[str] = "cond"

    @property
    def operands(self) -> tuple[int, ...]:
        """The values that it takes by itself; its bodies may read any value that is there."""
        return (self.condition,)


@dataclass(frozen=True, eq=False)
class Loop:
    """Runs a body as long as its predicate holds.

    Attributes:
        initial: the numbers of the values of the first round. Nothing else reads these.
        carried: the numbers of what both bodies take: the results of its `Carried`.
        bodies: the predicate, which gives back a bool of rank 0, and the body, which gives back the next values.
        out_types, results, place: as of a `Node`.
    """

    initial: tuple[int, ...]
    carried: tuple[int, ...]
    bodies: tuple[Body, Body]
    out_types: tuple[TensorType, ...]
    results: tuple[int, ...]
    place: Place | None = None
    name: ClassVar[str] = "while_loop"

    @property
    def operands(self) -> tuple[int, ...]:
        """The values that it takes by itself; its bodies may read any value that is there."""
        return self.initial


Item = Node | Held | Carried | Branch | Loop
Control = Branch | Loop


@dataclass(frozen=True)
class Relation:
    """A kind of conditions on two sizes: how it is written, and whether it holds for two numbers."""

    sign: str
    holds: Callable[[int, int], bool]


RELATIONS: Final[Mapping[str, Relation]] = {
    "equal": Relation("==", operator.eq),
    "at_least": Relation(">=", operator.ge),
    "broadcast": Relation("~", lambda left, right: left == right or 1 in (left, right)),
}


@dataclass(frozen=True)
class Constraint:
    """A condition on run-time dims that staging relied on and could not decide; checked once at a call's boundary.

    Attributes:
        kind: a key of `RELATIONS`.
        left, right: what is compared: `left == right`, for example.
        message: the message of a failure.
        place: the user's line that relied on it.
        op: which op relied on it.
        code: that of the error.
    """

    kind: str
    left: Dim
    right: Dim
    message: str
    place: Place | None = None
    op: str | None = None
    code: str = "EK0454"

    @property
    def condition(self) -> str:
        """What has to hold, such as "n == 2*m"."""
        return f"{self.left} {RELATIONS[self.kind].sign} {self.right}"

    def __str__(self) -> str:
        return f"require {self.condition}"


@dataclass(frozen=True)
class SizeStep:
    """Named dims that are known only once a value is: its elements are their sizes.

    Attributes:
        value: the number of the value, an int64 tensor of one axis, which a shape function computes.
        names: one dim for each of its elements.
        op: the op whose shape function it is.
        place: the user's line that staged the op.
    """

    value: int
    names: tuple[str, ...]
    op: str
    place: Place | None = None


@dataclass(frozen=True, eq=False)
class GraphIR:
    """A finished graph.

    Attributes:
        name: the graph's name.
        inputs: the types of values 0 to len(inputs) - 1.
        nodes: in the order of staging, which is a topological one; those of bodies among them.
        outputs: the numbers of the values given back; one value may stand twice, or be an input.
        constraints: what has to hold for the dims of a call.
        steps: the dims that are computed on the way, in the order in which they become known.
        patterns: of a variant for inputs that are not contiguous, how each of them lies; see `strides`.
        names: what the author calls the inputs, in their order, where that is known; calls may name them so.
        traced: of a variant whose code reports when each group begins and ends.
    """

    name: str
    inputs: tuple[ShapedType, ...]
    nodes: tuple[Item, ...]
    outputs: tuple[int, ...]
    constraints: tuple[Constraint, ...] = ()
    steps: tuple[SizeStep, ...] = ()
    patterns: tuple[Pattern, ...] = ()
    names: tuple[str, ...] = ()
    traced: bool = False

    @cached
    def argument_names(self) -> tuple[str, ...]:
        """What errors call the inputs: the author's names, or `input0`, `input1`, …"""
        count = len(self.inputs)  # of a function of `*tensors`, there may be more or fewer than it names
        return (*self.names[:count], *(f"input{position}" for position in range(len(self.names), count)))

    @cached
    def types(self) -> tuple[ShapedType, ...]:
        """The type of every value, by number."""
        return (*self.inputs, *(type for node in self.nodes for type in node.out_types))

    @cached
    def makers(self) -> Mapping[int, int]:
        """By value, the number of the node that makes it; without the inputs."""
        return {value: number for number, node in enumerate(self.nodes) for value in node.results}

    @cached
    def regions(self) -> Regions:
        """Which body each node is in."""
        return Regions(self.nodes)

    @cached
    def devices(self) -> tuple[DeviceRef, ...]:
        """Where its values lie, in order of appearance; the host, where it has none."""
        return tuple(dict.fromkeys(type.device for type in self.types)) or (DeviceRef.CPU(),)

    @property
    def device(self) -> DeviceRef:
        """Where the graph runs.

        Raises:
            GraphError: EK0430 its values lie on several devices.
        """
        first, *others = self.devices
        if others:
            raise GraphError(
                f"graph '{self.name}' has values on {first} and on {others[0]}, and is needed on one device here",
                code="EK0430",
                place=user_place(),
                expected=str(first),
                got=str(others[0]),
                hint="InferenceSession(devices=[...]).load(graph) runs it",
            )
        return first

    @property
    def output_types(self) -> tuple[ShapedType, ...]:
        """The types of the outputs."""
        return tuple(self.types[value] for value in self.outputs)

    def pattern(self, value: int) -> Pattern:
        """How a value lies in memory, if it is an input of a variant that is not contiguous."""
        return self.patterns[value] if value < len(self.patterns) else None

    def device_of(self, node: Node) -> DeviceRef:
        """Where a node runs: where its results lie, or its operands if it has none."""
        types = node.out_types or tuple(self.types[value] for value in node.operands)
        return types[0].device if types else self.device

    def changes(self, node: Node) -> bool:
        """Whether a node changes memory that others see, or does something else that is seen: it runs in its turn."""
        return has_effects(node)

    def ordered(self, node: Node) -> bool:
        """Whether a node changes or reads buffers, so that it has to happen when its turn comes."""
        return self.changes(node) or any(isinstance(self.types[value], BufferType) for value in node.operands)

    def __str__(self) -> str:
        return format_graph(self.name, self.inputs, self.nodes, self.outputs, self.constraints, self.steps)


def fits(kernel: LoadedKernel, operands: Sequence[ShapedType], results: Sequence[ShapedType]) -> bool:
    """Whether a kernel of tensors of any shape takes these dtypes."""
    schema = kernel.schema
    return schema.takes_any_shape and schema.takes([t.dtype for t in operands], [t.dtype for t in results])


def has_effects(node: Node) -> bool:
    """Whether a node does more than to make its results."""
    return bool(node.kernel.schema.mutable) or node.kernel.schema.effects


def is_transfer(ir: GraphIR, node: Node) -> bool:
    """Whether a node stands for a copy to another device."""
    if node.move != "copy" or not node.results:
        return False
    return ir.types[node.operands[0]].device != node.out_types[0].device


class Regions:
    """Which body each node of a graph is in. Bodies have numbers, a branch's or loop's own two follow each other; what
    lies in no body is in region 0.

    Attributes:
        of: by number of node, its region.
        owner: by region, the number of the branch or loop whose body it is; -1 for region 0.
        bodies: by region, its body.
        first: by number of a branch or loop, the region of the first of its bodies.
    """

    def __init__(self, nodes: Sequence[Item]) -> None:
        self.of = [0] * len(nodes)
        self.owner = [-1]
        self.bodies = [Body(0, len(nodes), ())]
        self.first: dict[int, int] = {}
        self._nodes = nodes
        for number, node in enumerate(nodes):  # inner bodies come before those around them
            if isinstance(node, Control):
                self.first[number] = len(self.bodies)
            for body in node.bodies if isinstance(node, Control) else ():
                for inside in range(body.first, body.end):
                    self.of[inside] = self.of[inside] or len(self.bodies)
                self.owner.append(number)
                self.bodies.append(body)

    def around(self, region: int) -> int:
        """The region that the branch or loop of a body is in."""
        return self.of[self.owner[region]]

    def given(self) -> Iterator[int]:
        """The values that bodies give back, and those that loops begin with."""
        for number in self.first:
            control = self._nodes[number]
            assert isinstance(control, Control)
            yield from (value for body in control.bodies for value in body.outputs)
            yield from control.initial if isinstance(control, Loop) else ()

    def loops(self, region: int, outer: int = 0) -> Iterator[int]:
        """The numbers of the loops around a region that lie within an outer one, from the inside out."""
        while region not in (outer, 0):
            if isinstance(self._nodes[self.owner[region]], Loop):
                yield self.owner[region]
            region = self.around(region)


def begin_of(node: Control, nodes: Sequence[Item]) -> int:
    """The number of the first node of a branch or loop, bodies and what is carried included."""
    first = node.bodies[0].first
    return first - 1 if isinstance(node, Loop) else first


def format_graph(
    name: str,
    inputs: Iterable[ShapedType],
    nodes: Sequence[Item],
    outputs: Iterable[int] | None,
    constraints: Iterable[Constraint],
    steps: Iterable[SizeStep] = (),
) -> str:
    """The text of a graph, finished or (without outputs) still being built."""
    arguments = ", ".join(f"%{value}: {type}" for value, type in enumerate(inputs))
    lines = [f"  {constraint}" for constraint in constraints]
    defined = {step.value: f" defines {', '.join(step.names)}" for step in steps}
    lines += _lines(nodes, 0, len(nodes), defined, "  ")
    if outputs is not None:
        lines.append(f"  output {', '.join(f'%{value}' for value in outputs)}".rstrip())
    return "\n".join([f"graph {name}({arguments}) {{", *lines, "}"])


def _lines(nodes: Sequence[Item], first: int, end: int, defined: Mapping[int, str], indent: str) -> list[str]:
    """The nodes from `first` to before `end`, with those of bodies in the braces of their node."""
    lines: list[str] = []
    while end > first:  # from the last on: a branch or loop precedes its contents
        end -= 1
        node = nodes[end]
        if not isinstance(node, Control):
            several = len(node.results) > 1  # then the message names the one with the sizes
            parts = [f"{defined[v]}{f' by %{v}' if several else ''}" for v in node.results if v in defined]
            extra = "".join(parts)
            lines.append(f"{indent}{node}{extra}")
            continue
        then, other = ([*_lines(nodes, b.first, b.end, defined, f"{indent}  "), _yield(b, indent)] for b in node.bodies)
        joint = "} do {" if isinstance(node, Loop) else "} else {"
        lines += [f"{indent}}}", *other[::-1], f"{indent}{joint}", *then[::-1], f"{indent}{_head(node)} {{"]
        end = begin_of(node, nodes)
    return lines[::-1]


def _yield(body: Body, indent: str) -> str:
    return f"{indent}  yield {_values(body.outputs)}".rstrip()


def _head(node: Control) -> str:
    """The line of a branch or loop, up to its brace."""
    if isinstance(node, Loop):
        passed = ", ".join(f"%{value} = %{start}" for value, start in zip(node.carried, node.initial, strict=True))
    else:
        passed = f"%{node.condition}"
    results = f"{_values(node.results)} = " if node.results else ""
    types = ", ".join(str(type) for type in node.out_types)
    return f"{results}{node.name}({passed}) : {types}".removesuffix(" : ")


def _values(numbers: Iterable[int]) -> str:
    return ", ".join(f"%{number}" for number in numbers)


def shown_array(array: np.ndarray[Any, Any]) -> str:
    """The elements of a small array as nested lists, the first few of a large one."""
    plain = array.astype(np.float64) if array.dtype.kind not in "biufc" else array
    if array.size <= SHOWN_ELEMENTS:
        return str(plain.tolist())
    return f"[{', '.join(str(item) for item in plain.reshape(-1)[:SHOWN_ELEMENTS].tolist())}, ...]"


def _literal(value: object) -> str:
    if isinstance(value, DType):
        return str(value)
    if isinstance(value, bool):
        return str(value)
    return json.dumps(value, ensure_ascii=False) if isinstance(value, str) else repr(value)
