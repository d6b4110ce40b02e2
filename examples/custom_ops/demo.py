"""`make demo`: two programs of this folder, step by step, with times, pictures and the size of the code by target;
then two kernels on a simulated GPU.

Compiled code is kept in a temporary folder for this run, so that the times are those of a first run every time.
"""

from __future__ import annotations

import itertools
import os
import shutil
import sys
import tempfile
import textwrap
import time
from collections.abc import Callable
from pathlib import Path
from typing import TypeVar

import image_pipeline
import mandelbrot
import numpy as np
from _common import DATA, KERNELS, compare, output_folder
from PIL import Image
from rich.console import Console
from rich.table import Table

from einkorn.compiler.build import build_package
from einkorn.graph import Accelerator, Buffer, DeviceRef, DType, Graph, InferenceSession, Model, TensorType, ops

TARGETS = {"host": "CPU", "sm_80": "PTX", "sm_90a": "PTX", "gfx942": "AMDGCN", "gfx1100": "AMDGCN"}
WIDTH = 100
COUNTED = ("sectors", "least", "conflicts")

T = TypeVar("T")


class Teller:
    """Prints one line for each step: what happened, and how long it took."""

    def __init__(self) -> None:
        sys.stdout.reconfigure(errors="replace")  # type: ignore[union-attr]  # a terminal may lack a letter
        self.console = Console(highlight=False)
        self.console.width = min(self.console.width, WIDTH) if self.console.is_terminal else WIDTH

    def chapter(self, title: str) -> None:
        self.console.print(f"\n[bold]{title}[/]")

    def step(self, work: Callable[[], T], text: str, doing: str = "working") -> T:
        """Does the work and prints `text`, in which {0} is its result."""
        with self.console.status(f"{doing} ..."):
            start = time.perf_counter()
            result = work()
            seconds = time.perf_counter() - start
        shown = f"{seconds * 1e3:,.1f} ms" if seconds < 1 else f"{seconds:,.2f} s"
        room = self.console.width - 15
        first, *others = textwrap.wrap(text.format(result), room)
        self.console.print(f" [green]✓[/] {first:<{room}} [cyan]{shown:>10}[/]")
        for line in others:
            self.console.print(f"   {line}")
        return result

    def say(self, text: str) -> None:
        self.console.print(f"   {text}")


def best_of(work: Callable[[], object], times: int = 5) -> float:
    """The shortest of several runs, in milliseconds."""
    marks = [time.perf_counter()]
    for _ in range(times):
        work()
        marks.append(time.perf_counter())
    return min(b - a for a, b in itertools.pairwise(marks)) * 1e3


def pipeline(show: Teller) -> None:
    show.chapter("An image pipeline: grayscale, brightness and blur are kernels in kernels/images.py")
    source = str(KERNELS / "images.py")
    image = np.asarray(Image.open(DATA / "coffee.png"))
    model = show.step(
        lambda: image_pipeline.load_pipeline(source),
        "Four custom and two built-in ops became one native function (this loads the compiler)",
        "compiling",
    )
    show.step(
        lambda: image_pipeline.load_pipeline(source), "Loading it a second time finds the machine code in the cache"
    )
    result = show.step(lambda: model(image)[0].to_numpy(), f"The first call, on a photo of {size_of(image)} pixels")
    fast = best_of(lambda: model(image))
    start = time.perf_counter()
    expected = image_pipeline.reference(image)
    slow = (time.perf_counter() - start) * 1e3
    show.step(
        lambda: compare(result, expected),
        f"The result {{0}}; later calls take {fast:.1f} ms, NumPy {slow:.0f} ms",
    )
    before, after = show.step(lambda: image_pipeline.save(image, result), "The pictures are written")
    show.say(f"before: [bold]{before}[/]   after: [bold]{after}[/]")


def fractal(show: Teller) -> None:
    show.chapter("The Mandelbrot set: kernels/mandelbrot.py counts and paints")
    source = str(KERNELS / "mandelbrot.py")
    model = show.step(lambda: mandelbrot.load_mandelbrot(source), "Two kernels became one native function", "compiling")
    steps, picture = show.step(
        lambda: [buffer.to_numpy() for buffer in model()],
        f"{mandelbrot.HEIGHT * mandelbrot.WIDTH:,} points, at most {mandelbrot.LIMIT} steps each, on all cores",
    )
    expected = show.step(mandelbrot.reference, "The same steps in NumPy", "computing in NumPy")
    show.step(lambda: compare(steps, expected), "The result {0}")
    path = output_folder() / "mandelbrot.png"
    show.step(lambda: Image.fromarray(picture).save(path), "The picture is written")
    show.say(f"picture: [bold]{path}[/]")


def size_of(image: np.ndarray) -> str:
    return f"{image.shape[1]} x {image.shape[0]}"


