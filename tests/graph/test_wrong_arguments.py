"""Wrong arguments everywhere: what is not an argument of an op, a type, a dim, a buffer or a session is reported by
name.

Each public function is called with one argument replaced by each of many things that are not meant for it. It gives a
valid result or raises an `EinkornError` that names what was called and where; a graph is left as it was.
"""

from __future__ import annotations

import ast
import functools
import inspect
import itertools
import json
import operator
import re
from collections.abc import Callable, Iterator
from pathlib import Path
from typing import Any

import numpy as np
import pytest
from einkorn.distributed import Mesh
from support import op_cases
from support.op_cases import first_of_each

import einkorn.graph
from einkorn.dsl.diagnostics.errors import EinkornError, InternalError
from einkorn.graph import (
    CPU,
    Buffer,
    BufferType,
    BufferValue,
    DeviceKind,
    DeviceRef,
    Dim,
    DType,
    Graph,
    InferenceSession,
    KernelLibrary,
    Model,
    Shape,
    StaticDim,
    SymbolicDim,
    TensorType,
    TensorValue,
    Weight,
    ops,
    parse_graph,
)
from einkorn.graph.ops.operands import KINDS
from einkorn.graph.ops.stage import OPS as ALL_OPS
from einkorn.graph.quantization.encodings import QuantizationConfig
from einkorn.graph.types.dims import ceildiv, dim_max, dim_min

KERNELS = str(Path(__file__).parent / "size_kernels.py")
HOST = DeviceRef.CPU()
F32, I64 = DType.float32, DType.int64


class Stubborn:
    """Whatever it is called, it raises."""

    def _refuse(self, *_: Any, **__: Any) -> Any:
        raise RuntimeError("I will not say")

    __index__ = __eq__ = __repr__ = __iter__ = __len__ = __bool__ = __float__ = __int__ = _refuse
    __hash__ = object.__hash__
    __getitem__ = __str__ = __fspath__ = _refuse


class Text(str):
    """Looks like a string and is none of the builtin ones."""


class Silent(int):
    """An int without a text."""

    def __repr__(self) -> str:
        raise RuntimeError("I will not say")

    __str__ = __repr__


class Producer:
    """Pretends to speak DLPack."""

    def __dlpack__(self, **_: Any) -> Any:
        raise RuntimeError("no capsule")

    def __dlpack_device__(self) -> Any:
        return "cpu"


class Wrapped:
    def __tensorvalue__(self) -> Any:
        return 4


def kernel_function() -> Any:
    from tests.graph import size_kernels

    return size_kernels.fill


def _foreign() -> Any:
    return Graph("another", input_types=[TensorType(F32, [2, 3])]).inputs[0]


def _foreign_buffer() -> Any:
    return Graph("another", input_types=[BufferType(F32, [2, 3])]).inputs[0]


WRONG: dict[str, Callable[[], Any]] = {
    "None": lambda: None,
    "4": lambda: 4,
    "-1": lambda: -1,
    "2**70": lambda: 2**70,
    "10**5000": lambda: 10**5000,
    "1.5": lambda: 1.5,
    "nan": lambda: float("nan"),
    "1j": lambda: 1j,
    "True": lambda: True,
    "x": lambda: "x",
    "empty text": lambda: "",
    "Text": lambda: Text("n"),
    "long text": lambda: "n" * 100_000,
    "bytes": lambda: b"n",
    "()": lambda: (),
    "[]": lambda: [],
    "{}": lambda: {},
    "{'a': 1}": lambda: {"a": 1},
    "set": lambda: {1},
    "[None]": lambda: [None],
    "[0]": lambda: [0],
    "[2, n]": lambda: [2, "n"],
    "[1.5]": lambda: [1.5],
    "[[1]]": lambda: [[1]],
    "[2**70]": lambda: [2**70],
    "[-3]": lambda: [-3],
    "[True]": lambda: [True],
    "[stubborn]": lambda: [Stubborn()],
    "nested": lambda: _nested(2000),
    "object": object,
    "stubborn": Stubborn,
    "silent": lambda: Silent(3),
    "array": lambda: np.arange(3),
    "float array": lambda: np.zeros((2, 3), np.float32),
    "texts": lambda: np.array(["a", "b"]),
    "objects": lambda: np.array([None, 1], object),
    "masked": lambda: np.ma.masked_greater(np.float32([1, 2, 3]), 2),
    "record": lambda: np.zeros(2, "f4,i4"),
    "dates": lambda: np.array(["2020-01-01"], "M8[D]"),
    "complex": lambda: np.complex64(1),
    "np.int64": lambda: np.int64(1),
    "np.float64": lambda: np.float64(1),
    "np.bool": lambda: np.bool_(True),
    "lambda": lambda: lambda x: x,
    "type": lambda: int,
    "DType": lambda: DType.int32,
    "np.dtype": lambda: np.dtype("f4"),
    "np.float32": lambda: np.float32,
    "kernel": kernel_function,
    "generator": lambda: (k for k in [0]),
    "iterator": lambda: iter([0, 1]),
    "range": lambda: range(2),
    "slice": lambda: slice(None, "a", 1.5),
    "Ellipsis": lambda: ...,
    "NotImplemented": lambda: NotImplemented,
    "module": lambda: np,
    "foreign": _foreign,
    "foreign buffer": _foreign_buffer,
    "[foreign]": lambda: [_foreign()],
    "TensorType": lambda: TensorType(F32, [2]),
    "graph": lambda: Graph("another", input_types=[]),
    "producer": Producer,
    "wrapped": Wrapped,
    "memoryview": lambda: memoryview(b"abc"),
    "exception": lambda: ValueError("x"),
    "device": lambda: HOST,
}


