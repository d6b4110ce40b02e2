"""Times collectives between processes: ops of graphs, mpi4py by hand, and `torch.distributed` with gloo.

    python benchmarks/collectives.py                # two ranks, by mpiexec; needs the extra [mpi]
    python benchmarks/collectives.py --quick        # small tensors only
    python benchmarks/collectives.py --ranks 1      # what a call takes in which no rank waits for another

The three take turns of a few calls for ten seconds a row; calls begin after a barrier. (Threads of gloo go on for a
while after its call, so that what is called next takes longer.) A time is that of rank 0 below which a tenth of its
calls stay: where other programs use the cores, most calls wait for these. A row has the elements of float32 of each
rank, times in microseconds, and how the op of a graph compares with mpi4py.
"""

from __future__ import annotations

import argparse
import os
import subprocess
import sys
import tempfile
import time
from collections.abc import Callable, Mapping
from importlib.util import find_spec
from pathlib import Path

import numpy as np

SIZES = (1, 256, 16384, 1 << 20, 1 << 24)
SECONDS = 10.0  # for which a row is measured
TURN = 20  # calls of small tensors; of large ones 2
LARGE = 1 << 20  # elements
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
    for op, run in candidates(elements).items():
        times: dict[str, list[float]] = {name: [] for name in run}
        for _ in range(8):  # after some calls of a model there is native code for them, made in the background
            for call in run.values():
                call()
        time.sleep(1)
        end, goes_on = time.perf_counter() + SECONDS, True
        while goes_on:
            for name, call in run.items():
                for _ in range(TURN if elements < LARGE else 2):
                    world.Barrier()
                    start = time.perf_counter()
                    call()
                    times[name].append(time.perf_counter() - start)
            goes_on = world.bcast(time.perf_counter() < end)
        if world.rank == 0:
            best = {name: sorted(each)[len(each) // 10] * 1e6 for name, each in times.items()}
            cells = [f"{best[name]:.1f}" if name in best else "" for name in ("einkorn", "mpi4py", "gloo")]
            more, ratio = best["einkorn"] - best["mpi4py"], best["einkorn"] / best["mpi4py"]
            print(f"| {op} | {elements} | {' | '.join(cells)} | {more:+.1f} | {ratio:.2f} |", flush=True)


def main() -> None:
    """Starts the processes, or is one of them."""
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--quick", action="store_true", help="small tensors only")
    parser.add_argument("--ranks", type=int, default=2, help="how many processes there are")
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
        "| collective | elements | Einkorn, us | mpi4py, us | gloo, us | Einkorn - mpi4py, us | Einkorn / mpi4py |\n"
        "|---|---|---|---|---|---|---|",
        flush=True,
    )
    with tempfile.TemporaryDirectory() as folder:
        environment = {**os.environ, RENDEZVOUS: f"{folder}/rendezvous"}
        command = [str(launcher), "-n", str(options.ranks), sys.executable, __file__, *sys.argv[1:]]
        raise SystemExit(subprocess.run(command, env=environment).returncode)


if __name__ == "__main__":
    main()
