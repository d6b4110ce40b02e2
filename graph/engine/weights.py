"""Finds the memory of a graph's weights in what the user brings when it is loaded.

Nothing is copied that can be read where it lies: contiguous memory of the right dtype on the right device, aligned to
its elements. A view with steps, or memory that lies askew in its file, is copied once, if code reads it. All errors are
reported together.

See also `graph.weights` (files).
"""

from __future__ import annotations

import functools
import math
import weakref
from collections.abc import Callable, Iterable, Mapping
from typing import Any

import numpy as np

from ...dsl.diagnostics.errors import EinkornError, GraphError, did_you_mean, of_call
from ...dsl.diagnostics.places import user_place
from ...dsl.environment.pages import fresh_memory
from ..arguments import wrong
from ..calling.inputs import InputCheck
from ..driver.buffer import Buffer
from ..driver.device import ALIGNMENT, Array, Storage
from ..driver.device_buffer import buffer_class
from ..ir import External, GraphIR, Item, PreparedValue
from ..renumbering import Rewriting
from ..types.tensor_type import shown

CODE = "EK0433"


def weights_of(ir: GraphIR, registry: object) -> dict[int, Storage]:
    """The storage of each weight of a graph, where it was given: see `laid_out`.

    Args:
        ir: the graph.
        registry: by name NumPy arrays, `Buffer`s or other DLPack arrays; None for no weights. A weight that is not
            among them has the elements that came with the graph, if some did.

    Raises:
        GraphError, DTypeError: EK0433 and codes of wrong inputs: a weight is missing, or has another dtype, shape or
            device; all that is wrong in one error. Names that the graph does not have are not looked at.
    """
    nodes = {number: node for number, node in enumerate(ir.nodes) if isinstance(node, External)}
    given = {} if registry is None else _registry(registry)
    if not nodes and not given:
        return {}
    wanted = {node.name for node in nodes.values()}
    results: dict[int, Storage] = {}
    mistakes: list[EinkornError] = []
    for number, node in nodes.items():
        try:
            if node.name in given:
                results[number] = storage_of(node, given[node.name])
            elif node.data is not None:
                results[number] = storage_of(node, node.data)
            else:
                raise _missing(ir, node, [name for name in given if name not in wanted])
        except EinkornError as error:
            mistakes.append(error)
    if mistakes:
        raise of_call(mistakes)
    return results


class WeakRegistry:
    """Weights by their names. Arrays in memory of their own are not kept alive; what lies in mapped files is."""

    def __init__(self, registry: Mapping[str, object]) -> None:
        self._references = {name: _reference(value) for name, value in registry.items()}

    def values(self) -> dict[str, Any]:
        """The weights that are still there."""
        held = {name: reference() for name, reference in self._references.items()}
        return {name: value for name, value in held.items() if value is not None}


def _reference(value: object) -> Callable[[], Any]:
    base = value
    while isinstance(base, np.ndarray) and base.base is not None:
        base = base.base
    return weakref.ref(value) if isinstance(base, np.ndarray) else functools.partial(_same, value)


def _same(value: object) -> Any:
    return value


def registry_of(ir: GraphIR, weights: Mapping[int, Storage]) -> dict[str, Buffer]:
    """The weights of a model by their names, as `weights_of` takes them."""
    results = {}
    for number, storage in weights.items():
        node = ir.nodes[number]
        assert isinstance(node, External)
        if isinstance(node, PreparedValue):
            continue
        device, shape = node.type.device.to_device(), tuple(int(dim) for dim in node.type.shape)
        results[node.name] = buffer_class(device, node.type.dtype)._over(storage, device, node.type.dtype, shape)
    return results


def _registry(registry: object) -> Mapping[Any, Any]:
    if isinstance(registry, Mapping):
        return registry
    hint = "its allocated_weights are" if hasattr(registry, "allocated_weights") else None
    wrong("weights_registry", registry, "a mapping from names to arrays", code=CODE, hint=hint)


