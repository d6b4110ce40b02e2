"""Measures the memory of a model whose weights ranks share, of all ranks together.

    python benchmarks/ranks_memory.py                    # 2 GB of weights on 1 and on 4 ranks; needs the extra [mpi]
    python benchmarks/ranks_memory.py --megabytes 200    # a smaller model

The weights are those of layers of attention and MLP, float32, in a safetensors file. Memory is that of the processes
after a call of 3 and one of 16 rows: the sum of their proportional set sizes, in which a page that several of them have
counts once. "Program" is what they take before they open the file. Where code was compiled, LLVM takes memory, too: run
it twice.
"""

from __future__ import annotations

import argparse
import json
import os
import re
import subprocess
import sys
import tempfile
from pathlib import Path
from typing import Any

import numpy as np

DIM, HIDDEN, HEADS = 1024, 4096, 16
FILE = "EK_BENCH_WEIGHTS"  # the file of weights


def layer(ranks: Any) -> Any:
    """A layer of a transformer; each rank has a part of it."""
    from einkorn.graph import nn

    class SplitLayer(nn.Module):
        def __init__(self) -> None:
            self.attention = nn.Attention(DIM, HEADS, fused=False, bias=False, split_heads=ranks)
            self.mlp = nn.MLP(DIM, HIDDEN, bias=False, split_hidden=ranks)

        def forward(self, x: Any) -> Any:
            x = x + self.attention(x)
            return x + self.mlp(x)

    return SplitLayer()


def write(path: Path, megabytes: int) -> int:
    """Writes a file of weights of so many layers as it takes; how many they are."""
    shapes = {name: list(map(int, each.shape)) for name, each in layer(None).parameters}
    count = max(round(megabytes * 1e6 / sum(4 * int(np.prod(shape)) for shape in shapes.values())), 1)
    entries, end = {}, 0
    for number in range(count):
        for name, shape in shapes.items():
            size = 4 * int(np.prod(shape))
            entries[f"layers.{number}.{name}"] = {"dtype": "F32", "shape": shape, "data_offsets": [end, end + size]}
            end += size
    header = json.dumps(entries).encode()
    header = header.ljust(-(-len(header) - 8) // 4096 * 4096 + 4088)
    rng = np.random.default_rng(0)
    with path.open("wb") as file:
        file.write(len(header).to_bytes(8, "little") + header)
        for entry in entries.values():
            file.write((rng.standard_normal(entry["shape"], np.float32) / 64).tobytes())  # type: ignore[arg-type]
    return count


def memory(field: str) -> float:
    """A field of this process's memory, in MB."""
    found = re.search(rf"^{field}:\s+(\d+)", Path("/proc/self/smaps_rollup").read_text(), re.MULTILINE)
    assert found is not None, field
    return int(found[1]) * 1024 / 1e6


def child() -> None:
    """One rank: loads the model, calls it, and says what it takes."""
    from einkorn.distributed import Mesh, size
    from mpi4py import MPI

    from einkorn import functional as F
    from einkorn.graph import DeviceRef, DType, TensorType, nn
    from einkorn.graph.weights import load_weights

    world, mesh = MPI.COMM_WORLD, Mesh({"model": size()})
    x = TensorType(DType.float32, ["batch", "length", DIM], DeviceRef.CPU())

    class SplitLayers(nn.Module):  # type: ignore[type-arg]
        def __init__(self, count: int) -> None:
            self.layers = nn.ModuleList([layer(mesh["model"] if mesh.size > 1 else None) for _ in range(count)])

        def forward(self, x: Any) -> Any:
            for each in self.layers:
                x = each(x)
            return x

    def total(field: str) -> float:
        world.Barrier()
        return float(world.allreduce(memory(field)))

    program = total("Pss")
    weights = load_weights([os.environ[FILE]])
    state = {name: each.data() for name, each in weights.items()}
    bytes_of = sum(row.bytes for row in weights.rows()) / 1e6
    with F.lazy():  # the numbers that layers begin with are never computed
        model = SplitLayers(len(state) // len(list(layer(None).parameters)))
    model.load_state_dict(state)
    del state, weights
    compiled = model.compile(x)
    for rows in (3, 16):
        compiled(np.ones((1, rows, DIM), np.float32))
    after, private = total("Pss"), total("Private_Dirty")
    if world.rank == 0:
        cells = [f"{each:.0f}" for each in (bytes_of, program, after, private)]
        cells += [f"{(after - program) / bytes_of:.2f}", f"{after / bytes_of:.2f}"]
        print(f"| {world.size} | {' | '.join(cells)} |", flush=True)


def main() -> None:
    """Starts the processes, or is one of them."""
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--megabytes", type=int, default=2000, help="of weights")
    parser.add_argument("--ranks", type=int, nargs="+", default=[1, 4], help="how many processes there are")
    options = parser.parse_args()
    if FILE in os.environ:
        child()
        return
    print(
        "| ranks | weights, MB | program, MB | all, MB | of these private, MB | without program / weights |"
        " all / weights |\n|---|---|---|---|---|---|---|",
        flush=True,
    )
    with tempfile.TemporaryDirectory() as folder:
        path = Path(folder, "weights.safetensors")
        write(path, options.megabytes)
        for ranks in options.ranks:
            launcher = str(Path(sys.executable).with_name("mpiexec"))
            command = [launcher, "-n", str(ranks), sys.executable, __file__]
            subprocess.run(command, env={**os.environ, FILE: str(path)}, check=True)


if __name__ == "__main__":
    main()
