"""References: what `@op.reference` takes, what a library keeps of it, and what it returns."""

from __future__ import annotations

from pathlib import Path
from typing import Any

import numpy as np
import pytest

from einkorn.dsl import InputTensor, MutableInputTensor, OutputTensor, float32, foreach, register
from einkorn.dsl.diagnostics.errors import CompileError, EinkornError
from einkorn.dsl.package.library import load_library

KERNELS = """
import numpy as np
from einkorn.dsl import InputTensor, OutputTensor, float32, foreach, register


@register("scaled")
def scaled(out: OutputTensor[float32, "n"], x: InputTensor[float32, "n"], *, by: float = 2.0, block: int = 64):
    foreach(out, lambda i: x[i] * by)


@scaled.reference
def scaled_reference(x, *, by):
    return x * np.float32(by)


@register("plain")
def plain(out: OutputTensor[float32, "n"], x: InputTensor[float32, "n"]):
    foreach(out, lambda i: x[i])
"""


def make() -> Any:
    @register("op")
    def op(
        out: OutputTensor[float32, "n"],
        y: MutableInputTensor[float32, "n"],
        x: InputTensor[float32, "n"],
        *,
        block: int = 4,
    ) -> None:
        foreach(out, lambda i: x[i])

    return op


def test_a_library_keeps_the_reference_and_a_package_does_not(tmp_path: Path) -> None:
    (tmp_path / "kernels.py").write_text(KERNELS)
    library = load_library(tmp_path)
    assert set(library.kernels) == {"scaled", "plain"}
    reference = library.kernels["scaled"].reference
    assert reference is not None
    (result,) = reference(np.float32([1, 2]), by=3.0, block=128)  # what it does not take is left out
    np.testing.assert_array_equal(result, np.float32([3, 6]))
    assert library.kernels["plain"].reference is None
    program = library.kernels["scaled"].portable
    assert "reference" not in str(program.to_json())


def test_what_a_reference_returns_is_counted() -> None:
    op = make()

    @op.reference
    def one(y: Any, x: Any) -> Any:
        y += x
        return y * 2

    y, x = np.float32([1, 2]), np.float32([3, 4])
    (out,) = op.numpy_reference(y, x)
    assert y.tolist() == [4, 6] and out.tolist() == [8, 12]

    @op.reference
    def two(*inputs: Any, **parameters: Any) -> Any:
        assert parameters == {"block": 5} and len(inputs) == 2
        return inputs

    with pytest.raises(EinkornError, match="returns 2 arrays, the op has 1") as caught:
        op.numpy_reference(y, x, block=5)
    assert caught.value.code == "EK0341"


def _misfits() -> list[tuple[Any, str]]:
    def few(y: Any) -> None: ...
    def many(y: Any, x: Any, z: Any) -> None: ...
    def strange(y: Any, x: Any, *, size: Any) -> None: ...
    def op(y: Any, x: Any) -> None: ...

    return [
        (few, "takes other inputs than the op, whose inputs are y, x"),
        (many, "takes other inputs than the op"),
        (strange, "takes 'size', which is not a parameter of the op"),
        (op, "has the name of the kernel"),
        (np.add, "is not a function"),
    ]


@pytest.mark.parametrize(("function", "message"), _misfits())
def test_a_reference_that_does_not_fit_is_refused(function: Any, message: str) -> None:
    with pytest.raises(CompileError, match=message) as caught:
        make().reference(function)
    assert caught.value.code == "EK0340" and caught.value.place is not None