def _nested(depth: int) -> Any:
    actual: Any = 1
    for _ in range(depth):
        actual = [actual]
    return actual


# --- ops ---


class Context:
    """A graph to stage in, and values of it."""

    def __init__(self) -> None:
        types = [
            TensorType(F32, [2, 3]),
            TensorType(F32, ["n", 3]),
            TensorType(DType.bool, [2, 3]),
            TensorType(F32, [3, 2]),
            TensorType(F32, []),
            BufferType(F32, [2, 3]),
        ]
        self.graph = Graph("wrong", input_types=types, custom_extensions=[KERNELS])
        self.x, self.n, self.b, self.t, self.s, self.buffer = self.graph.inputs

    def state(self) -> Any:
        g = self.graph
        return len(g._nodes), len(g._types), len(g._constraints), len(g._steps), g._dim_names


UNARY = (
    *("abs", "acos", "atanh", "ceil", "cos", "erf", "exp", "floor", "gelu", "is_inf", "is_nan", "log", "log1p"),
    *("negate", "relu", "round", "rsqrt", "sigmoid", "silu", "sin", "sqrt", "tanh", "trunc"),
)
BINARY = (
    *("add", "div", "equal", "floordiv", "greater", "greater_equal", "less", "less_equal", "maximum", "minimum", "mod"),
    *("mul", "not_equal", "pow", "sub"),
)

FAST = ("cos", "erf", "exp", "log", "rsqrt", "sigmoid", "silu", "sin", "sqrt", "tanh")

OPS: dict[str, Callable[[Context], dict[str, Any]]] = {
    **{name: lambda c: {"x": c.x} for name in UNARY},
    **{name: lambda c: {"lhs": c.x, "rhs": c.x} for name in BINARY},
    **{name: lambda c: {"lhs": c.b, "rhs": c.b} for name in ("logical_and", "logical_or", "logical_xor")},
    **{name: lambda c: {"x": c.x, "fast": True} for name in FAST},
    "div": lambda c: {"lhs": c.x, "rhs": c.x, "fast": True},
    "logical_not": lambda c: {"x": c.b},
    "gelu": lambda c: {"x": c.x, "approximate": "tanh", "fast": True},
    "cast": lambda c: {"x": c.x, "dtype": I64},
    "where": lambda c: {"condition": c.b, "x": c.x, "y": c.x},
    "matmul": lambda c: {"lhs": c.x, "rhs": c.t},
    "attention": lambda c: {
        **dict.fromkeys(("query", "key", "value"), c.x),
        **{"mask": None, "causal": True, "window": 2, "scale": 0.5, "valid_length": 2, "offset": 1},
    },
    **{name: lambda c: {"x": c.n, "axis": 1, "keepdims": False} for name in ("sum", "mean", "argmax", "argmin")},
    **{name: lambda c: {"x": c.n, "y": None, "axis": 1, "keepdims": False} for name in ("max", "min")},
    **{name: lambda c: {"value": c.n, "axis": 0} for name in ("softmax", "logsoftmax")},
    "reshape": lambda c: {"x": c.n, "shape": [3, -1]},
    "flatten": lambda c: {"x": c.n, "start_dim": 0, "end_dim": 1},
    "squeeze": lambda c: {"x": ops.unsqueeze(c.n, 1), "axis": 1},
    "unsqueeze": lambda c: {"x": c.n, "axis": -1},
    "permute": lambda c: {"x": c.n, "dims": [1, 0]},
    "transpose": lambda c: {"x": c.n, "axis_1": 0, "axis_2": 1},
    "broadcast_to": lambda c: {"x": c.n, "shape": [2, "n", 3], "out_dims": None},
    "concat": lambda c: {"original_vals": [c.n, c.x], "axis": 0},
    "stack": lambda c: {"values": [c.x, c.x], "axis": 0},
    "rebind": lambda c: {"x": c.n, "shape": [2, 3], "message": "two rows", "layout": None},
    "transfer_to": lambda c: {"x": c.n, "device": HOST},
    "slice_tensor": lambda c: {"x": c.n, "indices": [slice(1, None), ..., None]},
    "split": lambda c: {"x": c.x, "split_sizes": [1, 1], "axis": 0},
    "chunk": lambda c: {"x": c.x, "chunks": 2, "axis": 0},
    "constant": lambda c: {"value": [1.0, 2.0], "dtype": F32, "device": HOST},
    "constant_external": lambda c: {"name": "w", "type": TensorType(F32, [2])},
    "custom": lambda c: {
        "name": "fill",
        "device": HOST,
        "values": [c.s],
        "out_types": [TensorType(F32, [2])],
        "parameters": {},
    },
    "inplace_custom": lambda c: {
        "name": "overwrite",
        "device": HOST,
        "values": [c.buffer, c.s],
        "out_types": None,
        "parameters": {"times": 2},
    },
    "print": lambda c: {"value": c.x, "label": "x"},
    "fence": lambda c: {"x": c.n, "others": [c.x]},
    "buffer_create": lambda c: {"type": BufferType(F32, [2])},
    "buffer_load": lambda c: {"x": c.buffer},
    "buffer_store": lambda c: {"destination": c.buffer, "source": c.x},
    "buffer_store_slice": lambda c: {"destination": c.buffer, "source": 1.0, "indices": [0]},
}


