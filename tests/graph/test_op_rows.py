"""Tests that follow from the rows of ops: every row against its kernel's reference, its refusals, its print.

A new row is tested here without a line. Only what a row cannot say stands in the small tables of
`support.op_rows`.
"""

from __future__ import annotations

from collections.abc import Callable, Iterator, Mapping, Sequence
from typing import Any

import numpy as np
import pytest
from support import graphs, simulated
from support.graphs import FLOATS, Array, numbers
from support.op_rows import (
    DEFINED,
    DTYPES,
    EXACT,
    ROWS,
    ULPS,
    Change,
    axis_cases,
    cases_of,
    operands,
    rows_for,
    special,
)

from einkorn.compiler.targets import lookup
from einkorn.dsl.contract.checks import SAFE
from einkorn.dsl.diagnostics.errors import EinkornError
from einkorn.graph import DType, Graph, TensorType, TensorValue
from einkorn.graph.loading.compile import compile_graph
from einkorn.graph.ops.operands import KINDS
from einkorn.graph.ops.stage import BuiltinOp


@pytest.fixture(scope="module", autouse=True)
def own_cache(tmp_path_factory: pytest.TempPathFactory) -> Iterator[None]:
    with graphs.cache_in(tmp_path_factory.mktemp("cache")):
        yield


# *** elementwise rows ***


def elementwise_runs() -> Iterator[Any]:
    """Each dtype; compiled as it ships the first of each class, as all of a class have the same code but for widths."""
    seen: set[str] = set()
    for dtype in DTYPES:
        yield graphs.tried(graphs.kind_of(dtype) not in seen, dtype)
        seen.add(graphs.kind_of(dtype))


@pytest.mark.parametrize("dtype", list(elementwise_runs()))
def test_elementwise_rows(dtype: Any) -> None:
    """Every dtype, symbolic sizes, no elements, and every pair of special numbers."""
    rows = rows_for(dtype, "elementwise")
    check({name: op for name, op in rows.items() if name in EXACT}, dtype, ulps=0)
    check({name: op for name, op in rows.items() if name not in EXACT and name not in DEFINED}, dtype, ulps=ULPS)
    for name in DEFINED:
        check({name: rows[name]} if name in rows else {}, dtype, ulps=ULPS, change=DEFINED[name])


def check(rows: Mapping[str, BuiltinOp], dtype: Any, *, ulps: float, change: Change | None = None) -> None:
    """All rows as one model, on arrays of several sizes, and on special numbers unless elements are changed."""
    if not rows:
        return

    def arrays_of(shape: Sequence[int]) -> list[Array]:
        arrays = operands(shape, dtype)
        return arrays if change is None else [*change(arrays[:2]), *arrays[2:]]

    cases = cases_of(rows, 3)
    model = graphs.check(cases, *arrays_of((3, 7)), shapes=[["m", "n"]] * 6, ulps=ulps)
    for shape in ((1, 1), (65, 33), (0, 4), (4, 0)):
        graphs.compare(model, cases, *arrays_of(shape), ulps=ulps)
    if change is None:
        x, y = (np.ascontiguousarray(a) for a in np.meshgrid(special(dtype), special(dtype)))
        flags = [numbers(x.shape, np.bool_, k) for k in range(3)]
        graphs.compare(model, cases, x, y, np.ascontiguousarray(y[::-1]), *flags, ulps=ulps)


@pytest.mark.parametrize("shape", ((), (1,), (2, 3), graphs.tried(True, (2, 1, 3)), (4, 0, 3)))
def test_elementwise_rows_broadcast(shape: tuple[int, ...]) -> None:
    """The operands in different shapes, and of every rank."""
    rows = rows_for(np.float32, "elementwise")
    several = {name: op for name, op in rows.items() if len(op.operands) > 1 and name not in DEFINED}
    x, y, z, *flags = operands(shape, np.float32)
    if len(shape) > 1:
        y, z = y[..., :1], z[0]
    graphs.check(cases_of(several, 3), x, y, z, *flags, ulps=ULPS)


# *** rows along axes ***


@pytest.mark.parametrize(
    ("dtype", "every"),
    [
        graphs.tried(True, np.float32, True),
        graphs.tried(True, np.int32, False),
        *((dtype, False) for dtype in (*FLOATS[1:], np.uint8, np.int64)),
    ],
)
def test_rows_along_axes(dtype: Any, every: bool) -> None:
    """Symbolic sizes; elements of one sign and near each other, so that little is lost where they are added."""
    rows = rows_for(dtype, "along", "reduction")
    cases = {name: case for op in rows.values() for name, case in axis_cases(op, 3, every).items()}
    if not cases:
        return

    def values(*shape: int) -> Array:
        x = numbers(shape, dtype, 7)
        return x % 100 if x.dtype.kind in "iu" else np.abs(x / 8).astype(dtype)

    model = graphs.check(cases, values(5, 9, 7), shapes=[["a", "b", "c"]], ulps=4 * ULPS)
    for shape in ((1, 1, 1), (3, 65, 33)):
        graphs.compare(model, cases, values(*shape), ulps=4 * ULPS)


