"""Built-in ops compiled to PTX and run by its interpreter, through sessions: against NumPy as on a CPU."""

from __future__ import annotations

import contextlib
from collections.abc import Iterator, Mapping, Sequence
from typing import Any

import ml_dtypes
import numpy as np
import pytest
from support import graphs, op_cases, op_rows
from support.launching_device import LaunchingDriver, launching_kind
from support.op_cases import Batch, batches, first_of_each
from support.ptx_device import run_ptx

from einkorn.graph import Accelerator, Buffer, DeviceRef, DType, Graph, InferenceSession, TensorType, TensorValue
from einkorn.graph.driver import devices
from einkorn.graph.engine.model import Model
from einkorn.graph.ops.stage import OPS

GPU = DeviceRef.GPU()
FAMILIES = op_cases.families()
MAX_ELEMENTS = 4000  # elements of an array
# Rows that take exp of float32, which is an instruction on GPUs: see docs/numerics.md.
OF_EXP = {"exp", "sigmoid", "silu", "log_sigmoid", "softplus", "mish"}
# Rows that are tried in dtypes other than float32, too.
SOME = {
    *("add", "mul", "div", "floordiv", "maximum", "where", "equal", "less", "logical_and", "bitwise_xor", "left_shift"),
    *("negate", "abs", "floor", "sqrt", "exp", "is_nan", "sum", "max", "softmax", "argmax", "cumsum"),
}


@pytest.fixture(scope="module", autouse=True)
def own_cache(tmp_path_factory: pytest.TempPathFactory) -> Iterator[None]:
    with graphs.cache_in(tmp_path_factory.mktemp("cache")):
        yield


@pytest.fixture(autouse=True)
def driver(monkeypatch: pytest.MonkeyPatch) -> LaunchingDriver:
    """A machine with a device that runs PTX."""
    monkeypatch.setattr(devices, "KINDS", [*devices.KINDS, launching_kind(run_ptx, "sm_80")])
    driver = Accelerator(0).driver
    assert isinstance(driver, LaunchingDriver)
    return driver


def load(graph: Graph, weights: Mapping[str, graphs.Array]) -> Model:
    given = {name: Buffer.from_numpy(array).to(GPU) for name, array in weights.items()}
    return InferenceSession(devices=[Accelerator(0)]).load(graph, weights_registry=given)


def on_gpu(type: Any) -> Any:
    return type.__class__(type.dtype, type.shape, GPU)


def call(model: Model, driver: LaunchingDriver, arrays: Sequence[graphs.Array]) -> list[graphs.Array]:
    """The outputs of a call; an error of the interpreter is raised as it was."""
    try:
        return [np.array(each.to_numpy()) for each in model(*(Buffer.from_numpy(a).to(GPU) for a in arrays))]
    except Exception:
        if driver.error_raised is not None:
            raise driver.error_raised from None
        raise


def compare(batch: Batch, model: Model, driver: LaunchingDriver, run: int) -> list[str]:
    arrays = batch.arrays(run)
    wanted = batch.expected(arrays)
    outputs = call(model, driver, arrays)
    actual = []
    for (op, array, ulps), output in zip(wanted, outputs, strict=True):
        trouble = graphs.difference(output, array, ulps)
        actual += [f"run {run} of {batch.dtype}: {op}: {trouble}"] if trouble else []
    return actual


@contextlib.contextmanager
def for_gpus() -> Iterator[None]:
    """What is staged for the host unless the caller says otherwise is staged for the GPU, in the host's dtypes."""
    with pytest.MonkeyPatch.context() as patch:
        patch.setattr(DeviceRef, "CPU", staticmethod(DeviceRef.GPU))
        patch.setattr(DeviceRef, "default_dtype", DType.float32)
        yield


@pytest.mark.parametrize("family", FAMILIES)
def test_irregular_ops(family: str, driver: LaunchingDriver) -> None:
    """The first case of each op, in the sizes of its runs but for the largest."""
    failures = []
    cases = [case for case in first_of_each(FAMILIES[family]) if not OPS[case.op].host_only]
    for dtype in dict.fromkeys(np.dtype(case.dtypes[0]) for case in cases):
        taken = [case for case in cases if np.dtype(case.dtypes[0]) == dtype]
        for batch in batches(taken, dtype):
            weights = {name: array for case in batch.cases for name, array in (case.weights or {}).items()}
            with for_gpus():
                graph = batch.graph(change=on_gpu)
            model = load(graph, weights)
            for run in range(batch.runs):
                if max((array.size for array in batch.arrays(run)), default=0) <= MAX_ELEMENTS:
                    failures += compare(batch, model, driver, run)
    assert not failures, "\n".join(failures)


# *** rows ***


