"""An access outside of a tensor is an error that says all about it; an access inside costs nothing."""

from __future__ import annotations

import re
from dataclasses import replace
from typing import Any

import numpy as np
import pytest

from einkorn.compiler.ir.program import Program, walk
from einkorn.compiler.pipeline import compile_entry, typed_program
from einkorn.compiler.targets import lookup
from einkorn.dsl import DType
from einkorn.dsl.contract.unit import op_entry
from einkorn.dsl.diagnostics.errors import EinkornError, KernelError
from einkorn.dsl.package.library import load_library

from .conftest import KERNELS, Run, model_of

X = np.arange(40, dtype=np.float32).reshape(8, 5)
ROW = np.arange(8, dtype=np.float32)
IDS = np.array([3, 0, 7, 7, 1, 2, 5, 6])


def wrong(ids: np.ndarray[Any, Any], value: int, at: int = 4) -> np.ndarray[Any, Any]:
    changed = ids.copy()
    changed[at] = value
    return changed


# op, inputs, parameters, and what the error says: tensor, axis, index, extent
OUTSIDE: list[tuple[str, tuple[Any, ...], dict[str, Any], tuple[str, int | None, int, int]]] = [
    ("take", (X, wrong(IDS, 8)), {}, ("table", 0, 8, 8)),
    ("take", (X, wrong(IDS, -1)), {}, ("table", 0, -1, 8)),
    ("take", (X, wrong(IDS, 2**62)), {}, ("table", 0, 2**62, 8)),
    ("take", (X, wrong(IDS, -(2**63))), {}, ("table", 0, -(2**63), 8)),
    ("put", (ROW, wrong(np.argsort(IDS), 8).astype(np.int32)), {}, ("out", 0, 8, 8)),
    ("histogram_of_ids", (wrong(IDS, 16),), {}, ("out", 0, 16, 16)),
    ("shifted", (ROW,), {"by": 1}, ("x", 0, 8, 8)),
    ("shifted", (ROW,), {"by": -2}, ("x", 0, -2, 8)),
    ("shifted_rows", (X,), {"by": 1}, ("x", 0, 8, 8)),
    ("shifted_rows", (X,), {"by": -1}, ("x", 0, -1, 8)),
    ("from_column", (X, ROW[:5]), {}, ("row", 0, 5, 5)),
    ("row_sums", (X,), {"beyond": 1}, ("x", 0, 5, 5)),
    ("strided_sums", (X,), {"step": 3}, ("x", 1, 7, 5)),
    ("windows", (X, wrong(IDS % 4, 4)), {"size": 2}, ("x", 0, 1, 1)),
    ("windows", (X, wrong(IDS % 4, -1)), {"size": 2}, ("x", 1, -1, 5)),
    ("loaded", (ROW, wrong(IDS % 5, 5)), {}, ("x", 0, 5, 8)),
    ("strays", (ROW, wrong(IDS, 8, 2)), {"how": "gather"}, ("x", 0, 8, 8)),
    ("strays", (ROW, wrong(IDS, -3, 2)), {"how": "masked gather"}, ("x", 0, -3, 8)),
    ("strays", (ROW, wrong(IDS, 9, 2)), {"how": "masked gather"}, ("", 0, 0, 0)),
    ("strays", (ROW, wrong(IDS, 9, 2)), {"how": "scatter"}, ("out", 0, 9, 8)),
    ("strays", (ROW, wrong(IDS, 6, 0)), {"how": "masked"}, ("x", 0, 8, 8)),
    ("strays", (ROW, wrong(IDS, 3, 1)), {"how": "strided"}, ("x", 0, 3, 8)),
    ("strays", (ROW, wrong(IDS, 3, 2)), {"how": "steps"}, ("x", 0, 9, 8)),
    ("strays", (ROW, wrong(IDS, 8, 3)), {"how": "atomic"}, ("out", 0, 8, 8)),
    ("in_stack", (ROW, wrong(IDS % 4, 4)), {}, ("stack", 0, 4, 4)),
    ("at_position", (X, wrong(IDS, 40)), {}, ("x", None, 40, 40)),
    ("nested", (X, np.array([0, 1, 2, 3, 5])), {}, ("x", 1, 5, 5)),
    ("flat", (X, X.reshape(-1)[:-1].copy()), {}, ("y", 0, 39, 39)),
    ("returned_early", (ROW, wrong(IDS, 8)), {}, ("", 0, 0, 0)),
]


