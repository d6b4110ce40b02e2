"""Defines the ops that read or write elements: branches, loops, memory that changes, kernels of the user's, calls.

In a graph they are staged as the ops of their names are; with tensors they happen.

See also `operators` (all other ops).
"""

from __future__ import annotations

import functools
import weakref
from collections.abc import Callable, Iterable, Mapping, Sequence
from pathlib import Path
from typing import Any

from ...dsl.diagnostics.errors import GraphError
from ...dsl.diagnostics.places import user_place
from ...dsl.diagnostics.shield import shielded
from ...dsl.environment.tracebacks import placed
from ...dsl.frontend.caller import Called
from ...dsl.package.library import loaded_kernel
from ...dsl.signature.schema import Role
from ...dsl.types.dtype import DType
from .. import ops
from ..arguments import list_of
from ..driver.devices import Device, DeviceRef, device_of
from ..engine.model import Model
from ..engine.session import InferenceSession
from ..ops.stage import OPS
from ..staging.active import ACTIVE
from ..staging.graph import Graph
from ..types.tensor_type import BufferType, TensorType
from .arguments import Operator, operator_of
from .kinds import TensorKind
from .memory import writable
from .nodes import Recorded, add_functions
from .operators import operator
from .patterns import call_of, names_of
from .programs import value_of as kept
from .random import seed_of_block
from .record import is_staged, record, staged
from .tensor import Tensor, made

Extensions = Any  # a path, several, kernels


def _stages(*values: object) -> bool:
    """Whether an op with these arguments belongs into a graph."""
    return bool(ACTIVE.get()) or any(map(is_staged, values))


# *** constants, devices ***


@placed
def constant(value: Any, dtype: DType | None = None, device: DeviceRef | Device | None = None) -> Any:
    """A tensor of a number, of nested lists of numbers, or of the elements of an array."""
    if ACTIVE.get():
        return ops.constant(value, dtype, device)
    return Tensor.constant(value, dtype=dtype, device=device)


@placed
def constant_external(name: str, type: TensorType) -> Any:
    """A weight of the graph that is being built; what comes with a model has no elements elsewhere."""
    return ops.constant_external(name, type)


@placed
def transfer_to(x: Any, device: DeviceRef | Device) -> Any:
    """`x` on a device; `x` itself where it lies there."""
    return staged(operator("transfer_to"), (x, device), {}) if _stages(x) else x.to(device)


@placed
def assert_same_device(*values: object, **named_values: object) -> None:
    """Refuses tensors that lie on different devices."""
    if _stages(*values, *named_values.values()):
        staged(operator("assert_same_device"), values, named_values)
        return
    split = operator("assert_same_device").split(values, named_values)
    if split.operands:
        call_of(split, split.operands[0]._kind.device)


# *** control flow ***


@placed
def cond(
    pred: object, out_types: Iterable[TensorType] | None, then_fn: Callable[[], object], else_fn: Callable[[], object]
) -> list[Any]:
    """What one of two functions gives: of the first where `pred` is true."""
    if _stages(pred):
        return staged(operator("cond"), (pred, out_types, _values_of(then_fn), _values_of(else_fn)), {})  # type: ignore[no-any-return]
    with seed_of_block():
        return _listed((then_fn if bool(pred) else else_fn)())


@placed
def while_loop(initial_values: object, predicate: Callable[..., object], body: Callable[..., Any]) -> list[Any]:
    """The values that are left when `predicate` of them is false; `body` makes the next ones."""
    values = _listed(initial_values)
    if _stages(*values):
        loop = (initial_values, _values_of(predicate), _values_of(body))
        return staged(operator("while_loop"), loop, {})  # type: ignore[no-any-return]
    if not values:
        text = "while_loop: there is nothing to carry"
        raise GraphError(text, code="EK0447", place=user_place(), op="while_loop", argument="initial_values")
    while True:
        with seed_of_block():
            goes_on = bool(predicate(*values))
        if not goes_on:
            return values
        with seed_of_block():
            values = _listed(body(*values))


def _values_of(function: Callable[..., Any]) -> Callable[..., Any]:
    """The function with values of the graph in the place of tensors that it gives back."""

    def call(*args: object) -> Any:
        result = function(*args)
        if isinstance(result, list | tuple):
            return [each.__tensorvalue__() if isinstance(each, Tensor) else each for each in result]
        return result.__tensorvalue__() if isinstance(result, Tensor) else result

    return call


def _listed(values: object) -> list[Any]:
    return [] if values is None else list(values) if isinstance(values, list | tuple) else [values]


_models: weakref.WeakKeyDictionary[Graph, Model] = weakref.WeakKeyDictionary()


