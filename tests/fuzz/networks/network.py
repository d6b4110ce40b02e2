"""Networks as data: inputs, steps, outputs and sizes; and how they are staged.

    Network(
        inputs=(("float32", ("m", 4), ""), ("int32", ("m",), "buffer")),
        steps=(("matmul", (0, 2), {}), ...),          # the name of a row of `STEPS`, operands, parameters
        outputs=(3, 0, 3),
        sizes=({"m": 3}, {"m": 0}),                   # one call for each
        seed=7,
    )

Values are numbered: the inputs, then the results of each step. A step without a result (one that stores into a buffer)
takes no number. Parameters are numbers, strings, and lists of these, so that a network is JSON and its `repr` is
Python.

See also `oracle` (what comes out of it).
"""

from __future__ import annotations

import json
from collections.abc import Callable, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import numpy as np

from einkorn.graph import BufferType, DeviceRef, DType, Graph, TensorType, ops

HOST = DeviceRef.CPU()
KERNELS = Path(__file__).parent / "kernels.py"

Parameters = dict[str, Any]
Step = tuple[str, tuple[int, ...], Parameters]


@dataclass(frozen=True)
class Network:
    """A graph, the sizes of its calls, and the seed of its numbers.

    Of an input: dtype, dims, and "" or "buffer" or "turned" (an array that is not contiguous).
    """

    inputs: tuple[tuple[str, tuple[int | str, ...], str], ...]
    steps: tuple[Step, ...]
    outputs: tuple[int, ...]
    sizes: tuple[dict[str, int], ...]
    seed: int = 0

    def to_json(self) -> str:
        return json.dumps([self.inputs, self.steps, self.outputs, self.sizes, self.seed])

    @staticmethod
    def from_json(text: str) -> Network:
        inputs, steps, outputs, sizes, seed = json.loads(text)
        return Network(
            tuple((dtype, tuple(shape), kind) for dtype, shape, kind in inputs),
            tuple((name, tuple(operands), parameters) for name, operands, parameters in steps),
            tuple(outputs),
            tuple(sizes),
            seed,
        )

    def source(self) -> str:
        """The network as Python text, one step a line."""

        def listed(name: str, items: Sequence[Any]) -> str:
            lines = "".join(f"        {item!r},\n" for item in items)
            return f"    {name}=(\n{lines}    ),\n"

        rest = f"    outputs={self.outputs!r},\n    sizes={self.sizes!r},\n    seed={self.seed!r},\n"
        return f"NETWORK = Network(\n{listed('inputs', self.inputs)}{listed('steps', self.steps)}{rest})\n"


def data(dtype: DType, shape: Sequence[int], rng: np.random.Generator) -> Any:
    """Numbers for an input or a constant."""
    kind = dtype.to_numpy()
    if dtype is DType.bool:
        return rng.integers(0, 2, shape).astype(np.bool_)
    if not dtype.is_float():
        return rng.integers(0 if dtype.range[0] == 0 else -9, 10, shape).astype(kind)
    return np.asarray(rng.standard_normal(shape) * rng.choice([0.25, 1.0, 1.0, 3.0])).astype(kind)


def constant_array(parameters: Parameters) -> Any:
    """What a step `constant` holds."""
    rng = np.random.default_rng(parameters["seed"])
    return data(DType[parameters["dtype"]], parameters["shape"], rng)


# *** staging ***


def _axes(parameters: Parameters) -> Any:
    axis = parameters["axis"]
    return tuple(axis) if isinstance(axis, list | tuple) else axis


def _reduction(function: Callable[..., Any]) -> Callable[..., list[Any]]:
    return lambda values, p: [function(values[0], axis=_axes(p), keepdims=p["keepdims"])]


def _plain(function: Callable[..., Any]) -> Callable[..., list[Any]]:
    """An op of tensors, of which one may be a number."""

    def stage(values: list[Any], p: Parameters) -> list[Any]:
        if "number" not in p:
            return [function(*values)]
        return [function(p["number"], *values) if p.get("first") else function(*values, p["number"])]

    return stage


def _python(function: Callable[..., Any]) -> Callable[..., list[Any]]:
    return lambda values, p: [function(values, p)]


def index_of(entries: Sequence[Any]) -> tuple[Any, ...]:
    """An index: ints, [start, stop, step], "new" and "..."."""
    words: dict[str, Any] = {"new": None, "...": ...}
    return tuple(words[e] if isinstance(e, str) else slice(*e) if isinstance(e, list | tuple) else e for e in entries)


