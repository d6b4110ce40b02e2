"""One network on the ranks of a mesh, which are threads, and in NumPy: all elements have to be equal.

As a program, it is a child of a campaign: one network a line on standard input, one answer a line on standard output.
"""

from __future__ import annotations

import sys
from collections import Counter
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path
from typing import Final

import numpy as np

sys.path.insert(0, str(Path(__file__).parent))

from answering import answer_lines, outcome_of
from einkorn.distributed import Mesh, rank, run_threads
from sharded.network import ShardedNetwork, arrays_of, staged
from sharded.oracle import Array, results_of

from einkorn.graph import InferenceSession
from einkorn.graph.ops import reducing
from einkorn.graph.passes import cut_products

BLOCKS: Final = (1 << 22, 1 << 12, 1 << 9)  # bytes in which ranks reduce tensors, by the seed of a network
ran: Counter[str] = Counter()  # kernels of the networks so far, by name


@contextmanager
def small_blocks(network: ShardedNetwork) -> Iterator[None]:
    """Small tensors are reduced in blocks, too, and small products are computed in pieces."""
    before = reducing.BLOCK_BYTES, cut_products.MIN_STEPS
    reducing.BLOCK_BYTES, cut_products.MIN_STEPS = BLOCKS[network.seed % len(BLOCKS)], 1  # type: ignore[misc]
    try:
        yield
    finally:
        reducing.BLOCK_BYTES, cut_products.MIN_STEPS = before  # type: ignore[misc]


def results(network: ShardedNetwork) -> list[list[list[Array]]]:
    """The outputs of each rank and call."""

    def program() -> list[list[Array]]:
        model = InferenceSession(num_threads=1).load(staged(network, Mesh(network.mesh)))
        if rank() == 0:
            ran.update(summary.name for summary in model.kernel_summaries)
        calls = [arrays_of(network, call, rank()) for call in range(len(network.sizes))]
        return [[np.array(each.to_numpy()) for each in model(*arrays)] for arrays in calls]

    with small_blocks(network):
        return run_threads(program, network.ranks)


def compare(network: ShardedNetwork) -> str | None:
    """Where a rank does not have what NumPy says."""
    by_rank = results(network)
    for call in range(len(network.sizes)):
        for number, wanted in enumerate(results_of(network, call)):
            for place, array in enumerate(wanted):
                actual = by_rank[place][call][number]
                if actual.dtype != array.dtype or actual.shape != array.shape or not np.array_equal(actual, array):
                    text = f"rank {place}, call {call}, output {number}: {actual!r}, and NumPy has {array!r}"
                    return f"{text}\nsizes {network.sizes[call]}"
    return None


def answer(network: ShardedNetwork) -> tuple[str, str]:
    """What became of a network: "same", "differs", "refused" or "fault"; and more about it."""
    return outcome_of(lambda: compare(network))


def main() -> None:
    answer_lines(lambda line: answer(ShardedNetwork.from_json(line)))


if __name__ == "__main__":
    main()
