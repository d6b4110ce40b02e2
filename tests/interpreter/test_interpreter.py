"""The interpreter: it covers what the emitter covers, sees what compiled code does not, and serves whole graphs.

That its results are those of compiled code is tested wherever kernels run: `tests/language` compares every call.
"""

from __future__ import annotations

import itertools
import re
import traceback
from collections.abc import Callable
from pathlib import Path
from typing import Any

import numpy as np
import pytest
from support import graphs

from einkorn.compiler.interpreter import machine as interpret_ops
from einkorn.compiler.interpreter import rows as interpret_rows
from einkorn.compiler.interpreter import translate as interpret_flow
from einkorn.compiler.ir.opcodes import IRREGULAR
from einkorn.compiler.ir.operations import LIBRARY, ROWS
from einkorn.compiler.lowering.writer import EMITTERS
from einkorn.dsl.diagnostics.errors import KernelError
from einkorn.graph import InferenceSession, ops

Interpret = Callable[..., list[np.ndarray[Any, Any]]]
WRONG = "wrong_kernels.py"
x = np.arange(6, dtype=np.float32)


def line_of(text: str) -> int:
    """The line of the kernels' file that holds a text."""
    lines = (Path(__file__).parent / WRONG).read_text().split("\n")
    return next(number for number, line in enumerate(lines, 1) if text in line)


def test_table_interpreter_and_emitter_know_the_same_operations() -> None:
    interpreted = {*interpret_ops.EVALUATORS, *interpret_flow.STRUCTURED, *interpret_flow.ENDS}
    assert interpreted | {"enqueue"} == set(EMITTERS) - set(ROWS) == set(IRREGULAR)  # which is of the host's half
    assert not set(interpret_ops.EVALUATORS) & set(interpret_flow.STRUCTURED)
    on_floats = {name for name, row in ROWS.items() if row.mlir.get("float", LIBRARY) != LIBRARY}
    assert set(interpret_rows.FLOATS) == on_floats
    assert set(interpret_rows.INTEGERS) <= set(ROWS)


def test_rows_fold_as_they_are_interpreted() -> None:
    """On numbers that float64 holds, what is known at compile time is what comes out at run time."""
    values = [0.0, -0.0, 1.5, -2.5, 1e200, -1e200, 5e-324, np.inf, -np.inf, np.nan]
    wrong = []
    with np.errstate(all="ignore"):
        for name, function in interpret_rows.FLOATS.items():
            for operands in itertools.product(values, repeat=ROWS[name].arity):
                try:
                    folded = ROWS[name].fold(*operands)
                except (ArithmeticError, ValueError):  # an error at compile time
                    continue
                stepped = function(*map(np.float64, operands))
                same = str(folded) == str(stepped.item()) or (folded != folded and stepped != stepped)
                if not same and not isinstance(folded, complex):
                    wrong.append((name, operands, folded, stepped))
    assert not wrong


def failure(run: Interpret, op: str, *arrays: Any, **options: Any) -> KernelError:
    with pytest.raises(KernelError) as caught:
        run(WRONG, op, *arrays, **options)
    return caught.value


def test_access_outside(interpret: Interpret) -> None:
    error = failure(interpret, "reads_outside", x)
    assert error.message == "op 'reads_outside' reads outside of 'x': element 6 of 6"
    assert (error.code, error.op, error.argument, error.got) == ("EK0720", "reads_outside", "x", "6")
    assert error.place is not None and error.place.line == line_of("return x[i + by]")
    assert any(re.search(rf":{line_of('shifted(x, i[0], by)')}:", note) for note in error.notes)
    assert failure(interpret, "reads_outside", x, by=-2).got == "-2"
    assert "writes outside of 'out': element 6 of 6" in failure(interpret, "writes_outside", x).message
    assert failure(interpret, "wide_outside", x).got == "4 to 7"
    interpret(WRONG, "wide_outside", np.arange(8, dtype=np.float32))


def test_reads_of_what_nothing_wrote(interpret: Interpret) -> None:
    error = failure(interpret, "reads_early", x.reshape(2, 3))
    assert error.message == "op 'reads_early' reads element (1, 1) of 'out', which is uninitialised"
    assert (error.code, error.argument) == ("EK0721", "out")
    assert failure(interpret, "reads_stack_early", x).argument == "stack"
    interpret(WRONG, "reads_stack_early", x[:1])


def test_the_order_of_parallel_work(interpret: Interpret) -> None:
    values = np.arange(1, 5)
    actual = {interpret(WRONG, "depends_on_order", values, seed=seed)[0][0] for seed in (None, 1, 2, 3)}
    assert len(actual) > 1
    once, again = (interpret(WRONG, "depends_on_order", values, seed=7)[0] for _ in range(2))
    assert once.tolist() == again.tolist()


def test_barriers(interpret: Interpret) -> None:
    row = np.arange(4, dtype=np.float32)
    for seed in (None, 5):
        (out,) = interpret(WRONG, "turns", row, target="sm_80", seed=seed)
        assert out.tolist() == [4, 3, 2, 1]
    error = failure(interpret, "parts", row, target="sm_80")
    assert (error.code, error.place and error.place.line) == ("EK0722", line_of("        gpu.barrier()"))
    assert "2 wait, 2 have ended" in error.message


def test_tracebacks_show_the_kernel(interpret: Interpret) -> None:
    try:
        interpret(WRONG, "reads_outside", x)
    except KernelError as error:
        frames = traceback.extract_tb(error.__traceback__)
    shown = [(f.name, f.lineno, f.line) for f in frames if f.filename.endswith(WRONG)]
    call = "foreach(out, lambda i: shifted(x, i[0], by))"
    assert shown == [
        ("reads_outside", line_of(call), call),
        ("<lambda>", line_of(call), call),
        ("shifted", line_of("return x[i + by]"), "return x[i + by]"),
    ]


def test_whole_graphs(capsys: pytest.CaptureFixture[str], monkeypatch: pytest.MonkeyPatch) -> None:
    def forward(a: Any, b: Any) -> Any:
        y = ops.matmul(a, b)
        return ops.softmax(y), ops.reshape(y * 2 + 1, [-1]), a

    rng = np.random.default_rng(0)
    a, b = (rng.standard_normal(shape).astype(np.float32) for shape in ((3, 5), (5, 4)))
    graph = graphs.build(forward, (np.float32, ("m", 5)), (np.float32, (5, 4)))
    compiled = graphs.results(InferenceSession(interpret=False).load(graph), a, b)
    monkeypatch.setenv("EINKORN_INTERPRET", "1")
    model = InferenceSession().load(graph)
    assert model.code.tier == "interpreter"
    for rows in (3, 2, 0):
        for got, wanted in zip(graphs.results(model, a[:rows], b), compiled, strict=True):
            assert got.tobytes() == wanted[: len(got)].tobytes()
