"""Interprets one kernel of a file, without the checks that compiled code has: what is left is the interpreter's own."""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import replace
from pathlib import Path
from typing import Any

import numpy as np
import pytest

from einkorn.compiler.interpreter.entry import Interpreted
from einkorn.compiler.pipeline import typed_program
from einkorn.compiler.targets import lookup
from einkorn.dsl import DType

HERE = Path(__file__).parent


@pytest.fixture(scope="session")
def interpret(entry_of: Callable[..., Any]) -> Callable[..., list[np.ndarray[Any, Any]]]:
    """`interpret(file, op, *arrays, target="host", seed=None, **parameters)`: the outputs."""

    def run(file: str, op: str, *arrays: Any, target: str = "host", seed: int | None = None, **parameters: Any) -> Any:
        types = [(DType.from_numpy(a.dtype), a.shape) for a in arrays]
        spec, outputs = entry_of(HERE / file, op, types, parameters)
        results = [np.zeros(shape, dtype.to_numpy()) for dtype, shape in outputs]
        spec = replace(spec, checks="off")
        program = typed_program(spec, lookup(target))
        Interpreted(program, spec).run([*arrays, *results], [], lambda site, values: None, seed=seed)
        return results

    return run
