"""Times collectives between two processes: ops of graphs, mpi4py by hand, and `torch.distributed` with gloo.

    python benchmarks/collectives.py                # starts mpiexec -n 2; needs the extra [mpi]
    python benchmarks/collectives.py --quick        # small tensors only

The three take turns, call by call; a time is the median of the calls of rank 0, which begin after a barrier. A row has
the elements of float32 of each rank, times in microseconds, and how much longer the op of a graph takes than mpi4py.
"""

from __future__ import annotations

import argparse
import os
import statistics
import subprocess
import sys
import tempfile
import time
from collections.abc import Callable, Mapping
from importlib.util import find_spec
from pathlib import Path

import numpy as np

SIZES = (1, 256, 16384, 1 << 20, 1 << 24)
RENDEZVOUS = "EK_BENCH_RENDEZVOUS"  # the file through which gloo connects the processes


def candidates(elements: int) -> Mapping[str, Mapping[str, Callable[[], object]]]:
    """For each collective, what computes it, by the name of the library."""
    from einkorn.distributed import Mesh, size
    from mpi4py import MPI

    from einkorn.graph import DeviceRef, DType, Graph, InferenceSession, TensorType, ops

    world, mesh = MPI.COMM_WORLD, Mesh({"ranks": size()})
    x = np.ones(elements, np.float32)
    total, everyone = np.empty_like(x), np.empty(elements * world.size, np.float32)
    types = [TensorType(DType.float32, ["n"], DeviceRef.CPU())]
    session = InferenceSession(num_threads=1)
    reduced = session.load(Graph("reduced", lambda x: ops.allreduce.sum(x, mesh), types))
    gathered = session.load(Graph("gathered", lambda x: ops.allgather(x, mesh), types))
    made: dict[str, dict[str, Callable[[], object]]] = {
        "allreduce": {"einkorn": lambda: reduced(x), "mpi4py": lambda: world.Allreduce(x, total)},
        "allgather": {"einkorn": lambda: gathered(x), "mpi4py": lambda: world.Allgather(x, everyone)},
    }
    if find_spec("torch") is not None:
        import torch
        import torch.distributed as dist

        if not dist.is_initialized():
            method = f"file://{os.environ[RENDEZVOUS]}"
            dist.init_process_group("gloo", init_method=method, rank=world.rank, world_size=world.size)
        mine, parts = torch.ones(elements), [torch.empty(elements) for _ in range(world.size)]
        made["allreduce"]["gloo"] = lambda: dist.all_reduce(mine)
        made["allgather"]["gloo"] = lambda: dist.all_gather(parts, mine)
    return made


def measure(elements: int) -> None:
    """Prints the rows of one size, on rank 0."""
    from mpi4py import MPI

    world = MPI.COMM_WORLD
    rounds = 2000 if elements <= 16384 else 30 if elements <= 1 << 20 else 8
    for op, run in candidates(elements).items():
        times: dict[str, list[float]] = {name: [] for name in run}
        for number in range(rounds + rounds // 4):
            for name, call in run.items():
                world.Barrier()
                start = time.perf_counter()
                call()
                if number >= rounds // 4:
                    times[name].append(time.perf_counter() - start)
        if world.rank == 0:
            medians = {name: statistics.median(each) * 1e6 for name, each in times.items()}
            cells = [f"{medians[name]:.1f}" if name in medians else "" for name in ("einkorn", "mpi4py", "gloo")]
            ratio = medians["einkorn"] / medians["mpi4py"]
            print(f"| {op} | {elements} | {' | '.join(cells)} | {ratio:.2f} |", flush=True)


def main() -> None:
    """Starts two processes, or is one of them."""
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--quick", action="store_true", help="small tensors only")
    options = parser.parse_args()
    sizes = SIZES[:3] if options.quick else SIZES
    if RENDEZVOUS in os.environ:
        for elements in sizes:
            measure(elements)
        return
    launcher = Path(sys.executable).with_name("mpiexec")
    if not launcher.exists():
        raise SystemExit("mpiexec is not installed: pip install mpi4py mpich")
    print(
        "| collective | elements | Einkorn, us | mpi4py, us | gloo, us | Einkorn / mpi4py |\n|---|---|---|---|---|---|",
        flush=True,
    )
    with tempfile.TemporaryDirectory() as folder:
        environment = {**os.environ, RENDEZVOUS: f"{folder}/rendezvous"}
        command = [str(launcher), "-n", "2", sys.executable, __file__, *sys.argv[1:]]
        raise SystemExit(subprocess.run(command, env=environment).returncode)


if __name__ == "__main__":
    main()
