"""Kernels for tests of staging: schemas as the library declares them, without bodies."""

from __future__ import annotations

from collections.abc import Callable, Iterable, Sequence
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any

import pytest

from einkorn.dsl.package.library import LoadedKernel
from einkorn.dsl.signature.schema import OpSchema, Parameter, Role, TensorArgument
from einkorn.dsl.types.dtype import ANY, NUMERIC, DType
from einkorn.graph.staging.kernels import shipped_kernel


@dataclass(frozen=True)
class FakeKernel:
    schema: OpSchema
    origin: str = "<test>"
    shipped: bool = False
    findings: tuple[Any, ...] = ()


def make_schema(
    name: str,
    out: str,
    *inputs: str,
    allowed: Sequence[DType] = NUMERIC,
    parameters: Sequence[tuple[str, str]] = (),
    role: Role = Role.INPUT,
) -> OpSchema:
    """`make_schema("add", "T *s", "T *s", "T *s")`: each tensor as its dtype, a blank, its dims."""

    def argument(label: str, role: Role, text: str) -> TensorArgument:
        dtype, dims = text.split(" ", 1) if " " in text else (text, "")
        return TensorArgument(label, role, dtype if dtype in ("T", "U") else DType[dtype], dims)

    outputs = [argument(f"out{k or ''}", Role.OUTPUT, text) for k, text in enumerate(out.split(" -> ")) if text]
    given = [argument(label, role, text) for label, text in zip("xyzw", inputs, strict=False)]
    return OpSchema(
        name,
        (*outputs, *given),
        tuple(Parameter(label, kind, required=True) for label, kind in parameters),
        (("T", tuple(allowed)), ("U", ANY)),
    )


@dataclass
class FakeSource:
    """A `KernelSource` of the shipped kernels, and of schemas for custom ops."""

    custom: dict[str, OpSchema] = field(default_factory=dict)
    paths: tuple[str, ...] = ()

    def builtin(self, family: str, name: str) -> LoadedKernel:
        return shipped_kernel(family, name)

    def chosen(self, family: str, name: str, inputs: Any, outputs: Any) -> LoadedKernel:
        return self.builtin(family, name)

    def find(self, name: str) -> FakeKernel | None:
        return FakeKernel(self.custom[name]) if name in self.custom else None

    def names(self) -> Iterable[str]:
        return self.custom

    def searched(self) -> Iterable[str]:
        return self.paths


@pytest.fixture
def schema() -> Callable[..., OpSchema]:
    """`make_schema`, for tests that bring their own ops."""
    return make_schema


@pytest.fixture
def kernels(monkeypatch: pytest.MonkeyPatch) -> FakeSource:
    """Every graph made in the test finds its kernels here."""
    source = FakeSource()

    def open_kernels(paths: Sequence[Path], library: object) -> FakeSource:
        source.paths = tuple(map(str, paths))
        return source

    monkeypatch.setattr("einkorn.graph.staging.graph.open_kernels", open_kernels)
    return source