class Derived(Context):
    """A right call of an op that is not in the table: of a row from its kinds, of another op from its example."""

    def __init__(self, name: str) -> None:
        op = ALL_OPS[name]
        if op.form == "irregular":
            case = FIRST[name]
            types: Any = case.types(case.dtypes[0])
            self.graph = Graph("wrong", input_types=types, custom_extensions=[case.extensions or KERNELS])
            self.values = dict(zip(case.tensors, self.graph.inputs, strict=True))
        else:
            dtypes = [KINDS[kind].dtypes for kind in op.operands.values()]
            types = [TensorType(F32 if F32 in entry else entry[0], [2, 3]) for entry in dtypes]
            self.graph = Graph("wrong", input_types=types)
            self.values = dict(zip(op.operands, self.graph.inputs, strict=True))
        self.name, self.op = name, op

    def given(self) -> dict[str, Any]:
        """The arguments by name, in order."""
        signature = inspect.signature(self.op.function)
        bound = signature.bind_partial(**self.values) if self.op.form != "irregular" else self._example(signature)
        bound.apply_defaults()
        return {name: bound.arguments[name] for name in signature.parameters}

    def _example(self, signature: inspect.Signature) -> inspect.BoundArguments:
        calls = [node for node in ast.walk(ast.parse(self.op.example)) if isinstance(node, ast.Call)]
        call = next(node for node in calls if ast.unparse(node.func) == f"ops.{self.name}")
        names = dict(vars(einkorn.graph)) | {"ops": ops, "Mesh": Mesh, **self.values}
        values = [eval(ast.unparse(each), names) for each in call.args]
        return signature.bind(*values, **{each.arg: eval(ast.unparse(each.value), names) for each in call.keywords})  # type: ignore[misc]


VAR = (inspect.Parameter.VAR_POSITIONAL, inspect.Parameter.VAR_KEYWORD)
FIRST = {case.op: case for cases in op_cases.families().values() for case in first_of_each(cases)}


def test_every_op_is_here() -> None:
    """What is not in the table is derived from its row, or from its example and its first case."""
    assert set(OPS) <= set(ALL_OPS)
    for name, op in ALL_OPS.items():
        context = Context() if name in OPS else Derived(name)
        with context.graph:
            given = OPS[name](context) if name in OPS else context.given()  # type: ignore[attr-defined]
            assert list(given) == list(inspect.signature(op.function).parameters), name
            _call(op.function, given)


def _call(function: Callable[..., Any], given: dict[str, Any]) -> Any:
    kinds = inspect.signature(function).parameters.values()
    if any(p.kind is p.VAR_POSITIONAL for p in kinds):
        given = dict(given)
        named = [p.name for p in kinds if p.kind is p.KEYWORD_ONLY]
        first = [given[p.name] for p in kinds if p.kind is p.POSITIONAL_OR_KEYWORD]
        several = next(given[p.name] for p in kinds if p.kind is p.VAR_POSITIONAL)
        return function(*first, *several, **{name: given[name] for name in named})
    positional = [given[p.name] for p in kinds if p.kind is p.POSITIONAL_ONLY]
    return function(*positional, **{p.name: given[p.name] for p in kinds if p.kind is not p.POSITIONAL_ONLY})


def substituted(given: dict[str, Any]) -> Iterator[tuple[str, str, dict[str, Any]]]:
    for argument, (label, make) in itertools.product(given, WRONG.items()):
        yield argument, label, {**given, argument: make()}


