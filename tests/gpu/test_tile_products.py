"""Products of graphs on tensor cores: in the interpreter of PTX and on a simulated GPU, against float64.

The bound is that of so many additions in float32, and of rounding the result; see docs/numerics.md.
"""

from __future__ import annotations

from collections.abc import Callable, Iterator
from typing import Any

import ml_dtypes
import numpy as np
import pytest
from support import graphs
from support.launching_device import launching_kind
from support.ptx_device import run_ptx

from einkorn.dsl import DType
from einkorn.graph import Accelerator, Buffer, DeviceRef, Graph, InferenceSession, TensorType, ops
from einkorn.graph.driver import devices
from einkorn.stdlib.kernels.attention import _reference

Array = np.ndarray[Any, Any]
GPU = DeviceRef.GPU()
BF16: Any = ml_dtypes.bfloat16
F16 = np.float16


@pytest.fixture(scope="module", autouse=True)
def own_cache(tmp_path_factory: pytest.TempPathFactory) -> Iterator[None]:
    with graphs.cache_in(tmp_path_factory.mktemp("cache")):
        yield


def on_ptx(monkeypatch: pytest.MonkeyPatch, target: str = "sm_80") -> Any:
    monkeypatch.setattr(devices, "KINDS", [*devices.KINDS, launching_kind(run_ptx, target)])
    return Accelerator(0)


def result(device: Any, build: Callable[..., Any], *arrays: Array, shapes: Any = ()) -> Array:
    """What a graph gives on a device; `shapes` names sizes that are known at the call only."""
    types = [
        TensorType(DType.from_numpy(array.dtype), shape, GPU)
        for array, shape in zip(arrays, shapes or [array.shape for array in arrays], strict=True)
    ]
    with Graph("product", input_types=types) as graph:
        graph.output(build(*graph.inputs))
    model = InferenceSession(devices=[device]).load(graph)
    (given,) = model.execute(*(Buffer.from_numpy(array).to(device) for array in arrays))
    return np.array(given.to_numpy())


def drawn(dtype: Any, *shape: int) -> Array:
    return np.random.default_rng(sum(shape)).standard_normal(shape).astype(dtype)


def check(found: Array, wanted: Array, terms: Array, depth: int) -> None:
    """Compares with float64; `terms` is the sum of the absolute values of what is added up."""
    assert found.shape == wanted.shape
    unit = float(ml_dtypes.finfo(found.dtype).eps)
    bound = depth * 2.0**-23 * terms + unit * np.abs(wanted) + 1e-30
    off = np.abs(found.astype(np.float64) - wanted)
    assert (off <= bound).all(), (off / bound).max()


def check_product(found: Array, a: Array, b: Array) -> None:
    wide_a, wide_b = a.astype(np.float64), b.astype(np.float64)
    check(found, wide_a @ wide_b, np.abs(wide_a) @ np.abs(wide_b), a.shape[-1])


TARGETS = ("sm_80", "sm_90a", "sm_100a")  # copies of pieces and mma.sync; tensor maps with wgmma, with tcgen05
SIZES = ((64, 64, 64), (1, 40, 33), (17, 9, 5), (65, 70, 40), (33, 128, 64), (130, 72, 8), (3, 5, 0))


@pytest.mark.parametrize(("m", "n", "k"), SIZES)
@pytest.mark.parametrize("dtype", (BF16, F16))
def test_matmul_in_ptx(monkeypatch: pytest.MonkeyPatch, dtype: Any, m: int, n: int, k: int) -> None:
    a, b = drawn(dtype, m, k), drawn(dtype, k, n)
    check_product(result(on_ptx(monkeypatch), ops.matmul, a, b), a, b)


@pytest.mark.parametrize(("m", "n", "k"), [(65, 70, 40), (130, 72, 8)])
def test_matmul_of_four_warps_in_ptx(monkeypatch: pytest.MonkeyPatch, m: int, n: int, k: int) -> None:
    a, b = drawn(BF16, m, k), drawn(BF16, k, n)
    check_product(result(on_ptx(monkeypatch, "sm_90a"), ops.matmul, a, b), a, b)
    turned = np.ascontiguousarray(b.T)
    found = result(on_ptx(monkeypatch, "sm_90a"), lambda x, y: x @ y.transpose(0, 1), a, turned)
    check_product(found, a, b)


