"""`check_op` calls ops as their callers do: the results are those of graphs, to the bit."""

from __future__ import annotations

import importlib.util
from pathlib import Path
from typing import Any

import pytest

from einkorn.dsl import DType
from einkorn.dsl.diagnostics.errors import EinkornError
from einkorn.dsl.package.library import load_library
from einkorn.graph.interop import checked
from einkorn.testing import CheckError, check_op
from einkorn.testing.cases import pack_names

KERNELS = Path(__file__).parents[1] / "interop" / "direct_kernels.py"
T32, F32 = {"T": [DType.float32]}, {"F": [DType.float32]}
OPS: dict[str, dict[str, Any]] = {
    "add_one": {"dtypes": {"T": [DType.float32, DType.int16]}},
    "outer": {"dtypes": T32},
    "axpy": {"dtypes": {"T": [DType.int32]}},
    "scale_and_shift": {"parameters": {"scale": 2.5}, "dtypes": F32},
    "follow": {},
    "follow_and_return": {"dtypes": F32},
    "halves": {"dtypes": T32},
    "total_of": {"dtypes": T32, "tensors": 3},
    "spread": {"dtypes": T32, "parameters": {"count": 2}},
    "kept": {"dtypes": {"T": [DType.int8]}},
}
LATE = ("kept",)  # JAX has no sizes that depend on elements


EXAMPLES = Path(__file__).parents[2] / "examples" / "custom_ops" / "kernels"
OF_EXAMPLES: dict[str, dict[str, Any]] = {
    "matrix_multiplication": {"rows": 2, "width": 2},
    "layer_norm": {},
    "row_softmax": {},
    "blur": {"radius": 1},
    "vector_addition": {},
}


@pytest.mark.parametrize("op", OPS)
def test_ops_by_their_callers(op: str) -> None:
    callers = ["direct", *(name for name in ("torch", "jax") if importlib.util.find_spec(name) is not None)]
    if op in LATE:
        callers = [name for name in callers if name != "jax"]
    assert check_op(op, KERNELS, callers=callers, sizes=(0, 3, 16), **OPS[op]).cases > 2


@pytest.mark.parametrize("op", OF_EXAMPLES)
def test_kernels_of_examples_by_their_callers(op: str) -> None:
    callers = ["direct", *(name for name in ("torch", "jax") if importlib.util.find_spec(name) is not None)]
    file = next(file for file in EXAMPLES.glob("*.py") if f'@register("{op}")' in file.read_text())
    schema = load_library(file).kernels[op].schema
    simple: dict[str, Any] = {
        "dtypes": {name: [DType.float32] for name, _ in schema.typevars},
        "ranks": {name: [1] for name in pack_names(schema)},
        "parameters": OF_EXAMPLES[op],
    }
    assert check_op(op, file, callers=callers, sizes=(1, 3), empty=False, **simple).cases > 2


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
