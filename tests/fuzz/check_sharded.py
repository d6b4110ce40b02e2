"""One network on the ranks of a mesh, which are threads, and in NumPy: all elements have to be equal.

As a program, it is a child of a campaign: one network a line on standard input, one answer a line on standard output.
"""

from __future__ import annotations

import sys
from pathlib import Path

import numpy as np

sys.path.insert(0, str(Path(__file__).parent))

from answering import answer_lines, outcome_of
from einkorn.distributed import Mesh, rank, run_threads
from sharded.network import ShardedNetwork, arrays_of, staged
from sharded.oracle import Array, results_of

from einkorn.graph import InferenceSession


def results(network: ShardedNetwork) -> list[list[list[Array]]]:
    """The outputs of each rank and call."""

    def program() -> list[list[Array]]:
        model = InferenceSession(num_threads=1).load(staged(network, Mesh(network.mesh)))
        calls = [arrays_of(network, call, rank()) for call in range(len(network.sizes))]
        return [[np.array(each.to_numpy()) for each in model(*arrays)] for arrays in calls]

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
