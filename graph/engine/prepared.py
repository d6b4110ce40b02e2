"""Computes the prepared values of a graph when a model is loaded: see `passes.prepare_weights`."""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence

from ..driver.device import ALIGNMENT, Array, Storage
from ..ir import External, GraphIR, PreparedValue
from ..loading.code import LoadedCode
from ..renumbering import Rewriting
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
    computed: dict[int, Storage] = {}  # by identity of the part

    def storages(of: GraphIR) -> dict[int, Storage]:
        return {number: storage(item) for number, item in enumerate(of.nodes) if isinstance(item, External)}

    def storage(weight: External) -> Storage:
        return computed[id(weight.part)] if isinstance(weight, PreparedValue) else weights[weight.name]

    for graph, made_by in graphs_of(ir):
        results = Model(graph, load, None, storages(graph)).execute(out=[_memory(weight) for weight in made_by])
        for weight, result in zip(made_by, results, strict=True):
            computed[id(weight.part)] = storage_of(weight, result)
    return storages(ir)


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
