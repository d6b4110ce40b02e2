"""Slices of ONNX models whose lengths change from round to round of a loop, compared with ONNX Runtime."""

from __future__ import annotations

from typing import Any

import numpy as np
import pytest

pytest.importorskip("onnxruntime")

from onnx import parser
from support.onnx_runtime import HEADER, same

from einkorn.dsl.diagnostics.errors import EinkornError, GraphError
from einkorn.graph import InferenceSession, from_onnx

Arrays = list[np.ndarray[Any, Any]]


def bags(*starts: int, size: int = 7) -> Arrays:
    """A table, the rows that are taken, where each bag begins and ends, and weights of the rows."""
    random = np.random.default_rng(size)
    table = random.standard_normal((5, 4)).astype(np.float32)
    ends = np.array([*starts[1:], size], np.int64)
    weights = random.random((size, 1), np.float32)
    return [table, random.integers(0, 5, size), np.array(starts, np.int64), ends, weights]


def loop(body: str, part: str, result: str) -> str:
    """A model whose rounds slice the rows of a bag, and give a result of each."""
    return f"""
    g (float[5, 4] table, int64[n] rows, int64[k] starts, int64[k] ends, float[n, 1] weights) => ({result} y) <
        bool yes = {{1}}, int64[1] first = {{0}}, int64[2] both = {{0, 1}}, int64 two = {{2}}> {{
        size = Shape<start = 0, end = 1>(starts)
        n_ = Squeeze(size)
        y = Loop<body = round (int64 i, bool goes) => (bool again, {part} out) {{
            again = Identity(goes)
            start = Gather(starts, i)
            begin = Unsqueeze(start, first)
            stop = Gather(ends, i)
            end = Unsqueeze(stop, first)
            bag = Slice(rows, begin, end, first)
            chosen = Gather(table, bag)
            {body}
        }}>(n_, yes)
    }}"""


CALLS = [bags(0, 2, 5), bags(0), bags(0, 0, 7, 7), bags(0, 1, size=1), bags(3, 1, size=9)]


@pytest.mark.parametrize("reduction", ["Sum", "Mean", "Max", "Min", "Prod", "L1", "L2", "SumSquare", "LogSumExp"])
def test_reductions_of_bags(reduction: str) -> None:
    """What PyTorch exports for EmbeddingBag; of an empty bag, too."""
    text = loop(f"out = Reduce{reduction}<keepdims = 0>(chosen, first)", "float[4]", "float[k, 4]")
    same(text, CALLS if reduction != "LogSumExp" else [bags(0, 2, 5), bags(0)], tolerance=1e-4)
    both = loop(f"out = Reduce{reduction}(chosen, both)", "float[1, 1]", "float[k, 1, 1]")
    same(both, [bags(0, 2, 5), bags(0)], tolerance=1e-4)


def test_elementwise_ops_between_a_slice_and_a_reduction() -> None:
    body = """
        own = Slice(weights, begin, end, first)
        scaled = Mul(chosen, own)
        doubled = Add(scaled, scaled)
        row = Gather(table, two)
        moved = Sub(doubled, row)
        bent = Tanh(moved)
        wide = Cast<to = 11>(bent)
        out = ReduceSum<keepdims = 0>(wide, first)"""
    same(loop(body, "double[4]", "double[k, 4]"), CALLS)


def test_a_reduction_over_another_axis_keeps_the_slice() -> None:
    body = """
        last = Constant<value_ints = [1]>()
        sums = ReduceSum<keepdims = 0>(chosen, last)
        out = ReduceMax<keepdims = 0>(sums)"""
    same(loop(body, "float", "float[k]"), CALLS)


def test_slices_of_any_lengths_are_joined_after_the_loop() -> None:
    text = """
    g (float[n, 4] x, int64[k] lengths) => (float[m, 4] y, int64 number) <bool yes = {1}, int64[1] zero = {0}> {
        size = Shape<start = 0, end = 1>(lengths)
        n_ = Squeeze(size)
        out = SequenceEmpty()
        items = Loop<body = round (int64 i, bool goes, seq(float[a, 4]) s) => (bool again, seq(float[a, 4]) t) {
            again = Identity(goes)
            length = Gather(lengths, i)
            end = Unsqueeze(length, zero)
            part = Slice(x, zero, end, zero)
            twice = Add(part, part)
            t = SequenceInsert(s, twice)
        }>(n_, yes, out)
        y = ConcatFromSequence<axis = 0>(items)
        number = SequenceLength(items)
    }"""
    x = np.random.default_rng(0).standard_normal((5, 4)).astype(np.float32)
    same(text, [[x, np.array(each)] for each in ([1, 5, 0, 2], [9], [0, 0, 3])])


def test_slices_of_different_lengths_have_to_be_equal() -> None:
    body = """
        from_begin = Slice(rows, first, end, first)
        others = Gather(table, from_begin)
        sum = Add(chosen, others)
        out = ReduceSum<keepdims = 0>(sum, first)"""
    text = loop(body, "float[4]", "float[k, 4]")
    same(text, [bags(0), bags(0, size=3)])
    model = InferenceSession().load(from_onnx(parser.parse_model(HEADER + text)))
    with pytest.raises(EinkornError) as error:
        model.execute(*bags(0, 3))
    assert "slices of its inputs have to have equal lengths" in error.value.message


def test_what_takes_no_such_slice() -> None:
    text = loop(
        "order = Softmax<axis = 0>(chosen) out = ReduceSum<keepdims = 0>(order, first)", "float[4]", "float[k, 4]"
    )
    with pytest.raises(GraphError) as refused:
        from_onnx(parser.parse_model(HEADER + text))
    assert refused.value.code == "EK0529"
    assert "(Softmax): takes no slice whose length changes from round to round of a loop" in refused.value.message
