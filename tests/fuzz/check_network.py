"""One network three ways: op by op; with ops done twice, optimised and fused, by two threads, one in four with all
optimisation by LLVM; and in NumPy, in float64.

The first two have to agree in all bits, and NumPy's intervals have to hold them (see `networks.oracle`). Buffers are
outputs, too. Nothing may be written next to an output.

As a program, it is a child of a campaign: one network a line on standard input, one answer a line on standard output.
"""

from __future__ import annotations

import functools
import sys
from collections.abc import Callable, Iterator, Sequence
from contextlib import contextmanager
from pathlib import Path

import numpy as np

sys.path.insert(0, str(Path(__file__).parent))

import check
from answering import answer_lines, outcome_of
from check import Array, compiled, surroundings
from networks.bounds import Bounds, outside
from networks.custom import custom
from networks.network import Network, data, staged
from networks.oracle import results_of
from networks.redundant import redundant, with_weights

from einkorn.graph import Buffer, DType, Model
from einkorn.graph.engine.optimising import optimise_graph
from einkorn.graph.engine.prepared import prepared_weights
from einkorn.graph.engine.weights import weights_of
from einkorn.graph.ir import External, GraphIR
from einkorn.graph.loading.code import LoadedCode
from einkorn.graph.passes import pack_weights, prepare_weights, schedule
from einkorn.graph.passes.verify import verify_graph


@contextmanager
def small_weights() -> Iterator[None]:
    """Weights of any size are packed and prepared, and values of any size are computed late: networks are small."""
    limits = [(pack_weights, "MIN_ELEMENTS"), (prepare_weights, "MIN_ELEMENTS"), (schedule, "MIN_BYTES")]
    before = [getattr(each, name) for each, name in limits]
    try:
        for each, name in limits:
            setattr(each, name, 1)
        yield
    finally:
        for (each, name), number in zip(limits, before, strict=True):
            setattr(each, name, number)


def arrays_of(network: Network, sizes: dict[str, int], seed: int) -> list[Array]:
    """Inputs for a call."""
    rng = np.random.default_rng([network.seed, seed])
    collected = []
    for dtype, shape, kind in network.inputs:
        whole = [sizes[dim] if isinstance(dim, str) else dim for dim in shape]
        array = data(DType[dtype], whole, rng)
        collected.append(np.ascontiguousarray(array.T).T if kind == "turned" and array.ndim > 1 else array)
    return collected


def run(model: Model, network: Network, arrays: Sequence[Array], threads: int) -> list[Array]:
    """The outputs of a call, and what its buffers hold then."""
    kinds = [kind for _, _, kind in network.inputs]
    given = [Buffer.from_numpy(a.copy()) if k == "buffer" else a for a, k in zip(arrays, kinds, strict=True)]
    before = [array.tobytes() for array in arrays]
    with surroundings(threads) as guards:
        result = [np.array(buffer.to_numpy()) for buffer in model(*given)]
    result += [np.array(buffer.to_numpy()) for buffer in given if isinstance(buffer, Buffer)]
    assert before == [array.tobytes() for array in arrays], "an input was written"
    assert all((guard == 0xA5).all() for guard in guards), "written outside an output"
    return result


def difference(name: str, got: Sequence[Array], wanted: Sequence[Bounds]) -> str | None:
    """Where results are not what NumPy says."""
    for number, (array, bounds) in enumerate(zip(got, wanted, strict=True)):
        if array.shape != bounds.shape or array.dtype != bounds.dtype.to_numpy():
            return f"{name}: output {number} is {array.dtype} {array.shape}, not {bounds.dtype} {bounds.shape}"
        wrong = np.atleast_1d(outside(array, bounds))
        if wrong.any():
            at = tuple(int(k[0]) for k in np.nonzero(wrong))
            low, high = np.atleast_1d(bounds.low)[at], np.atleast_1d(bounds.high)[at]
            return f"{name}: output {number} at {at} is {np.atleast_1d(array)[at]!r}, not within {low!r} to {high!r}"
    return None


def narrow(bounds: Bounds) -> int:
    """Of how many elements NumPy says something."""
    return int(np.count_nonzero(bounds.high - bounds.low < 0.1 + 0.1 * bounds.largest))


def as_shipped(network: Network) -> bool:
    """Whether a network is compiled with all optimisation: few, as LLVM is another campaign's matter."""
    return network.seed % 4 == 0


def compare(network: Network, load: Callable[[GraphIR, int, bool], LoadedCode]) -> str | None:
    """How the three ways differ, or None."""
    best = 3 if as_shipped(network) else 0
    ir = staged(network).ir
    models: dict[str, tuple[Model, int]] = {}
    for name, level, fuse, threads in (("op by op", 0, False, 1), ("fused", best, True, 2)):
        with surroundings(threads):
            loaded = functools.cache(functools.partial(load, level=level, fuse=fuse))
            models[name] = (_optimised_model(network, ir, loaded) if fuse else Model(ir, loaded)), threads
    for call, sizes in enumerate(network.sizes):
        arrays = arrays_of(network, sizes, call)
        outputs, memories = results_of(network, arrays, custom)
        wanted = [*outputs, *memories]
        result = {name: run(model, network, arrays, threads) for name, (model, threads) in models.items()}
        trouble = next(filter(None, (difference(name, got, wanted) for name, got in result.items())), None)
        pairs = zip(result["op by op"], result["fused"], strict=True)
        for number, (a, b) in enumerate(pairs):
            if trouble is None and check._wrong(np.atleast_1d(a), np.atleast_1d(b)).any():
                trouble = f"fused is not op by op, output {number}: {b!r}, not {a!r}"
        if trouble is not None:
            return f"{trouble}\nsizes {sizes}"
    return None


@small_weights()
def _optimised_model(network: Network, ir: GraphIR, load: Callable[[GraphIR], LoadedCode]) -> Model:
    """A model of the network with more nodes after all passes; in every other one constants are weights."""
    graph, arrays = redundant(ir, network.seed), {}
    if network.seed % 2:
        graph, arrays = with_weights(graph)
    weights = weights_of(graph, arrays)
    names = {number: item.name for number, item in enumerate(graph.nodes) if isinstance(item, External)}
    graph = optimised(graph, load)
    prepared = prepared_weights(graph, {names[number]: storage for number, storage in weights.items()}, load)
    return Model(graph, load, None, prepared)


@small_weights()
def optimised(ir: GraphIR, load: Callable[[GraphIR], LoadedCode]) -> GraphIR:
    """A graph after all passes."""
    result = optimise_graph(ir, load, None, False).ir
    verify_graph(result, ir, "all")
    return result


def answer(network: Network) -> tuple[str, str]:
    """What became of a network: "same", "differs", "refused" or "fault"; and more about it."""
    return outcome_of(lambda: compare(network, lambda ir, level, fuse: compiled(ir, "safe", level, fuse)))


def main() -> None:
    answer_lines(lambda line: answer(Network.from_json(line)))


if __name__ == "__main__":
    main()