# What these are about they name themselves: a type variable, a number that is too large, a dim that is unknown.
SELF_REPORTED = ("EK0310", "EK0335", "EK0431")
# Arguments that are called back, and what their functions are called with: they raise what they like.
CALLED = {"cond": ("then_fn", "else_fn"), "while_loop": ("initial_values", "predicate", "body")}


def trouble(error: BaseException, op: str | None, argument: str, elsewhere: bool = False) -> str | None:
    """What is wrong with the error of a call."""
    if not isinstance(error, EinkornError):
        return f"raw {type(error).__name__}: {str(error)[:100]}"
    if isinstance(error, InternalError):
        return f"internal: {error.message[:200]}"
    json.dumps(error.to_dict())
    for each in getattr(error, "errors", [error]):
        message = f"{each.code}: {each.message[:100]}"
        if each.place is None or (each.place.file != __file__ and not elsewhere):
            return f"no place in {message}"
        if len(str(each)) > 2000 and "nnn" not in each.message:
            return f"too long is {message}"
        if op is not None and each.op is None:
            return f"no op in {message}"
        if op is not None and each.argument is None and argument not in each.message and each.code not in SELF_REPORTED:
            return f"no argument in {message}"
    return None


@pytest.mark.parametrize("name", sorted(ALL_OPS))
def test_ops(name: str) -> None:
    violations, context = [], None
    for argument, label, given in _cases(name):
        context, given = given
        before = context.state()
        with context.graph:
            try:
                _call(ALL_OPS[name].function, given)
            except BaseException as error:
                what = None if argument in CALLED.get(name, ()) else trouble(error, name, argument)
                if context.state() != before:
                    what = "the graph is changed"
                if what:
                    violations.append(f"{name}({argument}={label}): {what}")
    if context is not None:
        str(context.graph)
    assert not violations, f"{len(violations)} of them:\n" + "\n".join(violations)


def _cases(name: str) -> Iterator[tuple[str, str, Any]]:
    context = Context() if name in OPS else Derived(name)
    with context.graph:
        valid = OPS[name](context) if name in OPS else context.given()  # type: ignore[attr-defined]
    kinds = inspect.signature(ALL_OPS[name].function).parameters.values()
    several = [p.name for p in kinds if p.kind in VAR]
    for argument, label, given in substituted(valid):
        if argument in several:
            continue
        yield argument, label, (context, given)


# --- methods, operators, types, dims, buffers, sessions ---

Call = tuple[Callable[..., Any], list[Any]]


@functools.cache
def _model() -> Any:
    """One for all calls: a wrong argument must not spoil it for the next."""
    graph = Graph("model", lambda x, s: x + s, [TensorType(F32, ["n", 2]), TensorType(F32, [])])
    return InferenceSession(interpret=True).load(graph)


@functools.cache
def _compiled() -> Any:
    graph = Graph("model", lambda x, s: x + s, [TensorType(F32, ["n", 2]), TensorType(F32, [])])
    return InferenceSession().load(graph)


X = np.zeros((3, 2), np.float32)
SCALAR = (np.float32(1).tobytes(), F32)


@functools.cache
def _captured() -> Any:
    model = _model()
    model.capture(1, X, 1.0)
    return model


def _weighted() -> Graph:
    return Graph("weighted", lambda: Weight("w", F32, [2]) + 1)


def _buffer() -> Any:
    return Buffer.from_numpy(np.zeros((2, 3), np.float32))


def _packed() -> Any:
    return Buffer(DType.int4, [2, 3])


ARITHMETIC = ("add", "sub", "mul", "truediv", "floordiv", "pow")
COMPARISONS = ("eq", "ne", "lt", "le", "gt", "ge")

