"""Reads printed graphs: `parse_graph(str(graph))` is the graph once more.

A print leaves out the lines that staged the ops, the messages of `rebind`, the names that `forward` has for its inputs,
and the elements of large constants. Everything that the results and the code depend on is kept. The text is not
trusted: values, types and kernels are looked up and checked.

See also `ir.format_graph` (the form of the text).
"""

from __future__ import annotations

import ast
import functools
import json
import math
import pkgutil
import re
from collections.abc import Iterable, Mapping
from typing import Any, NoReturn

import numpy as np

from ...dsl.diagnostics.errors import EinkornError, GraphError, brief, did_you_mean
from ...dsl.diagnostics.places import user_place
from ...dsl.diagnostics.syntax_trees import expression_tree
from ...dsl.package.library import LoadedKernel
from ...dsl.signature.bind import bind
from ...dsl.signature.dims import evaluate, names_in
from ...dsl.signature.parameters import bind_parameters
from ...dsl.signature.parse_dims import parse_expression
from ...dsl.types.dtype import DType
from ..arguments import text_of, wrong
from ..driver.arrays import rounded
from ..driver.devices import DeviceRef
from ..ir import (
    RELATIONS,
    Body,
    Branch,
    Carried,
    ConstantTensor,
    Constraint,
    External,
    GraphIR,
    Item,
    Loop,
    Node,
    SizeStep,
)
from ..types.dims import Dim
from ..types.tensor_type import BufferType, ShapedType, TensorType
from .graph import Graph
from .kernels import SHIPPED, Extensions, kernel_family, shipped_kernel

CODE = "EK0436"
_TYPE = re.compile(r"(Tensor|Buffer)\[(\w+), \((.*?)\), (\w+):(\d+)\](?=, (?:Tensor|Buffer)\[| defines |\)| \{|$)")
_HEAD = re.compile(r"graph (.*?)\((%0: .*)?\) \{", re.DOTALL)
_SHAPE = ".shape"


def parse_graph(
    text: str,
    *,
    custom_extensions: Extensions = (),
    constants: Mapping[int, object] | None = None,
) -> Graph:
    """The graph that a text describes, as `str(graph)` writes it of a finished graph.

    Args:
        text: the print.
        custom_extensions: where its custom ops are found.
        constants: the elements of constants that the print does not show whole, by the numbers of their values.

    Raises:
        GraphError: EK0436, the text is not a printed graph, or the elements of a constant are missing.
        PackageError: EK0440, no library has an op of this name; or an extension cannot be loaded.
    """
    given = {} if constants is None else constants
    if not isinstance(given, Mapping):
        wrong("constants", constants, "a dict of arrays by the numbers of values", code=CODE)
    return _GraphReader(text_of("text", text), custom_extensions, given).graph()


