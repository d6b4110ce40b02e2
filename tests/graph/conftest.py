"""Kernels for tests of staging: schemas as the library declares them, without bodies."""

from __future__ import annotations

from collections.abc import Callable, Iterable, Sequence
from dataclasses import dataclass, field
from pathlib import Path

import pytest

from einkorn.dsl.diagnostics.errors import PackageError
from einkorn.dsl.signature.schema import OpSchema, Parameter, Role, TensorArgument
from einkorn.dsl.types.dtype import ANY, FLOATING, NUMERIC, DType


@dataclass(frozen=True)
class FakeKernel:
    schema: OpSchema
    origin: str = "<test>"
    shipped: bool = False


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


def _builtins() -> dict[tuple[str, str], OpSchema]:
    table: dict[tuple[str, str], OpSchema] = {}

    def row(family: str, names: str, *tensors: str, **keywords: object) -> None:
        for name in names.split():
            table[family, name] = make_schema(name, *tensors, **keywords)  # type: ignore[arg-type]

    axis = [("axis", "int")]
    row("elementwise", "add sub mul floordiv mod pow maximum minimum", "T *s", "T *s", "T *s")
    row("elementwise", "div", "T *s", "T *s", "T *s", allowed=FLOATING)
    row("elementwise", "equal not_equal", "bool *s", "T *s", "T *s", allowed=ANY)
    row("elementwise", "less less_equal greater greater_equal", "bool *s", "T *s", "T *s")
    row("elementwise", "logical_and logical_or logical_xor", "bool *s", "bool *s", "bool *s")
    row("elementwise", "logical_not", "bool *s", "bool *s")
    row("elementwise", "negate abs relu", "T *s", "T *s")
    row("elementwise", "exp log sqrt rsqrt sin cos tanh erf sigmoid silu floor ceil round trunc", "T *s", "T *s")
    row("elementwise", "log1p acos atanh", "T *s", "T *s")
    row("elementwise", "is_nan is_inf", "bool *s", "T *s", allowed=FLOATING)
    row("elementwise", "gelu", "T *s", "T *s", allowed=FLOATING, parameters=[("approximate", "str")])
    row("elementwise", "where", "T *s", "bool *s", "T *s", "T *s", allowed=ANY)
    row("elementwise", "cast", "U *s", "T *s", allowed=ANY, parameters=[("dtype", "dtype")])
    names = "reduce_sum reduce_mean reduce_max reduce_min"
    row("reduction", names, "T *a{axis} 1 *b", "T *a{axis} n *b", parameters=axis)
    row("reduction", "argmax argmin", "int64 *a{axis} 1 *b", "T *a{axis} n *b", parameters=axis)
    row("reduction", "softmax logsoftmax", "T *s", "T *s", allowed=FLOATING, parameters=axis)
    row("matmul", "matmul", "T m n", "T m k", "T k n")
    row("matmul", "batch_matmul", "T b m n", "T b m k", "T b k n")
    row("movement", "reshape broadcast_to", "T *t", "T *s", allowed=ANY)
    row("movement", "permute", "T *t", "T *s", allowed=ANY, parameters=[("order", "str")])
    row("movement", "slice", "T *t", "T *s", allowed=ANY, parameters=[("starts", "str"), ("steps", "str")])
    row(
        "movement",
        "concat2",
        "T *a{axis} (m + n) *b",
        "T *a{axis} m *b",
        "T *a{axis} n *b",
        allowed=ANY,
        parameters=axis,
    )
    return table


BUILTINS = _builtins()


@dataclass
class FakeSource:
    """A `KernelSource` of schemas."""

    custom: dict[str, OpSchema] = field(default_factory=dict)
    paths: tuple[str, ...] = ()

    def builtin(self, family: str, name: str) -> FakeKernel:
        if (family, name) not in BUILTINS:
            raise PackageError(f"no builtin {family}/{name}", code="EK0501")
        return FakeKernel(BUILTINS[family, name])

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
