"""Annotations of helpers: kinds of values are checked and convert nothing, in a file and read from a package."""

from __future__ import annotations

import json
from pathlib import Path

import numpy as np
import pytest
from kernel_harness import KernelFile

from einkorn.dsl.diagnostics.errors import CompileError
from einkorn.dsl.frontend.read_program import read_program


@pytest.fixture(scope="module")
def kernels() -> KernelFile:
    return KernelFile(Path(__file__).parent / "annotation_kernels.py")


@pytest.mark.parametrize("shape", [(5,), (2, 3)])
def test_arguments_that_fit_stay_as_they_are(kernels: KernelFile, shape: tuple[int, ...]) -> None:
    x = np.arange(6, dtype=np.float32)[: int(np.prod(shape))].reshape(shape)
    (got,) = kernels("annotations::kinds", x)
    assert np.array_equal(got, 2 * (-2 * x) + 2 * (3 * 6) + 1)


REFUSED = {
    "number_for_tensor": "argument 'x' of 'element' is declared as AnyTensor, not Float32",
    "float_for_index": "item 0 of what argument 'at' of 'element' is declared as Index, not the compile-time float 1.5",
    "number_for_indices": "argument 'at' of 'element' is declared as a tuple, not the compile-time int 1",
    "number_for_function": "argument 'f' of 'element' is declared as Callable, not Float32",
    "integer_for_float": "argument 'x' of 'nothing_is_converted' is declared as Floating, not Int64",
    "tuple_for_either": "argument 'scale' of 'element' is declared as Floating or None, not a tuple of 2",
    "number_for_dtype": "argument 'dtype' of 'as_dtype' is declared as AnyDType, not the compile-time int 32",
    "function_for_parts": "argument 'parts' of 'doubled' is declared as Parts, not the function 'lambda'",
    "string_in_field": "field 'at' of 'Pair' is declared as Index or None, not a string",
}


@pytest.mark.parametrize("name", REFUSED)
def test_what_does_not_fit_is_refused(kernels: KernelFile, name: str) -> None:
    dtype = np.int64 if name in ("integer_for_float", "number_for_dtype") else np.float32
    with pytest.raises(CompileError) as refused:
        kernels(f"annotations::{name}", np.ones(3, dtype))
    assert refused.value.code == "EK0202"
    assert refused.value.message == REFUSED[name]
    assert refused.value.place is not None and refused.value.place.file.endswith("annotation_kernels.py")


def test_the_index_of_foreach_is_a_tuple(kernels: KernelFile) -> None:
    x = np.ones((3, 2), np.float32)
    with pytest.raises(CompileError, match="declared as Index, not an index of 2 axes") as refused:
        kernels("annotations::indices_for_index", x)
    assert refused.value.hint == "write tuple[Index, ...], or no annotation"
    np.testing.assert_array_equal(kernels("annotations::indices_for_indices", x)[0], x)


def test_they_travel_in_packages(kernels: KernelFile) -> None:
    program = kernels.library.kernels["annotations::kinds"].portable
    text = json.dumps(program.to_json())
    assert read_program(json.loads(text)).to_json() == program.to_json()
    assert '"Kind"' in text and '"OneOf"' in text and '"TupleOf"' in text
