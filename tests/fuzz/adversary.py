"""An adversary of the level "safe": random indices behind random guards, in memory with nothing around it.

A program is compiled once and called with several sizes and data. Inputs and results lie against pages that may not be
touched, at their start or at their end, with a pattern in the rest of theirs. Compiled code has to do what the
interpreter does: the same numbers, or the same failure; and it has to fail where checks of every single access do.

As a program, it is the child of a campaign, as `check.py` is.

See also `programs` (kernels of other kinds).
"""

from __future__ import annotations

import ctypes
import functools
import json
import mmap
import random
import sys
import tempfile
import traceback
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path
from typing import Any

import numpy as np
from answering import answer_lines

sys.path.insert(0, str(Path(__file__).parent))

import check
from programs import Program

from einkorn.compiler.interpreter import translate as interpret_flow
from einkorn.dsl.diagnostics.errors import CompileError, InternalError, KernelError
from einkorn.graph.calling import native_call as calls

Array = np.ndarray[Any, Any]
CALLS = 5  # of each program, with sizes and data of their own
PATTERN = 0xA5
PAGE = mmap.PAGESIZE
SEEN = ("EK0205", "EK0206", "EK0218", "EK0252")  # known at compile time: indices that are wrong, and data races
ONLY_ALL = ("EK0704", "EK0740")  # divisions by zero and data races, which only the level "all" looks for
SIZES = (0, 1, 2, 3, 5, 8, 9, 16, 17, 33, 40)
DATA = (0, 1, 2, 3, 5, 7, 8, 16, 31, -1, -2, -7, 100, 2**31, -(2**31), 2**62, -(2**62), 2**63 - 1, -(2**63))

_libc = ctypes.CDLL(None, use_errno=True)
_libc.mprotect.argtypes = (ctypes.c_void_p, ctypes.c_size_t, ctypes.c_int)


class Fenced:
    """Memory of an array between two pages that may not be touched, against one of them."""

    def __init__(self, shape: tuple[int, ...], dtype: Any, at_end: bool) -> None:
        size = int(np.prod(shape)) * np.dtype(dtype).itemsize
        inner = max(1, -(-size // PAGE)) * PAGE
        self.map = mmap.mmap(-1, inner + 2 * PAGE)
        whole = np.frombuffer(self.map, np.uint8)
        base = whole.ctypes.data
        for page in (base, base + PAGE + inner):
            if _libc.mprotect(page, PAGE, 0):
                raise OSError(ctypes.get_errno(), "mprotect")
        usable = whole[PAGE : PAGE + inner]
        usable[:] = PATTERN
        start = inner - size if at_end else 0
        self.array: Array = usable[start : start + size].view(dtype).reshape(shape)
        self.rest = (usable[:start], usable[start + size :])

    def is_whole(self) -> bool:
        """Whether nothing was written next to the array."""
        return all(bool((part == PATTERN).all()) for part in self.rest)


@contextmanager
def fenced_results(at_end: bool) -> Iterator[list[Fenced]]:
    """Results of calls lie in fenced memory."""
    made: list[Fenced] = []

    def empty(shape: tuple[int, ...], dtype: Any) -> Array:
        made.append(Fenced(tuple(shape), dtype, at_end))
        return made[-1].array

    with check.results_in(empty):
        yield made


def arrays_of(program: Program, seed: int, at_end: bool) -> tuple[list[Array], list[Fenced]]:
    """Inputs of sizes of their own: the dims of a program's inputs are numbers of sizes, not sizes."""
    rng = random.Random(seed)
    sizes = [rng.choice(SIZES[1:] if seed % 3 else SIZES) for number in range(9)]
    fences = []
    for dtype, shape, *_ in program.inputs:
        fence = Fenced(tuple(sizes[number] for number in shape), np.dtype(dtype), at_end)
        if dtype.startswith("int"):
            info = np.iinfo(dtype)
            small = rng.random() < 0.6
            chosen = [rng.choice(DATA[:7] if small else DATA) for _ in range(fence.array.size)]
            fence.array.flat[:] = [min(max(value, info.min), info.max) for value in chosen]
        else:
            fence.array.flat[:] = np.arange(1, fence.array.size + 1)
        fences.append(fence)
    return [fence.array for fence in fences], fences


def outcome(model: Any, arrays: list[Array], at_end: bool) -> Any:
    """The results of one call, or how it failed."""
    with fenced_results(at_end) as fences:
        try:
            result = [np.array(buffer.to_numpy()) for buffer in model(*arrays)]
        except KernelError as error:
            place = error.place.line if error.place is not None else 0
            return (error.code, place, error.tensor, error.axis, error.index, error.extent)
        finally:
            assert all(fence.is_whole() for fence in fences), "written outside a result"
    return result


def same(a: Any, b: Any) -> bool:
    if isinstance(a, tuple) or isinstance(b, tuple):
        return bool(type(a) is type(b) and a == b)
    return all(x.tobytes() == y.tobytes() for x, y in zip(a, b, strict=True))


def judged(program: Program) -> tuple[str, str]:
    """What became of a program; see `check.check`."""
    with tempfile.TemporaryDirectory() as folder:
        file = Path(folder) / "kernel.py"
        file.write_text(program.text)
        before = calls.thread_pool, interpret_flow.PARTS
        calls.thread_pool, interpret_flow.PARTS = (lambda *_: None), 1  # one thread: always the same failure
        try:
            return _judged(program, file)
        except InternalError as error:
            return "fault", str(error)
        except CompileError as error:
            return ("fails" if error.code in SEEN else "refused"), str(error)
        except Exception:
            return "fault", traceback.format_exc()
        finally:
            calls.thread_pool, interpret_flow.PARTS = before


def _judged(program: Program, file: Path) -> tuple[str, str]:
    ir = check.graph_of(program, file).ir
    models = {
        "compiled": check.Model(ir, functools.cache(lambda ir: check.compiled(ir, "safe", 3, True))),
        "interpreted": check.Model(ir, functools.cache(lambda ir: check.interpreted(ir, "safe"))),
        "every access": check.Model(ir, functools.cache(lambda ir: check.interpreted(ir, "all"))),
    }
    failures = 0
    for number in range(CALLS):
        at_end = bool((program.seed + number) % 2)
        arrays, fences = arrays_of(program, program.seed * CALLS + number, at_end)
        before = [array.tobytes() for array in arrays]
        result = {way: outcome(model, arrays, at_end) for way, model in models.items()}
        assert all(fence.is_whole() for fence in fences), "written outside an input"
        assert before == [array.tobytes() for array in arrays], "an input was written"
        mine, oracle, every = result.values()
        description = f"call {number}, sizes {[a.shape for a in arrays]}: {_shown(result)}"
        if isinstance(oracle, tuple) and oracle[0] not in ("EK0703", "EK0701"):
            return "differs", f"the interpreter saw an access that no check did: {description}"
        if not same(mine, oracle):
            return "differs", description
        only_all = isinstance(every, tuple) and every[0] in ONLY_ALL
        if not only_all and (
            isinstance(mine, tuple) != isinstance(every, tuple) or (isinstance(mine, list) and not same(mine, every))
        ):
            return "differs", description
        failures += isinstance(mine, tuple)
    return ("fails" if failures else "same"), str(failures)


def _shown(found: dict[str, Any]) -> str:
    return "; ".join(f"{way} {value if isinstance(value, tuple) else 'results'}" for way, value in found.items())


def main() -> None:
    answer_lines(lambda line: judged(Program(**json.loads(line))))


if __name__ == "__main__":
    main()
