"""Times what ranks and workers are for: products and layers that ranks share, sentences, and tasks of Dask and Ray.

    python benchmarks/ranks_speed.py                     # all rows; needs the extra [mpi], dask, distributed and ray
    python benchmarks/ranks_speed.py --only layer        # or products, sentences, dask, ray
    python benchmarks/ranks_speed.py --seconds 10        # for which a program of ranks is timed, each of three times

Programs of ranks take turns with the one that they are compared with, and the fastest turn of each counts; a turn is
the median of the calls of rank 0. Ranks need a core each that nothing else uses. Sentences are those of a network of
MiniLM's sizes (six layers of 384) with random weights, single-threaded on each rank.

Products whose results two ranks add up are computed in pieces and, in turns, as a whole (without `graph.cut_products`).

The time of a task is the median of tasks that are waited for one by one; "empty" is a task that gives its array back.
The first task of a worker is measured with an empty cache of compiled code, then with the one that has come of it.
"""

from __future__ import annotations

import argparse
import itertools
import os
import statistics
import subprocess
import sys
import tempfile
import time
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from pathlib import Path
from typing import Any, TypeVar

import numpy as np

from einkorn.dsl import Floating, InputTensor, OutputTensor, exp, foreach, register

T = TypeVar("T", bound=Floating)

TURNS = 3
TASKS = 300
ROWS = (16, 128)  # of a call of the layer
PRODUCTS = ((2048, 1536, 768), (1024, 1536, 768), (1024, 1536, 4096))  # rows, inner steps of a rank, columns
SENTENCES, LENGTH = 64, 32
CACHE, THREADS = "EINKORN_CACHE_DIR", "EINKORN_NUM_THREADS"


@register("swish")
def swish(out: OutputTensor[T, "*s"], x: InputTensor[T, "*s"]) -> None:
    """x / (1 + exp(-x)), a task of Dask and Ray."""
    foreach(out, lambda i: x[i] / (1 + exp(-x[i])))


# *** ranks ***


def encoder(width: int, heads: int, layers: int, group: Any, rows: int, batch: int) -> Callable[[], object]:
    """A call of a compiled encoder with random weights and input."""
    from einkorn.graph import DeviceRef, DType, TensorType, nn

    class EncoderLayer(nn.Module):  # type: ignore[type-arg]
        def __init__(self) -> None:
            self.norms = nn.ModuleList([nn.LayerNorm(width), nn.LayerNorm(width)])
            self.attention = nn.Attention(width, heads, fused=False, bias=True, causal=False, split_heads=group)
            self.mlp = nn.MLP(width, 4 * width, gated=False, bias=True, split_hidden=group)

        def forward(self, x: Any) -> Any:
            x = self.norms[0](x + self.attention(x))
            return self.norms[1](x + self.mlp(x))

    class Encoder(nn.Module):  # type: ignore[type-arg]
        def __init__(self) -> None:
            self.layers = nn.ModuleList([EncoderLayer() for _ in range(layers)])

        def forward(self, x: Any) -> Any:
            for layer in self.layers:
                x = layer(x)
            return x

    run = Encoder().compile(TensorType(DType.float32, ["batch", "rows", width], DeviceRef.CPU()))
    x = np.random.default_rng(0).standard_normal((batch, rows, width), np.float32)
    return lambda: run(x)


