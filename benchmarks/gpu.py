"""Times on a GPU: copies, what a call costs, ops as a share of the copy's bandwidth, products next to cuBLAS and
Triton.

    python benchmarks/gpu.py                             # all sections, in less than ten minutes
    python benchmarks/gpu.py --only launch products
    python benchmarks/gpu.py --json result.json --markdown result.md

One script without a network. Each figure is the median of samples between two events of the device, with the tenth and
the ninetieth percentile next to it; what calls cost on the host is wall time without waiting for the device. PyTorch
(cuBLAS) and Triton are timed where they are installed. Where there is no GPU it prints "not run", and why.
"""

from __future__ import annotations

import argparse
import importlib.metadata
import json
import platform
import statistics
import sys
import time
from collections.abc import Callable, Iterator, Sequence
from dataclasses import asdict, dataclass
from pathlib import Path
from typing import Any

import numpy as np

from einkorn import __version__
from einkorn.errors import EinkornError
from einkorn.graph import Accelerator, Buffer, DeviceRef, DType, Graph, InferenceSession, TensorType, ops
from einkorn.graph.ops.operands import KINDS
from einkorn.graph.ops.stage import OPS, BuiltinOp

GPU = DeviceRef.GPU()
PACKAGES = ("numpy", "llvmlite", "torch-mlir", "cuda-bindings", "hip-python", "torch", "triton")


@dataclass
class GpuRow:
    """A figure: milliseconds, their spread, and what they mean in `unit`; or why there is none."""

    section: str
    name: str
    size: str
    median: float = 0.0
    low: float = 0.0
    high: float = 0.0
    figure: float = 0.0
    unit: str = ""
    failed: str = ""


class Bench:
    """What the sections share: the device, its sizes, and when to stop."""

    def __init__(self, small: bool, seconds: float) -> None:
        self.gpu = Accelerator(0)
        self.session = InferenceSession([self.gpu])
        self.driver: Any = self.gpu.driver
        self.stream = self.gpu.default_stream.handle
        self.small = small
        self.end = time.monotonic() + seconds
        self.rounds = 3 if small else 25
        self._buffers: dict[tuple[tuple[int, ...], DType], Buffer] = {}
        self.copy_bandwidth = 0.0  # bytes a second within the device: read and written

    @property
    def is_late(self) -> bool:
        return time.monotonic() > self.end

    def elements(self) -> int:
        """Of the large arrays: 256 MiB of float32, far more than a cache."""
        return 1 << (8 if self.small else 26)

    def milliseconds(self, call: Callable[[], object], inner: int = 5) -> list[float]:
        """A call between two events, several times over, after some that do not count."""
        library = self.driver.library
        with self.driver:  # the GPU is the thread's
            for _ in range(2):
                call()
            first, second = library.create_event(True), library.create_event(True)
            samples = []
            for _ in range(self.rounds):
                library.record(first, self.stream)
                for _ in range(inner):
                    call()
                library.record(second, self.stream)
                self.gpu.synchronize()
                samples.append(library.elapsed(first, second) / inner)
            library.destroy_event(first)
            library.destroy_event(second)
        return samples

    def model(self, forward: Callable[..., Any], *types: TensorType) -> Any:
        return self.session.load(Graph("benchmark", forward=forward, input_types=types))

    def buffer(self, shape: Sequence[int], dtype: DType = DType.float32) -> Buffer:
        """Numbers from 0.5 to 2, in which every function has a value; they do not matter to the time."""
        key = (tuple(shape), dtype)
        if key not in self._buffers:
            self._buffers[key] = self._made(tuple(shape), dtype)
        return self._buffers[key]

    def _made(self, shape: tuple[int, ...], dtype: DType) -> Buffer:
        size = int(np.prod(shape))
        if dtype.is_float():
            array = np.resize(np.linspace(0.5, 2, 4096, dtype=np.float32), size).astype(dtype.to_numpy())
        else:
            array = np.resize(np.arange(1, 97), size).astype(dtype.to_numpy())
        return Buffer.from_numpy(array.reshape(shape)).to(GPU)


def spread(samples: Sequence[float]) -> tuple[float, float, float]:
    """Median, tenth and ninetieth percentile."""
    low, high = (float(np.percentile(samples, share)) for share in (10, 90))
    return statistics.median(samples), low, high