METHODS: dict[str, Callable[[Context], Call]] = {
    "cast": lambda c: (c.x.cast, [I64]),
    "reshape": lambda c: (c.x.reshape, [[6]]),
    "permute": lambda c: (c.x.permute, [[1, 0]]),
    "transpose": lambda c: (c.x.transpose, [0, 1]),
    "broadcast_to": lambda c: (c.x.broadcast_to, [[4, 2, 3]]),
    "flatten": lambda c: (c.x.flatten, [0, 1]),
    "rebind": lambda c: (c.n.rebind, [[2, 3], "text"]),
    "to": lambda c: (c.x.to, [HOST]),
    **{name: lambda c, name=name: (getattr(c.x, name), [0, True]) for name in ("sum", "mean", "argmax", "argmin")},
    **{name: lambda c, name=name: (getattr(c.x, name), [0, True]) for name in ("max", "min")},
    "getitem": lambda c: (c.x.__getitem__, [(0, slice(1, 2))]),
    "getitem slice": lambda c: (lambda a, b, s: c.n[a:b:s], [0, 2, 1]),
    "buffer getitem": lambda c: (c.buffer.__getitem__, [0]),
    "buffer setitem": lambda c: (c.buffer.__setitem__, [0, 1.0]),
    **{
        f"operator {name}": lambda c, name=name: (lambda other: getattr(operator, name)(c.x, other), [1.0])
        for name in [
            "add",
            "sub",
            "mul",
            "truediv",
            "floordiv",
            "mod",
            "pow",
            "matmul",
            "eq",
            "ne",
            "lt",
            "le",
            "gt",
            "ge",
            "and_",
            "or_",
            "xor",
        ]
    },
    **{
        f"reflected {name}": lambda c, name=name: (lambda other: getattr(operator, name)(other, c.x), [1.0])
        for name in [
            "add",
            "sub",
            "mul",
            "truediv",
            "floordiv",
            "pow",
            "matmul",
            "eq",
            "ne",
            "lt",
            "le",
            "gt",
            "ge",
            "and_",
            "or_",
            "xor",
        ]
    },
    **{
        f"operator {name}": lambda c, name=name: (lambda other: getattr(operator, name)(c.b, other), [True])
        for name in ("and_", "or_", "xor")
    },
    **{
        f"reflected {name}": lambda c, name=name: (lambda other: getattr(operator, name)(other, c.b), [True])
        for name in ("and_", "or_", "xor")
    },
    "operator matmul": lambda c: (lambda other: c.x @ other, [c.t]),
    "reflected matmul": lambda c: (lambda other: other @ c.x, [c.t]),
    "add_weight": lambda c: (c.graph.add_weight, [Weight("w", F32, [2]), True]),
    "print": lambda c: (c.x.print, ["x"]),
    "assert_same_device": lambda c: (lambda v: ops.assert_same_device(c.x, weight=v), [c.buffer]),
    "buffer print": lambda c: (c.buffer.print, ["x"]),
    "output": lambda c: (lambda v: Graph("g", lambda x: v if v is not None else x, [TensorType(F32, [2])]), [None]),
}