@placed
def call(graph: Graph, *args: object, prefix: str = "") -> list[Any]:
    """The outputs of a graph for these tensors."""
    if _stages(*args):
        return staged(operator("call"), (graph, *args), {"prefix": prefix})  # type: ignore[no-any-return]
    if graph not in _models:
        devices = list(dict.fromkeys(type.device.to_device() for type in graph.ir.types))
        _models[graph] = InferenceSession(devices).load(graph)
    inputs = [_operand(each, False) if isinstance(each, Tensor) else each for each in args]
    return [made(kept(each)) for each in _models[graph].execute(*inputs)]


# *** memory that changes ***


@placed
def buffer_create(type: BufferType) -> Any:
    """A tensor of this type, whose elements are 0."""
    if ACTIVE.get():
        return ops.buffer_create(type)
    return Tensor.zeros(type.shape, dtype=type.dtype, device=type.device)


@placed
def buffer_load(x: Any) -> Any:
    """What a tensor holds now, whatever is written to it later."""
    return staged(operator("buffer_load"), (x,), {}) if _stages(x) else made(kept(x.realize.storage.copy()))


@placed
def buffer_store(destination: Any, source: Any) -> None:
    """Writes all elements of a tensor."""
    if _stages(destination):
        staged(operator("buffer_store"), (destination, source), {})
    else:
        destination[...] = source


@placed
def buffer_store_slice(destination: Any, source: Any, indices: Any) -> None:
    """Writes the elements of a tensor that indices name."""
    if _stages(destination):
        staged(operator("buffer_store_slice"), (destination, source, indices), {})
    else:
        destination[tuple(indices) if isinstance(indices, list) else indices] = source


# *** keys and values in pages ***


@placed
def kv_cache_store(pages: Any, key: Any, value: Any, offsets: Any, lengths: Any, table: Any, *, layer: int = 0) -> None:
    """Writes keys and values to pages, a tensor that is changed in place."""
    given = (pages, key, value, offsets, lengths, table)
    if _stages(*given):
        staged(operator("kv_cache_store"), given, {"layer": layer})
        return
    tensors = [each.realize for each in given]
    _executed(_store_model(_kinds(tensors), layer), tensors, frozenset([0]))


@functools.lru_cache(maxsize=256)
def _store_model(kinds: tuple[TensorKind | None, ...], layer: int) -> Model:
    types: list[Any] = [TensorType(kind.dtype, list(kind.sizes), kind.ref) for kind in kinds if kind is not None]
    types[0] = types[0].as_buffer()
    with shielded(), Graph("kv_cache_store", input_types=types) as graph:
        ops.kv_cache_store(*graph.inputs, layer=layer)
        graph.output()
    return InferenceSession([types[0].device.to_device()]).load(graph)


# *** kernels of the user's ***


@functools.lru_cache(maxsize=1024)
def _custom_operator(extensions: tuple[object, ...], programs: tuple[object, ...]) -> Operator:
    """The op with these extensions; with other programs of its kernels, when what they read has changed, another."""
    made = operator_of(OPS["custom"])
    made.extensions = extensions
    return made


def _paths(extensions: object) -> tuple[Any, ...]:
    if extensions is None:
        return ()
    given = extensions if isinstance(extensions, list | tuple | set) else [extensions]
    return tuple(given)


def _programs(extensions: tuple[object, ...]) -> tuple[Any, ...]:
    """What changes when kernels do: the programs of those that are given themselves, the times of files."""
    return tuple(
        loaded_kernel(each) if isinstance(each, Called) else _written(each) if isinstance(each, str | Path) else None
        for each in extensions
    )


def _written(path: str | Path) -> tuple[int, ...]:
    """When a file, or each kernel file of a folder, was written."""
    files = sorted(Path(path).glob("*.py")) if Path(path).is_dir() else [Path(path)]
    return tuple(file.stat().st_mtime_ns for file in files if file.exists())


@placed
def custom(
    name: object,
    device: DeviceRef | Device,
    values: Iterable[object],
    out_types: Iterable[TensorType] | None = None,
    parameters: Mapping[str, object] | None = None,
    custom_extensions: Extensions | None = None,
) -> list[Any]:
    """The results of a registered kernel, as `ops.custom`.

    Args:
        name, device, values, out_types, parameters: as there.
        custom_extensions: folders of kernel files, single files, or packages, that have it.
    """
    given = (name, device, list_of("values", values, "tensors"), out_types, parameters)
    if _stages(given[2]):
        return staged(operator("custom"), given, {})  # type: ignore[no-any-return]
    paths = _paths(custom_extensions)
    return record(_custom_operator(paths, _programs(paths)), given, {})  # type: ignore[no-any-return]


