"""Random graphs with their ops on several devices, against the same graphs on the host: `make fuzz` has more of these.

    python tests/fuzz/check_devices.py 0 500

Networks of all ops are compared with NumPy's intervals (see `networks.oracle`), programs of branches, loops, calls and
buffers with plain Python, to the bit. Transfers stand at random edges between the host and two simulated GPUs.
"""

from __future__ import annotations

import random
import sys
from collections import Counter
from collections.abc import Sequence
from pathlib import Path
from typing import Any

import numpy as np

sys.path.insert(0, str(Path(__file__).parent))
sys.path.insert(0, str(Path(__file__).parents[1]))
sys.path.insert(0, str(Path(__file__).parents[1] / "graph"))

from check_network import arrays_of, difference
from networks.custom import custom
from networks.network import staged
from networks.oracle import results_of
from networks.ways import random_network
from support.scattered import scattered
from test_control_flow_random import VECTOR, Author, Computed, Staged

from einkorn.dsl.diagnostics.errors import EinkornError
from einkorn.graph import CPU, Accelerator, Buffer, BufferType, DeviceRef, DType, Graph, InferenceSession
from einkorn.graph.engine.model import Model
from einkorn.graph.ir import GraphIR, Node, is_transfer

DEVICES = (DeviceRef.CPU(), DeviceRef.GPU(0), DeviceRef.GPU(1))


def session(checks: str | None = None) -> InferenceSession:
    """The host and two simulated GPUs that differ."""
    gpus = [Accelerator("sim", checks=checks), Accelerator("sim", like="gfx942", checks=checks, number=1)]
    return InferenceSession(devices=[CPU(), *gpus])


def loaded(graph: Graph, ir: GraphIR, checks: str | None) -> Model:
    """A model of a graph that was placed on devices."""
    graph._ir = ir
    return session(checks).load(graph)


def call(model: Model, arrays: Sequence[Any]) -> list[np.ndarray[Any, Any]]:
    """The outputs of a call with these arrays, and what its buffers hold then."""
    given: list[Any] = []
    for check, array in zip(model._checks, arrays, strict=True):
        if check.device.is_host and not check.is_buffer:
            given.append(array)
        else:
            given.append(Buffer.from_numpy(np.array(array, order="C")).to(check.device))
    result = [np.array(buffer.to_numpy()) for buffer in model(*given)]
    return result + [np.array(b.to_numpy()) for b, c in zip(given, model._checks, strict=True) if c.is_buffer]


def transfers(ir: GraphIR) -> int:
    """How many transfers are in a graph."""
    return sum(isinstance(node, Node) and is_transfer(ir, node) for node in ir.nodes)


def check_network(seed: int, checks: str | None = None) -> str:
    """What became of a network: "same", "refused", or how it differs."""
    network = random_network(random.Random(seed))
    graph = staged(network)
    ir = scattered(graph, seed, DEVICES)
    try:
        model = loaded(graph, ir, checks)
        for number, sizes in enumerate(network.sizes):
            arrays = arrays_of(network, sizes, number)
            outputs, memories = results_of(network, arrays, custom)
            wrong = difference("on devices", call(model, arrays), [*outputs, *memories])
            if wrong is not None:
                return f"network {seed}, {sizes}: {wrong}"
    except EinkornError as error:
        return f"refused {error.code}: {str(error)[:300]}"
    return "same"


def check_program(seed: int, checks: str | None = None) -> str:
    """What became of a program with control flow: as `check_network`."""
    program = Author(seed).block(2, 4, 3)
    types = [VECTOR, VECTOR, BufferType(DType.int64, ["n"], DEVICES[0])]
    graph = Graph("test", lambda x, y, buffer: Staged(buffer).run(program, [x, y]), types)
    ir = scattered(graph, seed, DEVICES)
    try:
        model = loaded(graph, ir, checks)
        for n in (5, 1, 0, 33):
            x, y, start = (np.random.default_rng([seed, n, k]).integers(0, 50, n) for k in range(3))
            wanted = start.copy()
            expected = [*Computed(wanted).run(program, [x, y]), wanted]
            for got, right in zip(call(model, [x, y, start]), expected, strict=True):
                if not np.array_equal(got, right):
                    return f"program {seed}, n = {n}: {got} is not {right}"
    except EinkornError as error:
        return f"refused {error.code}: {str(error)[:300]}"
    return "same"


def main(first: int, last: int) -> None:
    outcomes: Counter[str] = Counter()
    for seed in range(first, last):
        for check in (check_network, check_program):
            result = check(seed, "all" if seed % 4 == 0 else None)
            outcomes[f"{check.__name__}: {result[:14]}"] += 1
            if result != "same":
                print(seed, check.__name__, result, flush=True)
    print(dict(outcomes))


if __name__ == "__main__":
    main(int(sys.argv[1]), int(sys.argv[2]))