def storage_of(node: External, value: object) -> Storage:
    """The memory of a weight, as it was given."""
    check = InputCheck(node.name, node.type)
    if not check.device.is_host:
        storage, shape = check.storage(value)
        _check_shape(node, shape)
        return storage  # type: ignore[no-any-return]
    if check.special:
        packed, shape = check.storage(value)
        _check_shape(node, shape)
        return packed  # type: ignore[no-any-return]
    array = check.array(value)
    _check_shape(node, array.shape)
    return array


def laid_out(node: External, storage: Storage) -> Storage:
    """The memory of a weight as code reads it: contiguous and aligned; a copy where what was given is not."""
    if not isinstance(storage, np.ndarray) or not node.type.device.to_device().is_host or node.type.dtype.is_packed():
        return storage
    is_whole = storage.flags.c_contiguous and storage.ctypes.data % max(node.align, storage.dtype.alignment) == 0
    return storage if is_whole else _aligned(storage, node.align)


def _aligned(array: Array, align: int) -> Array:
    """A copy whose address is a multiple of `align`, and of a cache line."""
    copy = aligned_memory(array.shape, array.dtype, max(align, ALIGNMENT))
    copy[...] = array
    return copy


def aligned_memory(shape: tuple[int, ...], dtype: np.dtype[Any], align: int) -> Array:
    """An array whose address is a multiple of `align`."""
    size = math.prod(shape) * dtype.itemsize
    raw = fresh_memory(size + align)
    skip = -raw.ctypes.data % align
    array: Array = raw[skip : skip + size].view(dtype).reshape(shape)
    return array


def _check_shape(node: External, shape: tuple[int, ...]) -> None:
    if tuple(shape) != tuple(node.type.shape):
        raise GraphError(
            f"weight '{node.name}' has the shape {shown(node.type.shape)}, and the one given has {shown(shape)}",
            code=CODE,
            place=user_place(),
            argument=node.name,
            expected=shown(node.type.shape),
            got=shown(shape),
            notes=_used_at(node),
        )


def _missing(ir: GraphIR, node: External, spare: Iterable[str]) -> GraphError:
    return GraphError(
        f"weight '{node.name}' of graph '{ir.name}' is missing: weights_registry has nothing of this name",
        code=CODE,
        place=user_place(),
        argument=node.name,
        expected=str(node.type),
        notes=_used_at(node),
        hint=did_you_mean(node.name, spare),
    )


def _used_at(node: External) -> list[str]:
    return [f"the graph has it since {node.place}"] if node.place else []


# *** weights that code does not read ***


def unread_weights(ir: GraphIR) -> set[str]:
    """The names of the weights that no code of a graph reads."""
    read = {*ir.outputs, *ir.regions.given(), *(step.value for step in ir.steps)}
    read.update(value for item in ir.nodes for value in getattr(item, "operands", ()))
    weights = [item for item in ir.nodes if isinstance(item, External) and not isinstance(item, PreparedValue)]
    return {item.name for item in weights} - {item.name for item in weights if item.result in read}


def without_unread(ir: GraphIR, weights: Mapping[int, Storage]) -> tuple[GraphIR, dict[int, Storage]]:
    """A graph without the weights that no code of it reads, and the storage of the others."""
    unread = unread_weights(ir)
    stays = [number for number, item in enumerate(ir.nodes) if not _is_among(item, unread)]
    return _Leaving(ir, unread).run(), {k: weights[number] for k, number in enumerate(stays) if number in weights}


class _Leaving(Rewriting):
    def __init__(self, ir: GraphIR, unread: set[str]) -> None:
        super().__init__(ir)
        self.unread = unread

    def rewrite(self, number: int, item: Item) -> None:
        if _is_among(item, self.unread):
            self.changed += 1
        else:
            self.keep(item)


def _is_among(item: Item, names: set[str]) -> bool:
    return isinstance(item, External) and not isinstance(item, PreparedValue) and item.name in names