DIMS = [Dim(3), Dim("n"), 2 * Dim("n") + 1]
OTHERS: dict[str, Callable[[], Call]] = {
    "Dim": lambda: (Dim, [3]),
    "StaticDim": lambda: (StaticDim, [3]),
    "SymbolicDim": lambda: (SymbolicDim, ["n"]),
    "Shape": lambda: (Shape, [[3, "n"]]),
    "Shape +": lambda: (lambda other: Shape([3]) + other, [[2]]),
    "+ Shape": lambda: (lambda other: other + Shape([3]), [[2]]),
    "Shape ==": lambda: (lambda other: Shape([3]) == other, [[2]]),
    "ceildiv": lambda: (ceildiv, [7, 2]),
    "dim_min": lambda: (dim_min, [7, 2]),
    "dim_max": lambda: (dim_max, [7, 2]),
    **{f"{d}.minimum": lambda d=d: (d.minimum, [2]) for d in DIMS},
    **{f"{d}.maximum": lambda d=d: (d.maximum, [2]) for d in DIMS},
    **{f"{d}.evaluate": lambda d=d: (d.evaluate, [{"n": 3}]) for d in DIMS},
    **{f"{d}.evaluate n": lambda d=d: (lambda n: d.evaluate({"n": n}), [3]) for d in DIMS},
    **{f"{d}.substitute": lambda d=d: (d.substitute, [{"n": 3}]) for d in DIMS},
    **{f"{d}.substitute n": lambda d=d: (lambda n: d.substitute({"n": n}), [3]) for d in DIMS},
    **{
        f"{d} {name}": lambda d=d, name=name: (lambda other: getattr(operator, name)(d, other), [d])
        for d in DIMS
        for name in ["add", "sub", "mul", "floordiv", "mod", "eq", "ne", "lt", "le", "gt", "ge"]
    },
    **{
        f"{name} {d}": lambda d=d, name=name: (lambda other: getattr(operator, name)(other, d), [d])
        for d in DIMS
        for name in ["add", "sub", "mul", "floordiv", "eq", "ne", "lt", "le", "gt", "ge"]
    },
    "TensorType": lambda: (TensorType, [F32, [2, "n"], HOST]),
    "BufferType": lambda: (BufferType, [F32, [2, "n"], HOST]),
    "TensorType.with_shape": lambda: (TensorType(F32, [2]).with_shape, [[2]]),
    "TensorType.with_dtype": lambda: (TensorType(F32, [2]).with_dtype, [I64]),
    "TensorType ==": lambda: (lambda other: TensorType(F32, [2]) == other, [None]),
    "DeviceRef": lambda: (DeviceRef, ["cpu", 0]),
    "DeviceRef.CPU": lambda: (DeviceRef.CPU, [0]),
    "DeviceRef.GPU": lambda: (DeviceRef.GPU, [0]),
    "DeviceRef.from_device": lambda: (DeviceRef.from_device, [CPU()]),
    "DeviceKind.from_string": lambda: (DeviceKind.from_string, ["cpu"]),
    "CPU": lambda: (CPU, [0]),
    "Device.can_access": lambda: (CPU().can_access, [CPU()]),
    "Graph": lambda: (lambda n, t: Graph(n, lambda *x: [*x, 1.0], t), ["g", [TensorType(F32, [2])]]),
    "Graph(forward)": lambda: (lambda f: Graph("g", f), [lambda: 1.0]),
    "Graph(path, module)": lambda: (lambda p, m: Graph("g", path=p, module=m), [None, None]),
    "Graph(custom_extensions)": lambda: (lambda e: Graph("g", custom_extensions=e), [[KERNELS]]),
    "Graph(kernel_library)": lambda: (lambda e: Graph("g", kernel_library=e), [None]),
    "InferenceSession": lambda: (InferenceSession, [[CPU()]]),
    "InferenceSession(devices)": lambda: (lambda d: InferenceSession(devices=[d]), [CPU()]),
    "InferenceSession(num_threads)": lambda: (lambda n: InferenceSession(num_threads=n), [2]),
    "InferenceSession(custom_extensions)": lambda: (lambda e: InferenceSession(custom_extensions=e), [[KERNELS]]),
    "load(custom_extensions)": lambda: (
        lambda e: InferenceSession(interpret=True).load(Graph("g", lambda: ops.constant(1.0)), custom_extensions=e),
        [[KERNELS]],
    ),
    "parse_graph": lambda: (
        lambda t, e, c: parse_graph(t, custom_extensions=e, constants=c),
        [str(Graph("g", lambda x: x * 2, [TensorType(F32, [2])])), [KERNELS], {}],
    ),
    "KernelLibrary": lambda: (KernelLibrary, [[KERNELS]]),
    "KernelLibrary.add_path": lambda: (KernelLibrary().add_path, [KERNELS]),
    "KernelLibrary.verify_custom_op": lambda: (KernelLibrary([KERNELS]).verify_custom_op, ["fill"]),
    "InferenceSession(interpret)": lambda: (lambda i: InferenceSession(interpret=i), [True]),
    "InferenceSession(checks)": lambda: (lambda c: InferenceSession(checks=c), ["all"]),
    "load": lambda: (InferenceSession(interpret=True).load, [Graph("g", lambda: ops.constant(1.0))]),
    "load(checks)": lambda: (
        lambda c: InferenceSession(interpret=True).load(Graph("g", lambda: ops.constant(1.0)), checks=c),
        ["safe"],
    ),
    "load(weights_registry)": lambda: (
        lambda w: InferenceSession(interpret=True).load(_weighted(), weights_registry=w),
        [{"w": np.zeros(2, np.float32)}],
    ),
    "load(a weight)": lambda: (
        lambda w: InferenceSession(interpret=True).load(_weighted(), weights_registry={"w": w}),
        [np.zeros(2, np.float32)],
    ),
    "Weight": lambda: (Weight, ["w", F32, [2], HOST, None, 16, None]),
    "QuantizationConfig": lambda: (QuantizationConfig, ["gptq", 4, 128, False, False]),
    "Model(names)": lambda: (lambda a, b: _model()(x=a, s=b), [np.zeros((3, 2), np.float32), 1.0]),
    "Graph(output_types)": lambda: (
        lambda t: Graph("g", lambda x: x, [TensorType(F32, [2])], output_types=t),
        [[TensorType(F32, [2])]],
    ),
    "Model": lambda: (_model(), [np.zeros((3, 2), np.float32), 1.0]),
    "Model.bind": lambda: (_model().bind, [np.zeros((3, 2), np.float32)]),
    "Model.run_slots": lambda: (_model().run_slots, [np.zeros((3, 2), np.float32), 1.0]),
    "Model.run_pipelined": lambda: (_model().run_pipelined, [[(np.zeros((3, 2), np.float32), 1.0)]]),
    "Model.run_typed": lambda: (lambda b, d, s: _model().run_typed([(b, d, s), SCALAR]), [bytes(24), F32, [3, 2]]),
    "Model.capture": lambda: (_model().capture, [1, np.zeros((3, 2), np.float32), 1.0]),
    "Model.debug_verify_replay": lambda: (
        lambda key: _captured().debug_verify_replay(key, X, 1.0),
        [1],
    ),
    "Model.export": lambda: (
        lambda path, name, outputs, targets, weights: _compiled().export(
            path, name=name, output_names=outputs, targets=targets, weights=weights
        ),
        ["model.so", "model", ["y"], "host", "inside"],
    ),
    "Model.set_active_extent": lambda: (lambda n: _model().set_active_extent(n=n), [2]),
    "set_log_level": lambda: (InferenceSession().set_log_level, ["notset"]),
    "set_mojo_log_level": lambda: (InferenceSession().set_mojo_log_level, ["notset"]),
    "set_assert_level": lambda: (InferenceSession().set_assert_level, ["safe"]),
    "set_mojo_assert_level": lambda: (InferenceSession().set_mojo_assert_level, ["safe"]),
    "set_print_options": lambda: (InferenceSession().set_print_options, ["compact", 3, None]),
    "set_debug_print_options": lambda: (InferenceSession().set_debug_print_options, ["full", 3, "prints"]),
    "Graph.name_inputs": lambda: (Graph("g", input_types=[TensorType(F32, [2])]).name_inputs, [["x"]]),
    "Graph.code": lambda: (Graph("g", lambda: ops.constant(1.0)).code, ["typed", "host"]),
    "Graph.to_html": lambda: (Graph("g", lambda: ops.constant(1.0)).to_html, [None]),
    "Graph.to_html(sizes)": lambda: (
        lambda sizes: Graph("g", lambda: ops.constant(1.0)).to_html(sizes=sizes),
        [{}],
    ),
    "Graph.to_html(profile)": lambda: (
        lambda profile: Graph("g", lambda: ops.constant(1.0)).to_html(profile=profile),
        [None],
    ),
    "Graph.add_subgraph": lambda: (
        lambda name, types: Graph("g").add_subgraph(name, lambda *x: [*x, 1.0], types),
        ["sub", [TensorType(F32, [2])]],
    ),
    "Buffer": lambda: (Buffer, [F32, [2, 3], CPU()]),
    "Buffer int4": lambda: (lambda shape: Buffer(DType.int4, shape), [[2]]),
    "Buffer.zeros": lambda: (Buffer.zeros, [[2], F32, CPU()]),
    "Buffer.scalar": lambda: (Buffer.scalar, [1.0, F32, CPU()]),
    "Buffer.scalar int": lambda: (lambda v: Buffer.scalar(v, DType.int8), [1]),
    "Buffer.scalar int4": lambda: (lambda v: Buffer.scalar(v, DType.int4), [1]),
    "Buffer.from_numpy": lambda: (Buffer.from_numpy, [np.zeros(3, np.float32)]),
    "Buffer.from_dlpack": lambda: (Buffer.from_dlpack, [np.zeros(3, np.float32)]),
    "Buffer.from_dlpack(copy)": lambda: (lambda c: Buffer.from_dlpack(np.zeros(3, np.float32), copy=c), [True]),
    "Buffer.mmap": lambda: (Buffer.mmap, [__file__, DType.uint8, [2], "r", 0]),
    "Buffer.mmap int4": lambda: (lambda f, s, m, o: Buffer.mmap(f, DType.int4, s, m, o), [__file__, [2], "r", 0]),
    "Buffer[]": lambda: (_buffer().__getitem__, [0]),
    "Buffer[slice]": lambda: (lambda a, b, c: _buffer()[a:b:c], [0, 1, 1]),
    "Buffer[]=": lambda: (_buffer().__setitem__, [(0, 0), 1.0]),
    "packed[]=": lambda: (_packed().__setitem__, [(0, 0), 1]),
    "Buffer.view": lambda: (_buffer().view, [DType.int32, [6]]),
    "packed.view": lambda: (_packed().view, [DType.uint8, [3]]),
    "Buffer.view(dtype)": lambda: (lambda dtype: _buffer().view(dtype), [DType.int32]),
    "Buffer.copy": lambda: (_buffer().copy, [CPU()]),
    "packed.copy": lambda: (_packed().copy, [CPU()]),
    "Buffer.to": lambda: (_buffer().to, [CPU()]),
    "Buffer.inplace_copy_from": lambda: (_buffer().inplace_copy_from, [_buffer()]),
    "packed.inplace_copy_from": lambda: (_packed().inplace_copy_from, [_packed()]),
}

