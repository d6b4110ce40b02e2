"""`check_op` calls ops as their callers do: the results are those of graphs, to the bit."""

from __future__ import annotations

import importlib.util
from pathlib import Path
from typing import Any

import pytest

from einkorn.dsl import DType
from einkorn.dsl.diagnostics.errors import EinkornError
from einkorn.graph.interop import checked
from einkorn.testing import CheckError, check_op

KERNELS = Path(__file__).parents[1] / "interop" / "direct_kernels.py"
T32, F32 = {"T": [DType.float32]}, {"F": [DType.float32]}
OPS: dict[str, dict[str, Any]] = {
    "add_one": {"dtypes": {"T": [DType.float32, DType.int16]}},
    "outer": {"dtypes": T32},
    "axpy": {"dtypes": {"T": [DType.int32]}},
    "scale_and_shift": {"parameters": {"scale": 2.5}, "dtypes": F32},
    "follow": {},
    "follow_and_tell": {"dtypes": F32},
    "halves": {"dtypes": T32},
    "total_of": {"dtypes": T32, "tensors": 3},
    "spread": {"dtypes": T32, "parameters": {"count": 2}},
    "kept": {"dtypes": {"T": [DType.int8]}},
}
LATE = ("kept",)  # JAX knows no sizes that depend on elements


@pytest.mark.parametrize("op", OPS)
def test_ops_by_their_callers(op: str) -> None:
    callers = ["direct", *(name for name in ("torch", "jax") if importlib.util.find_spec(name) is not None)]
    if op in LATE:
        callers = [name for name in callers if name != "jax"]
    assert check_op(op, KERNELS, callers=callers, sizes=(0, 3, 16), **OPS[op]).cases > 2


def test_a_caller_that_errs_is_found(monkeypatch: pytest.MonkeyPatch, tmp_path: Path) -> None:
    def wrong(*given: Any) -> Any:
        return [array + 1 for array in checked._directly(*given) or []]

    monkeypatch.setattr(checked, "CALLERS", {"direct": wrong})
    with pytest.raises(CheckError, match="the caller direct"):
        check_op("add_one", KERNELS, callers=["direct"], dtypes={"T": [DType.float32]}, sizes=(3,), folder=tmp_path)


def test_callers_are_named() -> None:
    with pytest.raises(EinkornError, match="callers= names 'torhc'") as caught:
        check_op("add_one", KERNELS, callers=["torhc"])
    assert caught.value.hint == "did you mean 'torch'?"
