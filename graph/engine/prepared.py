"""Computes the prepared values of a graph when a model is loaded: see `passes.prepare_weights`."""

from __future__ import annotations

from collections.abc import Callable, Mapping

from ...dsl.contract.checks import SAFE
from ..driver.device import ALIGNMENT, Array, Storage
from ..ir import External, GraphIR, Prepared
from ..loading.cache_keys import graph_key
from ..loading.code import LoadedCode
from .model import Model
from .weights import aligned_memory, storage_of


def prepared_weights(
    ir: GraphIR, weights: Mapping[str, Storage], load: Callable[[GraphIR], LoadedCode]
) -> dict[int, Storage]:
    """The storage of the weights of a graph, those that are computed among them.

    Args:
        ir: the graph after the passes.
        weights: the storage of each weight by its name.
        load: finds the code of a graph.

    Raises:
        KernelError: a kernel stopped itself.
    """
    codes: dict[str, LoadedCode] = {}
    computed: dict[int, Storage] = {}  # by identity of the part

    def code_of(part: GraphIR) -> LoadedCode:
        key = graph_key(part, (), True, SAFE)
        if key not in codes:
            codes[key] = load(part)
        return codes[key]

    def storages(of: GraphIR) -> dict[int, Storage]:
        return {number: storage(item) for number, item in enumerate(of.nodes) if isinstance(item, External)}

    def storage(weight: External) -> Storage:
        if not isinstance(weight, Prepared):
            return weights[weight.name]
        assert weight.part is not None
        key = id(weight.part)
        if key not in computed:
            (made,) = Model(weight.part, code_of, None, storages(weight.part)).execute(out=[_memory(weight)])
            computed[key] = storage_of(weight, made)
        return computed[key]

    return storages(ir)


def _memory(weight: Prepared) -> Array | None:
    """Memory of the host that begins with a cache line; None where a model finds its own."""
    type = weight.type
    if not type.device.to_device().is_host or type.dtype.is_packed():
        return None
    return aligned_memory(tuple(int(dim) for dim in type.shape), type.dtype.to_numpy(), ALIGNMENT)


def parts_of(ir: GraphIR) -> list[GraphIR]:
    """The graphs that compute the prepared values of a graph, with those that these need."""
    results = []
    for item in ir.nodes:
        if isinstance(item, Prepared) and item.part is not None:
            results += [*parts_of(item.part), item.part]
    return results