def load_op(package: str, name: str) -> Model:
    """One op on pictures as a graph of its own."""
    graph = Graph(
        name,
        forward=lambda image: ops.custom(name, device=DeviceRef.CPU(), values=[image])[0],
        input_types=[TensorType(DType.uint8, ["height", "width", 3], DeviceRef.CPU())],
        custom_extensions=[package],
    )
    return InferenceSession().load(graph)


def packages(show: Teller, folder: Path) -> None:
    show.chapter("The same kernels for other machines, in a package")
    sources, package = folder / "kernels", output_folder() / "demo.pkg"
    sources.mkdir()
    for file in ("images.py", "mandelbrot.py"):
        shutil.copy(KERNELS / file, sources)
    built = show.step(
        lambda: build_package(source=str(sources), output=str(package), targets=list(TARGETS)),
        f"Every kernel was compiled for {len(TARGETS)} targets; that takes no GPU and no tool of a vendor",
        "compiling",
    )
    shutil.rmtree(sources)
    image = np.asarray(Image.open(DATA / "coffee.png"))
    model = show.step(
        lambda: image_pipeline.load_pipeline(str(package)),
        "The pipeline was loaded from the package; the Python sources are gone",
    )
    show.step(lambda: compare(model(image)[0].to_numpy(), image_pipeline.reference(image)), "Its result {0}")
    os.environ["EINKORN_NO_JIT"] = "1"
    show.step(
        lambda: load_op(str(package), "grayscale")(image),
        "With compiling forbidden, 'grayscale' by itself runs the machine code of the package",
    )
    show.say(f"package: [bold]{package}[/] ({package.stat().st_size:,} bytes)")
    table = Table(box=None, padding=(0, 2, 0, 0), pad_edge=False)
    table.add_column("kernel")
    names = list(dict.fromkeys(variant.target for variant in built.variants))
    names.sort(key=lambda name: list(TARGETS).index(name) if name in TARGETS else -1)
    for name in names:
        table.add_column(f"{TARGETS.get(name, 'CPU')}\n{name}", justify="right")
    for op in built.ops:
        sizes = {}
        for variant in built.variants:
            if variant.op == op.schema.name and dict(variant.instance.ranks).get("s", 2) == 2:
                sizes[variant.target] = f"{len(built.code(variant)):,}"
        table.add_row(op.schema.name, *(sizes[name] for name in names))
    show.chapter("Bytes of code, by kernel and target")
    show.console.print(table)


def simulated_gpu(show: Teller) -> None:
    show.chapter("A GPU that is simulated: two kernels of examples/gpu/kernels/transpose.py, with checks")
    gpu, device = DeviceRef.GPU(), Accelerator("sim", checks="all")
    matrix = np.arange(96 * 160, dtype=np.float32).reshape(96, 160)
    given = Buffer.from_numpy(matrix).to(device)
    types = [TensorType(DType.float32, shape, gpu) for shape in (matrix.shape, matrix.T.shape)]
    for algorithm in ("naive", "tiled"):
        graph = Graph(
            algorithm,
            lambda x, way=algorithm: ops.custom("gpu::transpose", gpu, [x], types[1:], parameters={"algorithm": way}),
            types[:1],
            custom_extensions=[KERNELS.parents[1] / "gpu" / "kernels" / "transpose.py"],
        )
        model = InferenceSession(devices=[device]).load(graph)
        show.step(
            lambda: compare(model(given)[0].to_numpy(), np.ascontiguousarray(matrix.T)),  # noqa: B023  # called at once
            f"'{algorithm}': no race and no access outside; the result {{0}}",
        )
        counts = show.step(lambda: model.count_memory(given), "What it does with memory is counted")  # noqa: B023
        moved, least, conflicts = (sum(getattr(line, name) for line in counts.lines) for name in COUNTED)
        show.say(f"{moved:,} sectors of 32 bytes moved, {least:,} at least; {conflicts:,} conflicts of banks")
        path = output_folder() / f"transpose-{algorithm}.html"
        counts.save(path)
        show.say(f"picture: [bold]{path}[/]")


def main() -> None:
    show = Teller()
    with tempfile.TemporaryDirectory() as folder:
        os.environ["EINKORN_CACHE_DIR"] = str(Path(folder, "cache"))
        show.console.print("[bold]Einkorn[/]: kernels written in Python, compiled, fused into graphs, and packed")
        start = time.perf_counter()
        pipeline(show)
        fractal(show)
        packages(show, Path(folder))
        del os.environ["EINKORN_NO_JIT"]
        simulated_gpu(show)
        show.console.print(f"\nAll of this took {time.perf_counter() - start:.1f} s. To look inside:")
        show.console.print("  einkorn pkg info output/demo.pkg")
        show.console.print(
            "  einkorn inspect examples/custom_ops/kernels/images.py --op blur --target sm_90a --stage asm"
        )


if __name__ == "__main__":
    main()