@pytest.mark.parametrize("like", ("sm_80", "sm_90a"))
@pytest.mark.parametrize("seed", (0, 1))
def test_matmul_on_a_simulated_gpu(like: str, seed: int) -> None:
    """With all checks, in two orders of the threads."""
    device = Accelerator("sim", like=like, seed=seed, checks="all")
    a, b = drawn(BF16, 33, 40), drawn(BF16, 40, 72)
    check_product(result(device, ops.matmul, a, b), a, b)


@pytest.mark.parametrize("target", TARGETS)
def test_matmul_of_any_sizes(monkeypatch: pytest.MonkeyPatch, target: str) -> None:
    """Sizes that are known at the call choose among three kernels."""
    device = on_ptx(monkeypatch, target)
    types = [TensorType(DType.bfloat16, shape, GPU) for shape in (["m", "k"], ["k", "n"])]
    with Graph("product", input_types=types) as graph:
        graph.output(ops.matmul(*graph.inputs))
    model = InferenceSession(devices=[device]).load(graph)
    for m, n, k in ((1, 64, 64), (16, 3, 2), (20, 24, 0), (40, 40, 70), (40, 24, 520), (0, 3, 3)):
        a, b = drawn(BF16, m, k), drawn(BF16, k, n)
        (given,) = model.execute(*(Buffer.from_numpy(array).to(device) for array in (a, b)))
        check_product(np.array(given.to_numpy()), a, b)


@pytest.mark.parametrize("target", TARGETS)
def test_batches(monkeypatch: pytest.MonkeyPatch, target: str) -> None:
    device = on_ptx(monkeypatch, target)
    a, b = drawn(BF16, 2, 3, 17, 24), drawn(BF16, 2, 3, 24, 20)
    check_product(result(device, ops.matmul, a, b), a, b)
    turned = np.ascontiguousarray(b.swapaxes(-1, -2))
    found = result(device, lambda x, y: x @ y.transpose(-1, -2), a, turned)
    check_product(found, a, b)


def test_rows_of_several_axes(monkeypatch: pytest.MonkeyPatch) -> None:
    """One matrix for all rows, which are the axes but the last one; transposed as weights are."""
    device = on_ptx(monkeypatch)
    a, b = drawn(F16, 2, 3, 7, 24), drawn(F16, 24, 20)
    check_product(result(device, ops.matmul, a, b), a, b)
    turned = np.ascontiguousarray(b.T)
    check_product(result(device, lambda x, y: x @ y.transpose(0, 1), a, turned), a, b)


@pytest.mark.parametrize("target", TARGETS)
def test_neighbours_are_fused(monkeypatch: pytest.MonkeyPatch, target: str) -> None:
    """What stands in front of the operands, and what follows."""
    device = on_ptx(monkeypatch, target)
    a, b, bias, more = drawn(BF16, 20, 40), drawn(BF16, 40, 24), drawn(BF16, 24), drawn(BF16, 20, 24)

    def build(a: Any, b: Any, bias: Any, more: Any) -> Any:
        return ops.relu((a * 2.0) @ b + bias) - more

    found = result(device, build, a, b, bias, more)
    wide = [array.astype(np.float64) for array in (a, b, bias, more)]
    exact = 2 * wide[0] @ wide[1]
    wanted = np.maximum(exact + wide[2], 0) - wide[3]
    size = np.abs(exact) + np.abs(wide[2]) + np.abs(wide[3])
    assert (np.abs(found.astype(np.float64) - wanted) <= 0.02 * size + 1e-3).all()


# *** attention ***

ATTENDED: dict[str, tuple[tuple[int, ...], tuple[int, ...], dict[str, Any]]] = {
    "square": ((1, 40, 32), (1, 40, 32), {}),
    "one query": ((2, 1, 64), (2, 70, 64), {}),
    "causal": ((2, 70, 32), (2, 70, 32), {"causal": True}),
    "shared heads": ((4, 20, 48), (2, 65, 48), {"causal": True}),
    "a window": ((1, 40, 32), (1, 80, 32), {"window": 9}),
    "a causal window": ((2, 33, 32), (2, 33, 32), {"causal": True, "window": 5}),
    "wide": ((1, 17, 96), (1, 40, 96), {}),
    "batches": ((2, 2, 9, 16), (2, 1, 20, 16), {"scale": -0.5}),
    "odd": ((1, 20, 31), (1, 70, 31), {"causal": True}),
}


