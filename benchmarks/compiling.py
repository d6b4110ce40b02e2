"""How long a compilation takes, from the kernel's text to code that can be loaded, without imports and without a cache.

As a program it measures in its own process and prints JSON: the compiler and its libraries are loaded and warm by then.
Numba compiles the same loops next to it, where it is installed.

See also `loading` (starts of a process).
"""

from __future__ import annotations

import json
import math
import statistics
import subprocess
import sys
import time
from collections.abc import Callable
from pathlib import Path
from typing import Any

HERE = Path(__file__).resolve().parent
EXAMPLES = HERE.parent / "examples" / "custom_ops" / "kernels"
KERNELS = {
    "50 lines: bilateral": (HERE / "kernels" / "bilateral.py", "bilateral"),
    "add_one": (EXAMPLES / "addition.py", "add_one"),
    "histogram": (EXAMPLES / "histogram.py", "histogram"),
    "mandelbrot": (EXAMPLES / "mandelbrot.py", "mandelbrot"),
    "matrix product": (EXAMPLES / "matrix_multiplication.py", "matrix_multiplication"),
}
STAGES = ("parse", "typed", "mlir", "llvm", "asm", "link", "total")


def measure_compilations(rounds: int, peers: list[str]) -> list[dict[str, Any]]:
    """One row for each kernel: medians in seconds of processor time, by stage."""
    command = [sys.executable, __file__, str(rounds), *peers]
    done = subprocess.run(command, capture_output=True, text=True, check=True)
    rows: list[dict[str, Any]] = json.loads(done.stdout.splitlines()[-1])
    return rows


def _compile(path: Path, op: str) -> dict[str, float]:
    from einkorn.compiler.pipeline import compile_entry
    from einkorn.compiler.targets import host
    from einkorn.dsl.contract.unit import op_entry
    from einkorn.dsl.package.library import load_library
    from einkorn.dsl.signature.parameters import bind_parameters

    kernel = load_library(path).kernels[op]
    start = time.process_time()
    portable = kernel.portable
    parsed = time.process_time()
    schema = kernel.schema
    dtypes = {name: allowed[0] for name, allowed in schema.typevars}
    spec = op_entry(portable, dtypes, {"s": 2}, bind_parameters(schema, {}))
    artifact = compile_entry(spec, host())
    return {"parse": parsed - start, **artifact.timings, "total": time.process_time() - start}


def _numba() -> Callable[[], float]:
    """A function that compiles the same filter with Numba and says how long it took."""
    import numba
    import numpy as np

    def clamped(i: int, n: int) -> int:
        return max(0, min(i, n - 1))

    def tone(x: float, gain: float, shoulder: float) -> float:
        lifted = x * gain
        if lifted < 0:
            return 0.0
        if lifted > shoulder:
            over = lifted - shoulder
            lifted = shoulder + over / (1 + over)
        return math.sqrt(lifted)

    def filtered(out: Any, image: Any, radius: int, spread: float, gain: float) -> None:
        height, width, _ = image.shape
        for y in numba.prange(height):
            for x in range(width):
                for channel in range(3):
                    centre = 0.2126 * image[y, x, 0] + 0.7152 * image[y, x, 1] + 0.0722 * image[y, x, 2]
                    total, weights = 0.0, 0.0
                    for dy in range(-radius, radius + 1):
                        for dx in range(-radius, radius + 1):
                            row, column = clamped(y + dy, height), clamped(x + dx, width)
                            r, g, b = image[row, column, 0], image[row, column, 1], image[row, column, 2]
                            difference = (0.2126 * r + 0.7152 * g + 0.0722 * b - centre) / spread
                            if dy * dy + dx * dx > radius * radius:
                                continue
                            weight = math.exp(-0.5 * difference * difference)
                            total += weight * image[row, column, channel]
                            weights += weight
                    out[y, x, channel] = tone(total / weights, gain, 0.8)

    def measure() -> float:
        nonlocal clamped, tone
        start = time.process_time()
        clamped, tone = (numba.njit(getattr(f, "py_func", f)) for f in (clamped, tone))
        image = np.ones((4, 4, 3), np.float32)
        numba.njit(parallel=True)(filtered)(np.empty_like(image), image, 2, 0.1, 1.5)
        return time.process_time() - start

    return measure


def main() -> None:
    rounds, peers = int(sys.argv[1]), sys.argv[2:]
    samples: dict[str, list[dict[str, float]]] = {title: [] for title in KERNELS}
    theirs: list[float] = []
    numba = _numba() if "numba" in peers else None
    for number in range(-1, rounds):  # the round before the first loads MLIR, LLVM and the standard library
        for title, (path, op) in KERNELS.items():
            taken = _compile(path, op)
            if number >= 0:
                samples[title].append(taken)
        if numba is not None:
            other = numba()
            theirs += [other] * (number >= 0)
    rows = [
        {"section": "compile", "title": title}
        | {"median": {stage: statistics.median(one[stage] for one in taken) for stage in STAGES}}
        for title, taken in samples.items()
    ]
    if theirs:
        rows[0]["numba"] = statistics.median(theirs)
    print(json.dumps(rows))


if __name__ == "__main__":
    main()