class _GraphReader:
    def __init__(self, text: str, extensions: Any, constants: Mapping[int, Any]) -> None:
        self.lines = text.strip().split("\n")
        self.at = 0
        match = _HEAD.fullmatch(self.lines[0])
        if match is None:
            self.fail("begins with no line such as 'graph name(%0: Tensor[float32, (n), cpu:0]) {'")
        self.constants = constants
        self.result = Graph(match[1], input_types=self.inputs(match[2] or ""), custom_extensions=extensions)
        self.types: list[ShapedType] = list(self.result._input_types)
        self.nodes: list[Item] = []
        self.constraints: list[Constraint] = []
        self.steps: list[SizeStep] = []
        self.outputs: tuple[int, ...] | None = None

    def fail(self, what: str) -> NoReturn:
        line = brief(self.lines[min(self.at, len(self.lines) - 1)].strip(), 160)
        raise GraphError(
            f"line {self.at + 1} of the text {what}: {line}",
            code=CODE,
            place=user_place(),
            argument="text",
            got=self.at + 1,
        )

    def graph(self) -> Graph:
        """The finished graph."""
        self.at = 1
        self.body()
        if self.line() != "}" or self.at != len(self.lines) - 1:
            self.fail("should be the last, a '}'")
        if self.outputs is None:
            self.fail("comes without an output: the graph was not finished")
        parts = (tuple(self.nodes), self.outputs, tuple(self.constraints), tuple(self.steps))
        graph, names = self.result, {name for step in self.steps for name in step.names}
        graph._nodes.extend(self.nodes)
        graph._types[:] = self.types
        graph._constraints.extend(self.constraints)
        graph._steps.extend(self.steps)
        graph._dim_names = graph._dim_names | names
        graph._ir = GraphIR(graph.name, graph._input_types, *parts)
        return graph

    def line(self) -> str:
        return self.lines[self.at].strip() if self.at < len(self.lines) else self.fail("should follow")

    def body(self) -> tuple[int, ...]:
        """Reads lines up to a '}' or a 'yield'; gives what is yielded."""
        while not (line := self.line()).startswith("}"):
            try:
                if line.startswith("yield"):
                    self.at += 1
                    return self.values(line.removeprefix("yield"))
                self.statement(line)
            except (ValueError, KeyError, SyntaxError, TypeError, IndexError, RecursionError) as error:
                if isinstance(error, EinkornError) and error.code in (CODE, "EK0440"):
                    raise
                self.fail(f"cannot be read ({brief(error, 200)})")
            self.at += 1
        return ()

    def statement(self, line: str) -> None:
        word = line.partition(" ")[0]
        if word == "require":
            left, sign, right = re.split(r" (==|>=|~) ", line.removeprefix("require "))
            kind = next(kind for kind, relation in RELATIONS.items() if relation.sign == sign)
            self.constraints.append(Constraint(kind, self.dim(left), self.dim(right), ""))
        elif word == "output":
            self.outputs = self.values(line.removeprefix("output"))
        else:
            results, _, rest = f" {line}".partition(" = ") if line[:1] in "%=" else ("", "", line)
            self.item(list(self.numbers(results.split(","))), rest)

    def item(self, results: list[int], rest: str) -> None:
        """What stands behind the results of a line."""
        kind = rest.partition(" ")[0]
        if kind == "constant":
            shown, _, type = rest.removeprefix("constant ").rpartition(" : ")
            (result,) = results
            tensor = self.tensor(type)
            self.add(ConstantTensor(self.elements(result, shown, tensor), tensor, result))
        elif kind == "weight":
            name, end = json.JSONDecoder().raw_decode(rest, len("weight "))
            aligned, _, type = rest[end:].partition(" : ")
            align = int(aligned.strip(" {}").removeprefix("align = ")) if aligned.strip() else 1
            (result,) = results
            self.add(External(text_of("name", name), self.tensor(type), result, align))
        elif rest.startswith(("cond(", "while_loop(")) and rest.endswith(" {"):
            self.control(results, rest.removesuffix(" {"))
        else:
            self.node(results, rest)

    def add(self, item: Item) -> None:
        first = len(self.types)
        if tuple(item.results) != tuple(range(first, first + len(item.out_types))):
            self.fail(f"should make the values from %{first} on, one for each of its types")
        self.nodes.append(item)
        self.types.extend(item.out_types)

    # *** ops ***

    def node(self, results: list[int], rest: str) -> None:
        opened = rest.index("(")
        called, closed = rest[:opened], rest.index(")", opened)
        operands, rest = self.values(rest[opened + 1 : closed]), rest[closed + 1 :].lstrip()
        parameters: dict[str, Any] = {}
        if rest.startswith("{"):
            end = _closing(rest)
            parameters, rest = _parameters(rest[1:end]), rest[end + 1 :].lstrip()
        types, _, defined = rest.removeprefix(":").strip().partition(" defines ")
        out_types = tuple(self.types_in(types))
        kernel = self.kernel(called, len(operands))
        inputs = [(self.types[value].dtype, tuple(self.types[value].shape)) for value in operands]
        wanted = [(type.dtype, tuple(type.shape)) for type in out_types]
        bind(kernel.schema, inputs, parameters, expected_outputs=wanted)
        parameters = bind_parameters(kernel.schema, parameters)  # with those that came later than the text
        self.add(Node(kernel, tuple(parameters.items()), operands, out_types, tuple(results)))
        if defined:
            op = kernel.schema.name.removesuffix(_SHAPE)
            names, _, value = defined.partition(" by ")
            (number,) = self.values(value) or results[:1]
            self.steps.append(SizeStep(number, tuple(names.split(", ")), op))

    def kernel(self, called: str, operands: int) -> LoadedKernel:
        """The kernel of a name; `name[xs = 2]` is one with so many tensors in its variadic arguments."""
        name, _, counts = called.partition("[")
        base = name.removesuffix(_SHAPE)
        result = self.result.kernels.find(name) or self.result.kernels.find(base)
        family = _families().get(name) or _families().get(base)
        if result is not None and family is not None:
            self.fail(f"calls '{name}', which is an op of the extensions and one of Einkorn's")
        if result is None and family is not None:
            result = shipped_kernel(family, name if name in _families() else base)
        if result is None:
            raise GraphError(
                f"line {self.at + 1} of the text calls '{name}', and there is no such op",
                code="EK0440",
                place=user_place(),
                argument="text",
                got=name,
                hint=did_you_mean(name, [*self.result.kernels.names(), *_families()]),
            )
        if counts:
            listed = (item.partition(" = ") for item in counts.removesuffix("]").split(", "))
            result = result.expanded({argument: int(count) for argument, _, count in listed})
        if result.schema.name != name:
            result = result.shape
        if result is None:
            self.fail(f"calls '{name}', and '{base}' has no shape function")
        return result

    # *** control flow ***

    def control(self, results: list[int], head: str) -> None:
        loop = head.startswith("while_loop(")
        passed, _, types = head.partition("(")[2].partition(")")
        out_types = tuple(self.tensor(text) for text in _split_types(types.removeprefix(" : ")))
        pairs = [pair.split(" = ") for pair in passed.split(", ")] if loop else []
        carried = self.numbers([pair[0] for pair in pairs])
        initial = self.values(", ".join(pair[1] for pair in pairs))
        condition = None if loop else self.values(passed)[0]
        if loop:
            self.add(Carried(out_types, carried))
        bodies = []
        for joint in ("} do {" if loop else "} else {", "}"):
            first = len(self.nodes)
            self.at += 1
            outputs = self.body()
            bodies.append(Body(first, len(self.nodes), outputs))
            if self.line() != joint:
                self.fail(f"should be '{joint}'")
        both = (bodies[0], bodies[1])
        if condition is not None:
            self.add(Branch(condition, both, out_types, tuple(results)))
        else:
            self.add(Loop(initial, carried, both, out_types, tuple(results)))

    # *** values, types, elements ***

    def numbers(self, names: Iterable[str]) -> tuple[int, ...]:
        return tuple(int(name.strip().removeprefix("%")) for name in names if name.strip())

    def values(self, text: str) -> tuple[int, ...]:
        """Numbers of values that are there."""
        result = self.numbers(text.split(","))
        missing = [value for value in result if not 0 <= value < len(self.types)]
        return result if not missing else self.fail(f"reads %{missing[0]}, which nothing has made")

    def inputs(self, text: str) -> list[ShapedType]:
        texts = re.split(r", %\d+: ", text.removeprefix("%0: ")) if text else []
        return [self.type(each) for each in texts]

    def types_in(self, text: str) -> list[ShapedType]:
        return [self.type(each) for each in _split_types(text)]

    def type(self, text: str) -> ShapedType:
        match = _TYPE.fullmatch(text.strip())
        if match is None:
            self.fail(f"has no type where {brief(text)} stands")
        kind = TensorType if match[1] == "Tensor" else BufferType
        dims = [self.dim(dim) for dim in _split(match[3])]
        return kind(DType[match[2]], dims, DeviceRef(match[4], int(match[5])))  # type: ignore[arg-type]

    def tensor(self, text: str) -> TensorType:
        result = self.type(text)
        return result if isinstance(result, TensorType) else self.fail("should make a tensor")

    def dim(self, text: str) -> Dim:
        expression = parse_expression(text)
        return Dim(evaluate(expression, {each.name: Dim(each.name) for each in names_in(expression)}))

    def elements(self, number: int, shown: str, type: TensorType) -> np.ndarray[Any, Any]:
        """The elements of a constant: those that the text shows, or those given for its number."""
        shape, dtype = tuple(int(dim) for dim in type.shape), type.dtype.to_numpy()
        if number in self.constants:
            array = np.array(self.constants[number])
            if array.dtype != dtype or array.shape != shape:
                self.fail(f"has a constant {type}, and the one given is {array.dtype} of shape {array.shape}")
        elif shown.endswith(", ...]"):
            self.fail(f"shows a part of a constant only: pass its elements as constants={{{number}: array}}")
        else:
            numbers = _value(expression_tree(shown))
            exact = np.array(numbers, np.float64 if type.dtype.is_float() or type.dtype.is_packed() else dtype)
            if exact.size != math.prod(shape):
                self.fail("has a constant of another shape than its type")
            array = rounded(exact.reshape(shape), type.dtype)
        array = np.ascontiguousarray(array).reshape(shape)
        array.flags.writeable = False
        return array