# What Python and NumPy say of operands, and of indices as of a list's; and what an operand's own operators raise.
BY_PYTHON = (
    r"unsupported operand|not supported between|does not support ufuncs|ufunc|not all arguments converted|concat"
    r"|can't multiply sequence|is out of bounds|too many indices|missing 1 required positional argument: 'x'"
    r"|I will not say|Cannot compare structured|\[Errno \d+\]"  # the last: of files that cannot be written
)


def _tried(found: list[str], call: Callable[[], Call], *, graph: Any = None, python: bool = False) -> None:
    function, given = call()
    function(*given)
    for position in range(len(given)):
        for label, make in WRONG.items():
            function, given = call()
            given[position] = make()
            before = graph.state() if graph else None
            try:
                function(*given)
            except BaseException as error:
                what = trouble(error, None, "", python)
                if python and not isinstance(error, EinkornError) and re.search(BY_PYTHON, str(error)):
                    what = None
            else:
                continue
            if graph and graph.state() != before:
                what = "the graph is changed"
            if what:
                found.append(f"argument {position} = {label}: {what}")


@pytest.mark.parametrize("name", METHODS)
def test_methods(name: str) -> None:
    context, violations = Context(), list[str]()
    with context.graph:
        _tried(violations, lambda: METHODS[name](context), graph=context, python=name.startswith("reflected"))
    assert not violations, f"{len(violations)} of them:\n" + "\n".join(violations)