def row(section: str, name: str, size: str, samples: Sequence[float], figure: float = 0.0, unit: str = "") -> GpuRow:
    return GpuRow(section, name, size, *spread(samples), figure, unit)


def gigabytes(size: float, milliseconds: float) -> float:
    return size / max(milliseconds, 1e-9) / 1e6


# *** sections ***


def copies(bench: Bench) -> Iterator[GpuRow]:
    """Copies to, from and within the device."""
    size = 4 * bench.elements()
    there, other = (Buffer(DType.uint8, (size,), GPU) for _ in range(2))
    pageable = Buffer.from_numpy(np.zeros(size, np.uint8))
    pinned = Buffer(DType.uint8, (size,), bench.gpu, pinned=True)
    text = f"{size >> 20} MiB"
    cases = (
        ("within the device", other, there, 2),
        ("to the device, pinned", there, pinned, 1),
        ("to the device", there, pageable, 1),
        ("to the host, pinned", pinned, there, 1),
        ("to the host", pageable, there, 1),
    )
    for name, to, source, times in cases:
        samples = bench.milliseconds(lambda to=to, source=source: to.inplace_copy_from(source), 3)  # type: ignore[misc]
        rate = gigabytes(times * size, statistics.median(samples))
        if times == 2:
            bench.copy_bandwidth = rate
        yield row("copies", name, text, samples, rate, "GB/s")


def launch(bench: Bench) -> Iterator[GpuRow]:
    """What a call costs the host, when it only enqueues."""

    def chain(count: int) -> Callable[[Any], Any]:
        def forward(x: Any) -> Any:
            for _ in range(count):
                x = ops.softmax(x)  # which is not an epilogue of another
            return x

        return forward

    x = bench.buffer((2, 64))
    calls, medians = 5 if bench.small else 1000, {}
    for count in (1, 10):
        model = bench.model(chain(count), TensorType(DType.float32, [2, 64], GPU))
        model.capture(1, x)
        for name, call in (("execute", lambda m=model: m.execute(x)), ("replay", lambda m=model: m.replay(1, x))):
            samples = host_times(bench, call, calls)
            medians[name, count] = statistics.median(samples)
            yield row("launch", f"{name}, {count} ops", "2 x 64", samples, 1000 * medians[name, count], "us a call")
    for name in ("execute", "replay"):
        more = (medians[name, 10] - medians[name, 1]) / 9
        yield GpuRow("launch", f"{name}, one op more", "2 x 64", more, more, more, 1000 * more, "us an op")


def host_times(bench: Bench, call: Callable[[], object], calls: int) -> list[float]:
    """Milliseconds of a call on the host; the device is waited for between the samples."""
    samples = []
    for _ in range(bench.rounds + 2):
        start = time.perf_counter()
        for _ in range(calls):
            call()
        samples.append(1000 * (time.perf_counter() - start) / calls)
        bench.gpu.synchronize()
    return samples[2:]


def elementwise(bench: Bench) -> Iterator[GpuRow]:
    """Every elementwise op over large arrays, as a share of the copy."""
    yield from rows_of_table(bench, "elementwise", ("elementwise",), [(bench.elements(),)])


def rows_of_ops(bench: Bench) -> Iterator[GpuRow]:
    """Every reduction and every op along an axis: of many short rows, and of a few long ones."""
    shapes = [(4, 64)] if bench.small else [(16384, 4096), (64, 1 << 20)]
    yield from rows_of_table(bench, "rows", ("reduction", "along"), shapes)
    for name in ("layer_norm", "rms_norm"):
        for shape in shapes:
            weights = [bench.buffer((shape[-1],)) for _ in range(2 if name == "layer_norm" else 1)]
            types = [TensorType(DType.float32, one, GPU) for one in (shape, *([(shape[-1],)] * len(weights)))]

            def forward(x: Any, *rest: Any, name: str = name) -> Any:
                return (
                    ops.layer_norm(x, *rest, epsilon=1e-5) if name == "layer_norm" else ops.rms_norm(x, *rest, eps=1e-5)
                )

            yield timed_op(bench, "rows", name, forward, types, [bench.buffer(shape), *weights])


