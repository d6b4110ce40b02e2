"""Groups without reshapes: which axes are one, what remains, and that no bit differs."""

from __future__ import annotations

import math
from pathlib import Path
from typing import Any, TypeVar

import numpy as np
import pytest

from einkorn.compiler import groups
from einkorn.compiler.sharing import SharedGroup, shared_groups
from einkorn.dsl import Floating, InputTensor, OutputTensor, float32, foreach, register
from einkorn.dsl.contract.unit import EntrySpec
from einkorn.graph import CPU, DeviceRef, Dim, DType, Graph, InferenceSession, TensorType, ops

F = TypeVar("F", bound=Floating)
Array = np.ndarray[Any, Any]


def typed(*shape: Any) -> TensorType:
    return TensorType(DType.float32, list(shape), DeviceRef.CPU())


@pytest.fixture(autouse=True)
def empty_cache(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """All is compiled here."""
    monkeypatch.setenv("EINKORN_CACHE_DIR", str(tmp_path))


def loaded(
    forward: Any, types: list[TensorType], monkeypatch: pytest.MonkeyPatch, *extensions: Any
) -> tuple[Any, list[SharedGroup]]:
    """A model, and the groups that it was compiled as."""
    seen: list[SharedGroup] = []

    def record(spec: EntrySpec) -> list[SharedGroup]:
        found = shared_groups(spec)
        seen.extend(found)
        return found

    monkeypatch.setattr(groups, "shared_groups", record)
    return InferenceSession(devices=[CPU()]).load(
        Graph("reshapes", forward, input_types=types, custom_extensions=list(extensions))
    ), seen


def names(group: SharedGroup) -> list[str]:
    return [node.kernel.schema.name for node in group.group.group.nodes]


def shapes(group: SharedGroup) -> set[Any]:
    return {shape for node in group.group.group.nodes for _, shape in node.outputs}


def norm(x: Any, scale: Any, gain: Any, groups: int) -> Any:
    """As networks that were exported write a norm of groups of channels, without its statistics."""
    batch, channels, height, width = x.shape
    y = ops.reshape(x, [batch, groups, int(channels) // groups * int(height) * int(width)]) * scale
    y = ops.reshape(y * 0.5, [batch, channels, height, width])
    return ops.relu(y * ops.reshape(gain, [channels, 1, 1]) + 1.0)


def test_norms_of_other_sizes_share_code(monkeypatch: pytest.MonkeyPatch) -> None:
    sizes = [(64, 16, 16), (96, 8, 8), (128, 32, 4)]

    def forward(*inputs: Any) -> Any:
        return tuple(
            norm(x, scale, gain, 32) for x, scale, gain in zip(inputs[::3], inputs[1::3], inputs[2::3], strict=True)
        )

    types = [t for c, h, w in sizes for t in (typed("n", c, h, w), typed("n", 32, 1), typed(c))]
    model, found = loaded(forward, types, monkeypatch)
    assert len(found) == len(sizes)
    assert len({each.group.key for each in found}) == 1
    assert not any("reshape" in names(each) for each in found)
    rng = np.random.default_rng(0)
    for n in (1, 3):
        arrays = [rng.standard_normal([n if s == "n" else int(s) for s in t.shape]).astype(np.float32) for t in types]
        for k, result in enumerate(model.execute(*arrays)):
            x, scale, gain = arrays[3 * k : 3 * k + 3]
            y = (x.reshape(n, 32, -1) * scale * np.float32(0.5)).reshape(x.shape) * gain[:, None, None] + np.float32(1)
            assert np.array_equal(result.to_numpy(), np.maximum(y, 0))


def test_neighbours_become_one_axis(monkeypatch: pytest.MonkeyPatch) -> None:
    """[n, 4, 6, 5] is [n, 2, 2, 30] next to [n, 2, 60] and [4, 1, 1]."""

    def forward(x: Any, scale: Any, gain: Any) -> Any:
        return norm(x, scale, gain, 2), norm(x, scale * 2.0, gain, 2)

    _, found = loaded(forward, [typed("n", 4, 6, 5), typed("n", 2, 1), typed(4)], monkeypatch)
    ranks = {len(shape) for each in found for shape in shapes(each)}
    assert ranks == {4}
    assert {shape[-1] for each in found for shape in shapes(each)} <= {1, 30}


def test_what_lies_in_memory_is_read_and_written_in_the_other_shape(monkeypatch: pytest.MonkeyPatch) -> None:
    def forward(x: Any, y: Any) -> Any:
        largest = ops.reshape(ops.max(ops.reshape(x, [24]), axis=0), [1, 1])
        product = ops.reshape(ops.reshape(x, [4, 6]) @ y + 1.0, [2, 2, 5])
        return largest, product

    model, found = loaded(forward, [typed(2, 3, 4), typed(6, 5)], monkeypatch)
    assert not any("reshape" in names(each) for each in found)
    rng = np.random.default_rng(1)
    x, y = rng.standard_normal((2, 3, 4)).astype(np.float32), rng.standard_normal((6, 5)).astype(np.float32)
    largest, product = (each.to_numpy() for each in model.execute(x, y))
    assert largest.tolist() == [[x.max()]]
    assert np.allclose(product, (x.reshape(4, 6) @ y + 1).reshape(2, 2, 5), atol=1e-5)
    views = model.execute(np.asarray(x.transpose(0, 2, 1).copy()).transpose(0, 2, 1), y[::-1][::-1])
    assert np.array_equal(views[1].to_numpy(), product)


# Shapes of as many elements: cut in each other, of no common divisor, with zeros and ones.
PAIRS = [
    ((4, 6), (2, 12)),
    ((4, 6), (6, 4)),
    ((4, 6), (24,)),
    ((8, 3), (2, 4, 3)),
    ((1, 5, 1), (5,)),
    ((2, 9), (6, 3)),
    ((0, 3), (3, 0)),
    ((1, 1), (1,)),
    ((30, 7), (2, 3, 5, 7)),
]


@pytest.mark.parametrize(("first", "second"), PAIRS)
def test_chains_through_reshapes_have_the_bits_of_their_ops(first: Any, second: Any) -> None:
    """A chain from one shape to another one and back, with what is repeated along single axes on both sides."""
    rng = np.random.default_rng(len(first))
    x = rng.standard_normal(first).astype(np.float32)

    def along(shape: Any, axis: int) -> Array:
        return rng.standard_normal([n if k == axis else 1 for k, n in enumerate(shape)]).astype(np.float32)

    left, right = [along(first, k) for k in range(len(first))], [along(second, k) for k in range(len(second))]

    def forward(x: Any, *others: Any) -> Any:
        for other in others[: len(left)]:
            x = x * other
        x = ops.reshape(x, list(second))
        for other in others[len(left) :]:
            x = x - other
        return ops.reshape(x, list(first)) * others[0], ops.reshape(x, [math.prod(first)]) + 1.0

    expected = x
    for other in left:
        expected = expected * other
    expected = expected.reshape(second)
    for other in right:
        expected = expected - other
    inputs = [x, *left, *right]
    model = InferenceSession(devices=[CPU()]).load(
        Graph("chain", forward, input_types=[typed(*each.shape) for each in inputs])
    )
    back, flat = (each.to_numpy() for each in model.execute(*inputs))
    assert np.array_equal(back, expected.reshape(first) * left[0])
    assert np.array_equal(flat, expected.reshape(-1) + np.float32(1))


@pytest.mark.parametrize("size", ["n", 4])
def test_a_tensor_along_two_axes_is_read_at_two_indices(size: Any) -> None:
    """Of one value, that is computed where it is read, axes of the result are not one axis."""

    def forward(x: Any) -> Any:
        v = x * x
        column = ops.reshape(v, [size, 1])
        both = ops.reshape(column - v, [size, 1, size])
        return column - v, ops.reshape(column * v, [size * size]) * 2.0, both + ops.reshape(v, [size, 1]), ops.sum(x)

    if size == "n":
        size = Dim("n")
    model = InferenceSession(devices=[CPU()]).load(Graph("outer", forward, input_types=[typed(size)]))
    x = np.random.default_rng(2).standard_normal(4).astype(np.float32)
    v = x * x
    outer = v[:, None] - v
    expected = [outer, (v[:, None] * v).reshape(-1) * np.float32(2), outer[:, None, :] + v[:, None]]
    for result, wanted in zip(model.execute(x), expected, strict=False):
        assert np.array_equal(result.to_numpy(), wanted)


@register("halved_gate")
def halved_gate(out: OutputTensor[F, "*s"], x: InputTensor[F, "*s"], weight: F, *, factor: float = 0.5):
    half = F(factor)

    def gate(i):
        if x.dtype == float32:
            return x[i] * half * weight
        return x[i]

    foreach(out, gate)


def test_kernels_that_are_not_built_in_and_functions_share_axes(monkeypatch: pytest.MonkeyPatch) -> None:
    """Which kernels compute elements at their places is read off their text: no list names them."""

    def forward(x: Any, weight: Any) -> Any:
        gated = ops.custom("halved_gate", CPU(), [ops.exp(x), weight], [x.type])[0]
        y = ops.silu(ops.reshape(gated, [2, 12, 5]))
        return ops.reshape(ops.where(y > 0.5, y, -y), [24, 5]) * x, ops.sum(y)

    model, made = loaded(forward, [typed(24, 5), typed()], monkeypatch, halved_gate)
    assert not any("reshape" in names(each) for each in made)
    x = np.random.default_rng(3).standard_normal((24, 5)).astype(np.float32)
    results = [each.to_numpy() for each in model.execute(x, np.float32(3))]
    gated = np.exp(x.astype(np.float64)) * 0.5 * 3
    y = gated / (1 + np.exp(-gated))
    assert np.allclose(results[0], np.where(y > 0.5, y, -y) * x, rtol=1e-5, atol=1e-6)
    assert np.allclose(results[1], y.reshape(2, 12, 5).sum(-1, keepdims=True), rtol=1e-5)
