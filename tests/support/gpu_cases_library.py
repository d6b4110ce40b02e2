"""Kernels of the standard library as GPU test kernels: products, softmax, norms."""

from __future__ import annotations

import importlib
from collections.abc import Callable
from functools import partial
from pathlib import Path
from typing import Any

import numpy as np
from support import harness
from support.gpu_case import Array, GpuCase, numbers

from einkorn.dsl.package.library import LoadedLibrary, library_of

F32 = np.float32


def builtin(
    family: str,
    op: str,
    *shapes: tuple[int, ...],
    dtype: Any = F32,
    bound: float = 0.0,
    small: tuple[tuple[int, ...], ...] = (),
    **params: Any,
) -> GpuCase:
    """A shipped kernel on inputs of these shapes, of `small` ones for the interpreter; its reference gives results."""
    module = importlib.import_module(f"einkorn.stdlib.kernels.{family}")
    file = Path(str(module.__file__))
    library = harness._libraries.setdefault(file, library_of(module))

    def inputs(shapes: tuple[tuple[int, ...], ...]) -> tuple[Array, ...]:
        return tuple(numbers(dtype, *shape, seed=k) for k, shape in enumerate(shapes))

    sizes = "-".join("x".join(map(str, shape)) for shape in shapes)
    parameters = ",".join(f"{name}={value}" for name, value in params.items())
    reference = _reference(library, op)
    name = f"{op}[{np.dtype(dtype).name}-{sizes}{'-' if parameters else ''}{parameters}]"
    return GpuCase(
        name,
        str(file),
        op,
        partial(inputs, shapes),
        lambda *arrays: reference(*arrays, **params),
        params,
        bound=bound,
        small=partial(inputs, small) if small else None,
    )


def _reference(library: LoadedLibrary, op: str) -> Callable[..., Any]:
    result = library.kernels[op].reference
    if result is not None:
        return result
    turned = op.endswith("transposed")
    return lambda a, b: (a.astype(np.float64) @ (b.swapaxes(-1, -2) if turned else b)).astype(a.dtype)


CASES = (
    builtin("matmul", "matmul", (70, 33), (33, 66), small=((3, 17), (17, 66))),
    builtin("matmul", "matmul", (2, 3, 40), (40, 20)),
    builtin("matmul", "matmul_transposed", (17, 20), (19, 20), dtype=np.float16),
    builtin("matmul", "matmul_transposed", (3, 40), (20, 40)),
    builtin("matmul", "batch_matmul", (2, 20, 9), (2, 9, 18), dtype=np.int32),
    builtin("reduction", "softmax", (9, 77), bound=1e-6, axis=1),
    builtin("reduction", "softmax", (2, 1500), bound=1e-6, small=((1, 1100),), axis=1),
    builtin("reduction", "logsoftmax", (2, 30, 5), bound=1e-6, axis=1),
    builtin(
        "attention",
        "attention",
        *((2, 4, 9, 20), (2, 2, 40, 20), (2, 2, 40, 33)),
        bound=1e-6,
        small=((1, 2, 5, 20), (1, 1, 20, 20), (1, 1, 20, 33)),
        causal=True,
        window=0,
        scale=0.25,
    ),
    builtin("norms", "layer_norm", (3, 1100), (1100,), (1100,), bound=1e-6, epsilon=1e-5),
)