def child(what: str, size: int, seconds: float) -> None:
    """One rank, or a process alone: prints the median time of a call, in ms, or of calls in two ways."""
    from einkorn.distributed import Mesh, rank
    from einkorn.distributed import size as ranks

    if what == "products":
        whole, pieces = summed_products(PRODUCTS[size], seconds)
        if rank() == 0:
            print(whole, pieces, flush=True)
        return
    group = Mesh({"model": ranks()})["model"] if ranks() > 1 else None
    if what == "layer":
        call = encoder(768, 12, 1, group, size, 1)
    else:
        call = encoder(384, 12, 6, None, LENGTH, SENTENCES // ranks())
    world: Any = sys.modules["mpi4py.MPI"].COMM_WORLD if ranks() > 1 else None
    for _ in range(8):  # after some calls of a model there is native code for them, made in the background
        call()
    time.sleep(1)
    times, end, goes_on = list[float](), time.perf_counter() + seconds, True
    while goes_on:
        start = time.perf_counter()
        call()
        if world is not None and what != "layer":
            world.Barrier()  # all sentences
        times.append(time.perf_counter() - start)
        goes_on = time.perf_counter() < end
        goes_on = goes_on if world is None else world.bcast(goes_on)
    if rank() == 0:
        print(statistics.median(times) * 1e3, flush=True)


def summed_products(sizes: tuple[int, int, int], seconds: float) -> tuple[float, float]:
    """The median times of a product of this rank with its sum over two ranks, in ms: as a whole, and in pieces."""
    from einkorn.distributed import Mesh

    from einkorn.graph import DeviceRef, DType, Graph, InferenceSession, TensorType, ops

    rows, depth, columns = sizes
    rng, mesh, host = np.random.default_rng(0), Mesh({"model": 2}), DeviceRef.CPU()
    x, w = (rng.standard_normal(shape, np.float32) for shape in ((rows, depth), (depth, columns)))
    types = [TensorType(DType.float32, ["rows", depth], host)]
    models = []
    for without in ("graph.cut_products", ""):
        os.environ["EINKORN_WITHOUT"] = without
        total = Graph("total", lambda x: ops.allreduce.sum(x @ ops.constant(w, DType.float32, host), mesh), types)
        models.append(InferenceSession(num_threads=1).load(total))
    world: Any = sys.modules["mpi4py.MPI"].COMM_WORLD
    for _ in range(8):
        results = [model(x)[0].to_numpy() for model in models]
        assert np.array_equal(*results)
    times: tuple[list[float], list[float]] = ([], [])
    time.sleep(1)
    end, goes_on = time.perf_counter() + seconds, True
    while goes_on:
        for model, spent in zip(models, times, strict=True):
            world.Barrier()
            start = time.perf_counter()
            model(x)
            spent.append(time.perf_counter() - start)
        goes_on = world.bcast(time.perf_counter() < end)
    return statistics.median(times[0]) * 1e3, statistics.median(times[1]) * 1e3


def turns(what: str, size: int, seconds: float, threads_of_one: int) -> tuple[float, float]:
    """The times of a call of one process and of two ranks, in ms."""
    program = [sys.executable, __file__, "--child", what, "--size", str(size), "--seconds", str(seconds)]
    launcher = [str(Path(sys.executable).with_name("mpiexec")), "-n", "2"]
    found: tuple[list[float], list[float]] = ([], [])
    for _ in range(TURNS):
        for times, command, threads in zip(found, (program, launcher + program), (threads_of_one, 1), strict=True):
            environment = {**os.environ, THREADS: str(threads)}
            done = subprocess.run(command, env=environment, check=True, capture_output=True, text=True)
            times.append(float(done.stdout.split()[-1]))
    return min(found[0]), min(found[1])


def layer_rows(seconds: float) -> None:
    """An encoder layer, 768 wide."""
    for size in ROWS:
        one, two = turns("layer", size, seconds, 2)
        print(f"| encoder layer, {size} rows | one rank, two threads: {one:.2f} ms | {two:.2f} ms | {one / two:.2f} |")


def product_rows(seconds: float) -> None:
    """Products whose results two ranks add up."""
    print(
        "| product, then its sum over two ranks | as a whole, ms | in pieces, ms | whole / pieces |\n|---|---|---|---|"
    )
    launcher = [str(Path(sys.executable).with_name("mpiexec")), "-n", "2", sys.executable, __file__]
    for number, sizes in enumerate(PRODUCTS):
        command = [*launcher, "--child", "products", "--size", str(number), "--seconds", str(seconds)]
        done = subprocess.run(command, check=True, capture_output=True, text=True)
        whole, pieces = map(float, done.stdout.split()[-2:])
        name = " x ".join(map(str, sizes))
        print(f"| {name} | {whole:.2f} | {pieces:.2f} | {whole / pieces:.2f} |", flush=True)


def sentence_rows(seconds: float) -> None:
    """Sentences, each rank its half."""
    one, two = turns("sentences", 0, seconds, 1)
    name = f"{SENTENCES} sentences of {LENGTH} words"
    print(f"| {name} | one rank, one thread: {one:.1f} ms | {two:.1f} ms | {one / two:.2f} |", flush=True)


# *** tasks ***


class Worker:
    """What a worker does: calls the kernel, or nothing."""

    def call(self, x: Any) -> Any:
        """The kernel."""
        return swish(x)

    def nothing(self, x: Any) -> Any:
        """The array as it came."""
        return x


Task = Callable[[str, Any], Any]  # runs a method of `Worker` and waits for what it gives


@contextmanager
def dask_workers() -> Iterator[list[Task]]:
    """Two processes of Dask."""
    from dask.distributed import Client, LocalCluster

    options: dict[str, Any] = {"n_workers": 2, "threads_per_worker": 1, "dashboard_address": None}
    with LocalCluster(**options) as cluster, Client(cluster) as client:
        places = list(client.scheduler_info()["workers"])

        def task(place: str) -> Task:
            worker = Worker()
            return lambda name, x: client.submit(getattr(worker, name), x, workers=[place], pure=False).result()

        yield [task(place) for place in places]


@contextmanager
def ray_workers() -> Iterator[list[Task]]:
    """Two actors of Ray."""
    import ray

    ray.init(num_cpus=2, include_dashboard=False, log_to_driver=False)
    try:
        actors = [ray.remote(Worker).remote() for _ in range(2)]
        yield [lambda name, x, actor=actor: ray.get(getattr(actor, name).remote(x)) for actor in actors]  # type: ignore[misc]
    finally:
        ray.shutdown()


def median_of(call: Callable[[], object]) -> float:
    """The median time of a call, in microseconds."""
    times = []
    for _ in range(TASKS):
        start = time.perf_counter()
        call()
        times.append(time.perf_counter() - start)
    return statistics.median(times) * 1e6


def task_rows(name: str, workers: Callable[[], Any]) -> None:
    """Tasks with an empty cache, and with the one that they leave."""
    x = np.linspace(-3, 3, 1000, dtype=np.float32)
    with tempfile.TemporaryDirectory() as folder:
        os.environ[CACHE] = folder
        for state in ("cold", "warm"):
            with workers() as tasks:
                firsts, files = [], [files_in(folder)]
                for task in tasks:
                    task("nothing", x)  # the worker has started
                    start = time.perf_counter()
                    result = task("call", x)
                    firsts.append(time.perf_counter() - start)
                    files.append(files_in(folder))
                later = median_of(lambda task=tasks[0]: task("call", x))  # type: ignore[misc]
                empty = median_of(lambda task=tasks[0]: task("nothing", x))  # type: ignore[misc]
            assert np.array_equal(result, swish(x))
            made = [after - before for before, after in itertools.pairwise(files)]
            cells = [f"{first:.2f} s, {count} files" for first, count in zip(firsts, made, strict=True)]
            direct = median_of(lambda: swish(x))
            figures = f"{later:.0f} | {empty:.0f} | {direct:.1f} | {later - empty - direct:+.0f}"
            print(f"| {name}, {state} | {' | '.join(cells)} | {figures} |", flush=True)


def files_in(folder: str) -> int:
    """How many files there are below a folder: of compiled code."""
    return sum(path.is_file() for path in Path(folder).rglob("*.so"))


def main() -> None:
    """Prints the tables, or is a rank."""
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--only", choices=["products", "layer", "sentences", "dask", "ray"])
    parser.add_argument("--seconds", type=float, default=10.0, help="for which a program of ranks is timed")
    parser.add_argument("--child", help=argparse.SUPPRESS)
    parser.add_argument("--size", type=int, default=0, help=argparse.SUPPRESS)
    options = parser.parse_args()
    if options.child:
        child(options.child, options.size, options.seconds)
        return
    wanted = [options.only] if options.only else ["products", "layer", "sentences", "dask", "ray"]
    if "products" in wanted:
        product_rows(options.seconds)
    if {"layer", "sentences"} & {*wanted}:
        print("\n| call | one process | two ranks of one thread | speed of two ranks |\n|---|---|---|---|", flush=True)
    if "layer" in wanted:
        layer_rows(options.seconds)
    if "sentences" in wanted:
        sentence_rows(options.seconds)
    if {"dask", "ray"} & {*wanted}:
        columns = "first task of worker 1 | of worker 2 | a task, us | empty, us | kernel alone, us | difference, us"
        print(f"\n| tasks | {columns} |\n{'|---' * 7}|", flush=True)
    if "dask" in wanted:
        task_rows("Dask", dask_workers)
    if "ray" in wanted:
        task_rows("Ray", ray_workers)


if __name__ == "__main__":
    main()
