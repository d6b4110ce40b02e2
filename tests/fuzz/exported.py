"""Random networks as exported files: their calls give the bits of the Python runtime.

    python tests/fuzz/exported.py --networks 200 --seed 0

A network is loaded and exported for this machine, and both are called with the same arrays. Weights of all sizes are
packed and prepared, as in `check_network`. The seed of each network that differs is printed.
"""

from __future__ import annotations

import argparse
import random
import sys
import tempfile
from collections import Counter
from pathlib import Path

sys.path.insert(0, str(Path(__file__).resolve().parents[1]))
sys.path.insert(0, str(Path(__file__).resolve().parent))

from check_network import arrays_of, small_weights
from networks.network import Network, staged
from networks.ways import random_network
from support.exported import Exported, check_equal

from einkorn.dsl.diagnostics.errors import EinkornError
from einkorn.graph import InferenceSession


def check_exported(network: Network, folder: Path) -> str:
    """What became of a network: "same", or "refused" where the graph does not load.

    Raises:
        AssertionError: the exported file gives other bits.
    """
    graph = staged(network)
    with small_weights():
        try:
            model = InferenceSession().load(graph)
        except EinkornError:
            return "refused"
        exported = Exported(model, folder)
    for call, sizes in enumerate(network.sizes):
        check_equal(model, exported, arrays_of(network, sizes, call))
    return "same"


def main() -> None:
    parser = argparse.ArgumentParser(description="Exports random networks and compares their results.")
    parser.add_argument("--networks", type=int, default=200)
    parser.add_argument("--seed", type=int, default=0)
    given = parser.parse_args()
    outcomes: Counter[str] = Counter()
    for seed in range(given.seed, given.seed + given.networks):
        with tempfile.TemporaryDirectory() as folder:
            try:
                outcome = check_exported(random_network(random.Random(seed)), Path(folder))
            except Exception as error:
                outcome = "differs"
                print(f"network {seed}: {type(error).__name__}: {error}", flush=True)
        outcomes[outcome] += 1
    print(", ".join(f"{count} {outcome}" for outcome, count in sorted(outcomes.items())))
    sys.exit(1 if outcomes["differs"] else 0)


if __name__ == "__main__":
    main()