def attended(device: Any, dtype: Any, name: str, mask: Array | None = None, shapes: Any = (), **more: Any) -> None:
    queries, keys, how = ATTENDED[name]
    q, k, v = drawn(dtype, *queries), drawn(dtype, *keys), drawn(dtype, *keys[:-1], keys[-1] - 8)
    how = {**how, **more}
    operands = [q, k, v] if mask is None else [q, k, v, mask]
    found = result(
        device, lambda q, k, v, *m: ops.attention(q, k, v, mask=m[0] if m else None, **how), *operands, shapes=shapes
    )
    given = (how.get("causal", False), how.get("window", 0), how.get("scale", keys[-1] ** -0.5))
    seen = np.float64(0) if mask is None else mask.astype(np.float64)
    lengths, offsets = how.get("valid_length"), how.get("offset", 0)
    wide_q, wide_k, wide_v = (array.astype(np.float64) for array in (q, k, v))
    wanted = _reference(
        wide_q, wide_k, wide_v, seen, given, None if lengths is None else np.array(lengths), np.array(offsets)
    )
    largest = np.abs(wide_v).max()
    assert np.abs(found.astype(np.float64) - wanted).max() <= 3 * float(ml_dtypes.finfo(dtype).eps) * largest


@pytest.mark.parametrize("name", ATTENDED)
def test_attention_in_ptx(monkeypatch: pytest.MonkeyPatch, name: str) -> None:
    attended(on_ptx(monkeypatch), BF16 if len(name) % 2 else F16, name)


@pytest.mark.parametrize("name", ("square", "causal", "shared heads", "wide"))
def test_attention_of_four_warps_in_ptx(monkeypatch: pytest.MonkeyPatch, name: str) -> None:
    attended(on_ptx(monkeypatch, "sm_90a"), BF16 if len(name) % 2 else F16, name)


@pytest.mark.parametrize("name", ("causal", "one query", "wide", "odd"))
def test_attention_of_any_number_of_queries(monkeypatch: pytest.MonkeyPatch, name: str) -> None:
    """One kernel takes few and many queries, whose number is known at the call only."""
    queries, keys, _ = ATTENDED[name]
    size = keys[-1]
    shapes = ((queries[0], "m", size), (keys[0], "n", size), (keys[0], "n", size - 8))
    attended(on_ptx(monkeypatch), BF16 if len(name) % 2 else F16, name, shapes=shapes)


@pytest.mark.parametrize("size", (64, 128, 256))
def test_code_of_any_number_of_queries(size: int) -> None:
    """Heads up to 128 go by tiles in two kernels, for few and for many queries, and larger ones without."""
    types = [TensorType(DType.float16, ("b", 4, "m", size), GPU)] * 3
    code = Graph("attention", lambda q, k, v: ops.attention(q, k, v, causal=True, window=99), types).code(
        "asm", "sm_90a"
    )
    assert code.count(".visible .entry") == (2 if size <= 128 else 1)
    assert ("mma.sync" in code) == (size <= 128)


def test_attention_with_masks_and_bounds(monkeypatch: pytest.MonkeyPatch) -> None:
    """-inf in a mask hides a key, and all of a row give 0; of a cache with room for more only some keys count."""
    device = on_ptx(monkeypatch)
    mask = drawn(np.float32, 1, 40, 40)
    mask[:, :, 3] = -np.inf
    mask[:, 5] = -np.inf
    attended(device, F16, "square", mask)
    attended(device, BF16, "causal", causal=True, valid_length=37, offset=30)
    attended(device, BF16, "one query", causal=True, valid_length=0, offset=0)


@pytest.mark.parametrize("name", ("causal", "one query"))
def test_attention_on_a_simulated_gpu(name: str) -> None:
    attended(Accelerator("sim", like="sm_90a", seed=3, checks="all"), BF16, name)