def rows_of_table(bench: Bench, section: str, forms: Sequence[str], shapes: Sequence[Any]) -> Iterator[GpuRow]:
    for op in OPS.values():
        if op.form in forms:
            for shape in shapes:
                types = [TensorType(dtype_for(kind), shape, GPU) for kind in op.operands.values()]
                inputs = [bench.buffer(shape, type.dtype) for type in types]
                yield timed_op(bench, section, op.name, called(op), types, inputs)


def called(op: BuiltinOp) -> Callable[..., Any]:
    return lambda *values: op.function(*values)


def dtype_for(kind: str) -> DType:
    dtypes = KINDS[kind].dtypes
    return DType.float32 if DType.float32 in dtypes else DType.int32 if DType.int32 in dtypes else dtypes[0]


def timed_op(bench: Bench, section: str, name: str, forward: Any, types: Sequence[TensorType], inputs: Any) -> GpuRow:
    """An op by the bytes that it has to read and write."""
    size = " x ".join(str(dim) for dim in types[0].shape)
    if bench.is_late:
        return GpuRow(section, name, size, failed="not run: the time is up")
    try:
        model = bench.model(forward, *types)
        results = model(*inputs)
        moved = sum(buffer.size_in_bytes for buffer in (*inputs, *results))
        samples = bench.milliseconds(lambda: model(*inputs))
    except EinkornError as error:
        return GpuRow(section, name, size, failed=f"{error.code}: {error.message}")
    rate = gigabytes(moved, statistics.median(samples))
    share = 100 * rate / bench.copy_bandwidth if bench.copy_bandwidth else 0.0
    return row(section, name, size, samples, share, "% of the copy")


def products(bench: Bench) -> Iterator[GpuRow]:
    """Products of square matrices, next to those of cuBLAS and Triton."""
    sizes = (32,) if bench.small else (512, 1024, 2048, 4096)
    for dtype in (DType.float32, DType.float16, DType.bfloat16):
        for n in sizes:
            size, flops = f"{n} x {n} {dtype.name}", 2 * n**3
            if bench.is_late:
                yield GpuRow("products", "einkorn", size, failed="not run: the time is up")
                continue
            a, b = bench.buffer((n, n), dtype), bench.buffer((n, n), dtype)
            contenders: list[tuple[str, Callable[[], Callable[[], object]]]] = [
                ("einkorn", lambda a=a, b=b, n=n, t=dtype: einkorn_product(bench, a, b, n, t)),
                ("cuBLAS by PyTorch", lambda a=a, b=b: torch_product(bench, a, b)),
                ("Triton", lambda a=a, b=b, n=n: triton_product(bench, a, b, n)),
            ]
            for name, make in contenders:
                try:
                    samples = bench.milliseconds(make())
                except ImportError as error:
                    yield GpuRow("products", name, size, failed=f"not run: {error}")
                except Exception as error:  # whatever a peer raises
                    yield GpuRow("products", name, size, failed=f"{type(error).__name__}: {str(error)[:200]}")
                else:
                    rate = flops / max(statistics.median(samples), 1e-9) / 1e9
                    yield row("products", name, size, samples, rate, "TFLOP/s")


def einkorn_product(bench: Bench, a: Buffer, b: Buffer, n: int, dtype: DType) -> Callable[[], object]:
    model = bench.model(ops.matmul, *[TensorType(dtype, [n, n], GPU)] * 2)
    return lambda: model(a, b)


def torch_product(bench: Bench, a: Buffer, b: Buffer) -> Callable[[], object]:
    """On our stream, with numbers of the same dtype; TF32 stays off, as PyTorch has it."""
    import torch

    x, y = torch.from_dlpack(a), torch.from_dlpack(b)
    out = torch.empty_like(x)
    stream = torch.cuda.ExternalStream(bench.stream)

    def call() -> None:
        with torch.cuda.stream(stream):
            torch.matmul(x, y, out=out)

    return call