@pytest.mark.parametrize("checks", ["safe", "all"])
def test_what_lies_outside(run: Run, checks: str) -> None:
    for op, arrays, parameters, expected in OUTSIDE:
        if not expected[0]:
            run(op, *arrays, checks=checks, **parameters)  # the kernel's own test keeps it inside
            continue
        with pytest.raises(KernelError) as caught:
            pytest.fail(f"{op}{parameters}: {run(op, *arrays, checks=checks, **parameters)}")
        error = caught.value
        assert (error.tensor, error.axis, error.index, error.extent) == expected, (op, parameters, str(error))
        assert error.code == "EK0703" and error.op == op
        assert error.place is not None and error.place.file == KERNELS
        assert error.place.source_line() is not None


def test_what_lies_inside(run: Run) -> None:
    """The same kernels with indices that are right, under every level."""
    columns = np.array([4, 0, 3, 2, 1])
    for checks in ("off", "safe", "all"):
        assert (run("take", X, IDS, checks=checks) == X[IDS]).all()
        assert (run("put", ROW, np.argsort(IDS).astype(np.int32), checks=checks) >= 0).all()
        assert (run("histogram", IDS.astype(np.uint8), checks=checks) == np.bincount(IDS, minlength=256)).all()
        assert (run("histogram_of_ids", IDS, checks=checks) == np.bincount(IDS, minlength=16)).all()
        assert (run("shifted", ROW, checks=checks, by=0) == ROW).all()
        assert (run("shifted_where_it_is", ROW, checks=checks) == ROW[[0, 0, 1, 2, 3, 4, 5, 6]]).all()
        rows, last = np.maximum(np.arange(8) - 1, 0), np.minimum(np.arange(5) + 1, 4)
        assert (run("clamped", X, checks=checks) == X[rows][:, last]).all()
        assert (run("row_sums", X, checks=checks) == X.sum(1)).all()
        assert (run("strided_sums", X, checks=checks, step=0) == X[:, ::4].sum(1)).all()
        first = IDS % 4
        assert (run("windows", X, first, checks=checks) == [X[r, f] + X[r, f + 1] for r, f in enumerate(first)]).all()
        assert (run("loaded", ROW, IDS % 5, checks=checks) == [ROW[k : k + 4].sum() for k in IDS % 5]).all()
        assert (run("in_stack", ROW, IDS * 0 + 3, checks=checks) == ROW).all()
        assert (run("at_position", X, IDS * 5, checks=checks) == X[IDS, 0]).all()
        assert (run("nested", X, columns, checks=checks) == X[:, columns]).all()
        assert (run("flat", X, X.reshape(-1).copy(), checks=checks) == X + X).all()
        assert (run("searched", ROW, ROW + 0.5, checks=checks) == IDS * 0 + np.arange(1, 9)).all()


FORMS: dict[str, Any] = {
    "shifted": lambda k: k + 3,
    "squared": lambda k: k * k,
    "halved": lambda k: (k + 9) // 2,
    "masked": lambda k: k * 7 % 11,
    "clamped": lambda k: np.maximum(k - 2, np.minimum(k, 1)),
    "wrapping": lambda k: k.astype(np.int64) * 2**62,
}