def run_rows(
    cases: Mapping[str, graphs.Case],
    driver: LaunchingDriver,
    arrays: Sequence[graphs.Array],
    ulps: float,
    sizes: Sequence[Sequence[graphs.Array]] = (),
    shape: Sequence[str] = ("m", "n"),
) -> list[str]:
    """All cases as one model: what differs from their references."""
    types = [TensorType(DType.from_numpy(a.dtype), shape, GPU) for a in arrays]
    with for_gpus():
        graph = Graph("rows", lambda *values: [function(*values) for function, _ in cases.values()], types)
    model, failures = load(graph, {}), []
    for given in (arrays, *sizes):
        for (name, (_, reference)), output in zip(cases.items(), call(model, driver, given), strict=True):
            with np.errstate(all="ignore"):
                wanted = np.asarray(reference(*given))
            trouble = graphs.difference(output, wanted, ulps)
            failures += [f"{name} of {given[0].dtype}{list(given[0].shape)}: {trouble}"] if trouble else []
    return failures


@pytest.mark.parametrize("dtype", (np.float64, np.float16, ml_dtypes.bfloat16, np.int8, np.int64, np.bool_))
def test_elementwise_rows(dtype: Any, driver: LaunchingDriver) -> None:
    """Some rows, against NumPy."""
    rows = {name: op for name, op in op_rows.rows_for(dtype, "elementwise").items() if name in SOME}
    failures = []
    groups = {
        0.0: {name: op for name, op in rows.items() if name in op_rows.EXACT},
        op_rows.ULPS: {name: op for name, op in rows.items() if name not in op_rows.EXACT | op_rows.DEFINED.keys()},
    }
    for ulps, chosen in groups.items():
        if chosen:
            x, y = (np.ascontiguousarray(a) for a in np.meshgrid(op_rows.special(dtype), op_rows.special(dtype)))
            special = [x, y, y[::-1].copy(), *(graphs.numbers(x.shape, np.bool_, k) for k in range(3))]
            arrays = op_rows.operands((3, 100), dtype)
            empty = op_rows.operands((0, 4), dtype)
            failures += run_rows(op_rows.cases_of(chosen, 3), driver, arrays, ulps, [special, empty])
    for name, change in op_rows.DEFINED.items():
        if name in rows:
            arrays = op_rows.operands((3, 100), dtype)
            arrays = [*change(arrays[:2]), *arrays[2:]]
            failures += run_rows(op_rows.cases_of({name: rows[name]}, 3), driver, arrays, op_rows.ULPS)
    assert not failures, "\n".join(failures)


def test_elementwise_rows_have_the_bits_of_a_cpu(driver: LaunchingDriver) -> None:
    """Every row, in float32, on numbers and on special ones; those that take exp are near them."""
    cases = op_rows.cases_of(op_rows.rows_for(np.float32, "elementwise"), 3)
    x, y = (np.ascontiguousarray(a) for a in np.meshgrid(*[op_rows.special(np.float32)] * 2))
    special = [x, y, y[::-1].copy(), *(graphs.numbers(x.shape, np.bool_, k) for k in range(3))]

    def forward(*values: TensorValue) -> list[TensorValue]:
        return [function(*values) for function, _ in cases.values()]

    def model(place: DeviceRef) -> Model:
        types = [TensorType(DType.from_numpy(a.dtype), ["m", "n"], place) for a in special]
        return InferenceSession(devices=[place.to_device()]).load(Graph("rows", forward, types))

    here, there = model(graphs.HOST), model(GPU)
    for arrays in (op_rows.operands((20, 30), np.float32), special):
        for name, one, other in zip(cases, graphs.results(here, *arrays), call(there, driver, arrays), strict=True):
            if name in OF_EXP:
                assert graphs.difference(other, one, op_rows.ULPS) is None, name
                continue
            same = (one == other) | ((one != one) & (other != other))
            assert same.all(), (name, one[~same], other[~same])
            assert one.dtype.kind != "f" or np.array_equal(
                np.signbit(one[one == one]), np.signbit(other[one == one])
            ), name


@pytest.mark.parametrize("dtype", (np.float32, np.float16, np.int32))
def test_rows_along_axes(dtype: Any, driver: LaunchingDriver) -> None:
    """Reductions, scans and softmaxes along the outer axes: every row in float32, some in other dtypes."""
    rows = op_rows.rows_for(dtype, "along", "reduction")
    if dtype is not np.float32:
        rows = {name: op for name, op in rows.items() if name in SOME}
    cases = {name: case for op in rows.values() for name, case in op_rows.axis_cases(op, 3, False).items()}

    def values(*shape: int) -> graphs.Array:
        x = graphs.numbers(shape, dtype, 7)
        return x % 100 if x.dtype.kind in "iu" else np.abs(x / 8).astype(dtype)

    sizes = [[values(*shape)] for shape in ((1, 1, 1), (2, 3, 70))]
    failures = run_rows(cases, driver, [values(5, 3, 7)], 4 * op_rows.ULPS, sizes, ("a", "b", "c"))
    assert not failures, "\n".join(failures)