def triton_product(bench: Bench, a: Buffer, b: Buffer, n: int) -> Callable[[], object]:
    """A plain tiled product: 64 by 64 elements a block, 32 at a time."""
    global tl
    import torch
    import triton
    import triton.language as tl  # type: ignore[no-redef]

    @triton.jit  # type: ignore[untyped-decorator]
    def product(a, b, out, n, TILE: tl.constexpr, STEP: tl.constexpr):  # type: ignore[no-untyped-def,name-defined]
        rows = tl.program_id(0) * TILE + tl.arange(0, TILE)
        columns = tl.program_id(1) * TILE + tl.arange(0, TILE)
        total = tl.zeros((TILE, TILE), tl.float32)
        for start in range(0, n, STEP):
            inner = start + tl.arange(0, STEP)
            left = tl.load(a + rows[:, None] * n + inner[None, :])
            right = tl.load(b + inner[:, None] * n + columns[None, :])
            total = tl.dot(left, right, total, input_precision="ieee")
        tl.store(out + rows[:, None] * n + columns[None, :], total.to(out.dtype.element_ty))

    x, y = torch.from_dlpack(a), torch.from_dlpack(b)
    out = torch.empty_like(x)
    stream = torch.cuda.ExternalStream(bench.stream)

    def call() -> None:
        with torch.cuda.stream(stream):
            product[(n // 64, n // 64)](x, y, out, n, TILE=64, STEP=32)

    return call


tl: Any = None
SECTIONS: dict[str, Callable[[Bench], Iterator[GpuRow]]] = {
    "copies": copies,
    "launch": launch,
    "products": products,
    "rows": rows_of_ops,
    "elementwise": elementwise,
}


# *** what is written ***


def versions() -> dict[str, str]:
    versions_by_name = {"einkorn": __version__, "python": platform.python_version()}
    for name in PACKAGES:
        try:
            versions_by_name[name] = importlib.metadata.version(name)
        except importlib.metadata.PackageNotFoundError:
            continue
    return versions_by_name


def markdown(about: dict[str, Any], rows: Sequence[GpuRow]) -> str:
    device = about["device"]
    named = ", ".join(f"{name} {version}" for name, version in about["versions"].items())
    lines = [f"{device['name']} ({device['architecture']}), driver of {device['driver']}; {named}", ""]
    for section in dict.fromkeys(each.section for each in rows):
        lines += [f"## {section}", "", "| what | size | ms | spread | figure |", "|---|---|---|---|---|"]
        for each in rows:
            if each.section == section:
                figure = each.failed or (f"{each.figure:.3g} {each.unit}" if each.unit else "")
                times = ("", "") if each.failed else (f"{each.median:.4g}", f"{each.low:.4g} to {each.high:.4g}")
                lines.append(f"| {each.name} | {each.size} | {times[0]} | {times[1]} | {figure} |")
        lines.append("")
    return "\n".join(lines)


def main(arguments: Sequence[str] | None = None) -> int:
    parser = argparse.ArgumentParser(description=__doc__.splitlines()[0] if __doc__ else "")
    parser.add_argument("--only", nargs="*", choices=list(SECTIONS), default=list(SECTIONS))
    parser.add_argument("--small", action="store_true", help="tiny sizes: for tests of this script")
    parser.add_argument("--seconds", type=float, default=540, help="when to begin no further measurement")
    parser.add_argument("--json", type=Path)
    parser.add_argument("--markdown", type=Path)
    chosen = parser.parse_args(arguments)
    try:
        bench = Bench(chosen.small, chosen.seconds)
    except EinkornError as error:
        print(f"not run: {error.message}" + (f"; {error.hint}" if error.hint else ""))
        return 0
    about = {"device": bench.gpu.stats, "versions": versions(), "date": time.strftime("%Y-%m-%d")}
    rows: list[GpuRow] = []
    sections = [name for name in SECTIONS if name in chosen.only]
    for name in sections:
        for each in SECTIONS[name](bench):
            rows.append(each)
            print(f"{each.section:12} {each.name:24} {each.size:24} {each.median:10.4f} ms  ", end="", file=sys.stderr)
            print(each.failed or f"{each.figure:.3g} {each.unit}", file=sys.stderr)
    text = markdown(about, rows)
    print(text)
    if chosen.json is not None:
        chosen.json.write_text(json.dumps({**about, "rows": [asdict(each) for each in rows]}, indent=1) + "\n")
    if chosen.markdown is not None:
        chosen.markdown.write_text(text)
    return 0


if __name__ == "__main__":
    sys.exit(main())
