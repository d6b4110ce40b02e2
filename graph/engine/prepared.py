"""Computes the prepared values of a graph when a model is loaded: see `passes.prepare_weights`."""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence

import numpy as np

from ...dsl.environment.pages import release_pages
from ..driver.device import ALIGNMENT, Array, Storage
from ..ir import External, GraphIR, PreparedValue
from ..loading.code import LoadedCode
from ..renumbering import Rewriting
from .model import Model
from .weights import aligned_memory, laid_out, storage_of, unread_weights


def prepared_weights(
    ir: GraphIR, weights: Mapping[str, Storage], load: Callable[[GraphIR], LoadedCode]
) -> dict[int, Storage]:
    """The storage of the weights of a graph, those that are computed among them.

    Weights that only others are computed from stay as they were given, and their pages of mapped files are released.

    Args:
        ir: the graph after the passes.
        weights: the storage of each weight by its name, as `weights_of` finds it.
        load: finds the code of a graph.

    Raises:
        KernelError: a kernel stopped itself.
    """
    computed: dict[int, Storage] = {}  # by identity of the part

    def storage(weight: External) -> Storage:
        if isinstance(weight, PreparedValue):
            return computed[id(weight.part)]
        return laid_out(weight, weights[weight.name])

    for graph, made_by in graphs_of(ir):
        results = Model(graph, load, None, _of_nodes(graph, storage)).execute(
            out=[_memory(weight) for weight in made_by]
        )
        for weight, result in zip(made_by, results, strict=True):
            computed[id(weight.part)] = laid_out(weight, storage_of(weight, result))
    unread = unread_weights(ir) if computed else set[str]()
    for name in unread:
        _release(weights[name])
    return _of_nodes(ir, lambda weight: weights[weight.name] if weight.name in unread else storage(weight))


def _of_nodes(ir: GraphIR, storage: Callable[[External], Storage]) -> dict[int, Storage]:
    return {number: storage(item) for number, item in enumerate(ir.nodes) if isinstance(item, External)}


def _release(storage: Storage) -> None:
    if isinstance(storage, np.ndarray):
        release_pages(storage)


def _memory(weight: PreparedValue) -> Array | None:
    """Memory of the host that begins with a cache line; None where a model finds its own."""
    type = weight.type
    if not type.device.to_device().is_host or type.dtype.is_packed():
        return None
    return aligned_memory(tuple(int(dim) for dim in type.shape), type.dtype.to_numpy(), ALIGNMENT)


def graphs_of(ir: GraphIR) -> list[tuple[GraphIR, list[PreparedValue]]]:
    """The graphs that compute the prepared values of a graph, and the values that each of them gives, in its order.

    Values are computed by one graph, whose groups share code, and those that need prepared values themselves by another
    one after it.
    """
    rounds: list[dict[int, PreparedValue]] = []  # by identity of the part, which several values may share

    def visit(of: GraphIR) -> int:
        """How many rounds have to be done before a graph can run."""
        needed = 0
        for item in of.nodes:
            if isinstance(item, PreparedValue):
                assert item.part is not None
                number = visit(item.part)
                rounds.extend({} for _ in range(number + 1 - len(rounds)))
                rounds[number][id(item.part)] = item
                needed = max(needed, number + 1)
        return needed

    visit(ir)
    return [(_joined(list(each.values())), list(each.values())) for each in rounds]


def _joined(values: Sequence[PreparedValue]) -> GraphIR:
    """The graph that computes several values."""
    outputs: list[int] = []
    writing = Rewriting(GraphIR("weights", (), (), ()))
    writing.changed = 1  # the items get other numbers
    for value in values:
        assert value.part is not None
        writing.values = {}
        for item in value.part.nodes:
            writing.keep(item)
        outputs += writing.new(value.part.outputs)
    return GraphIR("weights", (), tuple(writing.made), tuple(outputs))
