"""ONNX models whose calls have axes without elements, and limits that come with a call, compared with ONNX Runtime."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any

import numpy as np
import pytest

pytest.importorskip("onnxruntime")

from support.onnx_runtime import same

Arrays = list[np.ndarray[Any, Any]]
DTYPES = {"float": np.float32, "double": np.float64, "int32": np.int32, "int64": np.int64, "uint8": np.uint8}


def rows(*sizes: int, dtype: Any = np.float32) -> list[Arrays]:
    random = np.random.default_rng(0)
    return [[(random.standard_normal((size, 4)) * 9).astype(dtype)] for size in sizes]


@pytest.mark.parametrize("op", ["ReduceMax", "ReduceMin"])
@pytest.mark.parametrize("name", sorted(DTYPES))
def test_extremes_of_no_elements_are_the_ends_of_the_dtype(op: str, name: str) -> None:
    calls = rows(0, 1, 3, dtype=DTYPES[name])
    same(f"g ({name}[n, 4] x) => ({name}[1, 4] y) <int64[1] a = {{0}}> {{ y = {op}(x, a) }}", calls, interpret=True)
    same(f"g ({name}[n, 4] x) => ({name}[1, 1] y) {{ y = {op}(x) }}", calls, interpret=True)


@pytest.mark.parametrize("op", ["ReduceMax", "ReduceMin"])
def test_extremes_of_no_elements_in_compiled_code(op: str) -> None:
    text = f"""
    g (float[n, 4] x) => (float[4] y, float[n] z, float s) <int64[1] a = {{0}}, int64[1] b = {{1}}> {{
        twice = Add(x, x)
        y = {op}<keepdims = 0>(twice, a)
        z = {op}<keepdims = 0>(twice, b)
        s = {op}<keepdims = 0>(twice)
    }}"""
    same(text, rows(0, 1, 3, 40))


def test_detections_of_which_none_is_left() -> None:
    """Boxes of several classes are moved apart by the largest coordinate, as torchvision's models do."""
    text = """
    g (float[n, 4] x) => (float[m, 4] moved, int64[k, 3] chosen) <int64[1] last = {1}, int64[1] first = {0},
        int64[2] outer = {0, 1}, float limit = {0.5}, float one = {1}, int64[1] most = {3}, float[1] overlap = {0.5}> {
        best = ReduceMax<keepdims = 0>(x, last)
        good = Greater(best, limit)
        found = NonZero(good)
        places = Squeeze(found, first)
        boxes = Gather(x, places)
        end = ReduceMax<keepdims = 0>(boxes)
        apart = Add(end, one)
        class = Cast<to = 1>(places)
        column = Unsqueeze(class, last)
        steps = Mul(column, apart)
        moved = Add(boxes, steps)
        batch = Unsqueeze(moved, first)
        scores = Gather(best, places)
        shaped = Unsqueeze(scores, outer)
        chosen = NonMaxSuppression(batch, shaped, most, overlap)
    }"""
    low = [[arrays[0] - 100] for arrays in rows(1, 5)]
    same(text, [*rows(0, 1, 5, 40), *low])


@pytest.mark.parametrize("axis", [0, 1])
def test_hardmax_of_no_elements(axis: int) -> None:
    same(f"g (float[n, 4] x) => (float[n, 4] y) {{ y = Hardmax<axis = {axis}>(x) }}", rows(0, 1, 3), interpret=True)


def split(*sizes: int) -> Arrays:
    return [rows(sum(sizes))[0][0], np.array(sizes, np.int64)]


def test_parts_whose_sizes_come_with_a_call() -> None:
    text = "g (float[n, 4] x, int64[2] s) => (float[a, 4] y, float[b, 4] z) { y, z = Split<axis = 0>(x, s) }"
    same(text, [split(3, 2), split(0, 4), split(4, 0), split(0, 0)])


def boxes(number: int, most: int, score: float) -> Arrays:
    random = np.random.default_rng(number)
    corners, scores = random.random((1, number, 4), np.float32), random.random((1, 2, number), np.float32)
    return [corners, scores, np.array(most), np.array([0.5], np.float32), np.array(score, np.float32)]


@pytest.mark.parametrize(
    ("inputs", "taken"), [("m, i, t", (2, 3, 4)), ("m", (2,)), ("m, , t", (2, 4)), (", i", (3,)), ("m, i", (2, 3))]
)
def test_limits_of_boxes_come_with_a_call(inputs: str, taken: Sequence[int]) -> None:
    declared = {2: "int64 m", 3: "float[1] i", 4: "float t"}
    more = ", ".join(declared[k] for k in taken)
    text = f"""g (float[1, n, 4] b, float[1, 2, k] s, {more}) => (int64[r, 3] y) {{
        y = NonMaxSuppression(b, s, {inputs}) }}"""
    cases = ((0, 3, 0.0), (3, 0, 0.0), (12, 2, 0.3), (12, 9, 2.0), (1, 1, 0.0), (12, -1, 0.1))
    calls = [boxes(*each) for each in cases]
    same(text, [[*each[:2], *(each[k] for k in taken)] for each in calls], interpret=True)


@pytest.mark.parametrize("most", [0, 2, (1 << 63) - 1])
def test_a_known_number_of_boxes(most: int) -> None:
    """PyTorch exports the largest int64."""
    text = f"""g (float[1, n, 4] b, float[1, 2, k] s) => (int64[r, 3] y) <int64[1] m = {{{most}}}, float[1] i = {{0.5}}>
        {{ y = NonMaxSuppression(b, s, m, i) }}"""
    same(text, [boxes(number, 0, 0)[:2] for number in (0, 1, 12)], interpret=True)
