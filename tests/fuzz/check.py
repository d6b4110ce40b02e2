"""One program three ways: interpreted, compiled without optimisation, compiled with all of it. All bits have to agree.

As a program, it is the child of a fuzzing campaign: one request a line on standard input, one answer a line on standard
output, both JSON. LLVM may abort it, or never come back; the parent notices.
"""

from __future__ import annotations

import ctypes
import json
import os
import sys
import tempfile
import traceback
from collections.abc import Sequence
from pathlib import Path
from typing import Any

import numpy as np

from einkorn.compiler.interpret import Interpreted
from einkorn.compiler.pipeline import compile_entry
from einkorn.compiler.targets import lookup
from einkorn.dsl import DType, abi
from einkorn.dsl.errors import CompileError, InternalError
from einkorn.dsl.library import load_library

sys.path[:0] = [str(Path(__file__).parent), str(Path(__file__).parents[1])]

from programs import arrays_of  # noqa: E402
from support import harness  # noqa: E402

Array = np.ndarray[Any, Any]
LEVELS = (0, 3)


def outputs_of(file: Path, inputs: Sequence[Array], op: str = "k") -> dict[str, list[Array]]:
    """The outputs of op `k` of a file by each of the three ways."""
    types = [(DType.from_numpy(a.dtype), a.shape) for a in inputs]
    spec, results = harness.entry_of(file, op, types)
    target = lookup("host")

    def blank() -> list[Array]:
        out = [np.zeros(shape, dtype.to_numpy()) for dtype, shape in results]
        for array in out:
            array.reshape(-1).view(np.uint8)[:] = 0xA5
        return out

    found = {"interpreted": blank()}
    Interpreted(spec, target).run([*inputs, *found["interpreted"]], [], lambda site, values: None)
    for level in LEVELS:
        code = compile_entry(spec, target, level=level).code
        with tempfile.NamedTemporaryFile(suffix=".so") as shared:
            shared.write(code)
            shared.flush()
            entry = ctypes.CDLL(shared.name)[abi.ENTRY]
        found[f"-O{level}"] = out = blank()
        pointers = (ctypes.c_void_p * (len(inputs) + len(out)))(*(a.ctypes.data for a in (*inputs, *out)))
        context = abi.Context()
        context.threads = 1
        entry(ctypes.byref(context), pointers, (ctypes.c_int64 * 1)())
    return found


def difference(found: dict[str, list[Array]]) -> str | None:
    """How the ways differ, or None."""
    (first, wanted), *others = found.items()
    for way, got in others:
        for number, (a, b) in enumerate(zip(wanted, got, strict=True)):
            bits = f"u{a.dtype.itemsize}"
            wrong = a.view(bits) != b.view(bits)
            if a.dtype.kind not in "biu":
                with np.errstate(invalid="ignore"):
                    wrong &= ~(np.isnan(a) & np.isnan(b))
            if wrong.any():
                at = tuple(int(k[0]) for k in np.nonzero(wrong))
                return f"output {number} at {at}: {a[at]!r} {first}, {b[at]!r} with {way}"
    return None


def check(text: str, inputs: Sequence[tuple[str, Sequence[int]]], seed: int) -> tuple[str, str]:
    """What became of a program: "same", "differs", "refused" (by the compiler) or "fault", and more about it."""
    with tempfile.TemporaryDirectory() as folder:
        file = Path(folder) / "kernel.py"
        file.write_text(text)
        try:
            load_library(file)
            found = outputs_of(file, arrays_of(inputs, seed))
        except InternalError as error:
            return "fault", str(error)
        except CompileError as error:
            return "refused", str(error)
        except Exception:
            return "fault", traceback.format_exc()
        finally:
            harness._libraries.pop(file, None)
    wrong = difference(found)
    return ("same", "") if wrong is None else ("differs", wrong)


def main() -> None:
    answers = os.fdopen(os.dup(1), "w")
    os.dup2(2, 1)  # what kernels or LLVM print is no answer
    for line in sys.stdin:
        answers.write(json.dumps(check(**json.loads(line))) + "\n")
        answers.flush()


if __name__ == "__main__":
    main()
