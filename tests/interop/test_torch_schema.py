"""The signatures of ops as PyTorch writes schemas. PyTorch is not needed for it."""

from __future__ import annotations

from typing import TypeVar

import pytest

from einkorn.dsl import DType, Floating, InputTensor, OutputTensor, float32, foreach, int4, register
from einkorn.dsl.diagnostics.errors import GraphError
from einkorn.graph.interop.torch.schema import SCALAR_TYPES, function_schema, into_schema

from . import direct_kernels as k

T = TypeVar("T", bound=Floating)


@register("everything")
def everything(
    out: OutputTensor[T, "n (2*k)"],
    x: InputTensor[T, "n"],
    *,
    k: int = 3,
    axis: int = -1,
    low: float = float("-inf"),
    mode: str = 'a "b"\n',
    flag: bool = True,
    dtype: DType = DType.int32,
    must: int,
):
    foreach(out, lambda i, j: x[i])


@register("packed")
def packed(out: OutputTensor[float32, "n"], x: InputTensor[int4, "n"]):
    foreach(out, lambda i: x[i].cast(float32))


@register("sized")
def sized(out: OutputTensor[T, "n m"], x: InputTensor[T, "n"]):
    foreach(out, lambda i, j: x[i])


@pytest.mark.parametrize(
    ("kernel", "text"),
    [
        (k.add_one, "f(Tensor x) -> Tensor"),
        (k.scale_and_shift, "f(Tensor x, *, float scale=1.0, float shift=0.0) -> Tensor"),
        (k.axpy, "f(Scalar a, Tensor x, Tensor y) -> Tensor"),
        (k.follow, "f(Tensor(a0!) mean, Tensor x, float rate) -> ()"),
        (k.follow_and_return, "f(Tensor(a0!) mean, Tensor x, *, float rate=0.5) -> Tensor"),
        (k.halves, "f(Tensor x) -> (Tensor, Tensor)"),
        (k.tile_twice, "f(Tensor x, *, SymInt k) -> Tensor"),
        (k.total_of, "f(Tensor[] xs) -> Tensor"),
        (k.spread, "f(Tensor x, *, int count) -> Tensor[]"),
        (k.kept, "f(Tensor x) -> Tensor"),
        (
            everything,
            "f(Tensor x, *, SymInt k=3, int axis=-1, float? low=None, "
            'str mode="a \\"b\\"\\n", bool flag=True, ScalarType dtype=3, int must) -> Tensor',
        ),
    ],
)
def test_functions_of_inputs(kernel, text):
    assert function_schema(kernel.schema, "f") == text


def test_procedures_take_tensors_in_the_order_of_the_signature():
    assert into_schema(k.add_one.schema, "f") == "f(Tensor(a0!) out, Tensor x) -> ()"
    assert into_schema(k.converted.schema, "f") == "f(Tensor(a0!) out, Tensor x) -> ()"
    text = "f(Tensor(a0!) change, Tensor(a1!) mean, Tensor x, *, float rate=0.5) -> ()"
    assert into_schema(k.follow_and_return.schema, "f") == text
    assert into_schema(k.spread.schema, "f") == "f(Tensor(a0!)[] outs, Tensor x, *, int count) -> ()"


@pytest.mark.parametrize(
    ("kernel", "argument", "text"),
    [
        (k.converted, "out", "has a size or dtype that no input and no parameter determines"),
        (sized, "out", "has a size or dtype that no input and no parameter determines"),
        (packed, "x", "has elements of int4, which PyTorch does not have"),
    ],
)
def test_what_pytorch_cannot_say(kernel, argument, text):
    with pytest.raises(GraphError, match=text) as caught:
        function_schema(kernel.schema, "f")
    assert (caught.value.code, caught.value.argument) == ("EK0880", argument)


def test_the_numbers_of_dtypes_are_pytorchs():
    torch = pytest.importorskip("torch")
    for dtype, number in SCALAR_TYPES.items():
        theirs = getattr(torch, dtype.name)
        assert torch.ops.aten._to_copy.default(torch.zeros(1), dtype=number).dtype is theirs