# *** other targets ***


def test_rows_on_a_simulated_gpu() -> None:
    with simulated.sessions():
        test_elementwise_rows(np.float32)
        test_elementwise_rows_broadcast((2, 1, 3))
        test_rows_along_axes(np.float32, False)


# Files of rows whose kernels no test of the standard library compiles for GPUs.
ELSEWHERE = ("activations", "bits", "mathematics", "reduction", "scans")


@pytest.mark.parametrize("target", ["sm_80", "gfx942"])
def test_rows_compile_for_gpus(target: str) -> None:
    rows = [op for op in ROWS.values() if op.kernel is not None and op.kernel[0] in ELSEWHERE]
    integral = [op for op in rows if "integral" in op.operands.values()]
    for dtype, taken in (("float32", [op for op in rows if op not in integral]), ("int32", integral)):

        def forward(*values: TensorValue, chosen: list[BuiltinOp] = taken) -> list[TensorValue]:
            return [op.function(*values[: len(op.operands)]) for op in chosen]

        graph = Graph("rows", forward, [TensorType(DType[dtype], ["m", "n"])] * 2)
        for piece in compile_graph(graph.ir, [lookup(target)], True, SAFE).pieces:
            assert piece.code


# *** what rows refuse, and how they print ***


def refused(forward: Callable[..., Any], *types: TensorType) -> EinkornError:
    with pytest.raises(EinkornError) as caught:
        Graph("g", forward, types)
    return caught.value


def types_for(op: BuiltinOp, dtype: DType | None = None, shape: Sequence[Any] = ("m", "n")) -> list[TensorType]:
    """A type for each operand: one that its kind allows, or for those that are promoted together this one."""
    kinds = list(op.operands.values())
    chosen = [dtype if dtype is not None and kind == kinds[-1] else some_dtype(kind) for kind in kinds]
    return [TensorType(each, shape) for each in chosen]


def some_dtype(kind: str) -> DType:
    dtypes = KINDS[kind].dtypes
    return DType.float32 if DType.float32 in dtypes else dtypes[0]


@pytest.mark.parametrize("name", sorted(ROWS))
def test_a_row_prints_as_one_node(name: str) -> None:
    op = ROWS[name]
    assert op.kernel is not None
    graph = Graph("g", op.function, types_for(op))
    operands = ", ".join(f"%{k}" for k in range(len(op.operands)))
    staged = next(line for line in str(graph).splitlines() if " = " in line)
    assert staged.startswith(f"  %{len(op.operands)} = {op.kernel[1]}({operands}) ")
    (output,) = graph.output_types
    assert staged.endswith(f": {output}") or f"%{len(op.operands) + 1} = " in str(graph)


@pytest.mark.parametrize("name", sorted(ROWS))
def test_a_row_refuses_other_dtypes(name: str) -> None:
    op = ROWS[name]
    wrong = [dtype for dtype in DType if dtype not in KINDS[list(op.operands.values())[-1]].dtypes]
    for dtype in wrong if op.integers is None else [dtype for dtype in wrong if dtype.is_float()]:
        error = refused(op.function, *types_for(op, dtype))
        assert (error.code, error.op) == ("EK0413", name), error
        assert error.message.startswith(f"{name}: argument ") and error.message.endswith(f", and is {dtype}")
        assert error.place is not None and error.place.file == __file__


@pytest.mark.parametrize("name", sorted(ROWS))
def test_a_row_refuses_other_values(name: str) -> None:
    op = ROWS[name]
    foreign = Graph("other", lambda *values: values, types_for(op)).inputs
    count = len(op.operands)
    for values, code in ((["text"] * count, "EK0403"), ([1] * count, "EK0411"), (foreign, "EK0402")):
        error = refused(lambda *_, v=values: op.function(*v), *types_for(op))
        assert (error.code, error.op) == (code, name), error
    with pytest.raises(EinkornError) as caught:
        op.function(*foreign)
    assert caught.value.code == "EK0401" and caught.value.message == f"{name}: no graph is being built here"
    with pytest.raises(TypeError, match=rf"{name}\(\) "):
        Graph("g", lambda *values: op.function(*values, unheard_of=1), types_for(op))


@pytest.mark.parametrize("name", sorted(ROWS))
def test_a_row_refuses_shapes_and_axes(name: str) -> None:
    op = ROWS[name]
    types = types_for(op, shape=[2, 3])
    if op.form != "elementwise":
        for axis in (2, -3, "0", 1.5, True):
            error = refused(lambda x, a=axis: op.function(x, axis=a), *types)
            assert (error.code, error.op) == ("EK0422", name), error
    elif len(types) > 1:
        error = refused(op.function, *types[:-1], TensorType(types[-1].dtype, [4]))
        assert (error.code, error.op) == ("EK0420", name), error