def _closing(text: str) -> int:
    """Where the brace at the start of a text is closed; braces in strings are text."""
    depth, at = 0, 0
    while True:
        if text[at] == '"':
            at = json.JSONDecoder().raw_decode(text, at)[1]
            continue
        depth += {"{": 1, "}": -1}.get(text[at], 0)
        if depth == 0:
            return at
        at += 1


def _parameters(text: str) -> dict[str, Any]:
    """`name = value, ...`, as the keywords of a call."""
    call = expression_tree(f"f({text})")
    assert isinstance(call, ast.Call)
    return {str(keyword.arg): _value(keyword.value) for keyword in call.keywords}


def _value(node: ast.expr) -> Any:
    match node:
        case ast.Constant():
            return node.value
        case ast.UnaryOp(ast.USub(), operand):
            return -_value(operand)
        case ast.Tuple(items):
            return tuple(_value(item) for item in items)
        case ast.List(items):
            return [_value(item) for item in items]
        case ast.Name("inf" | "nan" as name):
            return float(name)
        case ast.Name(name):
            return DType[name]
        case ast.Attribute(ast.Name("DType"), name):  # in tuples
            return DType[name]
    raise ValueError(f"no value: {ast.unparse(node)}")


def _split(text: str) -> list[str]:
    """The parts between commas that stand in no brackets."""
    parts, depth = [""], 0
    for letter in text:
        depth += {"(": 1, ")": -1}.get(letter, 0)
        if letter == "," and depth == 0:
            parts.append("")
        else:
            parts[-1] += letter
    return [part for part in parts if part.strip()]


def _split_types(text: str) -> list[str]:
    return re.split(r", (?=(?:Tensor|Buffer)\[)", text) if text else []


@functools.cache
def _families() -> Mapping[str, str]:
    """The file of the standard library that has the kernel of a name."""
    package = SHIPPED.get()
    results = [module.name for module in pkgutil.iter_modules(package.__path__)]
    return {name: family for family in results for name in kernel_family(family).kernels}
