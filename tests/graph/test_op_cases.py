"""Tests that follow from the tables of cases (`op_cases`): every irregular op against NumPy, compiled and interpreted.

A new irregular op has at least one case, of which the first is its example.
"""

from __future__ import annotations

import dataclasses
import functools
from collections.abc import Iterator
from typing import Any

import numpy as np
import pytest
from support import graphs, op_cases, simulated
from support.op_cases import Batch, batches, first_of_each, takes
from support.recording_device import RecordingDriver, recording_kind

from einkorn.compiler.targets import lookup
from einkorn.dsl.contract.checks import SAFE
from einkorn.dsl.diagnostics.errors import CompileError, EinkornError
from einkorn.dsl.types.dtype import DType
from einkorn.graph import Accelerator
from einkorn.graph.driver import devices
from einkorn.graph.engine.model import Model
from einkorn.graph.loading.compile import compile_graph
from einkorn.graph.ops.operands import KINDS
from einkorn.graph.ops.stage import OPS

FAMILIES = op_cases.families()
CASES = [case for cases in FAMILIES.values() for case in cases]
IRREGULAR = sorted(name for name, op in OPS.items() if op.form == "irregular")


def runs() -> Iterator[Any]:
    """Each family with each of its dtypes. Compiled as it ships: all cases, and of each op one dtype of each class."""
    for family, cases in FAMILIES.items():
        seen: set[tuple[str, str]] = set()
        for dtype in dict.fromkeys(np.dtype(d) for c in cases for d in c.dtypes):
            taken = {(c.op, graphs.kind_of(dtype)) for c in first_of_each(cases) if takes(c, dtype)}
            main = any(np.dtype(c.dtypes[0]) == dtype for c in cases)
            yield graphs.tried(main or not taken <= seen, family, dtype)
            seen |= taken


@pytest.fixture(scope="module", autouse=True)
def own_cache(tmp_path_factory: pytest.TempPathFactory) -> Iterator[None]:
    with graphs.cache_in(tmp_path_factory.mktemp("cache")):
        yield


@pytest.mark.parametrize("name", IRREGULAR)
def test_an_irregular_op_has_a_case_and_an_example(name: str) -> None:
    """A case stands in a table of tests/graph/op_cases; example and dtypes in the op's decorator `@op(...)`."""
    mine = [case for case in CASES if case.op == name]
    op = OPS[name]
    assert mine, f"op '{name}' has no case in tests/graph/op_cases"
    assert op.example.startswith("ops.") and f"{name}(" in op.example, f"op '{name}' has no example: @op(example=...)"
    for argument in op.operands:
        taken = {t.of or name for case in mine for name, t in case.tensors.items()}
        assert argument in taken, f"op '{name}' has no case with a tensor for '{argument}'"
    example = functools.partial(op_cases.run_example, name, tuple(mine[0].tensors))
    first = dataclasses.replace(mine[0], call=example)
    if mine[0].tensors:  # else there is nothing to give back
        Batch([first], first.dtypes[0]).graph()


CHECKED = {"attention", "matrices", "norms", "order", "sampling"}
# Ops without a form for GPUs: they read, in the host's code, what lies on the device, or take memory in a thread.
HOST_ONLY = {op.name for op in OPS.values() if op.host_only}


@pytest.mark.parametrize("family", FAMILIES)
def test_cases_on_a_simulated_gpu(family: str) -> None:
    """The cases of a family with the dtype of each; those whose kernels share memory with all accesses checked."""
    device = Accelerator("sim", checks="all", seed=3) if family in CHECKED else Accelerator("sim")
    with simulated.sessions(device):
        for dtype in dict.fromkeys(np.dtype(case.dtypes[0]) for case in FAMILIES[family]):
            mine = [case for case in FAMILIES[family] if np.dtype(case.dtypes[0]) == dtype]
            for batch in batches([case for case in mine if case.op not in HOST_ONLY], dtype):
                model = batch.load()
                for run in range(batch.runs):
                    compare(model, batch, run)


def test_ops_without_a_form_for_gpus() -> None:
    refused = set()
    with simulated.sessions():
        for case in (case for case in CASES if case.op in HOST_ONLY):
            try:
                Batch([case], np.dtype(case.dtypes[0])).load()
            except CompileError as error:
                codes = {e.code for e in getattr(error, "errors", [error])}
                refused |= {case.op} if codes <= {"EK0820", "EK0227"} else set()
    assert refused == HOST_ONLY


def compare(model: Model, batch: Batch, run: int, arrays: list[graphs.Array] | None = None) -> None:
    given = batch.arrays(run) if arrays is None else arrays
    expected = batch.expected(given)
    outputs = graphs.results(model, *given)
    assert len(outputs) == len(expected)
    failures = []
    for (op, wanted, ulps), output in zip(expected, outputs, strict=True):
        trouble = graphs.difference(output, wanted, ulps)
        failures += [f"{op}: {trouble}"] if trouble else []
    assert not failures, f"run {run} of {batch.dtype}:\n" + "\n".join(failures)