@pytest.mark.parametrize("form", FORMS)
def test_what_is_read_under_a_condition(run: Run, form: str) -> None:
    """It fails where the first round that reads does so outside, and in no other place."""
    places = FORMS[form](np.arange(5))
    for size in (1, 3, 6, 9, 40):
        x = np.arange(100, 100 + size, dtype=np.float32)
        for bits in range(32):
            on = np.array([bits >> k & 1 for k in range(5)], np.int32)
            wrong = [int(p) for p, read in zip(places, on, strict=True) if read and not 0 <= p < size]
            for checks in ("safe", "all"):
                if not wrong:
                    expected = [x[p] if read else 0 for p, read in zip(places, on, strict=True)]
                    assert run("guarded_reads", x, on, checks=checks, form=form).tolist() == expected
                    continue
                with pytest.raises(KernelError) as caught:
                    run("guarded_reads", x, on, checks=checks, form=form)
                error = caught.value
                assert (error.tensor, error.axis, error.index, error.extent) == ("x", 0, wrong[0], size)


def test_what_is_written_under_a_condition(run: Run) -> None:
    for by in (-2, 0, 1, 7):
        for bits in range(256):
            on = np.array([bits >> k & 1 for k in range(8)], np.int32)
            places = [k + by for k in range(8) if on[k]]
            if all(0 <= p < 8 for p in places):
                expected = np.zeros(8, np.float32)
                expected[places] = ROW[on != 0]
                assert (run("guarded_writes", ROW, on, by=by) == expected).all()
            else:
                with pytest.raises(KernelError) as caught:
                    run("guarded_writes", ROW, on, by=by)
                assert caught.value.index == next(p for p in places if not 0 <= p < 8)


def test_arithmetic_that_wraps_proves_nothing(run: Run) -> None:
    for checks in ("safe", "all"):
        for first in (2**21, 3 * 2**20, 2**62, -(2**21) - 1):
            with pytest.raises(KernelError):
                run("wrapped_guard", ROW, np.array([first]), checks=checks)
        assert run("wrapped_guard", ROW, np.array([0]), checks=checks)[0] == 1
        ends = [(5, -(2**63)), (0, -(2**63)), (2**63 - 1, -1), (7, 8), (2**63 - 1, 2**63 - 1)]
        for low, high in ends:
            with pytest.raises(KernelError):
                run("wrapped_slice", ROW, np.array([low, high]), checks=checks)
        for low, high in [(-(2**63), 5), (-(2**63), 2**63 - 1), (-1, -1), (-(2**62), -(2**63))]:
            with pytest.raises(KernelError):
                run("wrapped_slice", ROW, np.array([low, high]), checks=checks, back=True)
        assert run("wrapped_slice", ROW, np.array([7, -(2**63)]), checks=checks, back=True)[0] == 5
        assert run("wrapped_slice", ROW, np.array([1, 2**63 - 1]), checks=checks)[0] == 3


def test_vectors_that_leave_a_tensor_in_other_ways(run: Run) -> None:
    assert run("steps_backwards", ROW)[:4].tolist() == [3, 2, 1, 0]
    for checks in ("safe", "all"):
        for op, parameters, tensor in [("steps_backwards", {"first": 2}, "x"), ("steps_backwards", {"first": 8}, "x")]:
            with pytest.raises(KernelError) as caught:
                run(op, ROW, checks=checks, **parameters)
            assert caught.value.tensor == tensor
        with pytest.raises(KernelError):
            run("vector_of_a_scalar", np.array(1, np.float32), ROW, checks=checks)


def test_the_library_looks_at_sizes(run: Run) -> None:
    """It trusts its own loops, so what it is given has to go together."""
    assert run("dot_of_two_sizes", ROW, ROW)[0] == 140
    with pytest.raises(KernelError, match="sizes differ along axis 0: 4 and 8"):
        run("dot_of_two_sizes", ROW, ROW[:4].copy())
    with pytest.raises(KernelError, match="sizes differ along axis 0: 5 and 8"):
        run("sorted_into_less", ROW, ROW[:5].copy())