def reshaped(shape: Sequence[Any], p: Parameters) -> list[Any]:
    """The shape that a step `reshape` gives, of sizes or dims."""
    how, at = p["how"], p.get("at", 0)
    if how == "flat":
        return [-1]
    if how == "backwards":
        return list(shape)[::-1]
    if how == "merge":
        return [*shape[:at], shape[at] * shape[at + 1], *shape[at + 2 :]]
    if how == "split":  # the axis has a size that `by` divides
        return [*shape[:at], p["by"], shape[at] // p["by"], *shape[at + 1 :]]
    return [*shape[:at], *([1] if how == "new" else []), *shape[at + (how == "drop") :]]


def _custom(values: list[Any], p: Parameters) -> list[Any]:
    call = ops.inplace_custom if p.get("inplace") else ops.custom
    given = [*p.get("numbers", []), *values] if p.get("first") else [*values, *p.get("numbers", [])]
    if p.get("variadic"):
        given = [values, *p.get("numbers", [])]
    if p.get("after_first"):
        given = [values[0], *p["numbers"], *values[1:]]
    return list(call(p["name"], HOST, given, parameters=p.get("parameters", {})))


def _nothing(result: None) -> list[Any]:
    return []


UNARY = "abs acos atanh ceil cos erf exp floor gelu is_inf is_nan log log1p logical_not negate relu round rsqrt sigmoid"
UNARY += " silu sin sqrt tanh trunc"
BINARY = "add sub mul div floordiv mod pow maximum minimum equal not_equal less less_equal greater greater_equal"
BINARY += " logical_and logical_or logical_xor"

STEPS: dict[str, Callable[[list[Any], Parameters], list[Any]]] = {
    **{name: _plain(getattr(ops, name)) for name in (*UNARY.split(), *BINARY.split(), "where", "matmul")},
    **{
        name: _reduction(getattr(ops, name)) for name in ("sum", "mean", "max", "min", "argmax", "argmin", "any", "all")
    },
    "cast": _python(lambda v, p: ops.cast(v[0], DType[p["dtype"]])),
    "softmax": _python(lambda v, p: ops.softmax(v[0], p["axis"])),
    "logsoftmax": _python(lambda v, p: ops.logsoftmax(v[0], p["axis"])),
    "permute": _python(lambda v, p: ops.permute(v[0], p["order"])),
    "reshape": _python(lambda v, p: ops.reshape(v[0], reshaped(v[0].shape, p))),
    "slice": _python(lambda v, p: v[0][index_of(p["index"])]),
    "concat": _python(lambda v, p: ops.concat(v, p["axis"])),
    "stack": _python(lambda v, p: ops.stack(v, p["axis"])),
    "split": lambda v, p: ops.split(v[0], p["sizes"], p["axis"]),
    "repeat": _python(lambda v, p: ops.broadcast_to(v[0], [p["by"], *v[0].shape])),
    "spread": _python(lambda v, p: ops.broadcast_to(v[0], v[1].shape)),
    "flip": _python(lambda v, p: ops.flip(v[0], p["axis"])),
    "roll": _python(lambda v, p: ops.roll(v[0], p["shift"], p["axis"])),
    "tile": _python(lambda v, p: ops.tile(v[0], p["repeats"])),
    "pad": _python(lambda v, p: ops.pad(v[0], p["paddings"], p["mode"])),
    "tril": _python(lambda v, p: ops.tril(v[0], p["diagonal"])),
    "triu": _python(lambda v, p: ops.triu(v[0], p["diagonal"])),
    "gather": _python(lambda v, p: ops.gather(v[0], ops.constant(p["indices"], DType.int64, HOST), p["axis"])),
    "sort": _python(lambda v, p: ops.sort(v[0], p["axis"], p["descending"])),
    "cumsum": _python(lambda v, p: ops.cumsum(v[0], p["axis"], p["exclusive"], p["reverse"])),
    "clamp": _python(lambda v, p: ops.clamp(v[0], p["low"], p["high"])),
    "layer_norm": _python(lambda v, p: ops.layer_norm(*v, p["epsilon"])),
    "rms_norm": _python(lambda v, p: ops.rms_norm(*v, p["epsilon"])),
    "attention": _python(lambda v, p: ops.attention(*v, scale=p["scale"])),
    "conv2d": _python(lambda v, p: ops.conv2d(*v, stride=p["stride"], padding=p["padding"])),
    "max_pool2d": _python(lambda v, p: ops.max_pool2d(v[0], p["window"], p["stride"], padding=1)),
    "avg_pool2d": _python(lambda v, p: ops.avg_pool2d(v[0], p["window"], p["stride"], padding=1)),
    "constant": lambda v, p: [ops.constant(constant_array(p), DType[p["dtype"]], HOST)],
    "custom": _custom,
    "buffer_create": lambda v, p: [ops.buffer_create(BufferType(v[0].dtype, v[0].shape, HOST))],
    "buffer_load": lambda v, p: [ops.buffer_load(v[0])],
    "buffer_store": lambda v, p: _nothing(ops.buffer_store(*v)),
    "buffer_store_slice": lambda v, p: _nothing(ops.buffer_store_slice(*v, index_of(p["index"]))),
}


def input_type(dtype: str, shape: Sequence[int | str], kind: str) -> TensorType | BufferType:
    return (BufferType if kind == "buffer" else TensorType)(DType[dtype], shape, HOST)


def staged(network: Network) -> Graph:
    """The graph of a network."""
    with Graph("network", input_types=[input_type(*i) for i in network.inputs], custom_extensions=[KERNELS]) as graph:
        values = list(graph.inputs)
        for name, operands, parameters in network.steps:
            values += STEPS[name]([values[k] for k in operands], parameters)
        graph.output(*(values[k] for k in network.outputs))
    return graph