@placed
def inplace_custom(
    name: Any,
    device: DeviceRef | Device,
    values: Iterable[object],
    out_types: Iterable[TensorType] | None = None,
    parameters: Mapping[str, object] | None = None,
    custom_extensions: Extensions | None = None,
) -> list[Any]:
    """The results of a registered kernel that changes tensors in place, as `ops.inplace_custom`."""
    listed = list_of("values", values, "tensors")
    if _stages(listed):
        return staged(operator("inplace_custom"), (name, device, listed, out_types, parameters), {})  # type: ignore[no-any-return]
    place, paths = device_of(device), _paths(custom_extensions)
    mutable = _mutable(name, paths)
    tensors = [each if isinstance(each, Tensor) else None for each in listed]
    kinds = _kinds(tensors)
    numbers = tuple(None if each is not None else value for each, value in zip(tensors, listed, strict=True))
    types = None if out_types is None else tuple(out_types)
    named = tuple(sorted((parameters or {}).items()))
    model = _inplace_model(name, place, kinds, numbers, mutable, types, named, paths, _programs(paths))
    return [made(kept(each)) for each in _executed(model, tensors, mutable)]


def _kinds(tensors: Sequence[Tensor | None]) -> tuple[TensorKind | None, ...]:
    return tuple(None if each is None else each._kind for each in tensors)


def _executed(model: Model, tensors: Sequence[Tensor | None], mutable: frozenset[int]) -> list[Any]:
    """The results of a model that changes some of the tensors in place; those that are None are not inputs."""
    inputs = [_operand(each, k in mutable) for k, each in enumerate(tensors) if each is not None]
    results = model.execute(*inputs)
    for k, each in enumerate(tensors):
        if each is not None and k in mutable and not each._kind.plain:
            each._value = inputs[sum(t is not None for t in tensors[:k])]
    return results


def _operand(tensor: Tensor, written: bool) -> Any:
    if not written:
        return tensor.realize._value
    return writable(tensor) if tensor._kind.plain else tensor.realize.storage.copy()  # type: ignore[union-attr]


def _mutable(name: Any, paths: tuple[Any, ...]) -> frozenset[int]:
    """Which inputs a kernel changes."""
    kernel = Graph("inplace", custom_extensions=paths).kernels.find(_name_of(name))
    inputs = () if kernel is None else kernel.schema.inputs
    return frozenset(k for k, argument in enumerate(inputs) if argument.role is Role.MUTABLE)


def _name_of(kernel: object) -> Any:
    schema = getattr(kernel, "schema", None)
    return kernel if schema is None else schema.name


@functools.lru_cache(maxsize=1024)
def _inplace_model(
    name: Any,
    device: Device,
    kinds: tuple[TensorKind | None, ...],
    numbers: tuple[Any, ...],
    mutable: frozenset[int],
    out_types: tuple[TensorType, ...] | None,
    parameters: tuple[tuple[str, Any], ...],
    paths: tuple[Any, ...],
    programs: tuple[object, ...],
) -> Model:
    names = {} if out_types else names_of([kind.sizes for kind in kinds if kind is not None], (), frozenset())
    types: list[Any] = []
    for k, kind in enumerate(kinds):
        if kind is not None:
            shape = [names.get(size, size) for size in kind.sizes]
            types.append((BufferType if k in mutable else TensorType)(kind.dtype, shape, kind.ref))
    with shielded(), Graph("inplace", input_types=types, custom_extensions=paths) as graph:
        inputs = iter(graph.inputs)
        values = [number if kind is None else next(inputs) for kind, number in zip(kinds, numbers, strict=True)]
        graph.output(*ops.inplace_custom(name, DeviceRef.from_device(device), values, out_types, dict(parameters)))
    return InferenceSession([device]).load(graph)


def call_kernel(kernel: Any, args: tuple[Any, ...], kwargs: Mapping[str, Any]) -> Any:
    """A kernel that is called with tensors: its only result, a tuple of several, or None."""
    device = next(each._kind.device for each in args if isinstance(each, Recorded))
    changes = any(argument.role is Role.MUTABLE for argument in kernel.schema.inputs)
    function = inplace_custom if changes else custom
    results = function(kernel, device, list(args), None, dict(kwargs), custom_extensions=(kernel,))
    return None if not results else results[0] if len(results) == 1 else tuple(results)


add_functions(
    {
        "assert_same_device": assert_same_device,
        "buffer_create": buffer_create,
        "buffer_load": buffer_load,
        "buffer_store": buffer_store,
        "buffer_store_slice": buffer_store_slice,
        "call": call,
        "cond": cond,
        "constant": constant,
        "constant_external": constant_external,
        "custom": custom,
        "inplace_custom": inplace_custom,
        "kv_cache_store": kv_cache_store,
        "transfer_to": transfer_to,
        "while_loop": while_loop,
    }
)
