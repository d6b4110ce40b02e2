"""Dtypes of PyTorch: by name, without PyTorch where none is needed."""

from __future__ import annotations

import sys
from typing import Any

import pytest

from einkorn.dsl import DType
from einkorn.dsl.diagnostics.errors import DTypeError


class Foreign:
    """Prints as a dtype of PyTorch does."""

    def __init__(self, name: str) -> None:
        self.name = name

    def __str__(self) -> str:
        return self.name


@pytest.mark.parametrize("dtype", DType)
def test_a_dtype_is_known_by_its_name(dtype: DType) -> None:
    assert DType.from_torch(Foreign(f"torch.{dtype.name}")) is dtype


@pytest.mark.parametrize("name", ["torch.complex32", "float32", "torch.", "numpy.float32"])
def test_other_dtypes_are_refused(name: str) -> None:
    with pytest.raises(DTypeError):
        DType.from_torch(Foreign(name))


def test_without_pytorch(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setitem(sys.modules, "torch", None)  # what an import finds that fails
    with pytest.raises(RuntimeError, match="PyTorch"):
        DType.float32.to_torch()


def test_there_and_back(monkeypatch: pytest.MonkeyPatch) -> None:
    torch: Any = pytest.importorskip("torch")
    assert DType.bfloat16.to_torch() is torch.bfloat16 and DType.from_torch(torch.bool) is DType.bool
    with pytest.raises(DTypeError):
        DType.float6_e2m3fn.to_torch()