@pytest.mark.parametrize(("family", "dtype"), list(runs()), ids=lambda value: str(value))
def test_cases_agree_with_numpy(family: str, dtype: Any) -> None:
    """All cases of a family with the dtype of each, then the first of each op with every dtype: sizes are symbolic."""
    cases = FAMILIES[family]
    main = [case for case in cases if np.dtype(case.dtypes[0]) == dtype]
    rest = [case for case in first_of_each(cases) if case not in main]
    for batch in batches([*main, *rest], dtype):
        model = batch.load()
        for run in range(batch.runs):
            compare(model, batch, run)


@pytest.mark.parametrize("family", FAMILIES)
def test_cases_on_views(family: str) -> None:
    """Sizes are known; the inputs are contiguous, then run backwards or lie between other elements."""
    for dtype, cases in by_dtype(FAMILIES[family]).items():
        for batch in batches([case for case in cases if case.views], dtype):
            model = batch.load(static=True)
            arrays = batch.arrays(0)
            compare(model, batch, 0, arrays)
            compare(model, batch, 0, [(backwards, spread)[k % 2](array) for k, array in enumerate(arrays)])


def by_dtype(cases: list[op_cases.Case]) -> dict[Any, list[op_cases.Case]]:
    collected: dict[Any, list[op_cases.Case]] = {}
    for case in cases:
        collected.setdefault(np.dtype(case.dtypes[0]), []).append(case)
    return collected


def backwards(array: graphs.Array) -> graphs.Array:
    """The same elements, the last first in memory."""
    if array.ndim == 0:
        return array
    turned = (slice(None, None, -1),) * array.ndim
    return np.ascontiguousarray(array[turned])[turned]


def spread(array: graphs.Array) -> graphs.Array:
    """The same elements, with others between and the axes in another order."""
    if array.ndim == 0:
        return array
    wide = np.zeros([2 * size + 1 for size in array.shape[::-1]], array.dtype).T
    part = wide[tuple(slice(1, 2 * size + 1, 2) for size in array.shape)]
    part[...] = array
    return part


@pytest.mark.parametrize("family", FAMILIES)
def test_cases_in_the_interpreter(family: str) -> None:
    for dtype, cases in by_dtype(first_of_each(FAMILIES[family])).items():
        for batch in batches(cases, dtype):
            model = batch.load(static=True, interpret=True)
            compare(model, batch, 0)


@pytest.mark.parametrize("family", FAMILIES)
def test_cases_compile_for_gpus(family: str, monkeypatch: pytest.MonkeyPatch) -> None:
    """All but those that the page of ops lists with a reason. On a device that records, each launch names a kernel of
    the code for sm_80, has threads, and hands over memory that is there; without elements nothing need be launched."""
    monkeypatch.setattr(devices, "KINDS", [*devices.KINDS, recording_kind()])
    driver = Accelerator(0).driver
    assert isinstance(driver, RecordingDriver)
    cases = [case for case in first_of_each(FAMILIES[family]) if not OPS[case.op].host_only]
    for dtype, taken in by_dtype(cases).items():
        for batch in batches(taken, dtype):
            for piece in compile_graph(batch.graph().ir, [lookup("gfx942")], True, SAFE).pieces:
                assert piece.code
            with simulated.sessions(Accelerator(0)):
                model = batch.load()
            for run in range(batch.runs):
                driver.launches.clear()
                results = model(*batch.arrays(run))
                assert driver.problems == []
                assert driver.launches or not any(0 not in result.shape for result in results)


def test_what_no_gpu_runs_is_refused_for_gpus() -> None:
    """The page says so as long as it is true."""
    for case in first_of_each(CASES):
        if OPS[case.op].host_only:
            with pytest.raises(EinkornError):
                compile_graph(Batch([case], case.dtypes[0]).graph().ir, [lookup("sm_80")], True, SAFE)


OF_COMPLEX = {"matmul"}  # have another kernel for complex numbers: see `test_complex`


@pytest.mark.parametrize("name", IRREGULAR)
def test_an_irregular_op_refuses_other_dtypes(name: str) -> None:
    cases = [case for case in CASES if case.op == name]
    for argument, kind in OPS[name].operands.items():
        case = next(c for c in cases if argument in {t.of or n for n, t in c.tensors.items()})
        for dtype in (dtype for dtype in DType if dtype not in KINDS[kind].dtypes):
            if dtype.is_complex() and name in OF_COMPLEX:
                continue
            changed = op_cases.with_dtype(case, argument, dtype)
            with pytest.raises(EinkornError) as caught:
                Batch([changed], changed.dtypes[0]).graph()
            error = caught.value
            assert (error.code, error.op) == ("EK0413", name), f"{argument} of {dtype}: {error}"
            assert error.place is not None