@pytest.mark.parametrize("name", OTHERS)
def test_others(name: str, tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """In a folder with one script: some paths lead to where one is, and all files there are read for kernels."""
    (tmp_path / "script.py").write_text("print(1)\n")
    monkeypatch.chdir(tmp_path)
    violations: list[str] = []
    _tried(violations, OTHERS[name], python=True)
    assert not violations, f"{len(violations)} of them:\n" + "\n".join(violations)


# --- the texts of some, and their hints ---

TEXTS: dict[str, tuple[Callable[[Context], Any], str, str | None]] = {
    "split": (
        lambda c: ops.split(c.x, 2.5),
        "split: argument 'split_sizes' has to be a list of sizes, and is 2.5 (float)",
        None,
    ),
    "split by a name": (
        lambda c: ops.split(c.x, [1, "n"]),
        "split: the sizes (1, n) add up to n + 1, and axis 0 has size 2",
        None,
    ),
    "chunk": (lambda c: ops.chunk(c.x, "2"), "chunk: argument 'chunks' has to be an int, and is '2' (str)", None),
    "reshape": (
        lambda c: ops.reshape(c.x, 4),
        "reshape: argument 'shape' has to be a list of sizes, and is 4 (int)",
        "a single one is a list, too: shape=[...]",
    ),
    "reshape to a name": (
        lambda c: ops.reshape(c.x, "n"),
        "reshape: argument 'shape' has to be a list of sizes, and is 'n' (str)",
        "a single one is a list, too: shape=[...]",
    ),
    "permute": (
        lambda c: c.x.permute(1),
        "permute: dims [1] have to name each of the 2 axes once",
        None,
    ),
    "rebind": (
        lambda c: c.x.rebind(4),
        "rebind: argument 'shape' has to be a list of sizes, and is 4 (int)",
        "a single one is a list, too: shape=[...]",
    ),
    "custom": (
        lambda c: ops.custom(4, HOST, [c.s]),  # type: ignore[arg-type]
        "custom: argument 'name' has to be the name of an op, or a kernel, and is 4 (int)",
        None,
    ),
    "custom_extensions": (
        lambda c: Graph("g", custom_extensions=[len]),  # type: ignore[list-item]
        "argument 'custom_extensions[0]' has to be a path, a kernel or a KernelLibrary, and is <built-in function len>"
        " (builtin_function_or_method)",
        None,
    ),
    "one device": (
        lambda c: InferenceSession(devices=CPU()),  # type: ignore[arg-type]
        "argument 'devices' has to be a list of devices, and is Device(cpu:0) (CPU)",
        None,
    ),
    "a name for a device": (
        lambda c: InferenceSession(devices=[HOST]),  # type: ignore[list-item]
        "argument 'devices' has to be a list of devices, and is DeviceRef.CPU(0) (DeviceRef)",
        "DeviceRef.CPU(0).to_device() gives it",
    ),
}


@pytest.mark.parametrize("name", TEXTS)
def test_texts(name: str) -> None:
    act, text, hint = TEXTS[name]
    context = Context()
    with context.graph, pytest.raises(EinkornError) as caught:
        act(context)
    assert (caught.value.message, caught.value.hint) == (text, hint)
    assert caught.value.place is not None and caught.value.place.file == __file__


CLASSES = (
    *(TensorValue, BufferValue, Buffer, Dim, Shape, TensorType, BufferType, Graph, InferenceSession, Model, DeviceRef),
    *(DeviceKind, CPU),
)
# Methods of a graph that ops call.
FOR_OPS = {
    *("stage", "stage_constant", "stage_weight", "transaction", "require", "define_dims", "has_dim", "unused_dim"),
    *("has_size", "changes_in_body", "stage_control", "maker", "value", "check_value"),
    *("verify_fusion", "profile", "export_source"),  # of a model; sessions and `export` call them
}


def test_every_method_is_here() -> None:
    tried = {word for key in (*METHODS, *OTHERS) for word in re.findall(r"\w+", key)} | FOR_OPS
    missing = []
    for owner in CLASSES:
        for base in owner.__mro__[:-1]:
            for name, entry in vars(base).items():
                function = getattr(entry, "__func__", entry)
                own = 0 if isinstance(entry, staticmethod) else 1
                taken = getattr(getattr(function, "__code__", None), "co_argcount", 0) - own
                if not name.startswith("_") and taken > 0 and name not in tried:
                    missing.append(f"{owner.__name__}.{name}")
    assert not missing