def test_nothing_to_read(run: Run) -> None:
    """Loops without a round make no access, and none of their checks fails."""
    for checks in ("safe", "all"):
        for shape in [(0, 5), (8, 0), (0, 0)]:
            empty = np.zeros(shape, np.float32)
            assert run("shifted_rows", empty, checks=checks, by=7).shape == shape
            assert run("clamped", empty, checks=checks).shape == shape
            assert run("row_sums", empty, checks=checks).shape == shape[:1]
        assert run("strided_sums", np.zeros((3, 0), np.float32), checks=checks).tolist() == [0, 0, 0]
        assert run("shifted", ROW[:0], checks=checks, by=-3).size == 0
        assert run("take", X[:0], IDS[:0], checks=checks).shape == (0, 5)
        with pytest.raises(KernelError):
            run("take", X[:0], IDS, checks=checks)
        with pytest.raises(KernelError):
            run("row_sums", X[:, :0].copy(), checks=checks, beyond=1)


def test_sizes_that_are_known() -> None:
    with pytest.raises(KernelError):
        model_of("shifted", ROW, static=True)(ROW)
    assert (model_of("clamped", X, static=True, checks="all")(X)[0].to_numpy().shape) == X.shape


def checks_of(op: str, checks: str, ranks: dict[str, int] | None = None, **parameters: Any) -> list[tuple[str, bool]]:
    """The kinds of the checks in an op's typed program, and whether each stands in a `for`."""
    kernel = load_library(KERNELS).kernels[op].portable
    dtypes = {name: DType.float32 for name, _ in kernel.schema.typevars}
    values = {p.name: parameters.get(p.name, p.default) for p in kernel.schema.parameters}
    spec = replace(op_entry(kernel, dtypes, ranks or {}, values), checks=checks)
    program: Program = typed_program(spec, lookup("x86-64-v3"))
    actual = []
    for function in program.functions:
        looped = {id(inner) for op in walk(function.body) if op.name == "for" for inner in walk(op.regions[0])}
        actual += [
            (program.sites[op.attrs["site"]].kind, id(op) in looped)
            for op in walk(function.body)
            if op.name == "assert"
        ]
    return actual


@pytest.mark.parametrize(
    ("op", "safe", "all_"),
    [
        ("shifted_where_it_is", [], []),
        ("clamped", [], []),
        ("row_sums", [], []),
        ("roots", [], []),
        ("histogram", [], []),
        ("shifted", [("bounds", False)] * 2, [("bounds", True)]),
        ("take", [("bounds", True)], [("bounds", True)]),
        ("flat", [("bounds", True)] * 2, [("bounds", True)]),  # before the inner loop, in that over rows
        ("returned_early", [], []),
        ("asserted", [("assert", True)], [("assert", True)]),
        ("quotients", [], []),
        ("searched", [("bounds", True)], [("bounds", True)]),
        ("guarded_writes", [("bounds", True)], [("bounds", True)]),  # in one of two loops
    ],
)
def test_what_is_proven_or_hoisted(op: str, safe: list[Any], all_: list[Any]) -> None:
    parameters = {"by": 1} if op == "guarded_writes" else {}
    assert checks_of(op, "safe", **parameters) == safe
    assert checks_of(op, "all", **parameters) == all_
    assert checks_of(op, "off", **parameters) == []


def test_a_check_costs_the_loop_nothing() -> None:
    """What is checked before a loop leaves it to LLVM, which sees here that it only copies."""
    kernel = load_library(KERNELS).kernels["shifted"].portable
    spec, target = op_entry(kernel, {"N": DType.float32}, {}, {"by": 1}), lookup("x86-64-v3")
    wide = [
        len(re.findall(r"call void @llvm.mem(?:cpy|move)", compile_entry(replace(spec, checks=checks), target).llvm))
        for checks in ("off", "safe", "all")
    ]
    assert wide[0] == wide[1] > 0 == wide[2]


def test_unknown_levels() -> None:
    with pytest.raises(EinkornError, match=r"checks= takes 'off', 'safe', 'all'.* not 'sfae'") as caught:
        model_of("roots", X, checks="sfae")
    assert caught.value.code == "EK0710" and caught.value.hint == "did you mean 'safe'?"
    for text in ("safe+", "+nan", "all+", "all+naan", "", 3):
        with pytest.raises(EinkornError):
            model_of("roots", X, checks=text)  # type: ignore[arg-type]
